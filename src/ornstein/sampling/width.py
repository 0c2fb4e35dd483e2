"""Whether float32 is enough for a run: it must resolve the posterior beside its place and its
data.
"""

from __future__ import annotations

import jax
import numpy as np

from ornstein.checks import printable
from ornstein.curvature.curvature import Curvature
from ornstein.model.model import Model
from ornstein.types import Array

SPACINGS = 1000.0  # of float32 numbers that a posterior standard deviation must cover
LOOKED_AT = 4096  # rows


def reason_for_double(model: Model, curvature: Curvature) -> str:
    """Why a run needs float64, in words; empty where float32 will do.

    Regressions never need it: what is large in their parameters and columns is taken out in float64
    before the run (`GLM._centred`, `GLM.worked`). Any other model sees its parameters and data as
    they are, rounded.
    """
    if model.linear is not None:
        return ""
    covariance = curvature.posterior_covariance
    sd = np.sqrt(covariance if covariance.ndim == 1 else np.diagonal(covariance))
    covered = sd / _spacing(curvature.mode)
    worst = int(np.argmin(covered))
    if covered[worst] < SPACINGS:
        return (
            f"the posterior sd of {printable(model.names[worst])} is {sd[worst]:.2g} at"
            f" {curvature.mode[worst]:.6g}, {covered[worst]:.2g} spacings of float32 (wanted:"
            f" {SPACINGS:.0f})"
        )
    return _reason_in_data(model)


def _reason_in_data(model: Model) -> str:
    """The same for columns of the data: what N rows tell of the place of a column is known to its
    sd/√N.
    """
    rows = np.unique(np.linspace(0, model.n_data - 1, LOOKED_AT).astype(int))
    for number, leaf in enumerate(jax.tree.leaves(model.data)):
        if np.dtype(leaf.dtype).kind != "f":
            continue
        columns = np.asarray(leaf[rows], dtype=float).reshape(len(rows), -1)
        size = np.sqrt(np.mean(columns**2, axis=0))
        told = columns.std(axis=0) / np.sqrt(model.n_data)
        covered = np.where(told > 0, told / _spacing(size), np.inf)
        worst = int(np.argmin(covered))
        if covered[worst] < SPACINGS:
            return (
                f"column {worst} of array {number} of the data lies about {size[worst]:.6g}, and"
                f" its sd/√N is {covered[worst]:.2g} spacings of float32 (wanted: {SPACINGS:.0f})"
            )
    return ""


def _spacing(values: Array) -> Array:
    """The distance from a number to the next one in float32."""
    return np.spacing(np.abs(values).astype(np.float32)).astype(float)
