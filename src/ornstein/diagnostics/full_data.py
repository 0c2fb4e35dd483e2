"""The posterior itself at a few points: N·L and its gradient by passes over all data, in float64."""

from __future__ import annotations

import numpy as np

from ornstein.derivatives import Autodiff
from ornstein.model import Model

Array = np.ndarray


def negative_log_posterior(model: Model, points: Array) -> tuple[Array, Array]:
    """N·L(θ), up to a constant −log of the posterior, and its gradient, at points (M, D): shapes (M,) and (M, D).

    >>> import jax.numpy as jnp
    >>> model = Model(lambda theta, x: -0.5 * (x - theta) ** 2, jnp.arange(3.0), init=jnp.zeros(()))
    >>> negative_log_posterior(model, np.array([[1.0], [2.0]]))[0]
    array([1. , 2.5])
    """
    derivatives = model.closed_form() or Autodiff(model)
    values, gradients = np.empty(len(points)), np.empty(points.shape)
    for place, point in enumerate(points):
        values[place], gradients[place] = derivatives.value_and_gradient(point)
    prior_values, prior_gradients = _prior(model, points)
    return model.n_data * (values + prior_values), model.n_data * (gradients + prior_gradients)


def negative_log_posterior_values(model: Model, points: Array) -> Array:
    """N·L(θ) alone, which is half the work."""
    derivatives = model.closed_form() or Autodiff(model)
    return model.n_data * (
        np.array([derivatives.value(point) for point in points]) + _prior(model, points)[0]
    )


def _prior(model: Model, points: Array) -> tuple[Array, Array]:
    """−log p(θ)/N and its gradient at all points; a quadratic one from its derivatives at one of them."""
    slopes = np.empty(points.shape)
    first, last = points[0], points[-1]
    value, slope = model.scaled_prior(first)
    hessian = model.scaled_prior_hessian(first)
    moved = points - first
    pulled = moved * hessian if hessian.ndim == 1 else moved @ hessian
    slopes, values = slope + pulled, value + moved @ slope + 0.5 * np.sum(moved * pulled, axis=1)
    exact_value, exact_slope = model.scaled_prior(last)
    scale = np.abs(exact_slope) + np.abs(slope) + np.finfo(float).tiny
    if abs(values[-1] - exact_value) <= 1e-9 * (abs(value) + abs(exact_value)) and np.all(
        np.abs(slopes[-1] - exact_slope) <= 1e-9 * scale
    ):
        return values, slopes
    for place, point in enumerate(points):
        values[place], slopes[place] = model.scaled_prior(point)
    return values, slopes
