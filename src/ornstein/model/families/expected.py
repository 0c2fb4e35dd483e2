"""E[y | x, θ] of many draws of θ for some rows, in NumPy and float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from ornstein.model.families.likelihood import Likelihood
from ornstein.types import Array, PyTree


def linear_part(likelihood: Likelihood, params: PyTree, rows: Any) -> Array:
    """The linear predictors, (draws, rows) or (draws, rows, classes); the leaves of `params` have
    the draws as their first axis.

    `rows` is a float64 matrix, dense or sparse; a sparse one is never filled up.
    """
    coef = params["coef"]
    if coef.ndim == 2:
        if likelihood.parts:
            first = likelihood.parts[0][1]
            rows, coef = rows[:, :first], coef[:, :first]
        linear = np.asarray(rows @ np.ascontiguousarray(coef.T)).T
        return linear + params["intercept"][:, None] if "intercept" in params else linear
    draws, columns, classes = coef.shape
    side_by_side = np.ascontiguousarray(coef.transpose(1, 0, 2)).reshape(columns, draws * classes)
    linear = np.asarray(rows @ side_by_side).reshape(rows.shape[0], draws, classes).swapaxes(0, 1)
    linear = _with_reference(linear, likelihood.coef_reference)
    if "intercept" not in params:
        return linear
    return linear + _with_reference(params["intercept"], likelihood.intercept_reference)[:, None]


def shared_part(likelihood: Likelihood, params: PyTree, rows: Any) -> dict[str, Array]:
    """The auxiliary parameters: (draws,), or (draws, rows) where they have columns."""
    found = {auxiliary.name: params[auxiliary.name] for auxiliary in likelihood.auxiliaries}
    for name, first, after in likelihood.parts:
        coef = np.ascontiguousarray(params["coef"][:, first:after].T)
        found[name] = found[name][:, None] + np.asarray(rows[:, first:after] @ coef).T
    return found


def mean_of(likelihood: Likelihood, predictor: Array, shared: dict[str, Array]) -> Array:
    """E[y | u] of linear predictors u; `shared` are the auxiliary parameters of the same draws."""
    return likelihood.mean(
        predictor, {name: along(predictor, value) for name, value in shared.items()}
    )


def along(predictor: Array, value: Array) -> Array:
    """Numbers by draw, or by draw and row, with axes so that they broadcast against (draws, rows,
    …).
    """
    return value.reshape(*value.shape, *([1] * (predictor.ndim - value.ndim)))


def _with_reference(values: Array, missing: bool) -> Array:
    """A zero for the first class where it is the reference."""
    if not missing:
        return values
    return np.concatenate([np.zeros_like(values[..., :1]), values], axis=-1)
