"""Student-t: y = u + σ t_ν, noise with heavy tails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from ornstein.checks import brief, is_number
from ornstein.errors import InputError
from ornstein.model.families.counts import log_rising
from ornstein.model.families.family import Auxiliary, Family, Law, Shared
from ornstein.model.families.gaussian import SCALE, log_spread, scale_prior
from ornstein.model.priors import Gamma, Prior
from ornstein.types import Array, PyTree, Traced

DEGREES = Auxiliary("log_df", "df")


@dataclass(frozen=True)
class StudentT(Family):
    """Noise with heavy tails, so that outliers weigh little; σ is inferred, and so are the degrees
    of freedom unless `df` fixes them.

    >>> StudentT(df=4).outcome(np.array([0.0]), {"log_scale": 0.0}).std() ** 2
    array([2.])
    """

    df: float | None = None

    name: ClassVar[str] = "student-t"
    links: ClassVar[tuple[str, ...]] = ("identity",)
    follows_response: ClassVar[bool] = True
    replaces: ClassVar[str] = "statsmodels TLinearModel, R brms student()"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.df is not None and (not is_number(self.df) or not 0.0 < self.df < np.inf):
            raise InputError(f"df must be a positive number, or None; got {brief(self.df)}")

    @property
    def auxiliaries(self) -> tuple[Auxiliary, ...]:
        return (SCALE,) if self.df is not None else (DEGREES, SCALE)

    def start(self, y: Array) -> dict[str, float]:
        scale = {"log_scale": log_spread(y)}
        return scale if self.df is not None else {"log_df": float(np.log(8.0)), **scale}

    def default_priors(self, unit: float, middle: Array) -> dict[str, Prior]:
        scale = {"scale": scale_prior(unit)}
        return scale if self.df is not None else {"df": Gamma(2.0, 0.1), **scale}

    def log_density(
        self, u: Traced, y: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        log_df = jnp.log(self.df) if self.df is not None else auxiliary["log_df"]
        log_scale = auxiliary["log_scale"]
        df = jnp.exp(log_df)
        square = ((y - u) * jnp.exp(-log_scale)) ** 2
        constant = log_gamma_half_step(log_df) - 0.5 * (log_df + np.log(np.pi))
        return constant - log_scale - 0.5 * (df + 1.0) * jnp.log1p(square / df)

    def outcome(self, u: Array, auxiliary: Shared) -> Law:
        from scipy.stats import t

        df = self.df if self.df is not None else np.exp(auxiliary["log_df"])
        return t(df, u, np.exp(auxiliary["log_scale"]))


def log_gamma_half_step(log_df: Traced) -> Traced:
    """log Γ((ν + 1)/2) − log Γ(ν/2), not lost to rounding where ν is large."""
    return log_rising(log_df - np.log(2.0), 0.5)
