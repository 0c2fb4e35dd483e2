"""The posterior itself: −log of its density and the gradient at many points, by passes over all
rows in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ornstein.curvature.derivatives import derivatives_of
from ornstein.model.model import Model
from ornstein.types import Array


class MeanLoss(Protocol):
    """The likelihood's part of the mean loss at many points (M, D)."""

    def values(self, points: Array) -> Array: ...

    def values_and_gradients(self, points: Array) -> tuple[Array, Array]: ...


@dataclass(eq=False)
class Density:
    """U(θ) = N·L(θ), which is −log of the posterior up to a constant; infinite where the density is
    zero or not a number. `passes` counts how often all rows were read, or those of `loss`, where
    that is not the loss of all.

    >>> import jax.numpy as jnp
    >>> model = Model(lambda theta, x: -0.5 * (x - theta) ** 2, jnp.arange(3.0), init=jnp.zeros(()))
    >>> density = Density(model)
    >>> density.values(np.array([[1.0], [2.0]])), density.passes
    (array([1. , 2.5]), 2)
    """

    model: Model
    passes: int = 0
    loss: MeanLoss | None = None

    def __post_init__(self) -> None:
        self._loss: MeanLoss = derivatives_of(self.model) if self.loss is None else self.loss

    def values(self, points: Array) -> Array:
        """U at points (M, D)."""
        self.passes += len(points)
        padded = _padded(points)
        found = self._loss.values(padded) + self.model.scaled_priors(padded)[0]
        return _or_infinite(self.model.n_data * found)[: len(points)]

    def values_and_gradients(self, points: Array) -> tuple[Array, Array]:
        """U and its gradient at points (M, D): shapes (M,) and (M, D)."""
        self.passes += len(points)
        padded = _padded(points)
        values, slopes = self._loss.values_and_gradients(padded)
        prior_values, prior_slopes = self.model.scaled_priors(padded)
        whole = _or_infinite(self.model.n_data * (values + prior_values))
        slopes = self.model.n_data * (slopes + prior_slopes)
        return whole[: len(points)], slopes[: len(points)]


def _padded(points: Array) -> Array:
    """The points and copies of the last one, so that few different numbers of points are compiled
    for: powers of two, and those and a half.
    """
    size = 4
    while size < len(points):
        size += size // 2 if size & (size - 1) == 0 else size // 3
    return np.concatenate([points, np.repeat(points[-1:], size - len(points), axis=0)])


def _or_infinite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, np.inf)
