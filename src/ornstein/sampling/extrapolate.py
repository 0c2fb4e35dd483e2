"""Richardson–Romberg extrapolation of the mean: two runs, one at half the step, whose leading
errors cancel in 2θ̄_half − θ̄.

What a vanishing step tends to depends on what shrinks with it. If the batch stays, the gradient
noise vanishes: a sampler that injects its noise (SGLD) tends to the posterior, but constant SGD
collapses on the *mode*, and its extrapolated mean estimates the mode, not the posterior mean. If
the batch is halved too, noise and step stay in proportion, and constant SGD keeps its law while the
errors of discrete time go. Of the two ways that one is taken whose limit, as theory predicts it, is
nearer the posterior.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ornstein.curvature.curvature import Curvature
from ornstein.dynamics.dynamics import Dynamics
from ornstein.errors import InputError
from ornstein.theory import Gaussian, kl_covariance

if TYPE_CHECKING:
    from ornstein.posterior.posterior import Posterior


def half_step(dynamics: Dynamics, curvature: Curvature) -> tuple[Dynamics, float]:
    """The dynamics at about half the step whose extrapolated law is nearest the posterior, and the
    ratio of the two steps.

    >>> from ornstein.samplers.constant_sgd import ConstantSGD
    >>> cur = Curvature(mode=[0.0], hessian=[[2.0]], noise=[[2.0]], n_data=1000)
    >>> half, ratio = half_step(ConstantSGD("full").tune(cur, batch_size=10), cur)
    >>> half.batch_size, ratio
    (5, 0.5)
    """
    if dynamics.window > 1 or dynamics.schedule is not None or type(dynamics) is not Dynamics:
        raise InputError(
            f"extrapolate needs a constant step and single iterates; {dynamics.sampler} does"
            " not have both"
        )
    sizes = {dynamics.batch_size, max(1, dynamics.batch_size // 2)}
    candidates = []
    for size in sizes:
        ratio = 0.5 if size == dynamics.batch_size else size / dynamics.batch_size
        injected = None if dynamics.injected is None else ratio * dynamics.injected
        half = replace(
            dynamics,
            preconditioner=ratio * dynamics.preconditioner,
            injected=injected,
            batch_size=size,
        )
        candidates.append((_limit_distance(dynamics, half, ratio, curvature), half, ratio))
    distance, half, ratio = min(candidates, key=lambda candidate: candidate[0])
    if not np.isfinite(distance):
        raise InputError(
            "extrapolate found no half step whose law tends to the posterior; use a larger"
            " batch_size"
        )
    return half, ratio


def extrapolated(posterior: Posterior, second: Posterior, ratio: float) -> Posterior:
    """The posterior moved, draws and mean alike, to the mean extrapolated from a `second` run whose
    step is `ratio` times as long.

    Its covariance is left alone. The mean's Monte-Carlo error grows by √5 at equal lengths;
    `settings["extrapolated"]` holds the largest shift in posterior sds.
    """
    shift = (second.mean - posterior.mean) / (1.0 - ratio)
    draws = posterior.draws + shift
    moments = (
        None
        if posterior.moments is None
        else Gaussian(posterior.mean + shift, posterior.covariance)
    )
    settings = {
        **posterior.settings,
        "extrapolated": float(np.max(np.abs(shift) / posterior.sd)),
        "steps": posterior.settings["steps"] + second.settings["steps"],
        "seconds": posterior.settings["seconds"] + second.settings["seconds"],
    }
    return replace(
        posterior,
        draws=draws,
        moments=moments,
        constrained=None if posterior.model is None else posterior.model.constrained(draws),
        settings=settings,
    )


def _limit_distance(
    dynamics: Dynamics, half: Dynamics, ratio: float, curvature: Curvature
) -> float:
    """KL from the covariance extrapolated to a vanishing step to the posterior's; infinite where
    there is none.
    """
    whole, part = dynamics.predict(curvature).covariance, half.predict(curvature).covariance
    if whole is None or part is None:
        return float("inf")
    return kl_covariance((part - ratio * whole) / (1.0 - ratio), curvature.posterior_covariance)
