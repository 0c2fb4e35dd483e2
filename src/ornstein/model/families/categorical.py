"""Categorical: one logit per label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.model.families.family import Family, Law, Shared
from ornstein.types import Array, PyTree, Traced


@dataclass(frozen=True)
class Categorical(Family):
    """Labels without an order; the outcome is the label's place among the classes.

    >>> Categorical().mean(np.zeros(4), {})
    array([0.25, 0.25, 0.25, 0.25])
    """

    name: ClassVar[str] = "categorical"
    links: ClassVar[tuple[str, ...]] = ("softmax",)
    elementary: ClassVar[bool] = False
    labels: ClassVar[bool] = True
    classes: ClassVar[bool] = True
    discrete: ClassVar[bool] = True
    replaces: ClassVar[str] = "statsmodels MNLogit, R nnet::multinom"

    def log_density(
        self, u: Traced, y: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        # Not u[y], whose slope is a scatter.
        chosen = jnp.where(jnp.arange(u.shape[-1]) == y, u, 0.0)
        return jnp.sum(chosen) - jax.nn.logsumexp(u)

    def outcome(self, u: Array, auxiliary: Shared) -> Law:
        return Labels(self.mean(u, auxiliary))

    def middle(self, y: Array, weights: Array | None) -> Array:
        counts = np.bincount(y, weights=weights) + 0.5  # a class may be empty
        return np.log(counts) - np.mean(np.log(counts))


@dataclass(frozen=True, eq=False)
class Labels:
    """A law on 0, 1, … with the probabilities along the last axis."""

    probabilities: Array

    def mean(self) -> Array:
        return self.probabilities @ np.arange(self.probabilities.shape[-1])

    def std(self) -> Array:
        squares = self.probabilities @ np.arange(self.probabilities.shape[-1]) ** 2
        return np.sqrt(np.maximum(squares - self.mean() ** 2, 0.0))

    def cdf(self, y: Traced) -> Array:
        """P(outcome ≤ y), for whole y from −1 on."""
        place = np.broadcast_to(np.asarray(y, dtype=int), self.probabilities.shape[:-1])
        rising = np.cumsum(self.probabilities, axis=-1)
        found = np.take_along_axis(rising, np.maximum(place, 0)[..., None], axis=-1)[..., 0]
        return np.where(place < 0, 0.0, found)

    def ppf(self, p: Traced) -> Array:
        rising = np.cumsum(self.probabilities, axis=-1)
        rising[..., -1] = np.inf  # their sum may round to less than one
        return np.argmax(rising >= np.asarray(p)[..., None], axis=-1)

    def rvs(self, size: Any = None, random_state: Any = None) -> Array:
        rng = np.random.default_rng(random_state)
        return self.ppf(rng.random(self.probabilities.shape[:-1] if size is None else size))
