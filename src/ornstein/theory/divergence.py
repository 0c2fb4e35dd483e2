"""Distances between Gaussians, and how far an ideal chain of finite length must appear from its own
law.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from ornstein.errors import InputError
from ornstein.theory.matrices import Array
from ornstein.theory.modes import as_matrix
from ornstein.theory.stationary import Process


@dataclass(frozen=True)
class Gaussian:
    """A normal law; the covariance may be its diagonal.

    >>> round(kl(Gaussian([0.0], [[2.0]]), Gaussian([0.0], [[1.0]])), 6)
    0.153426
    """

    mean: Array
    covariance: Array

    def __post_init__(self) -> None:
        mean, covariance = (
            np.asarray(self.mean, dtype=float),
            np.asarray(self.covariance, dtype=float),
        )
        if mean.ndim != 1 or covariance.shape not in {(mean.size,), (mean.size, mean.size)}:
            raise InputError(
                f"a mean of shape {mean.shape} does not fit a covariance of shape"
                f" {covariance.shape}"
            )
        if not np.all(np.isfinite(mean)) or not np.all(np.isfinite(covariance)):
            raise InputError("the mean or covariance holds a value that is not finite")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)

    @property
    def standard_deviation(self) -> Array:
        variance = self.covariance if self.covariance.ndim == 1 else np.diagonal(self.covariance)
        return np.sqrt(variance)


def kl(q: Gaussian, p: Gaussian) -> float:
    """KL(q‖p) = ½[tr(P⁻¹Q) − log|P⁻¹Q| − D + (m_q−m_p)ᵀP⁻¹(m_q−m_p)], in nats; infinite where q or
    p is degenerate.
    """
    if q.mean.shape != p.mean.shape:
        raise InputError(
            f"the laws have {q.mean.size} and {p.mean.size} dimensions: there is no distance"
            " between them"
        )
    shift = q.mean - p.mean
    if q.covariance.ndim == 1 and p.covariance.ndim == 1:
        if np.any(q.covariance <= 0.0) or np.any(p.covariance <= 0.0):
            return float("inf")
        ratio = q.covariance / p.covariance
        return float(0.5 * np.sum(ratio - 1.0 - np.log(ratio) + shift**2 / p.covariance))
    size = q.mean.size
    try:
        lower_p = np.linalg.cholesky(as_matrix(p.covariance, size))
        lower_q = np.linalg.cholesky(as_matrix(q.covariance, size))
    except np.linalg.LinAlgError:
        return float("inf")
    ratio = scipy.linalg.solve_triangular(lower_p, lower_q, lower=True)
    moved = scipy.linalg.solve_triangular(lower_p, shift, lower=True)
    log_determinant = 2.0 * float(np.sum(np.log(np.diagonal(ratio))))
    return float(0.5 * (np.sum(ratio**2) - log_determinant - size + moved @ moved))


def kl_covariance(q: ArrayLike, p: ArrayLike) -> float:
    """KL between centred Gaussians of covariances q and p."""
    q, p = np.asarray(q, dtype=float), np.asarray(p, dtype=float)
    zero = np.zeros(q.shape[0])
    return kl(Gaussian(zero, q), Gaussian(zero, p))


def _lags(process: Process) -> Iterator[tuple[int, float]]:
    """Lags and weights whose weighted sum stands for the sum over all integers.

    Every lag where a relaxation time holds few draws; every s-th, by the trapezoid rule, where it
    holds more than 100.
    """
    relaxation = process.modes.relaxation_time / process.spacing
    stride = max(1, int(relaxation / 100.0))
    yield 0, float(stride)
    for lag in range(stride, int(40.0 * relaxation) + 3 * stride, stride):
        yield lag, 2.0 * stride


def monte_carlo_floor(process: Process, draws: int) -> float:
    """Expected KL between the law and the Gaussian fitted to `draws` of its draws, of one chain or
    of several joined.

    (1/2n) Σ_j tr G_j + (1/4n) Σ_j [tr(G_j)² + tr(G_j²)] over all lags j, G_j the whitened
    autocovariance. For iterates without momentum G_j is similar to diag(r_i^|j|), r_i =
    (1−e_i)^spacing, and the sums are geometric.
    """
    modes = process.modes
    if process.window == 1 and modes.damping == 1.0:
        ratio = (1.0 - modes.rates) ** process.spacing
        mean_part = np.sum((1.0 + ratio) / (1.0 - ratio))
        pairs = np.multiply.outer(ratio, ratio) if modes.basis.ndim == 2 else ratio**2
        both = np.sum((1.0 + pairs) / (1.0 - pairs)) + np.sum((1.0 + ratio**2) / (1.0 - ratio**2))
        return float(mean_part / (2.0 * draws) + both / (4.0 * draws))
    lower = np.linalg.cholesky(as_matrix(process.covariance(), modes.dimension))
    total = 0.0
    for lag, weight in _lags(process):
        autocovariance = as_matrix(process.autocovariance(lag), modes.dimension)
        half = scipy.linalg.solve_triangular(lower, autocovariance, lower=True)
        whitened = scipy.linalg.solve_triangular(lower, half.T, lower=True).T
        trace = float(np.trace(whitened))
        total += weight * (trace / 2.0 + (trace**2 + float(np.sum(whitened * whitened.T))) / 4.0)
        if np.linalg.norm(whitened) < 1e-8:
            break
    return total / draws


def _summed_products(process: Process) -> Array:
    """The sum over lags where Γ(j) = T diag(r^|j|) Y Tᵀ, Y the covariance of the modes: Σ_j (r_k
    r_l)^|j| is known for each pair.
    """
    modes, size = process.modes, process.modes.dimension
    ratio = (1.0 - modes.rates) ** process.spacing
    pairs = np.multiply.outer(ratio, ratio)
    summed = (1.0 + pairs) / (1.0 - pairs)
    basis = as_matrix(modes.basis, size)
    carried = as_matrix(process.stationary, size) @ basis.T
    variances = basis * carried.T
    total = variances @ summed @ variances.T
    for column in range(size):
        # Σ_kl summed_kl T_ak (YTᵀ)_kb T_bl (YTᵀ)_la for this b and all a
        inner = (summed * basis[column]) @ carried
        total[:, column] += np.sum(basis * (carried[:, column, None] * inner).T, axis=1)
    return np.asarray(np.maximum(total, 0.0))


def covariance_standard_error(process: Process, draws: int) -> Array:
    """Monte-Carlo standard error of every entry of the sample covariance of `draws` stationary
    Gaussian draws.

    Var S_ab = (1/n) Σ_j [Γ_aa(j)Γ_bb(j) + Γ_ab(j)Γ_ba(j)] over all lags j; geometric sums for
    iterates without momentum.
    """
    if process.window == 1 and process.scale is None and process.modes.damping == 1.0:
        return np.asarray(np.sqrt(_summed_products(process) / draws))
    total = np.zeros((process.modes.dimension,) * 2)
    for lag, weight in _lags(process):
        gamma = as_matrix(process.autocovariance(lag), process.modes.dimension)
        variances = np.diagonal(gamma)
        term = np.multiply.outer(variances, variances) + gamma * gamma.T
        total += weight * term
        if np.max(np.abs(term)) < 1e-12 * np.max(total):
            break
    return np.sqrt(np.maximum(total, 0.0) / draws)
