"""Default priors on the scale of the data, and priors by name."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import scipy.stats

import ornstein as orn
from ornstein.compute.precision import double
from ornstein.model.spread import Spread

RNG = np.random.default_rng(0)
ROWS = 150
X = np.column_stack([RNG.normal(size=(ROWS, 2)), RNG.random(ROWS) < 0.3]).astype(float)
ETA = X @ [0.5, -0.3, 0.4]
TARGETS = {
    "gaussian": ETA + RNG.normal(size=ROWS),
    "bernoulli": RNG.random(ROWS) < 1.0 / (1.0 + np.exp(-ETA)),
    "poisson": RNG.poisson(np.exp(ETA)).astype(float),
    "ordinal": np.digitize(ETA + RNG.logistic(size=ROWS), [-1.0, 0.5]),
}
OTHERS = ("bernoulli", "poisson")
UNITS, ORIGINS = np.array([1e3, 1e-3, 7.0]), np.array([1e4, 0.02, -3.0])


def mode_and_covariance(features, y, family):
    model = orn.glm(features, y, family)
    curvature = orn.measure(model)
    return model, curvature.mode, np.linalg.inv(curvature.hessian * model.n_data)


@pytest.mark.parametrize(
    "family",
    ["gaussian", "ordinal", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)],
)
def test_units_and_origins_of_columns_change_nothing(family):
    model, mode, covariance = mode_and_covariance(X, TARGETS[family], family)
    _, moved, moved_covariance = mode_and_covariance(X * UNITS + ORIGINS, TARGETS[family], family)
    back = np.eye(model.dim)
    back[:3, :3] = np.diag(UNITS)
    # a row of zeros in the old origin: the intercept takes up the rest, a cut point loses it
    level = model.names.index("cut" if family == "ordinal" else "intercept")
    back[level, :3] = -ORIGINS if family == "ordinal" else ORIGINS
    sds = np.sqrt(np.diag(covariance))
    assert np.max(np.abs(back @ moved - mode) / sds) < 1e-8
    same = back @ moved_covariance @ back.T
    assert np.max(np.abs(same - covariance) / np.outer(sds, sds)) < 1e-8


def test_the_unit_of_a_gaussian_response_changes_nothing():
    y = TARGETS["gaussian"]
    _, mode, covariance = mode_and_covariance(X, y, "gaussian")
    _, moved, moved_covariance = mode_and_covariance(X, 1e4 * y, "gaussian")
    scale = np.append(np.full(4, 1e4), 1.0)
    assert np.allclose(moved - [0, 0, 0, 0, np.log(1e4)], mode * scale, rtol=1e-8, atol=1e-8)
    assert np.allclose(moved_covariance, covariance * np.outer(scale, scale), rtol=1e-7)


def test_the_default_is_what_it_says():
    y = TARGETS["gaussian"]
    model, spread = orn.glm(X, y), 2.5 * y.std()
    params = {"coef": np.array([0.7, -0.2, 0.3]), "intercept": np.array(0.4), "log_scale": -0.1}
    sds = spread / np.array([X[:, 0].std(), X[:, 1].std(), 1.0])
    level = 0.4 + X.mean(axis=0) @ params["coef"]
    wanted = (
        scipy.stats.norm.logpdf(params["coef"], 0.0, sds).sum()
        + scipy.stats.norm.logpdf(level, y.mean(), spread)
        + scipy.stats.invgamma.logpdf(np.exp(-0.1), 1.0, scale=0.05 * y.std())
        - 0.1  # log dσ/d log σ
    )
    with double():
        found = float(model.loss.log_prior(params, model.hyperparameters))
    constant = np.log(0.05 * y.std())  # which the inverse gamma leaves out
    assert found == pytest.approx(wanted - constant, abs=1e-10)
    assert model.priors["x2"] == f"Normal(0, {spread:.4g})"
    assert model.priors["intercept"].endswith("where columns are average")


def test_a_number_means_what_it_meant():
    model = orn.glm(X, TARGETS["gaussian"], prior_precision=2.0)
    assert model.hyperparameters.keys() == {"prior_precision", "intercept_precision"}
    assert model.priors == {
        "x0": "Normal(0, 0.7071)",
        "x1": "Normal(0, 0.7071)",
        "x2": "Normal(0, 0.7071)",
        "intercept": "Flat",
        "scale": "Flat",
    }


def test_priors_by_name():
    priors = {
        "x0": orn.priors.Normal(1.0, 0.5),
        "x1": orn.priors.StudentT(4, 0, 2),
        "x2": orn.priors.Flat(),
        "intercept": orn.priors.Normal(0, 3),
        "scale": orn.priors.Normal(0, 2),
    }
    model = orn.glm(X, TARGETS["gaussian"], priors=priors)
    params = {"coef": np.array([0.7, -0.2, 0.3]), "intercept": np.array(0.4), "log_scale": -0.1}
    other = {"coef": np.array([0.1, 0.9, 5.0]), "intercept": np.array(0.1), "log_scale": 0.2}

    def by_hand(point):
        level = point["intercept"] + X.mean(axis=0) @ point["coef"]
        return (
            scipy.stats.norm.logpdf(point["coef"][0], 1.0, 0.5)
            + scipy.stats.t.logpdf(point["coef"][1], 4, 0, 2)
            + scipy.stats.norm.logpdf(level, 0, 3)
            + scipy.stats.norm.logpdf(np.exp(point["log_scale"]), 0, 2)
            + point["log_scale"]
        )

    with double():
        ours = [
            float(model.loss.log_prior(point, model.hyperparameters)) for point in (params, other)
        ]
    assert ours[1] - ours[0] == pytest.approx(by_hand(other) - by_hand(params), abs=1e-10)
    assert model.priors["x1"] == "StudentT(4, 0, 2)" and model.priors["x2"] == "Flat"


@pytest.mark.parametrize(
    ("priors", "sentence"),
    [
        ({"x9": orn.priors.Flat()}, "x9"),
        ({"scalle": orn.priors.Flat()}, "did you mean 'scale'"),
        ({"x0": 3.0}, "one of orn.priors"),
        ({"x0": orn.priors.Gamma(1, 1)}, "is for positive"),
    ],
)
def test_what_is_no_prior_is_refused(priors, sentence):
    with pytest.raises(orn.InputError, match=sentence):
        orn.glm(X, TARGETS["gaussian"], priors=priors)
    with pytest.raises(orn.InputError, match="must be positive"):
        orn.priors.Normal(0, -1)


@pytest.mark.parametrize(("rows", "columns"), [(5, 2), (50, 100)])
def test_few_rows_have_a_mode(rows, columns):
    rng = np.random.default_rng(rows)
    features = rng.normal(size=(rows, columns))
    y = features[:, :2] @ [1.0, -1.0] + rng.normal(size=rows)
    curvature = orn.measure(orn.glm(features, y))
    assert np.all(np.isfinite(curvature.mode)) and np.linalg.eigvalsh(curvature.hessian)[0] > 0


def test_flat_priors_have_no_mode_where_columns_explain_y():
    rng = np.random.default_rng(5)
    with pytest.raises(orn.CurvatureError):
        orn.measure(orn.glm(rng.normal(size=(5, 4)), rng.normal(size=5), prior_precision=0.0))


def test_a_rare_level_does_not_run_away():
    rng = np.random.default_rng(3)
    rare = np.zeros((2000, 1))
    rare[7] = 1.0
    y = rng.random(2000) < 0.5
    y[7] = False
    post = orn.measure(orn.glm(rare, y, "bernoulli"))
    sd = np.sqrt(np.linalg.inv(post.hessian * 2000)[0, 0])
    assert -3.0 < post.mode[0] < 0.0 and sd < 2.6


def test_beyond_two_thousand_parameters_the_intercept_stands_alone():
    rng = np.random.default_rng(1)
    wide = scipy.sparse.random_array((300, 2100), density=0.01, rng=rng).tocsr()
    model = orn.glm(wide, rng.integers(0, 2, 300), "bernoulli")
    assert "column_means" not in model.hyperparameters
    assert model.hyperparameters["intercept_precision"] < 1.0 / 2.5**2


def test_the_spread_of_sparse_columns_and_of_parts_is_that_of_the_whole():
    weights = np.random.default_rng(5).random(ROWS)
    thin = X * (np.arange(ROWS)[:, None] % 3 > 0)
    whole, sparse = Spread.of(thin, weights), Spread.of(scipy.sparse.csr_array(thin), weights)
    parts = Spread.of(thin[:40], weights[:40]).merged(Spread.of(thin[40:], weights[40:]))
    for other in (sparse, parts):
        assert np.allclose(other.units(), whole.units(), rtol=1e-12)
        assert np.allclose(other.mean, whole.mean, rtol=1e-12)
        assert np.array_equal(other.two, whole.two)
    assert whole.two.tolist() == [False, False, True]


@pytest.mark.slow
def test_em_starts_from_the_scaled_precisions():
    fit = orn.em(orn.glm(X * UNITS, TARGETS["gaussian"]), draws=50, progress=False)
    found = fit.hyperparameters["prior_precision"]
    other = orn.em(orn.glm(X, TARGETS["gaussian"]), draws=50, progress=False)
    assert 1.0 < found < 1e4 and found == pytest.approx(
        other.hyperparameters["prior_precision"], rel=0.5
    )
