"""Full-data derivatives of the likelihood part of the mean loss, in float64 and in passes over bounded chunks of rows.

`Autodiff` serves every model. A model with a linear predictor brings closed forms instead (linear_predictor.py); both answer
the same five questions, each a mean over the N rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.compiled import compiled
from ornstein.model import Loss, Model, Problem
from ornstein.precision import double

Array = np.ndarray


class Derivatives(Protocol):
    """What the curvature asks of a model: means over all rows of the per-example loss ℓ_n = −log p(x_n|θ)."""

    def value(self, theta: Array) -> float: ...

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]: ...

    def hessian(self, theta: Array) -> Array: ...

    def gradient_moments(self, theta: Array) -> tuple[Array, Array]:
        """Mean and second moment E[gᵢgⱼ] of the per-example gradients."""

    def diagonal_moments(self, theta: Array) -> tuple[Array, Array]:
        """Mean and second moment E[gᵢ²]."""

    def example_gradients(self, theta: Array) -> Iterator[Array]:
        """Gradients of single examples, (rows, D), chunk by chunk in the order of the rows."""

    def hessian_product(self, theta: Array, vector: Array) -> Array: ...

    def squared_hessian(self, theta: Array) -> Callable[[Array], Array] | None:
        """Σ ↦ E[A_nΣA_n], or None where that is out of reach."""


class Autodiff:
    """Derivatives of any JAX log likelihood."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def value(self, theta: Array) -> float:
        return self.value_and_gradient(theta)[0]  # the search for the mode has compiled it

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        value, slope = self._mean(_value_and_gradient, theta, 2**22 // self.model.dim)
        return float(value), slope

    def hessian(self, theta: Array) -> Array:
        (hessian,) = self._mean(_hessian, theta, 2**20 // self.model.dim)
        return (hessian + hessian.T) / 2.0

    def gradient_moments(self, theta: Array) -> tuple[Array, Array]:
        first, second = self._mean(_moments, theta, 2**22 // self.model.dim)
        return first, second

    def diagonal_moments(self, theta: Array) -> tuple[Array, Array]:
        first, second = self._mean(_diagonal_moments, theta, 2**22 // self.model.dim)
        return first, second

    def example_gradients(self, theta: Array) -> Iterator[Array]:
        model = self.model
        for chunk, mask in padded_chunks(model, 2**22 // model.dim):
            with double():
                point = jnp.asarray(theta)
                hyper = jax.tree.map(jnp.asarray, model.hyperparameters)
                problem = Problem(None, hyper, jnp.asarray(float(model.n_data)), point, point)
                gradients = np.asarray(
                    example_gradients(model.loss, problem, jnp.zeros_like(point), chunk)
                )
            yield gradients[mask > 0]

    def hessian_product(self, theta: Array, vector: Array) -> Array:
        (product,) = self._mean(_hessian_product, theta, 2**22 // self.model.dim, vector)
        return product

    def squared_hessian(self, theta: Array) -> Callable[[Array], Array] | None:
        dimension = self.model.dim
        if self.model.n_data * dimension**2 > 10**10:
            return None

        def respond(covariance: Array) -> Array:
            values, vectors = np.linalg.eigh(covariance)
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            (squared,) = self._mean(_squared_hessian, theta, 2**22 // dimension**2, root)
            return squared

        return respond

    def _mean(
        self, sums: Callable[..., Any], theta: Array, rows: int, *extra: Array
    ) -> tuple[Any, ...]:
        model = self.model
        with double():
            hyper = jax.tree.map(jnp.asarray, model.hyperparameters)
            point = jnp.asarray(theta)
            problem = Problem(None, hyper, jnp.asarray(float(model.n_data)), point, point)
            total: tuple[Any, ...] | None = None
            for chunk, mask in padded_chunks(model, rows):
                part = sums(
                    model.loss, problem, chunk, mask, *(jnp.asarray(array) for array in extra)
                )
                part = tuple(np.asarray(array) for array in part)
                total = (
                    part
                    if total is None
                    else tuple(a + b for a, b in zip(total, part, strict=True))
                )
        assert total is not None
        return tuple(array / model.n_data for array in total)


def padded_chunks(model: Model, rows: int) -> Iterator[tuple[Any, Array]]:
    """Chunks of equal length with a mask, so that the ragged last one does not compile anew."""
    rows = int(min(max(1, rows), model.n_data))
    for start in range(0, model.n_data, rows):
        stop = min(start + rows, model.n_data)
        chunk = jax.tree.map(_as_double, model.rows(start, stop))
        mask = np.zeros(rows)
        mask[: stop - start] = 1.0
        if stop - start < rows:
            chunk = jax.tree.map(lambda leaf: _pad(leaf, rows), chunk)
        yield chunk, mask


def _as_double(leaf: Any) -> Array:
    array = np.asarray(leaf)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _pad(leaf: Array, rows: int) -> Array:
    """Repeat the first row: a valid example, masked out afterwards."""
    return np.concatenate(
        [leaf, np.broadcast_to(leaf[:1], (rows - leaf.shape[0], *leaf.shape[1:]))]
    )


def _example_loss(loss: Loss, problem: Problem) -> Callable[[Any, Any], Any]:
    def evaluate(shift: Any, row: Any) -> Any:
        single = jax.tree.map(lambda leaf: leaf[None], row)
        return -loss.log_likelihoods(problem, shift, single)[0]

    return evaluate


def _summed_loss(loss: Loss, problem: Problem, rows: Any, mask: Any) -> Callable[[Any], Any]:
    return lambda shift: (
        -jnp.sum(jnp.where(mask > 0, loss.log_likelihoods(problem, shift, rows), 0.0))
    )


@compiled
def _value_and_gradient(loss: Loss, problem: Problem, rows: Any, mask: Any) -> Any:
    return jax.value_and_grad(_summed_loss(loss, problem, rows, mask))(
        jnp.zeros_like(problem.centre)
    )


@compiled
def _hessian(loss: Loss, problem: Problem, rows: Any, mask: Any) -> Any:
    return (jax.hessian(_summed_loss(loss, problem, rows, mask))(jnp.zeros_like(problem.centre)),)


@compiled
def _hessian_product(loss: Loss, problem: Problem, rows: Any, mask: Any, vector: Any) -> Any:
    slope = jax.grad(_summed_loss(loss, problem, rows, mask))
    return (jax.jvp(slope, (jnp.zeros_like(problem.centre),), (vector,))[1],)


@compiled
def example_gradients(loss: Loss, problem: Problem, displacement: Any, rows: Any) -> Any:
    """Gradient of ℓ_n for every row at one displacement, shape (rows, D)."""
    return jax.vmap(jax.grad(_example_loss(loss, problem)), (None, 0))(displacement, rows)


@compiled
def _moments(loss: Loss, problem: Problem, rows: Any, mask: Any) -> Any:
    gradients = mask[:, None] * example_gradients(
        loss, problem, jnp.zeros_like(problem.centre), rows
    )
    return gradients.sum(axis=0), gradients.T @ gradients


@compiled
def _diagonal_moments(loss: Loss, problem: Problem, rows: Any, mask: Any) -> Any:
    gradients = mask[:, None] * example_gradients(
        loss, problem, jnp.zeros_like(problem.centre), rows
    )
    return gradients.sum(axis=0), jnp.sum(gradients**2, axis=0)


@compiled
def _squared_hessian(loss: Loss, problem: Problem, rows: Any, mask: Any, root: Any) -> Any:
    """Σ_n (A_n L)(A_n L)ᵀ with Σ = LLᵀ, by Hessian-vector products of single examples."""
    zero = jnp.zeros_like(problem.centre)

    def products(row: Any) -> Any:
        slope = jax.grad(lambda shift: _example_loss(loss, problem)(shift, row))
        return jax.vmap(
            lambda column: jax.jvp(slope, (zero,), (column,))[1], in_axes=1, out_axes=1
        )(root)

    images = mask[:, None, None] * jax.vmap(products)(rows)
    return (jnp.einsum("nil,njl->ij", images, images),)
