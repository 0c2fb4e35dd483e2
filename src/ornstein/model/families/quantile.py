"""Quantile regression: y = u + noise whose τ-quantile is zero, by the asymmetric Laplace law."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from ornstein.checks import brief, is_number
from ornstein.errors import InputError
from ornstein.model.families.family import Auxiliary, Family, Law, Shared
from ornstein.model.families.gaussian import SCALE, log_spread, scale_prior
from ornstein.model.priors import Prior
from ornstein.types import Array, PyTree, Traced


@dataclass(frozen=True)
class Quantile(Family):
    """The linear predictor is the τ-quantile of y; `tau` is τ, and `scale` fixes σ.

    The likelihood is a device: its mode is the quantile regression of Koenker and Bassett, whatever
    the law of y. Its posterior's widths are not those of that estimate; `Posterior.sandwich` gives
    them.

    >>> law = Quantile(tau=0.9).outcome(np.array([2.0]), {"log_scale": 0.0})
    >>> law.cdf(2.0).round(12)
    array([0.9])
    """

    tau: float = 0.5
    scale: float | None = None

    name: ClassVar[str] = "quantile"
    links: ClassVar[tuple[str, ...]] = ("identity",)
    follows_response: ClassVar[bool] = True
    replaces: ClassVar[str] = "statsmodels QuantReg, R quantreg::rq"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.tau) or not 0.0 < self.tau < 1.0:
            raise InputError(f"tau must lie between 0 and 1; got {brief(self.tau)}")
        if self.scale is not None and (not is_number(self.scale) or not 0.0 < self.scale < np.inf):
            raise InputError(f"scale must be a positive number, or None; got {brief(self.scale)}")

    @property
    def auxiliaries(self) -> tuple[Auxiliary, ...]:
        return () if self.scale is not None else (SCALE,)

    def start(self, y: Array) -> dict[str, float]:
        if self.scale is not None:
            return {}
        return {"log_scale": log_spread(y, "Give Quantile(scale=…) a number") - np.log(4.0)}

    def default_priors(self, unit: float, middle: Array) -> dict[str, Prior]:
        return {} if self.scale is not None else {"scale": scale_prior(unit)}

    def middle(self, y: Array, weights: Array | None) -> Array:
        return np.asarray(np.quantile(y, self.tau))

    def log_density(
        self, u: Traced, y: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        log_scale = jnp.log(self.scale) if self.scale is not None else auxiliary["log_scale"]
        away = (y - u) * jnp.exp(-log_scale)
        cost = jnp.where(away > 0, self.tau * away, (self.tau - 1.0) * away)
        return np.log(self.tau * (1.0 - self.tau)) - log_scale - cost

    def slope_variance(self, auxiliary: Shared) -> float | None:
        log_scale = np.log(self.scale) if self.scale is not None else auxiliary["log_scale"]
        return float(self.tau * (1.0 - self.tau) * np.exp(-2.0 * log_scale))

    def mean(self, u: Traced, auxiliary: Shared) -> Traced:
        """The quantile itself, which is what is predicted in place of an expectation."""
        return u

    def outcome(self, u: Array, auxiliary: Shared) -> Law:
        from scipy.stats import laplace_asymmetric

        scale = self.scale if self.scale is not None else np.exp(auxiliary["log_scale"])
        spread = np.sqrt(self.tau * (1.0 - self.tau))
        return laplace_asymmetric(self.tau / spread, u, scale / spread)
