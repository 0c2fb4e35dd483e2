"""A posterior is asked about its own model only, with seeds and numbers that mean something."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import ornstein as orn

RNG = np.random.default_rng(0)
N = 50
X = RNG.normal(size=(N, 2))
Y = X @ [1.0, -0.5] + RNG.normal(size=N)
MODEL = orn.glm(X, Y)
OTHERS = {
    "fewer parameters": (orn.glm(X[:, :1], Y), "the model has 3 parameters, the posterior 4"),
    "other names": (
        orn.glm(pd.DataFrame(X, columns=["a", "b"]), Y),
        "parameter 0 is 'a' in the model and 'x0' in the posterior",
    ),
    "fewer rows": (orn.glm(X[:-1], Y[:-1]), "it holds 49 rows, and the posterior was made from 50"),
    "no model": (3, "model must be a Model, for instance orn.glm"),
}
QUESTIONS = {
    "loo": lambda post, model: post.loo(model),
    "check": lambda post, model: post.check(model),
    "critique": lambda post, model: post.critique(model),
    "sandwich": lambda post, model: post.sandwich(model),
    "reweight": lambda post, model: post.reweight(model=model),
    "to_arviz": lambda post, model: post.to_arviz(groups=("log_likelihood",), model=model),
    "report": lambda post, model: post.report("/nowhere/report.html", model=model),
    "effects": lambda post, model: post.effects("x0", model=model),
    "predict": lambda post, model: post.predict(X, model=model),
}


@pytest.fixture(scope="module")
def post():
    return orn.laplace(MODEL, seed=0, draws=100)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("other", OTHERS)
def test_another_model_is_refused(post, question, other):
    """Its numbers would be about other data."""
    model, words = OTHERS[other]
    with pytest.raises(orn.InputError, match=words):
        QUESTIONS[question](post, model)


def test_the_same_model_made_again_is_taken(post):
    again = orn.glm(X, Y)
    assert post.loo(again).elpd == post.loo().elpd
    np.testing.assert_array_equal(post.sandwich(again), post.sandwich())


@pytest.mark.parametrize("seed", [-1, 1.5, "x", True, None])
def test_a_seed_is_a_whole_number(post, seed):
    for ask in (
        lambda: post.predict(X, draws=5, seed=seed),
        lambda: post.predict(X).outcome.draws(seed),
        lambda: post.effects("x0", draws=5, seed=seed),
        lambda: post.loo(subset=10, seed=seed),
        lambda: post.check(seed=seed),
        lambda: post.critique(seed=seed),
        lambda: post.reweight(seed=seed),
        lambda: post.to_arviz(groups=("posterior_predictive",), seed=seed),
    ):
        with pytest.raises(orn.InputError, match="seed must be a whole number, 0 or more"):
            ask()


@pytest.mark.parametrize("draws", [0, 7, 50.5, "x"])
def test_reweighting_needs_points(post, draws):
    with pytest.raises(orn.InputError, match="draws must be a whole number, 50 or more"):
        post.reweight(draws)


def test_models_of_other_outcomes_are_not_compared(post):
    """Log densities of log y and of y differ by a Jacobian; in another order rows do not pair."""
    others = {
        "scale": orn.glm(X, np.exp(Y)),
        "order": orn.glm(X[::-1], Y[::-1]),
        "weights": orn.glm(X, Y, weights=np.full(N, 2.0)),
    }
    for model in others.values():
        with pytest.raises(orn.InputError, match="the models explain different outcomes"):
            orn.loo_compare({"one": post, "other": orn.laplace(model, seed=0, draws=100)})
    same = orn.laplace(orn.glm(X[:, :1], Y.astype(np.float32)), seed=0, draws=100)
    assert orn.loo_compare({"one": post, "same": same}).index[0] == "one"


def test_a_row_far_beyond_the_model_does_not_spoil_the_others():
    """Its tail has no shape in floating point: NaN in every sum, before."""
    y = np.where(np.arange(N) == 7, 1e4, Y)
    found = orn.laplace(orn.glm(X, y, noise_scale=0.1), seed=0, draws=100).loo()
    assert np.all(np.isfinite([found.elpd, found.se, found.p_loo]))
    assert found.pareto_k[7] == np.inf
    assert found.bad >= 1


@pytest.fixture(scope="module")
def of_a_table():
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "h": ["p", "q"] * (N // 2), "y": Y})
    return table, orn.laplace(orn.regress("y ~ a + h", table), seed=0, draws=100)


@pytest.mark.parametrize("column", ["y", "b"])
def test_a_column_that_the_model_does_not_use_has_no_effect_to_show(of_a_table, column):
    """It would be exactly 0, with an interval of no width."""
    table, post = of_a_table
    for ask in (post.effects, lambda name, data: post.predict_at(data, **{name: [1.0]})):
        with pytest.raises(orn.InputError, match="does not depend on the column"):
            ask(column, table)


def test_effects_need_rows_that_are_complete(of_a_table):
    table, post = of_a_table
    for column, data, words in [
        ("a", table.assign(a=np.nan), "no row has a value of 'a'"),
        ("a", table.assign(h="new"), "none is complete"),
        ("h", table.assign(h="new"), "no row has a label of 'h' that the fit has seen"),
    ]:
        with pytest.raises(orn.InputError, match=words), warnings.catch_warnings():
            warnings.simplefilter("ignore", orn.PredictionWarning)
            post.effects(column, data)
