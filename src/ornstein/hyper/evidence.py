"""What a measured curvature says about the hyperparameters without a chain: the Laplace evidence,
and how much of θ is prior.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.compute.compiled import compiled
from ornstein.compute.precision import double
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.derivatives import derivatives_of
from ornstein.hyper.coordinates import Coordinates, Places, Scales, hyperparameters_at
from ornstein.model.loss import Loss, Problem
from ornstein.model.model import Model
from ornstein.types import Array, Traced


def laplace_evidence(model: Model, curvature: Curvature) -> float:
    """log p(y | λ) ≈ log p(y, θ̂ | λ) + (D/2) log 2π − ½ log|N A|: exact where the posterior is
    Gaussian.

    With a flat prior on some parameters it is the evidence up to a constant that does not depend on
    λ.
    """
    if curvature.diagonal:
        raise ValueError("the Laplace evidence needs the whole Hessian")
    derivatives = derivatives_of(model)
    loss = derivatives.value_and_gradient(curvature.mode)[0] + model.scaled_prior(curvature.mode)[0]
    _, log_determinant = np.linalg.slogdet(curvature.hessian)
    dimension = curvature.dim
    return float(
        -model.n_data * loss
        + 0.5 * dimension * np.log(2.0 * np.pi / model.n_data)
        - 0.5 * log_determinant
    )


def prior_pull(
    model: Model, curvature: Curvature, coordinates: Coordinates, phi: Array
) -> tuple[Array, Array]:
    """Per coordinate: the share of the prior's width that is left in the posterior, and the
    gradient of the evidence.

    Both to second order at the mode, for priors that factorise over parameters: with d_i = ∂φ Λ_ii,
    the share is Σ d_i Σ_ii / Σ d_i/Λ_ii (near 1 where the data say nothing about the parameters
    that φ governs; NaN where φ governs none) and the gradient ∂φ log p(θ̂|φ) − ½ Σ d_i Σ_ii.
    """
    covariance = curvature.posterior_covariance
    variance = covariance if covariance.ndim == 1 else np.diagonal(covariance)
    with double():
        places = jax.tree.map(jnp.asarray, coordinates.places)
        precision, change, slope = _prior_changes(
            (model.loss, coordinates.scales), places, jnp.asarray(phi), jnp.asarray(curvature.mode)
        )
    precision, change, slope = np.asarray(precision), np.asarray(change), np.asarray(slope)
    proper = precision > 0
    width = np.where(proper, 1.0 / np.where(proper, precision, 1.0), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = (variance @ change) / (width @ change)
    return share, slope - 0.5 * variance @ change


@compiled
def _prior_changes(
    static: tuple[Loss, Scales], places: Places, phi: Traced, mode: Traced
) -> tuple[Traced, Traced, Traced]:
    """Λ_ii, ∂φ_j Λ_ii (D, k) and ∂φ_j log p(θ̂|φ)."""
    loss, scales = static

    def log_prior(point: Traced, shift: Traced) -> Traced:
        problem = Problem(
            None, hyperparameters_at(scales, places, point), jnp.asarray(1.0), mode, mode
        )
        return loss.prior(problem, shift)

    def precision(point: Traced) -> Traced:
        zero = jnp.zeros_like(mode)
        return -jax.jvp(
            jax.grad(lambda shift: log_prior(point, shift)), (zero,), (jnp.ones_like(zero),)
        )[1]

    slope = jax.grad(lambda point: log_prior(point, jnp.zeros_like(mode)))(phi)
    return precision(phi), jax.jacfwd(precision)(phi), slope
