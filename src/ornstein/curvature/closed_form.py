"""Closed-form derivatives for models with linear predictors.

With d the first and W the second derivative of the example's loss in its predictors u, and J_n the
D × m matrix of features (model/linear.py),

    gradient  J_n d_n,      Hessian  A_n = J_n W_n J_nᵀ,
    E[A_nΣA_n] = E[J_n W_n (J_nᵀΣJ_n) W_n J_nᵀ],

so that all passes are a few matrix products per chunk of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ornstein.compute.compiled import compiled
from ornstein.compute.precision import double
from ornstein.curvature.outer_products import (
    FEWEST_PREDICTORS,
    MOST_FEATURES,
    FeaturePairs,
    PredictorBlocks,
    columns_of,
)
from ornstein.curvature.quadrature import points_for
from ornstein.model.linear import LinearPredictor
from ornstein.types import Array, PyTree, Traced

KEPT_BYTES = 2**26
POINT_NUMBERS = 2**21  # predictors of some rows at some points, held at a time


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """The answers to what the curvature asks, for a model described by its linear predictors."""

    linear: LinearPredictor

    def part(self, rows: Array) -> ClosedForm:
        """The same for some of the rows."""
        return ClosedForm(self.linear.part(rows))

    def value(self, theta: Array) -> float:
        return sum(float(chunk.loss().sum()) for chunk in self._chunks(theta)) / self.linear.n_rows

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        value, slope = 0.0, self.linear.gather(np.zeros(theta.size))
        for chunk in self._chunks(theta):
            losses, slopes = chunk.loss_and_first()
            value += float(losses.sum())
            slope += chunk.rows.summed(slopes)
        return value / self.linear.n_rows, self.linear.scatter(slope) / self.linear.n_rows

    def values(self, points: Array) -> Array:
        return self._at(points, _losses_at_points)[0]

    def values_and_gradients(self, points: Array) -> tuple[Array, Array]:
        return self._at(points, losses_and_first_at_points)

    def _at(self, points: Array, evaluate: Callable[..., PyTree]) -> tuple[Array, Array]:
        """Mean losses at many points and, if `evaluate` gives slopes, their gradients: products
        of all rows with many points at a time.
        """
        linear, count = self.linear, len(points)
        matrices = np.stack([linear.gather(point) for point in points], axis=2)
        values, slopes = np.zeros(count), np.zeros_like(matrices)
        for part, rows in linear.row_chunks():
            rest = linear.response[part], None if linear.weights is None else linear.weights[part]
            size = max(1, POINT_NUMBERS // (len(rest[0]) * linear.predictors))
            for start in range(0, count, size):
                # the last portion is filled up, so that it does not compile anew
                places = np.minimum(np.arange(start, start + min(size, count)), count - 1)
                group = matrices[:, :, places]
                predictors = rows.times(group.reshape(len(group), -1))
                predictors = predictors.reshape(-1, *group.shape[1:])
                if linear.offset is not None:
                    known = linear.offset[part].reshape(len(predictors), -1)
                    predictors[:, : known.shape[1]] += known[:, :, None]
                chunk = _Chunk(linear, rows, predictors, *rest)
                found = chunk.at_points(evaluate)
                new = places[: min(count - start, size)]
                values[new] += found[0][:, : len(new)].sum(axis=0)
                if len(found) > 1:
                    summed = rows.summed(found[1].reshape(len(predictors), -1))
                    slopes[:, :, new] += summed.reshape(group.shape)[:, :, : len(new)]
        gradients = slopes[linear.feature_of, linear.predictor_of].T
        return values / linear.n_rows, gradients / linear.n_rows

    def hessian(self, theta: Array) -> Array:
        outer, total = self._outer(), 0.0
        for chunk in self._chunks(theta, outer.numbers):
            total += outer.summed(outer.products(chunk.rows.extended), chunk.second())
        return outer.whole(total) / self.linear.n_rows

    def expected(self, theta: Array, covariance: Array) -> tuple[float, Array, Array]:
        """Value, gradient and Hessian averaged over N(theta, covariance), in one pass: a rule of
        few points for the predictors of every row.
        """
        outer, value, total = self._outer(), 0.0, 0.0
        slope, coefficients = (
            self.linear.gather(np.zeros(theta.size)),
            outer.coefficients(covariance),
        )
        for chunk in self._chunks(theta, outer.numbers):
            products = outer.products(chunk.rows.extended)
            losses, first, second = chunk.expected(outer.spread(products, coefficients))
            value += float(losses.sum())
            slope += chunk.rows.summed(first)
            total += outer.summed(products, second)
        rows = self.linear.n_rows
        return value / rows, self.linear.scatter(slope) / rows, outer.whole(total) / rows

    def gradient_moments(self, theta: Array) -> tuple[Array, Array]:
        first, second = np.zeros(theta.size), np.zeros((theta.size, theta.size))
        for chunk in self._chunks(theta, theta.size):
            gradients = columns_of(chunk.rows.extended, self.linear.feature_of)
            gradients *= columns_of(chunk.first(), self.linear.predictor_of)
            first += gradients.sum(axis=0)
            second += gradients.T @ gradients
        return first / self.linear.n_rows, second / self.linear.n_rows

    def diagonal_moments(self, theta: Array) -> tuple[Array, Array]:
        first, second = (self.linear.gather(np.zeros(theta.size)) for _ in range(2))
        for chunk in self._chunks(theta):
            slopes = chunk.first()
            first += chunk.rows.summed(slopes)
            second += chunk.rows.squares_summed(slopes**2)
        return self.linear.scatter(first) / self.linear.n_rows, self.linear.scatter(
            second
        ) / self.linear.n_rows

    def example_gradients(self, theta: Array) -> Iterator[Array]:
        for chunk in self._chunks(theta, theta.size):
            yield (
                chunk.rows.extended[:, self.linear.feature_of]
                * chunk.first()[:, self.linear.predictor_of]
            )

    def hessian_product(self, theta: Array, vector: Array) -> Array:
        total, matrix = self.linear.gather(np.zeros(theta.size)), self.linear.gather(vector)
        for chunk in self._chunks(theta):
            total += chunk.rows.summed(
                np.einsum("nkl,nl->nk", chunk.second(), chunk.rows.times(matrix))
            )
        return self.linear.scatter(total) / self.linear.n_rows

    def squared_hessian(self, theta: Array) -> Callable[[Array], Array]:
        # The rows' second derivatives, a few numbers per row, are asked for again in every round of
        # an iteration: they are kept unless there are too many of them.
        keep, numbers = (
            8 * self.linear.n_rows * self.linear.predictors**2 <= KEPT_BYTES,
            self._outer().numbers,
        )
        kept = [chunk.second() for chunk in self._chunks(theta, numbers)] if keep else None

        def respond(covariance: Array) -> Array:
            outer, total = self._outer(), 0.0
            coefficients = outer.coefficients(covariance)
            known = (
                (chunk.second() for chunk in self._chunks(theta, numbers)) if kept is None else kept
            )
            for (_, rows), curvature in zip(
                self.linear.filled_up_rows(numbers, self.linear.order), known, strict=True
            ):
                products = outer.products(rows.extended)
                spread = outer.spread(products, coefficients)
                total += outer.summed(products, curvature @ spread @ curvature)
            return outer.whole(total) / self.linear.n_rows

        return respond

    def _outer(self) -> Any:
        """How sums over rows of outer products of features are taken."""
        used = int(self.linear.feature_of.max()) + 1
        # Most predictors see most features: what few parameters are missing counts for nothing.
        shared = 4 * self.linear.feature_of.size >= 3 * used * self.linear.predictors
        if shared and self.linear.predictors >= FEWEST_PREDICTORS and used <= MOST_FEATURES:
            return FeaturePairs(
                self.linear.feature_of, self.linear.predictor_of, self.linear.predictors
            )
        return PredictorBlocks(
            self.linear.feature_of, self.linear.predictor_of, self.linear.predictors
        )

    def _chunks(self, theta: Array, numbers: int = 0) -> Iterator[_Chunk]:
        """Some rows at a time with their predictors; filled up, as each becomes `numbers` of them,
        where products with vectors are not all that is asked of them.
        """
        matrix = self.linear.gather(theta)
        for part, rows in (
            self.linear.filled_up_rows(numbers, self.linear.order)
            if numbers
            else self.linear.row_chunks()
        ):
            predictors = rows.times(matrix)
            if self.linear.offset is not None:
                known = self.linear.offset[part].reshape(predictors.shape[0], -1)
                # log σ, where it is inferred, is the last predictor and has no offset
                predictors[:, : known.shape[1]] += known
            weights = None if self.linear.weights is None else self.linear.weights[part]
            yield _Chunk(self.linear, rows, predictors, self.linear.response[part], weights)


@dataclass(frozen=True, eq=False)
class _Chunk:
    model: LinearPredictor
    rows: Any  # Rows, or SparseRows where they are not asked to be filled up
    predictors: Array
    response: Array
    weights: Array | None

    def loss(self) -> Array:
        return np.asarray(self._evaluated(_losses))

    def loss_and_first(self) -> tuple[Array, Array]:
        losses, slopes = self._evaluated(_losses_and_first)
        return np.asarray(losses), np.asarray(slopes)

    def at_points(self, evaluate: Callable[..., PyTree]) -> tuple[Array, ...]:
        """What `evaluate` makes of predictors (rows, predictors, points)."""
        return tuple(np.asarray(part) for part in self._evaluated(evaluate))

    def first(self) -> Array:
        return np.asarray(self._evaluated(_first))

    def second(self) -> Array:
        return np.asarray(self._evaluated(_second))

    def expected(self, spread: Array) -> tuple[Array, Array, Array]:
        """Loss, first and second derivatives where the predictors have this covariance."""
        values, vectors = np.linalg.eigh(spread)
        roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        rule = points_for(self.model.predictors, float(np.sqrt(max(0.0, values.max()))))
        losses, first, second = self._evaluated(over_points, roots, rule.places, rule.weights)
        return np.asarray(losses), np.asarray(first), np.asarray(second)

    def _evaluated(self, function: Callable[..., PyTree], *extra: Array) -> PyTree:
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
                *extra,
            )


@compiled
def _losses(
    loss: Callable[..., Traced],
    predictors: Traced,
    response: Traced,
    weights: Traced,
    hyper: PyTree,
) -> Traced:
    return jax.vmap(loss, (0, 0, 0, None))(predictors, response, weights, hyper)


@compiled
def _losses_and_first(
    loss: Callable[..., Traced],
    predictors: Traced,
    response: Traced,
    weights: Traced,
    hyper: PyTree,
) -> tuple[Traced, Traced]:
    return jax.vmap(jax.value_and_grad(loss), (0, 0, 0, None))(predictors, response, weights, hyper)


@compiled
def _first(
    loss: Callable[..., Traced],
    predictors: Traced,
    response: Traced,
    weights: Traced,
    hyper: PyTree,
) -> Traced:
    return jax.vmap(jax.grad(loss), (0, 0, 0, None))(predictors, response, weights, hyper)


@compiled
def _second(
    loss: Callable[..., Traced],
    predictors: Traced,
    response: Traced,
    weights: Traced,
    hyper: PyTree,
) -> Traced:
    return jax.vmap(jax.hessian(loss), (0, 0, 0, None))(predictors, response, weights, hyper)


@compiled
def over_points(
    loss: Callable[..., Traced],
    predictors: Traced,
    response: Traced,
    weights: Traced,
    hyper: PyTree,
    roots: Traced,
    places: Traced,
    chances: Traced,
) -> tuple[Traced, Traced, Traced]:
    """Weighted averages of the loss, its slope and its curvature in the predictors, over the points
    `predictors + roots·place`; one point of all rows after the other.
    """

    def at(predictors: Traced, *rest: Traced) -> tuple[Traced, Traced, Traced]:
        value, slope = jax.value_and_grad(loss)(predictors, *rest)
        return value, slope, jax.hessian(loss)(predictors, *rest)

    def add(total: PyTree, point: tuple[Traced, Traced]) -> tuple[PyTree, None]:
        place, chance = point
        found = jax.vmap(at, (0, 0, 0, None))(predictors + roots @ place, response, weights, hyper)
        return jax.tree.map(lambda old, new: old + chance * new, total, found), None

    count, size = predictors.shape
    zeros = (jnp.zeros(count), jnp.zeros((count, size)), jnp.zeros((count, size, size)))
    return lax.scan(add, zeros, (places, chances))[0]


@compiled
def slopes_over_points(
    loss: Callable[..., Traced],
    predictors: Traced,
    response: Traced,
    weights: Traced,
    hyper: PyTree,
    roots: Traced,
    places: Traced,
    chances: Traced,
) -> tuple[Traced, Traced]:
    """The same without curvature."""
    at = jax.vmap(jax.value_and_grad(loss), (0, 0, 0, None))

    def add(total: PyTree, point: tuple[Traced, Traced]) -> tuple[PyTree, None]:
        place, chance = point
        found = at(predictors + roots @ place, response, weights, hyper)
        return jax.tree.map(lambda old, new: old + chance * new, total, found), None

    count, size = predictors.shape
    return lax.scan(add, (jnp.zeros(count), jnp.zeros((count, size))), (places, chances))[0]


@compiled
def _losses_at_points(
    loss: Callable[..., Traced],
    predictors: Traced,
    response: Traced,
    weights: Traced,
    hyper: PyTree,
) -> tuple[Traced]:
    at_points = jax.vmap(loss, (1, None, None, None))
    return (jax.vmap(at_points, (0, 0, 0, None))(predictors, response, weights, hyper),)


@compiled
def losses_and_first_at_points(
    loss: Callable[..., Traced],
    predictors: Traced,
    response: Traced,
    weights: Traced,
    hyper: PyTree,
) -> tuple[Traced, Traced]:
    """Losses of rows at points, (rows, points), and their slopes in the predictors, which are
    (rows, predictors, points).
    """
    at_points = jax.vmap(jax.value_and_grad(loss), (1, None, None, None), (0, 1))
    return jax.vmap(at_points, (0, 0, 0, None))(predictors, response, weights, hyper)
