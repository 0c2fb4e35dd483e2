"""The effects of groups given the data, and predictions for known, new and average groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

import ornstein as orn
from ornstein.curvature.curvature import Curvature
from ornstein.errors import InputError
from ornstein.model.mixed.checked import glmm
from ornstein.posterior.drawn_effects import drawn_effects
from ornstein.posterior.posterior import Posterior


@pytest.fixture(scope="module")
def gaussian():
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b", "c", "d", "e", "f"], [2, 3, 4, 5, 6, 7])
    x = rng.normal(size=(len(labels), 1))
    y = x[:, 0] + rng.normal(size=6)[np.unique(labels, return_inverse=True)[1]]
    y = y + 0.5 * rng.normal(size=len(labels))
    return glmm(x, y, labels), x, y, labels


def at_one_point(model, theta, count):
    """A posterior all of whose draws are one point."""
    draws = np.tile(theta, (1, count, 1))
    return Posterior(
        draws,
        model.names,
        model.layout,
        {},
        predict_function=model.predict,
        constrained=model.constrained(draws),
        model=model,
    )


def test_gaussian_effects_have_their_conditional_law(gaussian):
    """Mean and variance by the formulas for one random intercept."""
    model, x, y, labels = gaussian
    params = model.layout.unflatten(model.init)
    tau, sigma = np.exp(params["factor"][0]), np.exp(params["log_scale"])
    effects = at_one_point(model, model.init, 4000).group_effects(draws=4000)
    assert effects.levels.tolist() == sorted(set(labels))
    for place, label in enumerate(effects.levels):
        own = labels == label
        rest = y[own] - np.column_stack([x[own], np.ones(own.sum())]) @ params["coef"]
        precision = own.sum() / sigma**2 + 1.0 / tau**2
        mean, sd = rest.sum() / sigma**2 / precision, precision**-0.5
        found = effects.draws[:, place, 0]
        assert abs(found.mean() - mean) < 4.5 * sd / np.sqrt(4000)
        assert abs(found.std() / sd - 1.0) < 4.5 / np.sqrt(8000)
        assert effects.shrinkage[place, 0] == pytest.approx(1 / precision / tau**2, rel=0.15)
    one = at_one_point(model, model.init, 10).group_effects(groups=["e"], draws=10)
    assert one.draws.shape == (10, 1, 1)


def test_resampled_effects_have_their_conditional_law():
    """Poisson counts of few rows: against the density on a grid."""
    labels = np.repeat(np.arange(3), 2)
    y = np.array([0, 0, 1, 0, 6, 9])
    model = glmm(np.zeros((6, 1)), y, labels, family="poisson")
    theta = model.init.copy()
    theta[model.component_places()] = np.log(1.5)
    mean = theta[model.names.index("intercept")]
    drawn = drawn_effects(model, np.tile(theta, (4000, 1)), np.arange(3), 0)[:, :, 0]
    grid = np.linspace(-12.0, 8.0, 4001)
    for place, label in enumerate(model.levels):
        logs = scipy.stats.norm.logpdf(grid, scale=1.5)
        for count in y[labels == label]:
            logs = logs + scipy.stats.poisson.logpmf(count, np.exp(mean + grid))
        cumulative = np.cumsum(np.exp(logs)) / np.sum(np.exp(logs))
        law = np.interp(drawn[:, place], grid, cumulative)
        assert scipy.stats.kstest(law, "uniform").pvalue > 1e-3
        assert scipy.stats.kstest(law**1.3, "uniform").pvalue < 1e-3


def test_predictions_for_known_new_and_average_groups(gaussian):
    model, *_ = gaussian
    post = at_one_point(model, model.init, 2000)
    params = model.layout.unflatten(model.init)
    tau = np.exp(params["factor"][0])
    fixed = 0.7 * params["coef"][0] + params["coef"][1]
    row = np.array([[0.7]])
    average = post.predict(row, draws=None)
    assert average.mean[0] == pytest.approx(fixed, rel=1e-6)
    assert average.sd[0] == pytest.approx(0.0, abs=1e-9)
    moved = post.predict({"X": row, "offset": [2.0]}, draws=None)
    assert moved.mean[0] == pytest.approx(fixed + 2.0, rel=1e-6)
    new = post.predict({"X": row}, draws=None, groups="new")
    assert abs(new.sd[0] / tau - 1.0) < 4.5 / np.sqrt(4000)
    known = post.predict({"X": row, "groups": ["f"]}, draws=None, groups="known")
    effects = post.group_effects(groups=["f"], draws=2000)
    assert known.mean[0] == pytest.approx(fixed + effects.mean[0, 0], abs=0.05)
    with pytest.raises(InputError, match="hold no group 'z'"):
        post.predict({"X": row, "groups": ["z"]}, groups="known")
    with pytest.raises(InputError, match="X has 1 rows but offset has shape"):
        post.predict({"X": row, "offset": [2.0, 3.0]})
    with pytest.raises(InputError, match="'known', 'new' or 'average'"):
        post.predict(row, groups="all")
    with pytest.raises(InputError, match="needs labels"):
        post.predict(row, groups="known")


def test_a_saved_posterior_predicts_and_says_what_it_lacks(gaussian, tmp_path):
    model, *_ = gaussian
    post = at_one_point(model, model.init, 50)
    loaded = orn.load(post.save(tmp_path / "fit.orn"))
    row = np.array([[0.7]])
    assert loaded.predict(row).mean == pytest.approx(post.predict(row).mean)
    assert set(loaded.constrained) == {"x0", "intercept", "sd(intercept)", "sigma"}
    with pytest.raises(InputError, match="a saved file does not hold"):
        loaded.group_effects()
    again = replace(loaded, model=model)
    assert again.group_effects(draws=5).draws.shape == (5, 6, 1)


@pytest.mark.slow
def test_a_sampled_mixed_model_has_everything(gaussian):
    """Measure, sample and summary on groups as examples."""
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(150), 4)
    y = 0.5 * rng.normal(size=150)[labels] + rng.normal(size=600)
    model = orn.glmm(rng.normal(size=(600, 1)), y, labels)
    curvature = orn.measure(model)
    assert isinstance(curvature, Curvature) and curvature.n_data == 150
    post = orn.sample(
        model, orn.ConstantSGD(), curvature=curvature, draws=500, progress=False, batch_size=16
    )
    table = post.summary()
    assert set(table.index) == {"x0", "intercept", "sd(intercept)", "sigma"}
    off = np.abs(post.mean - curvature.mode) / post.sd
    assert np.all(off < 0.6), off
    assert np.all(np.abs(post.sd / np.sqrt(np.diag(curvature.posterior_covariance)) - 1) < 0.3)
