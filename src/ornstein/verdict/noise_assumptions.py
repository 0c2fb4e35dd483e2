"""Is the gradient noise Gaussian, and is it the same along the chain as at the mode?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ornstein.curvature.derivatives import derivatives_of
from ornstein.curvature.leverage import drawn_moments, factors
from ornstein.rows.scheme import effective_batch
from ornstein.streams import Purpose, sequence
from ornstein.theory.matrices import matrix_root
from ornstein.types import Array
from ornstein.verdict import thresholds
from ornstein.verdict.finding import Finding, graded, skipped
from ornstein.verdict.subject import ABSENT, Law, Subject

DIRECTIONS = 32


def gaussian_noise(subject: Subject) -> Finding | None:
    """Excess kurtosis of the projected minibatch noise along the chain, and what of it is left
    in the draws.

    At the mode alone it would miss a row of high leverage: the fit passes through it, so that its
    gradient vanishes there and only there. A draw adds up the noise of a relaxation time or so,
    hence a mode that forgets by r a step keeps (1−r²)/(1+r²) of the kurtosis of a minibatch, and
    the mean over a window of T steps 1/T.
    """
    name, law = "gradient noise is Gaussian", subject.law
    if law is None:
        return None
    if subject.model is None:
        return skipped(name, ABSENT)
    if law.dynamics.control_variates:
        return skipped(name, "control variates take the gradient noise away")
    if law.curvature.diagonal:
        return skipped(name, "too many parameters for gradients of single examples")
    slowest = np.argsort(-law.process.modes.radii)[:DIRECTIONS]
    squares, fourth = _projected_moments(subject, law, slowest)
    variance = np.mean(squares, axis=0)
    alive = variance > 1e-12 * variance.max()
    per_row = np.where(alive, fourth / np.where(alive, variance, 1.0) ** 2 - 3.0, 0.0)
    kurtosis = per_row / law.dynamics.batch_size
    left = kurtosis * _kept(law, slowest)
    place = int(np.argmax(left))
    heaviest = float(np.max(squares[:, place]) / np.sum(squares[:, place]))
    sentence = (
        f"excess kurtosis {kurtosis.max():.2g} of a minibatch leaves {left[place]:.2g} in the draws"
        f" (wanted: at most {thresholds.KURTOSIS})"
    )
    detail = (
        f"one row makes up {heaviest:.1%} of the noise along"
        f" {subject.words(law.process.modes.inverse[slowest[place]])}"
    )
    remedy = (
        "a few rows carry the noise, so tails are heavier than a Gaussian's: look at outlying rows"
        " and heavy-tailed columns"
    )
    level = graded(left[place], thresholds.KURTOSIS)
    return Finding(name, level, float(left[place]), thresholds.KURTOSIS, sentence, remedy, detail)


def constant_noise(subject: Subject) -> Finding | None:
    """The noise along the chain against that at the mode, in units of the curvature, and what
    theory expected of it.

    Points come in pairs about the mode, so that a noise that only leans to one side does not count.
    """
    name, law = "noise is constant", subject.law
    if law is None:
        return None
    if subject.model is None:
        return skipped(name, ABSENT)
    whole = not subject.large and not law.curvature.diagonal
    here = _noise_size(law, law.curvature.noise, whole)
    change = (
        float(
            np.mean(
                [_noise_size(law, noise, whole) for noise in _noises_along(subject, law, whole)]
            )
        )
        / here
        - 1.0
    )
    expected = _noise_size(law, law.noise_met, whole) / here - 1.0
    unexpected = abs(change - expected)
    sentence = (
        f"along the chain the noise is {_times(1.0 + change)} that at the mode, where theory"
        f" expected {_times(1.0 + expected)} (wanted: within {thresholds.NOISE_CHANGE:.0%} of each"
        " other)"
    )
    remedy = (
        "the noise changes over the posterior in ways that theory does not follow: use smaller"
        " steps (a smaller batch)"
    )
    return Finding(
        name,
        graded(unexpected, thresholds.NOISE_CHANGE),
        unexpected,
        thresholds.NOISE_CHANGE,
        sentence,
        remedy,
    )


def _times(ratio: float) -> str:
    """A ratio in words.

    >>> _times(1.0234), _times(25000.0)
    ('1.02 times', 'far more than')
    """
    return f"{ratio:.2f} times" if ratio < 100.0 else "far more than"


def _projected_moments(subject: Subject, law: Law, modes: Array) -> tuple[Array, Array]:
    """Gradient noise of single rows along some of the modes: its squares (N, modes) and mean fourth
    power, over a few places.
    """
    assert subject.model is not None
    derivatives, basis = (
        derivatives_of(subject.model),
        law.process.modes.basis[:, modes],
    )
    places = _places(subject, law)
    squares, fourth = np.zeros((subject.model.n_data, modes.size)), np.zeros(modes.size)
    probabilities = law.curvature.probabilities
    factor = 1.0 if probabilities is None else factors(probabilities)[:, None]
    for place in places:
        projected = np.concatenate(
            [gradients @ basis for gradients in derivatives.example_gradients(place)]
        )
        noise = (factor * projected - projected.mean(axis=0)) ** 2
        squares += noise / factor / len(places)
        fourth += np.mean(noise**2 / factor, axis=0) / len(places)
    return squares, fourth


def _kept(law: Law, chosen: Array) -> Array:
    """The part of a minibatch's kurtosis that is left in a draw, per mode; noise that is injected
    dilutes it twice.
    """
    dynamics, modes = law.dynamics, law.process.modes
    radius = modes.radii[chosen]
    kept = (
        np.full(chosen.size, 1.0 / dynamics.window)
        if dynamics.window > 1
        else (1.0 - radius**2) / (1.0 + radius**2)
    )
    if dynamics.injected is None:
        return kept
    batch = effective_batch(dynamics.scheme, law.curvature.n_data, dynamics.batch_size)
    injected = (
        dynamics.injected
        if dynamics.injected.ndim
        else np.broadcast_to(dynamics.injected, (law.dimension,))
    )
    matrices = modes.gradient_noise(law.noise_met / batch), modes.injected_noise(injected)
    driven, added = (matrix if matrix.ndim == 1 else np.diagonal(matrix) for matrix in matrices)
    return kept * (driven / (driven + added))[chosen] ** 2


def _noise_size(law: Law, noise: Array, whole: bool) -> float:
    """The noise in units of the curvature: tr(A⁻¹C), or from the diagonals alone ΣC_kk/A_kk."""
    if whole:
        return float(np.sum(law.curvature.posterior_covariance * noise)) * law.curvature.n_data
    hessian = law.curvature.hessian
    diagonals = (matrix if matrix.ndim == 1 else np.diagonal(matrix) for matrix in (noise, hessian))
    return float(np.sum(np.divide(*diagonals)))


def _noises_along(subject: Subject, law: Law, whole: bool) -> Iterator[Array]:
    """C at a few places of the chain and opposite to them."""
    assert subject.model is not None
    model, mode = subject.model, law.curvature.mode
    if _iterates_kept(subject, law) and whole:
        for draw, first, second in subject.gradients_at_draws:
            yield second - np.outer(first, first)
            opposite, square = drawn_moments(model, law.curvature, 2.0 * mode - draw)
            yield square - np.outer(opposite, opposite)
        return
    for point in _places(subject, law):
        for place in (point, 2.0 * mode - point):
            first, second = drawn_moments(model, law.curvature, place, not whole)
            yield second - (np.outer(first, first) if whole else first**2)


def _iterates_kept(subject: Subject, law: Law) -> bool:
    return law.dynamics.window == 1 and subject.posterior.draws.shape[1] > 0


def _places(subject: Subject, law: Law) -> Array:
    """A few places of the chain, (few, D): draws; where those are window means or were not kept,
    points of the iterates' law.
    """
    if _iterates_kept(subject, law):
        return subject.some_draws(subject.draws_looked_at)
    generator = np.random.default_rng(sequence(subject.seed, Purpose.VERDICT, 1))
    normals, root = (
        generator.standard_normal((subject.draws_looked_at, law.dimension)),
        matrix_root(law.spread),
    )
    return law.curvature.mode + (normals * root if root.ndim == 1 else normals @ root.T)
