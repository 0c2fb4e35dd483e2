"""Is the gradient that the sampler follows the gradient of the log density?"""

from __future__ import annotations

import numpy as np

from ornstein.streams import Purpose, sequence
from ornstein.verdict.finding import Finding, skipped
from ornstein.verdict.subject import ABSENT, Subject

NAME = "gradient"
POINTS, STEP = 8, 0.02  # draws looked at; step of the differences in sds
ERROR = 0.1  # of a directional derivative: share of it, or in units of its usual size


def gradient_of_density(subject: Subject) -> Finding:
    """Differences of the log density along random directions at some draws, against the
    gradient.
    """
    density, coordinates = subject.density, subject.coordinates
    if subject.model is None:
        return skipped(NAME, ABSENT)
    if density is None or coordinates is None:
        return skipped(NAME, "the draws have no spread")
    generator = np.random.default_rng(sequence(subject.seed, Purpose.VERDICT, 4))
    z = coordinates.z(subject.some_draws(POINTS))
    way = generator.standard_normal(z.shape)
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    _, slopes = coordinates.energy(density, z)
    said = np.sum(slopes * way, axis=1)
    ahead, behind = (
        density.values(coordinates.theta(z + sign * STEP * way)) for sign in (1.0, -1.0)
    )
    with np.errstate(invalid="ignore"):
        found = (ahead - behind) / (2.0 * STEP)
    usable = np.isfinite(found)
    if not usable.any():
        return skipped(NAME, "the density is not finite about the draws")
    wrong = np.abs(found - said)[usable] > ERROR * (1.0 + np.abs(found[usable]))
    share = float(np.mean(wrong))
    # A kink between the two points makes a difference too, but not at most of the draws.
    if share <= 0.5:
        return Finding(NAME, "trusted", share, 0.5, "it is the slope of the log density")
    ratio = float(np.median(said[usable] / np.where(found[usable] == 0, np.nan, found[usable])))
    sentence = (
        f"the gradient is not the slope of the log density ({ratio:.2g} times it at the median of"
        f" {int(usable.sum())} draws)"
    )
    remedy = "a hand-written derivative is wrong: orn.check_gradients(model) shows where"
    return Finding(NAME, "not trusted", share, 0.5, sentence, remedy)
