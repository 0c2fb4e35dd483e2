"""A precision as an operator: products and draws from the rows, for models with linear predictors
and more parameters than a matrix can be held for.

P = Σ_n J_n W_n J_nᵀ + diag(Λ), with J_n the features of row n where each parameter enters the
predictors and W_n the (averaged) second derivatives of its loss there. SciPy multiplies sparse
rows with many vectors at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from ornstein.checks import FULL_LIMIT
from ornstein.errors import CurvatureError
from ornstein.model.linear import LinearPredictor
from ornstein.model.tables import is_sparse
from ornstein.types import Array

# Of a row's largest second derivative: a smaller negative one is rounding.
ROUNDING = 1e-9
PART = 4096  # rows that are weighted at a time
# Sds that a column may lie from zero for float32 to resolve it: products then keep four digits.
FARTHEST = 300.0


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
    features: Any  # (N, F), CSR in float64, or an array in the precision that products take

    @classmethod
    def of(cls, linear: LinearPredictor) -> PredictorRows:
        """The rows of a model with linear predictors: in float64, but for dense rows of models
        with more than 2000 parameters, which are in float32 where that is enough.
        """
        features = linear.features
        if is_sparse(features):
            return cls(linear, scipy.sparse.csr_array(features).astype(float, copy=False))
        single = linear.feature_of.size > FULL_LIMIT and single_is_enough(features)
        return cls(linear, np.asarray(features, dtype=np.float32 if single else float))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and predictors of each."""
        return self.linear.n_rows, self.linear.predictors

    def part(self, rows: slice) -> PredictorRows:
        """The same for some of the rows."""
        linear = replace(self.linear, features=self.features).part(rows)
        return PredictorRows(linear, linear.features)

    def predictors(self, vectors: Array) -> Array:
        """J_nᵀv of vectors (D, k) for all rows, without offset: (N, m, k)."""
        matrix = np.zeros((self.features.shape[1] + 1, self.linear.predictors, vectors.shape[1]))
        matrix[self.linear.feature_of, self.linear.predictor_of] = vectors
        found = self.features @ self._as_rows(matrix[:-1].reshape(len(matrix) - 1, -1))
        return found.reshape(-1, *matrix.shape[1:]) + matrix[-1]

    def gathered(self, slopes: Array) -> Array:
        """Σ_n J_n s_n of slopes (N, m, k): (D, k)."""
        flat = slopes.reshape(len(slopes), -1)
        found = self.features.T @ self._as_rows(flat)
        found = np.concatenate([found, flat.sum(axis=0)[None]])
        found = found.reshape(-1, *slopes.shape[1:])
        return np.asarray(found[self.linear.feature_of, self.linear.predictor_of])

    def _as_rows(self, factor: Array) -> Array:
        """A factor in the precision of the rows."""
        return np.asarray(factor, dtype=self.features.dtype)

    def column(self, parameters: Array) -> Any:
        """The features of some parameters, (N, count); ones for an intercept."""
        which, last = self.linear.feature_of[parameters], self.features.shape[1]
        if not np.any(which == last):
            return self.features[:, which]
        if is_sparse(self.features):
            ones = scipy.sparse.csr_array(np.ones((self.features.shape[0], 1)))
            return scipy.sparse.hstack([self.features, ones], format="csr")[:, which]
        chosen = self.features[:, np.minimum(which, last - 1)]
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
        own = np.diagonal(self.weights, axis1=1, axis2=2)
        if is_sparse(features):
            found = features.power(2).T @ own
        else:
            found = sum(
                (features[part].astype(float) ** 2).T @ own[part] for part in _parts(len(own))
            )
        found = np.concatenate([found, own.sum(axis=0)[None]])
        return np.asarray(found[linear.feature_of, linear.predictor_of]) + self.prior

    @property
    def dense(self) -> bool:
        """Whether the rows are."""
        return not is_sparse(self.rows.features)

    def whole(self) -> Array:
        """P in the precision of the rows, which are dense: (D, D)."""
        linear, features, size = self.rows.linear, self.rows.features, self.prior.size
        found = np.zeros((size, size), dtype=features.dtype)
        members = [np.flatnonzero(linear.predictor_of == k) for k in range(self.rows.shape[1])]
        columns = features.shape[1] + 1
        for k, own in enumerate(members):
            for other in range(k, len(members)):
                product = np.zeros((columns, columns), dtype=features.dtype)
                for part in _parts(len(features)):
                    product += _square(features[part], self.weights[part, k, other])
                there = members[other]
                block = product[np.ix_(linear.feature_of[own], linear.feature_of[there])]
                found[np.ix_(own, there)] = block
                if other > k:
                    found[np.ix_(there, own)] = block.T
        found[np.diag_indices(size)] += self.prior.astype(found.dtype)
        return found

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


def _parts(count: int) -> Iterator[slice]:
    for start in range(0, count, PART):
        yield slice(start, min(start + PART, count))


def _square(rows: Array, weights: Array) -> Array:
    """Σ_n w_n z_n z_nᵀ with z = (x, 1): a matrix times its own transpose where no weight has the
    other's sign, which is half the work.
    """
    extended = np.empty((len(rows), rows.shape[1] + 1), dtype=rows.dtype)
    extended[:, :-1], extended[:, -1] = rows, 1.0
    if np.all(weights >= 0.0) or np.all(weights <= 0.0):
        extended *= np.sqrt(np.abs(weights)).astype(rows.dtype)[:, None]
        found = extended.T @ extended
        return found if np.any(weights > 0.0) else -found
    return extended.T @ (extended * weights.astype(rows.dtype)[:, None])


def single_is_enough(features: Any) -> bool:
    """Whether float32 resolves columns beside how far they lie from zero.

    >>> column = np.linspace(0.0, 1.0, 5)[:, None]
    >>> single_is_enough(column), single_is_enough(column + 1e6)
    (True, False)
    """
    count, total, squares = len(features), 0.0, 0.0
    for part in _parts(count):
        chunk = np.asarray(features[part], dtype=float)
        total, squares = total + chunk.sum(axis=0), squares + np.sum(chunk**2, axis=0)
    mean = total / count
    spread = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
    still = spread <= 1e-7 * np.abs(mean)
    return bool(np.all(still | (np.abs(mean) <= FARTHEST * spread)))


def _weighted_product(left: Any, weights: Array, right: Any) -> Array:
    if is_sparse(right):
        scaled = scipy.sparse.diags_array(weights) @ right
        found = left.T @ scaled
        return found.toarray() if is_sparse(found) else np.asarray(found)
    scaled = weights[:, None] * right
    return np.asarray(left.T @ scaled)
