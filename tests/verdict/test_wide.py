"""How far thousands of parameters move, by size and not by significance alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ornstein as orn
from ornstein import theory
from ornstein.theory.modes import as_matrix
from ornstein.verdict.agreement import as_predicted
from ornstein.verdict.monte_carlo import variances_error
from ornstein.verdict.subject import Subject
from ornstein.verdict.wide import Shifts

COUNT, SIZE = 48, 5000


def moved(shift, width, memory, seed=0):
    """Draws of standard normals, and what moves made of them that remember a share of the start."""
    rng = np.random.default_rng(seed)
    before = rng.standard_normal((COUNT, SIZE))
    fresh = shift + width * rng.standard_normal((COUNT, SIZE))
    after = memory * before + (1.0 - memory) * shift + np.sqrt(1.0 - memory**2) * (fresh - shift)
    return Shifts.of(before, after, np.zeros(SIZE), np.ones(SIZE), np.full(SIZE, 1000.0))


@pytest.mark.parametrize("memory", [0.0, 0.5])
def test_draws_that_keep_their_law_move_by_chance_only(memory):
    found = moved(np.zeros(SIZE), 1.0, memory)
    assert found.typical < 0.06 and found.width == pytest.approx(1.0, abs=0.01)
    assert found.farthest(COUNT, 0.002) is None


@pytest.mark.parametrize("memory", [0.0, 0.5])
def test_small_shifts_of_all_and_wrong_widths_are_measured(memory):
    shift = 0.2 * np.where(np.arange(SIZE) % 2, 1.0, -1.0)
    found = moved(shift, 1.0, memory)
    assert found.typical == pytest.approx(0.2, abs=0.03)
    wider = moved(np.zeros(SIZE), 1.1, memory)
    assert wider.width == pytest.approx(1.1, abs=0.02)


def test_one_parameter_of_thousands_is_found():
    shift = np.zeros(SIZE)
    shift[1234] = 3.0
    found = moved(shift, 1.0, 0.0)
    assert found.farthest(COUNT, 0.002) == 1234
    assert found.typical < 0.1


@pytest.fixture(scope="module")
def correlated():
    rng = np.random.default_rng(0)
    X = 0.5 * rng.normal(size=(800, 12)) + rng.normal(size=(800, 1))
    model = orn.glm(X, X.sum(axis=1) + rng.normal(size=800), noise_scale=1.0, intercept=False)
    return orn.sample(model, orn.ConstantSGD("full"), draws=100, thin=10, progress=False)


def test_the_error_of_variances_alone(correlated):
    """Against states of the process that is predicted, simulated mode by mode."""
    process, states, tries = correlated.moment_process(), 400, 2000
    size, rng = process.modes.dimension, np.random.default_rng(1)
    ratio = np.linspace(0.2, 0.8, size)
    process = replace(process, modes=replace(process.modes, rates=1.0 - ratio), spacing=1)
    stationary = as_matrix(process.stationary, size)
    noise = np.linalg.cholesky((1.0 - np.multiply.outer(ratio, ratio)) * stationary)
    state = rng.standard_normal((tries, size)) @ np.linalg.cholesky(stationary).T
    squares = np.zeros((tries, size))
    for _ in range(states):
        state = ratio * state + rng.standard_normal((tries, size)) @ noise.T
        squares += (state @ as_matrix(process.modes.basis, size).T) ** 2
    relative = squares / states / np.diagonal(process.covariance())
    found = np.sum(relative - 1.0 - np.log(relative), axis=1) / 2.0
    error = variances_error(process, states)
    assert np.mean(found) == pytest.approx(
        error.covariance, abs=5 * found.std() / tries**0.5 + 5e-3
    )
    assert np.std(found) == pytest.approx(error.covariance_sd, rel=0.25)


def test_where_only_variances_are_kept_only_they_are_compared(correlated):
    kept = theory.Gaussian(correlated.mean, correlated.sd**2)
    finding = as_predicted(Subject(replace(correlated, moments=kept), None))
    assert finding.level == "trusted", finding
    wrong = theory.Gaussian(correlated.mean, 2.0 * correlated.sd**2)
    assert as_predicted(Subject(replace(correlated, moments=wrong), None)).level == "not trusted"
