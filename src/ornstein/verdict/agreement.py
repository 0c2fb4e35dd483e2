"""Are the draws spread as theory predicted?"""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.special

from ornstein.checks import printable
from ornstein.theory import covariance_standard_error, kl_covariance
from ornstein.theory.modes import as_matrix
from ornstein.types import Array
from ornstein.verdict import thresholds
from ornstein.verdict.finding import Finding, graded, rounded
from ornstein.verdict.monte_carlo import variances_error
from ornstein.verdict.subject import Subject


def as_predicted(subject: Subject) -> Finding | None:
    """Empirical against predicted covariance: KL beyond its Monte-Carlo floor, z per entry, the
    worst direction by name.

    The means are compared in "loss is quadratic": a posterior that is not quadratic moves the mean
    of the draws and its own alike.
    """
    law, error = subject.law, subject.error
    if law is None or error is None:
        return None
    found, predicted = subject.posterior.covariance, law.prediction.covariance
    assert predicted is not None
    if found.ndim < predicted.ndim:  # of thousands of parameters only the variances are kept
        error = variances_error(
            subject.posterior.moment_process(), subject.posterior.settings["states"]
        )
        predicted = np.diagonal(predicted)
    distance = kl_covariance(found, predicted)
    excess, chance = distance - error.covariance, thresholds.CHANCE * error.covariance_sd
    small = thresholds.SMALL_KL + chance
    level = graded(excess, small, thresholds.LARGE_KL + chance)
    sentence = (
        f"KL(draws ‖ prediction) {rounded(distance)} ({error.covariance:.2g} expected from Monte"
        f" Carlo error; wanted: at most {error.covariance + small:.2g})"
    )
    detail = ""
    if not subject.large:
        detail = (
            _worst_direction(subject, found, predicted)
            + "; "
            + _worst_entry(subject, found, predicted)
        )
    remedy = (
        "the draws are not spread as theory predicts: use smaller steps (a smaller batch), or check"
        " how minibatches are drawn; where 'loss is quadratic' is marked too, the posterior is not"
        " Gaussian"
    )
    return Finding("as predicted", level, excess, small, sentence, remedy, detail)


def _worst_direction(subject: Subject, found: Array, predicted: Array) -> str:
    size = subject.dimension
    ratios, directions = scipy.linalg.eigh(as_matrix(found, size), as_matrix(predicted, size))
    place = int(np.argmax(np.abs(np.log(np.maximum(ratios, 1e-300)))))
    return (
        f"variance {ratios[place]:.2g} times the predicted one along"
        f" {subject.words(directions[:, place])}"
    )


def _worst_entry(subject: Subject, found: Array, predicted: Array) -> str:
    size, names = subject.dimension, tuple(map(printable, subject.posterior.names))
    error = covariance_standard_error(
        subject.posterior.moment_process(), subject.posterior.settings["states"]
    )
    scores = np.abs(as_matrix(found, size) - as_matrix(predicted, size)) / np.where(
        error > 0, error, np.inf
    )
    row, column = np.unravel_index(int(np.argmax(scores)), scores.shape)
    where = names[row] if row == column else f"{names[row]}, {names[column]}"
    bound = -scipy.special.ndtri(0.005 / (size * (size + 1) / 2.0))
    largest = rounded(scores[row, column])
    return f"largest z of an entry {largest} ({where}; up to {bound:.2g} expected)"
