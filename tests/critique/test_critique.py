"""The critique names what is wrong with a model, and nothing where the model is right."""

from __future__ import annotations

import numpy as np
import pytest

import ornstein as orn

FAMILIES = {
    "over": "poisson",
    "zeros": "poisson",
    "tails": "gaussian",
    "spread": "gaussian",
    "curve": "gaussian",
    "curve of labels": "bernoulli",
}
NAMED = {
    "over": ("dispersion", "negative-binomial"),
    "zeros": ("zeros", "zero-inflated-poisson"),
    "tails": ("calibration", "student-t"),
    "spread": ("spread", "sandwich"),
    "curve": ("trend", "bs(x1, df=5)"),
    "curve of labels": ("trend", "bs(x1, df=5)"),
}
TIMES = ("exponential", "weibull")
SIZES = [
    pytest.param(1_000, 2),
    pytest.param(1_000, 10, marks=pytest.mark.slow),
    pytest.param(300_000, 10, marks=pytest.mark.slow),
]


def simulated(kind, n_data, seed):
    """Two columns with slopes 0.5 and −0.5, and what `kind` says on top."""
    rng = np.random.default_rng(1000 * seed + 7)
    X = rng.normal(size=(n_data, 2))
    u = X @ [0.5, -0.5]
    noise = rng.normal(size=n_data)
    return X, {
        "gaussian": lambda: u + noise,
        "poisson": lambda: rng.poisson(np.exp(u)),
        "bernoulli": lambda: u + rng.logistic(size=n_data) > 0,
        "negative-binomial": lambda: rng.poisson(np.exp(u) * rng.gamma(2.0, 0.5, n_data)),
        "gamma": lambda: np.exp(u) * rng.gamma(2.0, 0.5, n_data),
        "over": lambda: rng.poisson(np.exp(u) * rng.gamma(2.0, 0.5, n_data)),
        "zeros": lambda: rng.poisson(np.exp(u + 0.7)) * (rng.uniform(size=n_data) > 0.2),
        "tails": lambda: u + rng.standard_t(3, n_data),
        "spread": lambda: u + noise * np.exp(0.5 * X[:, 0]),
        "curve": lambda: u + 0.3 * X[:, 1] ** 2 + noise,
        "curve of labels": lambda: u + 0.6 * X[:, 1] ** 2 + rng.logistic(size=n_data) > 0.6,
    }[kind]()


def critique_of(kind, n_data, seed):
    X, y = simulated(kind, n_data, seed)
    model = orn.glm(X, y, FAMILIES.get(kind, kind))
    return orn.laplace(model, seed=0).critique()


@pytest.mark.parametrize(("n_data", "sets"), SIZES)
@pytest.mark.parametrize("kind", FAMILIES)
def test_what_is_wrong_is_named(kind, n_data, sets):
    found = [critique_of(kind, n_data, seed) for seed in range(sets)]
    name, remedy = NAMED[kind]
    named = [item[name].level != "fits" and remedy in item[name].remedy for item in found]
    assert sum(named) >= 0.9 * sets
    assert all(item.level != "fits" for item in found)


@pytest.mark.parametrize(("n_data", "sets"), SIZES)
@pytest.mark.parametrize(
    "family", ["gaussian", "poisson", "bernoulli", "negative-binomial", "gamma"]
)
def test_a_model_that_is_right_is_left_alone(family, n_data, sets):
    found = [critique_of(family, n_data, seed) for seed in range(sets)]
    assert sum(item.level != "fits" for item in found) <= 0.1 * sets
    assert all(finding.level != "skipped" for item in found for finding in item)


@pytest.mark.slow
def test_doctor_visits_are_no_poisson_counts():
    """RAND's health insurance experiment: dispersion 6.3."""
    import statsmodels.api as sm

    data = sm.datasets.randhie.load_pandas()
    found = orn.laplace(orn.glm(data.exog, data.endog, "poisson"), seed=0).critique()
    assert found.level == "does not fit"
    assert found["dispersion"].number == pytest.approx(6.3, abs=0.1)
    assert "negative-binomial" in found["dispersion"].remedy
    fit = orn.laplace(orn.glm(data.exog, data.endog, "negative-binomial"), seed=0)
    assert fit.critique().level != "does not fit"


def test_a_row_that_decides_is_named():
    X, y = simulated("gaussian", 200, 0)
    X[17], y[17] = [8.0, 8.0], 30.0
    found = orn.laplace(orn.glm(X, y), seed=0).critique()["influence"]
    assert found.level == "doubtful"
    assert "row 17 " in found.sentence


def test_a_prior_against_the_data_is_named():
    X, y = simulated("gaussian", 200, 0)
    model = orn.glm(X, y, priors={"x0": orn.priors.Normal(-3.0, 0.05)})
    found = orn.laplace(model, seed=0).critique()["prior"]
    assert found.level == "doubtful"
    assert "the prior of x0" in found.sentence
    # a column that goes with x0 is moved too, by the prior of x0
    near = np.column_stack([X, X[:, 0] + 0.7 * np.random.default_rng(0).normal(size=200)])
    priors = {"x0": orn.priors.Normal(-3.0, 0.05), "x2": orn.priors.Normal(0.0, 100.0)}
    found = orn.laplace(orn.glm(near, y, priors=priors), seed=0).critique()["prior"]
    assert found.level == "doubtful"
    assert "the prior of x0 in model.priors" in found.remedy


def of_table(formula, family="gaussian", **columns):
    rng = np.random.default_rng(1)
    table = {"arm": rng.choice(["a", "b", "c"], 600), "x": rng.normal(size=600)}
    table |= {"z": rng.normal(size=600), "hours": rng.uniform(0.5, 2.0, 600)}
    table |= {name: make(table, rng) for name, make in columns.items()}
    model = orn.regress(formula, table, family, progress=False)
    return orn.laplace(model, draws=200, seed=0).critique()


def test_along_a_table_s_columns_whatever_the_formula_makes_of_them():
    """Remedies are formulas that can be written: of labels, splines, products and an exposure."""

    def wide(table, rng):
        return table["x"] + np.where(table["arm"] == "b", 3.0, 1.0) * rng.normal(size=600)

    found = of_table("y ~ arm + x", y=wide)["spread"]
    assert (found.level, found.remedy) == ("does not fit", 'target="sandwich", or scale="arm"')
    found = of_table("y ~ arm", y=wide)
    assert found["spread"].level == "doubtful"
    with pytest.raises(orn.InputError, match="no finding 'trend'"):  # labels have no curve
        _ = found["trend"]

    def wave(table, rng):
        return np.sin(5.0 * table["x"]) + 0.3 * rng.normal(size=600)

    assert of_table("y ~ bs(x, df=3)", y=wave)["trend"].remedy == "a larger df in bs(x, df=3)"

    def product(table, rng):
        both = table["x"] * table["z"]
        return both + 0.6 * both**2 + rng.normal(size=600)

    remedy = of_table("y ~ x * z", y=product)["trend"].remedy
    assert remedy == "bs(x, df=5) and bs(z, df=5) in x:z"

    def events(table, rng):
        return rng.poisson(np.exp(0.3 * table["x"]) * table["hours"] ** 3)

    found = of_table("y ~ x + offset(log(hours))", "poisson", y=events)["trend"]
    assert found.remedy == "bs(hours, df=5)"
    right = of_table("y ~ x + offset(3 * log(hours))", "poisson", y=events)
    assert right["trend"].level == "fits"


def test_without_data_it_says_what_it_needs(tmp_path):
    X, y = simulated("gaussian", 200, 0)
    model = orn.glm(X, y)
    loaded = orn.load(orn.laplace(model, seed=0).save(tmp_path / "fit.orn"))
    found = loaded.critique()
    assert found.level == "skipped"
    assert not found.fits
    assert "critique(model=…)" in str(found)
    assert loaded.critique(model).level in ("fits", "doubtful")
    own = orn.Model(lambda p, x: -0.5 * (x - p) ** 2, np.linspace(-1.5, 1.5, 9), init=np.zeros(()))
    unseen = orn.laplace(own, seed=0).critique()
    assert unseen["rows"].level == unseen.level == "skipped"
    assert unseen["prior"].level == "fits"


def test_censored_times_are_looked_at():
    """Times of shape 2 of which a third are censored: no exponential law, and a curve in x1."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(1_000, 2))
    times = np.exp(X @ [0.5, -0.5]) * rng.weibull(2.0, 1_000)
    seen = times < 1.2
    assert 0.6 < seen.mean() < 0.7
    y = np.column_stack([np.minimum(times, 1.2), seen])
    wrong, right = (orn.laplace(orn.glm(X, y, name)).critique() for name in TIMES)
    assert wrong["calibration"].level == "does not fit"
    assert "weibull" in wrong["calibration"].remedy
    assert right.level == "fits"
    assert all(finding.level != "skipped" for finding in right)
    curved = times * np.exp(0.3 * (X[:, 1] ** 2 - 1.0))
    y = np.column_stack([np.minimum(curved, 1.2), curved < 1.2])
    found = orn.laplace(orn.glm(X, y, "weibull")).critique()["trend"]
    assert found.level != "fits"
    assert found.remedy == "bs(x1, df=5)"


def test_labels_in_an_order_are_looked_at():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(1_000, 2))
    for curve, level in ((0.0, "fits"), (0.6, "does not fit")):
        latent = X @ [0.5, -0.5] + curve * X[:, 1] ** 2 + rng.logistic(size=1_000)
        y = np.digitize(latent, [-0.5, 0.5, 1.5])
        found = orn.laplace(orn.glm(X, y, "ordinal", classes=range(4))).critique()
        assert found["trend"].level == level
        assert (found.level == "fits") == (level == "fits")


@pytest.mark.parametrize("curve", [0.0, 2.5])
def test_labels_with_few_rows_for_each_coefficient(curve):
    """The mean follows the rows that it was found from; a right model is none the worse for it."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(600, 150))
    u = X @ rng.normal(size=150) / 3.0 + curve * (X[:, 0] ** 2 - 1.0)
    y = u + rng.logistic(size=600) > 0.0
    model = orn.glm(X, y, "bernoulli", prior_precision=9.0, intercept=False)
    found = orn.gaussian_vi(model, draws=20).critique()
    assert found["calibration"].level == found["link"].level == "fits"
    assert (found["trend"].level == "fits") == (curve == 0.0)
