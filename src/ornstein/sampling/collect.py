"""What becomes of the values a run keeps: draws, window means, or their first two moments."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ornstein.checks import FULL_LIMIT, require_memory
from ornstein.dynamics.dynamics import Dynamics
from ornstein.engine.blocks import block_length, divisor_within
from ornstein.engine.chain import Kept
from ornstein.posterior.draws import Draws
from ornstein.posterior.low_rank import Sketch, rank_of
from ornstein.posterior.moments import Moments
from ornstein.types import Array, PyTree

STATES_PER_DRAW = 8


class Delivery:
    """Turns a chain's kept values into draws: every m-th position, or the mean over a window and
    then a gap.
    """

    def __init__(self, stride: int, thin: int, window: int) -> None:
        self.per_draw = thin // stride
        self.summed_of = window // stride if window > 1 else 0
        self.window = window
        self.seen = 0
        self.total: Array | float = 0.0

    def draws(self, kept: Kept) -> Array:
        """The draws completed by these values."""
        if not self.summed_of:
            first = (self.per_draw - 1 - self.seen) % self.per_draw
            self.seen = (self.seen + len(kept.positions)) % self.per_draw
            return kept.positions[first :: self.per_draw]
        assert kept.sums is not None
        finished = []
        for total in kept.sums:
            if self.seen < self.summed_of:
                self.total = self.total + total
            self.seen += 1
            if self.seen == self.summed_of:
                finished.append(self.total / self.window)
            if self.seen == self.per_draw:
                self.seen, self.total = 0, 0.0
        return np.array(finished).reshape(len(finished), kept.positions.shape[1])

    def state(self) -> dict[str, Array]:
        """Where it is between two draws, for a checkpoint."""
        return {"seen": np.asarray(self.seen), "total": np.asarray(self.total)}

    def restore(self, state: Mapping[str, Array]) -> None:
        self.seen = int(state["seen"])
        self.total = state["total"] if state["total"].ndim else float(state["total"])


class Collection:
    """What a run delivers: draws if they are wanted, and moments.

    `stride` is the steps between the values that the engine keeps: a divisor of those between
    draws, or of window and gap.
    """

    def __init__(
        self, dynamics: Dynamics, dimension: int, thin: int, draws: int, chains: int, keep: str
    ) -> None:
        self.window = window = dynamics.window
        unit = math.gcd(window, dynamics.gap) if window > 1 else thin
        finest = unit if window > 1 else max(1, thin // STATES_PER_DRAW)
        longest = block_length(dynamics, dimension)
        self.stride = divisor_within(unit, min(finest, longest))
        if 4 * self.stride < finest:
            # an awkward thinning (a prime, say) has no use for states in between
            self.stride = divisor_within(unit, longest)
        self.draws = Draws(chains, draws, dimension) if keep == "draws" else None
        self.moments = _moments(chains, dimension, keep, self.stride if window == 1 else thin)
        self.deliveries = [Delivery(self.stride, thin, window) for _ in range(chains)]

    def receive(self, chain: int, kept: Kept) -> None:
        """Take in a stretch of kept values of one chain."""
        delivered = self.deliveries[chain].draws(kept)
        self.moments.add(chain, kept.positions if self.window == 1 else delivered)
        if self.draws is not None:
            self.draws.add(chain, delivered)

    def delivered(self, draws: int, seed: int) -> Draws | None:
        """The draws of the chains; where a sketch was kept, as many from its Gaussian; where only
        moments were, None.
        """
        if not isinstance(self.moments, Sketch):
            return self.draws
        chains, dimension = self.moments.mean.shape
        store = Draws(chains, draws, dimension)
        self.moments.draw_into(store.values, seed)
        store.filled[:] = draws
        return store

    @property
    def states(self) -> int:
        """States that a posterior could be made of; none before every chain has delivered a
        draw.
        """
        if self.draws is not None and not self.draws.filled.min():
            return 0
        return self.moments.states

    def state(self) -> dict[str, PyTree]:
        """All of it, for a checkpoint."""
        deliveries = {
            str(chain): delivery.state() for chain, delivery in enumerate(self.deliveries)
        }
        state = {"moments": self.moments.state(), "deliveries": deliveries}
        return state if self.draws is None else {**state, "draws": self.draws.state()}

    def restore(self, state: Mapping[str, PyTree]) -> None:
        self.moments.restore(state["moments"])
        for chain, delivery in enumerate(self.deliveries):
            delivery.restore(state["deliveries"][str(chain)])
        if self.draws is not None:
            self.draws.restore(state["draws"])


def _moments(chains: int, dimension: int, keep: str, spacing: int) -> Moments | Sketch:
    rank = rank_of(keep)
    if rank is None:
        return Moments(chains, dimension, dimension <= FULL_LIMIT, spacing)
    require_memory("a sketch of the covariance", chains, 2 * rank, dimension)
    return Sketch(chains, dimension, rank, spacing)
