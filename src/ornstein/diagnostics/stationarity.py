"""Has the chain forgotten its start? The early part of a series against the late part.

Two series are looked at: the energy e = (θ−θ̂)ᵀH⁻¹(θ−θ̂) and the projection on the slowest direction. The mean over the first
30 % is compared with that over the last 50 %, in units of its Monte-Carlo error. That error comes from batch means where the
series is long enough for 20 batches of five relaxation times; else from the predicted law. (The fluctuation–dissipation
relation is no test: its time average telescopes, and a z-score of it has no power.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.stats

Array = np.ndarray
EARLY, LATE, BATCHES = 0.3, 0.5, 20


@dataclass(frozen=True)
class StationarityTest:
    """`p_value` for the hypothesis that nothing drifts, corrected for looking at two series; `z` the larger score."""

    z: float
    p_value: float
    series: str

    def passed(self, level: float = 0.01) -> bool:
        return self.p_value >= level


def drift_score(series: Array, batch: int, autocorrelation: Array | None) -> tuple[float, float]:
    """Score and two-sided p-value of (mean early − mean late) for series of shape (chains, length).

    `batch` is the number of entries that are as good as independent of the next `batch`; `autocorrelation`, if given, holds the
    predicted autocovariance of the series at lags 0, 1, …
    """
    length = series.shape[1]
    early, late = series[:, : int(EARLY * length)], series[:, length - int(LATE * length) :]
    difference = early.mean() - late.mean()
    count = min(BATCHES, late.shape[1] // batch)
    if count * series.shape[0] >= BATCHES:
        size = late.shape[1] // count
        means = late[:, -count * size :].reshape(series.shape[0], count, size).mean(axis=2)
        per_entry = float(np.mean(np.var(means, axis=1, ddof=1))) * size
        variance = per_entry * (1.0 / early.size + 1.0 / late.size)
        freedom = float(series.shape[0] * (count - 1))
    elif autocorrelation is not None:
        variance = _difference_variance(autocorrelation, length, early.shape[1], late.shape[1]) / series.shape[0]
        freedom = np.inf
    else:
        return float("nan"), float("nan")
    if variance <= 0.0:
        return 0.0, 1.0
    score = float(difference / np.sqrt(variance))
    return score, float(2.0 * scipy.stats.t.sf(abs(score), freedom))


def _difference_variance(autocovariance: Array, length: int, early: int, late: int) -> float:
    """Variance of (mean of the first `early` − mean of the last `late`) entries of a stationary series."""
    weights = np.zeros(length)
    weights[:early] += 1.0 / early
    weights[length - late :] -= 1.0 / late
    padded = np.zeros(length)
    padded[: min(length, autocovariance.size)] = autocovariance[:length]
    overlap = np.correlate(weights, weights, mode="full")[length - 1 :] if length <= 4096 else _fft_overlap(weights)
    return float(overlap[0] * padded[0] + 2.0 * overlap[1:] @ padded[1:])


def _fft_overlap(weights: Array) -> Array:
    size = weights.size
    transform = np.fft.rfft(weights, 2 * size)
    return np.fft.irfft(transform * transform.conj(), 2 * size)[:size]


def stationarity_test(
    displacements: Array, energy_metric: Array, slowest: Array, spacing_in_relaxation_times: float
) -> StationarityTest:
    """Test draws (chains, length, D) given as displacements from the mode.

    `energy_metric` maps displacements to coordinates whose squared length is the energy; `slowest` is the covector of the slowest
    direction. Where the series is too short for batch means, the slowest direction is taken as an exponential of known decay.
    """
    batch = max(1, int(np.ceil(5.0 / max(spacing_in_relaxation_times, 1e-12))))
    coordinates = displacements * energy_metric if energy_metric.ndim == 1 else displacements @ energy_metric.T
    energy = np.sum(coordinates**2, axis=2)
    projection = displacements @ slowest
    decay = np.exp(-spacing_in_relaxation_times * np.arange(energy.shape[1]))
    results = []
    for name, series, power in (("energy", energy, 2.0), ("slowest direction", projection, 1.0)):
        late = series[:, series.shape[1] // 2 :]
        results.append((*drift_score(series, batch, np.var(late) * decay**power), name))
    score, p_value, name = min(results, key=lambda result: result[1])
    return StationarityTest(abs(score), min(1.0, 2.0 * p_value), name)
