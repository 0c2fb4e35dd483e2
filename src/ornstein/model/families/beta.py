"""Beta: proportions between 0 and 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.errors import InputError
from ornstein.model.families.family import Auxiliary, Family, Law, Shared, require_spread
from ornstein.model.priors import Gamma, Prior
from ornstein.types import Array, PyTree, Traced

PRECISION = Auxiliary("log_precision", "precision")


@dataclass(frozen=True)
class Beta(Family):
    """Proportions with mean μ = the inverse link of u and variance μ(1−μ)/(1 + φ), the precision φ
    inferred.

    >>> Beta().outcome(np.zeros(1), {"log_precision": np.log(3.0)}).std() ** 2
    array([0.0625])
    """

    name: ClassVar[str] = "beta"
    links: ClassVar[tuple[str, ...]] = ("logit", "probit", "cloglog")
    replaces: ClassVar[str] = "statsmodels BetaModel, R betareg"

    @property
    def auxiliaries(self) -> tuple[Auxiliary, ...]:
        return (PRECISION,)

    def checked(self, y: Array) -> Array:
        if np.any(y <= 0) or np.any(y >= 1):
            raise InputError(
                "the beta family needs proportions above 0 and below 1; y reaches from"
                f" {np.min(y):g} to {np.max(y):g}"
            )
        return y

    def start(self, y: Array) -> dict[str, float]:
        require_spread(y, "precision")
        mean, variance = float(np.mean(y)), float(np.var(y))
        precision = mean * (1.0 - mean) / max(variance, 1e-12) - 1.0
        return {"log_precision": float(np.log(np.clip(precision, 0.1, 1e6)))}

    def default_priors(self, unit: float, middle: Array) -> dict[str, Prior]:
        return {"precision": Gamma(1.0, 0.01)}

    def log_density(
        self, u: Traced, y: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        precision, gammaln = jnp.exp(auxiliary["log_precision"]), jax.scipy.special.gammaln
        mean = self.inverse_link.in_jax(u)
        one, other = mean * precision, (1.0 - mean) * precision
        weight = gammaln(precision) - gammaln(one) - gammaln(other)
        return weight + (one - 1.0) * jnp.log(y) + (other - 1.0) * jnp.log1p(-y)

    def outcome(self, u: Array, auxiliary: Shared) -> Law:
        from scipy.stats import beta

        mean, precision = self.mean(u, auxiliary), np.exp(auxiliary["log_precision"])
        return beta(mean * precision, (1.0 - mean) * precision)
