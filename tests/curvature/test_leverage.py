"""C and K of minibatches drawn by leverage, against sums over all rows written out."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import ornstein as orn
from ornstein.curvature.derivatives import derivatives_of
from ornstein.curvature.leverage import by_leverage, factors, leverage


def rare_column(family, n_data=40, seed=0):
    """A column that is 1 in two rows, weights and an offset."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=n_data), np.arange(n_data) < 2])
    linear = X @ [0.8, -0.5] + rng.normal(size=n_data)
    y = linear if family == "gaussian" else (linear > 0).astype(int)
    settings = {"noise_scale": 0.9} if family == "gaussian" else {}
    return orn.glm(
        X,
        y,
        family,
        prior_precision=0.7,
        intercept=False,
        weights=rng.uniform(0.5, 1.5, n_data),
        offset=0.1 * rng.normal(size=n_data),
        **settings,
    )


def by_hand(model):
    """The same density as an `orn.Model`, which automatic differentiation looks after."""
    rows = {
        "x": model.features,
        "y": model.response,
        **{k: model.data[k] for k in ("weight", "offset")},
    }
    gaussian = model.likelihood.family == "gaussian"

    def likelihood(theta, row):
        predictor = row["x"] @ theta + row["offset"]
        if gaussian:
            return -0.5 * row["weight"] * ((row["y"] - predictor) / 0.9) ** 2
        return row["weight"] * (row["y"] * predictor - jnp.logaddexp(0.0, predictor))

    return orn.Model(likelihood, rows, lambda t: -0.35 * jnp.sum(t**2), init=np.zeros(2))


def slopes_and_hessians(model, theta):
    X, y = model.features, model.response
    weight, offset = model.data["weight"], model.data["offset"]
    predictor = X @ theta + offset
    if model.likelihood.family == "gaussian":
        first, second = (predictor - y) / 0.81, np.full(len(y), 1.0 / 0.81)
    else:
        mean = 1.0 / (1.0 + np.exp(-predictor))
        first, second = mean - y, mean * (1.0 - mean)
    return X * (weight * first)[:, None], np.einsum("n,ni,nj->nij", weight * second, X, X)


@pytest.mark.parametrize("kind", ["closed form", "autodiff"])
@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_noise_and_response_equal_their_sums(family, kind):
    glm = rare_column(family)
    model = glm if kind == "closed form" else by_hand(glm)
    curvature = orn.measure(model, scheme="leverage")
    chance, count = curvature.probabilities, model.n_data
    slopes, hessians = slopes_and_hessians(glm, curvature.mode)
    mean = slopes.mean(axis=0)
    assert np.linalg.norm(mean) > 1e-3  # the prior pulls
    wanted = np.einsum("n,ni,nj->ij", 1.0 / (count**2 * chance), slopes, slopes)
    assert curvature.noise == pytest.approx(wanted - np.outer(mean, mean), rel=1e-9, abs=1e-12)
    spread = np.array([[0.5, 0.1], [0.1, 0.8]])
    whole = hessians.mean(axis=0)
    wanted = np.einsum("n,nij,jk,nkl->il", 1.0 / (count**2 * chance), hessians, spread, hessians)
    response = curvature.noise_response(spread)
    assert response == pytest.approx(wanted - whole @ spread @ whole, rel=1e-9, abs=1e-12)
    assert curvature.hessian == pytest.approx(whole + 0.7 / count * np.eye(2), rel=1e-9)


def test_equal_probabilities_give_the_curvature_of_equal_rows():
    model = rare_column("bernoulli")
    alike = orn.measure(model)
    drawn = by_leverage(model, alike, np.full(model.n_data, 1.0 / model.n_data))
    spread = np.eye(2)
    assert drawn.noise == pytest.approx(alike.noise, rel=1e-12)
    assert drawn.noise_response(spread) == pytest.approx(alike.noise_response(spread), rel=1e-12)


def test_probabilities_know_which_rows_decide():
    model = rare_column("gaussian", n_data=400)
    chance = leverage(model, orn.measure(model))
    assert chance.sum() == pytest.approx(1.0) and chance.min() >= 0.5 / 400
    # Two rows decide one of two parameters: about half of what leverage has to give is theirs.
    assert 0.15 < chance[:2].sum() < 0.35
    assert np.array_equal(chance, leverage(model, orn.measure(model)))


def test_a_reweighted_row_counts_as_often_as_it_is_told():
    glm = rare_column("bernoulli")
    weights = np.arange(1.0, 41.0)
    theta = np.array([0.3, -0.2])
    slopes, _ = slopes_and_hessians(glm, theta)
    for model in (glm, by_hand(glm)):
        again = model.reweighted(weights)
        gradients = np.concatenate(list(derivatives_of(again).example_gradients(theta)))
        assert gradients == pytest.approx(weights[:, None] * slopes, rel=1e-9, abs=1e-12)


def test_curvature_and_scheme_must_belong_together():
    model = rare_column("gaussian")
    alike, drawn = orn.measure(model), orn.measure(model, scheme="leverage")
    with pytest.raises(
        orn.InputError, match=r"rows drawn alike.*measure\(model, scheme='leverage'"
    ):
        orn.ConstantSGD("full").tune(alike, 4, "leverage")
    with pytest.raises(orn.InputError, match="rows drawn by leverage, the scheme is 'replacement'"):
        orn.ConstantSGD("full").tune(drawn, 4)
    dynamics = orn.ConstantSGD("full").tune(drawn, 4, "leverage")
    with pytest.raises(orn.InputError, match="rows drawn alike"):
        dynamics.predict(alike)
    assert dynamics.predict(drawn).stable
    assert factors(np.full(4, 0.25)) == pytest.approx(np.ones(4))
