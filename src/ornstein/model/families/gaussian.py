"""Gaussian: y = u + σε with ε ~ N(0, 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from ornstein.model.families.family import Auxiliary, Family, Law, Shared, require_spread
from ornstein.model.priors import InverseGamma, Prior
from ornstein.types import Array, PyTree, Traced

# In standard deviations of y: noise that is much smaller has to be shown by some rows.
SMALLEST_NOISE = 0.05
SCALE = Auxiliary("log_scale", "scale")


def log_spread(y: Array, advice: str = "") -> float:
    """Where the search for log σ starts: at y's standard deviation."""
    require_spread(y, "noise scale", advice)
    return float(np.log(np.std(y)))


def scale_prior(unit: float) -> Prior:
    """Weak at any scale that rows can show, and falling fast enough towards zero that there is a
    mode where columns explain y exactly.
    """
    return InverseGamma(1.0, SMALLEST_NOISE * unit)


@dataclass(frozen=True)
class Gaussian(Family):
    """Normal noise about the linear predictor; σ is inferred, or the hyperparameter `noise_scale`.

    >>> Gaussian().outcome(np.array([1.0]), {"log_scale": 0.0}).ppf(0.5)
    array([1.])
    """

    infer_scale: bool = True

    name: ClassVar[str] = "gaussian"
    links: ClassVar[tuple[str, ...]] = ("identity",)
    polynomial: ClassVar[bool] = True
    follows_response: ClassVar[bool] = True
    replaces: ClassVar[str] = "statsmodels OLS, R lm"

    @property
    def settings(self) -> tuple[tuple[str, float], ...]:
        return ()  # `Likelihood.infer_scale` says it

    @property
    def auxiliaries(self) -> tuple[Auxiliary, ...]:
        return (SCALE,) if self.infer_scale else ()

    def start(self, y: Array) -> dict[str, float]:
        advice = "Give noise_scale a number"
        return {"log_scale": log_spread(y, advice)} if self.infer_scale else {}

    def default_priors(self, unit: float, middle: Array) -> dict[str, Prior]:
        return {"scale": scale_prior(unit)} if self.infer_scale else {}

    def log_density(
        self, u: Traced, y: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        if self.infer_scale:
            log_scale = auxiliary["log_scale"]
            fit = ((y - u) * jnp.exp(-log_scale)) ** 2
        else:
            # The scale's part comes as one number: no exponential and no division for every row.
            log_scale = jnp.log(hyperparameters["noise_scale"])
            fit = (y - u) ** 2 * (1.0 / hyperparameters["noise_scale"]) ** 2
        return -0.5 * fit - log_scale - 0.5 * np.log(2.0 * np.pi)

    def outcome(self, u: Array, auxiliary: Shared) -> Law:
        """Where σ is a hyperparameter, its logarithm comes as "log_scale" all the same."""
        from scipy.stats import norm

        return norm(u, np.exp(auxiliary["log_scale"]))
