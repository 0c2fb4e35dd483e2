"""Step sizes and preconditioners: the paper's theorems (corrected) and the exact discrete-time
tunings.

Everywhere `batch_size` is the effective one, S/f, so that f·C/S is the gradient noise of one step;
`noise` is C, or C + K[Σ] where the noise depends on the spread of θ. Step sizes belong to the mean
loss.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy
import scipy.linalg
from numpy.typing import ArrayLike

from ornstein.theory.divergence import kl_covariance
from ornstein.theory.matrices import Array
from ornstein.theory.modes import Modes, as_matrix, congruence, normal_modes
from ornstein.theory.stationary import stationary_covariance

OBJECTIVES = ("kl_qp", "kl_pq")


def theorem_1_rate(noise: ArrayLike, n_data: int, batch_size: float) -> float:
    """ε* = 2SD/(N tr C): minimises KL(q‖f) in continuous time among scalar rates.

    >>> theorem_1_rate(np.eye(2), n_data=100, batch_size=10)
    0.2
    """
    diagonal = _diagonal(noise)
    return float(2.0 * batch_size * diagonal.size / (n_data * diagonal.sum()))


def theorem_2_preconditioner(noise: ArrayLike, n_data: int, batch_size: float) -> Array:
    """H* = (2S/N) C⁻¹: the posterior is stationary in continuous time. Diverges once (S/N)
    λ_max(C⁻¹A) ≥ 1.
    """
    c = np.asarray(noise, dtype=float)
    return 2.0 * batch_size / n_data * (1.0 / c if c.ndim == 1 else _inverse(c))


def diagonal_corollary(noise: ArrayLike, n_data: int, batch_size: float) -> Array:
    """H_kk = 2S/(N C_kk): the paper's diagonal preconditioner, optimal when C ∝ A and near it
    elsewhere.
    """
    return 2.0 * batch_size / (n_data * _diagonal(noise))


def square_root_shape(noise: ArrayLike) -> Array:
    """G⁻¹ with G = √diag(C): the AdaGrad-like preconditioner of the square-root theorem."""
    return 1.0 / np.sqrt(_diagonal(noise))


def square_root_rate(noise: ArrayLike, n_data: int, batch_size: float) -> float:
    """ε* = 2DS/(N tr(C G⁻¹)) for H = εG⁻¹."""
    diagonal = _diagonal(noise)
    return float(2.0 * diagonal.size * batch_size / (n_data * np.sum(np.sqrt(diagonal))))


def reverse_kl_rate(hessian: ArrayLike, noise: ArrayLike, n_data: int, batch_size: float) -> float:
    """ε* = (S/(ND)) tr(A⁻¹Σ₀⁻¹) with AΣ₀ + Σ₀A = C: minimises KL(f‖q) in continuous time, A and C
    need not commute.
    """
    a = np.asarray(hessian, dtype=float)
    dimension = a.shape[0]
    unit = stationary_covariance(a, noise, 1.0, time="continuous")
    inverse = _inverse(as_matrix(a, dimension)) @ _inverse(as_matrix(unit, dimension))
    return float(batch_size / (n_data * dimension) * np.trace(inverse))


def noise_taken_up(
    hessian: ArrayLike, noise: ArrayLike, n_data: int, batch_size: float, damping: float = 1.0
) -> Array:
    """T = μ/((2−μ)N) A + C/S: of the noise (2μ/N) H that a step H to the posterior must bring,
    drift and gradients bring HTH.
    """
    a, c = np.asarray(hessian, dtype=float), np.asarray(noise, dtype=float)
    if a.ndim and c.ndim and a.ndim != c.ndim:
        a, c = as_matrix(a, a.shape[0]), as_matrix(c, a.shape[0])
    return damping / ((2.0 - damping) * n_data) * a + c / batch_size


def exact_preconditioner(
    hessian: ArrayLike, noise: ArrayLike, n_data: int, batch_size: float, damping: float = 1.0
) -> Array:
    """H = 2μ (μ/(2−μ) A + (N/S) C)⁻¹: the discrete stationary covariance *is* the posterior A⁻¹/N,
    at any step size.

    >>> H = exact_preconditioner(np.eye(1), np.eye(1), n_data=10, batch_size=10)
    >>> round(float(stationary_covariance(np.eye(1), np.eye(1) / 10, H)[0, 0]), 12)
    0.1
    """
    inverse = n_data * noise_taken_up(hessian, noise, n_data, batch_size, damping)
    return 2.0 * damping * (1.0 / inverse if inverse.ndim == 1 else _inverse(inverse))


def sandwich_preconditioner(
    hessian: ArrayLike, n_data: int, batch_size: float, damping: float = 1.0
) -> Array:
    """H = 2μ/(μ/(2−μ) + N/S) A⁻¹: the discrete stationary covariance is the sandwich A⁻¹CA⁻¹/N,
    whatever C.
    """
    a = np.asarray(hessian, dtype=float)
    factor = 2.0 * damping / (damping / (2.0 - damping) + n_data / batch_size)
    return factor * (1.0 / a if a.ndim == 1 else _inverse(a))


def matched_injection(
    hessian: ArrayLike,
    noise: ArrayLike,
    preconditioner: ArrayLike,
    n_data: int,
    batch_size: float,
    damping: float = 1.0,
) -> Array:
    """R = (2μ/N) H − μ/((2−μ)N) HAH − HCH/S: with it any symmetric H has the posterior as its law,
    where R is PSD.
    """
    taken, h = (
        noise_taken_up(hessian, noise, n_data, batch_size, damping),
        np.asarray(preconditioner, dtype=float),
    )
    if h.ndim < 2:
        h = np.broadcast_to(h, taken.shape[:1])
    used = congruence(h, taken)
    if used.ndim == 1:
        return 2.0 * damping / n_data * h - used
    # Products of three matrices are symmetric up to rounding only.
    return as_matrix(2.0 * damping / n_data * h, len(h)) - (used + used.T) / 2.0


def injection_bound(
    hessian: ArrayLike,
    noise: ArrayLike,
    n_data: int,
    batch_size: float,
    damping: float = 1.0,
    *,
    shape: ArrayLike = 1.0,
    drift: bool = True,
) -> float:
    """The largest h for which the matched injection of the step h·`shape` is still a covariance.

    h ≤ (2μ/N)/λ_max(shape·(μ/((2−μ)N) A + C/S)). With `drift=False` the term in A is left out: the
    bound of an injection that makes up for the gradient noise alone, 2μh/N I − h²C/S.

    >>> injection_bound(np.eye(2), np.eye(2), n_data=10, batch_size=5.0)  # 2/(1 + N/S)
    0.666666666666666...
    """
    a = np.asarray(hessian, dtype=float)
    taken = noise_taken_up(a if drift else np.zeros_like(a), noise, n_data, batch_size, damping)
    # The eigenvalues of shape·T are the rates at which a step of this shape would move on the
    # Hessian T.
    largest = float(np.max(normal_modes(taken, shape).rates))
    return float("inf") if largest <= 0.0 else 2.0 * damping / (n_data * largest)


def largest_rate_within(divergence: Callable[[float], float], bound: float, limit: float) -> float:
    """The largest rate up to `bound` whose divergence, growing with the rate, is at most `limit`;
    to 0.1 %, from below.

    >>> round(largest_rate_within(lambda rate: rate**2, bound=10.0, limit=4.0), 2)
    2.0
    """
    low = bound
    while divergence(low) > limit:
        low /= 4.0
        if low < 1e-30 * bound:
            raise ValueError(f"no rate below {bound:.3g} keeps the divergence within {limit:.3g}")
    if low == bound:
        return bound
    high = 4.0 * low
    while high > 1.001 * low:
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if divergence(middle) <= limit else (low, middle)
    return low


def exact_rate(
    hessian: ArrayLike,
    noise: ArrayLike,
    target: ArrayLike,
    batch_size: float,
    *,
    shape: ArrayLike = 1.0,
    damping: float = 1.0,
    injected: ArrayLike | None = None,
    objective: str = "kl_qp",
) -> float:
    """The ε for which H = ε·shape comes closest to `target`, on the exact discrete-time covariance:
    a bounded 1-D search.
    """
    unit = normal_modes(hessian, shape, damping)
    gradient_noise = np.asarray(noise, dtype=float) / batch_size
    bound = 2.0 * (2.0 - damping) / float(np.max(unit.rates))
    driven_once = unit.gradient_noise(gradient_noise)
    injected_once = None if injected is None else unit.injected_noise(injected)

    def divergence(log_rate: float) -> float:
        rate = float(np.exp(log_rate))
        modes = Modes(rate * unit.rates, unit.basis, unit.inverse, damping)
        driven = (
            rate**2 * driven_once
            if injected_once is None
            else rate**2 * driven_once + injected_once
        )
        # The basis is that of the unit step, so noise enters scaled by the rate itself.
        covariance = modes.to_theta(driven / modes.divisor("discrete", diagonal=driven.ndim == 1))
        return _divergence(covariance, target, objective)

    return float(np.exp(_minimise(divergence, np.log(bound))))


def exact_diagonal(
    hessian: ArrayLike,
    noise: ArrayLike,
    target: ArrayLike,
    batch_size: float,
    start: Array,
    *,
    damping: float = 1.0,
    objective: str = "kl_qp",
) -> Array:
    """The diagonal H closest to `target` on the exact discrete-time covariance: BFGS on log h from
    `start`.

    The gradient comes from the adjoint Lyapunov equation, so that one evaluation costs two solves
    whatever D is.
    """
    a, c = np.asarray(hessian, dtype=float), np.asarray(noise, dtype=float) / batch_size
    dimension, memory = a.shape[0], 1.0 - damping
    identity, zero = np.eye(dimension), np.zeros((dimension, dimension))
    if memory == 0.0:
        free, enter, pick = identity, identity, identity
    else:
        free = np.block([[identity, memory * identity], [zero, memory * identity]])
        enter, pick = np.vstack([identity, identity]), np.hstack([identity, zero])
    target_inverse = _inverse(np.asarray(target, dtype=float))

    def objective_and_gradient(log_step: Array) -> tuple[float, Array]:
        step = np.exp(log_step)
        recursion = free - enter @ (step[:, None] * a) @ pick
        if np.max(np.abs(np.linalg.eigvals(recursion))) >= 1.0:
            return 1e12, np.zeros(dimension)
        joint = scipy.linalg.solve_discrete_lyapunov(
            recursion, enter @ congruence(step, c) @ enter.T
        )
        covariance = pick @ joint @ pick.T
        inverse = _inverse(covariance)
        if objective == "kl_qp":
            sensitivity = 0.5 * (target_inverse - inverse)
        else:
            sensitivity = 0.5 * (inverse - inverse @ np.asarray(target, dtype=float) @ inverse)
        adjoint = scipy.linalg.solve_discrete_lyapunov(recursion.T, pick.T @ sensitivity @ pick)
        by_noise = np.diagonal(c @ (step[:, None] * (enter.T @ adjoint @ enter)))
        by_drift = np.diagonal(a @ pick @ joint @ recursion.T @ adjoint @ enter)
        return _divergence(covariance, target, objective), 2.0 * (by_noise - by_drift) * step

    found = scipy.optimize.minimize(
        objective_and_gradient,
        np.log(start),
        jac=True,
        method="BFGS",
        options={"gtol": 1e-8, "maxiter": 500},
    )
    return np.asarray(np.exp(found.x), dtype=float)


def _minimise(function: Callable[[float], float], log_bound: float) -> float:
    """Minimum below the stability bound: a coarse look over 12 decades, then Brent's method around
    the best point.
    """
    grid = log_bound - np.linspace(1e-3, 12.0 * np.log(10.0), 97)
    best = int(np.argmin([function(point) for point in grid]))
    high = grid[best - 1] if best > 0 else log_bound - 1e-12
    low = grid[min(best + 1, grid.size - 1)]
    found = scipy.optimize.minimize_scalar(
        function, bounds=(low, high), method="bounded", options={"xatol": 1e-10}
    )
    return float(found.x)


def _divergence(covariance: ArrayLike, target: ArrayLike, objective: str) -> float:
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {OBJECTIVES}, not {objective!r}")
    return (
        kl_covariance(covariance, target)
        if objective == "kl_qp"
        else kl_covariance(target, covariance)
    )


def _diagonal(matrix: ArrayLike) -> Array:
    array = np.asarray(matrix, dtype=float)
    return array if array.ndim == 1 else np.diagonal(array)


def _inverse(matrix: Array) -> Array:
    """Inverse of a symmetric positive definite matrix, symmetric to the last bit."""
    inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix), np.eye(matrix.shape[0]))
    return np.asarray((inverse + inverse.T) / 2.0, dtype=float)
