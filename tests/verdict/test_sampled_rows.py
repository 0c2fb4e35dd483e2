"""Where passes over all rows take long, a sample of them stands for all: it must be near enough,
and the verdict must see through it what it sees on all rows.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from adversaries import posterior_of

import ornstein as orn
from ornstein.curvature.derivatives import derivatives_of
from ornstein.verdict import sampled_rows
from ornstein.verdict.density import Density
from ornstein.verdict.subject import Subject

ROWS, DRAWS = 60_000, 4000


def logistic(rows=ROWS, ones=0, precision=1.0):
    """Three columns; with `ones`, one of few ones beside them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 3))
    y = (rng.random(rows) < 1.0 / (1.0 + np.exp(-X @ [0.5, -0.5, 0.0]))).astype(int)
    if ones:
        rare = np.zeros((rows, 1))
        rare[:ones] = 1.0
        X, y[:ones] = np.concatenate([X, rare], axis=1), 1
    return orn.glm(X, y, "bernoulli", prior_precision=precision, intercept=False)


@pytest.fixture(scope="module")
def tall():
    """A posterior that is a Gaussian to the eye, draws of it, and its curvature."""
    model = logistic()
    curvature = orn.measure(model)
    law = curvature.laplace
    root = np.linalg.cholesky(law.covariance)
    draws = law.mean + np.random.default_rng(1).normal(size=(DRAWS, 3)) @ root.T
    return model, curvature, draws


def judged(tall, change=lambda draws: draws):
    model, curvature, draws = tall
    return replace(posterior_of(model, change(draws)), curvature=curvature)


def test_it_is_the_posterior_to_third_order(tall):
    model, curvature, draws = tall
    subject = Subject(judged(tall), model)
    close = subject.close
    assert close.rows == sampled_rows.ROWS
    whole = Density(model)
    values, slopes = whole.values_and_gradients(draws[:50])
    found, gradients = close.density.values_and_gradients(draws[:50])
    assert np.abs(found - values).max() < 0.05  # of about 1.5, and of a change of 3 on average
    root = np.linalg.cholesky(curvature.posterior_covariance)
    assert np.abs((gradients - slopes) @ root).max() < 0.05
    # Without the correction the sample's own posterior is far off.
    alone = model.n_data * (
        close.density.loss.sample.values(draws[:50]) + model.scaled_priors(draws[:50])[0]
    )
    assert np.std(alone - values) > 0.5


def test_passes_over_all_rows_stay_few(tall, monkeypatch):
    subject = Subject(judged(tall), tall[0])
    monkeypatch.setattr(Subject, "budget", 64)
    assert subject.close.rows and subject.density.passes <= 20
    found = judged(tall).check()
    assert found.level == "trusted" and "10,000 rows" in found["moved draws"].sentence


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.mean(axis=0) + 1.5 * (x - x.mean(axis=0)),
        lambda x: x.mean(axis=0) + (x - x.mean(axis=0)) / 1.5,
        lambda x: x + 0.7 * x.std(axis=0) * np.eye(3)[0],
    ],
    ids=["too wide", "too narrow", "shifted"],
)
def test_wrong_draws_are_seen(tall, change, monkeypatch):
    monkeypatch.setattr(Subject, "budget", 64)
    found = judged(tall, change).check()
    assert found["moved draws"].level == "not trusted", found.explain()
    assert "10,000 rows" in found["moved draws"].sentence
    # The negative control: without the sample there are too few passes to see it there.
    monkeypatch.setattr(sampled_rows, "FEWEST_TIMES", 1e9)
    assert judged(tall, change).check()["moved draws"].level == "skipped"


def test_a_rare_column_that_the_sample_misses_is_no_sample(monkeypatch):
    """Five ones among 60,000 rows: the sample holds one of them or none."""
    model = logistic(ones=5, precision=0.01)
    curvature = orn.measure(model)
    law = curvature.laplace
    root = np.linalg.cholesky(law.covariance)
    draws = law.mean + np.random.default_rng(1).normal(size=(DRAWS, 4)) @ root.T
    monkeypatch.setattr(Subject, "budget", 64)
    subject = Subject(replace(posterior_of(model, draws), curvature=curvature), model)
    assert subject.close.rows == 0


@pytest.mark.slow
def test_any_model_of_rows_will_do():
    data = np.random.default_rng(0).normal(size=50_000)
    model = orn.Model(
        lambda t, x, h: -0.5 * (x - t) ** 2 - jnp.log(jnp.cosh(t * x)),
        data,
        lambda t, h: -0.5 * t**2,
        init=np.zeros(()),
    )
    curvature = orn.measure(model)
    law = curvature.laplace
    draws = law.mean + np.sqrt(law.covariance[0, 0]) * np.random.default_rng(1).normal(
        size=(400, 1)
    )
    post = replace(posterior_of(model, draws), curvature=curvature)
    close = Subject(post, model).close
    assert close.rows
    difference = close.density.values(draws[:20]) - Density(model).values(draws[:20])
    assert np.abs(difference).max() < 0.1


def test_groups_bring_their_own_rows_into_the_sample():
    """Two halves of the groups make up the whole, whatever the sizes of the groups."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), rng.integers(1, 40, size=60))
    X = rng.normal(size=(groups.size, 2))
    y = X @ [1.0, -0.5] + rng.normal(size=60)[groups] + rng.normal(size=groups.size)
    model = orn.glmm(X, y, groups)
    theta = model.init + 0.1 * rng.normal(size=model.dim)
    parts = [sampled_rows._of_rows(model, np.arange(60)[start::2]) for start in (0, 1)]
    halves = [part.value_and_gradient(theta) for part in parts]
    whole = derivatives_of(model).value_and_gradient(theta)
    for half, other, both in zip(*halves, whole, strict=True):
        np.testing.assert_allclose((half + other) / 2.0, both, rtol=1e-9, atol=1e-9)
