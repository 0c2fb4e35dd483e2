"""The posterior about the draws and far outside them, by importance weights on all data.

Points come from a mixture of Gaussians about the draws, as wide as they and up to five times as
wide, so that mass which the draws never visited, such as a wide shoulder, gets points of its own.
Each point is weighted twice: to stand for q, the Gaussian with the draws' mean and covariance, and
to stand for the posterior p. Where q is right the two sets of weights are equal, so that the
distance between their moments has no Monte-Carlo noise there. The weights of p are smoothed by a
Pareto tail (PSIS), whose shape k tells whether they can be relied on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.special

from ornstein.checks import is_whole, printable
from ornstein.errors import InputError
from ornstein.posterior.own_model import model_of
from ornstein.posterior.working import as_run
from ornstein.streams import Purpose, sequence
from ornstein.theory import Gaussian, kl
from ornstein.theory.modes import as_matrix
from ornstein.types import Array
from ornstein.verdict import thresholds
from ornstein.verdict.advice import another_way
from ornstein.verdict.coordinates import Coordinates
from ornstein.verdict.density import Density
from ornstein.verdict.finding import Finding, graded, rounded, skipped
from ornstein.verdict.monte_carlo import independent_error
from ornstein.verdict.subject import ABSENT, LARGE, Subject

if TYPE_CHECKING:
    from ornstein.model.model import Model
    from ornstein.posterior.posterior import Posterior

NAME = "measured distance"
SCALES = np.array([1.0, 1.5, 2.5, 5.0])
SHARES = np.array([0.58, 0.14, 0.14, 0.14])
# Noise of the measured moments, in nats, up to which they are used.
TOLERABLE_NOISE = 0.05
# Points that share the weight, and the largest weight of one, where a heavy tail is put up with.
MANY, LARGEST_WEIGHT = 100, 0.05
# Points below which their weights have no tail to smooth.
FEWEST = 50
# Parameters up to which moments are measured: of a Gaussian fitted to 4,000 perfect draws,
# importance weights keep two thirds at 50 parameters and 4 % at 200.
MOMENTS = 50


@dataclass(frozen=True, eq=False)
class Weighted:
    """Points weighted so that they stand for the posterior.

    Attributes:
        points: (M, D); weights: (M,), they sum to one.
        pareto_k: shape of the weights' tail; above 0.7 they are not to be relied on.
        mean, covariance, sd: of the posterior.
        kl_qp, kl_pq: KL(Gaussian of the draws ‖ posterior) and back; what is not Gaussian in the
            posterior counts.
        log_evidence: the log of the integral of exp(−U), U = −log posterior less `lowest`, its
            smallest value.
    """

    points: Array
    weights: Array
    pareto_k: float
    kl_qp: float
    kl_pq: float
    gaussian: Gaussian  # of the draws
    gaussian_weights: Array  # for which the points stand for that Gaussian
    values: Array  # U at the points, from `lowest`
    lengths: Array  # squared distances from the mean in units of the Gaussian
    lowest: float
    log_evidence: float

    @property
    def effective_share(self) -> float:
        """How many equally weighted points they are worth, as a share of what the Gaussian's own
        weights leave.
        """
        return float(min(1.0, np.sum(self.gaussian_weights**2) / np.sum(self.weights**2)))

    @property
    def reliable(self) -> bool:
        """Whether the weights can be used: a light tail, or a tail that does not matter."""
        return bool(
            self.pareto_k <= thresholds.PARETO_K
            or self.effective_share >= thresholds.HARMLESS_SHARE
        )

    @property
    def many(self) -> bool:
        """Whether many points share the weight: where the posterior is in several narrow pieces the
        shape of the tail says nothing, and a large distance is a reason to be careful.
        """
        return bool(np.sum(self.weights**2) <= 1.0 / MANY and self.weights.max() <= LARGEST_WEIGHT)

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
        """The larger KL, both ways, between the moments of draws and posterior, and the noise
        expected in it, in nats.

        Points come in pairs about the mean, so that as many pairs as parameters or fewer have no
        whole covariance. Then it is the KL of the densities, with noise as large as itself.
        """
        if not np.all(np.isfinite(self.weights)):  # no point has a density
            return np.inf, np.inf
        if len(self.weights) // 2 <= self.gaussian.mean.size:
            whole = max(self.kl_qp, self.kl_pq)
            return whole, whole
        own = Gaussian(
            self.gaussian_weights @ self.points, _covariance(self.points, self.gaussian_weights)
        )
        posterior = Gaussian(self.mean, self.covariance)
        noise = np.sum(
            (self.weights - self.gaussian_weights) ** 2
            * (self.lengths / 2.0 + self.lengths**2 / 4.0)
        )
        try:
            return max(kl(own, posterior), kl(posterior, own)), float(noise)
        except np.linalg.LinAlgError:  # fewer points with weight than parameters
            return np.inf, np.inf

    def mass_beyond(self, length: float) -> tuple[float, float]:
        """The posterior's mass at more than this squared distance, and its standard error."""
        outside = self.lengths > length
        mass = float(self.weights @ outside)
        return mass, float(np.sqrt(np.sum(self.weights**2 * (outside - mass) ** 2)))


def weigh(density: Density, gaussian: Gaussian, count: int, seed: int = 0) -> Weighted:
    """About `count` points of the mixture about a Gaussian, in pairs, weighted by the posterior:
    that many passes over the data.
    """
    from ornstein.posterior.statistics import pareto_smoothed

    size = gaussian.mean.size
    coordinates = Coordinates.of(gaussian.mean, as_matrix(gaussian.covariance, size))
    units, log_mixture = _mixture(size, count, seed)
    points = coordinates.theta(units)
    values = density.values(points)
    lowest = float(values.min()) if np.isfinite(values.min()) else 0.0
    values = values - lowest
    lengths = np.sum(units**2, axis=1)
    logs = np.maximum(-values - log_mixture, -1e6)
    smoothed, k = pareto_smoothed(logs)
    weights, own = _normalised(smoothed), _normalised(-0.5 * lengths - log_mixture)
    log_ratio = np.maximum(0.5 * lengths - values, -1e6)
    ratio = scipy.special.logsumexp(log_ratio, b=own)
    return Weighted(
        points,
        weights,
        k,
        float(ratio - own @ log_ratio),
        float(weights @ log_ratio - ratio),
        gaussian,
        own,
        values,
        lengths,
        lowest,
        float(scipy.special.logsumexp(logs) - np.log(len(logs)))
        + 0.5 * size * np.log(2.0 * np.pi)
        + coordinates.log_volume,
    )


def _mixture(size: int, count: int, seed: int) -> tuple[Array, Array]:
    """Points of the mixture about a standard normal, in pairs, and the log of its density times
    (2π)^(D/2).
    """
    generator = np.random.default_rng(sequence(seed, Purpose.VERDICT, 0))
    numbers = np.maximum(1, np.round(SHARES * count / 2.0).astype(int))
    half = generator.standard_normal((numbers.sum(), size))
    own = half[: numbers[0]]
    # points whose covariance is exactly that of their law, as their mean is by the pairs
    if len(own) >= 2 * size:
        own[:] = np.linalg.solve(np.linalg.cholesky(own.T @ own / len(own)), own.T).T
    half *= np.repeat(SCALES, numbers)[:, None]
    units = np.concatenate([half, -half])
    lengths = np.sum(units**2, axis=1)
    logs = -0.5 * lengths[:, None] / SCALES**2 - size * np.log(SCALES)
    return units, scipy.special.logsumexp(logs, b=numbers / numbers.sum(), axis=1)


def _normalised(logs: Array) -> Array:
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def _covariance(points: Array, weights: Array) -> Array:
    centred = points - weights @ points
    return (centred * weights[:, None]).T @ centred


def measured_distance(subject: Subject, weighted: Weighted | None) -> Finding:
    """KL between the draws and the posterior itself, as Gaussians, beyond what Monte-Carlo error
    explains, and the posterior's mass beyond all draws.
    """
    if weighted is None:
        return skipped(NAME, _reason(subject))
    missed = _mass_missed(subject, weighted)
    if missed.level == "not trusted":
        return missed
    distance, noise = weighted.moment_distance()
    uneven = skipped(NAME, "importance weights are too uneven to measure moments with")
    unmeasured = uneven if missed.level == "trusted" else missed
    if subject.dimension > MOMENTS or not (weighted.reliable or weighted.many):
        return unmeasured
    error = subject.error
    if error is None:
        exact = subject.posterior.settings.get("exact_moments", False)
        error = independent_error(subject.dimension, np.inf if exact else subject.independent)
    # Noise that is large may well be three times what is expected; less than that proves nothing.
    noisy = noise > TOLERABLE_NOISE
    excess = distance - error.total - noise * (thresholds.CHANCE if noisy else 1.0)
    chance = thresholds.CHANCE * error.covariance_sd
    small = thresholds.MEASURED_KL + chance
    level = graded(excess, small, thresholds.LARGE_CHANGE + chance)
    if (noisy or not weighted.reliable) and level != "not trusted":
        return unmeasured
    if not weighted.reliable:
        level = "caution"
    if level == "trusted" and missed.level != "trusted":
        return missed
    sentence = (
        f"KL to the posterior about {rounded(distance)} ({error.total:.2g} expected from Monte"
        f" Carlo error; wanted: at most {error.total + small:.2g})"
    )
    detail = (
        f"importance weights of {len(weighted.weights)} points keep"
        f" {weighted.effective_share:.0%} of their number, their tail is k ="
        f" {weighted.pareto_k:.2f}"
    )
    if level != "trusted":
        sentence += f", most at {_farthest(subject, weighted)}"
    remedy, command = another_way(subject)
    return Finding(NAME, level, excess, small, sentence, remedy, detail, command)


def _farthest(subject: Subject, weighted: Weighted) -> str:
    """The parameter whose mean and sd are farthest from the posterior's, with both."""
    mean, sd = weighted.mean, np.maximum(weighted.sd, 1e-300)
    own, spread = weighted.gaussian.mean, subject.posterior.sd
    ratio, shift = (spread / sd) ** 2, (own - mean) / sd
    place = int(np.argmax(ratio - 1.0 - np.log(ratio) + shift**2))
    return (
        f"{printable(subject.posterior.names[place])} (mean {shift[place]:+.2g} sd off, sd"
        f" {spread[place] / sd[place]:.2g} times the posterior's)"
    )


def _mass_missed(subject: Subject, weighted: Weighted) -> Finding:
    """The posterior's mass farther out than all but a thousandth of the draws, less that
    thousandth.
    """
    law = weighted.gaussian
    own = Coordinates.of(law.mean, as_matrix(law.covariance, law.mean.size))
    lengths = np.sum(own.z(subject.some_draws(2000)) ** 2, axis=1)
    radius = float(np.quantile(lengths, 0.999))
    mass, error = weighted.mass_beyond(radius)
    mass = max(0.0, mass - float(np.mean(lengths > radius)))
    known = np.isfinite(mass) and np.isfinite(error)
    beyond = mass - 3.0 * error if known else 0.0  # no probe has weight: nothing is known
    level = graded(beyond, thresholds.SMALL_MASS, thresholds.LARGE_MASS)
    sentence = (
        f"{mass:.0%} of the posterior's mass lies farther out than any draw (wanted: at most"
        f" {thresholds.SMALL_MASS:.0%})"
    )
    remedy, command = another_way(subject)
    bound = thresholds.SMALL_MASS
    return Finding(NAME, level, mass, bound, sentence, remedy, command=command)


def draws_gaussian(subject: Subject) -> Weighted | None:
    """The draws' Gaussian weighted against the posterior; None where the density is not at hand or
    the draws' covariance is not known whole.
    """
    close = subject.close
    if close is None or subject.posterior.covariance.ndim < 2:
        return None
    law = Gaussian(subject.posterior.mean, subject.posterior.covariance)
    try:
        return weigh(close.density, law, close.points, subject.seed)
    except np.linalg.LinAlgError:
        return None


def reweigh(posterior: Posterior, model: Model | None, count: int, seed: int) -> Weighted:
    """What `Posterior.reweight` gives."""
    if not is_whole(count) or count < FEWEST:
        raise InputError(f"draws must be a whole number, {FEWEST} or more; got {count!r}")
    known = model_of(posterior, model)
    found = _reweighed(Subject(*as_run(posterior, known), seed), int(count))
    if posterior.coordinates is None:
        return found
    law = Gaussian(posterior.mean, posterior.covariance)
    return replace(found, points=posterior.coordinates.original(found.points), gaussian=law)


def _reweighed(subject: Subject, count: int) -> Weighted:
    if subject.model is None:
        raise InputError(
            "re-weighting needs the model, which is not kept in a saved file: give model=…"
        )
    if subject.large:
        raise InputError(
            f"re-weighting supports up to {LARGE} parameters; this posterior has"
            f" {subject.dimension}"
        )
    law = Gaussian(subject.posterior.mean, subject.posterior.covariance)
    return weigh(Density(subject.model), law, count, subject.seed)


def _reason(subject: Subject) -> str:
    if subject.model is None:
        return ABSENT
    if subject.aims_elsewhere:
        return "the sampler aims at the sandwich, not at the posterior"
    return "the covariance of the draws is not known whole, or singular"
