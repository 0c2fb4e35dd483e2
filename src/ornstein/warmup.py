"""Warm-up: run until the chain has forgotten its start, re-tune where C was not known well, then freeze.

Rounds double in length. After each, the stationarity test looks at the round; where the curvature does not tell how the noise
answers to the spread of θ, C is estimated along the chain and the sampler tuned again. Draws come from a fixed kernel.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ornstein.curvature import Curvature
from ornstein.diagnostics.stationarity import stationarity_test
from ornstein.engine import Kept, Pause, Run
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


@dataclass
class WarmUp:
    """How far it has come: the sampler as last tuned, the round, the steps of rounds done, the positions kept in this one."""

    tuned: Tuned
    steps: int
    automatic: bool
    kept: list[list[Array]]
    limit: int | None = None
    attempt: int = 0
    taken: int = 0
    done: bool = False

    @classmethod
    def planned(
        cls, tuned: Tuned, steps: int, automatic: bool, chains: int, limit: int | None = None
    ) -> WarmUp:
        return cls(tuned, steps, automatic, [[] for _ in range(chains)], limit, done=steps == 0)

    @property
    def exhausted(self) -> bool:
        """Whether there is no other round, or no steps for it."""
        return self.attempt == ROUNDS or (
            self.limit is not None and self.taken + self.steps * 2**self.attempt > self.limit
        )

    def state(self) -> dict[str, Any]:
        """The round so far, for a checkpoint."""
        kept = {str(chain): np.concatenate(parts) for chain, parts in enumerate(self.kept) if parts}
        counters = {
            "attempt": np.asarray(self.attempt),
            "taken": np.asarray(self.taken),
            "done": np.asarray(self.done),
        }
        return {**counters, "kept": kept}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.attempt, self.taken, self.done = (
            int(state["attempt"]),
            int(state["taken"]),
            bool(state["done"]),
        )
        kept = state.get("kept", {})
        self.kept = [
            [kept[str(chain)]] if str(chain) in kept else [] for chain in range(len(self.kept))
        ]


def warm_up(
    run: Run,
    state: WarmUp,
    retune: Callable[[Tuned, Array, int], Tuned] | None,
    report: Callable[[int], None],
    pause: Pause | None = None,
) -> bool:
    """Run the planned steps; where automatic, go on in doubled rounds until the stationarity test passes.

    Returns False if the user interrupted it; `state` is then in the middle of a round, and a later call goes on from there.
    """
    stride = max(1, min(state.steps // VALUES_PER_ROUND, run.block_steps))
    while not state.done:
        keeps = max(1, math.ceil(state.steps * 2**state.attempt / stride))
        series = _run_round(run, state, keeps, stride, report, pause)
        if series is None:
            return False
        enough = (
            not state.automatic or keeps < 40 or _settled(series, stride, state.tuned.prediction)
        )
        if state.automatic and keeps >= 40 and retune is not None:
            changed = retune(state.tuned, series, state.attempt)
            if changed is not state.tuned:
                enough, state.tuned = False, changed
                run.retune(changed.dynamics)
        state.taken += keeps * stride
        state.attempt += 1
        state.kept = [[] for _ in run.chains]
        state.done = enough or state.exhausted
        if not enough and state.done:
            warnings.warn(
                f"after {state.taken} warm-up steps a chain the stationarity test still sees a drift: look at post.check(), "
                "start nearer the mode or give warmup=…",
                StationarityWarning,
                stacklevel=4,
            )
    return True


def retuner(
    model: Model, run: Run, sampler: Any, seed: int
) -> Callable[[Tuned, Array, int], Tuned]:
    """A rule that measures C along a round and tunes again, unless C is within its own error of what was tuned for."""

    def retune(tuned: Tuned, series: Array, attempt: int) -> Tuned:
        curvature, dynamics = tuned.curvature, tuned.dynamics
        stream = np.random.SeedSequence(seed, spawn_key=(attempt, 11))
        source = IndexSource(
            dynamics.scheme,
            model.n_data,
            dynamics.batch_size,
            np.random.Generator(np.random.SFC64(stream)),
        )
        visited = series.reshape(-1, series.shape[-1])
        chosen = visited[np.linspace(0, len(visited) - 1, ESTIMATES_PER_ROUND).astype(int)]
        estimate = OnlineNoise("diagonal" if curvature.diagonal else "full")
        noise = noise_along(model, run.problem, chosen, source, estimate, run.dtype).noise
        if _same_size(
            noise, curvature.noise, ESTIMATES_PER_ROUND * max(1, dynamics.batch_size - 1)
        ):
            return tuned
        met = replace(curvature, noise=noise)
        again = sampler.tune(met, batch_size=dynamics.batch_size, scheme=dynamics.scheme)
        prediction = again.predict(met)
        return Tuned(again, met, prediction) if prediction.stable else tuned

    return retune


def _same_size(noise: Array, before: Array, examples: int) -> bool:
    """Whether tr C agrees within 2 % and three times the error of its estimate (heavy tails counted as tenfold variance)."""
    sizes = [
        float(matrix.sum() if matrix.ndim == 1 else np.trace(matrix)) for matrix in (noise, before)
    ]
    error = 3.0 * math.sqrt(20.0 / examples)
    return abs(sizes[0] / sizes[1] - 1.0) <= max(0.02, error)


def _run_round(
    run: Run,
    state: WarmUp,
    keeps: int,
    stride: int,
    report: Callable[[int], None],
    pause: Pause | None,
) -> Array | None:
    """Positions of all chains over the round, (chains, keeps, D); None if the user interrupted it."""

    def receive(chain: int, values: Kept) -> None:
        state.kept[chain].append(values.positions)

    if not run.advance(keeps, stride, receive, report, start=state.taken, pause=pause):
        return None
    return np.stack([np.concatenate(parts) for parts in state.kept])


def _settled(series: Array, stride: int, prediction: Prediction) -> bool:
    if prediction.process is None:
        return True
    states = replace(prediction.process, window=1, scale=None)
    return stationarity_test(series, states, stride).passed()
