"""Rows drawn with unequal probabilities, in constant time each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from ornstein.errors import InputError
from ornstein.rows.uniform import index_dtype
from ornstein.types import Array

# The least probability of a row, as a share of 1/N. A minibatch gradient divides by it, so that no
# row counts more than twice; and a table of N entries finds every row in three steps.
LEAST_SHARE = 0.5
STEPS = 3


@dataclass(frozen=True, eq=False)
class UnequalRows:
    """Rows with probabilities of at least 1/(2N).

    Attributes:
        cumulative: sums of the probabilities up to and with each row.
        guide: for k = 0 … N−1 the first row whose sum is above k/N. Between k/N and (k+1)/N lie two
            sums at most, because none of the probabilities is below 1/(2N).

    >>> rows = UnequalRows.of(np.array([0.5, 0.25, 0.25]))
    >>> rows.found(np.array([0.0, 0.49, 0.5, 0.74, 0.75, 0.99])).tolist()
    [0, 0, 1, 1, 2, 2]
    """

    cumulative: Array
    guide: Array

    @classmethod
    def of(cls, probabilities: Array) -> Self:
        """Refuses what are no probabilities, or smaller ones than 1/(2N)."""
        values = np.asarray(probabilities, dtype=float)
        count = values.size
        if values.ndim != 1 or not np.isclose(values.sum(), 1.0, rtol=0.0, atol=1e-9):
            raise InputError("probabilities must be one number per row, with the sum 1")
        # up to rounding
        if not np.all(values >= LEAST_SHARE / count * (1.0 - 1e-9)):
            raise InputError(
                f"no row may be drawn with a probability below 1/(2N) = {LEAST_SHARE / count:.3g};"
                f" got {values.min():.3g}"
            )
        cumulative = np.cumsum(values)
        cumulative[-1] = 1.0
        guide = np.searchsorted(cumulative, np.arange(count) / count, side="right")
        return cls(cumulative, guide.astype(index_dtype(count)))

    def found(self, uniform: Array) -> Array:
        """The rows that uniform numbers in [0, 1) stand for."""
        count = self.cumulative.size
        rows = self.guide[np.minimum((uniform * count).astype(np.int64), count - 1)]
        for _ in range(STEPS):
            rows += self.cumulative[rows] <= uniform
        return np.minimum(rows, count - 1)

    def draw(self, generator: np.random.Generator, shape: tuple[int, int]) -> Array:
        """Independent rows."""
        return self.found(generator.random(shape))
