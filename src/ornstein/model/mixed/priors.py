"""The priors of a mixed model, in units of its columns and its response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from ornstein.checks import as_numbers, brief, is_number
from ornstein.errors import InputError
from ornstein.model.mixed.covariance import Covariance
from ornstein.model.mixed.density import SHAPES
from ornstein.model.mixed.table import Rows
from ornstein.types import Array, PyTree, Traced

WIDTH = 2.5  # prior standard deviations, in units of the response's spread over a column's
SHAPE_SD = 3.0  # of the logarithm of a shape, a size, or a step between cut points


@dataclass(frozen=True)
class MixedPriors:
    """Normal priors on coefficients, half-t on the sds of effects, LKJ on their correlations.

    Attributes:
        coef_sd: prior standard deviation of the coefficients, one number, one per column, or a dict
            of some of them by column; inf is flat. None, and what a dict leaves out, is
            2.5 sd(y)/sd(x), and flat for a constant column. For families with a link sd(y) is taken
            as 1.
        effect_scale: scale of the half-t prior on the effects' standard deviations; None is as for
            the coefficients.
        freedom: its degrees of freedom.
        concentration: η of the LKJ prior; 1 is uniform over correlation matrices.

    >>> MixedPriors(effect_scale=1.0).freedom
    3.0
    """

    coef_sd: ArrayLike | Mapping[str, float] | None = None
    effect_scale: ArrayLike | None = None
    freedom: float = 3.0
    concentration: float = 2.0

    def __post_init__(self) -> None:
        for name in ("freedom", "concentration"):
            value = getattr(self, name)
            if not is_number(value) or value <= 0.0:
                raise InputError(f"{name} must be a positive number; got {brief(value)}")

    def hyperparameters(
        self, table: Rows, spread: float, columns: tuple[str, ...]
    ) -> dict[str, Array]:
        """The priors' numbers for these rows, where the response varies by `spread`."""
        effects = np.ones((len(table.x), 1)) if table.z is None else table.z
        scales = _positive("effect_scale", self.effect_scale, effects.shape[1])
        if scales is None:
            size = table.deviations(effects)
            size = np.where(size > 0.0, size, np.sqrt(np.mean(effects**2, axis=0)))
            scales = WIDTH * spread / size
        return {
            "coef_precision": 1.0 / self._deviations(table, spread, columns) ** 2,
            "effect_scale": scales,
            "freedom": np.asarray(float(self.freedom)),
            "concentration": np.asarray(float(self.concentration)),
        }

    def _deviations(self, table: Rows, spread: float, columns: tuple[str, ...]) -> Array:
        """Of the coefficients' priors."""
        sd = table.deviations(table.x)
        usual = np.where(sd > 0.0, WIDTH * spread / np.where(sd > 0.0, sd, 1.0), np.inf)
        if not isinstance(self.coef_sd, Mapping):
            given = _positive("coef_sd", self.coef_sd, len(sd))
            return usual if given is None else given
        for name, value in self.coef_sd.items():
            if name not in columns:
                raise InputError(f"coef_sd names {brief(name)}, which is not a column of X")
            one = _positive(f"coef_sd of {name!r}", value, 1)
            assert one is not None
            usual[columns.index(name)] = one[0]
        return usual


def _positive(what: str, value: ArrayLike | None, count: int) -> Array | None:
    if value is None:
        return None
    numbers = as_numbers(what, value)
    if numbers.shape not in ((), (count,)) or not np.all(numbers > 0.0):
        raise InputError(
            f"{what} must be one positive number, or one for each of {count} columns; got"
            f" {brief(value)}"
        )
    return np.broadcast_to(numbers, (count,)).astype(float)


@dataclass(frozen=True)
class LogPrior:
    """log p(β, L, shape); log σ of a gaussian response and the first cut point are flat."""

    family: str
    covariance: Covariance

    def __call__(self, params: PyTree, hyperparameters: PyTree) -> Traced:
        precision = hyperparameters["coef_precision"]
        proper = precision > 0.0
        constant = 0.5 * jnp.log(jnp.where(proper, precision, 2.0 * np.pi) / (2.0 * np.pi))
        total = jnp.sum(constant - 0.5 * precision * params["coef"] ** 2)
        total = total + self.covariance.log_prior(
            params["factor"],
            hyperparameters["effect_scale"],
            hyperparameters["freedom"],
            hyperparameters["concentration"],
        )
        if self.family in SHAPES and self.family != "gaussian":
            values = params[SHAPES[self.family]]
            values = values[1:] if self.family == "ordinal" else jnp.atleast_1d(values)
            constant = -jnp.log(SHAPE_SD) - 0.5 * np.log(2.0 * np.pi)
            total = total + jnp.sum(constant - 0.5 * (values / SHAPE_SD) ** 2)
        return total
