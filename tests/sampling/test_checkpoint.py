"""Checkpoints: a run that was stopped, killed or starved goes on to the draws it would have had, to
the bit.

The tests that kill processes kill real ones, with SIGKILL, also at chosen moments inside the write
of a file.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ROOT, regression_data
from stopping import same, whole_and_resumed

import ornstein as orn
from ornstein.engine import blocks
from ornstein.posterior import archive
from ornstein.samplers.iasg import IASG
from ornstein.samplers.sgfs import SGFS
from ornstein.samplers.sghmc import SGHMC
from ornstein.samplers.sgld import SGLD, robbins_monro
from ornstein.samplers.sgnht import SGNHT
from ornstein.sampling.checkpoint import Checkpoint, seconds
from ornstein.sampling.resume import newest


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    """Many short blocks, so that a short run has many places to stop at."""
    monkeypatch.setattr(blocks, "BLOCK_NUMBERS", 2**11)


@pytest.fixture(scope="module")
def model():
    X, y = regression_data(300, 2, seed=3)
    return orn.glm(X, y, noise_scale=1.0, prior_precision=1.0)


@contextmanager
def stopping_after(writes):
    """Ctrl-C right after the given number of checkpoints."""
    take, count = Checkpoint.take, 0

    def taken(self):
        nonlocal count
        take(self)
        count += 1
        if count == writes:
            raise KeyboardInterrupt

    Checkpoint.take = taken
    try:
        yield
    finally:
        Checkpoint.take = take


SAMPLERS = {
    "full": orn.ConstantSGD("full"),
    "momentum": orn.ConstantSGD("diagonal", damping=0.3),
    "sgld": SGLD(),
    "sgld-cv": SGLD(control_variates=True),
    "sgld-schedule": SGLD(schedule=robbins_monro(2e-4)),
    "sgfs": SGFS(),
    "sghmc": SGHMC(),
    "sgnht": SGNHT(),
    "iasg": IASG(),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_stopped_and_resumed_is_the_run_that_was_never_stopped(name, model, tmp_path):
    options = {
        "draws": 30,
        "chains": 3,
        "batch_size": 10,
        "warmup": 100,
        "thin": "auto" if name == "iasg" else 70,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", orn.OrnsteinWarning)
        whole, resumed = whole_and_resumed(tmp_path, model, SAMPLERS[name], **options)
        assert whole.settings["steps"] > 10 * (blocks.BLOCK_NUMBERS // 10), (
            "too short to be stopped in the middle"
        )
        same(whole, resumed)


@pytest.mark.parametrize("scheme", ["replacement", "without-replacement", "slices"])
def test_twice_as_many_draws_by_resuming(scheme, model, tmp_path):
    options = {"chains": 2, "batch_size": 7, "scheme": scheme, "seed": 5, "progress": False}
    whole = orn.sample(model, orn.ConstantSGD("full"), draws=800, **options)
    orn.sample(model, orn.ConstantSGD("full"), draws=400, checkpoint=tmp_path, **options)
    same(whole, orn.resume(tmp_path, model, draws=800, progress=False))


@pytest.mark.parametrize(
    "options",
    [{"keep": "moments"}, {"dtype": "float64"}, {"thin": 7}, {"chains": 1}, {"init": np.ones(3)}],
)
def test_resuming_under_other_options(options, model, tmp_path):
    options = {"draws": 300, "chains": 2, "batch_size": 10, "warmup": 100, **options}
    same(*whole_and_resumed(tmp_path, model, None, **options))


def nonlinear():
    """A model without a known noise response: it tunes again during warm-up."""
    X, y = regression_data(400, 2, seed=4)

    def log_likelihood(params, example):
        return -0.5 * (example["y"] - example["x"] @ params) ** 2

    return orn.Model(
        log_likelihood,
        {"x": X, "y": y},
        lambda params: -0.5 * jnp.sum(params**2),
        init=jnp.zeros(2),
    )


@pytest.mark.parametrize("writes", [1, 3, 6])
def test_stopped_during_warm_up(writes, model, tmp_path):
    options = {"draws": 50, "chains": 3, "batch_size": 10, "warmup": 2000}
    with stopping_after(writes), pytest.raises(KeyboardInterrupt, match="before the first draw"):
        orn.sample(
            model, orn.ConstantSGD("full"), progress=False, checkpoint=tmp_path, every=0, **options
        )
    same(
        orn.sample(model, orn.ConstantSGD("full"), progress=False, **options),
        orn.resume(tmp_path, model, progress=False),
    )


@pytest.mark.parametrize("writes", [2, 8, 14])
def test_the_tuning_of_the_warm_up_is_part_of_the_state(writes, tmp_path, monkeypatch):
    model = nonlinear()
    rough = replace(orn.measure(model), noise_response=None)
    rough = replace(rough, noise=3.0 * rough.noise)  # wrong on purpose, so that warm-up tunes again

    monkeypatch.setattr(import_module("ornstein.sampling.run"), "measure", lambda model, **_: rough)

    def run(**options):
        return orn.sample(
            model,
            orn.ConstantSGD("full"),
            batch_size=40,
            draws=100,
            chains=2,
            seed=2,
            progress=False,
            **options,
        )

    whole = run()
    assert np.trace(whole.curvature.noise) < 0.5 * np.trace(rough.noise), (
        "the warm-up did not tune again"
    )
    with suppress(KeyboardInterrupt), stopping_after(writes):
        run(checkpoint=tmp_path, every=0)
    same(whole, orn.resume(tmp_path, model, progress=False))


def test_a_function_of_the_users_has_to_be_given_again(model, tmp_path):
    sampler = SGLD(schedule=lambda steps: 2e-4 / np.sqrt(1000.0 + steps))
    options = {
        "draws": 30,
        "chains": 2,
        "batch_size": 10,
        "warmup": 200,
        "thin": 20,
        "progress": False,
    }
    whole = orn.sample(model, sampler, **options)
    # which may be before the first draw: threads come as they come
    with suppress(KeyboardInterrupt), stopping_after(3):
        orn.sample(model, sampler, checkpoint=tmp_path, every=0, **options)
    with pytest.raises(orn.InputError, match="give sampler="):
        orn.resume(tmp_path, model, progress=False)
    with pytest.raises(orn.InputError, match="not that of the checkpoint"):
        orn.resume(
            tmp_path,
            model,
            sampler=SGLD(schedule=lambda steps: 1e-4 / (1000.0 + steps)),
            progress=False,
        )
    same(whole, orn.resume(tmp_path, model, sampler=sampler, progress=False))


def test_a_curvature_of_the_users_has_to_be_given_again(model, tmp_path):
    curvature = orn.measure(model)
    options = {"draws": 100, "batch_size": 10, "progress": False, "curvature": curvature}
    whole = orn.sample(model, orn.ConstantSGD("full"), **options)
    orn.sample(model, orn.ConstantSGD("full"), checkpoint=tmp_path, **options)
    with pytest.raises(orn.InputError, match="give curvature="):
        orn.resume(tmp_path, model, progress=False)
    same(whole, orn.resume(tmp_path, model, curvature=curvature, progress=False))


def test_another_model_is_refused_and_the_checkpoint_stays(model, tmp_path):
    X, y = regression_data(300, 2, seed=3)
    orn.sample(model, orn.ConstantSGD("full"), draws=20, checkpoint=tmp_path, progress=False)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    changed = X.copy()
    changed[17, 1] += 1e-9
    others = {
        "the data are not those": [
            orn.glm(changed, y, noise_scale=1.0, prior_precision=1.0),
            orn.glm(X[:-1], y[:-1], noise_scale=1.0, prior_precision=1.0),
        ],
        "its model has 3 parameters": [
            orn.glm(X, y, prior_precision=1.0),
            orn.glm(X[:, :1], y, noise_scale=1.0, prior_precision=1.0),
        ],
        "hyperparameter noise_scale was 1.0 and is 1.1": [
            orn.glm(X, y, noise_scale=1.1, prior_precision=1.0)
        ],
        "hyperparameter prior_precision was 1.0 and is 2.0": [
            orn.glm(X, y, noise_scale=1.0, prior_precision=2.0)
        ],
    }
    for sentence, models in others.items():
        for other in models:
            with pytest.raises(orn.InputError, match=sentence):
                orn.resume(tmp_path, other, progress=False)
    with pytest.raises(orn.InputError, match="at least 20"):
        orn.resume(tmp_path, model, draws=10, progress=False)
    with pytest.raises(orn.FileError, match="already holds a checkpoint"):
        orn.sample(model, orn.ConstantSGD("full"), draws=20, checkpoint=tmp_path, progress=False)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_damaged_newest_file_gives_way_to_the_one_before(model, tmp_path):
    options = {"draws": 100, "batch_size": 10, "warmup": 100}
    whole = orn.sample(model, orn.ConstantSGD("full"), progress=False, **options)
    with suppress(KeyboardInterrupt), stopping_after(4):
        orn.sample(
            model, orn.ConstantSGD("full"), progress=False, checkpoint=tmp_path, every=0, **options
        )
    older, last = sorted(tmp_path.iterdir())
    content = last.read_bytes()
    for damaged in (content[: len(content) // 2], b"", content[:-1], b"PK\x03\x04 something else"):
        last.write_bytes(damaged)
        with pytest.warns(orn.CheckpointWarning, match=f"continuing from {older.name}"):
            path, _, _ = newest(tmp_path)
        assert path == older
    with pytest.warns(orn.CheckpointWarning):
        same(whole, orn.resume(tmp_path, model, progress=False))


def test_foreign_and_missing_files(model, tmp_path):
    with pytest.raises(orn.FileError, match="cannot read"):
        orn.resume(tmp_path / "nowhere", model)
    with pytest.raises(orn.FileError, match="there is no checkpoint"):
        orn.resume(tmp_path, model)
    foreign = tmp_path / "checkpoint-00000001.npz"
    np.savez(foreign, draws=np.zeros(3))
    with pytest.raises(orn.FileError, match="is not a file saved by ornstein"):
        orn.resume(tmp_path, model)
    posterior = orn.sample(model, orn.ConstantSGD("full"), draws=10, progress=False)
    posterior.save(foreign)
    with pytest.raises(
        orn.FileError, match="'ornstein-posterior-1', where 'ornstein-checkpoint-1'"
    ):
        orn.resume(tmp_path, model)


def test_what_resuming_would_pass_over_is_refused(model, tmp_path):
    options = {"draws": 10, "batch_size": 10, "warmup": 10, "thin": 2, "progress": False}
    whole = orn.sample(model, orn.ConstantSGD("full"), checkpoint=tmp_path, every=0, **options)
    for changed, words in [
        ({"sampler": orn.SGLD()}, "the sampler is not that of the checkpoint"),
        ({"sampler": orn.ConstantSGD("scalar")}, "the sampler is not that of the checkpoint"),
        ({"validation": 3}, "validation has no effect here, because this is a run of orn.sample"),
        ({"max_blocks": 9}, "max_blocks has no effect here"),
        ({"curvature": 3}, "curvature must be a Curvature"),
        ({"model": None}, "model must be a Model"),
        ({"folder": None}, "folder must be the path of a folder"),
    ]:
        with pytest.raises(orn.InputError, match=words):
            orn.resume(**{"folder": tmp_path, "model": model, "progress": False, **changed})
    same(whole, orn.resume(tmp_path, model, sampler=orn.ConstantSGD("full"), progress=False))


def test_a_folder_that_cannot_be_written_is_refused_before_the_run(model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(orn.FileError, match="cannot make the folder"):
        orn.sample(
            model, orn.ConstantSGD("full"), checkpoint=tmp_path / "file" / "folder", progress=False
        )
    with pytest.raises(orn.FileError, match="cannot make the folder"):
        orn.sample(model, orn.ConstantSGD("full"), checkpoint=tmp_path / "file", progress=False)
    if os.geteuid() != 0:  # nothing is read-only to root
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(orn.FileError, match="cannot write"):
            orn.sample(
                model, orn.ConstantSGD("full"), checkpoint=tmp_path / "closed", progress=False
            )


@contextmanager
def largest_file(size):
    """The kernel's own limit on the size of a file: beyond it a write fails half-way, as on a full
    disk.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_half_way_leaves_the_old_checkpoint(model, tmp_path):
    options = {"draws": 3000, "batch_size": 10, "warmup": 200, "thin": 10, "progress": False}
    whole = orn.sample(model, orn.ConstantSGD("full"), **options)
    with largest_file(10_000), pytest.raises(orn.FileError, match="cannot write"):
        orn.sample(model, orn.ConstantSGD("full"), checkpoint=tmp_path / "first", **options)
    assert list((tmp_path / "first").iterdir()) == []
    with (
        largest_file(230_000),
        pytest.warns(orn.CheckpointWarning, match="the one before is intact"),
    ):
        starved = orn.sample(
            model, orn.ConstantSGD("full"), checkpoint=tmp_path / "later", every=0.02, **options
        )
    same(whole, starved)
    kept = list((tmp_path / "later").iterdir())
    assert kept and all(path.suffix == ".npz" and path.stat().st_size <= 230_000 for path in kept)
    same(whole, orn.resume(tmp_path / "later", model, progress=False))


@pytest.mark.slow
def test_a_full_disk(model, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"needs root, to mount a small disk: {mounted.stderr.decode().strip()}")
    try:
        options = {"draws": 3000, "batch_size": 10, "warmup": 200, "progress": False}
        with pytest.warns(orn.CheckpointWarning, match="No space left on device"):
            starved = orn.sample(
                model, orn.ConstantSGD("full"), checkpoint=disk / "run", every=0.02, **options
            )
        same(starved, orn.sample(model, orn.ConstantSGD("full"), **options))
        with pytest.warns(orn.CheckpointWarning, match="No space left on device"):
            same(starved, orn.resume(disk / "run", model, progress=False))
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(orn.FileError, match="Read-only file system"):
            orn.sample(model, orn.ConstantSGD("full"), checkpoint=disk / "other", **options)
    finally:
        subprocess.run(["umount", disk], check=True)


def test_only_the_last_two_files_are_kept_and_no_pickle_is_in_them(model, tmp_path):
    orn.sample(
        model,
        orn.ConstantSGD("full"),
        draws=200,
        batch_size=10,
        checkpoint=tmp_path,
        every=0,
        progress=False,
    )
    files = sorted(tmp_path.iterdir())
    assert [path.suffix for path in files] == [".npz", ".npz"]
    for path in files:
        with np.load(path, allow_pickle=False) as content:
            assert all(content[name].dtype.kind in "biufU" for name in content.files)


def test_times():
    assert [seconds(every) for every in ("60s", "1.5m", "2h", "250ms", 3, "10 min", 0.5)] == [
        60,
        90,
        7200,
        0.25,
        3,
        600,
        0.5,
    ]
    for every in ("", "soon", "-3s", "5 days", "nan", None, "s", float("inf")):
        with pytest.raises(orn.InputError, match="every must be a time"):
            seconds(every)


CHILD = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import numpy as np
import ornstein as orn
from helpers import regression_data
from ornstein.engine import blocks
from ornstein.engine.chain import Chain
from ornstein.posterior import archive

folder, moment, at = sys.argv[1], sys.argv[2], int(sys.argv[3])
blocks.BLOCK_NUMBERS = 2**11
calls = 0

def die(*arguments, real=None):
    global calls
    calls += 1
    if calls == at:
        if moment == "after rename":
            real(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)

if moment == "while writing":            # after the first arrays, before the file is whole
    real_write = np.lib.format.write_array
    np.lib.format.write_array = lambda *a, **k: die(real=lambda: real_write(*a, **k))
elif moment == "before fsync":
    real_sync = os.fsync
    archive.os.fsync = lambda *a: die(*a, real=real_sync)
elif moment in ("before rename", "after rename"):
    real_replace = os.replace
    archive.os.replace = lambda *a: die(*a, real=real_replace)

X, y = regression_data(300, 2, seed=3)
model = orn.glm(X, y, noise_scale=1.0, prior_precision=1.0)
if os.path.isdir(folder) and any(name.endswith(".npz") for name in os.listdir(folder)):
    post = orn.resume(folder, model, every=0.01, progress=False)
else:
    post = orn.sample(model, orn.ConstantSGD("full"), draws={draws}, batch_size=10, warmup=2000,
                      checkpoint=folder,
                      every=0.01, progress=False)
result = np.concatenate([post.draws.ravel(), post.mean, post.covariance.ravel()])
np.save(os.path.join(folder, "result.npy"), result)
"""


def child(draws, *arguments):
    script = textwrap.dedent(CHILD).format(tests=str(ROOT / "tests"), draws=draws)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    }
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=environment,
        stderr=subprocess.PIPE,
    )


def finish(folder, model, draws):
    process = child(draws, folder, "never", 0)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors.decode()
    post = orn.sample(
        model, orn.ConstantSGD("full"), draws=draws, batch_size=10, warmup=2000, progress=False
    )
    whole = np.concatenate([post.draws.ravel(), post.mean, post.covariance.ravel()])
    np.testing.assert_array_equal(np.load(folder / "result.npy"), whole)
    assert not list(folder.glob(".*.part")), "a torn file was left behind"


def kept_draws(folder):
    """Draws in the newest file that can be read."""
    files = sorted(folder.glob("checkpoint-*.npz"))
    assert files, "no checkpoint is left"
    for path in files:
        # both files are whole, whenever the process died
        archive.read_archive(path, "ornstein-checkpoint-1")
    _, arrays = archive.read_archive(files[-1], "ornstein-checkpoint-1")
    return (
        int(arrays["collection/draws/filled"].sum()) if "collection/draws/filled" in arrays else 0
    )


def kill_at_random(folder, draws, rng, longest):
    process = child(draws, folder, "never", 0)
    before = {path.name for path in folder.glob("checkpoint-*.npz")} if folder.exists() else set()
    while (
        process.poll() is None and {path.name for path in folder.glob("checkpoint-*.npz")} <= before
    ):
        time.sleep(0.01)
    time.sleep(rng.uniform(0.0, longest))
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()


def test_killed_three_times(model, tmp_path):
    folder, rng = tmp_path / "run", np.random.default_rng(0)
    process = child(400, folder, "while writing", 120)  # inside the third file
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    assert list(folder.glob(".*.part")), "it was not killed inside a write"
    for _ in range(2):
        kept = kept_draws(folder)
        kill_at_random(folder, 400, rng, 0.2)
        assert kept_draws(folder) >= kept
    finish(folder, model, 400)


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment", ["while writing", "before fsync", "before rename", "after rename"]
)
def test_killed_inside_the_write(moment, model, tmp_path):
    folder = tmp_path / "run"
    for at in (1, 3, 7):
        process = child(2_000, folder, moment, at if moment != "while writing" else 45 * at)
        process.communicate(timeout=300)
        assert process.returncode == -signal.SIGKILL
        if at > 1 or moment == "after rename":
            kept_draws(folder)
    finish(folder, model, 2_000)


@pytest.mark.slow
def test_killed_at_twenty_random_moments(model, tmp_path):
    folder, rng, kept = tmp_path / "run", np.random.default_rng(1), 0
    for _ in range(20):
        kill_at_random(folder, 20_000, rng, 0.3)
        now = kept_draws(folder)
        assert now >= kept, "draws that had been kept are lost"
        kept = now
    finish(folder, model, 20_000)


INTERRUPTED = """
import os, sys
sys.path.insert(0, {tests!r})
import ornstein as orn
from helpers import regression_data
from ornstein.sampling.collect import Collection
from ornstein.sampling.session import Session

X, y = regression_data(300, 2, seed=3)
model = orn.glm(X, y, noise_scale=1.0)
owner, method = {moment}
real, words = getattr(owner, method), ["running"]

def announce(*arguments, **options):
    try:
        print(words.pop(), flush=True)   # once, though every chain's thread comes by
    except IndexError:
        pass
    return real(*arguments, **options)

setattr(owner, method, announce)
post = orn.sample(model, orn.ConstantSGD("full"), draws=2_000_000, batch_size=10,
                  progress=False, max_steps=10**12,
                  warmup={warmup})
print(post.settings["complete"], post.draws.shape[1], len(post.summary()), post.draws.mean(),
      flush=True)
"""


@pytest.mark.parametrize(
    ("warmup", "moment"), [("'auto'", '(Collection, "receive")'), ("10**9", '(Session, "warm_up")')]
)
def test_ctrl_c(warmup, moment):
    script = textwrap.dedent(INTERRUPTED).format(
        tests=str(ROOT / "tests"), warmup=warmup, moment=moment
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "running\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=120)
    if warmup == "'auto'":
        complete, drawn, parameters, mean = said.split()
        assert (
            (complete, parameters) == ("False", "3")
            and 0 < int(drawn) < 2_000_000
            and np.isfinite(float(mean))
        )
    else:
        assert process.returncode == -signal.SIGINT, errors
        assert "interrupted during warm-up, before the first draw" in errors
