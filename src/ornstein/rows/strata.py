"""Minibatches with fixed numbers of groups of each size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ornstein.errors import InputError
from ornstein.rows.ragged import Buckets
from ornstein.rows.scheme import UNIT
from ornstein.rows.uniform import index_dtype
from ornstein.types import Array


@dataclass(frozen=True)
class Strata:
    """How many groups of each bucket a minibatch holds, drawn independently within it.

    A minibatch of S groups has S·counts_b/Σcounts of bucket b. Its gradient is the mean of each
    bucket's, weighted with the bucket's share of all groups.

    >>> strata = Strata(Buckets((2, 10), (0, 900), 1000), (3, 1))
    >>> strata.sizes(8), strata.probabilities[[0, 999]].round(5).tolist()
    ((6, 2), [0.00083, 0.0025])
    """

    buckets: Buckets
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.buckets.lengths) or min(self.counts) < 1:
            raise InputError(
                f"strata need one positive count for each of {len(self.buckets.lengths)} buckets;"
                f" got {self.counts}"
            )

    @classmethod
    def of(cls, buckets: Buckets, wanted: Array) -> Strata:
        """Counts in proportion to `wanted`, at least one for each bucket, UNIT in all."""
        number = len(buckets.lengths)
        if number > UNIT:
            raise InputError(
                f"the groups lie in {number} buckets by size, more than {UNIT}: use the scheme"
                " 'replacement'"
            )
        total = float(np.sum(wanted))
        shares = wanted / total if total > 0 else np.full(number, 1.0 / number)
        ideal = 1.0 + (UNIT - number) * shares
        counts = np.floor(ideal).astype(int)
        first = np.argsort(counts - ideal, kind="stable")[: UNIT - counts.sum()]
        counts[first] += 1
        return cls(buckets, tuple(counts.tolist()))

    def sizes(self, batch_size: int) -> tuple[int, ...]:
        """S_b of a minibatch of S groups."""
        return tuple(batch_size * count // sum(self.counts) for count in self.counts)

    @property
    def groups(self) -> Array:
        """N_b."""
        return np.subtract(self.buckets.stops, self.buckets.firsts)

    @property
    def weights(self) -> Array:
        """(N_b/N)²·S/S_b: what C_b counts in the noise of a minibatch of S groups, times S."""
        share = self.groups / self.buckets.groups
        return share**2 * sum(self.counts) / np.array(self.counts)

    @property
    def probabilities(self) -> Array:
        """How likely it is for a place in a minibatch to hold each group."""
        return np.repeat(np.array(self.counts) / sum(self.counts) / self.groups, self.groups)

    def draw(self, generator: np.random.Generator, shape: tuple[int, int]) -> Array:
        """Groups of independent minibatches, (steps, S), bucket after bucket."""
        steps, size = shape
        kind = index_dtype(self.buckets.groups)
        ranges = zip(self.buckets.firsts, self.buckets.stops, self.sizes(size), strict=True)
        parts = [
            generator.integers(first, stop, (steps, count), dtype=kind)
            for first, stop, count in ranges
        ]
        return np.concatenate(parts, axis=1)
