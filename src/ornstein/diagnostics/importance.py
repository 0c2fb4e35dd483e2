"""The draws' Gaussian against the posterior itself, by importance weights on a few passes over all data.

Points are drawn from a Gaussian somewhat wider than the Gaussian q that has the draws' mean and covariance, and weighted
twice: to stand for q and to stand for the posterior p. Where q is right the two sets of weights are equal, so that the distance
between their moments has no Monte-Carlo noise there: a small distance is measured precisely, a large one roughly. The weights
of p are smoothed by a Pareto tail (PSIS), whose shape k says whether they can be relied on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.special

from ornstein.diagnostics import thresholds
from ornstein.diagnostics.convergence import fewest_effective
from ornstein.diagnostics.finding import Finding, graded, rounded, skipped, worst
from ornstein.diagnostics.full_data import negative_log_posterior_values
from ornstein.diagnostics.monte_carlo import independent_error
from ornstein.diagnostics.subject import ABSENT, LARGE, Subject
from ornstein.errors import InputError
from ornstein.theory import Gaussian, kl
from ornstein.theory.modes import as_matrix

if TYPE_CHECKING:
    from ornstein.model import Model

Array = np.ndarray
# The points' Gaussian is wider than that of the draws by 1 + √(WIDENING/D) in variance, so that the logarithms of its weights
# vary by WIDENING/2 whatever D is: enough to see a posterior that is wider than the draws, without wasting points.
WIDENING = 0.4
# Noise of the measured moments, in nats, up to which they are used; beyond it KL divergences straight from the weights are,
# which need no moments but count what is not Gaussian in the posterior.
TOLERABLE_NOISE = 0.05


@dataclass(frozen=True, eq=False)
class Weighted:
    """Points weighted so that they stand for the posterior.

    Attributes:
        points: (M, D); weights: (M,), they sum to one.
        pareto_k: shape of the weights' tail; above 0.7 they are not to be relied on.
        mean, covariance, sd: of the posterior.
        kl_qp, kl_pq: KL(Gaussian of the draws ‖ posterior) and back; what is not Gaussian in the posterior counts.
    """

    points: Array
    weights: Array
    pareto_k: float
    kl_qp: float
    kl_pq: float
    gaussian: Gaussian  # of the draws
    gaussian_weights: Array  # for which the points stand for that Gaussian
    values: Array  # −log of the posterior at the points, up to a constant

    @property
    def effective_share(self) -> float:
        """How many equally weighted points they are worth, as a share of what the Gaussian's own weights leave."""
        return float(min(1.0, np.sum(self.gaussian_weights**2) / np.sum(self.weights**2)))

    @property
    def reliable(self) -> bool:
        """Whether the weights can be used: a light tail, or a tail that does not matter."""
        return bool(
            self.pareto_k <= thresholds.PARETO_K
            or self.effective_share >= thresholds.HARMLESS_SHARE
        )

    @property
    def mean(self) -> Array:
        return self.weights @ self.points

    @property
    def covariance(self) -> Array:
        return _covariance(self.points, self.weights)

    @property
    def sd(self) -> Array:
        return np.sqrt(np.diagonal(self.covariance))

    def moment_distance(self) -> tuple[float, float]:
        """The larger KL, both ways, between the moments of draws and posterior, and the noise expected in it, in nats."""
        own = Gaussian(
            self.gaussian_weights @ self.points, _covariance(self.points, self.gaussian_weights)
        )
        posterior = Gaussian(self.mean, self.covariance)
        lengths = np.sum(_units(self.points, self.gaussian) ** 2, axis=1)
        noise = np.sum(
            (self.weights - self.gaussian_weights) ** 2 * (lengths / 2.0 + lengths**2 / 4.0)
        )
        return max(kl(own, posterior), kl(posterior, own)), float(noise)


def weigh(model: Model, gaussian: Gaussian, count: int, seed: int = 0) -> Weighted:
    """`count` points about a Gaussian, in pairs about its mean, weighted by the posterior: that many passes over the data."""
    from ornstein.draw_statistics import pareto_smoothed

    size = gaussian.mean.size
    widened = 1.0 + np.sqrt(WIDENING / size)
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, 13)))
    half = generator.standard_normal((max(1, count // 2), size))
    if (
        len(half) >= 2 * size
    ):  # points whose covariance is exactly that of their law, as their mean is by the pairs
        half = np.linalg.solve(np.linalg.cholesky(half.T @ half / len(half)), half.T).T
    units = np.sqrt(widened) * np.concatenate([half, -half])
    points = gaussian.mean + units @ np.linalg.cholesky(as_matrix(gaussian.covariance, size)).T
    values = negative_log_posterior_values(model, points)
    lengths = np.sum(units**2, axis=1)
    log_gaussian = -0.5 * lengths * (1.0 - 1.0 / widened)
    smoothed, k = pareto_smoothed(0.5 * lengths / widened - (values - values.min()))
    weights, own = _normalised(smoothed), _normalised(log_gaussian)
    log_ratio = 0.5 * lengths - (values - values.min())
    log_evidence = scipy.special.logsumexp(log_ratio, b=own)
    forward, backward = (
        float(log_evidence - own @ log_ratio),
        float(weights @ log_ratio - log_evidence),
    )
    return Weighted(points, weights, k, forward, backward, gaussian, own, values)


def _normalised(logs: Array) -> Array:
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def _covariance(points: Array, weights: Array) -> Array:
    centred = points - weights @ points
    return (centred * weights[:, None]).T @ centred


def _units(points: Array, gaussian: Gaussian) -> Array:
    """Points in units of a Gaussian."""
    root = np.linalg.cholesky(as_matrix(gaussian.covariance, gaussian.mean.size))
    return np.linalg.solve(root, (points - gaussian.mean).T).T


def measured_distance(subject: Subject, weighted: Weighted | None) -> Finding:
    """KL between the draws and the posterior itself, as Gaussians, beyond what chance explains."""
    name = "measured distance"
    if weighted is None and subject.posterior.settings.get("exact_moments", False):
        sentence = f"this is an approximation that was held against nothing: {_reason(subject)}"
        return Finding(
            name,
            "caution",
            np.nan,
            thresholds.MEASURED_KL,
            sentence,
            "check(model=…) holds it against the posterior",
        )
    if weighted is None:
        return skipped(name, _reason(subject))
    error = subject.error
    if error is None:
        exact = subject.posterior.settings.get("exact_moments", False)
        error = independent_error(subject.dimension, np.inf if exact else fewest_effective(subject))
    distance, noise = weighted.moment_distance()
    if noise > TOLERABLE_NOISE or not np.isfinite(distance):
        distance = max(weighted.kl_qp, weighted.kl_pq)
    excess = distance - error.total
    chance = thresholds.CHANCE * error.covariance_sd
    small = thresholds.MEASURED_KL + chance
    level = graded(excess, small, thresholds.LARGE_KL + chance)
    if not weighted.reliable:
        level = worst(level, "caution")
    shown = f"about {rounded(distance)}" if weighted.reliable else f"at least {distance:.2g}"
    sentence = f"measured KL to the posterior {shown}, {error.total:.2g} by chance (wanted: at most {error.total + small:.2g})"
    detail = (
        f"{len(weighted.weights)} passes over the data; importance weights keep {weighted.effective_share:.0%} of their "
        f"number, their tail is k = {weighted.pareto_k:.2f} (wanted: at most {thresholds.PARETO_K}, or "
        f"{thresholds.HARMLESS_SHARE:.0%} kept)"
    )
    remedy = "these draws are not those of the posterior: do what the other findings say"
    if weighted.reliable:
        remedy += "; post.reweight() corrects a small set of draws"
    return Finding(name, level, excess, small, sentence, remedy, detail)


def draws_gaussian(subject: Subject) -> Weighted | None:
    """The draws' Gaussian weighted against the posterior; None where the model is absent or the dimension too high."""
    if subject.model is None or subject.large or _aims_elsewhere(subject):
        return None
    post = subject.posterior
    proposal = Gaussian(post.mean, post.covariance)
    try:
        np.linalg.cholesky(as_matrix(proposal.covariance, subject.dimension))
    except np.linalg.LinAlgError:
        return None
    return weigh(subject.model, proposal, subject.passes, subject.seed)


def reweigh(subject: Subject, count: int) -> Weighted:
    """What `Posterior.reweight` gives."""
    if subject.model is None:
        raise InputError(
            "re-weighting needs the model, which is not kept in a saved file: give model=…"
        )
    if subject.large:
        raise InputError(
            f"re-weighting serves up to {LARGE} parameters; this posterior has {subject.dimension}"
        )
    return weigh(
        subject.model,
        Gaussian(subject.posterior.mean, subject.posterior.covariance),
        count,
        subject.seed,
    )


def _aims_elsewhere(subject: Subject) -> bool:
    return subject.law is not None and "sandwich" in subject.law.dynamics.sampler


def _reason(subject: Subject) -> str:
    if subject.model is None:
        return ABSENT
    if _aims_elsewhere(subject):
        return "the sampler aims at the sandwich, not at the posterior"
    if subject.large:
        return f"importance weights serve up to {LARGE} parameters"
    return "the draws do not vary in some direction"
