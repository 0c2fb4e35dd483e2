"""What becomes of the values a run keeps: draws, window means, or their first two moments."""

from __future__ import annotations

import numpy as np

from ornstein.engine import Kept
from ornstein.errors import InputError

Array = np.ndarray
LARGEST_ALLOCATION = 2 * 10**9


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


class Moments:
    """Counts, means and centred second moments per chain, added up in float64 (diagonal above 2000 parameters).

    They take in states between the draws too, `spacing` steps apart: those carry twice the information on the covariance that
    draws two relaxation times apart have, and cost nothing.
    """

    def __init__(self, chains: int, dimension: int, full: bool, spacing: int) -> None:
        self.spacing = spacing
        shape = (dimension, dimension) if full else (dimension,)
        require_memory("an array of second moments", chains, *shape)
        self.count = np.zeros(chains, dtype=int)
        self.mean = np.zeros((chains, dimension))
        self.scatter = np.zeros((chains, *shape))

    def add(self, chain: int, draws: Array) -> None:
        if not len(draws):
            return
        mean = draws.mean(axis=0)
        centred = draws - mean
        shift = mean - self.mean[chain]
        before, after = self.count[chain], self.count[chain] + len(draws)
        weight = before * len(draws) / after
        if self.scatter.ndim == 3:
            self.scatter[chain] += centred.T @ centred + weight * np.outer(shift, shift)
        else:
            self.scatter[chain] += np.sum(centred**2, axis=0) + weight * shift**2
        self.mean[chain] += shift * len(draws) / after
        self.count[chain] = after

    def pooled(self) -> tuple[Array, Array]:
        """Mean and covariance of all chains together."""
        total = self.count.sum()
        mean = self.count @ self.mean / total
        shift = self.mean - mean
        full = self.scatter.ndim == 3
        between = np.einsum("c,ci,cj->ij", self.count, shift, shift) if full else self.count @ shift**2
        return mean, (self.scatter.sum(axis=0) + between) / (total - 1)
