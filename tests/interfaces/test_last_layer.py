"""Last layers from arrays: the prior's precision, the temperature, the draws, files, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.special
from helpers import laplace_instead
from scipy.stats import multivariate_normal

import ornstein as orn
from ornstein.interfaces.networks.evidence import by_evidence
from ornstein.interfaces.networks.temperature import (
    Classes,
    Numbers,
    best_temperature,
    calibration_error,
)
from ornstein.interfaces.networks.work import task_of

QUICK = {"draws": 100, "chains": 4, "progress": False}


def labelled(rows, seed, columns=4, classes=3, sharp=1.5):
    """Features as a hidden layer makes them, and labels that they explain in part."""
    weights = sharp * np.random.default_rng(99).normal(size=(columns, classes))
    rng = np.random.default_rng(seed)
    features = np.tanh(rng.normal(size=(rows, columns)))
    return features, np.argmax(features @ weights + rng.gumbel(size=(rows, classes)), axis=1)


@pytest.fixture(scope="module")
def fitted():
    features, y = labelled(150, 0)
    rows = labelled(400, 1)
    return orn.last_layer(features, y, rows, progress=False)


@pytest.fixture
def no_chains(monkeypatch):
    monkeypatch.setattr("ornstein.interfaces.networks.last_layer.sample", laplace_instead)


def test_the_evidence_is_that_of_a_linear_model_where_it_is_known():
    """With known noise the evidence is a normal density of y: the search finds its maximum."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    y = X @ (0.5 * rng.normal(size=5)) + rng.normal(size=60)
    model = orn.glm(X, y, prior_precision=1.0, noise_scale=1.0, intercept=False)
    found = by_evidence(model, lambda value: model.with_hyperparameters(prior_precision=value), 1.0)

    def known(precision):
        return multivariate_normal(np.zeros(60), np.eye(60) + X @ X.T / precision).logpdf(y)

    assert found.log_evidence == pytest.approx(known(found.precision), abs=1e-6)
    grid = found.precision * np.exp(np.linspace(-1.0, 1.0, 41))
    assert max(map(known, grid)) - found.log_evidence < 0.01
    assert not found.at_the_end


def test_the_mode_is_where_the_slope_vanishes(fitted):
    model, mode = fitted.model, fitted.curvature.mode
    slope = model.scaled_prior(mode)[1] * model.n_data
    logits = model.features @ mode.reshape(-1)[:12].reshape(4, 3) + mode[12:]
    wrong = scipy.special.softmax(logits, axis=1) - np.eye(3)[model.response]
    slope = slope + np.concatenate([(model.features.T @ wrong).reshape(-1), wrong.sum(axis=0)])
    assert np.max(np.abs(slope)) < 1e-3


def test_one_logit_for_each_class_and_a_prior_on_the_biases(fitted):
    assert fitted.model.layout.shapes == ((4, 3), (3,))
    hyper = fitted.model.hyperparameters
    assert hyper["prior_precision"] > 0 and hyper["intercept_precision"] > 0
    assert fitted.settings["prior_chosen"] == "evidence"


def test_draws_are_trusted_and_were_planned(fitted):
    assert fitted.check().level == "trusted"
    assert fitted.plan.chosen in {attempt.way for attempt in fitted.history}


def test_predictions_are_the_mean_over_draws_at_the_temperature(fitted):
    rows = labelled(7, 5)[0]
    flat = fitted.draws.reshape(-1, 15)
    logits = rows @ flat[:, :12].reshape(-1, 4, 3) + flat[:, None, 12:]
    wanted = scipy.special.softmax(logits / fitted.temperature, axis=-1)
    found = fitted.predict(rows, draws=None)
    np.testing.assert_allclose(found.mean, wanted.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(found.draws, wanted, rtol=1e-9)
    assert fitted.temperature != 1.0


def test_the_temperature_is_the_best_on_the_held_out_rows(fitted):
    rows, y = labelled(400, 1)

    def loss(temperature):
        at = replace(fitted, temperature=temperature).predict(rows, draws=None)
        return -np.mean(np.log(at.mean[np.arange(400), y]))

    best = loss(fitted.temperature)
    assert fitted.calibration["last layer at its temperature"].loss == pytest.approx(best, 1e-9)
    assert best <= min(loss(0.97 * fitted.temperature), loss(1.03 * fitted.temperature))


def test_plain_temperature_scaling_is_always_beside_it(fitted):
    said = str(fitted.calibration)
    assert "temperature scaling" in said and "400 held-out rows" in said
    scores = dict(fitted.calibration.scores)
    assert scores["temperature scaling"].loss <= scores["mode"].loss
    assert said in repr(fitted)


def test_without_held_out_rows_calibration_is_unchecked(no_chains):
    features, y = labelled(60, 3)
    post = orn.last_layer(features, y, prior_precision=1.0, **QUICK)
    assert post.temperature == 1.0 and not post.calibration.checked
    assert "Calibration is unchecked" in repr(post)
    assert post.settings["prior_chosen"] == "given"


def test_what_it_prints(no_chains, capsys):
    features, y = labelled(60, 3)
    orn.last_layer(features, y, prior_precision=1.0, draws=50)
    assert "ornstein: Calibration is unchecked" in capsys.readouterr().err


def test_a_file_keeps_the_temperature(fitted, tmp_path):
    back = orn.load(fitted.save(tmp_path / "layer.orn"))
    rows = labelled(5, 6)[0]
    assert isinstance(back, orn.LastLayerPosterior)
    assert back.temperature == fitted.temperature and back.calibration == fitted.calibration
    np.testing.assert_array_equal(back.predict(rows).mean, fitted.predict(rows).mean)
    with pytest.raises(orn.InputError, match="made from arrays of features"):
        back.predict(rows, net=object())


def test_a_regression_has_a_noise_scale_at_a_temperature(no_chains):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(120, 3))
    y = 50.0 + features @ [1.0, -2.0, 0.5] + rng.normal(size=120)
    new = rng.normal(size=(300, 3))
    outcomes = 50.0 + new @ [1.0, -2.0, 0.5] + 2.0 * rng.normal(size=300)
    post = orn.last_layer(features, y, (new, outcomes), **QUICK)
    assert post.temperature == pytest.approx(2.0, rel=0.15)
    found = post.predict(new, draws=None)
    scale = np.exp(post.draws[..., post.names.index("log_scale")]).mean()
    assert found.outcome.sd.mean() == pytest.approx(post.temperature * scale, rel=0.05)
    assert np.mean(np.abs(found.mean - outcomes)) < 2.0


def test_names_of_classes_are_the_labels(no_chains):
    features, codes = labelled(90, 4)
    names = np.array(["ant", "bee", "cat"])
    post = orn.last_layer(features, names[codes], prior_precision=1.0, **QUICK)
    assert post.names[0] == "x0[ant]" and list(post.model.classes) == list(names)


def test_a_head_is_compared_and_a_single_logit_is_two_classes(no_chains):
    features, codes = labelled(80, 4, classes=2)
    weights, bias = np.ones((4, 1)), np.zeros(1)
    rows = labelled(50, 5, classes=2)
    post = orn.last_layer(features, codes, rows, head=(weights, bias), prior_precision=1.0, **QUICK)
    assert post.model.likelihood.family == "bernoulli"
    logit = rows[0].sum(axis=1)
    wanted = np.mean(np.log1p(np.exp(np.where(rows[1] == 1, -logit, logit))))
    assert post.calibration["trained network"].loss == pytest.approx(wanted)
    assert post.predict(rows[0]).mean.shape == (50,)


def test_temperature_of_one_draw_is_plain_scaling():
    """Logits that were doubled are halved again."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20_000, 3))
    codes = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    assert best_temperature(Classes(2.0 * logits[None], codes)) == pytest.approx(2.0, rel=0.05)


def test_calibration_error_by_hand():
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.3, 0.7]])
    wanted = (abs(1 - 1.8) + abs(1 - 0.6) + abs(0 - 0.7)) / 4  # in bins 13, 9 and 10
    assert calibration_error(probabilities, np.array([0, 1, 0, 0])) == pytest.approx(wanted)


def test_intervals_of_numbers_by_hand():
    rng = np.random.default_rng(0)
    y = rng.normal(size=50_000)
    known = Numbers(np.zeros((1, y.size)), np.ones(1), y)
    assert known.error(1.0) < 0.005
    assert known.error(0.5) == pytest.approx(0.9 - 0.589, abs=0.01)
    assert best_temperature(known) == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize(
    ("y", "outputs", "task"),
    [
        (np.array([0, 1, 2]), 0, "classification"),
        (np.array([0.0, 1.0]), 0, "regression"),
        (np.array([0.0, 1.0]), 1, "classification"),
        (np.array([0, 1]), 1, "classification"),
        (np.array([3, 7, 5]), 1, "regression"),
        (np.array([0.0, 1.0, 2.0]), 3, "classification"),
        (np.array(["a", "b"]), 0, "classification"),
    ],
)
def test_what_y_asks_for(y, outputs, task):
    assert task_of(y, "auto", outputs) == task


def test_two_values_that_are_no_codes_are_asked_about():
    with pytest.raises(orn.InputError, match=r"two values, -1 and 1.*write them as 0 and 1"):
        task_of(np.array([-1, 1, 1]), "auto", 1)
    assert task_of(np.array([-1, 1, 1]), "regression", 1) == "regression"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"features": np.zeros((30, 2, 2))}, "two axes"),
        ({"features": np.zeros((0, 4))}, "must be a dense matrix"),
        ({"features": np.zeros((30, 4))}, "all features are zero"),
        ({"features": np.full((30, 4), np.nan)}, "not finite"),
        ({"y": np.zeros(29, int)}, "30 rows but y has 29"),
        ({"y": np.zeros(30, int)}, "one class only"),
        ({"y": np.ones(30), "task": "regression"}, "y is constant"),
        ({"task": "ranking"}, "task must be one of"),
        ({"held_out": np.zeros((5, 4))}, "held_out must be a pair"),
        ({"held_out": (np.zeros((5, 3)), np.zeros(5))}, "3 features; the training rows have 4"),
        ({"held_out": (np.ones((5, 4)), np.zeros(4))}, "5 rows but 4 outcomes"),
        ({"head": (np.zeros((3, 3)), np.zeros(3))}, "the layer takes 3 features; there are 4"),
        ({"head": (np.zeros((4, 2)), np.zeros(2))}, "2 outputs and y 3 labels"),
        ({"head": (np.zeros((4, 2)), np.zeros(3))}, "the shapes are"),
        ({"prior_precision": -1.0}, "prior_precision must be a positive number"),
        ({"features": np.ones((30, 700))}, "above the limit of 2,000"),
    ],
)
def test_refusals(no_chains, change, words):
    features, y = labelled(30, 0)
    given = {"features": features, "y": y, **QUICK, **change}
    with pytest.raises(orn.InputError, match=words):
        orn.last_layer(**given)


def test_a_label_that_only_held_out_rows_have_is_refused(no_chains):
    features, y = labelled(60, 0)
    with pytest.raises(orn.InputError, match=r"the label \d+, which is not in the training rows"):
        orn.last_layer(features, y, (features, y + 7), prior_precision=1.0, **QUICK)


@pytest.mark.slow
def test_draws_are_those_of_a_long_run_of_nuts():
    features, y = labelled(200, 7, columns=6)
    post = orn.last_layer(features, y, draws=1000, progress=False)
    model = post.model
    long = orn.nuts(model, draws=5000, chains=4, seed=1, init=post.curvature.mode)
    sd = long.draws.std(axis=(0, 1))
    assert np.max(np.abs(post.draws.mean(axis=(0, 1)) - long.draws.mean(axis=(0, 1))) / sd) < 0.25
    ratio = post.draws.std(axis=(0, 1)) / sd
    assert ratio.min() > 0.8 and ratio.max() < 1.25
    assert abs(stein_of(post) - 1.0) < 0.05
    assert post.check().level != "not trusted"


def stein_of(post):
    """E[(θ − m)·∇(−log p)]/D, which is 1 for draws of the posterior."""
    from ornstein.verdict.density import Density

    flat = post.draws.reshape(-1, post.draws.shape[-1])[::4]
    _, slopes = Density(post.model).values_and_gradients(flat)
    return float(np.mean(np.sum((flat - post.mean) * slopes, axis=1)) / flat.shape[1])
