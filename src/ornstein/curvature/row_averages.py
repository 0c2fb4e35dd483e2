"""The loss of every row and its derivatives in the predictors, averaged over a Gaussian that is
known by draws of it: no matrix over the parameters is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ornstein.compute.precision import double
from ornstein.curvature.closed_form import over_points
from ornstein.curvature.operator import Precision, PredictorRows
from ornstein.curvature.quadrature import trapezoids
from ornstein.errors import InputError
from ornstein.model.model import Model
from ornstein.types import Array

GROUP = 16  # draws taken through all rows at a time
CHUNK_NUMBERS = 2**21  # predictors of some rows at some points


@dataclass(frozen=True, eq=False)
class Spread:
    """How far the predictors of each row vary: one variance each, or draws of the parameters where
    a row has several predictors; None for none at all.
    """

    variances: Array | None = None  # (N,)
    deviations: Array | None = None  # (D, k)

    @classmethod
    def of(cls, rows: PredictorRows, deviations: Array) -> Spread:
        """That of draws about their mean, (D, k)."""
        if rows.shape[1] > 1:
            return cls(deviations=deviations)
        found = np.zeros(rows.shape[0])
        for group in _groups(deviations):
            found += np.sum(rows.predictors(group)[:, 0] ** 2, axis=1)
        return cls(variances=found / deviations.shape[1])


STILL = Spread()


@dataclass(frozen=True, eq=False)
class RowAverages:
    """Averages for a model with linear predictors and a normal prior with independent
    parameters.
    """

    model: Model
    rows: PredictorRows
    prior: Array  # Λ, (D,)

    @classmethod
    def of(cls, model: Model) -> RowAverages:
        """Those of a model; refused where it has no linear predictors or another prior."""
        linear = model.linear
        if linear is None:
            raise InputError(
                f"the model has {model.dim} parameters, and beyond 2000 only regressions are"
                " offered: use orn.bbvi(model)"
            )
        prior = np.asarray(model.prior_hessian(model.init))
        prior = prior if prior.ndim == 1 else np.diagonal(prior).copy()
        away = np.random.default_rng(0).standard_normal(model.dim)
        expected = model.n_data * model.scaled_prior(model.init)[1] + prior * away
        slope = model.n_data * model.scaled_prior(model.init + away)[1]
        if not np.allclose(slope, expected, rtol=1e-8, atol=1e-8) or np.any(prior < 0.0):
            raise InputError(
                "the prior is not normal with independent parameters, which is all that is offered"
                " without whole matrices: use orn.bbvi(model)"
            )
        return cls(model, PredictorRows.of(linear), prior)

    def over(self, mean: Array, spread: Spread) -> tuple[float, Array, Precision]:
        """U and its gradient averaged over the Gaussian, and the average Hessian as an operator.
        The prior's part of U leaves out what does not depend on the mean.
        """
        linear, (count, size) = self.rows.linear, self.rows.shape
        predictors = self.rows.predictors(mean[:, None])[:, :, 0]
        if linear.offset is not None:
            known = linear.offset.reshape(count, -1)
            predictors[:, : known.shape[1]] += known
        value, first, second = 0.0, np.zeros((count, size)), np.zeros((count, size, size))
        parts = list(self._parts(spread))
        for roots, places, chances in parts:
            chunk = max(1, CHUNK_NUMBERS // (size * (size + places.shape[1])))
            for start in range(0, count, chunk):
                part = slice(start, start + chunk)
                found = self._of_rows(part, predictors[part], roots[part], places, chances)
                value += float(found[0].sum()) / len(parts)
                first[part] += found[1] / len(parts)
                second[part] += found[2] / len(parts)
        prior_value, prior_slope = self.model.scaled_prior(mean)
        value += self.model.n_data * prior_value
        slope = self.rows.gathered(first[:, :, None])[:, 0] + self.model.n_data * prior_slope
        return value, slope, Precision(self.rows, second, self.prior)

    def _parts(self, spread: Spread) -> Iterator[tuple[Array, Array, Array]]:
        """Roots (N, m, j), places (M, j) and their chances: predictors + root·place are the
        points.
        """
        count, size = self.rows.shape
        if spread.variances is not None:
            rule = trapezoids(float(np.sqrt(spread.variances.max())))
            yield np.sqrt(spread.variances)[:, None, None], rule.places, rule.weights
        elif spread.deviations is None:
            yield np.zeros((count, size, 1)), np.zeros((1, 1)), np.ones(1)
        else:
            for group in _groups(spread.deviations):
                both = np.concatenate([np.eye(group.shape[1]), -np.eye(group.shape[1])])
                yield self.rows.predictors(group), both, np.full(len(both), 1.0 / len(both))

    def _of_rows(
        self, part: slice, predictors: Array, roots: Array, places: Array, chances: Array
    ) -> tuple[Array, Array, Array]:
        linear = self.rows.linear
        response = linear.response[part]
        response = response if response.dtype.kind in "iu" else np.asarray(response, dtype=float)
        weights = np.ones(len(response)) if linear.weights is None else linear.weights[part]
        with double():
            found = over_points(
                linear.example_loss,
                predictors,
                response,
                np.asarray(weights, dtype=float),
                linear.hyperparameters,
                roots,
                places,
                chances,
            )
        losses, first, second = (np.asarray(array) for array in found)
        return losses, first, second


def _groups(deviations: Array) -> Iterator[Array]:
    for start in range(0, deviations.shape[1], GROUP):
        yield deviations[:, start : start + GROUP]
