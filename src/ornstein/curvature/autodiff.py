"""Full-data derivatives of the likelihood part of the mean loss, in float64 and in passes over
bounded chunks of rows.

`Autodiff` serves every model. A model with a linear predictor brings closed forms instead
(linear_predictor.py); both answer the same five questions, each a mean over the N rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, wraps

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ornstein.compute.compiled import NO_LIBRARY, compiled, known_options
from ornstein.compute.precision import double
from ornstein.model.loss import Loss, Problem
from ornstein.model.model import Model
from ornstein.types import Array, PyTree, Traced

POINT_NUMBERS = 2**21  # gradients of some rows at some points, held at a time
# Rows whose derivatives are added up at once. XLA shares out a sum over more of them among its
# threads, and its rounding would depend on the number of cores.
BLOCK = 128


class Autodiff:
    """Derivatives of any JAX log likelihood."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def part(self, rows: Array) -> None:
        """Nothing: a part of any pytree of data would have to be checked and traced anew."""

    def value(self, theta: Array) -> float:
        return self.value_and_gradient(theta)[0]  # the search for the mode has compiled it

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        value, slope = self._mean(_value_and_gradient, theta, 2**22 // self.model.dim)
        return float(value), slope

    def values(self, points: Array) -> Array:
        return self.values_and_gradients(points)[0]

    def values_and_gradients(self, points: Array) -> tuple[Array, Array]:
        found = [
            self._mean(
                _values_and_gradients,
                np.zeros(self.model.dim),
                POINT_NUMBERS // (len(group) * self.model.dim),
                group,
            )
            for group in _portions(points, max(1, POINT_NUMBERS // (16 * self.model.dim)))
        ]
        values, slopes = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return values[: len(points)], slopes[: len(points)]

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
        self, sums: Callable[..., tuple[Traced, ...]], theta: Array, rows: int, *extra: Array
    ) -> tuple[Array, ...]:
        model = self.model
        with double():
            hyper = jax.tree.map(jnp.asarray, model.hyperparameters)
            point = jnp.asarray(theta)
            problem = Problem(None, hyper, jnp.asarray(float(model.n_data)), point, point)
            total: tuple[Array, ...] | None = None
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


def _portions(points: Array, size: int) -> Iterator[Array]:
    """Some points at a time, the last portion filled up so that it does not compile anew."""
    size = min(size, len(points))
    for start in range(0, len(points), size):
        yield points[np.minimum(np.arange(start, start + size), len(points) - 1)]


def padded_chunks(model: Model, rows: int) -> Iterator[tuple[PyTree, Array]]:
    """Chunks of equal length with a mask, so that the ragged last one does not compile anew."""
    for start, stop, length in model.spans(rows, BLOCK):
        chunk = jax.tree.map(_as_double, model.rows(start, stop))
        mask = np.zeros(length)
        mask[: stop - start] = 1.0
        if stop - start < length:
            chunk = jax.tree.map(partial(_pad, rows=length), chunk)
        yield chunk, mask


def _as_double(leaf: Array | Traced) -> Array:
    array = np.asarray(leaf)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _pad(leaf: Array, rows: int) -> Array:
    """Repeat the first row: a valid example, masked out afterwards."""
    return np.concatenate(
        [leaf, np.broadcast_to(leaf[:1], (rows - leaf.shape[0], *leaf.shape[1:]))]
    )


def _example_loss(loss: Loss, problem: Problem) -> Callable[[Traced, PyTree], Traced]:
    def evaluate(shift: Traced, row: PyTree) -> Traced:
        single = jax.tree.map(lambda leaf: leaf[None], row)
        return -loss.log_likelihoods(problem, shift, single)[0]

    return evaluate


def _summed_loss(
    loss: Loss, problem: Problem, rows: PyTree, mask: Traced
) -> Callable[[Traced], Traced]:
    return lambda shift: (
        -jnp.sum(jnp.where(mask > 0, loss.log_likelihoods(problem, shift, rows), 0.0))
    )


def _summed(sums: Callable[..., tuple[Traced, ...]]) -> Callable[..., tuple[Traced, ...]]:
    """Compile sums over the rows of a chunk, taken block by block."""

    @wraps(sums)
    def blocked(
        loss: Loss, problem: Problem, rows: PyTree, mask: Traced, *extra: Traced
    ) -> tuple[Traced, ...]:
        if mask.shape[0] <= BLOCK or mask.shape[0] % BLOCK:
            return sums(loss, problem, rows, mask, *extra)
        blocks = jax.tree.map(lambda leaf: leaf.reshape(-1, BLOCK, *leaf.shape[1:]), (rows, mask))

        def of_block(block: PyTree) -> tuple[Traced, ...]:
            return sums(loss, problem, *block, *extra)

        def add(total: PyTree, block: PyTree) -> tuple[PyTree, None]:
            return jax.tree.map(jnp.add, total, of_block(block)), None

        shapes = jax.eval_shape(of_block, jax.tree.map(lambda leaf: leaf[0], blocks))
        zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
        return lax.scan(add, zeros, blocks)[0]

    return compiled(blocked, options=partial(known_options, **NO_LIBRARY))


@_summed
def _values_and_gradients(
    loss: Loss, problem: Problem, rows: PyTree, mask: Traced, points: Traced
) -> tuple[Traced, Traced]:
    return jax.vmap(jax.value_and_grad(_summed_loss(loss, problem, rows, mask)))(points)


@_summed
def _value_and_gradient(
    loss: Loss, problem: Problem, rows: PyTree, mask: Traced
) -> tuple[Traced, Traced]:
    return jax.value_and_grad(_summed_loss(loss, problem, rows, mask))(
        jnp.zeros_like(problem.centre)
    )


@_summed
def _hessian(loss: Loss, problem: Problem, rows: PyTree, mask: Traced) -> tuple[Traced]:
    return (jax.hessian(_summed_loss(loss, problem, rows, mask))(jnp.zeros_like(problem.centre)),)


@_summed
def _hessian_product(
    loss: Loss, problem: Problem, rows: PyTree, mask: Traced, vector: Traced
) -> tuple[Traced]:
    slope = jax.grad(_summed_loss(loss, problem, rows, mask))
    return (jax.jvp(slope, (jnp.zeros_like(problem.centre),), (vector,))[1],)


@compiled
def example_gradients(loss: Loss, problem: Problem, displacement: Traced, rows: PyTree) -> Traced:
    """Gradient of ℓ_n for every row at one displacement, shape (rows, D).

    Many rows come block by block: XLA shares out a factorisation of too many small matrices among
    its threads in a way that can wait for itself forever.
    """
    slopes = jax.vmap(partial(jax.grad(_example_loss(loss, problem)), displacement))
    count = jax.tree.leaves(rows)[0].shape[0]
    if count <= BLOCK or count % BLOCK:
        return slopes(rows)
    blocks = jax.tree.map(lambda leaf: leaf.reshape(-1, BLOCK, *leaf.shape[1:]), rows)
    return lax.map(slopes, blocks).reshape(count, -1)


@_summed
def _moments(loss: Loss, problem: Problem, rows: PyTree, mask: Traced) -> tuple[Traced, Traced]:
    gradients = mask[:, None] * example_gradients(
        loss, problem, jnp.zeros_like(problem.centre), rows
    )
    return gradients.sum(axis=0), gradients.T @ gradients


@_summed
def _diagonal_moments(
    loss: Loss, problem: Problem, rows: PyTree, mask: Traced
) -> tuple[Traced, Traced]:
    gradients = mask[:, None] * example_gradients(
        loss, problem, jnp.zeros_like(problem.centre), rows
    )
    return gradients.sum(axis=0), jnp.sum(gradients**2, axis=0)


@_summed
def _squared_hessian(
    loss: Loss, problem: Problem, rows: PyTree, mask: Traced, root: Traced
) -> tuple[Traced]:
    """Σ_n (A_n L)(A_n L)ᵀ with Σ = LLᵀ, by Hessian-vector products of single examples."""
    zero = jnp.zeros_like(problem.centre)

    def products(row: PyTree) -> Traced:
        slope = jax.grad(lambda shift: _example_loss(loss, problem)(shift, row))
        return jax.vmap(
            lambda column: jax.jvp(slope, (zero,), (column,))[1], in_axes=1, out_axes=1
        )(root)

    images = mask[:, None, None] * jax.vmap(products)(rows)
    return (jnp.einsum("nil,njl->nij", images, images).sum(axis=0),)
