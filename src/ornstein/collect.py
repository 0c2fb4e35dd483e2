"""What becomes of the values a run keeps: draws, window means, or their first two moments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ornstein.batched import Batched
from ornstein.engine import Kept, block_length, divisor_within
from ornstein.errors import InputError
from ornstein.model import FULL_LIMIT
from ornstein.sketch import Sketch, rank_of

Array = np.ndarray
LARGEST_ALLOCATION = 2 * 10**9
STATES_PER_DRAW = 8


def require_memory(what: str, *shape: int) -> None:
    """Refuse an allocation above 2 GB, with its size."""
    size = 8 * int(np.prod([float(length) for length in shape]))
    if size > LARGEST_ALLOCATION:
        raise InputError(
            f"{what} of shape {shape} would take {size / 1e9:.1f} GB, above the limit of {LARGEST_ALLOCATION / 1e9:.0f} GB: "
            "ask for fewer draws or chains, or use keep='moments'"
        )


class Delivery:
    """Turns a chain's kept values into draws: every m-th position, or the mean over a window and then a gap."""

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


class Draws:
    """All draws, (chains, draws, D)."""

    def __init__(self, chains: int, draws: int, dimension: int) -> None:
        require_memory("an array of draws", chains, draws, dimension)
        self.values = np.full((chains, draws, dimension), np.nan)
        self.filled = np.zeros(chains, dtype=int)

    def add(self, chain: int, draws: Array) -> None:
        start = self.filled[chain]
        self.values[chain, start : start + len(draws)] = draws
        self.filled[chain] += len(draws)

    def finished(self) -> Array:
        """What every chain has, up to the shortest."""
        return self.values[:, : int(self.filled.min())]

    def state(self) -> dict[str, Array]:
        """All that is filled, for a checkpoint."""
        return {"values": self.values[:, : int(self.filled.max())], "filled": self.filled}

    def restore(self, state: Mapping[str, Array]) -> None:
        self.filled = np.array(state["filled"], dtype=int)
        self.values[:, : state["values"].shape[1]] = state["values"]


class Moments(Batched):
    """Counts, means and centred second moments per chain, added up in float64 (diagonal above 2000 parameters).

    They take in states between the draws too, `spacing` steps apart: those carry twice the information on the covariance that
    draws two relaxation times apart have, and cost nothing.
    """

    arrays = ("count", "mean", "scatter", "batch", "waiting")

    def __init__(self, chains: int, dimension: int, full: bool, spacing: int) -> None:
        shape = (dimension, dimension) if full else (dimension,)
        require_memory("an array of second moments", chains, *shape)
        self.begin(chains, dimension, max(1, min(2048, 2**18 // dimension)), spacing)
        self.mean = np.zeros((chains, dimension))
        self.scatter = np.zeros((chains, *shape))

    def pooled(self) -> tuple[Array, Array]:
        """Mean and covariance of all chains together."""
        whole = self.settled()
        total = whole.count.sum()
        mean = whole.count @ whole.mean / total
        shift = whole.mean - mean
        full = whole.scatter.ndim == 3
        between = (
            np.einsum("c,ci,cj->ij", whole.count, shift, shift) if full else whole.count @ shift**2
        )
        return mean, (whole.scatter.sum(axis=0) + between) / (total - 1)

    def absorb(self, chain: int) -> None:
        rows = self.batch[chain, : self.waiting[chain]]
        mean = rows.mean(axis=0)
        centred = rows - mean
        shift = mean - self.mean[chain]
        before, after = self.count[chain], self.count[chain] + len(rows)
        weight = before * len(rows) / after
        if self.scatter.ndim == 3:
            self.scatter[chain] += centred.T @ centred + weight * np.outer(shift, shift)
        else:
            self.scatter[chain] += np.sum(centred**2, axis=0) + weight * shift**2
        self.mean[chain] += shift * len(rows) / after
        self.count[chain] = after
        self.waiting[chain] = 0


class Collection:
    """What a run delivers: draws if they are wanted, and moments.

    `stride` is the steps between the values that the engine keeps: a divisor of those between draws, or of window and gap.
    """

    def __init__(
        self, dynamics: Any, dimension: int, thin: int, draws: int, chains: int, keep: str
    ) -> None:
        self.window = window = dynamics.window
        unit = math.gcd(window, dynamics.gap) if window > 1 else thin
        finest = unit if window > 1 else max(1, thin // STATES_PER_DRAW)
        longest = block_length(dynamics, dimension)
        self.stride = divisor_within(unit, min(finest, longest))
        if 4 * self.stride < finest:
            self.stride = divisor_within(
                unit, longest
            )  # an awkward thinning (a prime, say) has no use for states in between
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
        """The draws of the chains; where a sketch was kept, as many from its Gaussian; where only moments were, None."""
        if not isinstance(self.moments, Sketch):
            return self.draws
        chains, dimension = self.moments.mean.shape
        store = Draws(chains, draws, dimension)
        self.moments.draw_into(store.values, seed)
        store.filled[:] = draws
        return store

    def state(self) -> dict[str, Any]:
        """All of it, for a checkpoint."""
        deliveries = {
            str(chain): delivery.state() for chain, delivery in enumerate(self.deliveries)
        }
        state = {"moments": self.moments.state(), "deliveries": deliveries}
        return state if self.draws is None else {**state, "draws": self.draws.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
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
