"""Stationary covariance, autocovariance and stability of the one recursion that every sampler is.

Units: `noise` is the covariance of the minibatch gradient of the *mean* loss, f·C/S; covariances
are those of θ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import ArrayLike

from ornstein.theory.matrices import Array
from ornstein.theory.modes import Modes, as_matrix, congruence, normal_modes

Response = Callable[[Array], Array]


@dataclass(frozen=True)
class Process:
    """The stationary law of what a sampler delivers: iterates `spacing` apart, or means over
    `window` steps.

    `stationary` is the covariance of single iterates in the modes' coordinates, `scale` the linear
    map applied to what is delivered (None: none).
    """

    modes: Modes
    stationary: Array
    spacing: int = 1
    window: int = 1
    scale: Array | None = None

    def covariance(self) -> Array:
        """Covariance of one delivered draw."""
        return self._deliver(self._window_covariance() if self.window > 1 else self.stationary)

    def autocovariance(self, lag: int) -> Array:
        """Cov(draw(t+lag), draw(t)) for delivered draws."""
        if lag == 0:
            return self.covariance()
        if lag < 0:
            return self.autocovariance(-lag).T
        first = lag * self.spacing - (self.window - 1)
        propagate = np.linalg.matrix_power(self.modes.companion, first)
        if self.window > 1:
            summed = self._geometric()
            propagate = propagate @ summed @ summed / self.window**2
        return self._deliver(self._carry(propagate))

    def _geometric(self) -> Array:
        """Σ_{s<T} Bˢ of the companion matrices."""
        companion, identity = self.modes.companion, np.eye(2)
        power = np.linalg.matrix_power(companion, self.window)
        return np.asarray((identity - power) @ np.linalg.inv(identity - companion))

    def _window_covariance(self) -> Array:
        """(1/T²) Σ_{s,t<T} Γ(t−s): THEORY.md section 5, one companion matrix per mode."""
        steps, identity = self.window, np.eye(2)
        companion = self.modes.companion
        resolvent = np.linalg.inv(identity - companion)
        weights = (steps * identity - companion @ self._geometric()) @ resolvent
        one_sided = self._carry(weights)
        return (one_sided + one_sided.T - steps * self.stationary) / steps**2

    def _carry(self, propagate: Array) -> Array:
        """First row of B applied to (Γ(0), Γ(−1)), with Γ_ij(−1) = (p_j − m p_i) Γ_ij(0)/(1−m²)."""
        memory = 1.0 - self.modes.damping
        middle = 1.0 + memory - self.modes.rates
        if self.stationary.ndim == 1:
            before = middle / (1.0 + memory) * self.stationary
            return propagate[:, 0, 0] * self.stationary + propagate[:, 0, 1] * before
        before = (middle[None, :] - memory * middle[:, None]) / (1.0 - memory**2) * self.stationary
        return propagate[:, 0, 0, None] * self.stationary + propagate[:, 0, 1, None] * before

    def _deliver(self, covariance: Array) -> Array:
        theta = self.modes.to_theta(covariance)
        return theta if self.scale is None else self.mapped(theta, self.scale)

    @staticmethod
    def mapped(covariance: Array, scale: Array) -> Array:
        """Covariance after a linear map given as a scalar, a diagonal or a matrix."""
        return congruence(
            np.broadcast_to(scale, covariance.shape[:1]) if scale.ndim < 2 else scale, covariance
        )


def stationary_covariance(
    hessian: ArrayLike,
    noise: ArrayLike,
    preconditioner: ArrayLike,
    *,
    damping: float = 1.0,
    injected: ArrayLike | None = None,
    time: str = "discrete",
) -> Array:
    """Σ of the recursion with constant noise; the discrete solution obeys Σ = MΣMᵀ + H·noise·H + R
    exactly (μ = 1).

    >>> float(stationary_covariance([[1.0]], [[1.0]], 0.5)[0, 0])  # h²/(2h − h²)
    0.33333333333333...
    """
    modes = normal_modes(hessian, preconditioner, damping)
    return modes.to_theta(solve_modes(modes, noise, injected, time))


def solve_modes(
    modes: Modes, noise: ArrayLike, injected: ArrayLike | None = None, time: str = "discrete"
) -> Array:
    """Σ in the modes' coordinates."""
    driven = modes.gradient_noise(noise)
    if injected is not None:
        driven = _add(driven, modes.injected_noise(injected))
    return driven / modes.divisor(time, diagonal=driven.ndim == 1)


def solve_modes_responding(
    modes: Modes,
    noise: ArrayLike,
    response: Response,
    injected: ArrayLike | None = None,
    tolerance: float = 1e-11,
    rounds: int = 2000,
    guess: tuple[Array, Array] | None = None,
) -> Array | None:
    """Σ in the modes' coordinates when the noise is `noise + response(Σ)`, Σ ↦ E[AΣA] − AΣA; None
    if it grows for ever.

    `guess` is a covariance of θ that may be the solution, as that which a sampler was tuned for is,
    and the response to it.

    With Y this Σ, d the divisor and K[Y] = Tᵀ response(TYTᵀ) T, it solves d∘Y − K[Y] = what the
    constant noise adds in a step. K is symmetric, and there is a stationary covariance if and only
    if d − K is positive. Conjugate gradients find it in half as many calls of the response as the
    series Y + K[Y]/d + … takes; where there is none they meet a direction in which d − K is not
    positive.
    """
    start = solve_modes(modes, noise, injected)
    divisor = modes.divisor("discrete", diagonal=start.ndim == 1)
    enough = tolerance**2 * float(np.sum(divisor * start * start))
    if guess is not None and start.ndim == 2:
        guessed, called_forth = (
            modes.injected_noise(guess[0]),
            modes.gradient_noise(guess[1]) / divisor,
        )
        error = start + called_forth - guessed
        if float(np.sum(divisor * error * error)) <= enough and _carries_less(
            guessed, called_forth
        ):
            return guessed
    solution, residual = start, modes.gradient_noise(response(modes.to_theta(start)))
    if residual.ndim > start.ndim:
        return solve_modes_responding(
            modes, as_matrix(noise, modes.dimension), response, injected, tolerance, rounds
        )
    direction, size = residual / divisor, float(np.sum(residual * residual / divisor))
    for _ in range(rounds):
        if size <= enough:
            return solution
        image = divisor * direction - modes.gradient_noise(response(modes.to_theta(direction)))
        along = float(np.sum(direction * image))
        if not along > 0.0:  # also where it is not a number
            return None
        solution = solution + (size / along) * direction
        residual = residual - (size / along) * image
        previous, size = size, float(np.sum(residual * residual / divisor))
        direction = residual / divisor + (size / previous) * direction
    return None


def _carries_less(covariance: Array, called_forth: Array) -> bool:
    """Whether Y > 0 and Y > K[Y]/d, which proves that the series Y + K[Y]/d + … ends.

    K/d carries covariances into covariances, so that K[Y]/d ≤ (1−ε)Y for some ε > 0, and again and
    again.
    """
    try:
        for matrix in (covariance, covariance - called_forth):
            np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def mean_square_bound(
    modes: Modes, response: Response | None, rounds: int = 60, tolerance: float = 1e-4
) -> float:
    """The largest factor on H that leaves a stationary covariance.

    Without a response that is 2(2−μ)/λ_max(HA). With one it is the factor c at which a positive Σ
    carries itself: the noise that Σ calls forth, under the step cH, has Σ again as its stationary
    covariance. Found by power iteration, each round with the c that keeps the size of Σ; one call
    of the response per round.
    """
    plain = 2.0 * (2.0 - modes.damping) / float(np.max(modes.rates))
    if response is None:
        return plain
    state = np.eye(modes.dimension) if modes.basis.ndim == 2 else np.ones(modes.dimension)
    bound = plain
    for _ in range(rounds):
        driven = modes.gradient_noise(response(modes.to_theta(state / np.linalg.norm(state))))
        previous, bound = bound, _self_carrying_factor(modes, driven, plain)
        if bound == plain or abs(bound - previous) <= tolerance * bound:
            break
        state = _answer(modes, driven, bound)
    return bound


def _answer(modes: Modes, driven: Array, factor: float) -> Array:
    """Stationary covariance (in the coordinates of H) under the step `factor`·H of gradient noise
    `driven`.
    """
    scaled = replace(modes, rates=factor * modes.rates)
    return factor**2 * driven / scaled.divisor("discrete", diagonal=driven.ndim == 1)


def _self_carrying_factor(modes: Modes, driven: Array, plain: float) -> float:
    """The factor, below the plain bound, at which the answer to `driven` has norm one."""

    def excess(factor: float) -> float:
        return float(np.linalg.norm(_answer(modes, driven, factor))) - 1.0

    highest = plain * (1.0 - 1e-12)
    if excess(highest) <= 0.0:
        return plain
    lowest = plain / 2.0
    while excess(lowest) > 0.0:
        lowest /= 2.0
    return float(scipy.optimize.brentq(excess, lowest, highest, rtol=1e-12))


def _add(left: Array, right: Array) -> Array:
    if left.ndim == right.ndim:
        return left + right
    dimension = left.shape[0]
    return as_matrix(left, dimension) + as_matrix(right, dimension)
