"""Averages of −log posterior and its derivatives over a Gaussian: against brute-force integrals,
and exact where the loss is a polynomial.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import logistic_data, regression_data, relative, spd

import ornstein as orn
from ornstein.curvature.derivatives import derivatives_of
from ornstein.curvature.expected import Expectation
from ornstein.curvature.quadrature import grid, paired_points, points_for
from ornstein.theory import Gaussian


def law_of(model, seed=0, spread=0.05):
    rng = np.random.default_rng(seed)
    return Gaussian(0.3 * rng.normal(size=model.dim), spread * spd(rng, model.dim))


def by_grid(model, law, count=24):
    """The three averages by a fine product rule in θ, for one or two parameters."""
    rule = grid(model.dim, count)
    points = law.mean + rule.places @ np.linalg.cholesky(law.covariance).T
    derivatives = derivatives_of(model)
    values, slopes = derivatives.values_and_gradients(points)
    prior_values, prior_slopes = model.scaled_priors(points)
    hessian = sum(
        weight * (derivatives.hessian(point) + model.scaled_prior_hessian(point))
        for weight, point in zip(rule.weights, points, strict=True)
    )
    return (
        model.n_data * (rule.weights @ (values + prior_values)),
        model.n_data * (rule.weights @ (slopes + prior_slopes)),
        model.n_data * hessian,
    )


def assert_same(found, wanted, tolerance):
    value, slope, hessian = wanted
    assert found.value == pytest.approx(value, rel=tolerance)
    assert relative(found.slope, slope) < tolerance
    assert relative(found.hessian, hessian) < tolerance


@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
def test_one_predictor_against_a_fine_grid(family):
    features, target = logistic_data(15, 2, seed=1)
    model = orn.glm(features, target, family, prior_precision=0.5, intercept=False)
    law = law_of(model)
    assert_same(Expectation(model).over(law), by_grid(model, law), 1e-6)


@pytest.mark.parametrize("sd", [0.5, 2.0, 8.0, 30.0])
def test_the_rule_of_a_predictor_is_fine_enough(sd):
    """The logistic slope against an integral by a million trapezoids."""
    t = np.linspace(-12, 12, 1_000_001)
    density = np.exp(-0.5 * t**2) / np.sqrt(2 * np.pi) * (t[1] - t[0])

    def curved(u):
        return 0.25 / np.cosh(u / 2.0) ** 2

    rule = points_for(1, sd)
    for centre in (0.0, 3.0):
        wanted = density @ curved(centre + sd * t)
        found = rule.weights @ curved(centre + sd * rule.places[:, 0])
        assert found == pytest.approx(wanted, rel=1e-7)


def test_mean_and_log_scale():
    """Two predictors: E[exp(−2s)(y − u)²] of normal u and s, in closed form."""
    features, target = regression_data(30, 1, seed=2)
    model = orn.glm(features, target, prior_precision=0.0, intercept=False)
    law = Gaussian([0.4, 0.1], [[0.05, 0.01], [0.01, 0.04]])
    x, shifted = features[:, 0], 0.4 - 2 * 0.01  # exp(−2s) shifts the mean of the coefficient
    factor = np.exp(-2 * 0.1 + 2 * 0.04)
    wanted = np.sum(0.5 * factor * ((target - x * shifted) ** 2 + x**2 * 0.05))
    wanted += 30 * (0.1 + 0.5 * np.log(2 * np.pi))
    assert Expectation(model).over(law).value == pytest.approx(wanted, rel=1e-8)
    slope = -np.sum(factor * x * (target - x * shifted))
    assert Expectation(model).over(law).slope[0] == pytest.approx(slope, rel=1e-8)


def test_many_predictors_against_draws():
    rng = np.random.default_rng(3)
    features = rng.normal(size=(30, 3))
    model = orn.glm(features, np.arange(30) % 4, "categorical", intercept=False)
    law = law_of(model, spread=0.1)
    points = rng.multivariate_normal(law.mean, law.covariance, size=6000)
    _, slopes = derivatives_of(model).values_and_gradients(points)
    slopes = model.n_data * (slopes + model.scaled_priors(points)[1])
    found = Expectation(model).over(law)
    error = slopes.std(axis=0) / np.sqrt(len(points))
    assert np.max(np.abs(found.slope - slopes.mean(axis=0)) / error) < 5.0
    # not those at the mean, which the draws tell from the averages
    still = model.n_data * (
        derivatives_of(model).value_and_gradient(law.mean)[1] + model.scaled_prior(law.mean)[1]
    )
    assert np.max(np.abs(still - slopes.mean(axis=0)) / error) > 8.0


def test_any_model_of_two_parameters_is_averaged_over_a_grid():
    def log_likelihood(theta, x):
        return -0.5 * (x - theta[0]) ** 2 * jnp.exp(theta[1]) + 0.5 * theta[1]

    model = orn.Model(
        log_likelihood,
        np.random.default_rng(0).normal(size=12),
        lambda theta: -jnp.sum(theta**2) - 0.1 * theta[0] ** 4,
        init=np.zeros(2),
    )
    law = law_of(model, spread=0.2)
    assert_same(Expectation(model).over(law), by_grid(model, law), 1e-6)


def test_points_are_exact_for_a_loss_of_the_third_degree():
    """Five parameters, no linear predictor known: E[U], E[∇U] and E[∇²U] in closed form."""
    rng = np.random.default_rng(5)
    matrix, tensor = spd(rng, 5), rng.normal(size=(5, 5, 5))
    tensor = sum(np.transpose(tensor, order) for order in ((0, 1, 2), (1, 2, 0), (2, 0, 1)))
    tensor = tensor + np.transpose(tensor, (0, 2, 1))

    def log_likelihood(theta, x):
        quadratic = 0.5 * theta @ matrix @ theta
        return -x * (quadratic + jnp.einsum("ijk,i,j,k", tensor, theta, theta, theta) / 6.0)

    model = orn.Model(log_likelihood, np.ones(3), init=np.zeros(5))
    law = law_of(model)
    found = Expectation(model).over(law)
    bent = np.einsum("ijk,k->ij", tensor, law.mean)
    slope = matrix @ law.mean + 0.5 * bent @ law.mean
    slope = slope + 0.5 * np.einsum("ijk,jk->i", tensor, law.covariance)
    assert relative(found.slope, 3.0 * slope) < 1e-10
    assert relative(found.hessian, 3.0 * (matrix + bent)) < 1e-10


def test_a_prior_that_is_not_normal_is_averaged():
    """A quartic prior beside a linear predictor: the regression's own way, and any model's."""
    features, target = logistic_data(15, 2, seed=1)
    regression = orn.glm(features, target, "bernoulli", prior_precision=0.5, intercept=False)

    def quartic(params, _):
        return -0.2 * jnp.sum(params["coef"] ** 4)

    model = regression.replace(loss=replace(regression.loss, log_prior=quartic))
    law = law_of(model)
    assert_same(Expectation(model).over(law), by_grid(model, law), 1e-6)


def test_paired_points_have_the_moments_of_standard_normals():
    rule = paired_points(7, 20)
    assert np.allclose(rule.weights @ rule.places, 0.0, atol=1e-12)
    assert np.allclose((rule.weights * rule.places.T) @ rule.places, np.eye(7), atol=1e-12)
