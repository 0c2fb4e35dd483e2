"""The marginal likelihood of a group with a gaussian response, in closed form.

With b = Lz, z ~ N(0, I), and V = σ²I + ZLLᵀZᵀ,

    log p(y) = −½ [n log 2πσ² + log det M + |r − ZLẑ|²/σ² + |ẑ|²],   M = I + LᵀZᵀZL/σ²,

where r = y − Xβ and ẑ = M⁻¹LᵀZᵀr/σ² is the mode of z. Nothing here is a difference of large
numbers. Only inner products of the rows enter, so that a group with more rows than columns is kept
as the triangle R of its QR decomposition (`compressed`).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from ornstein.model.mixed.covariance import Covariance
from ornstein.model.mixed.predictor import effect_columns, fixed_part, rows_that_count
from ornstein.model.mixed.small import cholesky, half_log_determinant, solve
from ornstein.rows.ragged import Buckets, Ragged
from ornstein.types import Array, PyTree, Traced


@dataclass(frozen=True)
class GaussianMarginal:
    """log p(y_g | β, L, σ) of one group."""

    covariance: Covariance

    def __call__(self, params: PyTree, group: PyTree, hyperparameters: PyTree) -> Traced:
        counts = rows_that_count(group)
        scale = jnp.exp(params["log_scale"])
        residual = jnp.where(counts, (group["y"] - fixed_part(params, group)) / scale, 0.0)
        columns = [
            jnp.where(counts, column / scale, 0.0)
            for column in effect_columns(self.covariance, params, group)
        ]
        effects, spread = posterior_effects(columns, residual)
        for column, effect in zip(columns, effects, strict=True):
            residual = residual - column * effect
        square = jnp.sum(residual**2) + sum(effect**2 for effect in effects)
        constant = group["count"] * (params["log_scale"] + 0.5 * np.log(2.0 * np.pi))
        return -0.5 * square - half_log_determinant(spread) - constant


def posterior_effects(
    columns: list[Traced], residual: Traced
) -> tuple[list[Traced], list[list[Traced]]]:
    """ẑ, and the Cholesky factor of M, from the columns of ZL/σ and the residuals r/σ."""
    precision = [
        [jnp.sum(columns[i] * columns[j]) + float(i == j) for j in range(i + 1)]
        for i in range(len(columns))
    ]
    factor = cholesky(precision)
    return solve(factor, [jnp.sum(column * residual) for column in columns]), factor


def compressed(x: Array, z: Array | None, y: Array, counts: Array) -> tuple[Array, Array]:
    """[X Z y] with at most as many rows for each group as it has columns, and how many those are.

    >>> rows, held = compressed(np.ones((5, 1)), None, np.arange(5.0), np.array([5]))
    >>> rows.shape, held.tolist()
    ((3, 3), [3])
    """
    ones = np.ones((len(x), 1)) if z is None else z
    table = np.concatenate([x, ones, y[:, None]], axis=1)
    width = table.shape[1]
    held = np.minimum(counts, width)
    ends, starts = np.cumsum(held), np.cumsum(counts) - counts
    found = np.empty((int(ends[-1]), width))
    few = counts <= width
    rows = np.repeat(few, counts)
    found[np.repeat(few, held)] = table[rows]
    many = np.flatnonzero(~few)
    if len(many):
        buckets = Buckets.of(counts[many])
        ragged = Ragged(table, starts[many], counts[many], buckets)
        for length, first, stop in zip(buckets.lengths, buckets.firsts, buckets.stops, strict=True):
            some = max(1, 2**22 // (length * width))
            for start in range(first, stop, some):
                chosen = slice(start, min(start + some, stop))
                within = np.arange(length) < ragged.counts[chosen][:, None]
                triangles = np.linalg.qr(np.where(within[..., None], ragged[chosen], 0.0), mode="r")
                places = (ends - held)[many[chosen]][:, None] + np.arange(width)
                found[places] = triangles
    return found, held
