"""Models that float32 cannot resolve run in float64, and say why."""

from __future__ import annotations

import numpy as np
import pytest

import ornstein as orn

N = 500


def located(place, spread=1.0):
    values = place + spread * np.random.default_rng(0).normal(size=N)
    return orn.Model(lambda t, x: -0.5 * ((x - t) / spread) ** 2, values, init=np.asarray(place))


def sampled(model, **options):
    return orn.sample(model, orn.ConstantSGD("full"), draws=300, seed=1, progress=False, **options)


@pytest.mark.parametrize(
    "place",
    [1e4, *(pytest.param(place, marks=pytest.mark.slow) for place in (-1e6, 1.6e9))],
)
def test_a_posterior_far_from_zero_runs_in_double(place):
    model = located(place)
    post = sampled(model)
    assert post.settings["dtype"] == "float64"
    assert "spacings of float32" in post.settings["dtype_reason"]
    sd = 1.0 / np.sqrt(N)
    assert abs(post.mean[0] - np.mean(model.data)) / sd < 5.0 / np.sqrt(600.0)
    assert post.sd[0] == pytest.approx(sd, rel=5.0 / np.sqrt(600.0))


def test_in_single_it_would_be_wrong():
    """The control; what is asked for is done."""
    model = located(1.6e9)
    post = sampled(model, dtype="float32", curvature=orn.measure(model), warmup=50, thin=5)
    assert post.settings["dtype"] == "float32" and "dtype_reason" not in post.settings
    sd = 1.0 / np.sqrt(N)
    assert abs(post.mean[0] - np.mean(model.data)) / sd > 1.0 or post.sd[0] > 2.0 * sd


def test_data_far_from_zero_count_too():
    """A slope on a column of years: the parameters are small, the data are not."""
    rng = np.random.default_rng(0)
    years = 1e6 + rng.normal(size=N)
    rows = np.column_stack([years, years - 1e6 + rng.normal(size=N)])
    model = orn.Model(lambda t, r: -0.5 * (r[1] - t * (r[0] - 1e6)) ** 2, rows, init=np.zeros(()))
    post = sampled(model)
    assert post.settings["dtype"] == "float64" and "column 0" in post.settings["dtype_reason"]


@pytest.mark.parametrize("model", [located(0.3), located(50.0), located(1e-5, spread=1e-5)])
def test_ordinary_models_stay_in_single(model):
    post = sampled(model)
    assert post.settings["dtype"] == "float32" and "dtype_reason" not in post.settings


def test_regressions_take_out_what_is_large():
    X = np.random.default_rng(0).normal(size=(N, 2))
    post = sampled(orn.glm(X, 1e7 + X @ [1.0, 2.0] + np.cos(np.arange(N))))
    assert post.settings["dtype"] == "float32"
    assert post.mean[:2] == pytest.approx([1.0, 2.0], abs=0.2)
