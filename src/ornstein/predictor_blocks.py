"""Sums of outer products of features, one block of the matrix for every pair of predictors.

Σ_n J_n V_n J_nᵀ for symmetric weights V_n between predictors, and J_nᵀΣJ_n, with J_n the features of row n where each parameter
enters; for any model with linear predictors. (feature_pairs.py: the same, faster, where many predictors see the same features.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


def columns_of(matrix: Array, which: Array) -> Array:
    """Some columns; the first ones, in order, are looked at where they are, and a single one serves for all."""
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
        """How many a row becomes."""
        return int(self.feature_of.size)

    def products(self, features: Array) -> Array:
        """The features themselves: their products are taken block by block."""
        return features

    def summed(self, features: Array, weights: Array) -> Array:
        """Σ_n J_n V_n J_nᵀ for weights of shape (rows, predictors, predictors). Writes over `features`."""
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
        """J_nᵀΣJ_n, shape (rows, predictors, predictors): the covariance of each row's predictors."""
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
