"""Extrapolation of the mean and re-weighted draws, on counts whose posterior is known: exp θ is
Gamma distributed.
"""

from __future__ import annotations

from functools import lru_cache

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, polygamma

import ornstein as orn
from ornstein.sampling.extrapolate import half_step

COUNTS = np.array([0, 1, 1, 2, 0, 1, 3, 1, 0, 2, 1, 0, 1, 2, 1, 0], dtype=float)
MEAN, SD = digamma(COUNTS.sum()) - np.log(COUNTS.size), np.sqrt(polygamma(1, COUNTS.sum()))
SIGMAS = 4.0


def log_likelihood(theta, count):
    return count * theta - jnp.exp(theta)


@lru_cache
def model():
    return orn.Model(log_likelihood, COUNTS, init=jnp.zeros(()))


def run(**options):
    """80,000 draws two relaxation times apart: a step at which discrete time moves the mean by a
    twentieth of an sd.
    """
    return orn.sample(
        model(), orn.SGLD(0.04), batch_size=8, draws=20_000, seed=1, progress=False, **options
    )


def test_the_extrapolated_mean_is_nearer():
    plain, better = run(), run(extrapolate=True)
    independent = plain.draws.size * np.tanh(1.0)  # draws correlate as exp(−2|k|)
    error = plain.sd[0] / SD / np.sqrt(independent)
    off, left = (plain.mean[0] - MEAN) / SD, (better.mean[0] - MEAN) / SD
    assert abs(off) > 2 * SIGMAS * error, "there is nothing to remove"
    assert abs(left) < SIGMAS * np.sqrt(5.0) * error < abs(off)
    np.testing.assert_allclose(better.draws.mean(), better.mean[0], atol=1e-3)
    assert (
        better.settings["extrapolated"] > 0 and better.settings["steps"] > plain.settings["steps"]
    )


def test_half_the_step_and_half_the_batch_keep_the_law_of_constant_sgd():
    curvature = orn.measure(model())
    dynamics = orn.ConstantSGD("full").tune(curvature, batch_size=8)
    half, ratio = half_step(dynamics, curvature)
    assert (half.batch_size, ratio) == (4, 0.5)
    assert half.predict(curvature).kl_qp < 0.05


def test_what_cannot_be_extrapolated_is_refused(tmp_path):
    with pytest.raises(orn.InputError, match="constant step and single iterates"):
        orn.sample(
            model(),
            orn.SGLD(schedule=orn.robbins_monro(0.01, 10.0, 0.6)),
            draws=10,
            progress=False,
            extrapolate=True,
        )
    with pytest.raises(orn.InputError, match="checkpoint would hold the first"):
        orn.sample(
            model(),
            orn.ConstantSGD("full"),
            batch_size=4,
            draws=10,
            progress=False,
            extrapolate=True,
            checkpoint=tmp_path,
        )


def test_weighted_points_of_laplace_stand_for_the_posterior():
    laplace = orn.laplace(model())
    assert laplace.mean[0] == pytest.approx(0.0, abs=1e-6)
    weighted = laplace.reweight(5000)
    error = SD / np.sqrt(weighted.effective_share * 5000)
    assert abs(laplace.mean[0] - MEAN) > 2 * SIGMAS * error, "there is nothing to remove"
    assert weighted.reliable and weighted.weights.sum() == pytest.approx(1.0)
    assert abs(weighted.mean[0] - MEAN) < SIGMAS * error
    assert abs(weighted.sd[0] - SD) < SIGMAS * error


def test_weights_far_from_the_posterior_say_so():
    off = orn.laplace(model())
    far = orn.sample(
        model(),
        orn.SGLD(1e-6),
        batch_size=8,
        draws=100,
        thin=1,
        warmup=0,
        init=np.array(3.0),
        progress=False,
    )
    assert not far.reweight(500).reliable
    assert off.reweight(500).reliable
