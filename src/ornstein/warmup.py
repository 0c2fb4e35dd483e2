"""Warm-up: run until the chain has forgotten its start, re-tune where C was not known well, then freeze.

Rounds double in length. After each, the stationarity test looks at the round; where the curvature does not tell how the noise
answers to the spread of θ, C is estimated along the chain and the sampler tuned again. Draws come from a fixed kernel.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ornstein.curvature import Curvature
from ornstein.diagnostics.stationarity import stationarity_test
from ornstein.engine import Kept, Run
from ornstein.errors import StationarityWarning
from ornstein.minibatch import IndexSource
from ornstein.model import Model
from ornstein.online_noise import OnlineNoise, noise_along
from ornstein.prediction import Prediction

Array = np.ndarray
ROUNDS, VALUES_PER_ROUND, ESTIMATES_PER_ROUND = 4, 200, 100


@dataclass(frozen=True, eq=False)
class Tuned:
    """A tuned sampler: the dynamics, the curvature it was tuned for and what theory predicts."""

    dynamics: Any
    curvature: Curvature
    prediction: Prediction


def warm_up(
    run: Run,
    tuned: Tuned,
    steps: int,
    automatic: bool,
    retune: Callable[[Tuned, Array, int], Tuned] | None,
    report: Callable[[int], None],
) -> tuple[Tuned, int]:
    """Run `steps`; where automatic, go on in doubled rounds until the stationarity test passes. Returns the steps taken."""
    if steps == 0:
        return tuned, 0
    stride = max(1, min(steps // VALUES_PER_ROUND, run.block_steps))
    taken = 0
    for attempt in range(ROUNDS):
        keeps = max(1, math.ceil(steps * 2**attempt / stride))
        series = _run_round(run, keeps, stride, report)
        taken += keeps * stride
        if not automatic or keeps < 40:
            return tuned, taken
        settled = _settled(series, stride, tuned.prediction)
        if retune is not None:
            changed = retune(tuned, series, attempt)
            if changed is not tuned:
                tuned = changed
                run.retune(tuned.dynamics)
                continue
        if settled:
            return tuned, taken
    warnings.warn(
        f"after {taken} warm-up steps a chain the stationarity test still sees a drift: look at post.check(), start nearer "
        "the mode or give warmup=…",
        StationarityWarning,
        stacklevel=4,
    )
    return tuned, taken


def retuner(model: Model, run: Run, sampler: Any, seed: int) -> Callable[[Tuned, Array, int], Tuned]:
    """A rule that measures C along a round and tunes again, unless C is within its own error of what was tuned for."""

    def retune(tuned: Tuned, series: Array, attempt: int) -> Tuned:
        curvature, dynamics = tuned.curvature, tuned.dynamics
        stream = np.random.SeedSequence(seed, spawn_key=(attempt, 11))
        source = IndexSource(dynamics.scheme, model.n_data, dynamics.batch_size, np.random.Generator(np.random.SFC64(stream)))
        visited = series.reshape(-1, series.shape[-1])
        chosen = visited[np.linspace(0, len(visited) - 1, ESTIMATES_PER_ROUND).astype(int)]
        estimate = OnlineNoise("diagonal" if curvature.diagonal else "full")
        noise = noise_along(model, run.problem, chosen, source, estimate, run.dtype).noise
        if _same_size(noise, curvature.noise, ESTIMATES_PER_ROUND * max(1, dynamics.batch_size - 1)):
            return tuned
        met = replace(curvature, noise=noise)
        again = sampler.tune(met, batch_size=dynamics.batch_size, scheme=dynamics.scheme)
        prediction = again.predict(met)
        return Tuned(again, met, prediction) if prediction.stable else tuned

    return retune


def _same_size(noise: Array, before: Array, examples: int) -> bool:
    """Whether tr C agrees within 2 % and three times the error of its estimate (heavy tails counted as tenfold variance)."""
    sizes = [float(matrix.sum() if matrix.ndim == 1 else np.trace(matrix)) for matrix in (noise, before)]
    error = 3.0 * math.sqrt(20.0 / examples)
    return abs(sizes[0] / sizes[1] - 1.0) <= max(0.02, error)


def _run_round(run: Run, keeps: int, stride: int, report: Callable[[int], None]) -> Array:
    kept: list[list[Array]] = [[] for _ in run.chains]

    def receive(chain: int, values: Kept) -> None:
        kept[chain].append(values.positions)

    run.advance(keeps, stride, receive, report)
    shortest = min(sum(len(part) for part in parts) for parts in kept)
    return np.stack([np.concatenate(parts)[:shortest] for parts in kept])


def _settled(series: Array, stride: int, prediction: Prediction) -> bool:
    if prediction.process is None:
        return True
    modes = prediction.process.modes
    spacing = stride / max(prediction.relaxation_time, 1e-12)
    return stationarity_test(series, modes.inverse, modes.slowest, spacing).passed()
