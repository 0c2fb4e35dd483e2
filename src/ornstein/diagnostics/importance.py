"""The draws' Gaussian against the posterior itself, by importance weights on a few passes over all data.

Points are drawn from the Gaussian q that has the mean and covariance of the draws, and weighted by w = p/q. Where q is right
all weights are equal, so that the distance found has no Monte-Carlo noise of its own there: a small distance is measured
precisely, a large one roughly. Weights are smoothed by a Pareto tail (PSIS), whose shape k says whether they can be relied on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ornstein.diagnostics import thresholds
from ornstein.diagnostics.convergence import fewest_effective
from ornstein.diagnostics.finding import Finding, graded, rounded, skipped, worst
from ornstein.diagnostics.full_data import negative_log_posterior
from ornstein.diagnostics.monte_carlo import independent_error
from ornstein.diagnostics.subject import Subject
from ornstein.errors import InputError
from ornstein.theory import Gaussian, kl
from ornstein.theory.modes import as_matrix

if TYPE_CHECKING:
    from ornstein.model import Model

Array = np.ndarray
LARGEST_DIMENSION = 200
# Noise of the measured moments, in nats, up to which they are used; beyond it the weights' own entropy is.
TOLERABLE_NOISE = 0.02


@dataclass(frozen=True, eq=False)
class Weighted:
    """Points of a Gaussian, weighted so that they stand for the posterior.

    Attributes:
        points: (M, D); weights: (M,), they sum to one.
        pareto_k: shape of the weights' tail; above 0.7 they are not to be relied on.
        kl_qp, kl_pq: KL(Gaussian ‖ posterior) and back, from the weights alone: what is not Gaussian in the posterior counts.
        values: −log of the posterior at the points, up to a constant.
    """

    points: Array
    weights: Array
    pareto_k: float
    proposal: Gaussian
    kl_qp: float
    kl_pq: float
    values: Array

    @property
    def effective_size(self) -> float:
        """How many equally weighted points they are worth."""
        return float(1.0 / np.sum(self.weights**2))

    @property
    def reliable(self) -> bool:
        """Whether the weights can be used: a light tail, or a tail that does not matter."""
        share = self.effective_size / len(self.weights)
        return bool(self.pareto_k <= thresholds.PARETO_K or share >= thresholds.HARMLESS_SHARE)

    @property
    def mean(self) -> Array:
        """Mean of the posterior: that of the Gaussian, moved by what the weights add."""
        return self.proposal.mean + self._deviations @ (self.points - self.proposal.mean)

    @property
    def covariance(self) -> Array:
        centred = self.points - self.proposal.mean
        shift = self._deviations @ centred
        own = as_matrix(self.proposal.covariance, self.points.shape[1])
        return own + (centred * self._deviations[:, None]).T @ centred - np.outer(shift, shift)

    @property
    def sd(self) -> Array:
        return np.sqrt(np.diagonal(self.covariance))

    @property
    def _deviations(self) -> Array:
        return self.weights - 1.0 / len(self.weights)

    def moment_distance(self) -> tuple[float, float]:
        """The larger KL, both ways, between the Gaussian and the posterior's moments, and the noise expected in it, in nats."""
        root = np.linalg.cholesky(as_matrix(self.proposal.covariance, self.points.shape[1]))
        units = np.linalg.solve(root, (self.points - self.proposal.mean).T).T
        scaled = self._deviations[:, None] * units
        shift = scaled.sum(axis=0)
        posterior = Gaussian(shift, np.eye(shift.size) + scaled.T @ units - np.outer(shift, shift))
        own = Gaussian(np.zeros(shift.size), np.eye(shift.size))
        squares = units**2
        noise = 0.5 * np.sum(scaled**2) + 0.25 * np.sum((self._deviations**2) @ squares * squares.sum(axis=1).mean())
        return max(kl(own, posterior), kl(posterior, own)), float(noise)


def weigh(model: Model, proposal: Gaussian, count: int, seed: int = 0) -> Weighted:
    """`count` points of the proposal, in pairs about its mean, weighted by the posterior: that many passes over the data."""
    from ornstein.interfaces.arviz import pareto_smoothed

    size = proposal.mean.size
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, 13)))
    half = generator.standard_normal((max(1, count // 2), size))
    units = np.concatenate([half, -half])
    root = np.linalg.cholesky(as_matrix(proposal.covariance, size))
    points = proposal.mean + units @ root.T
    values, _ = negative_log_posterior(model, points)
    logs = 0.5 * np.sum(units**2, axis=1) - values
    logs -= logs.max()
    smoothed, k = pareto_smoothed(logs)
    weights = np.exp(smoothed - smoothed.max())
    weights /= weights.sum()
    forward = float(np.log(np.mean(np.exp(logs))) - logs.mean())
    backward = float(np.sum(weights * np.log(np.maximum(weights * len(weights), 1e-300))))
    return Weighted(points, weights, k, proposal, forward, backward, values)


def measured_distance(subject: Subject, weighted: Weighted | None) -> Finding:
    """KL between the draws and the posterior itself, as Gaussians, beyond what chance explains."""
    name = "measured distance"
    if weighted is None:
        return skipped(name, _reason(subject))
    error = subject.error
    if error is None:
        exact = subject.posterior.settings.get("exact_moments", False)
        error = independent_error(subject.dimension, np.inf if exact else fewest_effective(subject))
    distance, noise = weighted.moment_distance()
    rough = noise > TOLERABLE_NOISE or not np.isfinite(distance)
    if rough:
        distance, noise = max(weighted.kl_qp, weighted.kl_pq), 0.0
    excess = distance - noise - error.total
    chance = thresholds.CHANCE * error.covariance_sd
    small = thresholds.MEASURED_KL + chance
    level = graded(excess, small, thresholds.LARGE_KL + chance)
    if not weighted.reliable:
        level = worst(level, "caution")
    shown = f"at least {distance:.2g}" if rough else rounded(distance - noise)
    sentence = f"measured KL to the posterior {shown}, {error.total:.2g} by chance (wanted: at most {error.total + small:.2g})"
    share = weighted.effective_size / len(weighted.weights)
    detail = (
        f"{len(weighted.weights)} passes over the data; importance weights keep {share:.0%} of their number, tail k = "
        f"{weighted.pareto_k:.2f} (wanted: at most {thresholds.PARETO_K}, or {thresholds.HARMLESS_SHARE:.0%} kept)"
    )
    remedy = "these draws are not those of the posterior: do what the other findings say"
    if weighted.reliable:
        remedy += "; post.reweight() corrects a small set of draws"
    return Finding(name, level, excess, small, sentence, remedy, detail)


def draws_gaussian(subject: Subject) -> Weighted | None:
    """The draws' Gaussian weighted against the posterior; None where the model is absent or the dimension too high."""
    if subject.model is None or subject.dimension > LARGEST_DIMENSION or _aims_elsewhere(subject):
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
        raise InputError("re-weighting needs the model, which is not kept in a saved file: give model=…")
    if subject.dimension > LARGEST_DIMENSION:
        raise InputError(f"re-weighting serves up to {LARGEST_DIMENSION} parameters; this posterior has {subject.dimension}")
    return weigh(subject.model, Gaussian(subject.posterior.mean, subject.posterior.covariance), count, subject.seed)


def _aims_elsewhere(subject: Subject) -> bool:
    return subject.law is not None and "sandwich" in subject.law.dynamics.sampler


def _reason(subject: Subject) -> str:
    if subject.model is None:
        return "it needs the model, which a saved file does not hold: check(model=…)"
    if _aims_elsewhere(subject):
        return "the sampler aims at the sandwich, not at the posterior"
    if subject.dimension > LARGEST_DIMENSION:
        return f"importance weights serve up to {LARGEST_DIMENSION} parameters"
    return "the draws do not vary in some direction"
