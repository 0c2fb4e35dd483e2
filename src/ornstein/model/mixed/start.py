"""Where the search for the mode of a mixed model starts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ornstein.errors import InputError
from ornstein.model.families.table import family_of
from ornstein.model.mixed.covariance import Covariance
from ornstein.model.mixed.density import SHAPES
from ornstein.model.mixed.table import Rows
from ornstein.types import Array, Traced

FIRST_DEVIATION = 0.5  # of effects in units of the response's spread, where the search starts


def first_guess(
    table: Rows, family: str, link: str, covariance: Covariance
) -> tuple[dict[str, Array], float]:
    """Where the search for the mode starts, and the spread of the response on the scale of the
    linear predictor.
    """
    forward = family_of(family, link or None).inverse_link.forward
    coef, spread = np.zeros(table.x.shape[1]), 1.0
    params: dict[str, Array] = {}
    if family == "gaussian":
        y = table.y if table.offset is None else table.y - table.offset
        root = np.sqrt(np.ones(len(y)) if table.weight is None else table.weight)
        coef = np.linalg.lstsq(table.x * root[:, None], y * root, rcond=None)[0]
        residual, spread = (
            float(table.deviations(part[:, None])[0]) for part in (y - table.x @ coef, y)
        )
        if residual <= max(1e-7 * spread, 1e-13 * float(np.max(np.abs(y)))):
            raise InputError(
                "y is constant, or X explains it exactly: there is nothing left for groups to"
                " differ in"
            )
        params["log_scale"] = np.asarray(np.log(0.7 * residual))
    elif family == "ordinal":
        params["cutpoints"] = _first_cuts(table.y, forward)
    else:
        coef = _first_intercept(table, family, forward)
    if family in ("gamma", "negative-binomial"):
        params[SHAPES[family]] = np.zeros(())
    z = np.ones((1, 1)) if table.z is None else table.z
    unit = residual if family == "gaussian" else 1.0
    sizes = np.sqrt(np.mean(z**2, axis=0))
    params |= {"coef": coef, "factor": covariance.start(FIRST_DEVIATION * unit / sizes)}
    return params, spread


def _first_intercept(table: Rows, family: str, forward: Callable[[Traced], Traced]) -> Array:
    """The overall mean on the scale of the link as the coefficient of a constant column."""
    coef = np.zeros(table.x.shape[1])
    constant = np.flatnonzero(np.ptp(table.x, axis=0) == 0.0)
    if not len(constant) or table.x[0, constant[0]] == 0.0:
        return coef
    if family == "binomial":
        mean = (table.y[:, 0].sum() + 0.5) / (table.y[:, 1].sum() + 1.0)
    else:
        mean = (table.y.sum() + 0.5) / (len(table.y) + 1.0)
    link = forward(mean)
    if table.offset is not None:
        link = link - np.mean(table.offset)
    coef[constant[0]] = link / table.x[0, constant[0]]
    return coef


def _first_cuts(y: Array, forward: Callable[[Traced], Traced]) -> Array:
    levels = int(y.max()) + 1
    below = np.clip([np.mean(y <= k) for k in range(levels - 1)], 1e-3, 1.0 - 1e-3)
    cuts = forward(below)
    return np.concatenate([cuts[:1], np.log(np.maximum(np.diff(cuts), 0.05))])


def parameter_names(
    params: dict[str, Array], columns: tuple[str, ...], covariance: Covariance
) -> tuple[str, ...]:
    """Names of all parameters, in the order of their layout."""
    names: list[str] = []
    for key in sorted(params):
        if key == "coef":
            names += columns
        elif key == "factor":
            names += covariance.parameters
        elif key == "cutpoints":
            names += [
                "cutpoint[0]",
                *(f"log step[{k}]" for k in range(1, len(params[key]))),
            ]
        else:
            names.append(key)
    return tuple(names)
