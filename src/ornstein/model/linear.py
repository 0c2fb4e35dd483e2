"""Models that see the parameters through a few linear predictors: which parameter enters where.

Every parameter j multiplies one feature f(j) in one predictor k(j): u_k = Σ_{j: k(j)=k} z_{f(j)}
θ_j + offset, with z = (x, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ornstein.model.tables import is_sparse
from ornstein.types import Array, PyTree, Traced

# Numbers in a chunk of rows: 8 MB, which the cache that cores share holds, and calls are few.
CHUNK_NUMBERS = 2**20
LARGEST_CHUNK = 2**22  # where a row has thousands of numbers
# Rows copied at a time: they are read once for every column where columns are laid out one after
# the other.
COPIED = 2048
# Columns: fewer are laid out one after the other, so that a factor per row meets long stretches of
# numbers.
NARROW = 128


@dataclass(frozen=True, eq=False)
class LinearPredictor:
    """The example's loss as a function of its predictors, and where each parameter enters them."""

    example_loss: Callable[
        [Traced, Traced, Traced, PyTree], Traced
    ]  # (u, y, weight, hyperparameters) -> scalar
    features: Any  # (N, F): array, memory map or CSR matrix
    response: Array
    weights: Array | None
    offset: Array | None
    feature_of: Array  # (D,) column of z per parameter; F stands for the constant 1
    predictor_of: Array  # (D,)
    predictors: int
    hyperparameters: dict[str, Array]

    def part(self, rows: Array | slice) -> LinearPredictor:
        """The same for some of the rows."""
        weights = None if self.weights is None else self.weights[rows]
        offset = None if self.offset is None else self.offset[rows]
        return replace(
            self,
            features=self.features[rows],
            response=self.response[rows],
            weights=weights,
            offset=offset,
        )

    def linear_part(self, theta: Array) -> Array:
        """u without its offset, for every row: shape (N, m)."""
        matrix = self.gather(theta)
        return np.concatenate([rows.times(matrix) for _, rows in self.row_chunks()])

    def linear_part_of(self, features: Array, theta: Array) -> Array:
        """The same for rows that are not those of the model, or only some of them."""
        matrix = self.gather(theta)
        return np.asarray(features, dtype=float) @ matrix[:-1] + matrix[-1]

    @property
    def n_rows(self) -> int:
        return int(self.response.shape[0])

    def gather(self, theta: Array) -> Array:
        """θ as a matrix (features + 1, predictors)."""
        matrix = np.zeros((self.features.shape[1] + 1, self.predictors))
        matrix[self.feature_of, self.predictor_of] = theta
        return matrix

    def scatter(self, matrix: Array) -> Array:
        return matrix[self.feature_of, self.predictor_of]

    def row_chunks(self) -> Iterator[tuple[slice, Rows | SparseRows]]:
        """Some rows at a time, sparse ones as they are."""
        if not is_sparse(self.features):
            yield from self.filled_up_rows(0, "C")
            return
        # A chunk costs as much as it holds, and as its sums hold, one number per column.
        rows = max(
            1, self.n_rows * max(CHUNK_NUMBERS, self.features.shape[1]) // max(1, self.features.nnz)
        )
        for start in range(0, self.n_rows, rows):
            part = slice(start, min(start + rows, self.n_rows))
            yield part, SparseRows(self.features[part].astype(float))

    @property
    def order(self) -> Literal["C", "F"]:
        """How rows lie in memory that are weighted and multiplied with each other."""
        return "F" if self.features.shape[1] < NARROW else "C"

    def filled_up_rows(
        self, numbers: int, order: Literal["C", "F"]
    ) -> Iterator[tuple[slice, Rows]]:
        """Some rows at a time with all their zeros, always in the same place: new memory would cost
        more than the products.

        `numbers` counts the numbers produced per row, where more than its columns. Callers may
        overwrite the rows; the next part reuses their memory.
        """
        columns = self.features.shape[1] + 1
        # At least as many rows as columns, where memory allows: adding up what their products give
        # would take longer than those.
        rows = max(
            1, CHUNK_NUMBERS // max(numbers, columns), min(columns, LARGEST_CHUNK // columns)
        )
        place = np.empty((min(rows, self.n_rows), columns), order=order)
        for start in range(0, self.n_rows, rows):
            part = slice(start, min(start + rows, self.n_rows))
            block: Any = self.features[part]
            extended = place[: part.stop - part.start]
            block = block.toarray() if is_sparse(block) else block
            for first in range(0, len(extended), COPIED):
                extended[first : first + COPIED, :-1] = block[first : first + COPIED]
            extended[:, -1] = 1.0
            yield part, Rows(extended)


@dataclass(frozen=True, eq=False)
class Rows:
    """z = (x, 1) of some rows."""

    extended: Array

    def times(self, matrix: Array) -> Array:
        return self.extended @ matrix

    def summed(self, weights: Array) -> Array:
        """Σ_n z_n w_nᵀ."""
        return self.extended.T @ weights

    def squares_summed(self, weights: Array) -> Array:
        """Σ_n z_n² w_nᵀ."""
        return (self.extended**2).T @ weights


@dataclass(frozen=True, eq=False)
class SparseRows:
    """The same for sparse x: the constant is not stored."""

    block: Any

    def times(self, matrix: Array) -> Array:
        return self.block @ matrix[:-1] + matrix[-1]

    def summed(self, weights: Array) -> Array:
        return np.vstack([self.block.T @ weights, weights.sum(axis=0)])

    def squares_summed(self, weights: Array) -> Array:
        return np.vstack([self.block.power(2).T @ weights, weights.sum(axis=0)])
