"""Examples that own different numbers of rows: groups, held as one table of rows in buckets.

Compiled code needs examples of one shape. Groups are put in order of their size and cut into
buckets; the groups of a bucket are filled up to the longest among them by repeating their last
row, which the likelihood leaves out because it knows how many rows count. The buckets are as few
as keep the rows, filled up, below `MOST_PADDED` times the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ornstein.types import Array

MOST_PADDED = 1.49
SMALL = 2**15
CANDIDATES = 80  # lengths that buckets are chosen from


@dataclass(frozen=True)
class Buckets:
    """Lengths of the buckets, ascending, and the first group of each, groups in order of size.

    >>> buckets = Buckets.of(np.repeat([1, 2, 9, 10], [30_000, 20_000, 10_000, 10_000]))
    >>> buckets.lengths, buckets.firsts, buckets.padded
    ((2, 10), (0, 50000), 300000)
    """

    lengths: tuple[int, ...]
    firsts: tuple[int, ...]
    groups: int

    @classmethod
    def of(cls, counts: Array) -> Buckets:
        """The buckets for groups of these sizes, which must ascend."""
        lengths = _lengths(np.asarray(counts, dtype=np.int64))
        firsts = np.searchsorted(counts, [0, *[length + 1 for length in lengths[:-1]]])
        return cls(tuple(lengths), tuple(int(first) for first in firsts), len(counts))

    def part(self, groups: Array) -> Buckets:
        """Those of some of the groups, in ascending order; empty ones are left out.

        >>> Buckets((1, 3, 9), (0, 2, 4), 6).part(np.array([1, 4, 5]))
        Buckets(lengths=(1, 9), firsts=(0, 1), groups=3)
        """
        firsts, stops = np.searchsorted(groups, self.firsts), np.searchsorted(groups, self.stops)
        kept = np.flatnonzero(stops > firsts)
        lengths = tuple(self.lengths[place] for place in kept)
        return Buckets(lengths, tuple(int(firsts[place]) for place in kept), len(groups))

    @property
    def padded(self) -> int:
        """Rows of all groups, filled up."""
        return sum(
            length * (stop - start)
            for length, start, stop in zip(self.lengths, self.firsts, self.stops, strict=True)
        )

    @property
    def stops(self) -> tuple[int, ...]:
        return (*self.firsts[1:], self.groups)

    def length_of(self, group: int) -> int:
        """To how many rows a group is filled up."""
        return self.lengths[int(np.searchsorted(self.firsts, group, side="right")) - 1]


def _lengths(counts: Array) -> list[int]:
    """The fewest lengths that keep the padded rows below the bound, the best of their number."""
    candidates = _candidates(counts)
    below = np.searchsorted(counts, candidates, side="right")
    groups = np.diff(below, prepend=0)
    bound = max(MOST_PADDED * counts.sum(), SMALL)
    before = np.concatenate([[0], np.cumsum(groups)])
    best = before[1:] * candidates  # one bucket up to each candidate
    choices: list[Array] = []
    while best[-1] > bound and len(choices) + 1 < len(candidates):
        # cost[i, j]: buckets end at candidate i, the next one ends at j
        cost = best[:, None] + (before[1:][None, :] - before[1:][:, None]) * candidates[None, :]
        cost = np.where(np.tri(len(candidates), k=-1).T > 0, cost, np.inf)
        choices.append(np.argmin(cost, axis=0))
        best = np.minimum(best, cost.min(axis=0))
    return _traced_back(candidates, choices)


def _traced_back(candidates: Array, choices: list[Array]) -> list[int]:
    place = len(candidates) - 1
    found = [int(candidates[place])]
    for choice in reversed(choices):
        if place == 0:
            break
        place = int(choice[place])
        found.append(int(candidates[place]))
    return sorted(set(found))


def _candidates(counts: Array) -> Array:
    """All sizes that there are, or, where they are many, some of them in steps of equal ratio."""
    sizes = np.unique(counts)
    if len(sizes) <= CANDIDATES:
        return sizes
    grid = np.geomspace(sizes[0], sizes[-1], CANDIDATES)
    return np.unique(sizes[np.minimum(np.searchsorted(sizes, grid - 1e-9), len(sizes) - 1)])


@dataclass(frozen=True, eq=False)
class Ragged:
    """One number or vector for each row of each group; indexed by groups, like an array whose rows
    are the groups.

    Attributes:
        values: (rows, …), the rows of a group one after the other, groups in order of their size.
        starts: the first row of each group; counts: how many rows it has.

    >>> ragged = Ragged(
    ...     np.arange(4.0), np.array([0, 1]), np.array([1, 3]), Buckets((1, 3), (0, 1), 2)
    ... )
    >>> ragged[0:2].tolist(), ragged[0:1].tolist()
    ([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]], [[0.0]])
    """

    values: Array
    starts: Array
    counts: Array
    buckets: Buckets

    @property
    def shape(self) -> tuple[int, ...]:
        """As an array of the longest groups would have it."""
        return (len(self.starts), self.buckets.lengths[-1], *self.values.shape[1:])

    @property
    def ndim(self) -> int:
        return self.values.ndim + 1

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    def __getitem__(self, groups: slice | Array) -> Array:
        """Rows of the groups, filled up to the bucket of the largest among them."""
        starts, counts = self.starts[groups], self.counts[groups]
        longest = int(counts.max()) if len(counts) else 1
        length = min(length for length in self.buckets.lengths if length >= longest)
        return self.values[row_places(starts, counts, length)]

    def part(self, groups: Array) -> Ragged:
        """Some of the groups, in ascending order."""
        buckets = self.buckets.part(groups)
        return Ragged(self.values, self.starts[groups], self.counts[groups], buckets)

    def with_values(self, values: Array) -> Ragged:
        """Other numbers for the same rows."""
        return Ragged(values, self.starts, self.counts, self.buckets)


def row_places(starts: Array, counts: Array, length: int) -> Array:
    """Which rows the groups have, (groups, length), the last one repeated."""
    within = np.minimum(np.arange(length), counts[:, None] - 1)
    return starts[:, None] + within
