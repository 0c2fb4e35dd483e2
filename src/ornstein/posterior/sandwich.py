"""The sandwich: widths that hold where the likelihood is not the law of the data."""

from __future__ import annotations

import numpy as np

from ornstein.curvature.derivatives import derivatives_of
from ornstein.errors import InputError
from ornstein.model.model import Model
from ornstein.model.regression import GLM
from ornstein.types import Array


def sandwich(model: Model | None, theta: Array, covariance: Array) -> Array:
    """V G V, with V the posterior's covariance and G that of the summed gradient at θ.

    G comes from the rows: Σ g gᵀ about their mean. A family that knows the variance w of its slope
    in the predictor gives G = w Σ z zᵀ for the coefficients instead, with z = (x, 1): for quantile
    regression w = τ(1 − τ)/σ² (Yang, Wang and He 2016).
    """
    if model is None:
        raise InputError("the sandwich needs the rows, which a file does not hold: give model=")
    if covariance.ndim == 1:
        raise InputError("the sandwich needs the whole covariance; this posterior has its diagonal")
    first, second = derivatives_of(model).gradient_moments(theta)
    summed = model.n_data * (second - np.outer(first, first))
    if isinstance(model, GLM):
        law = model.likelihood.law
        params = model.layout.unflatten(theta)
        names = [auxiliary.name for auxiliary in law.auxiliaries]
        variance = law.slope_variance({name: params[name] for name in names})
        if variance is not None:
            linear = model.linear
            own = np.flatnonzero(linear.predictor_of == 0)
            places = linear.feature_of[own]
            total = _second_moments(model)[np.ix_(places, places)]
            summed[np.ix_(own, own)] = variance * total
    found = covariance @ summed @ covariance
    return np.asarray((found + found.T) / 2.0)


def _second_moments(model: GLM) -> Array:
    """Σ w z zᵀ over the rows, weights squared."""
    linear = model.linear
    size = linear.features.shape[1] + 1
    total = np.zeros((size, size))
    for part, rows in linear.filled_up_rows(0, "C"):
        block = rows.extended
        if linear.weights is not None:
            block = block * linear.weights[part, None]
        total += block.T @ block
    return total
