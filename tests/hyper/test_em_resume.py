"""`orn.em` stopped, killed and resumed: the answer of a run that was never interrupted, to the
bit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
from helpers import ROOT

import ornstein as orn
from ornstein.hyper.climb import Climb


def data(n_data=200, dimension=4):
    rng = np.random.default_rng(1)
    features = rng.normal(size=(n_data, dimension))
    return features, features @ (0.5 * rng.normal(size=dimension)) + rng.normal(size=n_data)


@pytest.fixture(scope="module")
def model():
    return orn.glm(*data(), prior_precision=1.0, noise_scale=1.0, intercept=False)


OPTIONS = {"draws": 20, "chains": 2, "tolerance": 0.05, "progress": False, "seed": 3}


def same(some, other):
    for name in ("hyperparameters", "errors", "evidence", "notes", "runaway", "validation"):
        np.testing.assert_equal(getattr(some, name), getattr(other, name))
    np.testing.assert_array_equal(some.trajectory.to_numpy(), other.trajectory.to_numpy())
    np.testing.assert_array_equal(some.posterior.draws, other.posterior.draws)
    for name in ("blocks", "stages", "steps", "batch_size", "seed"):
        assert some.settings[name] == other.settings[name], name


def stopped_after(monkeypatch, blocks):
    """Ctrl-C in the block after the given number of them."""
    block = Climb._block

    def interrupted(self, thrown_away):
        if len(self.ascent.blocks) == blocks:
            raise KeyboardInterrupt
        block(self, thrown_away)

    monkeypatch.setattr(Climb, "_block", interrupted)


CASES = {
    "full": {"hyperparameters": ("prior_precision", "noise_scale")},
    "diagonal": {"sampler": "diagonal", "batch_size": 8},
    "paper": {"recipe": "paper", "batch_size": 8, "max_blocks": 30, "tolerance": 0.5},
    "paper, slices": {
        "recipe": "paper",
        "batch_size": 1,
        "scheme": "slices",
        "max_blocks": 30,
        "tolerance": 0.5,
    },
    "groups": {
        "hyperparameters": {"prior_precision": ["a", "a", "b", "b"]},
        "sampler": orn.SGLD(exact=True),
    },
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name != "full" else []) for name in CASES],
)
def test_stopped_and_resumed_is_the_run_that_was_never_stopped(name, model, tmp_path, monkeypatch):
    options = {**OPTIONS, **CASES[name]}
    validation = data(50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", orn.OrnsteinWarning)
        whole = orn.em(model, validation=validation, **options)
        # Twice: before the first re-tuning is over, and in the middle.
        for blocks in (1, whole.settings["blocks"] // 2):
            with monkeypatch.context() as patched:
                stopped_after(patched, blocks)
                with pytest.raises(KeyboardInterrupt):
                    if blocks == 1:
                        orn.em(
                            model, validation=validation, checkpoint=tmp_path, every=0, **options
                        )
                    else:
                        orn.resume(tmp_path, model, validation=validation, every=0, progress=False)
        same(whole, orn.resume(tmp_path, model, validation=validation, progress=False))


def test_twice_as_many_blocks_by_resuming(model, tmp_path):
    options = {**OPTIONS, "tolerance": 1e-6}
    with pytest.warns(orn.BudgetWarning):
        whole = orn.em(model, max_blocks=20, **options)
    with pytest.warns(orn.BudgetWarning):
        half = orn.em(model, max_blocks=10, checkpoint=tmp_path, every="1h", **options)
    assert half.settings["blocks"] == 10
    with pytest.warns(orn.BudgetWarning):
        same(whole, orn.resume(tmp_path, model, max_blocks=20, progress=False))


def test_another_model_folder_or_sampler_is_refused(model, tmp_path):
    with pytest.warns(orn.BudgetWarning):
        orn.em(model, max_blocks=4, checkpoint=tmp_path / "run", **OPTIONS)
    features, target = data()
    features[3, 1] += 1e-9
    with pytest.raises(orn.InputError, match="data are not those"):
        orn.resume(
            tmp_path / "run",
            orn.glm(features, target, noise_scale=1.0, intercept=False, prior_precision=1.0),
        )
    with pytest.raises(orn.InputError, match=r"the hyperparameter noise_scale was 1\.0"):
        orn.resume(
            tmp_path / "run",
            orn.glm(*data(), prior_precision=1.0, noise_scale=2.0, intercept=False),
        )
    with pytest.raises(orn.FileError, match="already holds a checkpoint"):
        orn.em(model, checkpoint=tmp_path / "run", **OPTIONS)
    with pytest.raises(orn.InputError, match="cannot hold the sampler"):
        orn.em(
            model,
            sampler=orn.SGLD(schedule=lambda steps: 1e-3 / (1.0 + steps)),
            checkpoint=tmp_path / "other",
            **OPTIONS,
        )


CHILD = """
import os, signal, sys
sys.path[:0] = [{tests!r}, {here!r}]
import ornstein as orn
from ornstein.posterior import archive
from test_em_resume import OPTIONS, data

folder, at, calls, replace = sys.argv[1], int(sys.argv[2]), 0, os.replace

def die(*arguments):
    global calls
    calls += 1
    if calls == at:
        os.kill(os.getpid(), signal.SIGKILL)  # the new file is whole, but not yet in its place
    replace(*arguments)

archive.os.replace = die
model = orn.glm(*data(), prior_precision=1.0, noise_scale=1.0, intercept=False)
if os.path.isdir(folder):
    orn.resume(folder, model, every=0, progress=False)
else:
    orn.em(model, checkpoint=folder, every=0, **OPTIONS)
"""


@pytest.mark.slow
def test_killed_twice_inside_a_write(model, tmp_path):
    folder = tmp_path / "run"
    script = textwrap.dedent(CHILD).format(
        tests=str(ROOT / "tests"), here=str(ROOT / "tests" / "hyper")
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    }
    for at in (4, 6):
        process = subprocess.run(
            [sys.executable, "-c", script, str(folder), str(at)],
            env=environment,
            capture_output=True,
            timeout=300,
            check=False,
        )
        assert process.returncode == -signal.SIGKILL, process.stderr.decode()
    same(orn.em(model, **OPTIONS), orn.resume(folder, model, progress=False))
