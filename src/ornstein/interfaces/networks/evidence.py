"""The precision of a last layer's prior, chosen by the Laplace evidence.

log p(y | λ) ≈ log p(y, θ̂ | λ) + (D/2) log 2π − ½ log|N A|, maximised over log λ. The mode at one λ
starts at the mode of the last, and is found by Newton steps that keep the Hessian they have: their
price is that of gradients. The Hessian is taken once at each mode, for the determinant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
import scipy.optimize

from ornstein.compute.one_thread import one_thread
from ornstein.curvature.derivatives import BatchedDerivatives, derivatives_of
from ornstein.errors import CurvatureError
from ornstein.model.regression import GLM
from ornstein.types import Array

# log λ in units of the features' mean square: predictors of a feature's share between 0.01 and 100.
WIDEST = 9.2
NEAR = 0.05  # of log λ: the evidence is flat there
EXACT = 1e-8  # squared distance to the mode, in posterior standard deviations
MOST_STEPS = 200
# A step that leaves more of the distance than this asks for a new Hessian.
CONTRACTION = 0.2


@dataclass(frozen=True, eq=False)
class Chosen:
    """The model at the best precision, its mode and log evidence, and whether the evidence was
    still rising at the end of the range.
    """

    model: GLM
    precision: float
    mode: Array
    log_evidence: float
    at_the_end: bool


@one_thread()
def by_evidence(model: GLM, at: Callable[[float], GLM], unit: float) -> Chosen:
    """The precision with the largest evidence; `at` is the model at a precision."""
    search = _Search(model, at, unit)
    scipy.optimize.minimize_scalar(
        search.loss, bounds=(-WIDEST, WIDEST), method="bounded", options={"xatol": NEAR}
    )
    best = max(search.known, key=lambda place: search.known[place][0])
    value, mode = search.known[best]
    precision = float(unit * np.exp(best))
    return Chosen(at(precision), precision, mode, value, abs(best) > WIDEST - 0.5)


def mode_of(model: GLM) -> Array:
    """The mode at the precision that the model has."""
    return _Search(model, lambda _: model, 1.0).mode(model)[0]


@dataclass(eq=False)
class _Search:
    """One regression at many precisions: what is known is where the next search begins."""

    model: GLM
    at: Callable[[float], GLM]
    unit: float
    known: dict[float, tuple[float, Array]] = field(default_factory=dict)
    hessian: Array | None = None  # of the data, at the last mode
    derivatives: BatchedDerivatives = field(init=False)

    def __post_init__(self) -> None:
        self.derivatives = derivatives_of(self.model)

    def loss(self, place: float) -> float:
        """Less the log evidence at λ = unit·exp(place)."""
        model = self.at(float(self.unit * np.exp(place)))
        near = min(self.known, key=lambda other: abs(other - place), default=None)
        start = None if near is None else self.known[near][1]
        theta, value = self.mode(model, start)
        self.hessian = self.derivatives.hessian(theta)
        _, log_determinant = np.linalg.slogdet(self.hessian + model.scaled_prior_hessian(theta))
        count, size = model.n_data, model.dim
        evidence = -count * value + 0.5 * size * np.log(2.0 * np.pi / count) - 0.5 * log_determinant
        self.known[float(place)] = float(evidence), theta
        return -float(evidence)

    def mode(self, model: GLM, start: Array | None = None) -> tuple[Array, float]:
        """Where the density is largest, and the mean loss there."""
        theta = np.array(model.init if start is None else start)
        if self.hessian is None:
            self.hessian = self.derivatives.hessian(theta)
        solve = _solver(self.hessian + model.scaled_prior_hessian(theta))
        value, slope = self._value_and_slope(model, theta)
        previous = np.inf
        for _ in range(MOST_STEPS):
            step = -solve(slope)
            distance = -model.n_data * float(slope @ step)
            if distance <= EXACT:
                return theta, value
            if not distance < CONTRACTION * previous and np.isfinite(previous):
                self.hessian = self.derivatives.hessian(theta)
                solve = _solver(self.hessian + model.scaled_prior_hessian(theta))
                previous = np.inf
                continue
            theta, value, slope, whole = self._moved(model, theta, step, value, slope)
            previous = distance if whole else 0.0
        raise CurvatureError("the search for the mode of the last layer did not settle")

    def _value_and_slope(self, model: GLM, theta: Array) -> tuple[float, Array]:
        value, slope = self.derivatives.value_and_gradient(theta)
        prior, prior_slope = model.scaled_prior(theta)
        return value + prior, slope + prior_slope

    def _moved(
        self, model: GLM, theta: Array, step: Array, value: float, slope: Array
    ) -> tuple[Array, float, Array, bool]:
        """A step that lowers the loss, halved until it does, and whether it was a whole one."""
        expected, share = float(slope @ step), 1.0
        while share > 1e-8:
            there = theta + share * step
            found, found_slope = self._value_and_slope(model, there)
            if found <= value + 1e-4 * share * expected + 1e-15 * abs(value):
                return there, found, found_slope, share == 1.0
            share /= 2.0
        raise CurvatureError(
            "the search for the mode of the last layer found no step that improves it"
        )


def _solver(hessian: Array) -> Callable[[Array], Array]:
    """Solutions of linear systems; where the matrix is not positive its eigenvalues are taken as
    if they were.
    """
    try:
        factor = scipy.linalg.cho_factor(hessian)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(hessian)
        size = np.maximum(np.abs(values), 1e-10 * np.abs(values).max())
        return lambda vector: vectors @ ((vectors.T @ vector) / size)
    return lambda vector: np.asarray(scipy.linalg.cho_solve(factor, vector))
