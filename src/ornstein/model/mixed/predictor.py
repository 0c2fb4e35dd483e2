"""What the rows of a group contribute to its likelihood: Xβ, the columns of ZL, and which count."""

from __future__ import annotations

import jax.numpy as jnp

from ornstein.model.mixed.covariance import Covariance
from ornstein.types import PyTree, Traced


def rows_that_count(group: PyTree) -> Traced:
    """Which rows are the group's own, not there to fill it up."""
    return jnp.arange(group["x"].shape[0]) < group["held"]


def row_weights(group: PyTree) -> Traced | float:
    """How often each row counts."""
    return group.get("weight", 1.0)


def fixed_part(params: PyTree, group: PyTree) -> Traced:
    """Xβ and the offset, if there is one."""
    fixed = group["x"] @ params["coef"]
    return fixed + group["offset"] if "offset" in group else fixed


def effect_columns(covariance: Covariance, params: PyTree, group: PyTree) -> list[Traced]:
    """The columns of ZL; without Z the only effect is that of the intercept."""
    factor = covariance.factor(params["factor"])
    if "z" not in group:
        return [jnp.broadcast_to(factor[0][0], group["x"].shape[:1])]
    z = group["z"]
    columns = []
    for j in range(len(factor)):
        column = z[:, j] * factor[j][j]
        for i in range(j + 1, len(factor)):
            if (i, j) in covariance.places:
                column = column + z[:, i] * factor[i][j]
        columns.append(column)
    return columns
