"""Cases that verdicts have been wrong about, each by its name: right draws of posteriors that are
no Gaussians are trusted, and the same draws made too wide or narrow are not.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.datasets
from adversaries import CHANGES, posterior_of
from quadrature import on_a_line, on_a_plane
from suite_densities import draws_of_orthogonal, ending, heavy, kinked, orthogonal
from suite_regressions import draws_of_separated, separated_with_heavy_prior

import ornstein as orn

COUNT = 4000


def t_priors():
    """Weak data: the prior's tails are the posterior's."""
    given = dict(size=4, seed=3, degrees=3.0, scale=0.7)
    return orthogonal(heavy, **given), draws_of_orthogonal(heavy, **given)


def lasso():
    given = dict(size=4, seed=5, left=2.0, right=2.0)
    return orthogonal(kinked, **given), draws_of_orthogonal(kinked, **given)


def edge_at_two_sds():
    given = dict(size=3, seed=6, below=2.0)
    return orthogonal(ending, **given), draws_of_orthogonal(ending, **given)


def separated_logistic():
    given = dict(rows=40, degrees=4.0, scale=2.5)
    return separated_with_heavy_prior(**given), draws_of_separated(**given)


def _weibull_row(t, row, h):
    """log λ and log k; a time that is censored has only survived."""
    rise = jnp.exp(t[1]) * (jnp.log(row["time"]) - t[0])
    hazard = t[1] - t[0] + (jnp.exp(t[1]) - 1.0) * (jnp.log(row["time"]) - t[0])
    return row["seen"] * hazard - jnp.exp(rise)


def censored_weibull():
    rng = np.random.default_rng(0)
    times, limit = 2.0 * rng.weibull(1.5, 15), 1.5
    data = {"time": np.minimum(times, limit), "seen": (times < limit).astype(float)}
    model = orn.Model(_weibull_row, data, lambda t, h: -0.5 * t @ t, init=np.array([0.5, 0.1]))

    def log_density(t):
        scale, shape = t[:, :1], t[:, 1:]
        along = np.log(data["time"]) - scale
        hazard = shape - scale + (np.exp(shape) - 1.0) * along
        fit = data["seen"] * hazard - np.exp(np.minimum(np.exp(shape) * along, 600.0))
        return fit.sum(axis=1) - 0.5 * np.sum(t**2, axis=1)

    return model, on_a_plane(log_density, np.array([0.5, 0.1]), COUNT, rng)


def twelve_rows_with_inferred_noise():
    """Given σ the mean is normal; σ by quadrature."""
    rng = np.random.default_rng(1)
    y = 0.5 + rng.normal(size=12)
    ones = np.ones((12, 1))
    model = orn.glm(ones, y, prior_precision=1.0, intercept=False)

    def log_density(log_scale):
        noise = np.exp(2.0 * log_scale)
        precision = 12.0 / noise + 1.0
        best = y.sum() / noise / precision
        fit = -12.0 * log_scale - 0.5 * (y @ y) / noise
        return fit - 0.5 * np.log(precision) + 0.5 * precision * best**2

    log_scale = on_a_line(log_density, -3.0, 5.0, COUNT, rng)
    noise = np.exp(2.0 * log_scale)
    precision = 12.0 / noise + 1.0
    mean = y.sum() / noise / precision + rng.normal(size=COUNT) / np.sqrt(precision)
    return model, np.column_stack([mean, log_scale])


EXACT = {
    case.__name__: case
    for case in (
        t_priors,
        lasso,
        edge_at_two_sds,
        separated_logistic,
        censored_weibull,
        twelve_rows_with_inferred_noise,
    )
}
QUICK = {"lasso", "edge_at_two_sds", "twelve_rows_with_inferred_noise"}  # the others are slow


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in EXACT],
)
def test_right_draws_are_trusted_and_wrong_ones_are_not(name):
    model, reference = EXACT[name]()
    draws = reference[np.random.default_rng(0).permutation(len(reference))[:COUNT]]
    right = posterior_of(model, draws).check()
    assert right.level == "trusted", right.explain()
    for change in ("too wide", "too narrow"):
        wrong = posterior_of(model, CHANGES[change](draws)).check()
        assert wrong.level == "not trusted", (change, wrong.explain())


def test_a_quadratic_in_place_of_a_lasso_is_not_trusted():
    """The regression without its prior: least squares, at which one probe sees no difference."""
    model, _ = lasso()
    x, y = model.data["x"], model.data["y"]
    sd = 1.0 / np.sqrt(len(y))
    best = x.T @ y / len(y)
    draws = best + sd * np.random.default_rng(0).normal(size=(COUNT, 4))
    assert posterior_of(model, draws).check().level == "not trusted"


def softmax_on_150_rows():
    x, y = sklearn.datasets.load_iris(return_X_y=True)
    return orn.glm((x - x.mean(axis=0)) / x.std(axis=0), y, "categorical")


def breast_cancer():
    x, y = sklearn.datasets.load_breast_cancer(return_X_y=True)
    return orn.glm((x - x.mean(axis=0)) / x.std(axis=0), y, "bernoulli")


@pytest.mark.slow
@pytest.mark.parametrize("make", [softmax_on_150_rows, breast_cancer])
def test_nuts_is_trusted(make):
    model = make()
    post = orn.nuts(model, draws=1000, warmup=500, dense_mass=True, seed=1)
    found = post.check()
    assert found.level == "trusted", found.explain()
    wide = posterior_of(model, CHANGES["too wide"](post.draws.reshape(-1, model.dim)))
    assert wide.check().level == "not trusted"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t_priors", "separated_logistic", "censored_weibull"])
def test_nuts_is_trusted_where_the_posterior_is_no_gaussian(name):
    model, _ = EXACT[name]()
    found = orn.nuts(model, draws=2000, warmup=500, dense_mass=True, seed=1).check()
    assert found.level == "trusted", found.explain()
