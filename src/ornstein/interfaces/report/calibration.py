"""Does what the posterior predicts happen as often as it says? On the rows the model holds.

Numbers: where each observation falls in its own predictive law (the probability
integral transform, made continuous for counts by a random share of the jump, and for censored times
of what is left) should be uniform; and
how many observations the central intervals hold. Classes: among rows given the probability p, a
share p should be of that class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.stats

from ornstein.critique.evidence import Evidence
from ornstein.types import Array

if TYPE_CHECKING:
    from ornstein.model.regression import GLM
    from ornstein.posterior.posterior import Posterior

BINS = 10


@dataclass(frozen=True, eq=False)
class Reliability:
    """What was promised, what happened, and the 95 % interval of the latter, all in [0, 1]."""

    promised: Array
    happened: Array
    low: Array
    high: Array
    promised_label: str
    happened_label: str


@dataclass(frozen=True, eq=False)
class Calibration:
    """The curve, the transforms that should be uniform (numbers only), and a sentence with
    figures.
    """

    reliability: Reliability
    transforms: Array | None
    sentence: str
    rows: int


def calibrate(posterior: Posterior, model: GLM, seed: int = 0) -> Calibration:
    """On the rows that a critique looks at."""
    evidence = Evidence.of(posterior, model, seed)
    if model.likelihood.law.labels:
        return _classes(evidence.mean_probabilities, evidence.y.astype(int))
    return _numbers(evidence.transforms)


def _numbers(transforms: Array) -> Calibration:
    promised = np.linspace(0.05, 0.95, 19)
    inside = np.abs(2.0 * transforms - 1.0)
    happened = np.array([np.mean(inside <= level) for level in promised])
    low, high = _interval(happened * inside.size, np.full(promised.size, inside.size))
    curve = Reliability(
        promised, happened, low, high, "probability of the interval", "share of rows inside"
    )
    words = ", ".join(
        f"{100 * level:.0f} % intervals hold {100 * np.mean(inside <= level):.1f} %"
        for level in (0.5, 0.8, 0.95)
    )
    return Calibration(curve, transforms, f"Predictive {words} of the rows.", inside.size)


def _classes(mean: Array, codes: Array) -> Calibration:
    one_vs_rest = mean[:, None] if mean.ndim == 1 else mean
    hits = (
        (codes[:, None] == 1)
        if mean.ndim == 1
        else codes[:, None] == np.arange(one_vs_rest.shape[1])
    )
    probability, hit = one_vs_rest.reshape(-1), hits.reshape(-1).astype(float)
    edges = np.unique(np.quantile(probability, np.linspace(0.0, 1.0, BINS + 1)))
    where = np.clip(
        np.searchsorted(edges, probability, side="right") - 1, 0, max(edges.size - 2, 0)
    )
    used = np.unique(where)
    counts = np.array([np.sum(where == place) for place in used])
    promised = np.array([probability[where == place].mean() for place in used])
    happened = np.array([hit[where == place].mean() for place in used])
    low, high = _interval(happened * counts, counts)
    error = float(np.sum(counts * np.abs(promised - happened)) / counts.sum())
    guess = one_vs_rest.argmax(axis=1) if mean.ndim > 1 else (mean > 0.5).astype(int)
    sentence = (
        f"Probabilities are off by {100 * error:.1f} percentage points on average (expected"
        f" calibration error over {used.size} groups); the most probable class is right in"
        f" {100 * np.mean(guess == codes):.1f} % of the rows."
    )
    curve = Reliability(
        promised, happened, low, high, "predicted probability", "share of rows in the class"
    )
    return Calibration(curve, None, sentence, codes.size)


def _interval(hits: Array, counts: Array) -> tuple[Array, Array]:
    """Wilson's 95 % interval of a share."""
    z = scipy.stats.norm.isf(0.025)
    share = hits / counts
    middle = (share + z**2 / (2 * counts)) / (1 + z**2 / counts)
    half = z / (1 + z**2 / counts) * np.sqrt(share * (1 - share) / counts + z**2 / (4 * counts**2))
    return middle - half, middle + half
