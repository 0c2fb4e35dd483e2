"""Estimators whose rows belong to groups: the mixed model of `orn.glmm`, and its predictions."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the estimators need scikit-learn")
from scipy.special import expit

import ornstein as orn
from ornstein.errors import InputError
from ornstein.interfaces.sklearn.fitting import Rows, ordered_rows, whole_counts

# Laplace's approximation of few groups, whose verdict is not the matter here
pytestmark = pytest.mark.filterwarnings("ignore::ornstein.TrustWarning")
FAST = {"sampler": "laplace", "draws": 200, "chains": 2}


def rows(groups=60, size=6, seed=0):
    """Columns, a linear predictor in which groups differ by a sd of 1.5, labels and effects."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(groups), size)
    X = rng.normal(size=(codes.size, 2))
    effects = 1.5 * rng.normal(size=groups)
    return X, 1.0 + X @ [0.5, -0.5] + effects[codes], np.char.add("g", codes.astype(str)), effects


@pytest.mark.slow
def test_the_regressor_is_the_mixed_model():
    X, signal, labels, effects = rows()
    y = signal + 0.5 * np.random.default_rng(1).normal(size=len(X))
    fitted = orn.BayesianRegressor(**FAST).fit(X, y, groups=labels)
    model = orn.glmm(X, y, labels)
    mode = model.layout.unflatten(model.init)
    draws = fitted.posterior_.draws
    error = draws.reshape(-1, model.dim).std(axis=0) / np.sqrt(draws.size / model.dim)
    assert np.all(np.abs(fitted.posterior_.mean - model.init) < 4.5 * error)
    assert [*fitted.coef_, fitted.intercept_] == pytest.approx(mode["coef"], abs=0.1)
    assert fitted.noise_scale_ == pytest.approx(0.5, abs=0.1)
    assert sorted(fitted.groups_) == sorted(set(labels))
    average, sd = fitted.predict(X, return_std=True)
    assert average == pytest.approx(X @ fitted.coef_ + fitted.intercept_)
    assert np.all(sd > fitted.noise_scale_)
    known = fitted.predict(X, groups=labels)
    moved = (known - average)[::6]
    assert np.corrcoef(moved, effects)[0, 1] > 0.95
    assert np.mean((y - known) ** 2) < 0.3 * np.mean((y - average) ** 2)
    assert fitted.sample_posterior(10)["coef"].shape == (10, 2)
    shuffled = np.random.default_rng(2).permutation(len(X))
    again = orn.BayesianRegressor(**FAST).fit(X[shuffled], y[shuffled], groups=labels[shuffled])
    assert np.array_equal(again.posterior_.draws, draws)
    loaded = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(loaded.predict(X), average)
    with pytest.raises(InputError, match="a saved file does not hold"):
        loaded.predict(X, groups=labels)


@pytest.mark.slow
def test_classes_and_counts_have_groups_too():
    X, signal, labels, effects = rows(groups=150)
    rng = np.random.default_rng(3)
    y = np.where(rng.random(len(X)) < expit(signal), "yes", "no")
    fitted = orn.BayesianClassifier(**FAST).fit(X, y, groups=labels)
    chances, sd = fitted.predict_proba(X, return_std=True, groups=labels)
    assert chances.shape == sd.shape == (len(X), 2)
    assert chances.sum(axis=1) == pytest.approx(np.ones(len(X)))
    assert np.mean(fitted.predict(X, groups=labels) == y) > np.mean(fitted.predict(X) == y) + 0.05
    assert fitted.coef_.shape == (1, 2) and fitted.intercept_.shape == (1,)
    counts = rng.poisson(np.exp(0.3 * signal))
    fitted = orn.BayesianPoissonRegressor(1.0, **FAST).fit(X, counts, groups=labels)
    moved = np.log(fitted.predict(X, groups=labels) / fitted.predict(X))[::6]
    assert np.corrcoef(moved, effects)[0, 1] > 0.6
    assert fitted.coef_ == pytest.approx([0.15, -0.15], abs=0.1)


def test_what_groups_do_not_take_is_a_sentence():
    X, signal, labels, _ = rows(groups=10)
    regressor = orn.BayesianRegressor(**FAST)
    with pytest.raises(InputError, match="X has 60 rows but groups has 59"):
        regressor.fit(X, signal, groups=labels[1:])
    with pytest.raises(InputError, match="noise_scale must be 'infer'"):
        orn.BayesianRegressor(noise_scale=1.0).fit(X, signal, groups=labels)
    with pytest.raises(InputError, match="3 classes; with groups there may be only two"):
        orn.BayesianClassifier().fit(X, np.arange(60) % 3, groups=labels)


def test_weights_move_with_their_rows_and_groups():
    """Whole ones are spelled out; those of zero are left out; others stay what they are."""
    X, signal, labels, _ = rows(groups=10)
    whole = np.arange(60) % 3
    places = np.repeat(np.arange(60), whole)
    spelled = ordered_rows(X[places], signal[places], None, labels[places])
    weighted = ordered_rows(X, signal, whole.astype(float), labels)
    assert np.array_equal(np.sort(spelled.y), np.sort(weighted.y)) and weighted.weights is None
    parts = ordered_rows(X, signal, whole / 4.0, labels)
    known = {value: (w, label) for value, w, label in zip(signal, whole / 4.0, labels, strict=True)}
    found = zip(parts.y, parts.weights, parts.groups, strict=True)
    assert all(known[value] == (w, label) for value, w, label in found)
    assert len(parts.y) == np.sum(whole > 0)
    rates = whole_counts(Rows(X, np.floor(signal) + 0.25, None, labels))
    assert rates.groups.tolist() == [*labels, *labels]
    assert rates.weights.tolist() == [0.75] * 60 + [0.25] * 60


@pytest.mark.slow
def test_weights_are_those_of_the_mixed_model():
    X, signal, labels, _ = rows()
    rng = np.random.default_rng(4)
    y, weights = signal + rng.normal(size=len(X)), rng.uniform(0.2, 1.8, len(X))
    fitted = orn.BayesianRegressor(**FAST).fit(X, y, weights, groups=labels)
    model = orn.glmm(X, y, labels, weights=weights)
    draws = fitted.posterior_.draws
    error = draws.reshape(-1, model.dim).std(axis=0) / np.sqrt(draws.size / model.dim)
    assert np.all(np.abs(fitted.posterior_.mean - model.init) < 4.5 * error)


@pytest.mark.slow
def test_unknown_groups_are_a_sentence():
    X, signal, labels, _ = rows(groups=10)
    plain = orn.BayesianRegressor(**FAST).fit(X, signal)
    with pytest.raises(InputError, match="the fit has no groups"):
        plain.predict(X, groups=labels)
    grouped = orn.BayesianRegressor(**FAST).fit(X, signal + X[:, 0] ** 2, groups=labels)
    with pytest.raises(InputError, match="the fit has no group 'z'"):
        grouped.predict(X[:1], groups=["z"])
