"""The paper's five assumptions, each measured: the number, its bound and a sentence.

A1 the gradient noise is Gaussian; A2 it is the same everywhere; A3 steps are small; A4 the loss is quadratic where the chain
lives; A5 (iterate averaging alone) the noise C equals the curvature A. None of them decides alone: theory here allows for
much of A2, A3 and A5, and the distances to the prediction and to the posterior say what a failure has cost. These say why.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.linalg

from ornstein.curvature import Curvature
from ornstein.derivatives import Autodiff
from ornstein.diagnostics import thresholds
from ornstein.diagnostics.distance import without_response
from ornstein.diagnostics.finding import Finding, graded, rounded, skipped
from ornstein.diagnostics.importance import Weighted
from ornstein.diagnostics.subject import DRAWS_LOOKED_AT, Law, Subject
from ornstein.dynamics import matrix_root
from ornstein.minibatch import effective_batch
from ornstein.theory import kl_covariance

Array = np.ndarray
DIRECTIONS = 32
ABSENT = "it needs the model, which a saved file does not hold: check(model=…)"


def gaussian_noise(subject: Subject) -> Finding | None:
    """A1: excess kurtosis of the projected minibatch noise, and what of it is left in the draws.

    A draw adds up the noise of a relaxation time or so, hence a mode that forgets by r a step keeps (1−r²)/(1+r²) of the
    kurtosis of a minibatch, and the mean over a window of T steps 1/T.
    """
    name, law = "A1 Gaussian noise", subject.law
    if law is None:
        return None
    if subject.model is None:
        return skipped(name, ABSENT)
    if law.dynamics.control_variates:
        return skipped(name, "control variates take the gradient noise away")
    modes, dynamics = law.process.modes, law.dynamics
    chosen = np.argsort(-modes.radii)[:DIRECTIONS]
    basis = modes.basis[:, chosen].T if modes.basis.ndim == 2 else np.eye(law.dimension)[chosen] * modes.basis[chosen, None]
    derivatives = subject.model.closed_form() or Autodiff(subject.model)
    projected = np.concatenate([gradients @ basis.T for gradients in derivatives.example_gradients(law.curvature.mode)])
    centred = projected - projected.mean(axis=0)
    variance = np.mean(centred**2, axis=0)
    alive = variance > 1e-12 * variance.max()
    per_row = np.where(alive, np.mean(centred**4, axis=0) / np.where(alive, variance, 1.0) ** 2 - 3.0, 0.0)
    kurtosis = per_row / dynamics.batch_size
    radius = modes.radii[chosen]
    kept = 1.0 / dynamics.window if dynamics.window > 1 else (1.0 - radius**2) / (1.0 + radius**2)
    left = kurtosis * kept * _share_of_gradient_noise(law, chosen)
    place = int(np.argmax(left))
    heaviest = float(np.max(centred[:, place] ** 2) / np.sum(centred[:, place] ** 2))
    sentence = (
        f"excess kurtosis {kurtosis.max():.2g} of a minibatch leaves {left[place]:.2g} in the draws "
        f"(wanted: at most {thresholds.KURTOSIS})"
    )
    detail = f"one row makes up {heaviest:.1%} of the noise along {subject.words(_covector(law, chosen[place]))}"
    remedy = (
        "a few rows carry the noise, so tails are heavier than a Gaussian's: look at outlying rows and heavy-tailed columns"
    )
    level = graded(left[place], thresholds.KURTOSIS)
    return Finding(name, level, float(left[place]), thresholds.KURTOSIS, sentence, remedy, detail)


def constant_noise(subject: Subject) -> Finding | None:
    """A2: the noise along the chain against that at the mode, in units of the curvature, and what theory expected of it.

    Points come in pairs about the mode, so that a noise that only leans to one side does not count.
    """
    name, law = "A2 constant noise", subject.law
    if law is None:
        return None
    if subject.model is None:
        return skipped(name, ABSENT)
    here = _noise_size(law, law.curvature.noise)
    sizes = [_noise_size(law, noise) for noise in _noises_along(subject, law)]
    change = float(np.mean(sizes)) / here - 1.0
    expected = _noise_size(law, law.noise_met) / here - 1.0
    unexpected = abs(change - expected)
    sentence = (
        f"the noise along the chain is {change:+.1%} off that at the mode, theory allowed for {expected:+.1%} "
        f"(wanted: within {thresholds.NOISE_CHANGE:.0%} of each other)"
    )
    remedy = "the noise changes over the posterior in ways that theory does not follow: use smaller steps (a smaller batch)"
    return Finding(name, graded(unexpected, thresholds.NOISE_CHANGE), unexpected, thresholds.NOISE_CHANGE, sentence, remedy)


def small_steps(subject: Subject) -> Finding | None:
    """A3: the largest eigenvalue of HA against its bound, and discrete against continuous time."""
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
    continuous = law.dynamics.predict(without_response(law), "continuous").covariance
    detail = ""
    if continuous is not None and law.prediction.covariance is not None:
        off = kl_covariance(law.prediction.covariance, continuous)
        detail = f"continuous-time theory, which is not relied on here, would be off by a KL of {off:.1g}"
    remedy = "the step is close to instability, where tails grow heavy: use a smaller step or a smaller batch"
    level = graded(share, thresholds.STABILITY_SHARE)
    return Finding("A3 small steps", level, share, thresholds.STABILITY_SHARE, sentence, remedy, detail)


def quadratic(subject: Subject, weighted: Weighted | None) -> Finding | None:
    """A4: the loss against its quadratic where the draws are, and how far the mean has moved from the mode.

    In a posterior that is not quadratic, noise moves the mean of constant SGD by −½A⁻¹∇³L[Σ]; to first order the posterior's
    own mean is moved by the same, so that a shift is no error yet. Half the step, with the same batch, halves Σ and the shift.
    """
    name, curvature = "A4 quadratic", subject.posterior.curvature
    if curvature is None:
        return None
    shift, chance = _mean_shift(subject, curvature)
    moved = f"the mean is {shift:.2g} posterior sds from the mode, {chance:.1g} by chance"
    detail = ""
    if subject.law is not None and subject.law.dynamics.injected is None:
        detail = f"half the step with the same batch would halve that: {shift / 2.0:.1g} sds"
    remedy = "the posterior is not Gaussian where the draws are: more data help; post.reweight() corrects a small set of draws"
    beyond = float(np.sqrt(max(shift**2 - chance**2, 0.0)))
    if weighted is None or curvature.diagonal:
        sentence = f"{moved} (wanted: at most {thresholds.MEAN_SHIFT} beyond it)"
        level = graded(beyond, thresholds.MEAN_SHIFT)
        return Finding(name, level, beyond, thresholds.MEAN_SHIFT, sentence, remedy, detail)
    part = _non_quadratic_part(weighted, curvature)
    sentence = (
        f"the loss departs from its quadratic by a KL of {rounded(part)} (wanted: at most {thresholds.NON_QUADRATIC}); {moved}"
    )
    level = graded(part, thresholds.NON_QUADRATIC)
    return Finding(name, level, part, thresholds.NON_QUADRATIC, sentence, remedy, detail)


def noise_is_curvature(subject: Subject) -> Finding | None:
    """A5: the spectrum of A⁻¹C. Only plain iterate averaging takes C for A."""
    name, law = "A5 noise = curvature", subject.law
    if law is None:
        return None
    noise = law.noise_met
    if law.curvature.diagonal:
        ratios, where = noise / law.curvature.hessian, None
    else:
        ratios, vectors = scipy.linalg.eigh(noise, law.curvature.hessian)
        where = vectors
    place = int(np.argmax(np.abs(ratios - 1.0)))
    farthest = float(abs(ratios[place] - 1.0))
    spectrum = f"eigenvalues of A⁻¹C lie between {ratios.min():.2g} and {ratios.max():.2g}"
    if law.dynamics.window == 1 or law.dynamics.output_map is not None:
        why = "this sampler is tuned to C as it is" if law.dynamics.window == 1 else "the windows are mapped for it"
        return Finding(name, "trusted", farthest, thresholds.NOISE_RATIO, f"not needed, {why}; {spectrum}")
    along = law.curvature.names[place] if where is None else subject.words(law.curvature.hessian @ where[:, place])
    sentence = f"{spectrum} (wanted: within {thresholds.NOISE_RATIO} of 1); farthest along {along}"
    remedy = (
        "averages tend to the sandwich A⁻¹CA⁻¹/N, which is not the posterior here: use rescale=True, or ConstantSGD('full')"
    )
    return Finding(name, graded(farthest, thresholds.NOISE_RATIO), farthest, thresholds.NOISE_RATIO, sentence, remedy)


def _mean_shift(subject: Subject, curvature: Curvature) -> tuple[float, float]:
    """Distance of the mean from the mode in posterior sds, and the root mean square of what chance makes of it."""
    shift, covariance = subject.posterior.mean - curvature.mode, curvature.posterior_covariance
    units = shift / np.sqrt(covariance) if covariance.ndim == 1 else np.linalg.solve(np.linalg.cholesky(covariance), shift)
    return float(np.linalg.norm(units)), float(np.sqrt(2.0 * subject.error.mean)) if subject.error is not None else 0.0


def _non_quadratic_part(weighted: Weighted, curvature: Curvature) -> float:
    """½Var of N·(L − its quadratic at the mode) over points of the draws' Gaussian: to second order a KL, in nats."""
    moved = weighted.points - curvature.mode
    quadratic_part = 0.5 * curvature.n_data * np.sum(moved * (moved @ curvature.hessian), axis=1)
    return 0.5 * float(np.var(weighted.values - quadratic_part))


def _covector(law: Law, mode: int) -> Array:
    """The combination of parameters that reads off one mode."""
    inverse = law.process.modes.inverse
    if inverse.ndim == 2:
        return inverse[mode]
    covector = np.zeros(law.dimension)
    covector[mode] = inverse[mode]
    return covector


def _share_of_gradient_noise(law: Law, chosen: Array) -> Array:
    """The square of the part that gradient noise has in each mode's noise: a fourth moment counts it twice."""
    dynamics, modes = law.dynamics, law.process.modes
    if dynamics.injected is None:
        return np.ones(chosen.size)
    batch = effective_batch(dynamics.scheme, law.curvature.n_data, dynamics.batch_size)
    driven = modes.gradient_noise(law.noise_met / batch)
    added = modes.injected_noise(
        np.broadcast_to(dynamics.injected, (law.dimension,)) if dynamics.injected.ndim == 0 else dynamics.injected
    )
    first, second = (matrix if matrix.ndim == 1 else np.diagonal(matrix) for matrix in (driven, added))
    return (first / (first + second))[chosen] ** 2


def _noise_size(law: Law, noise: Array) -> float:
    """tr(A⁻¹C): the noise in units of the curvature."""
    posterior = law.curvature.posterior_covariance
    return float(np.sum(posterior * noise)) * law.curvature.n_data


def _noises_along(subject: Subject, law: Law) -> Iterator[Array]:
    """C at a few places of the chain and opposite to them; where draws are window means, points of the iterates' law."""
    assert subject.model is not None
    derivatives, mode = subject.model.closed_form() or Autodiff(subject.model), law.curvature.mode
    single = law.dynamics.window == 1 and subject.posterior.draws.shape[1] > 0
    if single and not law.curvature.diagonal:
        for draw, first, second in subject.gradients_at_draws:
            yield second - np.outer(first, first)
            opposite, square = derivatives.gradient_moments(2.0 * mode - draw)
            yield square - np.outer(opposite, opposite)
        return
    for point in subject.some_draws(DRAWS_LOOKED_AT) if single else _points(subject, law):
        for place in (point, 2.0 * mode - point):
            if law.curvature.diagonal:
                first, second = derivatives.diagonal_moments(place)
                yield second - first**2
            else:
                first, second = derivatives.gradient_moments(place)
                yield second - np.outer(first, first)


def _points(subject: Subject, law: Law) -> Array:
    """Points of the predicted law of single iterates."""
    generator = np.random.default_rng(np.random.SeedSequence(subject.seed, spawn_key=(1, 13)))
    normals, root = generator.standard_normal((DRAWS_LOOKED_AT, law.dimension)), matrix_root(law.spread)
    return law.curvature.mode + (normals * root if root.ndim == 1 else normals @ root.T)
