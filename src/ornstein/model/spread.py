"""Means, standard deviations and ranges of columns, in one pass over the rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from ornstein.model.tables import is_sparse
from ornstein.types import Array

AT_ONCE = 2**20  # numbers of a dense table that are looked at together


@dataclass(frozen=True, eq=False)
class Spread:
    """What is known of the columns of some rows.

    Attributes:
        weight: of all rows together.
        mean: of each column, under the weights.
        squares: Σ w (x − mean)².
        low, high: smallest and largest value.
        two: whether every value is one of these two.
    """

    weight: float
    mean: Array
    squares: Array
    low: Array
    high: Array
    two: Array

    @classmethod
    def of(cls, table: Any, weights: Array | None = None) -> Spread:
        """The spread of a table, dense or sparse.

        >>> spread = Spread.of(np.array([[0.0, 5.0], [1.0, 7.0], [1.0, 9.0]]))
        >>> spread.two, spread.units()
        (array([ True, False]), array([1.        , 1.63299316]))
        """
        if is_sparse(table):
            return _of_sparse(table, weights)
        rows = max(1, AT_ONCE // max(1, table.shape[1]))
        parts = []
        for start in range(0, table.shape[0], rows):
            part = slice(start, start + rows)
            share = None if weights is None else weights[part]
            parts.append(_of_block(np.asarray(table[part], dtype=float), share))
        return reduce(Spread.merged, parts)

    def merged(self, other: Spread) -> Spread:
        """The spread of the rows of both."""
        weight = self.weight + other.weight
        apart = other.mean - self.mean
        share = other.weight / weight if weight else 0.0
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        two = self.two & other.two
        for value in (self.low, self.high, other.low, other.high):
            two = two & ((value == low) | (value == high))
        return Spread(
            weight,
            self.mean + share * apart,
            self.squares + other.squares + self.weight * share * apart**2,
            low,
            high,
            two,
        )

    def units(self) -> Array:
        """What counts as one unit of each column: its standard deviation, or for a column of two
        values the step between them. A constant column counts by its size.
        """
        deviation = np.sqrt(self.squares / self.weight)
        constant = np.where(self.mean != 0.0, np.abs(self.mean), 1.0)
        # a spread that is rounding alone is none
        varies = deviation > 1e-12 * np.abs(self.mean)
        with np.errstate(over="ignore", invalid="ignore"):
            step = self.high - self.low
        return np.where(
            self.low == self.high,
            constant,
            np.where(self.two, step, np.where(varies, deviation, constant)),
        )


def _of_block(block: Array, weights: Array | None) -> Spread:
    weight = float(len(block)) if weights is None else float(weights.sum())
    if not weight:
        weights, mean = None, block.mean(axis=0)
    else:
        mean = np.average(block, axis=0, weights=weights)
    off = (block - mean) ** 2
    squares = off.sum(axis=0) if weights is None else weights @ off
    low, high = block.min(axis=0), block.max(axis=0)
    two = np.all((block == low) | (block == high), axis=0)
    return Spread(weight, mean, squares if weight else 0.0 * mean, low, high, two)


def _of_sparse(table: Any, weights: Array | None) -> Spread:
    rows, columns = table.shape
    share = np.ones(rows) if weights is None else weights
    weight = float(share.sum())
    table = table.astype(float).tocsr()
    mean = np.asarray(table.T @ share) / weight
    at = table.indices
    of_row = np.repeat(share, np.diff(table.indptr))
    # stored entries about the mean, and the zeros that are not stored
    stored = np.bincount(at, of_row * (table.data - mean[at]) ** 2, columns)
    squares = stored + (weight - np.bincount(at, of_row, columns)) * mean**2
    full = np.bincount(at, minlength=columns) == rows
    low, high = np.where(full, np.inf, 0.0), np.where(full, -np.inf, 0.0)
    np.minimum.at(low, at, table.data)
    np.maximum.at(high, at, table.data)
    ends = (table.data == low[at]) | (table.data == high[at])
    two = np.bincount(at, ~ends, columns) == 0
    two = two & (full | (low == 0.0) | (high == 0.0))
    return Spread(weight, mean, squares, low, high, two)
