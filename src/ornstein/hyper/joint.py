"""Derivatives of log p(y, θ | φ) in the hyperparameters φ, at draws of θ.

By Fisher's identity their mean over the posterior is the gradient of the log evidence, ∂φ log
p(y|φ) = E[∂φ log p(y,θ|φ)].
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.compute.compiled import compiled
from ornstein.compute.precision import double
from ornstein.curvature.autodiff import padded_chunks
from ornstein.hyper.coordinates import Coordinates, Places, Scales, hyperparameters_at
from ornstein.model.loss import Loss
from ornstein.model.model import Model
from ornstein.types import Array, PyTree, Traced

# Draws at which a hyperparameter of the likelihood is looked at cost a pass over the data each. The
# mean over all N rows hardly differs between draws (its variance is of order D, its curvature of
# order N), so few are enough where passes are expensive.
EXPENSIVE_PASS, FEW_DRAWS = 2 * 10**9, 8


class JointGradient:
    """Gradients in φ at draws, and the mean of −∂²φφ: the information that complete data would
    hold.
    """

    def __init__(self, model: Model, coordinates: Coordinates) -> None:
        self.model, self.coordinates = model, coordinates
        self.in_likelihood = [
            name for name in coordinates.scales.names if _likelihood_uses(model, name)
        ]
        places = coordinates.places.coordinate
        self.moves_likelihood = np.isin(
            np.arange(coordinates.start.size),
            [place for name in self.in_likelihood for place in places[name].reshape(-1)],
        )

    def at(self, phi: Array, draws: Array) -> tuple[Array, Array]:
        """∂φ at draws (chains, n, D), shape (chains, n', k) with n' ≤ n, and the mean of −∂²φφ, (k,
        k).
        """
        chains, count, dimension = draws.shape
        if self.in_likelihood:
            affordable = int(EXPENSIVE_PASS // max(1, self.model.n_data * dimension * chains))
            stride = -(-count // max(min(count, FEW_DRAWS), min(count, affordable)))
            draws = draws[:, stride - 1 :: stride]
        flat = draws.reshape(-1, dimension)
        scales, loss = self.coordinates.scales, self.model.loss
        with double():
            places, here = jax.tree.map(jnp.asarray, self.coordinates.places), jnp.asarray(phi)
            slopes, curvature = _prior_part((loss, scales), places, here, jnp.asarray(flat))
            if self.in_likelihood:
                rows = max(1, 2**22 // len(flat))
                for chunk, mask in padded_chunks(self.model, rows):
                    more = _likelihood_part(
                        (loss, scales), places, here, jnp.asarray(flat), chunk, mask
                    )
                    slopes, curvature = slopes + more[0], curvature + more[1]
        return np.asarray(slopes).reshape(chains, -1, phi.size), -np.asarray(curvature)


def _likelihood_uses(model: Model, name: str) -> bool:
    """Whether log_likelihood depends on a hyperparameter: it cannot where it runs without it and
    has no slope in it.
    """
    others = {key: value for key, value in model.hyperparameters.items() if key != name}
    with double():
        params = model.layout.unflatten(jnp.asarray(model.init))
        rows = jax.tree.map(jnp.asarray, model.rows(0, min(model.n_data, 16)))
        try:
            jax.eval_shape(
                model.loss.log_likelihood, params, jax.tree.map(lambda leaf: leaf[0], rows), others
            )
        except Exception:
            return True

        def summed(value: Traced) -> Traced:
            hyper = {**others, name: value}
            return jnp.sum(
                jax.vmap(model.loss.log_likelihood, (None, 0, None))(params, rows, hyper)
            )

        return bool(
            np.any(np.asarray(jax.grad(summed)(jnp.asarray(model.hyperparameters[name]))) != 0.0)
        )


@compiled
def _prior_part(
    static: tuple[Loss, Scales], places: Places, phi: Traced, draws: Traced
) -> tuple[Traced, Traced]:
    loss, scales = static

    def log_prior(point: Traced, theta: Traced) -> Traced:
        return loss.log_prior(
            loss.layout.unflatten(theta), hyperparameters_at(scales, places, point)
        )

    slopes = jax.vmap(jax.grad(log_prior), (None, 0))(phi, draws)
    curvature = jax.hessian(lambda point: jnp.mean(jax.vmap(log_prior, (None, 0))(point, draws)))(
        phi
    )
    return slopes, curvature


@compiled
def _likelihood_part(
    static: tuple[Loss, Scales],
    places: Places,
    phi: Traced,
    draws: Traced,
    rows: PyTree,
    mask: Traced,
) -> tuple[Traced, Traced]:
    """The same for Σ_n log p(x_n | θ, φ) over one chunk of rows."""
    loss, scales = static

    def summed(point: Traced, theta: Traced) -> Traced:
        hyper = hyperparameters_at(scales, places, point)
        values = jax.vmap(loss.log_likelihood, (None, 0, None))(
            loss.layout.unflatten(theta), rows, hyper
        )
        return jnp.sum(jnp.where(mask > 0, values, 0.0))

    slopes = jax.vmap(jax.grad(summed), (None, 0))(phi, draws)
    curvature = jax.hessian(lambda point: jnp.mean(jax.vmap(summed, (None, 0))(point, draws)))(phi)
    return slopes, curvature
