"""Mixed models against published fits, dense integrals and likelihoods written down another way."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.special
import scipy.stats
from helpers import data_directory

import ornstein as orn
from ornstein.compute.precision import width
from ornstein.curvature.derivatives import derivatives_of
from ornstein.errors import CurvatureError, InputError
from ornstein.model.loss import Problem
from ornstein.model.mixed.checked import glmm as unsettled
from ornstein.model.mixed.covariance import Covariance
from ornstein.model.mixed.density import RowDensity
from ornstein.rows.ragged import Buckets


@pytest.fixture(scope="module")
def sleepstudy():
    return pd.read_csv(data_directory() / "mixed" / "sleepstudy.csv.gz")


@pytest.fixture(scope="module")
def sleep_model(sleepstudy):
    Z = pd.DataFrame({"intercept": 1.0, "Days": sleepstudy.Days.astype(float)})
    return orn.glmm(sleepstudy[["Days"]], sleepstudy.Reaction, sleepstudy.Subject, Z, priors="flat")


def test_sleepstudy_equals_the_published_fit(sleep_model):
    params = sleep_model.layout.unflatten(sleep_model.init)
    relative = sleep_model.covariance.matrix(params["factor"]) / np.exp(params["log_scale"])
    assert np.round(params["coef"], 4).tolist() == [10.4673, 251.4051]
    assert np.round(relative[np.tril_indices(2)], 4).tolist() == [0.9292, 0.0182, 0.2226]


def test_the_gaussian_marginal_is_the_density_of_the_rows(sleepstudy, sleep_model):
    """Away from the mode too, by scipy's multivariate normal with the whole covariance."""
    theta = sleep_model.init + np.array([1.0, -9.0, 0.2, 0.4, -0.3, 0.1])
    params = sleep_model.layout.unflatten(theta)
    factor = sleep_model.covariance.matrix(params["factor"])
    total = 0.0
    for _, rows in sleepstudy.groupby("Subject"):
        z = np.column_stack([np.ones(len(rows)), rows.Days])
        mean = z @ params["coef"][::-1]
        noise = np.exp(2.0 * params["log_scale"]) * np.eye(len(rows))
        covariance = z @ factor @ factor.T @ z.T + noise
        total += scipy.stats.multivariate_normal(mean, covariance).logpdf(rows.Reaction)
    found = -sleep_model.n_data * derivatives_of(sleep_model).value(theta)
    assert found == pytest.approx(total, rel=1e-12)


def test_contraception_has_the_published_deviance():
    data = pd.read_csv(data_directory() / "mixed" / "Contraception.csv.gz")
    children = data.livch.astype(str)
    X = pd.DataFrame({"age": data.age, "age2": data.age**2, "urban": (data.urban == "Y") * 1.0})
    X = X.assign(**{level: (children == level) * 1.0 for level in ("1", "2", "3+")})
    groups = data.urban + ":" + data.district.astype(str)
    model = orn.glmm(X, data.use, groups, family="bernoulli", priors="flat", points=7)
    deviance = 2.0 * model.n_data * derivatives_of(model).value(model.init)
    assert deviance == pytest.approx(2360.876, abs=5e-4)
    assert model.quadrature_error < 0.01


def log_likelihoods(model, theta):
    """Of each group, in their order."""
    with width("float64"):
        problem = Problem(None, model.hyperparameters, np.asarray(1.0), theta, theta)
        rows = model.rows(0, model.n_data)
        return np.asarray(model.loss.log_likelihoods(problem, np.zeros(model.dim), rows))


def simulated(family, rng, groups=6, rows=7):
    """Labels, one column, and a response in which groups differ by a sd of 0.8."""
    labels = np.repeat(np.arange(groups), rows)
    x = rng.normal(size=(groups * rows, 1))
    u = 0.3 + 0.5 * x[:, 0] + 0.8 * rng.normal(size=groups)[labels]
    mean = np.exp(u)
    probability = 1.0 / (1.0 + np.exp(-u))
    draw = {
        "bernoulli": lambda: rng.random(u.size) < probability,
        "binomial": lambda: np.column_stack([rng.binomial(5, probability), np.full(u.size, 5)]),
        "poisson": lambda: rng.poisson(mean),
        "negative-binomial": lambda: rng.poisson(mean * rng.gamma(2.0, 0.5, u.size)),
        "gamma": lambda: rng.gamma(2.0, mean / 2.0),
        "ordinal": lambda: np.digitize(u + rng.logistic(size=u.size), [-0.5, 0.5, 1.5]),
    }
    return x, draw[family](), labels


FAMILIES = (
    ("bernoulli", "logit"),
    ("poisson", "log"),
    *(
        pytest.param(name, link, marks=pytest.mark.slow)
        for name, link in (
            ("binomial", "logit"),
            ("negative-binomial", "log"),
            ("gamma", "log"),
            ("ordinal", "logit"),
            ("bernoulli", "probit"),
            ("bernoulli", "cloglog"),
            ("binomial", "probit"),
            ("binomial", "cloglog"),
            ("ordinal", "probit"),
        )
    ),
)
CUMULATIVE = {
    "logit": scipy.special.expit,
    "probit": scipy.special.ndtr,
    "cloglog": lambda u: -np.expm1(-np.exp(u)),
}


def log_densities(family, link, u, y, params):
    """By SciPy, for many predictors at once."""
    cumulative = CUMULATIVE.get(link)
    if family == "bernoulli":
        return scipy.stats.bernoulli.logpmf(y, cumulative(u))
    if family == "binomial":
        return scipy.stats.binom.logpmf(y[0], y[1], cumulative(u))
    if family == "poisson":
        return scipy.stats.poisson.logpmf(y, np.exp(u))
    if family == "negative-binomial":
        size = np.exp(params["log_size"])
        return scipy.stats.nbinom.logpmf(y, size, size / (size + np.exp(u)))
    if family == "gamma":
        shape = np.exp(params["log_shape"])
        return scipy.stats.gamma.logpdf(y, shape, scale=np.exp(u) / shape)
    steps = np.exp(params["cutpoints"][1:])
    cuts = params["cutpoints"][0] + np.concatenate([[0.0], np.cumsum(steps)])
    edges = np.concatenate([[-np.inf], cuts, [np.inf]])
    level = int(y)
    with np.errstate(divide="ignore"):  # far out, where the effect's own density is nothing
        return np.log(cumulative(edges[level + 1] - u) - cumulative(edges[level] - u))


@pytest.mark.parametrize(("family", "link"), FAMILIES)
def test_quadrature_equals_a_dense_integral(family, link):
    """25 points, the sd of the effect 1: to 1e-8 for each group."""
    x, y, labels = simulated(family, np.random.default_rng(1))
    own = {"points": 25, "intercept": family != "ordinal", "link": link}
    model = unsettled(x, y, labels, None, family, **own)
    theta = model.init.copy()
    theta[model.component_places()] = 0.0
    params = model.layout.unflatten(theta)
    grid = np.linspace(-9.0, 9.0, 6001)
    found = log_likelihoods(model, theta)
    for place, label in enumerate(model.levels):
        total = scipy.stats.norm.logpdf(grid)
        for row in np.flatnonzero(labels == label):
            columns = np.append(x[row], 1.0)[: len(params["coef"])]
            total = total + log_densities(
                family, link, columns @ params["coef"] + grid, y[row], params
            )
        dense = np.log(np.sum(np.exp(total)) * (grid[1] - grid[0]))
        assert found[place] == pytest.approx(dense, abs=1e-8)


@pytest.mark.slow
def test_two_effects_by_a_product_grid_equal_a_dense_integral():
    rng = np.random.default_rng(2)
    x, y, labels = simulated("poisson", rng)
    Z = np.column_stack([np.ones(len(x)), x])
    model = unsettled(x, y, labels, Z, "poisson", points=15)
    theta = model.init + 0.1
    params = model.layout.unflatten(theta)
    factor = model.covariance.matrix(params["factor"])
    axis = np.linspace(-7.0, 7.0, 281)
    z = np.stack(np.meshgrid(axis, axis, indexing="ij"))
    b = np.einsum("ij,jkl->ikl", factor, z)
    values = log_likelihoods(model, theta).sum()
    total = 0.0
    for label in model.levels:
        logs = scipy.stats.norm.logpdf(z).sum(axis=0)
        for row in np.flatnonzero(labels == label):
            u = np.append(x[row], 1.0) @ params["coef"] + b[0] + x[row, 0] * b[1]
            logs = logs + scipy.stats.poisson.logpmf(y[row], np.exp(u))
        total += np.log(np.sum(np.exp(logs)) * (axis[1] - axis[0]) ** 2)
    assert values == pytest.approx(total, abs=1e-6)


def test_derivatives_are_those_of_the_value():
    """With few points, where the nodes' own movement counts."""
    x, y, labels = simulated("bernoulli", np.random.default_rng(3))
    model = unsettled(x, y, labels, None, "bernoulli", points=1)
    derivatives, theta = derivatives_of(model), model.init + 0.2
    steps = 1e-4 * np.eye(model.dim)
    slope = [
        (derivatives.value(theta + step) - derivatives.value(theta - step)) / 2e-4 for step in steps
    ]
    assert derivatives.value_and_gradient(theta)[1] == pytest.approx(slope, abs=1e-7)
    curved = [
        (
            derivatives.value_and_gradient(theta + s)[1]
            - derivatives.value_and_gradient(theta - s)[1]
        )
        / 2e-4
        for s in steps
    ]
    assert derivatives.hessian(theta) == pytest.approx(np.array(curved), abs=1e-6)


@pytest.mark.slow
def test_far_nodes_are_measured():
    """A Poisson zero and a wide spread of effects: nine points are off by more than 1e-4."""
    labels = np.repeat(np.arange(4), 2)
    y = np.array([0, 0, 0, 1, 30, 40, 2, 0])
    model = unsettled(np.zeros((8, 1)), y, labels, None, "poisson", points=9)
    theta = model.init.copy()
    theta[model.component_places()] = np.log(4.0)
    coarse, exact = (log_likelihoods(model.with_points(n), theta).sum() for n in (9, 25))
    assert 1e-4 < abs(coarse - exact) < 1.0


def test_the_prior_of_a_covariance_integrates_to_one():
    covariance = Covariance(("a", "b"), (2,))
    grid, angles = np.linspace(-9.0, 7.0, 81), np.linspace(-16.0, 16.0, 161)
    a, t, c = np.meshgrid(grid, angles, grid, indexing="ij")
    points = np.stack([a, np.sinh(t), c], axis=-1).reshape(-1, 3)
    with width("float64"):
        density = jax.vmap(lambda p: covariance.log_prior(p, np.ones(2) * 1.3, 3.0, 2.0))
        logs = np.asarray(density(points)).reshape(a.shape)
    cells = (grid[1] - grid[0]) ** 2 * (angles[1] - angles[0])
    total = np.sum(np.exp(logs) * np.cosh(t)) * cells
    assert total == pytest.approx(1.0, abs=0.01)


def test_slopes_by_hand_are_those_of_the_density():
    with width("float64"):
        for family, y in (("bernoulli", 1.0), ("binomial", np.array([2.0, 5.0])), ("poisson", 3.0)):
            density = RowDensity(family)
            slope, curved = density.slopes(0.4, y, {})
            first = jax.grad(density.__call__)
            assert slope == pytest.approx(float(first(0.4, y, {})), rel=1e-12)
            assert curved == pytest.approx(-float(jax.grad(first)(0.4, y, {})), rel=1e-12)


def test_buckets_stay_below_the_bound():
    rng = np.random.default_rng(4)
    for counts in (
        rng.integers(1, 101, 20_000),
        rng.geometric(0.1, 20_000),
        np.repeat([1, 5000], [90_000, 10]),
    ):
        buckets = Buckets.of(np.sort(counts))
        assert counts.sum() <= buckets.padded < 1.5 * counts.sum()


def test_degenerate_groups_are_sentences():
    rng = np.random.default_rng(5)
    x, y, labels = rng.normal(size=(20, 1)), rng.normal(size=20), np.repeat(np.arange(5), 4)
    ones = np.ones((20, 1))
    with pytest.raises(InputError, match="one group only"):
        orn.glmm(x, y, np.zeros(20))
    for Z in (None, 2.0 * ones):
        with pytest.raises(InputError, match="one row only"):
            orn.glmm(x, y, np.arange(20), Z)
    with pytest.raises(InputError, match="2 missing labels, first in row 3"):
        orn.glmm(x, y, np.where(np.isin(np.arange(20), [3, 7]), np.nan, labels))
    with pytest.raises(InputError, match="collinear"):
        orn.glmm(x, y, labels, np.hstack([ones, 2.0 * ones]))
    with pytest.raises(InputError, match="zero in every row"):
        orn.glmm(x, y, labels, np.hstack([ones, 0.0 * ones]))
    with pytest.raises(InputError, match="y is constant"):
        orn.glmm(x, ones[:, 0], labels)


def test_a_component_that_runs_to_zero_is_named():
    """Groups that all have the same mean: maximum likelihood is at the edge."""
    labels = np.repeat(np.arange(10), 4)
    y = np.tile([-1.0, 1.0, -0.5, 0.5], 10)
    x = np.random.default_rng(6).normal(size=(40, 1)) * 1e-3
    with pytest.raises(CurvatureError, match="'intercept' among groups tends to zero"):
        orn.glmm(x, y, labels, priors="flat")
    model = orn.glmm(x, y, labels)
    assert model.constrained(model.init)["sd(intercept)"] < 0.5
