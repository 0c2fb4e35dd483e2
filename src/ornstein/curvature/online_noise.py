"""The gradient noise C estimated along a chain, where an exact pass over the data is out of reach
or C drifts.

The recursion is the paper's, C_t = (1−κ_t) C_{t−1} + κ_t Ĉ_t with κ_t ~ 1/t, but Ĉ_t is the
covariance within the minibatch with S/(S−1): unbiased, and 20–30 times less noisy than the paper's
outer product of one example's gradient with the batch's, whose mean is (1−1/S) C and which vanishes
for S = 1. For S = 1 the deviation from the running mean gradient stands in. What is met along the
chain is C + K[Σ]: how the noise depends on θ is already in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from ornstein.compute.precision import width
from ornstein.curvature.autodiff import example_gradients
from ornstein.errors import InputError
from ornstein.model.loss import Problem
from ornstein.model.model import Model
from ornstein.rows.sources import IndexSource
from ornstein.types import Array, PyTree

STRUCTURES = ("scalar", "diagonal", "full")


@dataclass
class OnlineNoise:
    """A running estimate of C: its trace over D ("scalar", shape ()), its diagonal, or the whole
    matrix.

    `smallest_weight` keeps κ_t from falling below it, so that the estimate can follow a C that
    drifts; 0 is the paper's 1/t.

    >>> estimate = OnlineNoise("diagonal")
    >>> rng = np.random.default_rng(0)
    >>> for _ in range(2000):
    ...     estimate.update(rng.normal(size=(10, 2)) * [1.0, 2.0])
    >>> np.round(estimate.noise, 1)
    array([1., 4.])
    """

    structure: str = "diagonal"
    smallest_weight: float = 0.0
    count: int = 0
    _noise: Array | None = None
    _mean: Array | None = None

    def __post_init__(self) -> None:
        if self.structure not in STRUCTURES:
            raise InputError(f"structure must be one of {STRUCTURES}, not {self.structure!r}")

    @property
    def noise(self) -> Array:
        if self._noise is None:
            raise InputError("no gradients have been seen yet (with S = 1 it takes two)")
        return self._noise

    def update(self, gradients: Array) -> None:
        """Take in the per-example gradients of one minibatch, shape (S, D)."""
        gradients = np.asarray(gradients, dtype=float)
        size = gradients.shape[0]
        if size > 1:
            self.count += 1
            self._blend(
                self._second_moment(gradients - gradients.mean(axis=0)) / (size - 1), self.count
            )
            return
        self.count += 1
        before = np.zeros(gradients.shape[1]) if self._mean is None else self._mean
        deviation = gradients - before
        self._mean = before + deviation[0] / self.count
        if self.count > 1:
            # E[(g_t − ḡ_{t−1})²] = C t/(t−1) for independent gradients.
            self._blend(
                self._second_moment(deviation) * (self.count - 1) / self.count, self.count - 1
            )

    def _second_moment(self, deviations: Array) -> Array:
        if self.structure == "full":
            return deviations.T @ deviations
        squares = np.sum(deviations**2, axis=0)
        return squares if self.structure == "diagonal" else np.asarray(squares.mean())

    def _blend(self, estimate: Array, number: int) -> None:
        weight = max(1.0 / number, self.smallest_weight)
        self._noise = (
            estimate if self._noise is None else (1.0 - weight) * self._noise + weight * estimate
        )


def noise_along(
    model: Model,
    problem: Problem,
    displacements: Array,
    source: IndexSource,
    estimate: OnlineNoise,
    dtype: str,
) -> OnlineNoise:
    """Feed `estimate` one fresh minibatch at each displacement (from the problem's centre) of a
    chain.
    """
    with width(dtype):
        for displacement, indices in zip(
            displacements, source.draw(len(displacements)), strict=True
        ):
            if problem.data is None:
                rows: PyTree = model.gathered(
                    indices, np.asarray(problem.centre, dtype=float), dtype
                )
            else:
                rows = jax.tree.map(lambda leaf, chosen=indices: leaf[chosen], problem.data)
            estimate.update(
                np.asarray(example_gradients(model.loss, problem, displacement.astype(dtype), rows))
            )
    return estimate
