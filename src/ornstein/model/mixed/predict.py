"""E[y | x, b, θ] for new rows of a mixed model."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from ornstein.errors import InputError
from ornstein.model.mixed.covariance import Covariance
from ornstein.model.mixed.density import RowDensity
from ornstein.types import PyTree, Traced


@dataclass(frozen=True)
class MixedPredict:
    """Called on the columns of X alone it predicts for the average group, whose effects are zero.

    Attributes:
        family: of the response. covariance: of the effects.
        columns: of the fixed effects, the intercept's included where there is one.
        intercept: whether a column of ones is added to what is given.
    """

    family: str
    covariance: Covariance
    columns: tuple[str, ...]
    intercept: bool

    def __call__(self, params: PyTree, x: Traced) -> Traced:
        return self.mean(self.fixed_part(params, x), params)

    def fixed_part(self, params: PyTree, x: Traced) -> Traced:
        """Xβ."""
        own = len(self.columns) - self.intercept
        if x.shape[-1] != own:
            raise InputError(f"predict needs rows of {own} columns; these have {x.shape[-1]}")
        if self.intercept:
            x = jnp.concatenate([x, jnp.ones_like(x[..., :1])], axis=-1)
        return x @ params["coef"]

    def mean(self, predictor: Traced, params: PyTree) -> Traced:
        """E[y | u]."""
        return RowDensity(self.family).mean(predictor, params)
