"""How far from the posterior is the law that theory predicts, what part of that can no tuning
remove, and what would?
"""

from __future__ import annotations

import numpy as np

from ornstein.curvature.curvature import Curvature
from ornstein.errors import OrnsteinError
from ornstein.samplers.constant_sgd import ConstantSGD
from ornstein.theory import (
    diagonal_corollary,
    exact_diagonal,
    exact_rate,
    kl_covariance,
    sandwich_covariance,
    stationary_covariance,
)
from ornstein.types import Array
from ornstein.verdict import thresholds
from ornstein.verdict.finding import Finding, graded, rounded, worst
from ornstein.verdict.subject import Law, Subject

# A minibatch this small makes steps so small that discrete time is continuous: what is left is the
# preconditioner's own.
VANISHING_BATCH = 1e-3
LARGEST_FOR_DIAGONAL = 100


def predicted_distance(subject: Subject) -> Finding | None:
    """Predicted KL both ways, with the remedy that would remove it."""
    law = subject.law
    if law is None:
        approximate = (
            "" if subject.posterior.prediction is None else subject.posterior.prediction.approximate
        )
        if not approximate:
            return None
        remedy = "rely on the measured distance below, or take a sampler at a constant rate"
        return Finding(
            "predicted distance",
            "caution",
            np.nan,
            thresholds.SMALL_KL,
            f"not predicted: {approximate}",
            remedy,
        )
    sampler_to, to_sampler, target = _distances(law)
    distance = max(sampler_to, to_sampler)
    level = graded(distance, thresholds.SMALL_KL * (1.0 + 1e-6), thresholds.LARGE_KL)
    sentence = (
        f"predicted KL(sampler ‖ {target}) {rounded(sampler_to)}, KL({target} ‖ sampler)"
        f" {rounded(to_sampler)} (wanted: at most {thresholds.SMALL_KL}; not trusted above"
        f" {thresholds.LARGE_KL})"
    )
    detail = remedy = command = ""
    if level != "trusted":
        detail, (remedy, command) = _irremovable(law), _remedy(law)
    if law.prediction.approximate:
        level = worst(level, "caution")
        detail = "; ".join(filter(None, (detail, f"approximate: {law.prediction.approximate}")))
        remedy = remedy or "compare with a sampler whose law is predicted exactly"
    return Finding(
        "predicted distance",
        level,
        distance,
        thresholds.SMALL_KL,
        sentence,
        remedy,
        detail,
        command,
    )


def least_distance(curvature: Curvature, noise: Array, axes: int) -> float | None:
    """The smallest KL(sampler ‖ posterior) of constant SGD over all scalar (axes=0) or diagonal
    (axes=1) steps.

    Taken in the limit of small steps, which smaller minibatches approach. None where the search is
    too expensive.
    """
    target, n_data = curvature.posterior_covariance, curvature.n_data
    batch = VANISHING_BATCH
    if axes == 0:
        step = np.asarray(exact_rate(curvature.hessian, noise, target, batch))
    elif axes == 1 and not curvature.diagonal and curvature.dim <= LARGEST_FOR_DIAGONAL:
        start = diagonal_corollary(noise, n_data, batch)
        step = exact_diagonal(curvature.hessian, noise, target, batch, start)
    else:
        return None
    return kl_covariance(stationary_covariance(curvature.hessian, noise / batch, step), target)


def _distances(law: Law) -> tuple[float, float, str]:
    if law.dynamics.target == "posterior":
        return law.prediction.kl_qp, law.prediction.kl_pq, "posterior"
    covariance, curvature = law.prediction.covariance, law.curvature
    assert covariance is not None
    target = sandwich_covariance(curvature.hessian, curvature.noise, curvature.n_data)
    return kl_covariance(covariance, target), kl_covariance(target, covariance), "sandwich"


def _irremovable(law: Law) -> str:
    """What no step size of this preconditioner can remove; nothing where noise is injected or draws
    are averaged.
    """
    dynamics, axes = law.dynamics, law.dynamics.preconditioner.ndim
    if dynamics.injected is not None or dynamics.window > 1 or axes > 1:
        return ""
    least = least_distance(law.curvature, law.noise_met, axes)
    kind = "scalar" if axes == 0 else "diagonal"
    return (
        ""
        if least is None
        else (
            f"{least:.2g} of KL(sampler ‖ posterior) cannot be removed by any step of a {kind}"
            " preconditioner"
        )
    )


def _remedy(law: Law) -> tuple[str, str]:
    """The full preconditioner, or a smaller batch for it, with the KL that theory predicts for
    it; and the same as options of the command line.
    """
    curvature, size = law.curvature, law.dynamics.batch_size
    if curvature.diagonal:
        return (
            "only diagonals of the curvature are known; a full preconditioner would need fewer"
            " parameters"
        ), ""
    while size >= 1:
        try:
            prediction = (
                ConstantSGD("full").tune(curvature, size, law.dynamics.scheme).predict(curvature)
            )
        except OrnsteinError as error:
            return f"the full preconditioner cannot help here: {error}", ""
        if prediction.stable:
            distance = max(prediction.kl_qp, prediction.kl_pq)
            batch = "" if size == law.dynamics.batch_size else f" with batch_size={size}"
            return (
                f"use the full preconditioner, ConstantSGD('full'){batch}: predicted KL"
                f" {rounded(distance)}"
            ), f"--sampler constant-sgd-full --batch-size {size}"
        size //= 2
    return "use smaller steps", ""
