"""Microseconds per step of one chain, in float32, compile time left out."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np

import ornstein as orn
from benchmarks.tasks import Task
from ornstein.compute.precision import width
from ornstein.engine.run import Run

Stepper = Callable[[int], float]  # steps -> seconds
REST = 0.25  # seconds: threads of OpenMP that the one before has used go on spinning for 0.2


def model_of(task: Task) -> orn.Model:
    features, response = task.data()
    return orn.glm(
        features, response, task.family, noise_scale=1.0, intercept=False, prior_precision=1.0
    )


def _curvature(model: orn.Model) -> orn.Curvature:
    """Enough curvature to build the kernels; speed does not depend on its values."""
    ones = np.ones(model.dim)
    return orn.Curvature(np.zeros(model.dim), ones, ones, model.n_data)


def ornstein_steps(task: Task, form: str, chains: int = 1) -> Stepper:
    """One of the tasks."""
    return engine_steps(model_of(task), form, task.batch_size, chains)


def engine_steps(model: orn.Model, form: str, batch_size: int, chains: int = 1) -> Stepper:
    """The engine itself, randomness included: what `orn.sample` spends per step; steps of all
    chains count.
    """
    curvature = _curvature(model)
    small = 1e-4
    steps = {
        "scalar": np.asarray(small),
        "diagonal": np.full(model.dim, small),
        "full": small * np.eye(model.dim) if model.dim <= 2000 else np.full(model.dim, small),
    }
    kind, _, sliced = form.partition(", ")
    injected = np.full(model.dim, small**2) if kind == "SGLD" else None
    window = 100 if kind == "IASG" else 1
    scheme = sliced or "replacement"
    dynamics = orn.Dynamics(
        steps.get(kind, steps["scalar"]), batch_size, scheme, injected=injected, window=window
    )
    with width("float32"):
        problem = model.problem("float32", curvature.mode, batch_size)
    run = Run(model.loss, problem, dynamics, model.n_data, np.zeros((chains, model.dim)), seed=0)
    stride = max(1, min(100, run.block_steps))

    def timed(count: int) -> float:
        keeps = max(1, count // (stride * chains))
        started = time.perf_counter()
        run.advance(keeps, stride, lambda chain, kept: None)
        return (time.perf_counter() - started) * count / (keeps * stride * chains)

    return timed


def interleaved(
    steppers: dict[str, Stepper], seconds: float = 0.3, rounds: int = 5
) -> dict[str, float]:
    """Best of `rounds` in µs per step, all libraries, in another order each time, for about
    `seconds` a round.

    Where neighbours on the machine slow it down for tenths of a second, many short rounds find a
    free moment and few long ones do not.

    Who leaves the finite numbers on the way, as a library with its own rates may, is left out.
    """
    counts = {}
    for name, stepper in steppers.items():
        with suppress(FloatingPointError):
            counts[name] = _long_enough(stepper, seconds)
    best, order = dict.fromkeys(counts, np.inf), np.random.default_rng(0)
    for _ in range(rounds):
        for name in order.permutation(list(counts)):
            time.sleep(REST)
            try:
                best[name] = min(best[name], steppers[name](counts[name]) / counts[name] * 1e6)
            except FloatingPointError:
                del counts[name]
    return {name: value for name, value in best.items() if name in counts}


def _long_enough(stepper: Stepper, seconds: float) -> int:
    """Steps of a round: shorter ones would pay for a whole block of randomness and use little of
    it.
    """
    count = 64
    stepper(count)
    # The better of two, because a round that the machine has held up is not a long one.
    while min(stepper(count), stepper(count)) < seconds and count < 2**26:
        count *= 2
    return count
