"""The loss of every row and its derivatives in the predictors, averaged over a Gaussian that is
known by draws of it: no matrix over the parameters is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ornstein.compute.precision import double
from ornstein.curvature.closed_form import over_points, slopes_over_points
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
                f"the model has {model.dim} parameters, and only regressions are"
                " supported beyond 2000: use orn.bbvi(model)"
            )
        if not has_normal_prior(model):
            raise InputError(
                "the prior is not normal with independent parameters, which is all that is"
                " supported without whole matrices: use orn.bbvi(model)"
            )
        return cls(model, PredictorRows.of(linear), _precisions(model))

    def over(
        self, mean: Array, spread: Spread, curved: bool = True
    ) -> tuple[float, Array, Precision]:
        """U and its gradient averaged over the Gaussian, and the average Hessian as an operator
        (zero where it is not `curved`). The prior's part of U leaves out what does not depend on
        the mean.
        """
        linear, (count, size) = self.rows.linear, self.rows.shape
        predictors = self.rows.predictors(mean[:, None])[:, :, 0]
        if linear.offset is not None:
            known = linear.offset.reshape(count, -1)
            predictors[:, : known.shape[1]] += known
        value, first = 0.0, np.zeros((count, size))
        second = np.zeros((count, size, size)) if curved else np.zeros((0, size, size))
        parts = 1 if spread.deviations is None else -(-spread.deviations.shape[1] // GROUP)
        for roots, places, chances in self._parts(spread):
            chunk = max(1, CHUNK_NUMBERS // (size * (size + places.shape[1])))
            for start in range(0, count, chunk):
                part = slice(start, start + chunk)
                found = self._of_rows(part, predictors[part], roots[part], places, chances, curved)
                value += float(found[0].sum()) / parts
                first[part] += found[1] / parts
                if curved:
                    second[part] += found[2] / parts
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
        self,
        part: slice,
        predictors: Array,
        roots: Array,
        places: Array,
        chances: Array,
        curved: bool,
    ) -> tuple[Array, ...]:
        linear = self.rows.linear
        response = linear.response[part]
        response = response if response.dtype.kind in "iu" else np.asarray(response, dtype=float)
        weights = np.ones(len(response)) if linear.weights is None else linear.weights[part]
        with double():
            evaluate = over_points if curved else slopes_over_points
            found = evaluate(
                linear.example_loss,
                predictors,
                response,
                np.asarray(weights, dtype=float),
                linear.hyperparameters,
                roots,
                places,
                chances,
            )
        return tuple(np.asarray(array) for array in found)


def _precisions(model: Model) -> Array:
    prior = np.asarray(model.prior_hessian(model.init))
    return prior if prior.ndim == 1 else np.diagonal(prior).copy()


def has_normal_prior(model: Model) -> bool:
    """Whether the prior is normal with independent parameters: its slope is then that of a
    quadratic function with nothing off the diagonal.
    """
    prior = _precisions(model)
    away = np.random.default_rng(0).standard_normal(model.dim)
    expected = model.n_data * model.scaled_prior(model.init)[1] + prior * away
    slope = model.n_data * model.scaled_prior(model.init + away)[1]
    return bool(np.allclose(slope, expected, rtol=1e-8, atol=1e-8) and np.all(prior >= 0.0))


def _groups(deviations: Array) -> Iterator[Array]:
    for start in range(0, deviations.shape[1], GROUP):
        yield deviations[:, start : start + GROUP]
