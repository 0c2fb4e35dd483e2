"""Lockstep HMC: the posterior within Monte Carlo error, whatever Gaussian guides it."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from helpers import logistic_data, regression_data

import ornstein as orn
from ornstein.posterior.statistics import effective_sample_size


def skewed(shape=2.0):
    """One parameter whose posterior is log-gamma(shape)."""
    return orn.Model(
        lambda theta, x: x * theta - jnp.exp(theta) * x, np.full(4, shape / 4), init=np.zeros(())
    )


def logistic():
    features, target = logistic_data(60, 5, seed=1)
    return orn.glm(features, target, "bernoulli", prior_precision=0.3, intercept=False)


def test_a_gaussian_posterior_takes_one_gradient_a_draw():
    features, target = regression_data(300, 4)
    post = orn.hmc(orn.glm(features, target, "gaussian", 1.0, 1.0, intercept=False), draws=500)
    covariance = np.linalg.inv(features.T @ features + np.eye(4))
    error = np.sqrt(np.diagonal(covariance) / 2000)
    assert post.settings["kicks"] == 1 and post.settings["accepted"] == pytest.approx(1.0)
    assert np.max(np.abs(post.mean - covariance @ features.T @ target) / error) < 4.5
    assert np.max(np.abs(post.sd / np.sqrt(np.diagonal(covariance)) - 1.0)) < 4.5 / np.sqrt(4000)
    assert min(effective_sample_size(post.draws[:, :, k], "bulk") for k in range(4)) > 1200


@pytest.mark.parametrize("guide", ["vi", "laplace", "too wide", "off"])
def test_a_skewed_posterior_whatever_the_guide(guide):
    model = skewed()
    given = {
        "vi": None,
        "laplace": orn.laplace(model),
        "too wide": orn.Gaussian([0.0], [[1.0]]),
        "off": orn.Gaussian([0.5], [[0.4]]),
    }[guide]
    post = orn.hmc(model, given, draws=12, chains=500, seed=2)
    last = post.draws[:, 3::4].ravel()
    law = scipy.stats.loggamma(2.0, loc=-np.log(2.0))
    assert scipy.stats.kstest(last, law.cdf).pvalue > 1e-4


def test_agrees_with_integrals_over_a_grid():
    features, target = logistic_data(20, 2, seed=1)
    model = orn.glm(features, target, "bernoulli", prior_precision=0.3, intercept=False)
    axis = np.linspace(-15.0, 15.0, 400)
    places = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    margins = (2.0 * target - 1.0) * (places @ features.T)
    log_density = -np.logaddexp(0.0, -margins).sum(axis=1) - 0.15 * np.sum(places**2, axis=1)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = weights @ places
    sd = np.sqrt(weights @ (places - mean) ** 2)
    post = orn.hmc(model, draws=50, chains=200, seed=1)
    z = ((post.draws - mean) / sd)[:, ::2]  # nearly independent
    count = z.shape[0] * z.shape[1]
    assert np.max(np.abs(z.mean(axis=(0, 1)))) < 5.0 / np.sqrt(count)
    spread = (z**2).std(axis=(0, 1)) / np.sqrt(count)
    assert np.max(np.abs((z**2).mean(axis=(0, 1)) - 1.0) / spread) < 5.0


def test_same_seed_same_draws_and_what_is_reported():
    model = logistic()
    post = orn.hmc(model, draws=30, chains=3, seed=5)
    again = orn.hmc(model, draws=30, chains=3, seed=5)
    np.testing.assert_array_equal(post.draws, again.draws)
    assert not np.array_equal(post.draws, orn.hmc(model, draws=30, chains=3, seed=6).draws)
    assert post.draws.shape == (3, 30, 5)
    known = post.settings
    assert known["passes"] > 3 * 30 * known["kicks"] and not known["exact_moments"]
    assert 0.7 < known["least_accepted"] <= known["accepted"] <= 1.0


def test_fixed_kicks_are_kept():
    assert orn.hmc(logistic(), draws=10, kicks=7).settings["kicks"] == 7


def test_a_guide_far_from_the_posterior_warns():
    model = logistic()
    far = orn.Gaussian(np.zeros(5), 400.0 * np.eye(5))
    with pytest.warns(orn.ConvergenceWarning, match="far from the posterior"):
        orn.hmc(model, far, draws=20, warmup=0, kicks=1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"gaussian": 3}, "gaussian must be"),
        ({"gaussian": orn.Gaussian([0.0], [[1.0]])}, "1 parameters, the model 5"),
        ({"target_accept": 1.0}, "target_accept must lie between 0 and 1"),
        ({"kicks": 0}, "kicks must be"),
        ({"warmup": -1}, "warmup must be"),
    ],
)
def test_bad_arguments_are_refused(arguments, sentence):
    with pytest.raises(orn.InputError, match=sentence):
        orn.hmc(logistic(), **arguments)
