"""What identifies a run: other data, another prior or family is refused; another number of cores is
the same run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ROOT, regression_data

import ornstein as orn
from ornstein.sampling.checkpoint import read_sealed
from ornstein.sampling.fingerprint import STATE_VERSION, fingerprint, require_same
from ornstein.sampling.identity import identity
from ornstein.sampling.request import SampleRequest

QUICK = {"draws": 5, "chains": 2, "warmup": 20, "thin": 1, "batch_size": 10, "progress": False}


def difference(before, now):
    """The sentence that refuses, None where nothing does."""
    try:
        require_same(before, now, "the folder", "Choose another")
    except orn.InputError as error:
        return str(error)
    return None


def test_what_makes_another_run():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.integers(0, 2, 60)
    base = fingerprint(orn.glm(X, y, family="bernoulli", prior_precision=1.0), SampleRequest())
    assert (
        difference(
            base,
            fingerprint(orn.glm(X, y, family="bernoulli", prior_precision=1.0), SampleRequest()),
        )
        is None
    )
    other = X.copy()
    other[59, 1] += 1e-12
    cases = {
        "60 rows as before, with other values": orn.glm(
            other, y, family="bernoulli", prior_precision=1.0
        ),
        "60 rows before, 59 now": orn.glm(X[1:], y[1:], family="bernoulli", prior_precision=1.0),
        "family was 'bernoulli' and is 'poisson'": orn.glm(
            X, y.astype(float), family="poisson", prior_precision=1.0
        ),
        "hyperparameter prior_precision was 1.0 and is 2.0": orn.glm(
            X, y, family="bernoulli", prior_precision=2.0
        ),
        "hyperparameter prior_precision differs": orn.glm(
            X, y, family="bernoulli", prior_precision=[1.0, 2.0]
        ),
        "has 3 parameters": orn.glm(X, y, family="bernoulli", intercept=False, prior_precision=1.0),
    }
    for words, model in cases.items():
        said = difference(base, fingerprint(model, SampleRequest()))
        assert words in said and said.endswith("Choose another")
    for options in ({"seed": 1}, {"draws": 7}, {"sampler": orn.SGLD()}, {"init": np.ones(3)}):
        said = difference(
            base,
            fingerprint(
                orn.glm(X, y, family="bernoulli", prior_precision=1.0), SampleRequest(**options)
            ),
        )
        assert f"the option {next(iter(options))}" in said
    assert base["version"] == STATE_VERSION


def test_functions_of_the_user_are_known_by_their_values():
    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=(50, 2)), "y": rng.normal(size=50)}

    def model(scale, width):
        return orn.Model(
            lambda params, row: -0.5 * scale * (row["y"] - row["x"] @ params) ** 2,
            data,
            lambda params: -0.5 * jnp.sum(params**2) / width,
            init=jnp.zeros(2),
        )

    base = fingerprint(model(1.0, 1.0))
    assert difference(base, fingerprint(model(1.0, 1.0))) is None
    assert "the likelihood differs" in difference(base, fingerprint(model(1.1, 1.0)))
    # over a million rows, such a prior would not show in the mean loss
    assert "the prior differs" in difference(base, fingerprint(model(1.0, 1.001)))


def test_identities_look_inside():
    some, other = (orn.Dynamics(np.full(2000, size), 10) for size in (0.1, 0.1))
    changed = orn.Dynamics(np.r_[np.full(1999, 0.1), 0.2], 10)  # beyond what a repr shows
    assert identity(some) == identity(other) != identity(changed)

    def scheduled(scale):
        return orn.SGLD(schedule=lambda steps: scale / np.sqrt(1000.0 + steps))

    assert identity(scheduled(1.0)) == identity(scheduled(1.0)) != identity(scheduled(2.0))


RATE = 1.0


def decreasing(steps):
    return RATE / np.sqrt(1000.0 + steps)


def named(rate):
    def schedule(steps, *, rate=rate):
        return rate / np.sqrt(1000.0 + steps)

    return schedule


def compiled(rate):
    return jax.jit(lambda steps: rate / jnp.sqrt(1000.0 + steps))


def recursive(rate):
    def schedule(steps):
        return rate if steps < 1 else schedule(steps / 2)

    return schedule


class Rule:
    __slots__ = ("rate",)

    def __init__(self, rate):
        self.rate = rate

    def at(self, steps):
        return self.rate / np.sqrt(1000.0 + steps)


def class_with(method):
    """Classes of one name."""
    return type("Schedule", (), {"__call__": method})()


@pytest.mark.parametrize(
    "make",
    [
        named,
        compiled,
        recursive,
        Rule,
        lambda rate: Rule(rate).at,
        lambda rate: {"a", rate},
        lambda rate: partial(np.multiply, rate),
        lambda rate: partial(named(rate)),
    ],
)
def test_functions_that_reach_another_number_are_others(make):
    assert identity(make(1.0)) == identity(make(1.0)) != identity(make(2.0))


def test_functions_are_known_by_the_globals_that_they_use(monkeypatch):
    """A script that was run with another rate yesterday."""
    before = identity(orn.SGLD(schedule=decreasing))
    assert before == identity(orn.SGLD(schedule=decreasing))
    monkeypatch.setitem(globals(), "RATE", 2.0)
    assert before != identity(orn.SGLD(schedule=decreasing))


def test_functions_of_libraries_and_methods_of_classes_are_known_too():
    assert identity(np.sqrt) == identity(np.sqrt) != identity(np.log)
    assert identity(abs) != identity(len)
    one, other = (class_with(f) for f in (lambda self, k: 1 / k, lambda self, k: 2 / k))
    assert identity(one) == identity(one) != identity(other)


SAME = """
import json, sys
sys.path[:0] = sys.argv[1:]
import ornstein as orn
from ornstein.sampling.identity import identity
from test_checkpoint_identity import decreasing

words = {"a", "b", "c"}
schedule = lambda steps: decreasing(steps) * (len(words) if "a" in {"a", "b", "c"} else 1)
print(json.dumps(identity(orn.SGLD(schedule=schedule))))
"""


def test_identities_are_the_same_in_every_process():
    folders = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT / "tests" / "sampling")]
    said = {
        subprocess.run(
            [sys.executable, "-c", SAME, *folders],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


def test_the_state_of_another_version_is_refused(tmp_path, monkeypatch):
    X, y = regression_data(100, 2)
    model = orn.glm(X, y, prior_precision=1.0)
    with monkeypatch.context() as patch:
        patch.setattr("ornstein.sampling.fingerprint.STATE_VERSION", STATE_VERSION - 1)
        orn.sample(model, orn.ConstantSGD("full"), checkpoint=tmp_path, **QUICK)
    with pytest.raises(orn.FileError, match="version 1 of the state, but this ornstein reads"):
        orn.resume(tmp_path, model, progress=False)


CORES = """
import os, sys
cores, folder, task = int(sys.argv[1]), sys.argv[2], sys.argv[3]
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
sys.path.insert(0, {tests!r})
import jax.numpy as jnp
import numpy as np
import ornstein as orn
from helpers import logistic_data
from stopping import stopping_before

X, y = logistic_data(20_000, 20, seed=2)
models = {{
    "logistic": orn.glm(X, y, family="bernoulli"),
    "function": orn.Model(
        lambda params, row: -0.5 * (row["y"] - jnp.tanh(row["x"] @ params)) ** 2,
        {{"x": X, "y": y}},
        lambda params: -0.5 * jnp.sum(params**2),
        init=np.zeros(20),
    ),
}}
for name, model in models.items():
    place = os.path.join(folder, name)
    if task == "resume":
        post = orn.resume(place, model, progress=False)
    else:
        options = dict(draws=20, chains=2, warmup=200, thin=7, batch_size=64, progress=False)
        with stopping_before(4 if task == "stop" else None):
            try:
                post = orn.sample(
                    model, orn.ConstantSGD("full"), checkpoint=place, every=0, **options
                )
            except KeyboardInterrupt:
                continue
    np.save(os.path.join(folder, name + ".npy"), post.draws)
"""


def on_cores(cores, folder, task):
    folder.mkdir(exist_ok=True)
    script = textwrap.dedent(CORES).format(tests=str(ROOT / "tests"))
    # as for a user: BLAS with as many threads as there are cores
    environment = {key: value for key, value in os.environ.items() if "NUM_THREADS" not in key}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    )
    command = [sys.executable, "-c", script, str(cores), str(folder), task]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two cores",
)
def test_the_number_of_cores_changes_nothing(tmp_path):
    for cores in (1, 2):
        on_cores(cores, tmp_path / str(cores), "whole")
    on_cores(1, tmp_path / "moved", "stop")
    on_cores(2, tmp_path / "moved", "resume")
    for name in ("logistic", "function"):
        one, two, moved = (np.load(tmp_path / run / f"{name}.npy") for run in ("1", "2", "moved"))
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, moved)
        kept = [sorted((tmp_path / run / name).glob("*.npz"))[-1] for run in ("1", "2")]
        (meta, arrays), (meta2, arrays2) = (
            read_sealed(path, "ornstein-checkpoint-1") for path in kept
        )
        assert meta["plan"] == meta2["plan"] and meta["block_steps"] == meta2["block_steps"]
        assert arrays.keys() == arrays2.keys()
        for key in arrays:
            np.testing.assert_array_equal(arrays[key], arrays2[key], err_msg=key)
