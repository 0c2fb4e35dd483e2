"""The prior of a regression: of its coefficients, of its intercept and of what its family adds."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from ornstein.model.families.family import Auxiliary
from ornstein.model.priors import Prior, density_of
from ornstein.types import PyTree, Traced


def gaussian_prior(params: PyTree, hyperparameters: PyTree) -> Traced:
    """Independent normals on the coefficients and intercepts; precision 0 is flat. log σ is
    flat.
    """
    total = _normal_log_density(params["coef"], hyperparameters["prior_precision"])
    if "intercept" in params:
        total += _normal_log_density(params["intercept"], hyperparameters["intercept_precision"])
    return total


@dataclass(frozen=True)
class RegressionPrior:
    """A normal or Student-t prior on each coefficient, one on the intercept, and one on each
    auxiliary parameter; equal settings compare equal, and all numbers are hyperparameters:

    - `prior_precision` times `precision_unit`: 1/scale² of each coefficient about `prior_mean`,
      with `prior_df` where `tails`;
    - `intercept_precision` about `intercept_mean`, where `centred` of the intercept plus
      `column_means`·coef: the linear predictor of a row of averages;
    - `scale_prior`, …: the numbers of the auxiliary parameters' priors; `scale_means`, … the means
      of the columns that one follows, for a prior at a row of averages.

    Attributes:
        tails: whether some prior is a Student-t; normal ones have infinitely many degrees of
            freedom, written as 0.
        centred: whether the intercept's prior is that of a row of averages.
        coef_reference: the first class has no coefficients.
        auxiliary: each with the kind of its prior.
    """

    tails: bool
    centred: bool
    coef_reference: bool
    auxiliary: tuple[tuple[Auxiliary, type[Prior]], ...]

    def __call__(self, params: PyTree, hyperparameters: PyTree) -> Traced:
        coef, hyper = params["coef"], hyperparameters
        precision = _by_column(hyper["prior_precision"], coef) * _by_column(
            hyper["precision_unit"], coef
        )
        away = coef - _by_column(hyper["prior_mean"], coef)
        total = self._coefficients(away, precision, hyper.get("prior_df"))
        if "intercept" in params:
            total += self._intercept(params, hyper)
        for auxiliary, kind in self.auxiliary:
            value = params[auxiliary.name]
            if auxiliary.level and "column_means" in hyper:
                value = value - hyper["column_means"] @ coef
            if f"{auxiliary.word}_means" in hyper:
                value = value + hyper[f"{auxiliary.word}_means"] @ coef
            total += _of_shared(auxiliary, kind, value, hyper)
        return total

    def of_auxiliary(self, shared: PyTree, hyperparameters: PyTree) -> Traced:
        """The log prior of the auxiliary parameters alone."""
        total = jnp.zeros(())
        for auxiliary, kind in self.auxiliary:
            total += _of_shared(auxiliary, kind, shared[auxiliary.name], hyperparameters)
        return total

    def _coefficients(self, away: Traced, precision: Traced, df: Traced | None) -> Traced:
        if not self.tails:
            return _normal_log_density(away, precision)
        heavy = jnp.broadcast_to(_by_column(df, away) > 0, away.shape)
        degrees = jnp.where(heavy, _by_column(df, away), 1.0)
        tails = -0.5 * (degrees + 1.0) * jnp.log1p(precision * away**2 / degrees)
        scaled = jnp.where(heavy, 0.5 * jnp.log(jnp.where(heavy, precision, 1.0)) + tails, 0.0)
        normal = _normal_log_density(jnp.where(heavy, 0.0, away), jnp.where(heavy, 0.0, precision))
        return normal + jnp.sum(scaled)

    def _intercept(self, params: PyTree, hyper: PyTree) -> Traced:
        level = params["intercept"]
        if self.centred:
            shift = jnp.tensordot(hyper["column_means"], params["coef"], 1)
            if self.coef_reference:
                shift = jnp.concatenate([jnp.zeros_like(shift[:1]), shift])
            level = level + shift
        away = level - hyper["intercept_mean"]
        if "intercept_df" not in hyper:
            return _normal_log_density(away, hyper["intercept_precision"])
        degrees = hyper["intercept_df"]
        square = hyper["intercept_precision"] * away**2 / degrees
        return jnp.sum(-0.5 * (degrees + 1.0) * jnp.log1p(square))


def _of_shared(auxiliary: Auxiliary, kind: type[Prior], value: Traced, hyper: PyTree) -> Traced:
    """A density on the user's scale, moved to the sampler's."""
    if not kind.positive:  # flat
        return jnp.zeros(())
    numbers = hyper[f"{auxiliary.word}_prior"]
    given = [numbers[k] for k in range(numbers.shape[0])]
    return density_of(kind)(auxiliary.natural(value), *given) + auxiliary.log_slope(value)


def _by_column(values: Traced, coef: Traced) -> Traced:
    """One number, or one per column, beside coefficients of several classes."""
    values = jnp.asarray(values)
    return values[:, None] if values.ndim == 1 and coef.ndim == 2 else values


def _normal_log_density(values: Traced, precision: Traced) -> Traced:
    precision = jnp.broadcast_to(precision, values.shape)
    proper = precision > 0
    constant = jnp.where(
        proper, 0.5 * jnp.log(jnp.where(proper, precision, 1.0) / (2.0 * np.pi)), 0.0
    )
    return jnp.sum(constant - 0.5 * precision * values**2)
