"""States of several chains added up in batches of a fixed size.

The sums then depend on the rows alone and not on the pieces in which they arrive, so that a resumed run has the sums of one that
was never stopped, to the bit. Each chain is added up alone: chains may run on threads.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Self

import numpy as np

Array = np.ndarray


class Batched:
    """What waits to be added up; `arrays` names all that a checkpoint holds, `absorb` adds the waiting rows of one chain up."""

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
