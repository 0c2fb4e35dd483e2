"""Is the gradient that the sampler follows the gradient of the log density?"""

from __future__ import annotations

import numpy as np

from ornstein.streams import Purpose, sequence
from ornstein.types import Array
from ornstein.verdict.coordinates import Coordinates
from ornstein.verdict.density import Density
from ornstein.verdict.finding import Finding, skipped
from ornstein.verdict.subject import ABSENT, Subject

NAME = "gradient"
FEWEST, MOST = 3, 32  # draws looked at
EVALUATIONS = 5  # of the density, at each
STEP = 0.02  # of the differences, in sds
ERROR = 0.1  # of a directional derivative: share of it, or in units of its usual size
BENT = 0.02  # by which differences over a step and half of it differ at a kink: they do not count
SHARE = 0.25  # of the draws, at which a wrong slope is no accident


def gradient_of_density(subject: Subject) -> Finding:
    """Differences of the log density along parameters and random directions at some draws,
    compared with the gradient.
    """
    density, coordinates = subject.density, subject.coordinates
    if subject.model is None:
        return skipped(NAME, ABSENT)
    if density is None or coordinates is None:
        return skipped(NAME, "the draws have no spread")
    draws = subject.some_draws(int(np.clip(subject.budget // 20, FEWEST, MOST)))
    ways = STEP * _ways(coordinates, draws.shape, subject.seed)
    _, slopes = density.values_and_gradients(draws)
    said = np.sum(slopes * ways, axis=1) / STEP
    with np.errstate(invalid="ignore"):
        found, halved = (_difference(density, draws, ways * part) / part for part in (1.0, 0.5))
        usable = np.isfinite(said) & (np.abs(found - halved) <= BENT * (1.0 + np.abs(found)))
    if not usable.any():
        return skipped(NAME, "the density is not smooth about the draws")
    wrong = np.abs(found - said)[usable] > ERROR * (1.0 + np.abs(found[usable]))
    share = float(np.mean(wrong))
    if share <= SHARE:
        return Finding(NAME, "trusted", share, SHARE, "it is the slope of the log density")
    at = np.flatnonzero(usable)[wrong]
    ratio = float(np.median(said[at] / np.where(found[at] == 0, np.nan, found[at])))
    sentence = (
        f"the gradient is not the slope of the log density ({ratio:.2g} times it at the median of"
        f" {len(at)} draws)"
    )
    remedy = "see what the log density computes: orn.check_gradients(model) shows where"
    return Finding(NAME, "not trusted", share, SHARE, sentence, remedy)


def _ways(coordinates: Coordinates, shape: tuple[int, ...], seed: int) -> Array:
    """One direction for each draw, (n, D), an sd long: of every two one along a parameter, the
    other at random.
    """
    generator = np.random.default_rng(sequence(seed, Purpose.VERDICT, 4))
    way = generator.standard_normal(shape)
    ways = coordinates.theta(way / np.linalg.norm(way, axis=1, keepdims=True)) - coordinates.centre
    count, size = shape
    alone = np.arange(0, count, 2)
    ways[alone] = 0.0
    parameters = np.resize(generator.permutation(size), len(alone))
    ways[alone, parameters] = coordinates.conditional_sd[parameters]
    return ways


def _difference(density: Density, points: Array, step: Array) -> Array:
    """The central difference of U along a step, in units of STEP."""
    return (density.values(points + step) - density.values(points - step)) / (2.0 * STEP)
