"""States of several chains added up in batches of a fixed size.

The sums then depend on the rows alone and not on the pieces in which they arrive, so that a resumed
run has the sums of one that was never stopped, to the bit. Each chain is added up alone: chains may
run on threads.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Self

import numpy as np

from ornstein.checks import require_memory
from ornstein.types import Array


class Batched:
    """What waits to be added up; `arrays` names all that a checkpoint holds, `absorb` adds the
    waiting rows of one chain up.
    """

    arrays: tuple[str, ...]
    spacing: int
    count: Array  # rows added up, per chain
    batch: Array
    waiting: Array

    def begin(self, chains: int, dimension: int, rows: int, spacing: int) -> None:
        """Nothing taken in yet, states `spacing` steps apart to come, added up `rows` at a time."""
        self.spacing = spacing
        self.count = np.zeros(chains, dtype=int)
        self.batch = np.zeros((chains, rows, dimension))
        self.waiting = np.zeros(chains, dtype=int)

    def absorb(self, chain: int) -> None:
        raise NotImplementedError

    @property
    def states(self) -> int:
        """Rows taken in, over all chains."""
        return int(self.count.sum() + self.waiting.sum())

    def add(self, chain: int, states: Array) -> None:
        while len(states):
            filled = self.waiting[chain]
            part = states[: self.batch.shape[1] - filled]
            self.batch[chain, filled : filled + len(part)] = part
            self.waiting[chain] += len(part)
            states = states[len(part) :]
            if self.waiting[chain] == self.batch.shape[1]:
                self.absorb(chain)

    def state(self) -> dict[str, Array]:
        """Sums and the rows not yet added to them, for a checkpoint."""
        return {name: getattr(self, name) for name in self.arrays}

    def restore(self, state: Mapping[str, Array]) -> None:
        for name in self.arrays:
            getattr(self, name)[...] = state[name]

    def settled(self) -> Self:
        """A copy in which no row waits."""
        other = copy.copy(self)
        for name in self.arrays:
            setattr(other, name, getattr(self, name).copy())
        for chain in range(len(self.count)):
            if other.waiting[chain]:
                other.absorb(chain)
        return other


class Moments(Batched):
    """Counts, means and centred second moments per chain, added up in float64 (diagonal above 2000
    parameters).

    They take in states between the draws too, `spacing` steps apart: those carry twice the
    information on the covariance that draws two relaxation times apart have, and cost nothing.
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
