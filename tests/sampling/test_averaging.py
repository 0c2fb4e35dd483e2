"""Polyak–Ruppert averaging: the estimate, its predicted covariance, and intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from helpers import relative
from sampler_checks import logistic, quadratic

import ornstein as orn
from ornstein import theory


def repeated(model, curvature, times, **options):
    return [
        orn.average(model, curvature=curvature, seed=seed, progress=False, **options)
        for seed in range(times)
    ]


def coverage(results, mode, probability):
    """How often each parameter's interval held the mode."""
    hits = []
    for result in results:
        table = result.intervals(probability)
        hits.append((table["low"].to_numpy() <= mode) & (mode <= table["high"].to_numpy()))
    return np.array(hits)


@pytest.fixture(scope="module")
def many():
    """100 runs of 12 000 steps on a quadratic loss."""
    model, curvature = quadratic()
    return model, curvature, repeated(model, curvature, 100, steps=12_000, batch_size=20)


def test_the_predicted_covariance_is_the_one_that_is_found(many):
    """Estimates around the mode, in units of the predicted covariance: the sum of their squares is
    χ².
    """
    _, curvature, results = many
    errors = np.array([result.estimate for result in results]) - curvature.mode
    root = np.linalg.cholesky(results[0].predicted_covariance)
    white = np.linalg.solve(root, errors.T)
    total = np.sum(white**2)
    low, high = scipy.stats.chi2.ppf([0.0005, 0.9995], white.size)
    assert low < total < high  # an error of 27 % in all variances is seen half of the time
    assert np.all(np.abs(white.mean(axis=1)) < 4.0 / np.sqrt(len(results)))


def test_intervals_cover_as_often_as_they_say(many):
    """Binomial bounds at 1 in 1000 for each parameter and level."""
    _, curvature, results = many
    for probability in (0.5, 0.8, 0.95):
        hits = coverage(results, curvature.mode, probability).sum(axis=0)
        low, high = scipy.stats.binom.ppf([0.0005, 0.9995], len(results), probability)
        assert np.all((low <= hits) & (hits <= high)), (probability, hits)


def test_intervals_of_half_the_width_do_not_cover(many):
    """Negative control: batch means that forget a factor of four in the variance are noticed."""
    _, curvature, results = many
    hits = np.zeros(3)
    for result in results:
        table = result.intervals(0.95)
        reach = (table["high"] - table["low"]).to_numpy() / 4.0
        hits += np.abs(result.estimate - curvature.mode) <= reach
    assert np.all(hits < scipy.stats.binom.ppf(0.0005, len(results), 0.95))


def test_the_mean_of_the_batch_means_covariances_is_the_predicted_one(many):
    """Unbiased up to the small correlation of neighbouring batches: within 5 % and Monte-Carlo
    error.
    """
    _, _, results = many
    found = np.array([np.diagonal(result.covariance) for result in results])
    ratio = found.mean(axis=0) / np.diagonal(results[0].predicted_covariance)
    error = np.sqrt(2.0 / (19 * len(results)))
    assert np.all(np.abs(ratio - 1.0) < 0.05 + 4.0 * error)


def test_the_predicted_covariance_approaches_the_textbook_limit_for_every_step():
    """A⁻¹CA⁻¹/(TS), whatever the preconditioner: the shortfall is that of a finite run, the excess
    that noise depends on θ.
    """
    model, curvature = quadratic()
    for options in (
        {"preconditioner": "scalar"},
        {"preconditioner": "full", "step_size": 0.05},
        {"damping": 0.5},
    ):
        result = orn.average(
            model, curvature=curvature, steps=40_000, batch_size=20, progress=False, **options
        )
        limit = theory.sandwich_covariance(curvature.hessian, curvature.noise, 40_000 * 20)
        assert relative(result.predicted_covariance, limit) < 0.05
    assert result.steps == 40_000 and result.batch_size == 20


def test_the_running_mean_ends_at_the_estimate(many):
    model, _, results = many
    result = results[0]
    assert result.running.shape == (20, 3)
    assert np.allclose(result.running[-1], result.estimate)
    assert np.allclose(result.running[0], result.batches.draws[0, 0])
    assert np.allclose(result.params["coef"], result.estimate)
    table = result.intervals()
    assert list(table.columns) == ["estimate", "standard_error", "predicted_error", "low", "high"]
    assert list(table.index) == list(model.names)


def test_the_same_seed_gives_the_same_average(many):
    model, curvature, results = many
    again = orn.average(
        model, curvature=curvature, seed=3, steps=12_000, batch_size=20, progress=False
    )
    assert np.array_equal(again.estimate, results[3].estimate)


def test_settings_on_auto_look_at_enough_rows():
    model, curvature = quadratic()
    result = orn.average(model, curvature=curvature, progress=False)
    assert result.steps * result.batch_size >= 20 * 990_000
    assert np.all(
        np.abs(result.estimate - curvature.mode)
        < 5.0 * np.sqrt(np.diagonal(result.predicted_covariance))
    )


@pytest.mark.slow
def test_intervals_cover_on_logistic_regression():
    """The loss is not quadratic, so a constant step has a bias; on auto it is small against the
    error.
    """
    model, curvature = logistic()
    results = repeated(model, curvature, 60)
    for probability in (0.5, 0.95):
        hits = coverage(results, curvature.mode, probability).sum(axis=0)
        low, high = scipy.stats.binom.ppf([0.0005, 0.9995], len(results), probability)
        assert np.all((low <= hits) & (hits <= high)), (probability, hits)


def test_a_run_that_is_too_short_for_its_batches_warns():
    model, curvature = quadratic()
    with pytest.warns(orn.WindowWarning, match="relaxation times"):
        orn.average(model, curvature=curvature, steps=200, batch_size=20, progress=False)


@pytest.mark.parametrize(
    "options",
    [
        {"batches": 2},
        {"batches": 2.5},
        {"steps": 10},
        {"steps": "long"},
        {"batch_size": "big"},
        {"batch_size": 0},
    ],
    ids=str,
)
def test_bad_settings_are_refused(options):
    model, curvature = quadratic()
    with pytest.raises(orn.InputError):
        orn.average(model, curvature=curvature, progress=False, **options)


def test_a_probability_outside_zero_and_one_is_refused(many):
    with pytest.raises(orn.InputError, match="probability"):
        many[2][0].intervals(1.0)
