"""Full-data derivatives of a mixed model, from the value, slope and second derivatives of each
group.

Every group has a likelihood of its own in few parameters, so its whole Hessian is no more work than
a part of their sum. One compiled function for each bucket then answers all questions; compiling
takes longer than most passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.compute.compiled import compiled
from ornstein.compute.precision import double
from ornstein.curvature.autodiff import Autodiff, padded_chunks
from ornstein.model.loss import Loss, Problem
from ornstein.model.mixed.model import MixedModel
from ornstein.types import Array, PyTree, Traced

MOST_PARAMETERS = 60  # Hessians of more are not held for each group
HELD = 2**25  # numbers: the Hessians of all groups at one place, 256 MB


class GroupDerivatives(Autodiff):
    """Derivatives of a mixed model of few parameters."""

    model: MixedModel

    def __init__(self, model: MixedModel) -> None:
        super().__init__(model)
        self._place: Array | None = None
        self._found: tuple[float, Array, Array, Array, Array | None] | None = None

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        if (
            self._found is not None
            and self._place is not None
            and np.array_equal(theta, self._place)
        ):
            value, slope, *_ = self._second_order(theta)
            return value, slope
        values, slopes = self.values_and_gradients(theta[None])
        return float(values[0]), slopes[0]

    def values_and_gradients(self, points: Array) -> tuple[Array, Array]:
        values, slopes = np.zeros(len(points)), np.zeros(points.shape)
        for chunk, mask in padded_chunks(self.model, 2**22 // self.model.dim):
            for place, point in enumerate(points):
                value, slope = self._called(_first, point, chunk)
                values[place] += value @ mask
                slopes[place] += mask @ slope
        return values / self.model.n_data, slopes / self.model.n_data

    def hessian(self, theta: Array) -> Array:
        return self._second_order(theta)[3]

    def gradient_moments(self, theta: Array) -> tuple[Array, Array]:
        if self._place is not None and np.array_equal(theta, self._place):
            _, first, second, *_ = self._second_order(theta)
            return first, second
        first, second = np.zeros(self.model.dim), np.zeros((self.model.dim, self.model.dim))
        for gradients in self.example_gradients(theta):
            first += gradients.sum(axis=0)
            second += gradients.T @ gradients
        return first / self.model.n_data, second / self.model.n_data

    def diagonal_moments(self, theta: Array) -> tuple[Array, Array]:
        first, second = self.gradient_moments(theta)
        return first, np.diagonal(second).copy()

    def example_gradients(self, theta: Array) -> Iterator[Array]:
        for chunk, mask in padded_chunks(self.model, 2**22 // self.model.dim):
            yield self._called(_first, theta, chunk)[1][mask > 0]

    def hessian_product(self, theta: Array, vector: Array) -> Array:
        return self.hessian(theta) @ vector

    def squared_hessian(self, theta: Array) -> Callable[[Array], Array] | None:
        hessians = self._second_order(theta)[4]
        if hessians is None:
            return None

        def respond(covariance: Array) -> Array:
            return np.einsum("nij,jk,nkl->il", hessians, covariance, hessians, optimize=True) / len(
                hessians
            )

        return respond

    def _second_order(self, theta: Array) -> tuple[float, Array, Array, Array, Array | None]:
        """Mean value, slope, outer product of slopes and Hessian, and the Hessians of all groups
        where they can be held. Remembered for one place.
        """
        if self._place is not None and np.array_equal(theta, self._place):
            return self._found
        size, n_data = self.model.dim, self.model.n_data
        value, slope = 0.0, np.zeros(size)
        second, hessian = np.zeros((size, size)), np.zeros((size, size))
        held: list[Array] | None = [] if n_data * size**2 <= HELD else None
        for chunk, mask in padded_chunks(self.model, 2**20 // size):
            values, slopes, hessians = self._called(_second, theta, chunk)
            own = mask > 0
            value += float(values @ mask)
            slope += mask @ slopes
            second += (mask[:, None] * slopes).T @ slopes
            hessians = hessians[own]
            hessian += hessians.sum(axis=0)
            if held is not None:
                held.append(hessians)
        every = None if held is None else np.concatenate(held)
        hessian = (hessian + hessian.T) / (2.0 * n_data)
        self._place = theta.copy()
        self._found = value / n_data, slope / n_data, second / n_data, hessian, every
        return self._found

    def _called(
        self, function: Callable[..., tuple[Traced, ...]], theta: Array, chunk: PyTree
    ) -> tuple[Array, ...]:
        model = self.model
        with double():
            hyper = jax.tree.map(jnp.asarray, model.hyperparameters)
            point = jnp.asarray(theta)
            problem = Problem(None, hyper, jnp.asarray(float(model.n_data)), point, point)
            return tuple(np.asarray(part) for part in function(model.loss, problem, chunk))


def _group_loss(loss: Loss, problem: Problem, group: PyTree) -> Callable[[Traced], Traced]:
    def evaluate(shift: Traced) -> Traced:
        params = loss.layout.unflatten(problem.centre + shift)
        return -loss.log_likelihood(params, group, problem.hyperparameters)

    return evaluate


@compiled
def _first(loss: Loss, problem: Problem, groups: PyTree) -> tuple[Traced, Traced]:
    zero = jnp.zeros_like(problem.centre)
    return jax.vmap(lambda group: jax.value_and_grad(_group_loss(loss, problem, group))(zero))(
        groups
    )


@compiled
def _second(loss: Loss, problem: Problem, groups: PyTree) -> tuple[Traced, Traced, Traced]:
    """Value, slope and Hessian of −log p of each group, the Hessian column by column."""
    zero = jnp.zeros_like(problem.centre)
    directions = jnp.eye(zero.shape[0], dtype=zero.dtype)

    def of_group(group: PyTree) -> tuple[Traced, Traced, Traced]:
        both = jax.value_and_grad(_group_loss(loss, problem, group))
        (value, slope), image = jax.linearize(both, zero)
        return value, slope, jax.vmap(lambda direction: image(direction)[1])(directions)

    return jax.vmap(of_group)(groups)
