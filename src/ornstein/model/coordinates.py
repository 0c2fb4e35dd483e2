"""Coordinates in which the columns of a regression are easy to compute with.

Far from zero (a timestamp), or nearly collinear, columns leave the parameters so correlated that
rounding decides. Then a run works with the columns (x − shift) · mix, whose second moments are near
the identity, and with parameters φ of these. θ = T φ undoes that exactly: the predictors, and with
them the posterior, are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from ornstein.checks import FULL_LIMIT
from ornstein.model.linear import LinearPredictor
from ornstein.model.parameters import Layout
from ornstein.model.tables import is_sparse
from ornstein.types import Array, PyTree, Traced

if TYPE_CHECKING:
    from ornstein.model.model import Model

# The part of a column's second moment that the constant and the columns before it leave over. In
# float32 a full preconditioner is off by its rounding, 6e-8, over this part: 1e-5 is below 1 %.
LEAST_PART = 1e-5
SCREENED = 4096  # rows, and as many for each column, that tell whether all rows are worth a look
ROWS_PER_COLUMN = 4
ROUNDS = 3  # of mixing: each makes the condition number about 1e12 times smaller
FLOOR = 1e-13  # what rounding leaves of a part
ROUNDING = 1e-14  # what rounding leaves of a column that others explain, of its size
MATRIX = "to_original"  # the hyperparameter that holds T


@dataclass(frozen=True, eq=False)
class Coordinates:
    """θ = T φ: from the parameters of a run to those of the model, and back.

    >>> Coordinates(np.diag([2.0, 1.0]), np.diag([0.5, 1.0])).original(np.ones(2))
    array([2., 1.])
    """

    to_original: Array
    to_working: Array

    def original(self, points: Array) -> Array:
        """Points φ (..., D) as θ."""
        return points @ self.to_original.T

    def working(self, points: Array) -> Array:
        """Points θ (..., D) as φ."""
        return points @ self.to_working.T

    def original_covariance(self, covariance: Array) -> Array:
        """A covariance of φ as one of θ."""
        return _congruent(self.to_original, covariance)

    def original_precision(self, precision: Array) -> Array:
        """A Hessian in φ, or a covariance of gradients, as one in θ."""
        return _congruent(self.to_working.T, precision)

    def working_covariance(self, covariance: Array) -> Array:
        return _congruent(self.to_working, covariance)

    def working_precision(self, precision: Array) -> Array:
        return _congruent(self.to_original.T, precision)


def _congruent(factor: Array, matrix: Array) -> Array:
    whole = np.diag(matrix) if matrix.ndim == 1 else matrix
    product = factor @ whole @ factor.T
    return (product + product.T) / 2.0


@dataclass(frozen=True)
class Worked:
    """The model that a run works on, and how its parameters become those of the user's model."""

    model: Model
    coordinates: Coordinates


@dataclass(frozen=True)
class MappedPrior:
    """The prior of θ as a function of φ; T is among the hyperparameters."""

    log_prior: Callable[[PyTree, PyTree], Traced]
    layout: Layout

    def __call__(self, params: PyTree, hyperparameters: PyTree) -> Traced:
        flat = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(params)])
        rest = {name: value for name, value in hyperparameters.items() if name != MATRIX}
        original = self.layout.unflatten(hyperparameters[MATRIX] @ flat)
        return self.log_prior(original, rest)


@dataclass(frozen=True)
class Columns:
    """x ↦ (x − shift) · mix, `mix` upper triangular."""

    shift: Array
    mix: Array

    def of(self, rows: Array) -> Array:
        centred = rows - self.shift
        diagonal = np.diagonal(self.mix)
        if np.count_nonzero(self.mix) == np.count_nonzero(diagonal):
            return np.asarray(centred * diagonal)
        return np.asarray(centred @ self.mix)

    def coordinates(self, linear: LinearPredictor, outputs: int) -> Coordinates:
        """The same for the parameters: M = S M' for the matrices of coefficients, where x' = xS."""
        inverse = scipy.linalg.solve_triangular(self.mix, np.eye(len(self.mix)))
        return Coordinates(
            _of_parameters(linear, outputs, self.mix, -self.shift @ self.mix),
            _of_parameters(linear, outputs, inverse, self.shift),
        )


def _of_parameters(linear: LinearPredictor, outputs: int, mix: Array, constant: Array) -> Array:
    """The (D, D) matrix that takes the coefficients c of every predictor to mix · c, and adds
    `constant` · c to its intercept.

    A predictor without one, among others that have it, is the class of reference: what it would
    get the others lose.
    """
    size, columns = linear.feature_of.size, len(mix)
    intercepts = np.flatnonzero(linear.feature_of == columns)
    intercept_of = dict(zip(linear.predictor_of[intercepts], intercepts, strict=True))
    found = np.eye(size)
    for predictor in range(outputs):
        own = np.flatnonzero((linear.predictor_of == predictor) & (linear.feature_of < columns))
        features = linear.feature_of[own]
        found[np.ix_(own, own)] = mix[np.ix_(features, features)]
        if predictor in intercept_of:
            found[intercept_of[predictor], own] += constant[features]
        else:
            others = [place for other, place in intercept_of.items() if other < outputs]
            found[np.ix_(others, own)] -= constant[features]
    return found


def worked(model: Model, linear: LinearPredictor, outputs: int, scale: float) -> Worked | None:
    """The regression in other columns; None where its own are fine.

    `outputs` is the number of predictors that see the columns, and `scale` about what a row adds to
    the curvature.
    """
    if model.dim > FULL_LIMIT or is_sparse(linear.features):
        return None
    if isinstance(linear.features, np.memmap) or MATRIX in model.hyperparameters:
        return None
    if _least_part(linear, _second_moments(linear, _some_rows(linear))) >= LEAST_PART:
        return None
    moments = _second_moments(linear, None)
    priors = [prior / (model.n_data * scale) for prior in _priors(model, linear, outputs)]
    parts = [_least_part(linear, moments + prior) for prior in priors]
    if min(parts) >= LEAST_PART:
        return None
    shift = moments[-1, :-1] * _has_intercept(linear)
    sizes = np.sqrt(np.diagonal(moments)[:-1])
    columns = _standardised(linear, shift, sizes, priors[int(np.argmin(parts))])
    coordinates = columns.coordinates(linear, outputs)
    features = np.concatenate(
        [columns.of(block.extended[:, :-1]) for _, block in linear.filled_up_rows(0, "C")]
    )
    changed = model.replace(
        data={**model.data, "x": features},
        features=features,
        _linear=replace(linear, features=features),
        hyperparameters={**model.hyperparameters, MATRIX: coordinates.to_original},
        loss=replace(model.loss, log_prior=MappedPrior(model.loss.log_prior, model.layout)),
        init=coordinates.working(model.init),
    )
    return Worked(changed, coordinates)


def _has_intercept(linear: LinearPredictor) -> bool:
    """Whether some predictor that sees columns has an intercept too."""
    columns = linear.features.shape[1]
    seeing = linear.predictor_of[linear.feature_of < columns]
    return bool(np.isin(linear.predictor_of[linear.feature_of == columns], seeing).any())


def _priors(model: Model, linear: LinearPredictor, outputs: int) -> list[Array]:
    """The prior's precision for the coefficients of (x, 1), predictor by predictor; zeros where it
    has none at init.
    """
    whole = model.prior_hessian(model.init)
    whole = np.diag(whole) if whole.ndim == 1 else whole
    size, found = linear.features.shape[1] + 1, []
    for predictor in range(outputs):
        own = np.flatnonzero(linear.predictor_of == predictor)
        part, prior = whole[np.ix_(own, own)], np.zeros((size, size))
        if np.all(np.isfinite(part)) and np.all(np.diagonal(part) >= 0.0):
            features = linear.feature_of[own]
            prior[np.ix_(features, features)] = part
        found.append(prior)
    return found


def _some_rows(linear: LinearPredictor) -> Array | None:
    """Rows spread evenly, or None for all."""
    count = max(SCREENED, ROWS_PER_COLUMN * linear.features.shape[1])
    if linear.n_rows <= 2 * count:
        return None
    return np.linspace(0, linear.n_rows - 1, count).astype(int)


def _second_moments(linear: LinearPredictor, rows: Array | None) -> Array:
    """E[zzᵀ] of z = (x, 1)."""
    part = linear if rows is None else linear.part(rows)
    size = linear.features.shape[1] + 1
    total = np.zeros((size, size))
    for _, block in part.filled_up_rows(0, "C"):
        total += block.extended.T @ block.extended
    return total / part.n_rows


def _least_part(linear: LinearPredictor, moments: Array) -> float:
    """The least part of a column's second moment that the constant, where there is one, and the
    columns before do not explain.
    """
    order = np.r_[len(moments) - 1, : len(moments) - 1]
    order = order if _has_intercept(linear) else order[1:]
    return _least(_factor(_scaled(moments[np.ix_(order, order)])[0]))


def _least(factor: Array) -> float:
    return float(np.min(np.diagonal(factor) ** 2))


def _scaled(matrix: Array) -> tuple[Array, Array]:
    """A matrix with a diagonal of ones, and the roots of the diagonal; zeros stay alone."""
    diagonal = np.diagonal(matrix)
    empty = ~(diagonal > 0)
    root = np.sqrt(np.where(empty, 1.0, diagonal))
    return matrix / root / root[:, None] + np.diag(empty.astype(float)), root


def _factor(scaled: Array) -> Array:
    """The upper Cholesky factor of a matrix of unit diagonal, which rounding may have left
    indefinite.
    """
    floor = 0.0
    while True:
        try:
            return np.asarray(scipy.linalg.cholesky(scaled + floor * np.eye(len(scaled))))
        except np.linalg.LinAlgError:
            floor = max(10.0 * floor, len(scaled) * FLOOR)


def _standardised(linear: LinearPredictor, shift: Array, sizes: Array, prior: Array) -> Columns:
    """Centred at their means, scaled to one and, where that leaves them nearly collinear, each
    less what the columns before explain.

    `sizes` are their root mean squares. A column of which only rounding would be left is not
    explained away: the curvature tells that nothing says where its parameter is.
    """
    scaled: Columns | None = None
    columns = Columns(shift, np.eye(len(shift)))
    for _ in range(ROUNDS):
        change = np.vstack([columns.mix, -shift @ columns.mix])
        moments = change.T @ prior @ change
        for _, block in linear.filled_up_rows(0, "C"):
            changed = columns.of(block.extended[:, :-1])
            moments += changed.T @ changed / linear.n_rows
        rounding = ROUNDING * sizes @ np.abs(columns.mix)
        matrix, root = _scaled(moments)
        if np.any(np.diagonal(moments) <= rounding**2):
            if scaled is not None:
                return scaled
            root = np.where(np.diagonal(moments) <= rounding**2, sizes, root)
        factor = _factor(matrix)
        if scaled is None:
            scaled = Columns(shift, np.diag(1.0 / np.where(root > 0, root, 1.0)))
            if _least(factor) >= LEAST_PART:
                return scaled
        mixing = scipy.linalg.solve_triangular(factor, np.eye(len(root)))
        columns = Columns(shift, columns.mix @ (mixing / root[:, None]))
        if _least(factor) >= LEAST_PART:
            break
    return columns
