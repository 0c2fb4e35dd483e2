"""The search for the mode: the maximum of the posterior density, by Newton's method or L-BFGS in
float64.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from ornstein.checks import FULL_LIMIT
from ornstein.curvature.derivatives import Derivatives
from ornstein.curvature.kink import is_kink, kink_at, kink_below
from ornstein.curvature.newton import Lifted, curved_at, newton
from ornstein.errors import ApproximationWarning, CurvatureError, ModeError
from ornstein.model.model import Model
from ornstein.streams import Purpose, stream
from ornstein.types import Array

# A part of the rows that shows where the mode of all of them is about, and how the loss is curved
# there: its rows, and rows for each parameter. Second derivatives of all rows must be expensive,
# and the part a small one, for that to be worth it.
PART_ROWS, PART_ROWS_PER_PARAMETER, PART_OF = 2**14, 50, 8
EXPENSIVE = 2**32  # products of two numbers in a pass
# posterior standard deviations from the mode: where Newton's method follows, and where it does not
NEAR, CLOSE = 0.1, 1e-5
# starts at most, and how many of them may find a density that grows without bound
STARTS, ENDLESS = 4, 2
WIDEST = 2.0  # of starts about init: as far as NumPyro's init_to_uniform goes
SADDLES = 10  # left behind in one search
SINGULAR = 1e-12  # the least eigenvalue, of second derivatives with a diagonal of ones, that counts


def find_mode(
    model: Model,
    derivatives: Derivatives,
    hessian: Callable[[Array], Array] | None,
    seed: int = 0,
) -> Array:
    """θ where the gradient of the mean loss vanishes; `hessian` is that of `derivatives` where all
    of it can be held.

    It is last asked for at the mode. Where the search from `init` ends without a mode (a gradient
    that is not defined there, a saddle that is flat, a density that grows without bound) it begins
    again elsewhere; predictors that are linear have one mode at most, and `init` is as good a
    start as any.
    """
    search = _Search(model, derivatives, hessian, seed)
    failures: list[ModeError] = []
    flat: list[Array] = []
    for number in range(1 if model.one_valley else STARTS):
        start = model.init if number == 0 else _elsewhere(model, seed, number)
        try:
            found, settled = search.begun_at(start)
        except ModeError as error:
            failures.append(error)
            endless = sum(failure.kind == "no-maximum" for failure in failures) == ENDLESS
            # at the start itself the gradient may be a wrong one, of a function not written for it
            kinked = error.kind == "kink" and not np.array_equal(np.asarray(error.place), start)
            if endless or kinked:
                break
            continue
        if settled:
            return found
        flat.append(found)
    if flat:
        search.look_again(flat[0])
        return flat[0]
    telling = ("kink", "no-maximum", "not finite")
    raise min(failures, key=lambda failure: telling.index(failure.kind))


def _elsewhere(model: Model, seed: int, number: int) -> Array:
    """A draw from the prior where it is Gaussian and not too wide; elsewhere one about `init`."""
    normal = stream(seed, Purpose.MODE, number).standard_normal(model.dim)
    prior = model.prior_hessian(model.init)
    precision = np.diagonal(prior) if prior.ndim == 2 else prior
    slope = model.n_data * model.scaled_prior(model.init)[1]
    known = np.isfinite(precision) & np.isfinite(slope) & (precision > 0)
    precision = np.where(known, precision, 1.0)
    centre = model.init - np.where(known, slope / precision, 0.0)
    return np.asarray(centre + np.minimum(1.0 / np.sqrt(precision), WIDEST) * normal)


@dataclass(frozen=True)
class _Search:
    """The search for the mode of one model, from any start."""

    model: Model
    derivatives: Derivatives
    hessian: Callable[[Array], Array] | None
    seed: int

    @cached_property
    def loss(self) -> Callable[[Array], tuple[float, Array]]:
        return _loss(self.model, self.derivatives)

    @cached_property
    def curved(self) -> Callable[[Array], Array]:
        assert self.hessian is not None
        return _curved(self.model, self.hessian)

    def begun_at(self, start: Array) -> tuple[Array, bool]:
        """A point where the gradient vanishes, and whether the loss is curved upwards there."""
        value, slope = self.loss(start)
        if not np.isfinite(value) or not np.all(np.isfinite(slope)):
            raise ModeError(
                "the loss or its gradient is not finite at init: choose another starting point",
                kind="not finite",
                place=start,
            )
        deviations = CLOSE if self.hessian is None else NEAR
        near = _near_mode(self.model, self.derivatives, self.loss, start, value, deviations)
        if self.hessian is None:
            found = _limited_memory(self.loss, near)
            return found, bool(np.any(slope) or np.any(found != start))
        try:
            return self._curved_upwards(near)
        except ModeError as error:
            kinked = self._kink_near(start, error)
            raise error if kinked is None else kinked from error

    def _curved_upwards(self, near: Array) -> tuple[Array, bool]:
        """Newton's method, and on from every saddle it finds, down the direction curved the most
        downwards.
        """
        for _ in range(SADDLES):
            found = newton(self.loss, self.curved, near, self.model.n_data)
            lifted = curved_at(self.curved, found)
            if lifted.least >= -SINGULAR:
                break
            lower = _downhill(self.loss, found, lifted)
            if lower is None:
                break
            near = lower
        settled = lifted.least > SINGULAR
        if settled and is_kink(self.loss, self.curved, found, lifted, self.model.n_data, self.seed):
            raise kink_at(found)
        return found, settled or self.model.one_valley

    def look_again(self, found: Array) -> None:
        """Ask for the Hessian at a point, which is then the last that was asked for."""
        if self.hessian is not None:
            self.hessian(found)

    def _kink_near(self, start: Array, error: ModeError) -> ModeError | None:
        """The error for a kink, where that is what stopped the search."""
        place = np.asarray(error.place)
        if not np.all(np.isfinite(place)):
            return None
        return kink_below(self.loss, self.curved, start, place, self.model.n_data, self.seed)


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def _downhill(
    loss: Callable[[Array], tuple[float, Array]], saddle: Array, lifted: Lifted
) -> Array | None:
    """The lower of the first points on both sides of a saddle where the loss has fallen as its
    second derivatives say; None where it does not.
    """
    value, direction = loss(saddle)[0], lifted.direction
    found: list[tuple[float, Array]] = []
    for side in (1.0, -1.0):
        for length in 4.0 ** -np.arange(12.0):
            point = saddle + side * length * direction
            there = loss(point)[0]
            if np.isfinite(there) and there < value + 0.1 * length**2 * lifted.least:
                found.append((there, point))
                break
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _limited_memory(loss: Callable[[Array], tuple[float, Array]], near: Array) -> Array:
    """L-BFGS, where the second derivatives are too many to hold."""
    found = scipy.optimize.minimize(
        loss,
        near,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-7},
    )
    if not np.all(np.isfinite(found.x)):
        raise ModeError(
            "the search for the mode reached non-finite values", kind="not finite", place=near
        )
    if found.status == 1:
        warnings.warn(
            f"the search for the mode ended after {found.nit} iterations with a gradient of"
            f" {np.max(np.abs(found.jac)):.2g}: give a better init, or the mode itself"
            " (measure(model, mode=…))",
            ApproximationWarning,
            stacklevel=6,
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
    start: Array,
    at_start: float,
    deviations: float,
) -> Array:
    """`start`, or, where rows are many, a place closer by: the mode of a part of them, then some
    gradients of all of them.

    They end about `deviations` posterior standard deviations from the mode.

    The part's curvature makes the loss round, so that a dozen gradients do for what would take
    hundreds, or several times all second derivatives.
    """
    rows = max(PART_ROWS, PART_ROWS_PER_PARAMETER * model.dim)
    worth_it = (
        model.n_data >= PART_OF * rows
        and model.n_data * model.dim**2 >= EXPENSIVE
        and model.dim <= FULL_LIMIT
    )
    some = np.unique(np.random.default_rng(0).integers(0, model.n_data, rows)) if worth_it else None
    part = None if some is None else derivatives.part(some)
    if part is None:
        return start
    try:
        centre = newton(_loss(model, part), _curved(model, part.hessian), start, model.n_data)
    except CurvatureError:  # a part may have no mode where all rows have one
        return start
    round_ = Lifted.of(_curved(model, part.hessian)(centre)).rounding()

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
    return centre + round_ @ found.x if np.isfinite(found.fun) and found.fun <= at_start else start
