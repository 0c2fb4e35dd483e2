"""The step size of samplers whose bias grows with it: the largest step whose predicted distance
from the posterior is small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ornstein import theory
from ornstein.curvature.curvature import Curvature
from ornstein.dynamics.dynamics import Dynamics

SMALL_DIVERGENCE = 0.05
ROUNDS = 4


def tolerable_step(build: Callable[[float], Dynamics], curvature: Curvature, bound: float) -> float:
    """The largest step up to `bound` for which KL(sampler ‖ posterior) of `build(step)` is
    predicted to be at most 0.05 nats.

    The noise depends on the spread that the step itself causes, and a pass over the data is needed
    to know how. So the search runs on a noise held fixed, and is repeated on the noise met at the
    step that it found.
    """
    first = build(bound)
    constant = np.zeros_like(curvature.noise) if first.control_variates else curvature.noise
    spread = curvature.posterior_covariance
    step = bound
    for _ in range(ROUNDS if curvature.noise_response is not None else 1):
        response = 0.0 if curvature.noise_response is None else curvature.noise_response(spread)
        met = replace(curvature, noise=constant + response, noise_response=None)
        previous, step = step, _largest_step(build, met, bound)
        if abs(step / previous - 1.0) < 0.01:
            break
        found = build(step).predict(curvature)
        if found.process is None:
            break
        spread = found.process.modes.to_theta(found.process.stationary)
    while build(step).predict(curvature).kl_qp > SMALL_DIVERGENCE:
        step *= 0.97
    return step


def _largest_step(build: Callable[[float], Dynamics], met: Curvature, bound: float) -> float:
    """The largest step for a noise that does not answer; control variates are already accounted for
    in it.
    """

    def divergence(step: float) -> float:
        return replace(build(step), control_variates=False).predict(met).kl_qp

    return theory.largest_rate_within(divergence, bound, SMALL_DIVERGENCE)
