"""Gamma and log-normal: positive numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.errors import InputError
from ornstein.model.families.counts import DISPERSION, STIRLING, rest_of_stirling
from ornstein.model.families.family import Auxiliary, Family, Law, Shared, require_spread
from ornstein.model.families.gaussian import SCALE, log_spread, scale_prior
from ornstein.model.families.links import LINKS
from ornstein.model.priors import Gamma as GammaPrior
from ornstein.model.priors import Prior
from ornstein.types import Array, PyTree, Traced

HALF_LOG_TWO_PI = 0.5 * np.log(2.0 * np.pi)


def checked_positive(y: Array, family: str) -> Array:
    """Numbers above 0, or a sentence."""
    if np.any(y <= 0):
        raise InputError(
            f"the {family} family needs numbers above 0; the smallest of y is {np.min(y):g}"
        )
    return y


@dataclass(frozen=True)
class Gamma(Family):
    """Positive numbers with mean μ = exp(u) and variance φμ², the dispersion φ inferred.

    >>> Gamma().outcome(np.log([3.0]), {"log_dispersion": np.log(0.5)}).std() ** 2
    array([4.5])
    """

    name: ClassVar[str] = "gamma"
    links: ClassVar[tuple[str, ...]] = ("log",)
    replaces: ClassVar[str] = "statsmodels GLM(Gamma), R glm(Gamma)"

    @property
    def auxiliaries(self) -> tuple[Auxiliary, ...]:
        return (DISPERSION,)

    def checked(self, y: Array) -> Array:
        return checked_positive(y, self.name)

    def start(self, y: Array) -> dict[str, float]:
        require_spread(y, "dispersion")
        spread = float(np.var(y) / np.mean(y) ** 2)
        return {"log_dispersion": float(np.log(np.clip(spread, 1e-6, 10.0)))}

    def default_priors(self, unit: float, middle: Array) -> dict[str, Prior]:
        return {"dispersion": GammaPrior(0.5, 0.1)}

    def log_density(
        self, u: Traced, y: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        log_shape = -auxiliary["log_dispersion"]
        shape, away = jnp.exp(log_shape), jnp.log(y) - u
        return _peak(log_shape) - jnp.log(y) - shape * (jnp.expm1(away) - away)

    def outcome(self, u: Array, auxiliary: Shared) -> Law:
        from scipy.stats import gamma

        dispersion = np.exp(auxiliary["log_dispersion"])
        return gamma(1.0 / dispersion, scale=dispersion * self.mean(u, auxiliary))


def _peak(log_shape: Traced) -> Traced:
    """k log k − k − log Γ(k) for k = exp(log_shape), not lost to rounding where k is large."""
    shape = jnp.exp(log_shape)
    large = shape > STIRLING
    series = 0.5 * log_shape - HALF_LOG_TWO_PI - rest_of_stirling(jnp.where(large, shape, STIRLING))
    few = jnp.where(large, 1.0, shape)
    direct = few * jnp.log(few) - few - jax.scipy.special.gammaln(few)
    return jnp.where(large, series, direct)


@dataclass(frozen=True)
class LogNormal(Family):
    """Positive numbers whose logarithm is normal about u; the mean is exp(u + σ²/2).

    >>> LogNormal().mean(np.zeros(1), {"log_scale": np.log(2.0) / 2.0}).round(3)
    array([2.718])
    """

    name: ClassVar[str] = "log-normal"
    links: ClassVar[tuple[str, ...]] = ("identity",)
    polynomial: ClassVar[bool] = False
    replaces: ClassVar[str] = "statsmodels OLS of log y, R lm(log(y) ~ x)"

    @property
    def auxiliaries(self) -> tuple[Auxiliary, ...]:
        return (SCALE,)

    def checked(self, y: Array) -> Array:
        return checked_positive(y, self.name)

    def start(self, y: Array) -> dict[str, float]:
        return {"log_scale": log_spread(np.log(y))}

    def unit(self, y: Array, weights: Array | None) -> float:
        away = np.log(y) - self.middle(y, weights)
        spread = float(np.sqrt(np.average(away**2, weights=weights)))
        return spread if spread > 0.0 else 1.0

    def default_priors(self, unit: float, middle: Array) -> dict[str, Prior]:
        return {"scale": scale_prior(unit)}

    def log_density(
        self, u: Traced, y: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        log_scale, log_y = auxiliary["log_scale"], jnp.log(y)
        fit = ((log_y - u) * jnp.exp(-log_scale)) ** 2
        return -0.5 * fit - log_scale - HALF_LOG_TWO_PI - log_y

    def mean(self, u: Traced, auxiliary: Shared) -> Traced:
        exp = LINKS["log"].inverse
        return exp(u + 0.5 * exp(2.0 * auxiliary["log_scale"]))

    def outcome(self, u: Array, auxiliary: Shared) -> Law:
        from scipy.stats import lognorm

        return lognorm(np.exp(auxiliary["log_scale"]), scale=np.exp(u))

    def middle(self, y: Array, weights: Array | None) -> Array:
        return np.asarray(np.average(np.log(y), weights=weights))
