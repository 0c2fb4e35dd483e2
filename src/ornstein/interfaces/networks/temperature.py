"""One temperature for predictions, chosen on held-out rows: it minimises the loss of the mean over
draws of softmax(logits/T), or of normal densities whose noise scale is multiplied by T. A prior
keeps it near 1 where the rows say little.

With a single draw, that of the trained network, this is plain temperature scaling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.optimize
import scipy.special

from ornstein.posterior.last_layer import Score
from ornstein.types import Array

LOWEST, HIGHEST = 0.02, 50.0
# Standard deviation of the logarithm of a posterior's temperature before rows are seen. The colder
# it is, the more the mean over draws is a count of their votes: a few hundred rows hardly tell such
# temperatures apart, and a new row that no draw votes for costs dearly.
SPREAD = 0.5
BINS = 15
INTERVAL = 0.9
# Numbers (draws × rows × classes) that are looked at for one temperature.
AT_ONCE = 10**7


class Forecasts(Protocol):
    """Predictions of rows whose outcomes are known."""

    @property
    def rows(self) -> int: ...

    def loss(self, temperature: float) -> float:
        """Mean −log p(y) per row, in nats."""

    def error(self, temperature: float) -> float:
        """How far they are from being calibrated."""


@dataclass(frozen=True, eq=False)
class Classes:
    """Logits (draws, rows, classes) and the class of each row."""

    logits: Array
    codes: Array

    @property
    def rows(self) -> int:
        return int(self.codes.size)

    def probabilities(self, temperature: float) -> Array:
        """The mean over draws of softmax(logits/T)."""
        total = np.zeros(self.logits.shape[1:])
        for one in self.logits:
            total += scipy.special.softmax(one / temperature, axis=-1)
        return total / len(self.logits)

    def loss(self, temperature: float) -> float:
        """In logarithms throughout, so that no probability is too small."""
        rows = np.arange(self.codes.size)
        logs = np.empty(self.logits.shape[:2])
        for place, one in enumerate(self.logits):
            scaled = one / temperature
            logs[place] = scaled[rows, self.codes] - scipy.special.logsumexp(scaled, axis=-1)
        return float(np.mean(math.log(len(logs)) - scipy.special.logsumexp(logs, axis=0)))

    def error(self, temperature: float) -> float:
        return calibration_error(self.probabilities(temperature), self.codes)


@dataclass(frozen=True, eq=False)
class Numbers:
    """Expectations (draws, rows), noise scales (draws,) and what the rows turned out to be."""

    means: Array
    scales: Array
    outcomes: Array

    @property
    def rows(self) -> int:
        return int(self.outcomes.size)

    def _residuals(self, temperature: float) -> Array:
        return (self.outcomes - self.means) / (temperature * self.scales[:, None])

    def loss(self, temperature: float) -> float:
        logs = -0.5 * self._residuals(temperature) ** 2 - np.log(
            temperature * self.scales[:, None] * math.sqrt(2.0 * math.pi)
        )
        return float(np.mean(math.log(len(logs)) - scipy.special.logsumexp(logs, axis=0)))

    def error(self, temperature: float) -> float:
        """By how much the share of rows within central 90 % intervals misses 0.9."""
        levels = np.mean(scipy.special.ndtr(self._residuals(temperature)), axis=0)
        tail = (1.0 - INTERVAL) / 2.0
        return float(abs(np.mean((levels > tail) & (levels < 1.0 - tail)) - INTERVAL))


def calibration_error(probabilities: Array, codes: Array, bins: int = BINS) -> float:
    """Expected calibration error: |share of hits − confidence|, averaged over bins of
    confidence.

    >>> calibration_error(np.array([[0.5, 0.5], [0.5, 0.5]]), np.array([0, 1]))
    0.0
    """
    confidence = probabilities.max(axis=1)
    hit = probabilities.argmax(axis=1) == codes
    places = np.minimum((confidence * bins).astype(int), bins - 1)
    off = np.bincount(places, hit - confidence, bins)
    return float(np.sum(np.abs(off)) / codes.size)


def best_temperature(forecasts: Forecasts, spread: float = math.inf) -> float:
    """The temperature with the smallest loss on these rows, or the most probable one where its
    logarithm is normal about 0 with this `spread` before they are seen.
    """
    weight = 0.5 / (spread**2 * forecasts.rows)
    found = scipy.optimize.minimize_scalar(
        lambda place: forecasts.loss(math.exp(place)) + weight * place**2,
        bounds=(math.log(LOWEST), math.log(HIGHEST)),
        method="bounded",
        options={"xatol": 1e-3},
    )
    return float(math.exp(found.x))


def score(forecasts: Forecasts, temperature: float) -> Score:
    """At one temperature."""
    return Score(temperature, forecasts.loss(temperature), forecasts.error(temperature))


def some(count: int, numbers: int) -> Array:
    """Which of `count` draws to look at, given how many numbers each makes."""
    most = int(max(min(count, 100), AT_ONCE // max(1, numbers)))
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))
