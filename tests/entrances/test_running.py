"""The public functions say the same thing in fewer words: nothing is lost on the way."""

from __future__ import annotations

import numpy as np
import pytest

import ornstein as orn
from ornstein.entrances import running

SMALL = {"draws": 20, "chains": 2, "batch_size": 20, "warmup": 20, "thin": 2, "progress": False}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    dose = rng.normal(size=200)
    return {"dose": dose, "ward": rng.choice(["a", "b"], 200), "days": dose + rng.normal(size=200)}


@pytest.fixture(scope="module")
def model(table):
    return orn.regress("days ~ dose + ward", table, progress=False)


@pytest.fixture(scope="module")
def draws(model):
    return orn.sample(model, orn.ConstantSGD("full"), seed=3, **SMALL).draws


def test_fit_is_regress_and_then_sample(table, draws):
    sampler = orn.ConstantSGD("full")
    post = orn.fit("days ~ dose + ward", table, sampler=sampler, seed=3, **SMALL)
    assert np.array_equal(post.draws, draws)


def test_a_name_stands_for_its_sampler(model, draws):
    post = orn.sample(model, "constant-sgd-full", seed=3, **SMALL)
    assert np.array_equal(post.draws, draws)


def test_only_what_was_understood_of_a_table_is_printed(table, capsys):
    orn.regress("days ~ dose + ward", table, progress=False)
    assert capsys.readouterr() == ("", "")
    orn.regress("days ~ dose + ward", table)
    printed = capsys.readouterr()
    assert printed.out == "" and "gaussian" in printed.err and "200" in printed.err


@pytest.mark.parametrize("sampler", ["no such sampler", 3, orn.SGLD])
def test_what_is_no_sampler_is_refused(model, sampler):
    with pytest.raises(orn.InputError, match="sampler"):
        orn.sample(model, sampler, **SMALL)


KINDS = {  # of checkpoints: arguments that are for another kind
    "em": {"sampler": orn.SGLD(), "curvature": object()},
    "ways": {"sampler": orn.SGLD(), "validation": (), "max_blocks": 3},
    "": {"validation": (), "max_blocks": 3},
}


@pytest.mark.parametrize(("kind", "name"), [(k, name) for k in KINDS for name in KINDS[k]])
def test_resume_refuses_what_would_be_passed_over(kind, name, model, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "newest", lambda folder: (folder, {"kind": kind}, {}))
    with pytest.raises(orn.InputError, match=f"^{name} has no .*leave it out"):
        orn.resume(tmp_path, model, **{name: KINDS[kind][name]})
