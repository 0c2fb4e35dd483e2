"""The stationarity test: the variances it relies on exactly, then how often it is wrong and how
often it sees a drift.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from helpers import hessian_and_noise
from verdict_problems import BATCH, regression

import ornstein as orn
from ornstein.theory import Process, normal_modes, stationarity
from ornstein.theory.modes import congruence
from ornstein.theory.stationarity import drift_score, stationarity_test
from ornstein.theory.stationary import solve_modes
from ornstein.verdict.thresholds import DOUBTFUL_P

SEEDS = 200


def predicted(dimension, slowest_rate, damping=1.0):
    """A process whose slowest mode forgets at about the given rate, and what one step adds in its
    coordinates.
    """
    hessian, noise = hessian_and_noise(dimension, seed=dimension)
    step = slowest_rate / np.linalg.eigvalsh(hessian)[0]
    modes = normal_modes(hessian, step, damping)
    return Process(modes, solve_modes(modes, noise)), modes.gradient_noise(noise)


def simulated(process, driven, seeds, chains, length, spacing, start=0.0, seed=0):
    """Displacements (seeds, chains, length, D): the linear recursion itself, all seeds at once,
    from its law or `start` sds away.
    """
    rng, modes = np.random.default_rng(seed), process.modes
    memory = 1.0 - modes.damping
    root = np.linalg.cholesky(driven)
    shape = (seeds, chains, modes.dimension)
    position = rng.standard_normal(shape) @ np.linalg.cholesky(process.stationary).T
    if start:
        slowest = int(np.argmax(modes.radii))
        position = np.zeros(shape)
        position[..., slowest] = start * np.sqrt(process.stationary[slowest, slowest])
    before, kept = position.copy(), np.empty((length, *shape))
    if modes.damping < 1.0:  # so that the pair (now, before) is stationary too
        for _ in range(int(10 * modes.relaxation_time)):
            position, before = _step(modes, memory, position, before, root, rng), position
    for place in range(length):
        for _ in range(spacing):
            position, before = _step(modes, memory, position, before, root, rng), position
        kept[place] = position
    return np.moveaxis(kept, 0, 2) @ modes.basis.T


def _step(modes, memory, position, before, root, rng):
    return (
        (1.0 + memory - modes.rates) * position
        - memory * before
        + rng.standard_normal(position.shape) @ root.T
    )


def p_values(process, runs, spacing):
    return np.array([stationarity_test(run, process, spacing).p_value for run in runs])


def test_variance_of_the_difference_is_that_of_its_weights():
    autocovariance = np.exp(-0.2 * np.arange(60))
    length, early, late = 60, 12, 30
    weights = np.zeros(length)
    weights[:early], weights[-late:] = 1.0 / early, -1.0 / late
    lags = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
    exact = weights @ autocovariance[lags] @ weights
    assert stationarity._difference_variance(autocovariance, length, early, late) == pytest.approx(
        exact, rel=1e-12
    )
    mean = np.full(25, 1.0 / 25)
    exact = mean @ autocovariance[lags[:25, :25]] @ mean
    assert stationarity._mean_variance(autocovariance, 25) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("damping", [1.0, 0.3])
def test_expected_autocovariances_are_those_of_the_process(damping):
    process, _ = predicted(3, 0.02, damping)
    spacing = 7
    expected = stationarity._expected(process, spacing, 40)
    spaced = replace(process, spacing=spacing)
    slowest, inverse = process.modes.slowest, process.modes.inverse
    for lag in (0, 1, 5, 12):
        gamma = spaced.autocovariance(lag)
        assert expected.projection[lag] == pytest.approx(slowest @ gamma @ slowest, rel=1e-9)
        assert expected.energy[lag] == pytest.approx(
            2.0 * np.sum(congruence(inverse, gamma) ** 2), rel=1e-9
        )
    assert expected.mean_energy == pytest.approx(
        np.trace(congruence(inverse, process.covariance())), rel=1e-12
    )


@pytest.mark.parametrize(
    ("dimension", "rate", "damping", "chains", "length", "spacing"),
    [
        pytest.param(1, 0.05, 1.0, 1, 100, 2, id="one chain of 10 relaxation times"),
        pytest.param(3, 0.05, 1.0, 4, 100, 2, id="four chains of 10"),
        pytest.param(4, 0.05, 1.0, 4, 50, 40, id="four chains of 100, batch means"),
        pytest.param(2, 0.02, 0.3, 4, 60, 5, id="momentum"),
    ],
)
def test_false_alarms_stay_at_the_nominal_level(dimension, rate, damping, chains, length, spacing):
    process, driven = predicted(dimension, rate, damping)
    found = p_values(process, simulated(process, driven, SEEDS, chains, length, spacing), spacing)
    for level in (0.05, 0.01):
        # A true level of 1.7 times the nominal 5 % would be seen in 95 of 100 such experiments.
        low, high = scipy.stats.binom.interval(0.99, SEEDS, level)
        assert low <= np.sum(found < level) <= high, (
            f"{np.mean(found < level):.3f} of {SEEDS} at {level}"
        )


def test_windows_do_not_raise_false_alarms():
    """Means over windows of 30 relaxation times, mapped linearly as iterate averaging does."""
    process, driven = predicted(2, 0.05)
    window = int(30 * process.modes.relaxation_time)
    states = simulated(process, driven, SEEDS, 2, 20 * window, 1)
    means = states.reshape(SEEDS, 2, 20, window, 2).mean(axis=3)
    scale = np.array([[2.0, 0.3], [0.3, 0.5]])
    averaged = replace(process, window=window, spacing=window, scale=scale)
    found = p_values(averaged, means @ scale.T, window)
    low, high = scipy.stats.binom.interval(0.99, SEEDS, 0.05)
    assert low <= np.sum(found < 0.05) <= high


@pytest.mark.parametrize(("dimension", "chains"), [(1, 1), (3, 1), (3, 4)])
def test_a_start_ten_sds_away_is_seen_within_ten_relaxation_times(dimension, chains):
    process, driven = predicted(dimension, 0.05)
    steps = int(10 * process.modes.relaxation_time)
    found = p_values(
        process, simulated(process, driven, SEEDS, chains, steps // 2, 2, start=10.0), 2
    )
    assert np.mean(found < DOUBTFUL_P) > 0.95  # at the level that the verdict itself uses


def test_ignoring_correlation_would_raise_false_alarms():
    """Negative control: the same runs, taken for independent states."""
    process, driven = predicted(3, 0.05)
    runs = simulated(process, driven, 50, 4, 100, 2)
    scores = [drift_score(run @ process.modes.slowest, 1, np.array([1.0])) for run in runs]
    assert np.mean([p_value < 0.05 for _, p_value in scores]) > 0.3


@pytest.mark.parametrize("seed", range(4))
def test_runs_of_the_sampler(seed):
    """From the law: content. From 10 sds away, without warm-up: not."""
    model = regression()
    curvature = orn.measure(model)
    dynamics = orn.ConstantSGD("full").tune(curvature, BATCH)
    tau = dynamics.predict(curvature).relaxation_time
    away = curvature.mode + 10.0 * curvature.laplace.standard_deviation
    options = {
        "curvature": curvature,
        "seed": seed,
        "warmup": 0,
        "progress": False,
        "draws": 50,
        "thin": round(tau / 5),
    }
    rested = orn.sample(model, dynamics, **options)
    moving = orn.sample(model, dynamics, init=away, **options)
    assert rested.check()["stationary"].number > 1e-3
    assert moving.check()["stationary"].number < 1e-3
    assert moving.check().level == "not trusted"


def test_too_few_states_are_refused():
    process, _ = predicted(2, 0.1)
    with pytest.raises(ValueError, match="needs 10 states"):
        stationarity_test(np.zeros((4, 5, 2)), process, 1)
