"""Closed-form derivatives for models whose likelihood sees the parameters through a few linear predictors.

Every parameter j multiplies one feature f(j) in one predictor k(j): u_k = Σ_{j: k(j)=k} z_{f(j)} θ_j + offset, with
z = (x, 1). With d the first and W the second derivative of the example's loss in u, and J_n the D × m matrix of features,

    gradient  J_n d_n,      Hessian  A_n = J_n W_n J_nᵀ,      E[A_nΣA_n] = E[J_n W_n (J_nᵀΣJ_n) W_n J_nᵀ],

so that all passes are a few matrix products per chunk of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import numpy as np

from ornstein.compiled import compiled
from ornstein.feature_pairs import FEWEST_PREDICTORS, MOST_FEATURES, FeaturePairs
from ornstein.precision import double
from ornstein.predictor_blocks import PredictorBlocks, columns_of
from ornstein.tables import is_sparse

Array = np.ndarray
KEPT_BYTES = 2**26
CHUNK_NUMBERS = (
    2**20
)  # of a chunk of rows: 8 MB, which the cache that cores share holds, and calls are few
LARGEST_CHUNK = 2**22  # where a row has thousands of numbers
COPIED = 2048  # rows at a time: they are read once for every column where columns are laid out one after the other
NARROW = 128  # columns: fewer are laid out one after the other, so that a factor per row meets long stretches of numbers


@dataclass(frozen=True, eq=False)
class LinearPredictor:
    """The example's loss as a function of its predictors, and where each parameter enters them."""

    example_loss: Callable[[Any, Any, Any, Any], Any]  # (u, y, weight, hyperparameters) -> scalar
    features: Any  # (N, F): array, memory map or CSR matrix
    response: Array
    weights: Array | None
    offset: Array | None
    feature_of: Array  # (D,) column of z per parameter; F stands for the constant 1
    predictor_of: Array  # (D,)
    predictors: int
    hyperparameters: dict[str, Array]

    def part(self, rows: Array) -> LinearPredictor:
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

    def value(self, theta: Array) -> float:
        return sum(float(chunk.loss().sum()) for chunk in self._chunks(theta)) / self._rows

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        value, slope = 0.0, self._gather(np.zeros(theta.size))
        for chunk in self._chunks(theta):
            losses, slopes = chunk.loss_and_first()
            value += float(losses.sum())
            slope += chunk.rows.summed(slopes)
        return value / self._rows, self._scatter(slope) / self._rows

    def hessian(self, theta: Array) -> Array:
        outer, total = self._outer(), 0.0
        for chunk in self._chunks(theta, outer.numbers):
            total += outer.summed(outer.products(chunk.rows.extended), chunk.second())
        return outer.whole(total) / self._rows

    def gradient_moments(self, theta: Array) -> tuple[Array, Array]:
        first, second = np.zeros(theta.size), np.zeros((theta.size, theta.size))
        for chunk in self._chunks(theta, theta.size):
            gradients = columns_of(chunk.rows.extended, self.feature_of)
            gradients *= columns_of(chunk.first(), self.predictor_of)
            first += gradients.sum(axis=0)
            second += gradients.T @ gradients
        return first / self._rows, second / self._rows

    def diagonal_moments(self, theta: Array) -> tuple[Array, Array]:
        first, second = (self._gather(np.zeros(theta.size)) for _ in range(2))
        for chunk in self._chunks(theta):
            slopes = chunk.first()
            first += chunk.rows.summed(slopes)
            second += chunk.rows.squares_summed(slopes**2)
        return self._scatter(first) / self._rows, self._scatter(second) / self._rows

    def example_gradients(self, theta: Array) -> Iterator[Array]:
        for chunk in self._chunks(theta, theta.size):
            yield chunk.rows.extended[:, self.feature_of] * chunk.first()[:, self.predictor_of]

    def hessian_product(self, theta: Array, vector: Array) -> Array:
        total, matrix = self._gather(np.zeros(theta.size)), self._gather(vector)
        for chunk in self._chunks(theta):
            total += chunk.rows.summed(
                np.einsum("nkl,nl->nk", chunk.second(), chunk.rows.times(matrix))
            )
        return self._scatter(total) / self._rows

    def squared_hessian(self, theta: Array) -> Callable[[Array], Array]:
        # The rows' second derivatives, a few numbers per row, are asked for again in every round of an iteration: they are kept
        # unless there are too many of them.
        keep, numbers = 8 * self._rows * self.predictors**2 <= KEPT_BYTES, self._outer().numbers
        kept = [chunk.second() for chunk in self._chunks(theta, numbers)] if keep else None

        def respond(covariance: Array) -> Array:
            outer, total = self._outer(), 0.0
            coefficients = outer.coefficients(covariance)
            known = (
                (chunk.second() for chunk in self._chunks(theta, numbers)) if kept is None else kept
            )
            for (_, rows), curvature in zip(
                self._filled_up_rows(numbers, self._order), known, strict=True
            ):
                products = outer.products(rows.extended)
                spread = outer.spread(products, coefficients)
                total += outer.summed(products, curvature @ spread @ curvature)
            return outer.whole(total) / self._rows

        return respond

    def linear_part(self, theta: Array) -> Array:
        """u without its offset, for every row: shape (N, m)."""
        matrix = self._gather(theta)
        return np.concatenate([rows.times(matrix) for _, rows in self._row_chunks()])

    def linear_part_of(self, features: Array, theta: Array) -> Array:
        """The same for rows that are not those of the model, or only some of them."""
        matrix = self._gather(theta)
        return np.asarray(features, dtype=float) @ matrix[:-1] + matrix[-1]

    @property
    def _rows(self) -> int:
        return int(self.response.shape[0])

    def _gather(self, theta: Array) -> Array:
        """θ as a matrix (features + 1, predictors)."""
        matrix = np.zeros((self.features.shape[1] + 1, self.predictors))
        matrix[self.feature_of, self.predictor_of] = theta
        return matrix

    def _scatter(self, matrix: Array) -> Array:
        return matrix[self.feature_of, self.predictor_of]

    def _outer(self) -> Any:
        """How sums over rows of outer products of features are taken."""
        used = int(self.feature_of.max()) + 1
        # Most predictors see most features: what few parameters are missing counts for nothing.
        shared = 4 * self.feature_of.size >= 3 * used * self.predictors
        if shared and self.predictors >= FEWEST_PREDICTORS and used <= MOST_FEATURES:
            return FeaturePairs(self.feature_of, self.predictor_of, self.predictors)
        return PredictorBlocks(self.feature_of, self.predictor_of, self.predictors)

    def _row_chunks(self) -> Iterator[tuple[slice, _Rows | _SparseRows]]:
        """Some rows at a time, sparse ones as they are."""
        if not is_sparse(self.features):
            yield from self._filled_up_rows(0, "C")
            return
        # A chunk costs as much as it holds, and as its sums hold, one number per column.
        rows = max(
            1, self._rows * max(CHUNK_NUMBERS, self.features.shape[1]) // max(1, self.features.nnz)
        )
        for start in range(0, self._rows, rows):
            part = slice(start, min(start + rows, self._rows))
            yield part, _SparseRows(self.features[part].astype(float))

    @property
    def _order(self) -> Literal["C", "F"]:
        """How rows lie in memory that are weighted and multiplied with each other."""
        return "F" if self.features.shape[1] < NARROW else "C"

    def _filled_up_rows(
        self, numbers: int, order: Literal["C", "F"]
    ) -> Iterator[tuple[slice, _Rows]]:
        """Some rows at a time with all their zeros, always in the same place: new memory would cost more than the products.

        `numbers` is how many a row becomes, where more than its columns. Who gets them may write over them; they are
        gone when the next are asked for.
        """
        columns = self.features.shape[1] + 1
        # At least as many rows as columns, where memory allows: adding up what their products give would take longer than those.
        rows = max(
            1, CHUNK_NUMBERS // max(numbers, columns), min(columns, LARGEST_CHUNK // columns)
        )
        place = np.empty((min(rows, self._rows), columns), order=order)
        for start in range(0, self._rows, rows):
            part = slice(start, min(start + rows, self._rows))
            block: Any = self.features[part]
            extended = place[: part.stop - part.start]
            block = block.toarray() if is_sparse(block) else block
            for first in range(0, len(extended), COPIED):
                extended[first : first + COPIED, :-1] = block[first : first + COPIED]
            extended[:, -1] = 1.0
            yield part, _Rows(extended)

    def _chunks(self, theta: Array, numbers: int = 0) -> Iterator[_Chunk]:
        """Some rows at a time with their predictors; filled up, as each becomes so many `numbers`, where products with vectors
        are not all that is asked of them.
        """
        matrix = self._gather(theta)
        for part, rows in (
            self._filled_up_rows(numbers, self._order) if numbers else self._row_chunks()
        ):
            predictors = rows.times(matrix)
            if self.offset is not None:
                known = self.offset[part].reshape(predictors.shape[0], -1)
                predictors[:, : known.shape[1]] += (
                    known  # log σ, where it is inferred, is the last predictor and has no offset
                )
            weights = None if self.weights is None else self.weights[part]
            yield _Chunk(self, rows, predictors, self.response[part], weights)


@dataclass(frozen=True, eq=False)
class _Rows:
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
class _SparseRows:
    """The same for sparse x: the constant is not stored."""

    block: Any

    def times(self, matrix: Array) -> Array:
        return self.block @ matrix[:-1] + matrix[-1]

    def summed(self, weights: Array) -> Array:
        return np.vstack([self.block.T @ weights, weights.sum(axis=0)])

    def squares_summed(self, weights: Array) -> Array:
        return np.vstack([self.block.power(2).T @ weights, weights.sum(axis=0)])


@dataclass(frozen=True, eq=False)
class _Chunk:
    model: LinearPredictor
    rows: Any  # _Rows, or _SparseRows where they are not asked to be filled up
    predictors: Array
    response: Array
    weights: Array | None

    def loss(self) -> Array:
        return np.asarray(self._evaluated(_losses))

    def loss_and_first(self) -> tuple[Array, Array]:
        losses, slopes = self._evaluated(_losses_and_first)
        return np.asarray(losses), np.asarray(slopes)

    def first(self) -> Array:
        return np.asarray(self._evaluated(_first))

    def second(self) -> Array:
        return np.asarray(self._evaluated(_second))

    def _evaluated(self, function: Callable[..., Any]) -> Any:
        weights = (
            np.ones(self.response.shape[0])
            if self.weights is None
            else np.asarray(self.weights, dtype=float)
        )
        response = (
            self.response
            if self.response.dtype.kind in "iu"
            else np.asarray(self.response, dtype=float)
        )
        with double():
            return function(
                self.model.example_loss,
                self.predictors,
                response,
                weights,
                self.model.hyperparameters,
            )


@compiled
def _losses(loss: Any, predictors: Any, response: Any, weights: Any, hyper: Any) -> Any:
    return jax.vmap(loss, (0, 0, 0, None))(predictors, response, weights, hyper)


@compiled
def _losses_and_first(loss: Any, predictors: Any, response: Any, weights: Any, hyper: Any) -> Any:
    return jax.vmap(jax.value_and_grad(loss), (0, 0, 0, None))(predictors, response, weights, hyper)


@compiled
def _first(loss: Any, predictors: Any, response: Any, weights: Any, hyper: Any) -> Any:
    return jax.vmap(jax.grad(loss), (0, 0, 0, None))(predictors, response, weights, hyper)


@compiled
def _second(loss: Any, predictors: Any, response: Any, weights: Any, hyper: Any) -> Any:
    return jax.vmap(jax.hessian(loss), (0, 0, 0, None))(predictors, response, weights, hyper)
