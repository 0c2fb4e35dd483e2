"""E[y | x, b, θ] for new rows of a mixed model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from ornstein.errors import InputError
from ornstein.model.mixed.covariance import Covariance
from ornstein.model.mixed.density import FAMILIES, RowDensity
from ornstein.model.parameters import Layout
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

    def to_json(self) -> dict[str, Any]:
        """As plain values, for a file."""
        return {
            "family": self.family,
            "effects": list(self.covariance.effects),
            "blocks": list(self.covariance.blocks),
            "columns": list(self.columns),
            "intercept": self.intercept,
        }

    @classmethod
    def from_json(cls, meta: dict[str, Any], layout: Layout) -> MixedPredict:
        """What `to_json` wrote, refused where it does not fit the parameters."""
        covariance = Covariance(
            tuple(str(name) for name in meta["effects"]), tuple(int(n) for n in meta["blocks"])
        )
        columns = tuple(str(name) for name in meta["columns"])
        sizes = dict(zip(layout.paths, layout.shapes, strict=True))
        fits = sizes["coef"] == (len(columns),) and sizes["factor"] == (covariance.size,)
        if (
            meta["family"] not in FAMILIES
            or not fits
            or sum(covariance.blocks) != len(covariance.effects)
        ):
            raise ValueError("a mixed model that does not fit its parameters")
        return cls(meta["family"], covariance, columns, bool(meta["intercept"]))

    def mean(self, predictor: Traced, params: PyTree) -> Traced:
        """E[y | u]."""
        return RowDensity(self.family).mean(predictor, params)
