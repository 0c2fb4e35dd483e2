"""Columns far from zero, of extreme scales and nearly collinear, against exact references."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from helpers import relative

import ornstein as orn
from ornstein.curvature.derivatives import derivatives_of
from ornstein.model.regression import GLM

N = 400
SIGMAS = 5.0


def columns(kind):
    rng = np.random.default_rng(4)
    one, two, three = rng.normal(size=(3, N))
    return {
        "timestamp": np.column_stack([1.6e9 + np.round(1000.0 * one, 3), two]),
        "scales": np.column_stack([1e8 * one, 1e-8 * two, three]),
        "close": np.column_stack([one, one + 1e-6 * two, three]),
        "timestamps": np.column_stack([1.6e9 + 1000.0 * one, 1.6e9 + 1000.0 * one + two]),
    }[kind]


def predictor(X):
    standard = (X - X.mean(axis=0)) / X.std(axis=0)
    return standard @ np.array([0.8, -0.3, 0.5])[: X.shape[1]] + 0.2


def response(X, family="gaussian"):
    rng, u = np.random.default_rng(5), predictor(X)
    if family == "gaussian":
        return u + rng.normal(size=N)
    if family == "poisson":
        return rng.poisson(np.exp(0.5 * u)).astype(float)
    if family == "categorical":
        return np.digitize(u + rng.logistic(size=N), [-1.0, 1.0])
    return (rng.random(N) < 1.0 / (1.0 + np.exp(-u))).astype(int)


def exact_ridge(X, y, precision):
    """Mode and covariance of (coef, intercept) for σ = 1, in 60 digits."""
    with mpmath.workdps(60):
        Z = mpmath.matrix(np.column_stack([X, np.ones(len(X))]).tolist())
        A = Z.T * Z
        for place in range(X.shape[1]):
            A[place, place] += precision
        inverse = A**-1
        mode = inverse * (Z.T * mpmath.matrix(y.tolist()))
        return (
            np.array([float(value) for value in mode]),
            np.array(inverse.tolist(), dtype=float),
        )


def exact_logistic(X, y):
    """Mode and covariance with a flat prior: Newton in 40 digits, from the fit on standardised
    columns.
    """
    with mpmath.workdps(40):
        shift, scale = X.mean(axis=0), X.std(axis=0)
        Z = mpmath.matrix(np.column_stack([X, np.ones(len(X))]).tolist())
        T = mpmath.eye(X.shape[1] + 1)
        for place in range(X.shape[1]):
            T[place, place] = 1 / mpmath.mpf(scale[place])
            T[X.shape[1], place] = -mpmath.mpf(shift[place]) / mpmath.mpf(scale[place])
        W, phi = Z * T, mpmath.zeros(X.shape[1] + 1, 1)
        target = mpmath.matrix(y.tolist())
        for _ in range(12):
            u = W * phi
            p = mpmath.matrix([1 / (1 + mpmath.exp(-value)) for value in u])
            weighted = W.copy()
            for row in range(len(X)):
                for place in range(W.cols):
                    weighted[row, place] *= p[row] * (1 - p[row])
            inverse = (W.T * weighted) ** -1
            phi = phi + inverse * (W.T * (target - p))
        mode, covariance = T * phi, T * inverse * T.T
        return (
            np.array([float(value) for value in mode]),
            np.array(covariance.tolist(), dtype=float),
        )


def log_posterior(model, theta):
    value = derivatives_of(model).value(theta) + model.scaled_prior(theta)[0]
    return -model.n_data * value


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("gaussian", {}),
        ("gaussian", {"noise_scale": 1.0, "prior_precision": 1e-4, "intercept_precision": 1e-6}),
        ("bernoulli", {"prior_precision": 0.0}),
        ("poisson", {"intercept_precision": 1e-3}),
        ("categorical", {}),
        ("categorical", {"prior_precision": 0.0}),
        ("categorical", {"prior_precision": 0.0, "intercept_precision": 0.5}),
        ("categorical", {"prior_precision": 1e-4, "intercept_precision": 0.5}),
    ],
)
def test_other_columns_are_the_same_posterior(family, settings):
    """The density is the same at φ and at T φ, whatever class is the reference."""
    rng = np.random.default_rng(0)
    X = np.array([5000.0, 0.0, 0.0]) + rng.normal(size=(N, 3))
    X[:, 2] = X[:, 1] + 1e-4 * X[:, 2]
    y = response(X, family)
    model = orn.glm(X, y, family, **settings)
    worked = model.worked
    assert worked is not None
    there = worked.coordinates
    assert relative(there.to_original @ there.to_working, np.eye(model.dim)) < 1e-9
    for _ in range(3):
        phi = worked.model.init + 0.3 * rng.normal(size=model.dim)
        expected = log_posterior(model, there.original(phi))
        assert log_posterior(worked.model, phi) == pytest.approx(expected, rel=1e-8)
        assert there.working(there.original(phi)) == pytest.approx(phi, abs=1e-7)
    assert worked.model.worked is None and worked.model.names == model.names


@pytest.mark.parametrize(
    "X",
    [
        np.random.default_rng(0).normal(size=(N, 3)),
        np.random.default_rng(0).normal(size=(N, 2)) * [1e8, 1e-8],
        2000.0 + 10.0 * np.random.default_rng(0).normal(size=(N, 1)),
        np.repeat(np.eye(4), N // 4, axis=0),  # every level of a factor, beside an intercept
    ],
)
def test_ordinary_columns_stay_as_they_are(X):
    assert orn.glm(X, response(columns("close"))).worked is None


@pytest.mark.parametrize("precision", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["timestamp", "scales", "close", "timestamps"])
def test_linear_regression_is_exact(kind, precision):
    X = columns(kind)
    y = response(X)
    mode, covariance = exact_ridge(X, y, precision)
    sd = np.sqrt(np.diagonal(covariance))
    curvature = orn.measure(orn.glm(X, y, noise_scale=1.0, prior_precision=precision))
    assert np.max(np.abs(curvature.mode - mode) / sd) < 1e-5
    assert (
        relative(curvature.posterior_covariance / np.outer(sd, sd), covariance / np.outer(sd, sd))
        < 1e-7
    )
    # what the parameters have in common hides in the matrix, and shows in the predictors
    Z = np.column_stack([X - X[0], np.ones(N)])
    moved = mode[-1] + X[0] @ mode[:-1], curvature.mode[-1] + X[0] @ curvature.mode[:-1]
    some = Z[:, :-1] @ (curvature.mode - mode)[:-1] + moved[1] - moved[0]
    assert np.max(np.abs(some)) < 1e-5


@pytest.mark.parametrize("kind", ["timestamp", "scales", "close"])
def test_logistic_regression_is_exact(kind):
    X = columns(kind)
    y = response(X, "bernoulli")
    mode, covariance = exact_logistic(X, y)
    sd = np.sqrt(np.diagonal(covariance))
    curvature = orn.measure(orn.glm(X, y, "bernoulli", prior_precision=0.0))
    assert np.max(np.abs(curvature.mode - mode) / sd) < 1e-5
    assert np.max(np.abs(np.sqrt(np.diagonal(curvature.posterior_covariance)) / sd - 1.0)) < 1e-6


def test_in_the_columns_as_they_are_it_goes_wrong(monkeypatch):
    """The control: without other columns the search fails, or the answer is off."""
    X = columns("timestamp")
    monkeypatch.setattr(GLM, "worked", None)
    with pytest.raises(orn.CurvatureError):
        orn.measure(orn.glm(X, response(X), noise_scale=1.0, prior_precision=0.0))


def standard_fit(X, y):
    """Mean and sd of the predictors of the first rows, from standardised columns by QR."""
    standard = (X - X.mean(axis=0)) / X.std(axis=0)
    if relative(standard[:, 1], standard[:, 0]) < 1e-3:
        standard[:, 1] = (X[:, 1] - X[:, 0] - np.mean(X[:, 1] - X[:, 0])) * 1e6
    basis, _ = np.linalg.qr(np.column_stack([standard, np.ones(N)]))
    return basis[:5] @ (basis.T @ y), np.linalg.norm(basis[:5], axis=1)


@pytest.mark.parametrize("kind", ["timestamp", "scales", "close"])
def test_draws_predictions_and_verdict(kind, tmp_path):
    X = columns(kind)
    y = response(X)
    model = orn.glm(X, y, noise_scale=1.0, prior_precision=0.0)
    mode, covariance = exact_ridge(X, y, 0.0)
    sd = np.sqrt(np.diagonal(covariance))
    post = orn.sample(model, draws=500, seed=1, progress=False)
    error = SIGMAS / np.sqrt(1000.0)
    assert np.max(np.abs(post.mean - mode) / sd) < error
    assert np.max(np.abs(post.sd / sd - 1.0)) < error
    assert np.max(np.abs(post.draws.reshape(-1, model.dim).std(axis=0) / sd - 1.0)) < error
    laplace = orn.laplace(model, draws=500, seed=1)
    assert np.max(np.abs(laplace.mean - mode) / sd) < 1e-5
    assert np.max(np.abs(laplace.draws.mean(axis=(0, 1)) - mode) / sd) < error
    fit, width = standard_fit(X, y)
    for found in (post.predict(X[:5]), laplace.predict(X[:5])):
        assert np.max(np.abs(found.mean - fit) / width) < error
        assert np.max(np.abs(found.sd / width - 1.0)) < 2.0 * error
    assert post.names == model.names and post.check().level == "trusted"
    post.save(tmp_path / "far.orn")
    loaded = orn.load(tmp_path / "far.orn")
    assert np.array_equal(loaded.draws, post.draws)
    assert relative(loaded.mean, post.mean) < 1e-12
    assert relative(loaded.curvature.mode, post.curvature.mode) < 1e-12
    assert loaded.check(model).level == "trusted"


def test_a_measured_curvature_and_a_start_are_taken_over():
    X = columns("timestamp")
    model = orn.glm(X, response(X), prior_precision=0.0)
    curvature = orn.measure(model)
    options = {"draws": 50, "seed": 2, "progress": False}
    measured = orn.sample(model, curvature=curvature, **options)
    assert np.array_equal(measured.draws, orn.sample(model, **options).draws)
    started = orn.sample(model, init=curvature.mode, warmup=0, thin=1, **options)
    sd = np.sqrt(np.diagonal(curvature.posterior_covariance))
    assert np.max(np.abs(started.draws[:, 0] - curvature.mode) / sd) < 5.0


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    X = columns("timestamp")
    model = orn.glm(X, response(X), prior_precision=0.0)
    options = {"draws": 50, "seed": 2, "progress": False}
    whole = orn.sample(model, checkpoint=tmp_path, every=0.001, **options)
    again = orn.resume(tmp_path, model, progress=False)
    assert np.array_equal(again.draws, whole.draws)


def test_nuts_in_other_columns():
    X = columns("timestamp")
    y = response(X)
    mode, covariance = exact_ridge(X, y, 0.0)
    sd = np.sqrt(np.diagonal(covariance))
    model = orn.glm(X, y, noise_scale=1.0, prior_precision=0.0)
    post = orn.nuts(model, draws=300, chains=2, warmup=200, seed=0)
    assert np.max(np.abs(post.mean - mode) / sd) < SIGMAS / np.sqrt(200.0)
    assert np.max(np.abs(post.sd / sd - 1.0)) < SIGMAS / np.sqrt(200.0)


def test_columns_that_are_equal_stay_refused_by_name():
    X = columns("timestamp")
    X = np.column_stack([X, X[:, 1]])
    with pytest.raises(orn.CurvatureError, match="not positive definite") as caught:
        orn.measure(orn.glm(X, response(X), prior_precision=0.0))
    assert "x1" in str(caught.value) and "x2" in str(caught.value)
