"""Rotations under a Gaussian: reversible, of unit volume, exact for the Gaussian, and with their
Metropolis decision invariant for a skewed law.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from ornstein.engine import lockstep
from ornstein.engine.lockstep import States, move, rotated, tuned

SHAPE = 3.0


def normal(z):
    return 0.5 * np.sum(z**2, axis=1), z


def skewed(z):
    """Independent log-gamma variables, scaled to about one around their mode."""
    shift, scale = np.log(SHAPE), 1.0 / np.sqrt(SHAPE)
    t = shift + scale * z
    return np.sum(np.exp(t) - SHAPE * t, axis=1), scale * (np.exp(t) - SHAPE)


def draws_of_skewed(rng, count, size):
    return (np.log(rng.gamma(SHAPE, size=(count, size))) - np.log(SHAPE)) * np.sqrt(SHAPE)


def test_a_quarter_turn_forgets_a_gaussian_start_and_is_always_accepted():
    rng = np.random.default_rng(0)
    states = States.at(normal, 3.0 + rng.normal(size=(50, 7)))
    momentum = rng.normal(size=(50, 7))
    end, _ = rotated(normal, states, momentum, np.full((50, 1), np.pi / 6), 3)
    np.testing.assert_allclose(end.z, momentum, atol=1e-12)
    assert move(normal, states, 1, rng)[1] == pytest.approx(np.ones(50), abs=1e-10)


def test_reversible():
    rng = np.random.default_rng(1)
    start = States.at(skewed, rng.normal(size=(20, 3)))
    momentum, angle = rng.normal(size=(20, 3)), rng.uniform(0.1, 0.5, (20, 1))
    end, last = rotated(skewed, start, momentum, angle, 5)
    back, first = rotated(skewed, end, -last, angle, 5)
    np.testing.assert_allclose(back.z, start.z, atol=1e-10)
    np.testing.assert_allclose(first, -momentum, atol=1e-10)


def test_volume_is_kept():
    start, step = np.array([0.3, -0.4, 0.8, 0.1]), 1e-6

    def end(point):
        states = States.at(skewed, point[None, :2])
        states, momentum = rotated(skewed, states, point[None, 2:], np.array([[0.7]]), 3)
        return np.concatenate([states.z[0], momentum[0]])

    columns = [
        (end(start + step * unit) - end(start - step * unit)) / (2 * step) for unit in np.eye(4)
    ]
    assert np.linalg.det(np.array(columns)) == pytest.approx(1.0, abs=1e-7)


def test_detailed_balance():
    """Of exact draws before and after: those that go from A to B are as many as those that go
    back.
    """
    rng = np.random.default_rng(2)
    before = States.at(skewed, draws_of_skewed(rng, 40_000, 1))
    after, _ = move(skewed, before, 1, rng)
    bins = np.quantile(before.z, [0.2, 0.4, 0.6, 0.8])
    pairs = np.zeros((5, 5))
    np.add.at(
        pairs, (np.searchsorted(bins, before.z[:, 0]), np.searchsorted(bins, after.z[:, 0])), 1
    )
    upper = np.triu_indices(5, 1)
    there, back = pairs[upper], pairs.T[upper]
    assert scipy.stats.chi2.sf(np.sum((there - back) ** 2 / (there + back)), len(there)) > 1e-4


def law_after(move_once, rounds=6):
    """The p-value of a Kolmogorov–Smirnov test that moved exact draws keep their distribution."""
    rng = np.random.default_rng(3)
    states = States.at(skewed, draws_of_skewed(rng, 20_000, 2))
    for _ in range(rounds):
        states = move_once(states, rng)
    law = scipy.stats.loggamma(SHAPE, loc=-np.log(SHAPE) * np.sqrt(SHAPE), scale=np.sqrt(SHAPE))
    return scipy.stats.kstest(states.z.ravel(), law.cdf).pvalue


def test_a_skewed_law_is_invariant():
    assert law_after(lambda states, rng: move(skewed, states, 2, rng)[0]) > 1e-4


def test_without_the_decision_it_is_not(monkeypatch):
    monkeypatch.setattr(States, "where", lambda states, taken, other: states)
    assert law_after(lambda states, rng: move(skewed, states, 1, rng)[0]) < 1e-12


def test_no_density_is_never_entered():
    def half(z):
        value, slope = normal(z)
        return np.where(z[:, 0] < 0, np.inf, value), slope

    rng = np.random.default_rng(4)
    states = States.at(half, np.abs(rng.normal(size=(500, 2))))
    for _ in range(5):
        states, _ = move(half, states, 1, rng)
    assert np.all(states.z[:, 0] >= 0) and np.all(np.isfinite(states.energy))


def test_tuning_takes_the_fewest_kicks_that_are_accepted():
    rng = np.random.default_rng(5)
    states = States.at(skewed, draws_of_skewed(rng, 200, 50))
    _, kicks, share = tuned(skewed, states, 0.8, 64, 6, np.random.default_rng(6))
    fewer = np.mean(move(skewed, states, max(1, kicks // 2), rng)[1])
    assert 1 < kicks < 20 and share >= 0.8 and fewer < 0.8
    assert tuned(normal, States.at(normal, states.z), 0.8, 64, 6, rng)[1] == 1
    assert lockstep.SHORTEST + lockstep.LONGEST == 2.0  # a quarter turn on average
