"""Does what the posterior predicts happen as often as it says? On the rows the model holds.

Numbers (gaussian, poisson): where each observation falls in its own predictive law (the probability
integral transform, made continuous for counts by a random share of the jump) should be uniform; and
how many observations the central intervals hold. Classes: among rows given the probability p, a
share p should be of that class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.stats

from ornstein.interfaces.table.predicting import thinned_draws
from ornstein.types import Array

if TYPE_CHECKING:
    from ornstein.model.regression import GLM
    from ornstein.posterior.posterior import Posterior

MOST_ROWS, MOST_DRAWS, BINS = 5000, 200, 10


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
    """On at most 5000 rows of the model, drawn at random, with at most 200 draws."""
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(model.n_data, min(model.n_data, MOST_ROWS), replace=False))
    features = model.features[rows]
    features = features.toarray() if hasattr(features, "toarray") else np.asarray(features)
    thinned = thinned_draws(posterior, MOST_DRAWS, seed)
    expected = thinned.predict(features, draws=None).draws
    response = np.asarray(model.response)[rows]
    if model.classes is not None:
        return _classes(expected, response.astype(int))
    return _numbers(thinned, model, expected, response, rng)


def _numbers(
    posterior: Posterior, model: GLM, expected: Array, response: Array, rng: np.random.Generator
) -> Calibration:
    if model.likelihood.family == "gaussian":
        params = posterior.params
        scale = (
            np.exp(params["log_scale"][0])
            if "log_scale" in params
            else np.asarray(model.hyperparameters["noise_scale"])
        )
        scale = np.broadcast_to(scale, (len(expected),))[:, None]
        transforms = np.mean(scipy.stats.norm.cdf((response - expected) / scale), axis=0)
    else:
        above = np.mean(scipy.stats.poisson.cdf(response, expected), axis=0)
        below = np.mean(scipy.stats.poisson.cdf(response - 1.0, expected), axis=0)
        transforms = below + rng.uniform(size=response.size) * (above - below)
    promised = np.linspace(0.05, 0.95, 19)
    happened = np.array([np.mean(np.abs(2.0 * transforms - 1.0) <= level) for level in promised])
    low, high = _interval(happened * response.size, np.full(promised.size, response.size))
    curve = Reliability(
        promised, happened, low, high, "probability of the interval", "share of rows inside"
    )
    inside = {level: np.mean(np.abs(2.0 * transforms - 1.0) <= level) for level in (0.5, 0.8, 0.95)}
    words = ", ".join(
        f"{100 * level:.0f} % intervals hold {100 * share:.1f} %" for level, share in inside.items()
    )
    return Calibration(curve, transforms, f"Predictive {words} of the rows.", response.size)


def _classes(expected: Array, codes: Array) -> Calibration:
    mean = expected.mean(axis=0)
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
