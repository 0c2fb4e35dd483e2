"""The coordinates in which the linearised recursion falls apart into scalar ones.

With a symmetric positive definite step H and Hessian A, write H = LLᵀ and LᵀAL = U diag(e) Uᵀ. In θ
= T y with T = LU the recursion v' = (1−μ)v − Hĝ + ξ, θ' = θ + v' becomes one second-order
autoregression per coordinate,

    y_i(t+1) = p_i y_i(t) − m y_i(t−1) + noise,     m = 1−μ,   p_i = 1 + m − e_i,

because T⁻¹HA T = diag(e). Gradient noise G enters as TᵀGT, injected noise R as T⁻¹RT⁻ᵀ.

A matrix may be given as a scalar, as its diagonal (D,), or whole (D, D). If all of them are
diagonal nothing is ever formed in D² numbers, so the same functions serve a million parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from ornstein.theory.matrices import Array


def as_diagonal(matrix: ArrayLike, dimension: int) -> Array:
    """A scalar or diagonal as a vector of length D."""
    return np.broadcast_to(np.asarray(matrix, dtype=float), (dimension,))


def as_matrix(matrix: ArrayLike, dimension: int) -> Array:
    """A scalar, diagonal or matrix as a (D, D) matrix."""
    array = np.asarray(matrix, dtype=float)
    if array.ndim == 2:
        return array
    return np.diag(as_diagonal(array, dimension))


def congruence(factor: Array, matrix: ArrayLike) -> Array:
    """FMFᵀ, where either may be diagonal; the result is diagonal only if both are."""
    array = np.asarray(matrix, dtype=float)
    if factor.ndim == 1:
        return np.asarray(factor**2 * array if array.ndim < 2 else factor[:, None] * array * factor)
    return factor @ as_matrix(array, factor.shape[1]) @ factor.T


@dataclass(frozen=True)
class Modes:
    """Rates e_i of HA and the basis T; `companion` is the 2×2 matrix that carries (y(t), y(t−1))
    one step on.
    """

    rates: Array
    basis: Array
    inverse: Array
    damping: float

    @property
    def dimension(self) -> int:
        return self.rates.size

    @property
    def radii(self) -> Array:
        """How fast each mode forgets: like radius^t."""
        memory = 1.0 - self.damping
        middle = 1.0 + memory - self.rates
        discriminant = middle**2 - 4.0 * memory
        real = (np.abs(middle) + np.sqrt(np.maximum(discriminant, 0.0))) / 2.0
        return np.asarray(np.where(discriminant < 0.0, np.sqrt(memory), real))

    @property
    def radius(self) -> float:
        """Spectral radius of the recursion's matrix F."""
        return float(np.max(self.radii))

    @property
    def slowest(self) -> Array:
        """The covector that reads off the mode that forgets last."""
        position = int(np.argmax(self.radii))
        if self.inverse.ndim == 2:
            return np.asarray(self.inverse[position])
        covector = np.zeros(self.dimension)
        covector[position] = self.inverse[position]
        return covector

    @property
    def stable(self) -> bool:
        """Whether the mean forgets its start: 0 < e_i < 2(2−μ) for every mode."""
        return bool(np.all(self.rates > 0.0) and np.all(self.rates < 2.0 * (2.0 - self.damping)))

    @property
    def relaxation_time(self) -> float:
        """τ = −1/log ρ(F), in steps."""
        if not self.stable:
            return float("inf")
        radius = self.radius
        if radius >= 1.0:
            # A rate so small, or so near its bound, that 1 − ρ is lost to rounding: 1 − ρ ≈ e/μ.
            slack = np.minimum(self.rates, 2.0 * (2.0 - self.damping) - self.rates)
            return float(self.damping / max(float(np.min(slack)), 1e-300))
        return 0.0 if radius == 0.0 else float(-1.0 / np.log(radius))

    @property
    def companion(self) -> Array:
        memory = 1.0 - self.damping
        matrices = np.zeros((self.dimension, 2, 2))
        matrices[:, 0, 0] = 1.0 + memory - self.rates
        matrices[:, 0, 1] = -memory
        matrices[:, 1, 0] = 1.0
        return matrices

    def to_theta(self, covariance: Array) -> Array:
        """A covariance of y as one of θ."""
        if covariance.ndim == 1 and self.basis.ndim == 2:
            return (self.basis * covariance) @ self.basis.T
        return congruence(self.basis, covariance)

    def gradient_noise(self, noise: ArrayLike) -> Array:
        """What gradient noise of covariance G adds to y in one step: TᵀGT."""
        return congruence(self.basis.T, noise)

    def injected_noise(self, injected: ArrayLike) -> Array:
        """What injected noise of covariance R adds to y in one step: T⁻¹RT⁻ᵀ."""
        return congruence(self.inverse, injected)

    def divisor(self, time: str, *, diagonal: bool) -> Array:
        """What one step's noise is divided by to give the stationary covariance of y.

        Discrete time: μ(e_i+e_j) − μ e_i e_j/(2−μ) + (1−μ)(e_i−e_j)²/(μ(2−μ)). Continuous time
        drops what vanishes with the step: e_i+e_j without momentum, μ(e_i+e_j) + (e_i−e_j)²/(2μ)
        with it (the paper's momentum equation corrected).
        """
        e, mu = self.rates, self.damping
        left, right = (e, e) if diagonal else (e[:, None], e[None, :])
        if time == "discrete":
            friction = mu * (left + right) - mu * left * right / (2.0 - mu)
            return friction + (1.0 - mu) * (left - right) ** 2 / (mu * (2.0 - mu))
        if time != "continuous":
            raise ValueError(f"time must be 'discrete' or 'continuous', not {time!r}")
        if mu == 1.0:
            return left + right
        return mu * (left + right) + (left - right) ** 2 / (2.0 * mu)


def normal_modes(hessian: ArrayLike, preconditioner: ArrayLike, damping: float = 1.0) -> Modes:
    """The modes of step H on Hessian A.

    >>> normal_modes([1.0, 4.0], 0.1).rates
    array([0.1, 0.4])
    """
    a, h = np.asarray(hessian, dtype=float), np.asarray(preconditioner, dtype=float)
    dimension = a.shape[0]
    if a.ndim == 1 and h.ndim < 2:
        step = as_diagonal(h, dimension)
        root = np.sqrt(step)
        return Modes(step * a, root, 1.0 / root, damping)
    if h.ndim < 2:
        root = np.sqrt(as_diagonal(h, dimension))
        rates, rotation = np.linalg.eigh(congruence(root, as_matrix(a, dimension)))
        return Modes(rates, root[:, None] * rotation, rotation.T / root, damping)
    lower = np.linalg.cholesky(h)
    rates, rotation = np.linalg.eigh(lower.T @ as_matrix(a, dimension) @ lower)
    inverse = rotation.T @ scipy.linalg.solve_triangular(lower, np.eye(dimension), lower=True)
    return Modes(rates, lower @ rotation, inverse, damping)
