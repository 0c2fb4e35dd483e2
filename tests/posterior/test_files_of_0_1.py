"""Files saved by version 0.1, when every module lay in one folder: they load, and say what they
said.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ornstein as orn
from ornstein.interfaces.cli.main import main

FOLDER = Path(__file__).parent / "references"
FACTS = json.loads((FOLDER / "facts.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", FACTS)
def test_a_fit_is_what_it_was(name):
    post, facts = orn.load(FOLDER / f"{name}.orn"), FACTS[name]
    assert np.allclose(post.mean, facts["mean"], rtol=1e-12)
    assert post.dynamics.sampler == facts["sampler"]
    if facts["kl"] is not None:
        assert post.prediction.kl_qp == pytest.approx(facts["kl"], rel=1e-6, abs=1e-9)
    X = np.random.default_rng(0).normal(size=(300, 2))[:3]
    assert np.allclose(np.asarray(post.predict(X).mean), facts["predicted"], rtol=1e-5)


def test_what_it_aimed_at_is_known():
    """Such files say it in the sampler's name."""
    targets = {name: orn.load(FOLDER / f"{name}.orn").dynamics.target for name in FACTS}
    assert targets.pop("iasg_sandwich") == "sandwich" and set(targets.values()) == {"posterior"}


def test_a_fit_of_a_table_predicts(tmp_path):
    new, out = tmp_path / "new.csv", tmp_path / "predicted.csv"
    new.write_text("height,colour\n171.3,green\n168.7,red\n176.4,green\n", encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        main(["predict", str(FOLDER / "table.orn"), str(new), "--out", str(out)])
    assert not stopped.value.code
    found = np.loadtxt(out, delimiter=",", skiprows=1, usecols=(3, 4))
    wanted = [
        [0.4793419264256954, 0.062270952441266014],
        [0.21148276831954718, 0.05573411808202308],
        [0.6009924039244652, 0.05941875459967073],
    ]
    assert np.allclose(found, wanted, rtol=1e-5)
