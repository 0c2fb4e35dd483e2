"""The noise estimate along the chain: unbiased by enumeration, the paper's estimator shown to be
biased, S = 1 answered.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import ornstein as orn
from ornstein.compute.precision import width
from ornstein.curvature.online_noise import OnlineNoise, noise_along
from ornstein.rows.sources import IndexSource


@pytest.fixture
def gradients():
    return np.random.default_rng(0).normal(size=(5, 3)) @ np.diag([1.0, 2.0, 0.5])


def within_batch(batch):
    estimate = OnlineNoise("full")
    estimate.update(batch)
    return estimate.noise


@pytest.mark.parametrize("size", [2, 3])
def test_one_batch_is_unbiased_by_enumeration(gradients, size):
    exact = np.cov(gradients.T, bias=True)
    batches = [gradients[list(rows)] for rows in itertools.product(range(5), repeat=size)]
    mean = np.mean([within_batch(batch) for batch in batches], axis=0)
    np.testing.assert_allclose(mean, exact, rtol=1e-12, atol=1e-14)
    uncorrected = mean * (size - 1) / size
    assert np.abs(uncorrected / exact - 1.0).max() > 0.3  # what a missing S/(S−1) would do


def test_the_estimator_printed_in_the_paper_is_biased(gradients):
    """(ĝ₁ − ĝ_S)(ĝ₁ − ĝ_S)ᵀ has mean (1 − 1/S) C, and vanishes for S = 1."""
    size, exact = 2, np.cov(gradients.T, bias=True)
    printed = []
    for rows in itertools.product(range(5), repeat=size):
        deviation = gradients[rows[0]] - gradients[list(rows)].mean(axis=0)
        printed.append(np.outer(deviation, deviation))
    np.testing.assert_allclose(
        np.mean(printed, axis=0), (1 - 1 / size) * exact, rtol=1e-12, atol=1e-14
    )


def test_single_examples_are_unbiased_by_enumeration(gradients):
    """All sequences of four batches of one example: the mean of the final estimate is C exactly."""
    exact = np.cov(gradients.T, bias=True)
    finals = []
    for rows in itertools.product(range(5), repeat=4):
        estimate = OnlineNoise("full")
        for row in rows:
            estimate.update(gradients[[row]])
        finals.append(estimate.noise)
    np.testing.assert_allclose(np.mean(finals, axis=0), exact, rtol=1e-12, atol=1e-14)


def test_structures_agree(gradients):
    estimates = {name: OnlineNoise(name) for name in ("scalar", "diagonal", "full")}
    for estimate in estimates.values():
        for rows in ([0, 1, 2], [2, 3, 4], [0, 2, 4]):
            estimate.update(gradients[rows])
    full = estimates["full"].noise
    np.testing.assert_allclose(estimates["diagonal"].noise, np.diagonal(full), rtol=1e-12)
    np.testing.assert_allclose(estimates["scalar"].noise, np.trace(full) / 3, rtol=1e-12)


def test_weights_are_one_over_t_until_the_smallest(gradients):
    plain, floored = OnlineNoise("scalar"), OnlineNoise("scalar", smallest_weight=0.5)
    batches = [gradients[[0, 1]], gradients[[1, 2]], gradients[[3, 4]]]
    singles = [float(within_batch(batch).trace() / 3) for batch in batches]
    for batch in batches:
        plain.update(batch)
        floored.update(batch)
    assert plain.noise == pytest.approx(np.mean(singles))
    assert floored.noise == pytest.approx(0.25 * singles[0] + 0.25 * singles[1] + 0.5 * singles[2])


def test_nothing_seen_is_said():
    with pytest.raises(orn.InputError, match="no gradients"):
        _ = OnlineNoise("scalar").noise
    with pytest.raises(orn.InputError, match="structure"):
        OnlineNoise("lowrank")


def test_along_a_chain_it_meets_the_answer_of_the_noise_to_the_spread():
    """At positions spread like Σ the estimate is C + K[Σ], within its own standard error; C alone
    is rejected.
    """
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 2))
    model = orn.glm(
        X,
        X @ [1.0, -1.0] + rng.normal(size=400),
        noise_scale=1.0,
        intercept=False,
        prior_precision=1.0,
    )
    curvature = orn.measure(model)
    spread = np.diag([0.25, 0.5])
    displacements = rng.normal(size=(2000, 2)) * np.sqrt(np.diagonal(spread))
    source = IndexSource("replacement", model.n_data, 40, np.random.Generator(np.random.SFC64(1)))
    with width("float64"):
        problem = model.problem("float64", curvature.mode)
    met, halves = None, []
    for part in np.split(displacements, 20):
        halves.append(
            noise_along(model, problem, part, source, OnlineNoise("full"), "float64").noise
        )
    met, error = np.mean(halves, axis=0), np.std(halves, axis=0, ddof=1) / np.sqrt(len(halves))
    expected = curvature.noise_at(spread)
    assert np.all(np.abs(met - expected) < 4 * error)
    # a deviation of 20 % of a diagonal entry would be seen
    assert np.max(error) < 0.05 * np.min(np.diagonal(expected))
    assert np.max(np.abs(met - curvature.noise) / error) > 6
