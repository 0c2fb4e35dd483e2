"""Normal priors on the coefficients of a regression."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ornstein.types import PyTree, Traced


def gaussian_prior(params: PyTree, hyperparameters: PyTree) -> Traced:
    """Independent normals on the coefficients and intercepts; precision 0 is flat. log σ is
    flat.
    """
    total = _normal_log_density(params["coef"], hyperparameters["prior_precision"])
    if "intercept" in params:
        total += _normal_log_density(params["intercept"], hyperparameters["intercept_precision"])
    return total


def _normal_log_density(values: Traced, precision: Traced) -> Traced:
    precision = jnp.broadcast_to(precision, values.shape)
    proper = precision > 0
    constant = jnp.where(
        proper, 0.5 * jnp.log(jnp.where(proper, precision, 1.0) / (2.0 * np.pi)), 0.0
    )
    return jnp.sum(constant - 0.5 * precision * values**2)
