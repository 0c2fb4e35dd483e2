"""Bernoulli: two labels, P(y = 1) = the inverse link of u."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.model.families.family import Family, Law, Shared
from ornstein.model.families.links import LARGEST_EXPONENT
from ornstein.types import Array, PyTree, Traced


@dataclass(frozen=True)
class Bernoulli(Family):
    """Two labels; the second in their order counts as success.

    >>> Bernoulli("probit").mean(np.zeros(1), {})
    array([0.5])
    """

    name: ClassVar[str] = "bernoulli"
    links: ClassVar[tuple[str, ...]] = ("logit", "probit", "cloglog")
    labels: ClassVar[bool] = True
    discrete: ClassVar[bool] = True
    replaces: ClassVar[str] = "statsmodels Logit and Probit, R glm(binomial)"

    def log_density(
        self, u: Traced, y: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        if self.link == "logit":
            # Not yu − softplus(u), whose slope is lost to rounding at large u.
            return -softplus((1.0 - 2.0 * y) * u)
        success, failure = log_probabilities(self.link, u)
        return jnp.where(y > 0.5, success, failure)

    def middle(self, y: Array, weights: Array | None) -> Array:
        share = np.ones(len(y)) if weights is None else weights
        return self.inverse_link.forward((share @ y + 0.5) / (share.sum() + 1.0))

    def outcome(self, u: Array, auxiliary: Shared) -> Law:
        from scipy.stats import bernoulli

        return bernoulli(self.mean(u, auxiliary))


def log_probabilities(link: str, u: Traced) -> tuple[Traced, Traced]:
    """log P(y = 1) and log P(y = 0), neither lost in the tails."""
    if link == "logit":
        return -softplus(-u), -softplus(u)
    if link == "probit":
        return jax.scipy.special.log_ndtr(u), jax.scipy.special.log_ndtr(-u)
    # complementary log-log: the rate is t = exp u, failure has probability exp(−t)
    rate = jnp.exp(jnp.minimum(u, LARGEST_EXPONENT))
    small = rate < 1e-3
    series = u - rate / 2.0 + rate**2 / 24.0
    return jnp.where(small, series, jnp.log(-jnp.expm1(-jnp.where(small, 1.0, rate)))), -rate


@jax.custom_jvp
def softplus(u: Traced) -> Traced:
    """log(1 + exp u), whose slope needs one exponential; JAX's own takes two and a logarithm, half
    the time of a step.
    """
    return jax.nn.softplus(u)


@softplus.defjvp
def _softplus_slope(primals: tuple[Traced], tangents: tuple[Traced]) -> tuple[Traced, Traced]:
    return softplus(primals[0]), _sigmoid(primals[0]) * tangents[0]


@jax.custom_jvp
def _sigmoid(u: Traced) -> Traced:
    return jax.nn.sigmoid(u)


@_sigmoid.defjvp
def _sigmoid_slope(primals: tuple[Traced], tangents: tuple[Traced]) -> tuple[Traced, Traced]:
    """s(u)s(−u) and not s(1−s), which is zero from u = 37 on."""
    return _sigmoid(primals[0]), _sigmoid(primals[0]) * _sigmoid(-primals[0]) * tangents[0]
