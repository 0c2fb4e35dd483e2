"""Sums of outer products of features, one block of the matrix for every pair of predictors.

Σ_n J_n V_n J_nᵀ for symmetric weights V_n between predictors, and J_nᵀΣJ_n, with J_n the features
of row n where each parameter enters; for any model with linear predictors. (feature_pairs.py: the
same, faster, where many predictors see the same features.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ornstein.types import Array


def columns_of(matrix: Array, which: Array) -> Array:
    """Some columns; the first ones, in order, are looked at where they are, and a single one serves
    for all.
    """
    if np.array_equal(which, np.arange(which.size)):
        return matrix[:, : which.size]
    return matrix if matrix.shape[1] == 1 else np.take(matrix, which, axis=1)


@dataclass(frozen=True, eq=False)
class PredictorBlocks:
    """Which feature every parameter multiplies, in which of the predictors.

    >>> blocks = PredictorBlocks(np.array([0, 1]), np.array([0, 0]), predictors=1)
    >>> blocks.summed(blocks.products(np.array([[2.0, 3.0]])), np.array([[[10.0]]])).round(
    ...     12
    ... ).tolist()
    [[40.0, 60.0], [60.0, 90.0]]
    """

    feature_of: Array
    predictor_of: Array
    predictors: int

    @property
    def numbers(self) -> int:
        """Numbers produced per row."""
        return int(self.feature_of.size)

    def products(self, features: Array) -> Array:
        """The features themselves: their products are taken block by block."""
        return features

    def summed(self, features: Array, weights: Array) -> Array:
        """Σ_n J_n V_n J_nᵀ for weights of shape (rows, predictors, predictors). Writes over
        `features`.
        """
        if self.predictors == 1 and weights.min() >= 0.0:
            scaled = columns_of(features, self.feature_of)
            scaled *= np.sqrt(weights[:, 0])
            return scaled.T @ scaled  # a matrix with its own transpose: BLAS does half of the work
        members = self._members()
        columns = [columns_of(features, self.feature_of[member]) for member in members]
        bounds = np.cumsum([0, *(member.size for member in members)])
        sorted_total = np.empty((bounds[-1], bounds[-1]))
        weighted = np.empty((features.shape[0], bounds[-1]))
        for k in range(self.predictors):
            for other in range(k, self.predictors):
                into = weighted[:, bounds[other] : bounds[other + 1]]
                np.multiply(weights[:, k, other, None], columns[other], out=into)
            block = columns[k].T @ weighted[:, bounds[k] :]
            sorted_total[bounds[k] : bounds[k + 1], bounds[k] :] = block
            sorted_total[bounds[k + 1] :, bounds[k] : bounds[k + 1]] = block[:, members[k].size :].T
        order = np.concatenate(members)
        total = np.empty_like(sorted_total)
        total[np.ix_(order, order)] = sorted_total
        return total

    def whole(self, sums: Array) -> Array:
        return sums

    def coefficients(self, covariance: Array) -> Array:
        return covariance

    def spread(self, features: Array, covariance: Array) -> Array:
        """J_nᵀΣJ_n, shape (rows, predictors, predictors): the covariance of each row's
        predictors.
        """
        spread = np.empty((features.shape[0], self.predictors, self.predictors))
        members = self._members()
        for k in range(self.predictors):
            left = columns_of(features, self.feature_of[members[k]])
            for other in range(k, self.predictors):
                right = columns_of(features, self.feature_of[members[other]])
                value = np.einsum(
                    "ni,ni->n", left @ covariance[np.ix_(members[k], members[other])], right
                )
                spread[:, k, other] = spread[:, other, k] = value
        return spread

    def _members(self) -> list[Array]:
        """The parameters of every predictor."""
        return [np.flatnonzero(self.predictor_of == k) for k in range(self.predictors)]


# with fewer predictors, making the products of features would take the longest
FEWEST_PREDICTORS, MOST_FEATURES = 4, 128


class FeaturePairs:
    """Which parameter multiplies which feature in which predictor, and memory for the products of
    features.

    >>> pairs = FeaturePairs(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]), predictors=2)
    >>> products = pairs.products(np.array([[2.0, 3.0]]))
    >>> products.ravel().tolist()
    [4.0, 6.0, 9.0]
    >>> pairs.whole(pairs.summed(products, np.array([[[1.0, 0.0], [0.0, 10.0]]]))).tolist()
    [[4.0, 6.0, 0.0, 0.0], [6.0, 9.0, 0.0, 0.0], [0.0, 0.0, 40.0, 60.0], [0.0, 0.0, 60.0, 90.0]]
    """

    def __init__(self, feature_of: Array, predictor_of: Array, predictors: int) -> None:
        self._size = feature_of.size
        self._one, self._other = np.triu_indices(predictors)
        self._left, self._right = np.triu_indices(int(feature_of.max()) + 1)
        # A feature that a predictor does not see has a parameter after the last one, which is left
        # out in the end.
        self._parameters = np.full((predictors, int(feature_of.max()) + 1), self._size)
        self._parameters[predictor_of, feature_of] = np.arange(self._size)
        self._place = np.empty((self._left.size, 0))

    @property
    def numbers(self) -> int:
        """Numbers produced per row."""
        return int(self._left.size)

    def products(self, features: Array) -> Array:
        """z_i·z_j for i ≤ j, shape (pairs, rows); gone when the next are asked for."""
        rows, count = features.shape[0], self._parameters.shape[1]
        if self._place.shape[1] < rows:
            self._place = np.empty((self._left.size, rows))
        found, columns, start = (
            self._place[:, :rows],
            np.ascontiguousarray(features[:, :count].T),
            0,
        )
        for number in range(count):
            end = start + count - number
            np.multiply(columns[number], columns[number:], out=found[start:end])
            start = end
        return found

    def summed(self, products: Array, weights: Array) -> Array:
        """Σ_n V_n[k, l] z_ni z_nj for k ≤ l and i ≤ j; `weights` has the shape (rows, predictors,
        predictors).
        """
        return np.ascontiguousarray(weights[:, self._one, self._other].T) @ products.T

    def whole(self, sums: Array) -> Array:
        """What `summed` gives, as a symmetric matrix over all parameters."""
        matrix = np.empty((self._size + 1, self._size + 1))
        for k, other, values in zip(self._one, self._other, sums, strict=True):
            for left, right in ((self._left, self._right), (self._right, self._left)):
                rows, columns = self._parameters[k, left], self._parameters[other, right]
                matrix[rows, columns] = matrix[columns, rows] = values
        return matrix[: self._size, : self._size].copy()

    def coefficients(self, covariance: Array) -> Array:
        """Of the quadratic forms z ↦ zᵀ Σ[k, l] z, k ≤ l, in the products of features."""
        one, other = self._parameters[self._one], self._parameters[self._other]
        covariance = np.pad(covariance, (0, 1))
        found = (
            covariance[one[:, self._left], other[:, self._right]]
            + covariance[one[:, self._right], other[:, self._left]]
        )
        return np.where(self._left == self._right, found / 2.0, found)

    def spread(self, products: Array, coefficients: Array) -> Array:
        """z_nᵀ Σ[k, l] z_n, shape (rows, predictors, predictors)."""
        forms = (coefficients @ products).T
        predictors = self._parameters.shape[0]
        spread = np.empty((forms.shape[0], predictors, predictors))
        spread[:, self._one, self._other] = spread[:, self._other, self._one] = forms
        return spread
