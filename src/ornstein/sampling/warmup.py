"""Warm-up: run until the chain has forgotten its start, re-tune where C was not known well, then
freeze.

Rounds double in length. After each, the stationarity test looks at the round; where the curvature
does not tell how the noise depends on the spread of θ, C is estimated along the chain and the
sampler tuned again. Draws come from a fixed kernel.

A round keeps two numbers per position, all that the test looks at, and the few positions at which C
is estimated: its memory does not grow with its length times the number of parameters.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ornstein.checks import require_memory
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.online_noise import OnlineNoise, noise_along
from ornstein.dynamics.dynamics import Dynamics, Sampler
from ornstein.dynamics.prediction import Prediction
from ornstein.engine.chain import Kept
from ornstein.engine.run import Pause, Run
from ornstein.errors import StationarityWarning
from ornstein.model.model import Model
from ornstein.posterior.moments import Batched
from ornstein.rows.sources import IndexSource
from ornstein.rows.strata import Strata
from ornstein.rows.unequal import UnequalRows
from ornstein.sampling.plan import solvable
from ornstein.streams import Purpose, stream
from ornstein.theory.stationarity import DriftSeries, series_test
from ornstein.types import Array, PyTree

ROUNDS, VALUES_PER_ROUND, ESTIMATES_PER_ROUND = 4, 200, 100
# A round of fewer positions says nothing about a drift.
FEWEST_VALUES = 40
FEWER_CHAINS = "ask for fewer chains, or give warmup=…, which keeps nothing"


@dataclass(frozen=True, eq=False)
class Tuned:
    """A tuned sampler: the dynamics, the curvature it was tuned for and what theory predicts."""

    dynamics: Dynamics
    curvature: Curvature
    prediction: Prediction


class Round(Batched):
    """What a round of warm-up keeps of its positions: energies and projections for the stationarity
    test, and the positions at which C is estimated.
    """

    def __init__(self, tuned: Tuned, shape: tuple[int, int, int], stride: int, dtype: str) -> None:
        chains, keeps, dimension = shape
        require_memory("the series of warm-up", 2, chains, keeps, remedy=FEWER_CHAINS)
        self.process = tuned.prediction.process and replace(
            tuned.prediction.process, window=1, scale=None
        )
        self.series = None if self.process is None else DriftSeries(self.process)
        self.begin(chains, dimension, max(1, min(keeps, 2048, 2**18 // dimension)), stride)
        self.energy, self.projection = np.zeros((chains, keeps)), np.zeros((chains, keeps))
        self.arrays = ("count", "batch", "waiting", "energy", "projection")
        self.chosen, self.visited = np.empty(0, dtype=int), np.empty((0, dimension), dtype)

    def visit(self, count: int) -> None:
        """Keep `count` positions too, spread evenly over all chains, as the chain computes them."""
        chains, keeps = self.energy.shape
        shape, dtype = (count, self.batch.shape[2]), self.visited.dtype
        require_memory("positions of warm-up", *shape, remedy=FEWER_CHAINS, number=dtype.itemsize)
        self.chosen = np.linspace(0, chains * keeps - 1, count).astype(int)
        self.visited = np.zeros(shape, dtype)
        self.arrays = (*self.arrays, "visited")

    def add(self, chain: int, states: Array) -> None:
        first = self.count[chain] + self.waiting[chain]
        chains, places = np.divmod(self.chosen, self.energy.shape[1])
        here = (chains == chain) & (first <= places) & (places < first + len(states))
        self.visited[here] = states[places[here] - first]
        super().add(chain, states)

    def absorb(self, chain: int) -> None:
        rows, start = self.batch[chain, : self.waiting[chain]], self.count[chain]
        if self.series is not None:
            part = slice(start, start + len(rows))
            self.energy[chain, part], self.projection[chain, part] = self.series.of(rows)
        self.count[chain] += len(rows)
        self.waiting[chain] = 0

    def settled_down(self) -> bool:
        """Whether the stationarity test sees no drift; True where no law was predicted."""
        if self.process is None:
            return True
        for chain in np.flatnonzero(self.waiting):
            self.absorb(int(chain))
        return series_test(self.energy, self.projection, self.process, self.spacing).passed()


@dataclass
class WarmUp:
    """How far it has come: the sampler as last tuned, the round, the steps of rounds done, and what
    is kept of this round.

    `retunes` says whether the positions at which C is estimated are kept as well.
    """

    tuned: Tuned
    steps: int
    automatic: bool
    chains: int
    stride: int
    dtype: str
    limit: int | None = None
    retunes: bool = False
    attempt: int = 0
    taken: int = 0
    done: bool = False
    round: Round | None = None

    def __post_init__(self) -> None:
        self.done = self.done or self.steps == 0
        self.begin_round()

    @property
    def keeps(self) -> int:
        """Positions of a chain that this round looks at, `stride` steps apart."""
        return max(1, math.ceil(self.steps * 2**self.attempt / self.stride))

    @property
    def exhausted(self) -> bool:
        """Whether there is no other round, or no steps for it."""
        return self.attempt == ROUNDS or (
            self.limit is not None and self.taken + self.steps * 2**self.attempt > self.limit
        )

    def begin_round(self) -> None:
        """Nothing kept of the round yet; None where nothing will be looked at."""
        self.round = None
        if self.done or not self.automatic or self.keeps < FEWEST_VALUES:
            return
        shape = self.chains, self.keeps, self.tuned.curvature.dim
        self.round = Round(self.tuned, shape, self.stride, self.dtype)
        if self.retunes:
            self.round.visit(ESTIMATES_PER_ROUND)

    def receive(self, chain: int, kept: Kept) -> None:
        """Take in a stretch of positions of one chain."""
        if self.round is not None:
            self.round.add(chain, kept.positions)

    def state(self) -> dict[str, PyTree]:
        """The round so far, for a checkpoint."""
        counters = {
            "attempt": np.asarray(self.attempt),
            "taken": np.asarray(self.taken),
            "done": np.asarray(self.done),
        }
        return counters if self.round is None else {**counters, "round": self.round.state()}

    def restore(self, state: Mapping[str, PyTree]) -> None:
        self.attempt, self.taken, self.done = (
            int(state["attempt"]),
            int(state["taken"]),
            bool(state["done"]),
        )
        if not 0 <= self.attempt <= ROUNDS or self.taken < 0:
            raise ValueError(f"warm-up has no round {self.attempt} after {self.taken} steps")
        self.begin_round()
        if self.round is not None:
            self.round.restore(state["round"])


def stride_of(steps: int, block_steps: int) -> int:
    """Steps between the positions that the first round of a warm-up looks at."""
    return max(1, min(steps // VALUES_PER_ROUND, block_steps))


def warm_up(
    run: Run,
    state: WarmUp,
    retune: Callable[[Tuned, Array, int], Tuned] | None,
    report: Callable[[int], None],
    pause: Pause | None = None,
) -> bool:
    """Run the planned steps; where automatic, go on in doubled rounds until the stationarity test
    passes.

    Returns False if the user interrupted it; `state` is then in the middle of a round, and a later
    call goes on from there.
    """
    while not state.done:
        keeps, stride = state.keeps, state.stride
        if not run.advance(keeps, stride, state.receive, report, start=state.taken, pause=pause):
            return False
        enough = state.round is None or state.round.settled_down()
        if state.round is not None and retune is not None:
            changed = retune(state.tuned, state.round.visited, state.attempt)
            if changed is not state.tuned:
                enough, state.tuned = False, changed
                run.retune(changed.dynamics)
        state.taken += keeps * stride
        state.attempt += 1
        state.done = enough or state.exhausted
        state.begin_round()
        if not enough and state.done:
            warnings.warn(
                f"after {state.taken} warm-up steps a chain the stationarity test still sees a"
                " drift: look at post.check(), start nearer the mode or give warmup=…",
                StationarityWarning,
                stacklevel=6,
            )
    return True


def retuner(
    model: Model, run: Run, sampler: Sampler, seed: int, unequal: UnequalRows | Strata | None = None
) -> Callable[[Tuned, Array, int], Tuned]:
    """A rule that measures C along a round and tunes again, unless C is within its own error of
    what was tuned for.
    """

    def retune(tuned: Tuned, visited: Array, attempt: int) -> Tuned:
        curvature, dynamics = tuned.curvature, tuned.dynamics
        source = IndexSource(
            dynamics.scheme,
            model.n_data,
            dynamics.batch_size,
            stream(seed, Purpose.NOISE_ALONG, attempt),
            unequal=unequal,
        )
        estimate = OnlineNoise("diagonal" if curvature.diagonal else "full")
        noise = noise_along(model, run.problem, visited, source, estimate, run.dtype).noise
        if _same_size(
            noise, curvature.noise, ESTIMATES_PER_ROUND * max(1, dynamics.batch_size - 1)
        ):
            return tuned
        met = replace(curvature, noise=noise)
        with solvable(dynamics.sampler):
            again = sampler.tune(met, batch_size=dynamics.batch_size, scheme=dynamics.scheme)
            prediction = again.predict(met)
        return Tuned(again, met, prediction) if prediction.stable else tuned

    return retune


def _same_size(noise: Array, before: Array, examples: int) -> bool:
    """Whether tr C agrees within 2 % and three times the error of its estimate (heavy tails counted
    as tenfold variance).
    """
    sizes = [
        float(matrix.sum() if matrix.ndim == 1 else np.trace(matrix)) for matrix in (noise, before)
    ]
    error = 3.0 * math.sqrt(20.0 / examples)
    return abs(sizes[0] / sizes[1] - 1.0) <= max(0.02, error)
