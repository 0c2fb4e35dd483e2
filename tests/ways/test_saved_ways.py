"""Checkpoints of runs whose way the library chooses, and of mixed models: they go on to the same
draws, and never with those of another run.
"""

from __future__ import annotations

import copy
import shutil
import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
from helpers import ROOT
from limits import child, finished
from mutations import limited, memory, with_a_lie_in_numbers, with_a_lie_in_words
from stopping import stopping_before

import ornstein as orn
from ornstein.engine import blocks
from ornstein.sampling.checkpoint import FORMAT, files_in, read_sealed, write_sealed
from ornstein.ways import automatic

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3))
Y = X @ [1.0, -1.0, 0.5] + RNG.normal(size=600)
OPTIONS = {
    "batch_size": 20,
    "draws": 40,
    "chains": 2,
    "warmup": 100,
    "thin": 10,
    "remedy": False,
    "progress": False,
}
MIXED = {"draws": 40, "chains": 2, "warmup": 100, "thin": 20, "batch_size": 8, "progress": False}


def regression(X=X, y=Y, **settings):
    return orn.glm(X, y, **{"noise_scale": 1.0, "prior_precision": 1.0, **settings})


def grouped(seed=1, groups=24, rows=5):
    """Columns, a response, and the group of each row; half of the groups are larger."""
    rng = np.random.default_rng(seed)
    sizes = rows + np.arange(groups) % 2
    labels = np.repeat(np.arange(groups), sizes)
    x = rng.normal(size=(len(labels), 1))
    effect = 0.5 * rng.normal(size=groups)
    return x, 0.4 * x[:, 0] + effect[labels] + rng.normal(size=len(labels)), labels


@pytest.fixture(scope="module", autouse=True)
def short_blocks():
    """Several short blocks, so that a short run has some places to stop at; and one verdict for
    all runs, for it takes longer than they do.
    """
    judge, known = automatic.judge, []

    def judged(*arguments):
        known.extend([] if known else [judge(*arguments)])
        return known[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_NUMBERS", 2**11)
        patch.setattr(automatic, "judge", judged)
        yield


@pytest.fixture(scope="module")
def whole(short_blocks):
    return orn.sample(regression(), **OPTIONS)


@pytest.fixture(scope="module")
def saved(short_blocks, tmp_path_factory):
    """The folder of a run that is over, and of one that was stopped in the middle of its way."""
    folders, stop = {}, None
    for name in ("over", "stopped"):
        folders[name] = tmp_path_factory.mktemp("runs") / name
        with stopping_before(stop) as pieces:
            post = orn.sample(regression(), checkpoint=folders[name], every=0, **OPTIONS)
        assert post.settings["complete"] == (stop is None)
        stop = 3 * len(pieces) // 4
    return folders


def copied(folder, place):
    return shutil.copytree(folder, place / "run")


@pytest.mark.parametrize("state", ["over", "stopped"])
def test_a_run_goes_on_inside_its_way(state, saved, whole, tmp_path):
    folder = copied(saved[state], tmp_path)
    with stopping_before(None) as pieces:
        resumed = orn.resume(folder, regression(), progress=False)
    assert (len(pieces) == 0) == (state == "over")
    np.testing.assert_array_equal(resumed.draws, whole.draws)
    assert [one.way for one in resumed.history] == [one.way for one in whole.history]
    assert [one.verdict for one in resumed.history] == [one.verdict for one in whole.history]


def test_a_sampler_is_not_passed_over_where_the_library_chooses(saved, tmp_path):
    folder = copied(saved["over"], tmp_path)
    with pytest.raises(orn.InputError, match="the library chooses the way of this run"):
        orn.resume(folder, regression(), sampler=orn.SGLD(), progress=False)


def test_more_draws_by_resuming_twice(saved, tmp_path):
    folder = copied(saved["over"], tmp_path)
    longer = orn.sample(regression(), **{**OPTIONS, "draws": 60})
    for draws in (60, None):
        resumed = orn.resume(folder, regression(), draws=draws, progress=False)
        assert resumed.history[0].way == longer.history[0].way
        np.testing.assert_array_equal(resumed.draws, longer.draws)


OTHERS = {
    "600 rows as before, with other values": lambda: regression(y=Y[::-1].copy()),
    "600 rows before, 599 now": lambda: regression(X[1:], Y[1:]),
    "prior_precision was 1.0 and is 2.0": lambda: regression(prior_precision=2.0),
    "noise_scale was 1.0 and is 1.5": lambda: regression(noise_scale=1.5),
    "family was 'gaussian' and is 'poisson'": lambda: orn.glm(
        X, np.round(np.abs(Y)), "poisson", prior_precision=1.0
    ),
}


@pytest.mark.parametrize("words", OTHERS)
def test_another_model_is_refused(words, saved):
    with pytest.raises(orn.InputError, match=words):
        orn.resume(saved["stopped"], OTHERS[words](), progress=False)


def test_the_state_of_another_way_is_refused(saved, whole, tmp_path):
    """Of the same model, under another seed and of another sampler: not this run's draws."""
    folder, seeded, other = copied(saved["stopped"], tmp_path), tmp_path / "1", tmp_path / "2"
    orn.sample(regression(), checkpoint=seeded, **{**OPTIONS, "seed": 1})
    name = "sgfs-full" if whole.history[0].way != "sgfs-full" else "sgld-cv"
    options = {key: value for key, value in OPTIONS.items() if key != "remedy"}
    orn.sample(regression(), name, checkpoint=other, **options)
    for words, state in (("seed", seeded / "way-0"), ("sampler", other)):
        shutil.rmtree(folder / "way-0")
        shutil.copytree(state, folder / "way-0")
        with pytest.raises(orn.FileError, match=f"the option {words} differs"):
            orn.resume(folder, regression(), progress=False)


def fuzz(folder, place, whole, count, seed):
    """Forgeries with the right seal, of what was asked for and of the way's state."""
    rng, refused = np.random.default_rng(seed), 0
    contents = {name: read_sealed(files_in(folder / name)[-1], FORMAT) for name in (".", "way-0")}
    with memory(700_000_000):
        for number in range(count):
            run = shutil.copytree(folder, place / str(number))
            name = (".", "way-0")[number % 2]
            meta, arrays = contents[name]
            meta, arrays = copy.deepcopy(meta), dict(arrays)
            words = not arrays or rng.integers(2)
            lie = with_a_lie_in_words if words else with_a_lie_in_numbers
            said = lie(meta if words else arrays, rng)
            for old in files_in(run / name):
                old.unlink()
            try:
                write_sealed(run / name / "checkpoint-00000001.npz", meta, arrays)
            except (TypeError, ValueError):
                continue
            try:
                with limited(4.0), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    answer = orn.resume(run, regression(), progress=False)
            except orn.OrnsteinError as error:
                assert "\n" not in str(error)
                refused += 1
                continue
            except BaseException as error:
                raise AssertionError(f"forgery {number} of seed {seed}: {said}") from error
            finally:
                shutil.rmtree(run)
            assert np.all(np.isfinite(answer.draws)), said
            assert answer.draws.shape[2] == whole.draws.shape[2]
    return refused


def test_forged_checkpoints_of_ways(saved, whole, tmp_path):
    assert fuzz(saved["over"], tmp_path, whole, 30, seed=0) > 10


@pytest.mark.slow
def test_a_thousand_forged_checkpoints_of_ways(saved, whole, tmp_path):
    assert fuzz(saved["over"], tmp_path, whole, 1_000, seed=1) > 400


def stopping(*arguments):
    raise KeyboardInterrupt


def test_ctrl_c_while_a_way_is_judged_keeps_its_draws(monkeypatch, whole):
    monkeypatch.setattr(automatic, "judge", stopping)
    post = orn.sample(regression(), **OPTIONS)
    assert post.settings["complete"] is False and post.verdict is None
    assert post.history[-1].verdict == "interrupted"
    np.testing.assert_array_equal(post.draws, whole.draws)


class Narrow:
    """A way that is not trusted."""

    name, stochastic = "narrow", False

    def run(self, situation, request, work=1.0):
        right = orn.laplace(situation.model, curvature=situation.curvature, seed=request.seed)
        return replace(right, draws=right.mean + 0.3 * (right.draws - right.mean), moments=None)


class Stopped:
    """A way during which the user gives up."""

    name, stochastic, run = "stopped", False, stopping


def test_ctrl_c_in_the_next_way_keeps_the_draws_of_the_one_before(monkeypatch):
    forecast = orn.plan(regression())["laplace"]
    monkeypatch.setattr(automatic, "following", lambda *rest: (Stopped(), forecast))
    monkeypatch.setattr(automatic, "chosen_way", lambda plan: Narrow())
    post = orn.sample(regression(), progress=False)
    assert [one.way for one in post.history] == ["narrow", "stopped"]
    assert [one.verdict for one in post.history] == ["not trusted", "interrupted"]
    assert post.settings["complete"] is False and post.settings["way"] == "narrow"
    assert post.verdict.level == "not trusted" and post.draws.size


def test_ctrl_c_before_any_draws_is_a_keyboard_interrupt(monkeypatch):
    monkeypatch.setattr(automatic, "chosen_way", lambda plan: Stopped())
    with pytest.raises(KeyboardInterrupt):
        orn.sample(regression(), progress=False)


NO_CHOICE = {
    "budget": {"sampler": orn.SGLD(), "budget": 5.0},
    "deadline": {"sampler": "sgld", "deadline": "5s"},
    "checkpoint": {"sampler": "nuts", "checkpoint": "run"},
    "client": {"sampler": "laplace", "client": object()},
}


@pytest.mark.parametrize("name", NO_CHOICE)
def test_what_would_be_passed_over_is_refused(name):
    with pytest.raises(orn.InputError, match=f"{name} has no effect here.*leave it out"):
        orn.sample(regression(), progress=False, **NO_CHOICE[name])


def mixed(x=None, y=None, labels=None, **settings):
    columns, response, groups = grouped()
    given = [columns if x is None else x, response if y is None else y]
    return orn.glmm(*given, groups if labels is None else labels, **settings)


def swapped(labels):
    """Two rows of groups of one size change places: the same sizes, other groups."""
    changed = labels.copy()
    first, other = np.flatnonzero(labels == 0)[0], np.flatnonzero(labels == 2)[0]
    changed[[first, other]] = changed[[other, first]]
    return changed


@pytest.fixture(scope="module")
def mixed_run(short_blocks, tmp_path_factory):
    folder, model = tmp_path_factory.mktemp("mixed") / "run", mixed()
    with stopping_before(None) as pieces:
        whole = orn.sample(model, orn.ConstantSGD("full"), **MIXED)
    with stopping_before(3 * len(pieces) // 4):
        partial = orn.sample(model, orn.ConstantSGD("full"), checkpoint=folder, every=0, **MIXED)
    assert not partial.settings["complete"]
    return folder, model, whole


def test_a_mixed_model_goes_on_to_the_same_draws(mixed_run, tmp_path):
    folder, model, whole = mixed_run
    resumed = orn.resume(copied(folder, tmp_path), model, progress=False)
    np.testing.assert_array_equal(resumed.draws, whole.draws)


def other_mixed():
    x, y, labels = grouped()
    one = np.arange(len(y)) == 7
    return {
        "its grouping": (mixed(labels=swapped(labels)), "rows as before|groups|other values"),
        "its response": (mixed(y=y + 1e-9 * one), "other values"),
        "a column": (mixed(x=x + 1e-9 * one[:, None]), "other values"),
        "an offset": (mixed(offset=1e-9 * one), "other values"),
        "its prior": (mixed(priors=orn.MixedPriors(effect_scale=1.0)), "the hyperparameter"),
    }


def test_another_mixed_model_is_refused(mixed_run):
    folder, _, _ = mixed_run
    for model, words in other_mixed().values():
        with pytest.raises(orn.InputError, match=f"belongs to another run.*({words})"):
            orn.resume(folder, model, progress=False)


CHOOSING = """
import os, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import ornstein as orn
from helpers import regression_data
from ornstein.engine import blocks

blocks.BLOCK_NUMBERS = 2**11
folder = sys.argv[2]
X, y = regression_data(600, 3, seed=3)
model = orn.glm(X, y, noise_scale=1.0, prior_precision=1.0)
options = dict(batch_size=10, draws=4000, chains=2, warmup=2000, progress=False)
if folder == "none":
    post = orn.sample(model, **options)
elif os.path.isdir(folder) and any(name.endswith(".npz") for name in os.listdir(folder)):
    post = orn.resume(folder, model, every=0.01, progress=False)
else:
    post = orn.sample(model, checkpoint=folder, every=0.01, **options)
np.save(sys.argv[3], post.draws)
"""


@pytest.mark.slow
def test_killed_at_twenty_random_moments_while_the_library_chooses(tmp_path):
    """Planning, sampling, judging, writing: whatever it was at, it goes on to the same draws."""
    rng, folder = np.random.default_rng(0), tmp_path / "run"

    def begun(place, result):
        return child(CHOOSING, ROOT / "tests", place, result)

    for _ in range(20):
        process = begun(folder, tmp_path / "draws.npy")
        before = set(folder.glob("**/*.npz"))
        while process.poll() is None and set(folder.glob("**/*.npz")) <= before:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 1.0))
        process.kill()
        process.communicate()
    for place in (folder, "none"):
        code, _, errors = finished(begun(place, tmp_path / f"{place != folder}.npy"))
        assert code == 0, errors
    resumed, whole = (np.load(tmp_path / f"{name}.npy") for name in (False, True))
    np.testing.assert_array_equal(resumed, whole)
