"""The error of a fit, so that "wrong" has one meaning everywhere.

It is the largest one-dimensional KL between the moments of fit and truth, both ways, over all
parameters, the eigenvectors of A and 50 random directions; up to 50 parameters also the KL between
the joint moments less what finitely many draws make of it; and the largest move of a 5, 50 or 95 %
point, in sds of the truth, along the same directions. Where this counts against the draws, two
standard errors of the share of draws below a point are excused: a median between two modes may lie
anywhere. A mode that was missed shows in these: 5 % of
the mass at 4 sd moves the variance by 0.1 nat.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ornstein.theory import Gaussian, kl
from ornstein.theory.modes import as_matrix

RANDOM, JOINT = 50, 50
EXCUSED = 2.0  # standard errors
POINTS = (0.05, 0.5, 0.95)
# Trusted is wrong beyond the one, not trusted below the other: nats, and sds of a point.
WRONG, RIGHT = (0.1, 0.3), (0.02, 0.1)


@dataclass(frozen=True)
class Error:
    """`distance` in nats, `move` of a 5, 50 or 95 % point in sds, and what of that is `certain`."""

    distance: float
    move: float
    certain: float | None = None

    @property
    def large(self) -> bool:
        move = self.move if self.certain is None else self.certain
        return not (self.distance <= WRONG[0] and move <= WRONG[1])

    @property
    def small(self) -> bool:
        return self.distance < RIGHT[0] and self.move < RIGHT[1]


def wrong(level: str, error: Error) -> bool:
    """Whether a verdict is wrong: "trusted" on a large error, or "not trusted" on a small one."""
    return (level == "trusted" and error.large) or (level == "not trusted" and error.small)


def error_of_fit(posterior, reference, seed: int = 0) -> Error:
    """The error of a Posterior against reference draws (n, D) of the truth."""
    size = reference.shape[1]
    draws = posterior.draws.reshape(-1, size)
    mean, covariance = posterior.mean, as_matrix(posterior.covariance, size)
    if not (np.all(np.isfinite(draws)) and np.all(np.isfinite(covariance))):
        return Error(np.inf, np.inf, np.inf)
    true_mean, true = reference.mean(axis=0), np.atleast_2d(np.cov(reference.T))
    ways = _directions(posterior, true, seed)
    with np.errstate(all="ignore"):
        variance, true_variance = (
            np.einsum("kd,de,ke->k", ways, c, ways) for c in (covariance, true)
        )
        ratio = variance / true_variance
        shift = (ways @ (mean - true_mean)) ** 2 / true_variance
        there = 0.5 * (ratio - 1.0 - np.log(ratio) + shift)
        back = 0.5 * (1.0 / ratio - 1.0 + np.log(ratio) + shift / ratio)
    distance = float(np.nan_to_num(np.maximum(there, back), nan=np.inf).max())
    if size <= JOINT:
        distance = max(distance, _joint(posterior, mean, covariance, true_mean, true, reference))
    moves = (
        _moved(
            draws, reference, ways, np.sqrt(true_variance), excused / np.sqrt(effective(posterior))
        )
        for excused in (0.0, EXCUSED)
    )
    return Error(distance, *moves)


def _directions(posterior, true, seed):
    """Parameters, eigenvectors of A where it is known, and combinations at random."""
    size = len(true)
    random = np.random.default_rng(seed).normal(size=(RANDOM if size > 1 else 0, size))
    ways = [np.eye(size), np.linalg.solve(np.linalg.cholesky(true).T, random.T).T]
    curvature = posterior.curvature
    if curvature is not None and not curvature.diagonal:
        ways.append(np.linalg.eigh(curvature.hessian)[1].T)
    return np.concatenate(ways)


def _joint(posterior, mean, covariance, true_mean, true, reference):
    """The KL between joint moments, the larger of both ways, less its expectation for independent
    draws: D(D+3)/4 over their number, of the fit and of the reference.
    """
    size = len(true)
    fit, truth = Gaussian(mean, covariance), Gaussian(true_mean, true)
    try:
        distance = max(kl(fit, truth), kl(truth, fit))
    except np.linalg.LinAlgError:
        return np.inf
    count = effective(posterior)
    floor = 0.25 * size * (size + 3) * (1.0 / count + 1.0 / len(reference))
    return max(0.0, float(distance) - floor)


def effective(posterior) -> float:
    """How many independent draws the moments are worth, for the parameter with the fewest."""
    from ornstein.posterior.statistics import effective_sample_size

    draws = posterior.draws
    if draws.shape[1] < 4:
        return float(max(draws.shape[0] * draws.shape[1], 1))
    sizes = [effective_sample_size(draws[:, :, k], "bulk") for k in range(min(draws.shape[2], 20))]
    return float(max(np.nanmin(np.nan_to_num(sizes, nan=1.0)), 1.0))


def _moved(draws, reference, ways, sd, excused):
    """How far the true points lie from those of the draws, or from the nearest that are as likely:
    of shares that differ by `excused` standard errors of one draw.
    """
    if not len(draws):
        return 0.0
    projected = draws @ ways.T
    truth = np.quantile(reference @ ways.T, POINTS, axis=0)
    low, high = (
        np.quantile(
            projected, [np.clip(p + s * np.sqrt(p * (1 - p)), 0, 1) for p in POINTS], axis=0
        )
        for s in (-excused, excused)
    )
    return float(np.max(np.maximum(np.maximum(low - truth, truth - high), 0.0) / sd))
