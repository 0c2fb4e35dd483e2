"""Products of two features of a row, for models with several predictors that all see the same features, like a softmax.

Of rows n with features z_n, symmetric weights V_n between predictors k and l, and a covariance Σ of all parameters,

    Σ_n V_n[k, l] z_n z_nᵀ      and      z_nᵀ Σ[k, l] z_n = Σ_{i<j} z_ni z_nj (Σ[k, l]_ij + Σ[k, l]_ji) + Σ_i z_ni² Σ[k, l]_ii

are both one matrix product with all z_ni·z_nj, i ≤ j: half of the multiplications of one product per pair of predictors, in
matrices that are large enough for BLAS.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray
FEWEST_PREDICTORS, MOST_FEATURES = (
    4,
    128,
)  # with fewer predictors, making the products of features would take the longest


class FeaturePairs:
    """Which parameter multiplies which feature in which predictor, and memory for the products of features.

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
        # A feature that a predictor does not see has a parameter after the last one, which is left out in the end.
        self._parameters = np.full((predictors, int(feature_of.max()) + 1), self._size)
        self._parameters[predictor_of, feature_of] = np.arange(self._size)
        self._place = np.empty((self._left.size, 0))

    @property
    def numbers(self) -> int:
        """How many a row becomes."""
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
        """Σ_n V_n[k, l] z_ni z_nj for k ≤ l and i ≤ j; `weights` has the shape (rows, predictors, predictors)."""
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
