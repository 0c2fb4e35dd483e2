"""Microseconds per step of one chain, in float32, compile time left out."""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import ornstein as orn
from benchmarks.tasks import Task
from ornstein.engine import Run
from ornstein.precision import width

Stepper = Callable[[int], float]  # steps -> seconds


def model_of(task: Task) -> orn.Model:
    features, response = task.data()
    return orn.glm(features, response, task.family, noise_scale=1.0, intercept=False)


def _curvature(model: orn.Model) -> orn.Curvature:
    """Enough curvature to build the kernels; speed does not depend on its values."""
    ones = np.ones(model.dim)
    return orn.Curvature(np.zeros(model.dim), ones, ones, model.n_data)


def ornstein_steps(task: Task, form: str, chains: int = 1) -> Stepper:
    """The engine itself, randomness included: what `orn.sample` spends per step."""
    model = model_of(task)
    curvature = _curvature(model)
    small = 1e-4
    steps = {
        "scalar": np.asarray(small),
        "diagonal": np.full(model.dim, small),
        "full": small * np.eye(model.dim) if model.dim <= 2000 else np.full(model.dim, small),
    }
    injected = np.full(model.dim, small**2) if form == "SGLD" else None
    dynamics = orn.Dynamics(steps.get(form, steps["scalar"]), task.batch_size, injected=injected)
    with width("float32"):
        problem = model.problem("float32", curvature.mode)
    run = Run(model.loss, problem, dynamics, model.n_data, np.zeros((chains, model.dim)), seed=0)
    stride = max(1, min(100, run.block_steps))

    def timed(count: int) -> float:
        keeps = max(1, count // stride)
        started = time.perf_counter()
        run.advance(keeps, stride, lambda chain, kept: None)
        return (time.perf_counter() - started) * count / (keeps * stride * chains)

    return timed


def blackjax_sgld_steps(task: Task) -> Stepper:
    """`blackjax.sgld` in a `lax.scan`, minibatch indices drawn by jax.random inside, as its documentation shows."""
    import blackjax

    features, response = (jnp.asarray(part) for part in task.data())
    scale = task.rows / task.batch_size

    def log_likelihood(position: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        predictor = x @ position
        if task.family == "gaussian":
            return -0.5 * (y - predictor) ** 2
        if task.family == "bernoulli":
            return y * predictor - jax.nn.softplus(predictor)
        return predictor[y] - jax.nn.logsumexp(predictor)

    def log_density(position: jax.Array, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
        values = jax.vmap(log_likelihood, (None, 0, 0))(position, *batch)
        return scale * jnp.sum(values) - 0.5 * jnp.sum(position**2)

    kernel = blackjax.sgld(jax.grad(log_density))
    shape = (task.columns,) if task.classes == 1 else (task.columns, task.classes)

    @jax.jit
    def run(key: jax.Array, position: jax.Array, keys: jax.Array, data: tuple[jax.Array, jax.Array]) -> jax.Array:
        def step(current: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
            batch_key, step_key = jax.random.split(key)
            rows = jax.random.randint(batch_key, (task.batch_size,), 0, task.rows)
            return kernel.step(step_key, current, (data[0][rows], data[1][rows]), 1e-8), None

        return jax.lax.scan(step, position, keys)[0]

    def timed(count: int) -> float:
        keys = jax.random.split(jax.random.key(0), count)
        position = jnp.zeros(shape)
        started = time.perf_counter()
        jax.block_until_ready(run(keys[0], position, keys, (features, response)))
        return time.perf_counter() - started

    return timed


def interleaved(steppers: dict[str, Stepper], seconds: float = 0.3, rounds: int = 5) -> dict[str, float]:
    """Best of `rounds` in µs per step, everyone in turn, each for about `seconds` a round."""
    counts = {}
    for name, stepper in steppers.items():
        count = 64
        stepper(count)
        while (elapsed := stepper(count)) < seconds / 8 and count < 2**24:
            count *= 4
        stepper(counts.setdefault(name, max(64, int(count * seconds / elapsed))))
    best = dict.fromkeys(steppers, np.inf)
    for _ in range(rounds):
        for name, stepper in steppers.items():
            best[name] = min(best[name], stepper(counts[name]) / counts[name] * 1e6)
    return best
