"""Has the chain forgotten its start? The early part of a series against the late part.

Two series are looked at: the energy e = (θ−θ̂)ᵀH⁻¹(θ−θ̂) and the projection on the slowest
direction. The mean over the first 20 % is compared with that over the last 50 %. (Of one chain, ten
relaxation times long, a start 10 sd away then stands out in 99 runs of 100; with the first 30 % in
94.) How much the two differ in a stationary chain comes from batch means where the chains are long
enough for 20 batches of five relaxation times; else from the predicted law, whose autocovariances
are known. Their predicted *shape* also corrects the batch means for being of finite length, which
would else reject too often.

The fluctuation–dissipation relation is no test: its time average telescopes, and a z-score of it
has no power.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.special

from ornstein.theory import Process
from ornstein.theory.matrices import Array
from ornstein.theory.modes import congruence

EARLY, LATE, BATCHES, BATCH_RELAXATION_TIMES = 0.2, 0.5, 20, 5.0
SHORTEST = 10
NUMBERS_AT_ONCE = 2**22  # of the states whose energies are taken: 32 MB
# p-values: one good run in a hundred is called into doubt, one in ten thousand rejected.
DOUBTFUL_P, IMPOSSIBLE_P = 0.01, 1e-4


@dataclass(frozen=True)
class StationarityTest:
    """`p_value` for the hypothesis that nothing drifts, corrected for looking at two series; `z`
    the score of the worse one.
    """

    z: float
    p_value: float
    series: str

    def passed(self, level: float = DOUBTFUL_P) -> bool:
        return self.p_value >= level


def stationarity_test(displacements: Array, process: Process, spacing: int) -> StationarityTest:
    """Test states (chains, length, D), displacements from the mode taken every `spacing` steps,
    against the predicted process.

    `process.window` above 1 means that they are window means, `process.scale` that they were mapped
    linearly.

    >>> from ornstein.theory import normal_modes, Process
    >>> from ornstein.theory.stationary import solve_modes
    >>> modes = normal_modes([1.0, 1.0], 0.5)
    >>> process = Process(modes, solve_modes(modes, [1.0, 1.0]))
    >>> drifting = np.linspace(3.0, 0.0, 200)[None, :, None] * np.ones(2)
    >>> stationarity_test(drifting, process, 10).passed()
    False
    """
    length = displacements.shape[1]
    if length < SHORTEST:
        raise ValueError(f"the stationarity test needs {SHORTEST} states per chain; got {length}")
    energy, projection = np.empty(displacements.shape[:2]), np.empty(displacements.shape[:2])
    series, rows = DriftSeries(process), max(1, NUMBERS_AT_ONCE // displacements.shape[2])
    for chain, states in enumerate(displacements):
        for start in range(0, length, rows):
            part = slice(start, start + rows)
            energy[chain, part], projection[chain, part] = series.of(states[part])
    return series_test(energy, projection, process, spacing)


class DriftSeries:
    """What the test looks at in states of a process: their energy and their slowest direction."""

    def __init__(self, process: Process) -> None:
        self.metric, self.slowest = process.modes.inverse, process.modes.slowest
        scale = process.scale
        self.unmapped = np.linalg.pinv(scale).T if scale is not None and scale.ndim == 2 else None
        self.scale = scale if self.unmapped is None else None

    def of(self, displacements: Array) -> tuple[Array, Array]:
        """Energies and projections of states (length, D)."""
        return np.sum(self._coordinates(displacements) ** 2, axis=1), displacements @ self.slowest

    def _coordinates(self, displacements: Array) -> Array:
        """Coordinates whose squared length is the energy, a linear map of the draws undone."""
        if self.unmapped is not None:
            displacements = displacements @ self.unmapped
        elif self.scale is not None:
            displacements = displacements / self.scale
        return (
            displacements * self.metric if self.metric.ndim == 1 else displacements @ self.metric.T
        )


def series_test(
    energy: Array, projection: Array, process: Process, spacing: int
) -> StationarityTest:
    """The same test, of the two series (`DriftSeries`), each of shape (chains, length)."""
    expected = _expected(process, spacing, energy.shape[1])
    relaxation = process.modes.relaxation_time / (max(spacing, process.window))
    batch = max(1, int(np.ceil(BATCH_RELAXATION_TIMES * relaxation)))
    # The mean of a few energies is skewed like a χ²; their ratio then follows an F law, not a t.
    results = (
        (*drift_score(energy, batch, expected.energy, expected.mean_energy), "energy"),
        (*drift_score(projection, batch, expected.projection), "slowest direction"),
    )
    score, p_value, name = min(results, key=lambda result: result[1])
    return StationarityTest(abs(score), min(1.0, 2.0 * p_value), name)


def drift_score(
    series: Array, batch: int, autocovariance: Array, mean: float | None = None
) -> tuple[float, float]:
    """Score and two-sided p-value of (mean early − mean late) for series of shape (chains, length).

    `batch` is the number of entries that are as good as independent of the next `batch`,
    `autocovariance` what theory predicts for lags 0, 1, … With `mean`, a short series is taken for
    one of squares with that expectation.
    """
    chains, length = series.shape
    early, late = series[:, : int(EARLY * length)], series[:, length - int(LATE * length) :]
    difference = float(early.mean() - late.mean())
    predicted = _difference_variance(autocovariance, length, early.shape[1], late.shape[1]) / chains
    if predicted <= 0.0:
        return 0.0, 1.0
    count = min(BATCHES, late.shape[1] // batch)
    if count >= 2 and count * chains >= BATCHES:
        size = late.shape[1] // count
        means = late[:, -count * size :].reshape(chains, count, size).mean(axis=2)
        scale = float(np.mean(np.var(means, axis=1, ddof=1))) / _mean_variance(autocovariance, size)
        if scale <= 0.0:
            return 0.0, 1.0
        score = difference / np.sqrt(scale * predicted)
        return float(score), float(2.0 * scipy.special.stdtr(chains * (count - 1), -abs(score)))
    score = float(difference / np.sqrt(predicted))
    if mean is None or late.mean() <= 0.0:
        return score, float(2.0 * scipy.special.ndtr(-abs(score)))
    above, below = (
        2.0 * chains * mean**2 / _mean_variance(autocovariance, part.shape[1])
        for part in (early, late)
    )
    ratio = float(early.mean() / late.mean())
    return score, float(
        2.0 * min(scipy.special.fdtrc(above, below, ratio), scipy.special.fdtr(above, below, ratio))
    )


@dataclass(frozen=True)
class _Expected:
    """Predicted autocovariances of the two series at lags 0, 1, …, and the mean of the energy."""

    energy: Array
    projection: Array
    mean_energy: float


def _expected(process: Process, spacing: int, length: int) -> _Expected:
    """For a Gaussian process with autocovariance Γ_k in the modes' coordinates, e = |y|² has the
    autocovariance 2‖Γ_k‖².
    """
    unmapped = replace(process, scale=None)
    slowest = process.modes.slowest
    if process.window > 1:
        return _expected_of_windows(process, unmapped, slowest)
    return _expected_of_iterates(process, spacing, length)


def _expected_of_iterates(process: Process, spacing: int, length: int) -> _Expected:
    modes, covariance = process.modes, process.stationary
    memory = 1.0 - modes.damping
    middle = 1.0 + memory - modes.rates
    if covariance.ndim == 1:
        before = middle / (1.0 + memory) * covariance
        squares, mixed, squares_before = covariance**2, covariance * before, before**2
        own, own_before = covariance, before
    else:
        before = (middle[None, :] - memory * middle[:, None]) / (1.0 - memory**2) * covariance
        squares, mixed, squares_before = (
            (covariance**2).sum(1),
            (covariance * before).sum(1),
            (before**2).sum(1),
        )
        own, own_before = np.diagonal(covariance), np.diagonal(before)
    slowest = int(np.argmax(modes.radii))
    onward = np.linalg.matrix_power(modes.companion, spacing)
    carried = np.broadcast_to(np.eye(2), onward.shape)
    energy, projection = [], []
    for _ in range(length):
        now, past = carried[:, 0, 0], carried[:, 0, 1]
        energy.append(
            2.0
            * float(np.sum(now**2 * squares + 2.0 * now * past * mixed + past**2 * squares_before))
        )
        projection.append(float(now[slowest] * own[slowest] + past[slowest] * own_before[slowest]))
        if energy[-1] < 1e-8 * energy[0] and abs(projection[-1]) < 1e-4 * projection[0]:
            break
        carried = carried @ onward
    return _Expected(np.array(energy), np.array(projection), float(np.sum(own)))


def _expected_of_windows(
    process: Process, unmapped: Process, slowest: Array, lags: int = 4
) -> _Expected:
    """Window means are nearly independent: a few lags are all there is."""
    energy, projection, mean_energy = [], [], 0.0
    for lag in range(lags):
        gamma = congruence(process.modes.inverse, unmapped.autocovariance(lag))
        mean_energy = mean_energy or float(np.sum(gamma if gamma.ndim == 1 else np.diagonal(gamma)))
        energy.append(2.0 * float(np.sum(gamma**2)))
        delivered = process.autocovariance(lag)
        projection.append(
            float(slowest @ (delivered * slowest if delivered.ndim == 1 else delivered @ slowest))
        )
    return _Expected(np.array(energy), np.array(projection), mean_energy)


def _mean_variance(autocovariance: Array, size: int) -> float:
    """Variance of the mean of `size` successive entries."""
    lags = min(size, autocovariance.size)
    weights = (size - np.arange(lags)) * autocovariance[:lags]
    return float((weights[0] + 2.0 * weights[1:].sum()) / size**2)


def _difference_variance(autocovariance: Array, length: int, early: int, late: int) -> float:
    """Variance of (mean of the first `early` − mean of the last `late`) entries."""
    weights = np.zeros(length)
    weights[:early] += 1.0 / early
    weights[length - late :] -= 1.0 / late
    transform = np.fft.rfft(weights, 2 * length)
    overlap = np.fft.irfft(transform * transform.conj(), 2 * length)[:length]
    lags = min(length, autocovariance.size)
    return float(overlap[0] * autocovariance[0] + 2.0 * overlap[1:lags] @ autocovariance[1:lags])
