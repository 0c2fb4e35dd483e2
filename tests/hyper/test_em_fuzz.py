"""Checkpoints of `orn.em` from strangers: refused in words, or a fit of finite numbers."""

from __future__ import annotations

import copy
import warnings
from contextlib import suppress

import numpy as np
import pytest
from helpers import regression_data
from mutations import limited, memory, with_a_lie_in_numbers, with_a_lie_in_words

import ornstein as orn
from ornstein.hyper.climb import Climb
from ornstein.sampling.checkpoint import FORMAT, read_sealed, write_sealed

OPTIONS = {"draws": 20, "chains": 2, "batch_size": 8, "tolerance": 0.05, "progress": False}
KINDS = {
    "full": {},
    "diagonal": {"sampler": "diagonal"},
    "paper": {"recipe": "paper", "max_blocks": 8, "tolerance": 0.5},
}
BLOCKS = 3  # taken before Ctrl-C


def stopping(self, thrown_away, *, block=Climb._block):
    if len(self.ascent.blocks) == BLOCKS:
        raise KeyboardInterrupt
    block(self, thrown_away)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A model and the contents of a checkpoint of every kind of climb, none of them over."""
    model, contents = orn.glm(*regression_data(200, 4, seed=1), noise_scale=1.0), []
    for options in KINDS.values():
        folder = tmp_path_factory.mktemp("em")
        with pytest.MonkeyPatch.context() as patched, suppress(KeyboardInterrupt):
            patched.setattr(Climb, "_block", stopping)
            orn.em(model, checkpoint=folder, every=0, **{**OPTIONS, **options})
        contents.append(read_sealed(sorted(folder.iterdir())[-1], FORMAT))
    return model, contents


def resumed(folder, model, meta, arrays, seconds=2.0):
    """The fit, None where it is refused."""
    write_sealed(folder / "checkpoint-00000001.npz", meta, arrays)
    try:
        with limited(seconds), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return orn.resume(folder, model, progress=False)
    except orn.OrnsteinError as error:
        assert "\n" not in str(error)
        return None
    finally:
        for path in folder.iterdir():
            path.unlink()


def fuzz(stopped, folder, count, seed):
    model, contents = stopped
    rng, refused = np.random.default_rng(seed), 0
    for meta, arrays in contents:  # as they are, they serve; and all is compiled
        assert resumed(folder, model, meta, arrays, 60.0) is not None
    with memory(500_000_000):
        for number in range(count):
            meta, arrays = contents[number % len(contents)]
            meta, arrays = copy.deepcopy(meta), dict(arrays)
            lie = with_a_lie_in_words if rng.integers(2) else with_a_lie_in_numbers
            said = lie(meta if lie is with_a_lie_in_words else arrays, rng)
            try:
                answer = resumed(folder, model, meta, arrays)
            except BaseException as error:
                raise AssertionError(f"forgery {number} of seed {seed}: {said}") from error
            refused += answer is None
            if answer is not None:
                assert np.all(np.isfinite(answer.posterior.draws)), (number, said)
    return refused


def test_forged_checkpoints(stopped, tmp_path):
    assert fuzz(stopped, tmp_path, 40, seed=0) > 20


@pytest.mark.slow
def test_a_thousand_forged_checkpoints(stopped, tmp_path):
    assert fuzz(stopped, tmp_path, 1000, seed=1) > 500


def words(*path, value):
    def lie(meta, arrays):
        node = meta
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value

    return lie


def array(name, value):
    return lambda meta, arrays: arrays.update({f"climb/{name}": value})


LIES = {
    "draws of years": words("request", "draws", value=10**7),
    "another seed": words("request", "seed", value=4),
    "a stride of years": words("climb", "stage", "stride", value=10**15),
    "a million chains": words("request", "chains", value=10**6),
    "notes of numbers": words("climb", "notes", value={"cap": 3}),
    "a coordinate that is not there": words("climb", "runaway", value={"7": "infinity"}),
    "no dynamics": words("climb", "stage", "dynamics", value=3),
    "a position of two": array("chains/1/arrays/position", np.zeros(2, np.float32)),
    "a position of NaN": array("stage/positions", np.full((2, 5), np.nan)),
    "two modes": array("tuning/mode", np.zeros((2, 5))),
    "hyperparameters of NaN": array("ascent/phi", np.full(1, np.nan)),
    "blocks of other chains": array("ascent/blocks_slopes", np.zeros((3, 9, 1))),
    "a chain before its start": array("chains/0/counters/used", np.asarray(-5)),
}


@pytest.mark.parametrize("lie", LIES)
def test_checkpoints_that_lie(lie, stopped, tmp_path):
    model, contents = stopped
    meta, arrays = copy.deepcopy(contents[0][0]), dict(contents[0][1])
    LIES[lie](meta, arrays)
    write_sealed(tmp_path / "checkpoint-00000001.npz", meta, arrays)
    with memory(500_000_000), limited(2.0), pytest.raises(orn.OrnsteinError) as caught:
        orn.resume(tmp_path, model, progress=False)
    assert "\n" not in str(caught.value)
