"""Ordinal: labels in an order, by cut points on a latent scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.model.families.bernoulli import softplus
from ornstein.model.families.categorical import Labels
from ornstein.model.families.family import Auxiliary, Family, Law, Shared
from ornstein.model.priors import Gamma, Normal, Prior
from ornstein.types import Array, PyTree, Traced

FIRST = Auxiliary("cut", "cut", "identity", level=True)


@dataclass(frozen=True)
class Ordinal(Family):
    """Labels in an order: P(y ≤ k) = F(c_k − u) with ascending cut points c_k, the first of them
    the parameter `cut`, the others by the logarithms of their distances. There is no intercept.

    `gaps` is the number of labels less two; `orn.glm` fills it in.

    >>> Ordinal(gaps=1).mean(np.zeros(1), {"cut": np.zeros(1), "log_gap1": np.full(1, 50.0)})
    array([[0.5, 0.5, 0. ]])
    """

    gaps: int | None = None

    name: ClassVar[str] = "ordinal"
    links: ClassVar[tuple[str, ...]] = ("logit", "probit")
    labels: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    intercepts: ClassVar[bool] = False
    discrete: ClassVar[bool] = True
    replaces: ClassVar[str] = "statsmodels OrderedModel, R MASS::polr"

    @property
    def outcomes(self) -> int:
        return (self.gaps or 0) + 2

    @property
    def auxiliaries(self) -> tuple[Auxiliary, ...]:
        count = self.gaps or 0
        return (FIRST, *(Auxiliary(f"log_gap{k}", f"gap{k}") for k in range(1, count + 1)))

    def of_classes(self, count: int) -> Family:
        return replace(self, gaps=count - 2)

    def start(self, y: Array) -> dict[str, float]:
        cuts = self._cuts_of(y, None)
        gaps = np.log(np.maximum(np.diff(cuts), 1e-3))
        return {"cut": float(cuts[0]), **{f"log_gap{k + 1}": float(g) for k, g in enumerate(gaps)}}

    def default_priors(self, unit: float, middle: Array) -> dict[str, Prior]:
        gaps: dict[str, Prior] = {item.word: Gamma(1.0, 0.4) for item in self.auxiliaries[1:]}
        return {"cut": Normal(-float(middle), 2.5), **gaps}

    def middle(self, y: Array, weights: Array | None) -> Array:
        """Where the first cut point is if no column explains anything, with its sign changed."""
        return np.asarray(-self._cuts_of(y, weights)[0])

    def _cuts_of(self, y: Array, weights: Array | None) -> Array:
        counts = np.bincount(np.asarray(y, dtype=int), weights, minlength=self.outcomes) + 0.5
        rising = np.cumsum(counts)[:-1] / np.sum(counts)
        return np.asarray(self.inverse_link.forward(rising))

    def log_density(
        self, u: Traced, y: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        below = auxiliary["cut"] - u
        value = jnp.where(y == 0, self._log_cdf(below), 0.0)
        for k in range(1, self.outcomes - 1):
            log_gap = auxiliary[f"log_gap{k}"]
            value = jnp.where(y == k, self._log_between(below, log_gap), value)
            below = below + jnp.exp(log_gap)
        return jnp.where(y == self.outcomes - 1, self._log_cdf(-below), value)

    def _log_cdf(self, z: Traced) -> Traced:
        return -softplus(-z) if self.link == "logit" else jax.scipy.special.log_ndtr(z)

    def _log_between(self, low: Traced, log_gap: Traced) -> Traced:
        """log(F(low + gap) − F(low)), neither tail lost."""
        gap = jnp.exp(log_gap)
        high = low + gap
        if self.link == "logit":
            return -softplus(-high) - softplus(low) + jnp.log(-jnp.expm1(-gap))
        right = low + high > 0  # the tail on the other side is the same by symmetry
        inner = self._log_cdf(jnp.where(right, -low, high))
        outer = self._log_cdf(jnp.where(right, -high, low))
        return inner + jnp.log(-jnp.expm1(outer - inner))

    def mean(self, u: Traced, auxiliary: Shared) -> Traced:
        """The probabilities of the labels, along a last axis."""
        inverse, below = self.inverse_link.inverse, auxiliary["cut"] - u
        rising = [inverse(below)]
        for k in range(1, self.outcomes - 1):
            gap = auxiliary[f"log_gap{k}"]
            below = below + (jnp.exp(gap) if isinstance(u, jax.Array) else np.exp(gap))
            rising.append(inverse(below))
        stack = jnp.stack if isinstance(u, jax.Array) else np.stack
        one = 0.0 * rising[0] + 1.0
        return stack(
            [high - low for high, low in zip([*rising, one], [0.0, *rising], strict=True)], axis=-1
        )

    def outcome(self, u: Array, auxiliary: Shared) -> Law:
        return Labels(self.mean(u, auxiliary))
