"""The paper's five assumptions, each measured: the number, its bound and a sentence.

The gradient noise is Gaussian; it is constant; steps are small; the loss is quadratic where the
chain lives; for iterate averages alone, the noise C matches the curvature A. None of them decides
where the draws were compared with the density: the comparison tells what a failure has cost, and
these tell why.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.linalg

from ornstein.checks import printable
from ornstein.curvature.curvature import Curvature
from ornstein.streams import Purpose, sequence
from ornstein.theory import kl_covariance
from ornstein.types import Array
from ornstein.verdict import thresholds
from ornstein.verdict.coordinates import Coordinates
from ornstein.verdict.finding import Finding, graded, rounded
from ornstein.verdict.noise_assumptions import constant_noise, gaussian_noise
from ornstein.verdict.subject import Close, Law, Subject


def assumptions(subject: Subject) -> list[Finding | None]:
    """All five; None where there is no law that they would be assumptions of."""
    return [
        gaussian_noise(subject),
        constant_noise(subject),
        small_steps(subject),
        quadratic(subject),
        noise_is_curvature(subject),
    ]


def small_steps(subject: Subject) -> Finding | None:
    """The largest eigenvalue of HA against its bound, and discrete against continuous time."""
    law = subject.law
    if law is None:
        return None
    largest = float(np.max(law.process.modes.rates))
    bound = 2.0 * (2.0 - law.dynamics.damping)
    share = largest / bound
    sentence = (
        f"eigenvalues of HA reach {largest:.2g}, {share:.0%} of the stability bound {bound:.2g} "
        f"(wanted: at most {thresholds.STABILITY_SHARE:.0%})"
    )
    detail = "" if subject.large else _continuous_time(law)
    remedy = (
        "the step is close to instability, where tails grow heavy: use a smaller step or a smaller"
        " batch"
    )
    level = graded(share, thresholds.STABILITY_SHARE)
    command = f"--batch-size {max(1, law.dynamics.batch_size // 2)}"
    bound = thresholds.STABILITY_SHARE
    return Finding("steps are small", level, share, bound, sentence, remedy, detail, command)


def quadratic(subject: Subject) -> Finding | None:
    """The loss against its quadratic where the draws are, and how far the mean has moved from
    the mode.

    In a posterior that is not quadratic, noise moves the mean of constant SGD by −½A⁻¹∇³L[Σ]; to
    first order the posterior's own mean is moved by the same, so that a shift is no error yet. Half
    the step, with the same batch, halves Σ and the shift.
    """
    name, curvature = "loss is quadratic", subject.posterior.curvature
    if curvature is None:
        return None
    shift, chance = mean_shift(subject, curvature)
    moved = (
        f"the mean is {shift:.2g} posterior sds from the mode ({chance:.1g} expected from Monte"
        " Carlo error)"
    )
    detail = ""
    if subject.law is not None and subject.law.dynamics.injected is None:
        detail = f"half the step with the same batch would halve that: {shift / 2.0:.1g} sds"
    remedy = (
        "the posterior is not Gaussian where the draws are: more data help; post.reweight()"
        " corrects a small set of draws"
    )
    if subject.close is None or curvature.diagonal:
        beyond = float(np.sqrt(max(shift**2 - chance**2, 0.0)))
        sentence = f"{moved} (wanted: at most {thresholds.MEAN_SHIFT} more)"
        level = graded(beyond, thresholds.MEAN_SHIFT)
        return Finding(name, level, beyond, thresholds.MEAN_SHIFT, sentence, remedy, detail)
    part = _non_quadratic_part(subject, subject.close, curvature)
    sentence = (
        f"the loss departs from its quadratic by a KL of {rounded(part)} (wanted: at most"
        f" {thresholds.NON_QUADRATIC}); {moved}"
    )
    return Finding(
        name,
        graded(part, thresholds.NON_QUADRATIC),
        part,
        thresholds.NON_QUADRATIC,
        sentence,
        remedy,
        detail,
    )


def noise_is_curvature(subject: Subject) -> Finding | None:
    """The spectrum of A⁻¹C. Only plain iterate averaging takes C for A."""
    name, law = "noise matches curvature", subject.law
    if law is None:
        return None
    needed = law.dynamics.window > 1 and law.dynamics.output_map is None
    why = (
        "this sampler is tuned to C as it is"
        if law.dynamics.window == 1
        else "the windows are mapped for it"
    )
    if subject.large and not needed:
        return Finding(name, "trusted", 0.0, thresholds.NOISE_RATIO, f"not needed, {why}")
    ratios, covectors = _spectrum(law)
    place = int(np.argmax(np.abs(ratios - 1.0)))
    farthest = float(abs(ratios[place] - 1.0))
    spectrum = f"eigenvalues of A⁻¹C lie between {ratios.min():.2g} and {ratios.max():.2g}"
    if not needed:
        return Finding(
            name, "trusted", farthest, thresholds.NOISE_RATIO, f"not needed, {why}; {spectrum}"
        )
    along = (
        printable(law.curvature.names[place])
        if covectors is None
        else subject.words(covectors[:, place])
    )
    sentence = f"{spectrum} (wanted: within {thresholds.NOISE_RATIO} of 1)"
    remedy = (
        "averages tend to the sandwich A⁻¹CA⁻¹/N, which is not the posterior here: use"
        " rescale=True, or ConstantSGD('full')"
    )
    level = graded(farthest, thresholds.NOISE_RATIO)
    bound, command = thresholds.NOISE_RATIO, "--sampler constant-sgd-full"
    detail = f"farthest along {along}"
    return Finding(name, level, farthest, bound, sentence, remedy, detail, command)


def mean_shift(subject: Subject, curvature: Curvature) -> tuple[float, float]:
    """Distance of the mean from the mode in posterior sds, and the root mean square of what chance
    makes of it.
    """
    shift, covariance = subject.posterior.mean - curvature.mode, curvature.posterior_covariance
    units = (
        shift / np.sqrt(covariance)
        if covariance.ndim == 1
        else np.linalg.solve(np.linalg.cholesky(covariance), shift)
    )
    return float(np.linalg.norm(units)), (
        float(np.sqrt(2.0 * subject.error.mean)) if subject.error is not None else 0.0
    )


def _continuous_time(law: Law) -> str:
    """How far off the paper's continuous-time theory would be, the noise met along the chain held
    constant.
    """
    constant = replace(law.curvature, noise=law.noise_met, noise_response=None)
    continuous = law.dynamics.predict(constant, "continuous").covariance
    if continuous is None or law.prediction.covariance is None:
        return ""
    off = kl_covariance(law.prediction.covariance, continuous)
    return f"continuous-time theory, which is not used here, would be off by a KL of {off:.1g}"


def _spectrum(law: Law) -> tuple[Array, Array | None]:
    """Eigenvalues of A⁻¹C, and the combinations of parameters that they belong to."""
    if law.curvature.diagonal:
        return law.noise_met / law.curvature.hessian, None
    ratios, vectors = scipy.linalg.eigh(law.noise_met, law.curvature.hessian)
    return ratios, law.curvature.hessian @ vectors


def _non_quadratic_part(subject: Subject, close: Close, curvature: Curvature) -> float:
    """½Var of N·(L − its quadratic at the mode) over points of Laplace's Gaussian: to second order
    its KL to the posterior, in nats.
    """
    generator = np.random.default_rng(sequence(subject.seed, Purpose.VERDICT, 6))
    law = Coordinates.of(curvature.mode, curvature.posterior_covariance)
    half = generator.standard_normal((max(8, close.points // 4), subject.dimension))
    units = np.concatenate([half, -half])
    residue = close.density.values(law.theta(units)) - 0.5 * np.sum(units**2, axis=1)
    return 0.5 * float(np.var(residue)) if np.all(np.isfinite(residue)) else np.inf
