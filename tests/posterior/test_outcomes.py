"""Expectation and outcome: two laws with two names, the second with the noise of one value."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import ornstein as orn
from ornstein.model.families.outcome import mixture_cdf

rng = np.random.default_rng(0)
N, SETS = 40, 200
X = rng.normal(size=(N, 2))
COUNTS = rng.poisson(2.0, N).astype(float)
POSITIVE = rng.gamma(2.0, size=N)
RESPONSES = {
    "gaussian": rng.normal(size=N),
    "student-t": rng.normal(size=N),
    "bernoulli": np.arange(N) % 2,
    "poisson": COUNTS,
    "negative-binomial": COUNTS,
    "zero-inflated-poisson": COUNTS,
    "zero-inflated-negative-binomial": COUNTS,
    "hurdle-poisson": COUNTS,
    "hurdle-negative-binomial": COUNTS,
    "binomial": np.column_stack([COUNTS, COUNTS + 2.0]),
    "ordinal": np.arange(N) % 4,
    "quantile": rng.normal(size=N),
    "gamma": POSITIVE,
    "log-normal": POSITIVE,
    "beta": rng.uniform(0.05, 0.95, N),
    "exponential": np.column_stack([POSITIVE, np.ones(N)]),
    "weibull": np.column_stack([POSITIVE, np.ones(N)]),
}


def posterior(model, draws):
    return orn.Posterior(
        draws, model.names, model.layout, {}, predict_function=model.predict, model=model
    )


IN_TIME = ("gaussian", "bernoulli", "poisson", "zero-inflated-poisson")


def test_every_family_whose_outcomes_have_an_order_is_here():
    assert {*RESPONSES, "categorical"} == {*orn.families.TABLE}


@pytest.mark.parametrize(
    "family",
    [
        family if family in IN_TIME else pytest.param(family, marks=pytest.mark.slow)
        for family in RESPONSES
    ],
)
def test_outcome_intervals_hold_what_they_promise(family):
    """Parameters and draws come from one law, so that outcomes at the former must fall into the
    80 % interval of the latter in 80 % of 200 sets; those of discrete outcomes hold more, as much
    as their own law says.
    """
    classes = range(4) if family == "ordinal" else None
    model = orn.glm(X, RESPONSES[family], family, prior_precision=1.0, classes=classes)
    scale = np.where([name.startswith("log_") for name in model.names], 0.3, 0.5)
    discrete = model.likelihood.law.discrete
    inside, inside_expectation, held = 0, 0, []
    for trial in range(SETS):
        own = np.random.default_rng(trial)
        thetas = model.init + scale * own.normal(size=(1, 201, model.dim))
        row = own.normal(size=(1, 2))
        one = np.repeat(thetas[:, :1], 2, axis=1)
        value = posterior(model, one).predict(row).outcome.draws(trial)[0, 0]
        new = posterior(model, thetas[:, 1:]).predict(row)
        low, high = new.outcome.interval(0.8)
        inside += bool(low[0] <= value <= high[0])
        law = next(iter(new.source.laws()))
        held.append((mixture_cdf(law, high) - mixture_cdf(law, low - discrete)).item())
        if new.mean.ndim == 1:
            low, high = new.interval(0.8)
            inside_expectation += bool(low[0] <= value <= high[0])
    shares = np.array(held)
    assert np.all(shares > 0.8 - 1e-9)
    assert discrete or np.allclose(shares, 0.8)
    error = np.sqrt(np.sum(shares * (1.0 - shares)))
    assert abs(inside - shares.sum()) < 3.7 * error + 0.5
    # negative control: the expectation's interval is no interval of a value
    assert inside_expectation < scipy.stats.binom.ppf(1e-4, SETS, 0.8)


@pytest.mark.parametrize("family", ["gaussian", "poisson", "gamma", "zero-inflated-poisson"])
def test_moments_and_quantiles_are_those_of_the_mixture(family):
    model = orn.glm(X, RESPONSES[family], family, prior_precision=1.0)
    thetas = model.init + 0.2 * np.random.default_rng(1).normal(size=(1, 30_000, model.dim))
    new = posterior(model, thetas).predict(X[:3], draws=None)
    values = new.outcome.draws(2)
    assert values.shape == (30_000, 3)
    error = 5.0 * values.std(axis=0) / np.sqrt(len(values))
    assert np.all(np.abs(values.mean(axis=0) - new.mean) < error)
    np.testing.assert_allclose(new.outcome.mean, new.mean, rtol=1e-9)
    np.testing.assert_allclose(values.std(axis=0), new.outcome.sd, rtol=0.05)
    low, high = new.outcome.interval(0.9)
    assert np.all(np.mean((values >= low) & (values <= high), axis=0) > 0.89)
    assert np.all(new.outcome.sd > new.sd)


def test_the_exposure_of_new_rows_is_used():
    frame = pd.DataFrame({"x": X[:, 0], "hours": rng.uniform(1.0, 9.0, N), "y": COUNTS})
    model = orn.regress("y ~ x + offset(log(hours))", frame, family="poisson")
    post = posterior(model, model.init + 0.1 * rng.normal(size=(1, 50, model.dim)))
    once, twice = (
        post.predict(frame.assign(hours=hours * frame["hours"])[["hours", "x"]])
        for hours in (1.0, 2.0)
    )
    np.testing.assert_allclose(twice.mean, 2.0 * once.mean, rtol=1e-12)
    with pytest.raises(orn.InputError, match="lacks the column 'hours'"):
        post.predict(frame[["x"]])


def test_what_cannot_be_said_is_refused():
    model = orn.glm(X, np.arange(N) % 3, "categorical", prior_precision=1.0)
    new = posterior(model, rng.normal(size=(1, 4, model.dim))).predict(X[:2])
    assert set(np.unique(new.outcome.draws())) <= {0.0, 1.0, 2.0}
    with pytest.raises(orn.InputError, match="have no order"):
        new.outcome.interval()
    known = orn.glm(X, RESPONSES["gaussian"], noise_scale=2.0)
    draws = np.zeros((1, 9, known.dim))
    after_load = orn.Posterior(draws, known.names, known.layout, {}, predict_function=known.predict)
    with pytest.raises(orn.InputError, match=r"predict\(…, model=model\)"):
        _ = after_load.predict(X).outcome
    np.testing.assert_allclose(after_load.predict(X, model=known).outcome.sd, 2.0)


def test_draws_above_two_gigabytes_are_refused_with_their_size():
    model = orn.glm(X, RESPONSES["gaussian"])
    post = posterior(model, np.zeros((1, 1000, model.dim)))
    new = post.predict(np.zeros((300_000, 2)))
    with pytest.raises(orn.InputError, match=r"would take 2\.4 GB"):
        _ = new.draws
