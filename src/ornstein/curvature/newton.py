"""Damped Newton on a loss of which all second derivatives can be held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ornstein.errors import ModeError
from ornstein.types import Array

SETTLED = 1e-16
# a step that brings the squared distance down so far is followed by one with the same second
# derivatives
GOOD_STEP = 100.0


# a trial that overflows is a trial that is not taken
@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def newton(
    value_and_gradient: Callable[[Array], tuple[float, Array]],
    hessian: Callable[[Array], Array],
    start: Array,
    n_data: int,
    rounds: int = 100,
) -> Array:
    """Damped Newton: the Hessian is lifted where it is not positive, the step halved until the loss
    falls.

    A Hessian serves as long as steps with it are good ones; the mode's own is the last.

    N·gᵀA⁻¹g is the squared distance to the mode in posterior standard deviations: the search ends
    where it is below SETTLED, or below 1e-8 and no longer falling, which is where rounding has
    taken over. Where there is no mode (separable classes) the curvature vanishes as fast as the
    slope, and that distance with it, but the steps do not grow shorter: such a place is none.
    """
    theta = start.astype(float)
    value, slope = value_and_gradient(theta)
    first = curved = curved_at(hessian, theta)
    previous, fresh = np.inf, True
    for _ in range(rounds):
        step = curved.solve(slope)
        distance = n_data * float(slope @ step)
        if not fresh and (distance <= SETTLED / 10.0 or distance > previous / GOOD_STEP):
            curved, fresh = curved_at(hessian, theta), True
            step = curved.solve(slope)
            distance = n_data * float(slope @ step)
        settled = fresh and (
            distance <= SETTLED or (distance <= 1e-8 and distance > previous / 4.0)
        )
        vanished = curved.scale**2 < 1e-6 * first.scale**2
        striding = np.abs(step) > 1e-3 * np.maximum(np.abs(theta), np.abs(start))
        if settled and not np.any(vanished & striding):
            return theta
        previous, fresh, decrease = distance, False, distance / n_data
        scale = 1.0
        while True:
            trial = theta - scale * step
            trial_value, trial_slope = value_and_gradient(trial)
            if np.isfinite(
                trial_value
            ) and trial_value <= value - 1e-4 * scale * decrease + 1e-15 * abs(value):
                break
            scale /= 2.0
            if scale < 1e-10:
                raise ModeError(
                    "the search for the mode is stuck: no step along the Newton direction lowers"
                    " the loss. The posterior may have no maximum (separable classes with a flat"
                    " prior, a variance that tends to zero): give the prior a precision, or another"
                    " init, or use NUTS (orn.nuts)",
                    kind="no-maximum",
                    place=theta,
                )
        theta, value, slope = trial, trial_value, trial_slope
        if np.max(np.abs(theta)) > 1e12:
            break
    raise ModeError(
        f"no mode was found: after {rounds} Newton steps the parameters have moved to"
        f" {np.max(np.abs(theta)):.2g} and the loss still falls. The posterior may have no maximum"
        " (separable classes with a flat prior, a variance that tends to zero): give the prior a"
        " positive precision, or use NUTS (orn.nuts)",
        kind="no-maximum",
        place=theta,
    )


def curved_at(hessian: Callable[[Array], Array], theta: Array) -> Lifted:
    """The second derivatives at a place, refused where they are not finite."""
    matrix = hessian(theta)
    if not np.all(np.isfinite(matrix)):
        raise ModeError(
            "the second derivatives of the loss are not finite where the search for the mode has"
            f" arrived, with parameters up to {np.max(np.abs(theta)):.2g}: bring the columns of"
            " the data to a common scale, or give an init nearer the mode",
            kind="not finite",
            place=theta,
        )
    return Lifted.of(matrix)


@dataclass(frozen=True)
class Lifted:
    """A matrix, scaled to a diagonal of ones, by its eigenvectors and its eigenvalues, made
    positive; `least` is the smallest before that.
    """

    scale: Array
    values: Array
    vectors: Array
    least: float

    @classmethod
    def of(cls, matrix: Array) -> Lifted:
        scale = np.sqrt(np.maximum(np.abs(np.diagonal(matrix)), 1e-300))
        scaled = matrix / np.multiply.outer(scale, scale)
        if not np.all(np.isfinite(scaled)):  # zeros on the diagonal beside large numbers
            least = 1e-16 * float(np.max(np.abs(matrix)))
            scale = np.sqrt(np.maximum(np.abs(np.diagonal(matrix)), least))
            scaled = matrix / np.multiply.outer(scale, scale)
        values, vectors = np.linalg.eigh(scaled)
        lifted = np.maximum(np.abs(values), 1e-10 * max(float(values[-1]), 1e-300))
        return cls(scale, lifted, vectors, float(values[0]))

    @property
    def direction(self) -> Array:
        """That of the smallest eigenvalue, of length one in the scaled coordinates."""
        return self.vectors[:, 0] / self.scale

    def solve(self, slope: Array) -> Array:
        return self.vectors @ ((self.vectors.T @ (slope / self.scale)) / self.values) / self.scale

    def rounding(self) -> Array:
        """W with WᵀAW = I."""
        return self.vectors / np.sqrt(self.values) / self.scale[:, None]
