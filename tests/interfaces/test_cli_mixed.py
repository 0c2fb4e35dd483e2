"""Mixed models on the command line: from a formula with a group term to predictions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import ornstein as orn
from ornstein.interfaces.cli.main import main

pytestmark = pytest.mark.slow


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


def test_a_formula_with_groups_is_fitted_judged_and_used(tmp_path, capsys):
    rng = np.random.default_rng(0)
    school = np.repeat(np.arange(80), 6)
    table = pd.DataFrame({"hours": rng.normal(size=480), "school": [f"s{k}" for k in school]})
    effects = 0.8 * rng.normal(size=80)
    table["score"] = 1.0 + 0.5 * table["hours"] + effects[school] + rng.normal(size=480)
    table.to_csv(tmp_path / "scores.csv", index=False)
    out = tmp_path / "fit"
    formula = "score ~ hours + (1 | school)"
    status = run(
        "fit", tmp_path / "scores.csv", "--formula", formula, "--out", out, "--strict",
        "--draws", 500,
    )  # fmt: skip
    shown = capsys.readouterr()
    assert status == 0, shown.err
    assert "80 groups of school" in shown.err
    assert "sd(intercept|school)" in shown.out
    assert "Verdict: trusted" in shown.out
    new = tmp_path / "new.csv"
    table[["hours", "school"]].head(20).to_csv(new, index=False)
    spread = {}
    for groups in ("average", "new"):
        path = tmp_path / f"{groups}.csv"
        assert run("predict", out / "fit.orn", new, "--out", path, "--groups", groups) == 0
        spread[groups] = pd.read_csv(path)["score_sd"].to_numpy()
    sds = orn.load(out / "fit.orn").summary()["mean"]
    assert spread["average"] == pytest.approx(np.full(20, sds["sigma"]), rel=0.05)
    both = np.hypot(sds["sigma"], sds["sd(intercept|school)"])
    assert spread["new"] == pytest.approx(np.full(20, both), rel=0.05)
    capsys.readouterr()
    assert run("predict", out / "fit.orn", new, "--out", path, "--groups", "known", "--force") == 2
    assert "a saved file does not hold" in capsys.readouterr().err
