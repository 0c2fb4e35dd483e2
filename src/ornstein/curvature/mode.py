"""The search for the mode: the maximum of the posterior density, by Newton's method or L-BFGS in
float64.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from ornstein.checks import FULL_LIMIT
from ornstein.curvature.derivatives import Derivatives
from ornstein.errors import ApproximationWarning, CurvatureError
from ornstein.model.model import Model
from ornstein.types import Array

# A part of the rows that shows where the mode of all of them is about, and how the loss is curved
# there: so many rows, and so many for each parameter. Second derivatives of all rows must be dear,
# and the part a small one, for that to be worth it.
PART_ROWS, PART_ROWS_PER_PARAMETER, PART_OF = 2**14, 50, 8
DEAR = 2**32  # products of two numbers in a pass
# posterior standard deviations from the mode: where Newton's method follows, and where it does not
NEAR, CLOSE = 0.1, 1e-5
SETTLED = 1e-16
# a step that brings the squared distance down so far is followed by one with the same second
# derivatives
GOOD_STEP = 100.0


def find_mode(
    model: Model, derivatives: Derivatives, hessian: Callable[[Array], Array] | None
) -> Array:
    """θ where the gradient of the mean loss vanishes; `hessian` is that of `derivatives` where all
    of it can be held.

    It is last asked for at the mode.
    """
    loss = _loss(model, derivatives)
    value, slope = loss(model.init)
    if not np.isfinite(value) or not np.all(np.isfinite(slope)):
        raise CurvatureError(
            "the loss or its gradient is not finite at init: choose another starting point"
        )
    near = _near_mode(model, derivatives, loss, value, CLOSE if hessian is None else NEAR)
    if hessian is not None:
        return _newton(loss, _curved(model, hessian), near, model.n_data)
    found = scipy.optimize.minimize(
        loss,
        near,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-7},
    )
    if not np.all(np.isfinite(found.x)):
        raise CurvatureError("the search for the mode left the finite numbers")
    if found.status == 1:
        warnings.warn(
            f"the search for the mode ended after {found.nit} iterations with a gradient of"
            f" {np.max(np.abs(found.jac)):.2g}: give a better init, or the mode itself"
            " (measure(model, mode=…))",
            ApproximationWarning,
            stacklevel=4,
        )
    return np.asarray(found.x)


def _loss(model: Model, derivatives: Derivatives) -> Callable[[Array], tuple[float, Array]]:
    """The mean loss, prior included, and its gradient."""

    def value_and_gradient(theta: Array) -> tuple[float, Array]:
        value, slope = derivatives.value_and_gradient(theta)
        prior_value, prior_slope = model.scaled_prior(theta)
        return value + prior_value, slope + prior_slope

    return value_and_gradient


def _curved(model: Model, hessian: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda theta: hessian(theta) + model.scaled_prior_hessian(theta)


def _near_mode(
    model: Model,
    derivatives: Derivatives,
    loss: Callable[[Array], tuple[float, Array]],
    at_init: float,
    deviations: float,
) -> Array:
    """`init`, or, where rows are many, a place closer by: the mode of a part of them, then some
    gradients of all of them.

    They end so many posterior standard deviations from the mode, about.

    The part's curvature makes the loss round, so that a dozen gradients do for what would take
    hundreds, or several times all second derivatives.
    """
    rows = max(PART_ROWS, PART_ROWS_PER_PARAMETER * model.dim)
    worth_it = (
        model.n_data >= PART_OF * rows
        and model.n_data * model.dim**2 >= DEAR
        and model.dim <= FULL_LIMIT
    )
    some = np.unique(np.random.default_rng(0).integers(0, model.n_data, rows)) if worth_it else None
    part = None if some is None else derivatives.part(some)
    if part is None:
        return model.init
    try:
        centre = _newton(_loss(model, part), _curved(model, part.hessian), model.init, model.n_data)
    except CurvatureError:  # a part may have no mode where all rows have one
        return model.init
    round_ = _Lifted.of(_curved(model, part.hessian)(centre)).rounding()

    def rounded(place: Array) -> tuple[float, Array]:
        value, slope = loss(centre + round_ @ place)
        return value, round_.T @ slope

    found = scipy.optimize.minimize(
        rounded,
        np.zeros(model.dim),
        jac=True,
        method="L-BFGS-B",
        # A slope of 1/√N in these coordinates is a posterior standard deviation away.
        options={"maxiter": 50, "ftol": 0.0, "gtol": deviations / float(np.sqrt(model.n_data))},
    )
    return (
        centre + round_ @ found.x if np.isfinite(found.fun) and found.fun <= at_init else model.init
    )


# a trial that overflows is a trial that is not taken
@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def _newton(
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
    first = curved = _curved_at(hessian, theta)
    previous, fresh = np.inf, True
    for _ in range(rounds):
        step = curved.solve(slope)
        distance = n_data * float(slope @ step)
        if not fresh and (distance <= SETTLED / 10.0 or distance > previous / GOOD_STEP):
            curved, fresh = _curved_at(hessian, theta), True
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
                raise CurvatureError(
                    "the search for the mode is stuck: no step along the Newton direction lowers"
                    " the loss. The posterior may have no maximum (separable classes with a flat"
                    " prior): give the prior a precision, or another init"
                )
        theta, value, slope = trial, trial_value, trial_slope
        if np.max(np.abs(theta)) > 1e12:
            break
    raise CurvatureError(
        f"no mode was found: after {rounds} Newton steps the parameters have moved to"
        f" {np.max(np.abs(theta)):.2g} and the loss still falls. The posterior may have no maximum"
        " (separable classes with a flat prior): give the prior a positive precision"
    )


def _curved_at(hessian: Callable[[Array], Array], theta: Array) -> _Lifted:
    matrix = hessian(theta)
    if not np.all(np.isfinite(matrix)):
        raise CurvatureError(
            "the second derivatives of the loss are not finite where the search for the mode has"
            f" come to, at parameters of up to {np.max(np.abs(theta)):.2g}: bring the columns of"
            " the data to a common scale, or give an init nearer the mode"
        )
    return _Lifted.of(matrix)


@dataclass(frozen=True)
class _Lifted:
    """A matrix, scaled to a diagonal of ones, by its eigenvectors and its eigenvalues, made
    positive.
    """

    scale: Array
    values: Array
    vectors: Array

    @classmethod
    def of(cls, matrix: Array) -> _Lifted:
        scale = np.sqrt(np.maximum(np.abs(np.diagonal(matrix)), 1e-300))
        scaled = matrix / np.multiply.outer(scale, scale)
        if not np.all(np.isfinite(scaled)):  # zeros on the diagonal beside large numbers
            least = 1e-16 * float(np.max(np.abs(matrix)))
            scale = np.sqrt(np.maximum(np.abs(np.diagonal(matrix)), least))
            scaled = matrix / np.multiply.outer(scale, scale)
        values, vectors = np.linalg.eigh(scaled)
        return cls(
            scale, np.maximum(np.abs(values), 1e-10 * max(float(values[-1]), 1e-300)), vectors
        )

    def solve(self, slope: Array) -> Array:
        return self.vectors @ ((self.vectors.T @ (slope / self.scale)) / self.values) / self.scale

    def rounding(self) -> Array:
        """W with WᵀAW = I."""
        return self.vectors / np.sqrt(self.values) / self.scale[:, None]
