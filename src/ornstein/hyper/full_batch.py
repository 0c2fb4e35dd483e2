"""All rows at once in float32: modes, Hessian products and held-out losses where a float64 pass per
step would take minutes.

A loss in float32 is good to about seven digits of its mean, so a mode found with it is off by about
1e-3 of the width at which the loss rises by 1e-6 N: enough for a validation curve and for the
centre of a chain, not for `measure`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax import lax

from ornstein.compute.compiled import compiled
from ornstein.compute.precision import width
from ornstein.errors import CurvatureError
from ornstein.model.loss import Loss, Problem
from ornstein.model.model import Model
from ornstein.types import Array, PyTree, Traced

DTYPE = "float32"


@dataclass(frozen=True, eq=False)
class FullBatch:
    """A model's data on the device; hyperparameters are handed in with every question, so that λ
    may move.
    """

    model: Model

    @cached_property
    def _problem(self) -> Problem:
        with width(DTYPE):
            return self.model.problem(DTYPE)

    @property
    def _chunk(self) -> int:
        return int(min(self.model.n_data, max(256, 2**24 // self.model.dim)))

    def at(self, model: Model) -> Problem:
        """The device's numbers with the hyperparameters of `model`, which shares this model's
        data.
        """
        with width(DTYPE):
            hyper = {
                name: jnp.asarray(value, DTYPE) for name, value in model.hyperparameters.items()
            }
        return self._problem._replace(hyperparameters=hyper)

    def value_and_gradient(self, model: Model, theta: Array) -> tuple[float, Array]:
        """The mean loss, prior included."""
        with width(DTYPE):
            value, slope = _value_and_gradient(
                (model.loss, self._chunk), self.at(model), jnp.asarray(theta, DTYPE)
            )
        prior, prior_slope = model.scaled_prior(theta)
        return float(value) / model.n_data + prior, np.asarray(
            slope, dtype=float
        ) / model.n_data + prior_slope

    def hessian_product(self, model: Model, theta: Array, vector: Array) -> Array:
        """The data part of the Hessian of the mean loss, times a vector."""
        with width(DTYPE):
            point, moved = jnp.asarray(theta, DTYPE), jnp.asarray(vector, DTYPE)
            product = _hessian_product((model.loss, self._chunk), self.at(model), point, moved)
        return np.asarray(product, dtype=float) / model.n_data

    def log_likelihoods(self, model: Model, theta: Array) -> Array:
        """log p(x_n | θ) for every row."""
        with width(DTYPE):
            return np.asarray(
                _log_likelihoods(model.loss, self.at(model), jnp.asarray(theta, DTYPE)), dtype=float
            )

    def mode(self, model: Model, start: Array, spread: Array, iterations: int = 300) -> Array:
        """Minimise the mean loss by L-BFGS in the coordinates u, θ = start + Bu, B = `spread` of
        shape (D,) or (D, D).
        """

        def theta_of(u: Array) -> Array:
            return start + (spread * u if spread.ndim == 1 else spread @ u)

        def objective(u: Array) -> tuple[float, Array]:
            value, slope = self.value_and_gradient(model, theta_of(u))
            return value, spread * slope if spread.ndim == 1 else spread.T @ slope

        found = scipy.optimize.minimize(
            objective,
            np.zeros(start.size),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": iterations, "ftol": 1e-8, "gtol": 1e-6, "maxcor": 20},
        )
        theta = theta_of(found.x)
        if not np.all(np.isfinite(theta)):
            raise CurvatureError("the search for the mode reached non-finite values")
        return theta


def largest_rate(
    product: Callable[[Array], Array], root: Array, vector: Array, rounds: int = 40
) -> tuple[float, Array]:
    """λ_max of the map v ↦ root·A(root·v) by power iteration from `vector`, and the vector where it
    ended.
    """
    value = 0.0
    for _ in range(rounds):
        vector = vector / np.linalg.norm(vector)
        image = root * product(root * vector)
        previous, value = value, float(vector @ image)
        vector = image
        if abs(value - previous) <= 0.01 * abs(value):
            break
    return value, vector


def _scan_rows(
    problem: Problem, chunk: int, body: Callable[[PyTree, Traced], PyTree], start: PyTree
) -> PyTree:
    """Sum `body(rows, mask)` over chunks of equal length; the last one reaches back, with what was
    seen masked out.
    """
    n_data = jax.tree.leaves(problem.data)[0].shape[0]

    def add(total: PyTree, number: Traced) -> tuple[PyTree, None]:
        wanted = number * chunk
        first = jnp.minimum(wanted, n_data - chunk)
        rows = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first, chunk), problem.data)
        mask = first + jnp.arange(chunk) >= wanted
        return jax.tree.map(jnp.add, total, body(rows, mask)), None

    return lax.scan(add, start, jnp.arange(-(-n_data // chunk)))[0]


def _summed(loss: Loss, problem: Problem, theta: Traced, rows: PyTree, mask: Traced) -> Traced:
    return -jnp.sum(jnp.where(mask, loss.log_likelihoods(problem, theta, rows), 0.0))


@compiled
def _value_and_gradient(
    static: tuple[Loss, int], problem: Problem, theta: Traced
) -> tuple[Traced, Traced]:
    loss, chunk = static

    def body(rows: PyTree, mask: Traced) -> tuple[Traced, Traced]:
        return jax.value_and_grad(lambda point: _summed(loss, problem, point, rows, mask))(theta)

    return _scan_rows(problem, chunk, body, (jnp.zeros((), theta.dtype), jnp.zeros_like(theta)))


@compiled
def _hessian_product(
    static: tuple[Loss, int], problem: Problem, theta: Traced, vector: Traced
) -> Traced:
    loss, chunk = static

    def body(rows: PyTree, mask: Traced) -> Traced:
        slope = jax.grad(lambda point: _summed(loss, problem, point, rows, mask))
        return jax.jvp(slope, (theta,), (vector,))[1]

    return _scan_rows(problem, chunk, body, jnp.zeros_like(theta))


@compiled
def _log_likelihoods(loss: Loss, problem: Problem, theta: Traced) -> Traced:
    return lax.map(
        lambda row: loss.log_likelihoods(
            problem, theta, jax.tree.map(lambda leaf: leaf[None], row)
        )[0],
        problem.data,
        batch_size=4096,
    )
