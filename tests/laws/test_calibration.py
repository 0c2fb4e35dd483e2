"""Simulation-based calibration (Talts et al. 2018): parameters from the prior, data from them, and
the rank of the truth among the draws of each fit is uniform if and only if the sampler draws from
the posterior, its mean and its spread alike.

A linear regression with a normal prior, so that nothing but the sampler is at stake. All fits have
one shape, hence one compiled step. 79 draws a fit, five relaxation times apart, make 80 possible
ranks, of which the central 40, 72 and 76 are intervals of exactly 50, 90 and 95 %.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import scipy.stats

import ornstein as orn

ROWS, COLUMNS, BATCH, DRAWS = 200, 2, 10, 79
BINS = 8
INTERVALS = {0.5: (20, 59), 0.9: (4, 75), 0.95: (2, 77)}
# One test in a thousand fails by chance; they are few.
CHANCE = 1e-3
SAMPLERS = {"ConstantSGD": orn.ConstantSGD("full"), "SGFS": orn.SGFS("full"), "IASG": orn.IASG()}


def narrowed(curvature):
    """Negative control: a quarter of the step of full constant SGD, so that draws have about half
    the sd of the posterior.
    """
    dynamics = orn.ConstantSGD("full").tune(curvature, BATCH)
    return orn.Dynamics(dynamics.preconditioner / 4.0, BATCH)


def simulated(generator):
    """Features whose columns are correlated, coefficients from the prior, and the regression."""
    features = generator.normal(size=(ROWS, COLUMNS)) @ np.array([[1.0, 0.6], [0.0, 0.8]])
    truth = generator.normal(size=COLUMNS)
    target = features @ truth + generator.normal(size=ROWS)
    return truth, orn.glm(features, target, noise_scale=1.0, prior_precision=1.0, intercept=False)


def rank(sampler, seed):
    """How many draws lie below the truth, per parameter: whole numbers 0 … 79."""
    truth, model = simulated(np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(21,))))
    curvature = orn.measure(model)
    dynamics = sampler(curvature) if callable(sampler) else sampler.tune(curvature, BATCH)
    thin = (
        "auto" if dynamics.window > 1 else round(5.0 * dynamics.predict(curvature).relaxation_time)
    )
    options = {
        "draws": DRAWS,
        "chains": 1,
        "thin": thin,
        "curvature": curvature,
        "progress": False,
        "seed": seed,
    }
    return np.sum(orn.sample(model, dynamics, **options).draws[0] < truth, axis=0)


@cache
def ranks(name, fits):
    """Ranks of both parameters, (fits, 2)."""
    sampler = narrowed if name == "narrowed" else SAMPLERS[name]
    return np.array([rank(sampler, seed) for seed in range(fits)])


def uniform(values):
    """p-value of the ranks of one parameter being uniform."""
    return scipy.stats.chisquare(np.bincount(values * BINS // (DRAWS + 1), minlength=BINS)).pvalue


def covered(values, probability):
    """How many intervals hold the truth, and how many may by chance: (number, lowest, highest)."""
    low, high = INTERVALS[probability]
    return (
        int(np.sum((values >= low) & (values <= high))),
        *scipy.stats.binom.interval(1.0 - CHANCE, values.size, probability),
    )


def require_calibrated(found):
    for column in found.T:
        assert uniform(column) > CHANCE, np.bincount(column * BINS // (DRAWS + 1), minlength=BINS)
        for probability in INTERVALS:
            number, lowest, highest = covered(column, probability)
            assert lowest <= number <= highest, f"{number} of {column.size} at {probability:.0%}"


def power(fits, ratio):
    """Chance that `uniform` falls below CHANCE where draws have `ratio` times the posterior's
    sd.
    """
    edges = scipy.stats.norm.cdf(ratio * scipy.stats.norm.ppf(np.linspace(0.0, 1.0, BINS + 1)))
    noncentrality = fits * np.sum((np.diff(edges) - 1.0 / BINS) ** 2 * BINS)
    return scipy.stats.ncx2.sf(scipy.stats.chi2.isf(CHANCE, BINS - 1), BINS - 1, noncentrality)


def test_the_intervals_are_exact():
    for probability, (low, high) in INTERVALS.items():
        assert (high - low + 1) / (DRAWS + 1) == pytest.approx(probability)
        assert low + high == DRAWS


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (place > 0))
        for place, name in enumerate(SAMPLERS)
    ],
)
def test_calibrated_fast(name):
    """Few fits: an sd half of what it should be would be seen in 6 runs of 10, and by either
    parameter.
    """
    fits = 40
    assert power(fits, 0.5) > 0.6
    require_calibrated(ranks(name, fits))


def test_wrong_draws_are_seen_by_the_measure_itself():
    """Negative controls without a sampler: draws half as wide, twice as wide, and shifted by half
    an sd, 500 fits each.
    """
    generator = np.random.default_rng(0)
    truth, normals = generator.normal(size=500), generator.normal(size=(500, DRAWS))
    require_calibrated(np.sum(normals < truth[:, None], axis=1)[:, None])
    for wrong in (0.5 * normals, 2.0 * normals, normals + 0.5):
        found = np.sum(wrong < truth[:, None], axis=1)
        assert uniform(found) < CHANCE
        with pytest.raises(AssertionError):
            require_calibrated(found[:, None])


@pytest.mark.nightly
def test_draws_too_narrow_are_seen():
    """Negative control with a sampler: an sd half of what it should be."""
    found = ranks("narrowed", 100)
    assert power(100, 0.5) > 0.99
    assert min(uniform(column) for column in found.T) < CHANCE
    number, lowest, _ = covered(found[:, 0], 0.9)
    assert number < lowest


@pytest.mark.nightly
@pytest.mark.parametrize("name", SAMPLERS)
def test_calibrated(name):
    """500 fits: an sd 20 % too small would be seen in 9 runs of 10, one 20 % too large in 6, by
    either parameter alone.
    """
    assert power(500, 0.8) > 0.89
    assert power(500, 1.2) > 0.59
    require_calibrated(ranks(name, 500))
