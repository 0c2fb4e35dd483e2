"""`orn.sample` on regressions with more than 2000 parameters: planned, run and judged."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import ornstein as orn
from ornstein.ways import LAST, WIDE, ways_of
from ornstein.ways.situation import survey


def sparse(family, columns, rows=1500, per_row=20, seed=0, **options):
    """Columns drawn with probability ∝ 1/rank, values 1, weights and prior N(0, 1)."""
    rng = np.random.default_rng(seed)
    chance = 1.0 / np.arange(1, columns + 1)
    chosen = rng.choice(columns, size=(rows, per_row), p=chance / chance.sum())
    pointers = np.arange(0, rows * per_row + 1, per_row)
    features = scipy.sparse.csr_matrix(
        (np.ones(chosen.size), chosen.ravel(), pointers), (rows, columns)
    )
    features.sum_duplicates()
    features.data[:] = 1.0
    linear = features @ rng.normal(size=columns)
    if family == "gaussian":
        target = linear + rng.normal(size=rows)
    else:
        target = rng.random(rows) < 1.0 / (1.0 + np.exp(-linear))
    return orn.glm(features, target, family, 1.0, intercept=False, **options)


@pytest.fixture(scope="module")
def logistic():
    return sparse("bernoulli", 2100)


@pytest.fixture(scope="module")
def sampled(logistic):
    return orn.sample(logistic, draws=125, progress=False)


def test_a_conjugate_regression_is_trusted_and_exact(capsys):
    model = sparse("gaussian", 2050, rows=400, per_row=8, noise_scale=1.0)
    whole = (model.features.T @ model.features).toarray() + np.eye(model.dim)
    inverse = np.linalg.inv(whole)
    mean, sd = inverse @ (model.features.T @ model.response), np.sqrt(np.diagonal(inverse))
    post = orn.sample(model, draws=125)
    assert post.verdict.level == "trusted", post.verdict
    assert "the mode is up to 0" in capsys.readouterr().err
    assert np.max(np.abs(post.mean - mean) / sd) < 0.01
    assert np.mean(post.sd / sd) == pytest.approx(1.0, abs=0.005)
    z = (post.draws.reshape(-1, model.dim) - mean) / sd
    assert np.mean(z**2) == pytest.approx(1.0, abs=0.02)


def test_hundreds_of_skewed_parameters_are_left_to_hmc():
    """KL adds up over parameters: a Gaussian that is near in each still makes good trajectories."""
    plan = orn.plan(sparse("bernoulli", 300, rows=900, per_row=12), draws=250)
    assert plan.chosen == "hmc"
    assert 0.5 < plan["gaussian-vi"].kl < 2.0 < plan["laplace"].kl


@pytest.mark.slow
def test_the_plan_says_how_far_the_mode_is(logistic):
    plan = orn.plan(logistic, draws=125)
    assert plan.chosen == "gaussian-vi"
    assert plan["laplace"].kl > 0.1 > plan["gaussian-vi"].kl > plan["hmc"].kl == 0.0
    assert "Var(log w)/D" in plan["gaussian-vi"].words
    assert not plan["nuts"].possible and plan["nuts"].words == "for up to 2000 parameters"
    assert plan.situation.passes > 100.0
    shift = orn.gaussian_vi(logistic, draws=1).settings["shift"]
    assert plan.situation.wide.fitted.shift == pytest.approx(shift, rel=1e-6)


@pytest.mark.slow
def test_laplace_is_not_trusted_where_the_mass_is_not_at_the_mode(logistic, sampled):
    assert sampled.verdict.level == "trusted", sampled.verdict
    assert sampled.settings["sampler"] == "gaussian_vi"
    laplace = orn.laplace(logistic, draws=125)
    verdict = laplace.check()
    assert verdict.level == "not trusted" and verdict["moved draws"].level == "not trusted"
    wide = orn.gaussian_vi(logistic, draws=125)
    stretched = np.mean(wide.draws, axis=(0, 1)) + 1.4 * (wide.draws - wide.mean)
    from dataclasses import replace

    wrong = replace(wide, draws=stretched, moments=None)
    assert wrong.check(logistic)["moved draws"].level == "not trusted"


@pytest.mark.slow
def test_hmc_by_its_name_is_trusted(logistic, sampled):
    post = orn.sample(logistic, "hmc", draws=250, progress=False)
    verdict = post.check()
    assert verdict.level == "trusted", verdict
    assert np.sqrt(np.mean(((post.mean - sampled.mean) / sampled.sd) ** 2)) < 0.15


@pytest.mark.slow
def test_the_same_seed_gives_the_same_draws(logistic, sampled):
    again = orn.sample(logistic, draws=125, progress=False)
    np.testing.assert_array_equal(again.draws, sampled.draws)
    assert str(again.verdict) == str(sampled.verdict)


@pytest.mark.slow
def test_a_checkpoint_leads_to_the_same_draws(logistic, sampled, tmp_path):
    post = orn.sample(logistic, draws=125, progress=False, checkpoint=tmp_path / "run")
    again = orn.resume(tmp_path / "run", logistic, progress=False)
    np.testing.assert_array_equal(post.draws, sampled.draws)
    np.testing.assert_array_equal(again.draws, sampled.draws)
    assert str(again.verdict) == str(sampled.verdict)


def test_everything_else_is_left_to_constant_sgd():
    data = np.random.default_rng(0).normal(size=(600, 2010))
    model = orn.Model(
        lambda theta, row: -0.5 * ((row - theta) ** 2).sum(),
        data,
        log_prior=lambda theta: -0.5 * (theta**2).sum(),
        init=np.zeros(2010),
    )
    situation = survey(model)
    assert situation.wide is None and ways_of(situation) == LAST
    plan = orn.plan(model, draws=10)
    assert plan.chosen == "constant-sgd-diagonal"
    assert [row.way for row in plan if row.possible] == ["constant-sgd-diagonal"]


def test_ways_have_the_names_of_those_for_few_parameters():
    assert {way.name for way in WIDE} == {"laplace", "gaussian-vi", "hmc"}
    assert all(not way.stochastic for way in WIDE)
