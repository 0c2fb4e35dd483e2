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
from ornstein.model.loss import Loss
from ornstein.model.mixed.model import MixedModel
from ornstein.types import Array, PyTree, Traced

MOST_PARAMETERS = 60  # Hessians of more are not held for each group
TOGETHER, SMALL_PASS = 32, 2**14  # points; rows at nodes, see values_and_gradients
HELD = 2**25  # numbers: the Hessians of all groups at one place, 256 MB


class GroupDerivatives(Autodiff):
    """Derivatives of a mixed model of few parameters."""

    model: MixedModel

    def __init__(self, model: MixedModel) -> None:
        super().__init__(model)
        self._place: Array | None = None
        self._found: tuple[float, Array, Array, Array, Array | None] | None = None

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        value, slope, *_ = self._second_order(theta)
        return value, slope

    def values_and_gradients(self, points: Array) -> tuple[Array, Array]:
        values, slopes = np.zeros(len(points)), np.zeros(points.shape)
        # a pass over few rows takes less time than to ask for it
        together = min(len(points), TOGETHER) if self.model.work < SMALL_PASS else 1
        for chunk, mask in padded_chunks(self.model, 2**22 // (together * self.model.dim)):
            for start in range(0, len(points), together):
                places = np.minimum(np.arange(start, start + together), len(points) - 1)
                value, slope = self._called(_first, points[places], chunk)
                stop = min(start + together, len(points))
                values[start:stop] += (value @ mask)[: stop - start]
                slopes[start:stop] += np.einsum("png,n->pg", slope, mask)[: stop - start]
        return values / self.model.n_data, slopes / self.model.n_data

    def value(self, theta: Array) -> float:
        return float(self.values(theta[None])[0])

    def hessian(self, theta: Array) -> Array:
        return self._second_order(theta)[3]

    def gradient_moments(self, theta: Array) -> tuple[Array, Array]:
        _, first, second, *_ = self._second_order(theta)
        return first, second

    def diagonal_moments(self, theta: Array) -> tuple[Array, Array]:
        first, second = self.gradient_moments(theta)
        return first, np.diagonal(second).copy()

    def example_gradients(self, theta: Array) -> Iterator[Array]:
        for chunk, mask in padded_chunks(self.model, 2**22 // self.model.dim):
            yield self._called(_first, theta[None], chunk)[1][0][mask > 0]

    def hessian_product(self, theta: Array, vector: Array) -> Array:
        return self.hessian(theta) @ vector

    def hessians(self, theta: Array) -> Array | None:
        """Those of all groups, (N, D, D), where they can be held."""
        return self._second_order(theta)[4]

    def squared_hessian(self, theta: Array) -> Callable[[Array], Array] | None:
        hessians = self.hessians(theta)
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
        known = self._place is not None and np.array_equal(theta, self._place)
        if known and self._found is not None:
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
        with double():
            hyper = jax.tree.map(jnp.asarray, self.model.hyperparameters)
            found = function(self.model.loss, jnp.asarray(theta), hyper, chunk)
            return tuple(np.asarray(part) for part in found)


def _group_loss(loss: Loss, hyper: PyTree, group: PyTree) -> Callable[[Traced], Traced]:
    return lambda theta: -loss.log_likelihood(loss.layout.unflatten(theta), group, hyper)


@compiled
def _first(loss: Loss, points: Traced, hyper: PyTree, groups: PyTree) -> tuple[Traced, Traced]:
    """Value and slope of −log p, (points, groups) and (points, groups, D)."""

    def of_group(theta: Traced, group: PyTree) -> tuple[Traced, Traced]:
        return jax.value_and_grad(_group_loss(loss, hyper, group))(theta)

    return jax.vmap(jax.vmap(of_group, (None, 0)), (0, None))(points, groups)


@compiled
def _second(
    loss: Loss, theta: Traced, hyper: PyTree, groups: PyTree
) -> tuple[Traced, Traced, Traced]:
    """Value, slope and Hessian of −log p of each group, the Hessian column by column."""
    directions = jnp.eye(theta.shape[0], dtype=theta.dtype)

    def of_group(group: PyTree) -> tuple[Traced, Traced, Traced]:
        both = jax.value_and_grad(_group_loss(loss, hyper, group))
        (value, slope), image = jax.linearize(both, theta)
        return value, slope, jax.vmap(lambda direction: image(direction)[1])(directions)

    return jax.vmap(of_group)(groups)
