"""Poisson and negative-binomial: counts with a logarithmic link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.errors import InputError
from ornstein.model.families.bernoulli import softplus
from ornstein.model.families.family import Auxiliary, Family, Law, Shared
from ornstein.model.priors import Gamma, Prior
from ornstein.types import Array, PyTree, Traced

DISPERSION = Auxiliary("log_dispersion", "dispersion")
# From here on Stirling's series gives log Γ to rounding in float64.
STIRLING = 16.0
# P(y > 0) and the like are kept away from the ends where no row shows them.
FEWEST = 0.5


def checked_counts(y: Array, family: str) -> Array:
    """Whole numbers from 0 on, or a sentence."""
    if np.any(y < 0) or np.any(y != np.floor(y)):
        raise InputError(
            f"the {family} family needs counts 0, 1, 2, …; y holds a negative or fractional value"
        )
    return y


@dataclass(frozen=True)
class Poisson(Family):
    """Counts with mean exp(u) and as large a variance.

    >>> Poisson().outcome(np.log([3.0]), {}).std() ** 2
    array([3.])
    """

    name: ClassVar[str] = "poisson"
    links: ClassVar[tuple[str, ...]] = ("log",)
    discrete: ClassVar[bool] = True
    replaces: ClassVar[str] = "statsmodels Poisson, R glm(poisson)"

    def checked(self, y: Array) -> Array:
        return checked_counts(y, self.name)

    def log_density(
        self, u: Traced, y: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        return y * u - jnp.exp(u) - jax.scipy.special.gammaln(y + 1.0)

    def outcome(self, u: Array, auxiliary: Shared) -> Law:
        from scipy.stats import poisson

        return poisson(self.mean(u, auxiliary))

    def middle(self, y: Array, weights: Array | None) -> Array:
        return log_average(y, weights)


@dataclass(frozen=True)
class NegativeBinomial(Family):
    """Counts with mean μ = exp(u) and variance μ + αμ², the dispersion α inferred (NB2).

    >>> NegativeBinomial().outcome(np.log([3.0]), {"log_dispersion": np.log(0.5)}).std() ** 2
    array([7.5])
    """

    name: ClassVar[str] = "negative-binomial"
    links: ClassVar[tuple[str, ...]] = ("log",)
    discrete: ClassVar[bool] = True
    replaces: ClassVar[str] = "statsmodels NegativeBinomial, R MASS::glm.nb"

    @property
    def auxiliaries(self) -> tuple[Auxiliary, ...]:
        return (DISPERSION,)

    def checked(self, y: Array) -> Array:
        return checked_counts(y, self.name)

    def start(self, y: Array) -> dict[str, float]:
        """By the moments of y, as if no column explained anything."""
        mean = max(float(np.mean(y)), 1e-3)
        excess = (float(np.var(y)) - mean) / mean**2
        return {"log_dispersion": float(np.log(np.clip(excess, 0.05, 5.0)))}

    def default_priors(self, unit: float, middle: Array) -> dict[str, Prior]:
        return {"dispersion": Gamma(0.5, 0.1)}  # of its root nearly flat near zero

    def log_density(
        self, u: Traced, y: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        log_size = -auxiliary["log_dispersion"]
        return (
            log_rising(log_size, y)
            - jax.scipy.special.gammaln(y + 1.0)
            - jnp.exp(log_size) * softplus(u - log_size)
            - y * softplus(log_size - u)
        )

    def outcome(self, u: Array, auxiliary: Shared) -> Law:
        from scipy.stats import nbinom

        dispersion = np.exp(auxiliary["log_dispersion"])
        return nbinom(1.0 / dispersion, 1.0 / (1.0 + dispersion * self.mean(u, auxiliary)))

    def middle(self, y: Array, weights: Array | None) -> Array:
        return log_average(y, weights)


def log_average(y: Array, weights: Array | None) -> Array:
    """log of the mean count; half a count where there is none."""
    total = np.sum(weights) if weights is not None else len(y)
    return np.log(np.maximum(np.average(y, axis=0, weights=weights), FEWEST / total))


def log_rising(log_size: Traced, y: Traced) -> Traced:
    """log Γ(y + r) − log Γ(r) for r = exp(log_size).

    Where r is large, the difference of two large numbers would be rounding: Stirling's series
    leaves y log r + (y + r − ½) log(1 + y/r) − y and small terms.
    """
    size = jnp.exp(log_size)
    large = size > STIRLING
    many = jnp.where(large, size, STIRLING)
    series = (
        y * log_size
        + (y + many - 0.5) * jnp.log1p(y / many)
        - y
        + rest_of_stirling(y + many)
        - rest_of_stirling(many)
    )
    few = jnp.where(large, 1.0, size)
    direct = jax.scipy.special.gammaln(y + few) - jax.scipy.special.gammaln(few)
    return jnp.where(large, series, direct)


def rest_of_stirling(z: Traced) -> Traced:
    """What Stirling's formula leaves out of log Γ(z), for z ≥ 16 to 1e-15."""
    square = 1.0 / (z * z)
    tail = 1.0 / 360.0 - square * (1.0 / 1260.0 - square * (1.0 / 1680.0 - square / 1188.0))
    return (1.0 / 12.0 - square * tail) / z
