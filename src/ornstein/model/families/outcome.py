"""The predictive law of outcomes, noise included: the mixture over draws of θ of each draw's law.

A `Law` here has shape (draws, rows): what `Family.outcome` returns for the linear predictors of
some draws and some rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np

from ornstein.compute.compiled import compiled
from ornstein.compute.precision import double
from ornstein.model.families.expected import along
from ornstein.model.families.family import Law
from ornstein.model.families.likelihood import Likelihood
from ornstein.types import Array, PyTree, Traced

# Halvings of the interval between the lowest and the highest quantile of a draw.
HALVINGS = 60


def outcome_law(likelihood: Likelihood, predictor: Array, shared: Mapping[str, Array]) -> Law:
    """The law of y for linear predictors (draws, rows, …) and auxiliary parameters (draws,), or
    (draws, rows).

    >>> law = outcome_law(Likelihood("poisson", 1), np.log([[1.0], [3.0]]), {})
    >>> mixture_mean(law), mixture_sd(law) ** 2, mixture_quantile(law, 0.5, discrete=True)
    (array([2.]), array([3.]), array([2.]))
    """
    spread = {name: along(predictor, value) for name, value in shared.items()}
    return likelihood.law.outcome(predictor, spread)


def mixture_mean(law: Law) -> Array:
    """E[y] of each row."""
    return np.mean(law.mean(), axis=0)


def mixture_sd(law: Law) -> Array:
    """The standard deviation of y of each row: within the draws' laws and between their means."""
    return np.sqrt(np.mean(np.square(law.std()), axis=0) + np.var(law.mean(), axis=0))


def mixture_cdf(law: Law, y: Array) -> Array:
    """P(outcome ≤ y) of each row."""
    return np.mean(law.cdf(y), axis=0)


def mixture_quantile(law: Law, probability: float, discrete: bool) -> Array:
    """The smallest y of each row with P(outcome ≤ y) ≥ probability, whole if `discrete`.

    It lies between the lowest and the highest quantile of the draws' own laws.
    """
    own = np.asarray(law.ppf(probability), dtype=float)
    low, high = own.min(axis=0), own.max(axis=0)
    if discrete:
        low = low - 1.0
    for _ in range(HALVINGS):
        middle = np.floor((low + high) / 2.0) if discrete else (low + high) / 2.0
        if np.all((middle <= low) | (middle >= high)):
            break
        enough = mixture_cdf(law, middle) >= probability
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def log_densities(
    likelihood: Likelihood,
    predictor: Array,
    y: Array,
    shared: Mapping[str, Array],
    hyperparameters: PyTree,
) -> Array:
    """log p(y_n | θ_d) for linear predictors (draws, rows, …), in float64: shape (draws, rows).

    >>> log_densities(Likelihood("poisson", 1), np.zeros((2, 1)), np.zeros(1), {}, {})
    array([[-1.],
           [-1.]])
    """
    with double():
        return np.asarray(_densities(likelihood, predictor, y, dict(shared), hyperparameters))


@compiled
def _densities(
    likelihood: Likelihood, predictor: Traced, y: Traced, shared: PyTree, hyperparameters: PyTree
) -> Traced:
    law = likelihood.law
    by_row = {name: 0 if value.ndim > 1 else None for name, value in shared.items()}
    row = jax.vmap(law.log_density, (0, 0, by_row, None))
    return jax.vmap(row, (0, None, 0, None))(predictor, y, shared, hyperparameters)
