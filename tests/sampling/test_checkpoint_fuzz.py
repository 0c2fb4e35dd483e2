"""Checkpoints from strangers: an OrnsteinError or the draws of the run, in seconds and without much
memory.

Mutations of bytes, as for `load`; and forgeries, which are well-formed files with right checksums
that lie about one thing.
"""

from __future__ import annotations

import copy
import json
import warnings
from contextlib import suppress

import numpy as np
import pytest
from helpers import regression_data
from mutations import limited, memory, mutated, with_a_lie_in_numbers, with_a_lie_in_words
from stopping import stopping_before

import ornstein as orn
from ornstein.engine import blocks
from ornstein.sampling.checkpoint import FORMAT, read_sealed, write_sealed

OPTIONS = {
    "draws": 6,
    "chains": 2,
    "warmup": 300,
    "thin": 70,
    "batch_size": 10,
    "max_steps": 20_000,
    "progress": False,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model, the draws of an undisturbed run, and checkpoints from several stages of it."""
    X, y = regression_data(300, 2, seed=3)
    model = orn.glm(X, y, noise_scale=1.0, prior_precision=1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_NUMBERS", 2**11)
        whole, contents = orn.sample(model, orn.ConstantSGD("full"), **OPTIONS), []
        for piece in (2, 5, 7):
            folder = tmp_path_factory.mktemp("run")
            with stopping_before(piece), suppress(KeyboardInterrupt):
                orn.sample(model, orn.ConstantSGD("full"), checkpoint=folder, every=0, **OPTIONS)
            path = sorted(folder.iterdir())[-1]
            contents.append(path.read_bytes())
        yield model, whole, contents


def resumed(folder, model):
    """What resuming gives, None where it is refused; the folder is empty afterwards."""
    try:
        with limited(2.0), warnings.catch_warnings():
            warnings.simplefilter("ignore", orn.OrnsteinWarning)
            return orn.resume(folder, model, progress=False)
    except orn.OrnsteinError as error:
        assert "\n" not in str(error)
        return None
    finally:
        for path in folder.iterdir():
            path.unlink()


def fuzz_bytes(run, folder, count, seed):
    model, whole, contents = run
    rng, refused = np.random.default_rng(seed), 0
    (folder / "checkpoint-00000001.npz").write_bytes(contents[-1])
    np.testing.assert_array_equal(resumed(folder, model).draws, whole.draws)  # as it is, it serves
    with memory(500_000_000):
        for number in range(count):
            content = mutated(contents[number % len(contents)], rng)
            (folder / "checkpoint-00000001.npz").write_bytes(content)
            answer = resumed(folder, model)
            refused += answer is None
            assert answer is None or np.array_equal(answer.draws, whole.draws), (
                f"mutation {number} of seed {seed} gave other draws"
            )
    return refused


def fuzz_content(run, folder, count, seed):
    """Forgeries with the right seal: refused, or finite draws of the shape that was planned."""
    model, whole, contents = run
    rng, refused, known = np.random.default_rng(seed), 0, []
    path = folder / "checkpoint-00000001.npz"
    for content in contents:
        path.write_bytes(content)
        known.append(read_sealed(path, FORMAT))
    with memory(500_000_000):
        for number in range(count):
            meta, arrays = known[number % len(known)]
            meta, arrays = copy.deepcopy(meta), dict(arrays)
            if rng.integers(2):
                said = with_a_lie_in_words(meta, rng)
            else:
                said = with_a_lie_in_numbers(arrays, rng)
            try:
                write_sealed(path, meta, arrays)
            except (TypeError, ValueError):
                continue
            try:
                answer = resumed(folder, model)
            except BaseException as error:
                raise AssertionError(f"forgery {number} of seed {seed}: {said}") from error
            refused += answer is None
            if answer is not None:
                assert np.all(np.isfinite(answer.draws)), f"forgery {number} of seed {seed}"
                assert answer.draws.shape[::2] == whole.draws.shape[::2]
    return refused


def test_mutated_checkpoints(run, tmp_path):
    assert fuzz_bytes(run, tmp_path, 400, seed=0) > 200


def test_forged_checkpoints(run, tmp_path):
    assert fuzz_content(run, tmp_path, 400, seed=0) > 200


@pytest.mark.slow
def test_ten_thousand_mutated_checkpoints(run, tmp_path):
    assert fuzz_bytes(run, tmp_path, 10_000, seed=1) > 5000


@pytest.mark.slow
def test_ten_thousand_forged_checkpoints(run, tmp_path):
    assert fuzz_content(run, tmp_path, 10_000, seed=1) > 5000


def plan(**values):
    return lambda meta, arrays: meta["plan"].update(values)


def array(path, value):
    return lambda meta, arrays: arrays.update({path: value})


LIES = {
    "a terabyte of draws": plan(draws=10**10),
    "gigabytes of draws": plan(draws=59_000_000),
    "no draws": plan(draws=0),
    "a million chains": plan(chains=10**6),
    "draws that take years": plan(thin=10**12),
    "warm-up of years": plan(warmup=10**15),
    "moments of no kind": plan(keep="everything"),
    "a sketch of a million directions": plan(keep="low-rank:1000000"),
    "draws in words": plan(draws="ten"),
    "a batch of terabytes": lambda meta, arrays: meta["dynamics"].update(batch_size=10**12),
    "a window of years": lambda meta, arrays: meta["dynamics"].update(window=10**12),
    "a step of NaN": lambda meta, arrays: arrays.update(
        {key: np.full(value.shape, np.nan) for key, value in arrays.items() if "precond" in key}
    ),
    "an unstable step": lambda meta, arrays: arrays.update(
        {key: 1e6 * value for key, value in arrays.items() if "precond" in key}
    ),
    "a position of NaN": array("chains/0/arrays/position", np.full(3, np.nan, np.float32)),
    "a position of five": array("chains/0/arrays/position", np.zeros(5, np.float32)),
    "a position in words": array("chains/0/arrays/position", np.full(3, "a")),
    "another precision": array("chains/0/arrays/position", np.zeros(3)),
    "a chain beyond its end": array("chains/0/counters/step", np.asarray(10**9)),
    "a chain before its start": array("chains/0/counters/step", np.asarray(-5)),
    "draws that were not taken": array("collection/draws/filled", np.asarray([6, 6])),
    "draws of NaN": array("collection/draws/values", np.full((2, 6, 3), np.nan)),
    "a generator of two words": array("chains/0/randomness/source/words", np.zeros(2, np.uint64)),
    "warm-up that is not over": array("warmup/done", np.asarray(False)),
    "a mode of NaN": array("curvature/mode", np.full(3, np.nan)),
    "a mode of two": array("curvature/mode", np.zeros(2)),
    "a Hessian that is not positive": array("curvature/hessian", -np.eye(3)),
    "other options": lambda meta, arrays: meta["fingerprint"]["options"].update(seed=9),
    "no fingerprint": lambda meta, arrays: meta.pop("fingerprint"),
    "a fingerprint of words": lambda meta, arrays: meta.update(fingerprint="mine"),
    "a class from elsewhere": lambda meta, arrays: meta["dynamics"].update({"class": "os.system"}),
    "a number for a dynamics": lambda meta, arrays: meta.update(dynamics=3),
    "another kind": lambda meta, arrays: meta.update(kind="em"),
}


@pytest.mark.parametrize("lie", LIES)
def test_checkpoints_that_lie(lie, run, tmp_path):
    model, _, contents = run
    path = tmp_path / "checkpoint-00000001.npz"
    path.write_bytes(contents[-1])
    meta, arrays = read_sealed(path, FORMAT)
    meta = json.loads(json.dumps(meta))
    LIES[lie](meta, arrays)
    write_sealed(path, meta, arrays)
    with memory(500_000_000), limited(2.0), pytest.raises(orn.OrnsteinError) as caught:
        orn.resume(tmp_path, model, progress=False)
    assert "\n" not in str(caught.value)


def test_a_lie_is_refused_during_warm_up_too(run, tmp_path):
    model, _, contents = run
    path = tmp_path / "checkpoint-00000001.npz"
    for change in (plan(draws=59_000_000), plan(thin=10**9), plan(warmup=10**15)):
        path.write_bytes(contents[0])
        meta, arrays = read_sealed(path, FORMAT)
        assert "collection/draws/values" not in arrays
        change(meta, arrays)
        write_sealed(path, meta, arrays)
        with memory(500_000_000), limited(2.0), pytest.raises(orn.OrnsteinError):
            orn.resume(tmp_path, model, progress=False)
