"""Curvature at one λ after another where a pass for the Hessian takes seconds: few such passes,
many cheap ones.

The mode is first sought in float32, in coordinates in which the last known Hessian is the identity,
then made exact by Newton steps in float64 that keep the Hessian they have and only ask for the
gradient. The data's share of A and C is measured again where the mode has left the place of the
last measurement: with N δᵀAδ the squared distance in posterior standard deviations, δᵀAδ is the
mean square by which the rows' predictors have moved, and it is this that A and C depend on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from ornstein.curvature.curvature import Curvature
from ornstein.curvature.derivatives import derivatives_of
from ornstein.curvature.measure import measure
from ornstein.errors import CurvatureError
from ornstein.hyper.full_batch import FullBatch
from ornstein.hyper.grid import with_prior_of
from ornstein.model.model import Model
from ornstein.types import Array

STILL_THERE = 1e-5  # δᵀAδ: predictors moved by 0.3 %
EXACT = 1e-6  # squared distance to the mode, in posterior standard deviations
MOST_STEPS, MOST_MEASUREMENTS = 12, 10


@dataclass
class WarmMeasure:
    """What was measured last, and the data on the device; the same model is asked about at many
    hyperparameters.
    """

    full_batch: FullBatch
    known: Curvature | None = None
    mode: Array | None = None

    def at(self, model: Model) -> Curvature:
        """Mode exact; A and C as `measure` gives them, but for what a move of the predictors by 0.3
        % does to them.
        """
        theta = model.init if self.mode is None else self.mode
        for _ in range(MOST_MEASUREMENTS):
            theta = self.full_batch.mode(model, theta, whitening(self._metric(model, theta)))
            if (
                self.known is None
                or _square(self.known.hessian, theta - self.known.mode) > STILL_THERE
            ):
                self.known = measure(model, "full", mode=theta)
            here = with_prior_of(model, self.known)
            found = _polished(model, here, theta)
            if found is not None and _square(here.hessian, found - self.known.mode) <= STILL_THERE:
                self.mode = found
                return replace(here, mode=found)
            theta, self.known = theta if found is None else found, None
        raise CurvatureError(
            "the search for the mode did not settle: give a better init, or the prior a larger"
            " precision"
        )

    def _metric(self, model: Model, theta: Array) -> Array:
        """The Hessian known by now, and that at θ where none is."""
        if self.known is not None:
            return with_prior_of(model, self.known).hessian
        return derivatives_of(model).hessian(theta) + model.scaled_prior_hessian(theta)

    def state(self) -> dict[str, Array]:
        """All that the next question depends on, as arrays."""
        if self.known is None or self.mode is None:
            return {}
        known = self.known
        assert known.prior_hessian is not None
        return {
            "mode": self.mode,
            "measured_at": known.mode,
            "hessian": known.hessian,
            "noise": known.noise,
            "prior_hessian": known.prior_hessian,
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        if not state:
            return
        model = self.full_batch.model
        self.mode = state["mode"]
        self.known = Curvature(
            state["measured_at"],
            state["hessian"],
            state["noise"],
            model.n_data,
            prior_hessian=state["prior_hessian"],
            names=model.names,
        )


def whitening(hessian: Array) -> Array:
    """B with BBᵀ = A⁻¹, A's eigenvalues taken as positive: coordinates in which the search for a
    mode takes few steps.
    """
    values, vectors = np.linalg.eigh(hessian)
    size = np.abs(values)
    return np.asarray(vectors / np.sqrt(np.maximum(size, 1e-10 * size.max())))


def _polished(model: Model, curvature: Curvature, theta: Array) -> Array | None:
    """Newton steps with the Hessian as it is, in float64; None where they do not lead to the
    mode.
    """
    derivatives = derivatives_of(model)
    factor = scipy.linalg.cho_factor(curvature.hessian)
    previous = np.inf
    for _ in range(MOST_STEPS):
        slope = derivatives.value_and_gradient(theta)[1] + model.scaled_prior(theta)[1]
        step = scipy.linalg.cho_solve(factor, slope)
        distance = model.n_data * float(slope @ step)
        if not distance < previous:
            return None
        theta, previous = theta - step, distance
        if distance <= EXACT:
            return theta
    return None


def _square(hessian: Array, shift: Array) -> float:
    return float(shift @ hessian @ shift)
