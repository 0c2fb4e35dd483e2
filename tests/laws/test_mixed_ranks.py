"""Calibration of mixed models: parameters from a proper prior, data from them, and the rank of each
true value among the draws of its posterior, which is uniform if all is right.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.stats
from scipy.special import expit

import ornstein as orn
from ornstein.errors import ApproximationWarning

pytestmark = pytest.mark.nightly

SETS, DRAWS, BINS = 200, 99, 10
GROUPS, ROWS = 60, 6
PRIORS = orn.MixedPriors(coef_sd=[1.0, 1.0], effect_scale=0.7)


def drawn(rng):
    """True values, and a data set that they gave."""
    beta = rng.normal(size=2)
    deviation = 0.7 * abs(rng.standard_t(3.0))
    labels = np.repeat(np.arange(GROUPS), ROWS)
    x = rng.normal(size=labels.size)
    u = beta[0] * x + beta[1] + deviation * rng.normal(size=GROUPS)[labels]
    return (*beta, deviation), x[:, None], rng.random(labels.size) < expit(u), labels


def ranks(count):
    """Of each true value among the draws, (sets, 3)."""
    found = []
    for seed in range(count):
        truth, x, y, labels = drawn(np.random.default_rng(seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ApproximationWarning)
            model = orn.glmm(x, y, labels, family="bernoulli", priors=PRIORS, points=25)
            post = orn.sample(
                model, "laplace-weighted", draws=DRAWS, chains=1, seed=seed, progress=False
            )
        own = post.constrained
        names = ("x0", "intercept", "sd(intercept)")
        found.append([np.sum(own[name] < value) for name, value in zip(names, truth, strict=True)])
    return np.array(found)


def test_ranks_are_uniform():
    """χ² of ten bins for each parameter; widths that are 20 % off would be seen."""
    found = ranks(SETS)
    for place in range(found.shape[1]):
        counts = np.bincount(found[:, place] * BINS // (DRAWS + 1), minlength=BINS)
        assert scipy.stats.chisquare(counts).pvalue > 1e-3, counts
