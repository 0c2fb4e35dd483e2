"""The compiled loop: the same chain whichever way XLA compiles it, however narrow the rows, and
where XLA cannot.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jax
import numpy as np
import pytest
from helpers import steps_by_hand
from jax.errors import JaxRuntimeError

import ornstein as orn
from ornstein.compute.compiled import WIDE, known_options
from ornstein.compute.precision import width
from ornstein.engine import blocks, loop
from ornstein.engine import run as engine_run
from ornstein.engine.run import Run
from ornstein.rows.sources import IndexSource
from ornstein.rows.supply import Given

ROWS = 20_000
# The batch of many rows is one whose sums XLA would give to a library, which one kernel cannot
# hold; rows of 30 are held as bytes.
CASES = [
    ("gaussian", 1, 300),
    ("gaussian", 5, 9000),
    ("bernoulli", 5, 9000),
    ("poisson", 11, 40),
    ("bernoulli", 30, 1000),
]
# of float64, over 30 steps of sums of at most 9000 terms: √9000·2⁻⁵³ = 1e-14 a step, which
# contracts
ROUNDING = 1e-13


def model_of(family, columns):
    rng = np.random.default_rng(columns)
    X = rng.normal(size=(ROWS, columns))
    y = {
        "gaussian": X[:, 0] + rng.normal(size=ROWS),
        "bernoulli": X[:, 0] > 0,
        "poisson": rng.poisson(np.exp(X[:, 0] / 3)),
    }
    return orn.glm(
        X,
        y[family],
        family,
        weights=rng.uniform(0.5, 1.5, ROWS),
        offset=rng.normal(size=ROWS) / 10,
        prior_precision=1.0,
    )


def run_of(model, batch_size, step=1e-2, chains=1, window=1):
    with width("float64"):
        problem = model.problem("float64", np.zeros(model.dim))
    dynamics = orn.Dynamics(np.asarray(step), batch_size, window=window)
    return Run(
        model.loss,
        problem,
        dynamics,
        model.n_data,
        np.zeros((chains, model.dim)),
        seed=3,
        dtype="float64",
    )


def positions(run, keeps=3):
    kept = []
    run.advance(keeps, 10, lambda chain, values: kept.append(values.positions))
    return np.concatenate(kept)


def index_source(model, batch_size):
    """The minibatches of the chain of `run_of` as indices."""
    return IndexSource(
        "replacement",
        model.n_data,
        batch_size,
        run_of(model, batch_size).chains[0].source.generator,
    )


def by_hand(model, batch_size, steps=30):
    """The same steps in NumPy, from the model's gradient of one minibatch; of a block what is left
    of ten steps is not used.
    """
    source = index_source(model, batch_size)
    length = run_of(model, batch_size).block_steps
    batches = np.concatenate(
        [
            source.draw(length)[: length - length % 10]
            for _ in range(-(-steps // (length - length % 10)))
        ]
    )
    return steps_by_hand(model, batches[:steps])


@pytest.mark.parametrize(("family", "columns", "batch_size"), CASES)
def test_one_kernel_and_several_take_the_same_steps(family, columns, batch_size):
    model = model_of(family, columns)
    one, several = run_of(model, batch_size), run_of(model, batch_size)
    assert one.program.one_kernel
    several.program = replace(several.program, one_kernel=False)
    truth = by_hand(model, batch_size)
    assert np.abs(positions(one) - truth).max() < ROUNDING * np.abs(truth).max()
    assert np.abs(positions(several) - truth).max() < ROUNDING * np.abs(truth).max()


def test_blocks_that_are_drawn_ahead_leave_those_in_use_alone(monkeypatch):
    """Ten blocks, each drawn by a helper while the one before runs: the steps are those of batches
    drawn one after the other.
    """
    monkeypatch.setattr(blocks, "BLOCK_NUMBERS", 20_000)
    model = model_of("bernoulli", 5)
    assert run_of(model, 500).block_steps == 40
    truth = by_hand(model, 500, steps=400)
    assert np.abs(positions(run_of(model, 500), 40) - truth).max() < ROUNDING * np.abs(truth).max()


def test_blocks_of_many_parameters_hold_many_steps(monkeypatch):
    """4000 parameters, 3 blocks of 20 steps where normals would leave room for 5: kept values are
    those of single steps.
    """
    monkeypatch.setattr(blocks, "BLOCK_NUMBERS", 20_480)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4000)) / 10.0
    model = orn.glm(X, X[:, 0], noise_scale=1.0, intercept=False, prior_precision=1.0)
    run = run_of(model, 2)
    assert run.block_steps == 20
    truth = by_hand(model, 2, steps=60)
    assert np.abs(positions(run, 6) - truth).max() < ROUNDING * np.abs(truth).max()


@pytest.mark.parametrize("batch_size", [3, 700])
@pytest.mark.parametrize("stride", [1, 7, 400])
def test_rows_drawn_inside_are_those_drawn_outside_and_all_positions_are_summed(batch_size, stride):
    """Strides within one portion of rows and over many of them, portions of many minibatches and of
    one.
    """
    model = model_of("gaussian", 5)
    inside, outside = (run_of(model, batch_size, window=stride + 1) for _ in range(2))
    assert inside.program.supply.at_once == max(1, 1024 // batch_size)
    outside.program, outside.chains[0].source = (
        replace(outside.program, supply=Given()),
        index_source(model, batch_size),
    )
    kept = {}
    for name, run, every in [("inside", inside, stride), ("outside", outside, 1)]:
        kept[name] = []
        run.advance(
            800 // stride * stride // every,
            every,
            lambda chain, values, name=name: kept[name].append(values),
        )
    found, truth = (
        np.concatenate([part.positions for part in kept[name]]) for name in ("inside", "outside")
    )
    assert np.abs(found - truth[stride - 1 :: stride]).max() < ROUNDING * np.abs(truth).max()
    sums = truth.reshape(-1, stride, model.dim).sum(axis=1)
    assert (
        np.abs(np.concatenate([part.sums for part in kept["inside"]]) - sums).max()
        < ROUNDING * np.abs(sums).max()
    )


@pytest.mark.parametrize("cores", [1, 2, 16])
def test_a_larger_step_is_left_to_several_cores_only_where_one_chain_runs(monkeypatch, cores):
    """However many cores there are: draws and checkpoints must not depend on the machine."""
    model = model_of("gaussian", 30)
    monkeypatch.setattr(engine_run.os, "cpu_count", lambda: cores)
    assert not run_of(model, 10_000).program.one_kernel
    assert run_of(model, 10_000, chains=2).program.one_kernel


@pytest.mark.parametrize("one_kernel", [True, False])
@pytest.mark.parametrize("window", [1, 4])
def test_nothing_is_compiled_after_the_first_piece(one_kernel, window, monkeypatch):
    model = model_of("gaussian", 2)
    dynamics = orn.Dynamics(np.asarray(1e-3), 7, injected=np.full(model.dim, 1e-8), window=window)
    with width("float32"):
        problem = model.problem("float32", np.zeros(model.dim))
    monkeypatch.setattr(blocks, "BLOCK_NUMBERS", 500)
    run = Run(model.loss, problem, dynamics, model.n_data, np.zeros((3, model.dim)), seed=0)
    run.program = replace(run.program, one_kernel=one_kernel)
    run.advance(1, 1, lambda *_: None)
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "compile" in event else None
    )
    try:
        for keeps, stride in [(1, 1), (40, 5), (3, 11), (200, 1)]:
            run.advance(keeps, stride, lambda *_: None)
    finally:
        jax.monitoring.clear_event_listeners()
    assert not compiled


class TestWhereOneKernelCannotBe:
    def test_it_is_compiled_as_several(self, monkeypatch):
        def refused(program, *arguments):
            raise JaxRuntimeError("UNIMPLEMENTED: Fusion kind not implemented on CPU")

        monkeypatch.setattr(loop, "_run_one_kernel", refused)
        model = model_of("bernoulli", 5)
        run, several = run_of(model, 50), run_of(model, 50)
        several.program = replace(several.program, one_kernel=False)
        found = positions(run)
        assert not run.program.one_kernel
        assert np.array_equal(found, positions(several))

    def test_other_errors_are_shown(self, monkeypatch):
        def failed(program, *arguments):
            raise JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")

        monkeypatch.setattr(loop, "_run_one_kernel", failed)
        with pytest.raises(JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
            positions(run_of(model_of("bernoulli", 5), 50))

    def test_an_option_that_is_not_known_is_left_out(self):
        assert known_options(**WIDE, xla_no_such_option=1) == WIDE


def test_an_interrupt_while_threads_start_leaves_the_chains_alone(monkeypatch):
    """Ctrl-C inside `submit` leaves a thread that the pool does not wait for."""
    lost = []

    class Interrupted(ThreadPoolExecutor):
        def submit(self, work, *arguments):
            if not lost:
                lost.append(threading.Thread(target=work))
                lost[0].start()
                raise KeyboardInterrupt
            return super().submit(work, *arguments)

    run = run_of(model_of("gaussian", 1), 300, chains=2)
    monkeypatch.setattr(engine_run, "ThreadPoolExecutor", Interrupted)
    kept = []
    assert not run.advance(3, 10, lambda chain, values: kept.append(chain))
    lost[0].join(10)
    assert not lost[0].is_alive()
    assert not kept
    assert [chain.step for chain in run.chains] == [0, 0]
    assert run.advance(3, 10, lambda chain, values: kept.append(chain))
    assert sorted(set(kept)) == [0, 1]
