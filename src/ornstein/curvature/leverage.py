"""Minibatches that know which rows matter: probabilities by leverage, and the noise they leave.

Rows are drawn independently with probabilities p_n, and each counts 1/(N p_n) times, so that the
minibatch gradient is unbiased. Its covariance is (C_p + K_p[Σ])/S with

    C_p = Σ_n g_n g_nᵀ/(N² p_n) − ḡḡᵀ,      K_p[Σ] = Σ_n A_nΣA_n/(N² p_n) − A₀ΣA₀.

Where a column is informed by a few rows, uniform minibatches hardly ever hold one of them, and
their noise is far from Gaussian; these hold them often.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ornstein.curvature.curvature import Curvature
from ornstein.curvature.derivatives import Derivatives, derivatives_of
from ornstein.curvature.strata import stratified_moments
from ornstein.model.model import Model
from ornstein.rows.unequal import LEAST_SHARE
from ornstein.streams import Purpose, stream
from ornstein.theory.matrices import matrix_root
from ornstein.types import Array

PAIRS = 2  # places about the mode, each with its opposite, at which gradients of rows are looked at


def leverage(model: Model, curvature: Curvature, derivatives: Derivatives | None = None) -> Array:
    """Probabilities, half of them the same for all rows, half in proportion to E[g_nᵀA⁻¹g_n].

    The mean is over a few places that the posterior may be at: at the mode itself the gradient of a
    row that decides a parameter alone is zero.
    """
    derivatives = derivatives_of(model) if derivatives is None else derivatives
    covariance = curvature.posterior_covariance
    root = matrix_root(covariance)
    normals = stream(0, Purpose.LEVERAGE).standard_normal((PAIRS, curvature.dim))
    steps = normals * root if root.ndim == 1 else normals @ root.T
    score = np.zeros(model.n_data)
    for place in np.concatenate([curvature.mode + steps, curvature.mode - steps]):
        start = 0
        for gradients in derivatives.example_gradients(place):
            moved = gradients * root if root.ndim == 1 else gradients @ root
            score[start : start + len(moved)] += np.sum(moved**2, axis=1)
            start += len(moved)
    total = score.sum()
    uneven = score / total if total > 0 else np.full(model.n_data, 1.0 / model.n_data)
    return LEAST_SHARE / model.n_data + (1.0 - LEAST_SHARE) * uneven


def by_leverage(
    model: Model, curvature: Curvature, probabilities: Array | None = None
) -> Curvature:
    """The curvature with C_p and K_p in place of C and K."""
    chosen = leverage(model, curvature) if probabilities is None else probabilities
    mode = curvature.mode
    drawn = replace(curvature, probabilities=chosen, noise_response=None)
    mean, second = drawn_moments(model, drawn, mode, curvature.diagonal)
    outer = mean**2 if curvature.diagonal else np.outer(mean, mean)
    answers = curvature.noise_response is not None
    squared = _squares(model, chosen).squared_hessian(mode) if answers else None
    prior = 0.0 if curvature.prior_hessian is None else curvature.prior_hessian
    data_part = curvature.hessian - prior / curvature.n_data

    def respond(spread: Array) -> Array:
        assert squared is not None
        return squared(spread) - data_part @ spread @ data_part

    return replace(
        curvature,
        noise=second - outer,
        noise_response=None if squared is None else respond,
        probabilities=chosen,
    )


def drawn_moments(
    model: Model, curvature: Curvature | None, place: Array, diagonal: bool = False
) -> tuple[Array, Array]:
    """Mean and second moment of the gradient of one row as minibatches hold it, drawn in the way
    that the curvature is of, or all alike; of the second moment the diagonal alone where that is
    asked for.
    """
    if curvature is not None and curvature.strata is not None:
        mean, second = stratified_moments(model, curvature.strata, place)
        return mean, np.diagonal(second) if diagonal else second
    probabilities = None if curvature is None else curvature.probabilities
    name = "diagonal_moments" if diagonal else "gradient_moments"
    mean, second = getattr(derivatives_of(model), name)(place)
    if probabilities is not None:
        second = getattr(_squares(model, probabilities), name)(place)[1]
    return mean, second


def _squares(model: Model, probabilities: Array) -> Derivatives:
    """Derivatives whose *second* moments are those of rows drawn with these probabilities: each row
    counts the square root of its factor.
    """
    return derivatives_of(model.reweighted(np.sqrt(factors(probabilities))))


def factors(probabilities: Array) -> Array:
    """1/(N p_n): how much each row counts in a minibatch."""
    return 1.0 / (probabilities.size * probabilities)
