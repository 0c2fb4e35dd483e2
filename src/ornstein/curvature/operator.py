"""A precision as an operator: products and draws from the rows, for models with linear predictors
and more parameters than a matrix can be held for.

P = Σ_n J_n W_n J_nᵀ + diag(Λ), with J_n the features of row n where each parameter enters the
predictors and W_n the (averaged) second derivatives of its loss there. SciPy multiplies sparse
rows with many vectors at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from ornstein.errors import CurvatureError
from ornstein.model.linear import LinearPredictor
from ornstein.model.tables import is_sparse
from ornstein.types import Array

# Of a row's largest second derivative: a smaller negative one is rounding.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class PredictorRows:
    """All rows as products see them: parameters in, predictors out, and back.

    >>> from ornstein.model.regression import glm
    >>> X = scipy.sparse.csr_matrix(np.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> rows = PredictorRows.of(glm(X, np.array([0.0, 1.0]), noise_scale=1.0).linear)
    >>> rows.predictors(np.array([[1.0], [1.0], [0.5]])).ravel().tolist()
    [1.5, 5.5]
    """

    linear: LinearPredictor
    features: Any  # (N, F), CSR or array, float64

    @classmethod
    def of(cls, linear: LinearPredictor) -> PredictorRows:
        """The rows of a model with linear predictors, in float64."""
        features = linear.features
        if is_sparse(features):
            return cls(linear, scipy.sparse.csr_array(features).astype(float))
        return cls(linear, np.asarray(features, dtype=float))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and predictors of each."""
        return self.linear.n_rows, self.linear.predictors

    def predictors(self, vectors: Array) -> Array:
        """J_nᵀv of vectors (D, k) for all rows, without offset: (N, m, k)."""
        matrix = np.zeros((self.features.shape[1] + 1, self.linear.predictors, vectors.shape[1]))
        matrix[self.linear.feature_of, self.linear.predictor_of] = vectors
        found = self.features @ matrix[:-1].reshape(len(matrix) - 1, -1)
        return found.reshape(-1, *matrix.shape[1:]) + matrix[-1]

    def gathered(self, slopes: Array) -> Array:
        """Σ_n J_n s_n of slopes (N, m, k): (D, k)."""
        flat = slopes.reshape(len(slopes), -1)
        found = np.concatenate([self.features.T @ flat, flat.sum(axis=0)[None]])
        found = found.reshape(-1, *slopes.shape[1:])
        return np.asarray(found[self.linear.feature_of, self.linear.predictor_of])

    def column(self, parameters: Array) -> Any:
        """The features of some parameters, (N, count); ones for an intercept."""
        which, last = self.linear.feature_of[parameters], self.features.shape[1]
        chosen = self.features[:, np.minimum(which, last - 1)]
        if not np.any(which == last):
            return chosen
        chosen = chosen.toarray() if is_sparse(chosen) else chosen.copy()
        chosen[:, which == last] = 1.0
        return chosen


@dataclass(frozen=True, eq=False)
class Precision:
    """P as products with vectors."""

    rows: PredictorRows
    weights: Array  # W, (N, m, m)
    prior: Array  # Λ, (D,)

    def product(self, vectors: Array) -> Array:
        """P times vectors (D, k)."""
        seen = self.rows.predictors(vectors)
        if seen.shape[1] == 1:
            seen *= self.weights
        else:
            seen = self.weights @ seen
        return self.rows.gathered(seen) + self.prior[:, None] * vectors

    @cached_property
    def diagonal(self) -> Array:
        """P's diagonal."""
        features, linear = self.rows.features, self.rows.linear
        squares = features.power(2) if is_sparse(features) else features**2
        own = np.diagonal(self.weights, axis1=1, axis2=2)
        found = np.concatenate([squares.T @ own, own.sum(axis=0)[None]])
        return np.asarray(found[linear.feature_of, linear.predictor_of]) + self.prior

    def block(self, parameters: Array) -> Array:
        """The rows and columns of P that belong to some parameters."""
        found = np.zeros((parameters.size, parameters.size))
        predictor_of = self.rows.linear.predictor_of[parameters]
        members = [np.flatnonzero(predictor_of == k) for k in range(self.rows.shape[1])]
        for k, own in enumerate(members):
            left = self.rows.column(parameters[own]) if own.size else None
            for other in range(k, len(members)):
                if not own.size or not members[other].size:
                    continue
                right = self.rows.column(parameters[members[other]])
                part = _weighted_product(left, self.weights[:, k, other], right)
                found[np.ix_(own, members[other])] = part
                found[np.ix_(members[other], own)] = part.T
        found[np.diag_indices(parameters.size)] += self.prior[parameters]
        return found

    @cached_property
    def _root(self) -> Array:
        """V_n with V_nV_nᵀ = W_n, the symmetric one: it changes little where W_n does."""
        values, vectors = np.linalg.eigh(self.weights)
        if np.any(values.min(axis=1) < -ROUNDING * np.abs(values).max()):
            raise CurvatureError(
                "the second derivative of some row's loss is negative, so that draws cannot be"
                " made from the rows: use fewer columns, up to 2000 parameters, or orn.bbvi(model)"
            )
        return (vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]) @ vectors.swapaxes(1, 2)

    def noise(self, generator: np.random.Generator, count: int) -> Array:
        """Draws from N(0, P), (D, count); P⁻¹ of them are draws from N(0, P⁻¹)."""
        normals = generator.standard_normal((*self.rows.shape, count))
        of_rows = self._root @ normals if self.rows.shape[1] > 1 else self._root * normals
        of_prior = generator.standard_normal((self.prior.size, count))
        return self.rows.gathered(of_rows) + np.sqrt(self.prior)[:, None] * of_prior


def _weighted_product(left: Any, weights: Array, right: Any) -> Array:
    if is_sparse(right):
        scaled = scipy.sparse.diags_array(weights) @ right
        found = left.T @ scaled
        return found.toarray() if is_sparse(found) else np.asarray(found)
    scaled = weights[:, None] * right
    return np.asarray(left.T @ scaled)
