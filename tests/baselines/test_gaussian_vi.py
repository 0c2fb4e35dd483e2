"""Gaussian VI: exact where the posterior is Gaussian, at its optimum elsewhere, nearer to the
posterior than Laplace; refusals.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special
from helpers import logistic_data, regression_data, relative

import ornstein as orn
from ornstein.curvature.expected import Expectation
from ornstein.theory import Gaussian


def gaussian_posterior():
    features, target = regression_data(300, 4)
    model = orn.glm(features, target, noise_scale=0.7, prior_precision=2.0, intercept=False)
    covariance = np.linalg.inv(features.T @ features / 0.49 + 2.0 * np.eye(4))
    return model, Gaussian(covariance @ features.T @ target / 0.49, covariance)


def wide_logistic(n_data=60, dimension=12, seed=0):
    features, target = logistic_data(n_data, dimension, seed)
    return orn.glm(features, target, "bernoulli", prior_precision=0.3, intercept=False)


def test_a_gaussian_posterior_is_found_exactly_in_one_round():
    model, exact = gaussian_posterior()
    post = orn.gaussian_vi(model, draws=20)
    np.testing.assert_allclose(post.mean, exact.mean, atol=1e-10)
    assert relative(post.covariance, exact.covariance) < 1e-10
    assert post.settings["rounds"] == 1 and post.settings["shift"] < 1e-6
    assert post.settings["converged"] and post.settings["exact_moments"]


def test_any_model_with_a_gaussian_posterior_is_found_exactly():
    regression, exact = gaussian_posterior()

    def log_likelihood(theta, row):
        return -0.5 * ((row["y"] - row["x"] @ theta) / 0.7) ** 2

    model = orn.Model(
        log_likelihood,
        {"x": regression.features, "y": regression.response},
        lambda theta: -jnp.sum(theta**2),
        init=np.zeros(4),
    )
    post = orn.gaussian_vi(model, draws=20)
    np.testing.assert_allclose(post.mean, exact.mean, atol=1e-8)
    assert relative(post.covariance, exact.covariance) < 1e-8


def test_one_skewed_parameter_against_the_optimum():
    """Of log-gamma KL(q ‖ p) has its optimum in closed form: E[eᵗ] = shape, sd² = 1/shape."""
    shape, n_data = 2.0, 4
    model = orn.Model(
        lambda theta, x: x * theta - jnp.exp(theta) * x, np.full(n_data, 0.5), init=np.zeros(())
    )
    post = orn.gaussian_vi(model, tolerance=1e-6)
    assert post.sd[0] == pytest.approx(shape**-0.5, abs=1e-5)
    assert post.mean[0] == pytest.approx(-0.5 / shape, abs=1e-5)


def test_mean_and_precision_satisfy_their_equations():
    model = wide_logistic()
    post = orn.gaussian_vi(model, tolerance=1e-7)
    found = Expectation(model).over(Gaussian(post.mean, post.covariance))
    assert np.max(np.abs(found.slope) * post.sd) < 1e-6
    assert relative(found.hessian @ post.covariance, np.eye(model.dim)) < 1e-6
    assert post.settings["shift"] > 0.3  # where Laplace's approximation is not


def test_the_optimum_of_the_elbo_by_another_way():
    """Minimising the free energy over mean and Cholesky factor by BFGS, with integrals of its
    own.
    """
    features, target = logistic_data(25, 2, seed=3)
    model = orn.glm(features, target, "bernoulli", prior_precision=0.5, intercept=False)
    signs = 2.0 * target - 1.0
    places, weights = scipy.special.roots_hermitenorm(80)
    weights = weights / weights.sum()

    def free_energy(numbers):
        root = np.array([[np.exp(numbers[2]), 0.0], [numbers[4], np.exp(numbers[3])]])
        mean = features @ numbers[:2]
        sd = np.linalg.norm(features @ root, axis=1)
        margins = signs[:, None] * (mean[:, None] + sd[:, None] * places)
        losses = np.sum(np.logaddexp(0.0, -margins) @ weights)
        return losses + 0.25 * (numbers[:2] @ numbers[:2] + np.sum(root**2)) - numbers[2:4].sum()

    best = scipy.optimize.minimize(free_energy, np.zeros(5), tol=1e-10)
    root = np.array([[np.exp(best.x[2]), 0.0], [best.x[4], np.exp(best.x[3])]])
    post = orn.gaussian_vi(model, tolerance=1e-6)
    np.testing.assert_allclose(post.mean, best.x[:2], atol=1e-4)
    np.testing.assert_allclose(post.covariance, root @ root.T, atol=1e-4)


def test_nearer_to_the_posterior_than_laplace():
    model = wide_logistic()
    vi = orn.gaussian_vi(model)
    truth = orn.hmc(model, vi, draws=150, chains=64, seed=1)
    laplace = orn.laplace(model, curvature=vi.curvature)
    by_vi, by_laplace = (np.abs(post.mean - truth.mean) / truth.sd for post in (vi, laplace))
    assert by_vi.max() < 0.1 < by_laplace.max()
    assert np.abs(vi.sd / truth.sd - 1.0).max() < 0.06


@pytest.mark.slow
def test_softmax_and_an_inferred_noise_scale():
    rng = np.random.default_rng(4)
    features = rng.normal(size=(40, 2))
    softmax = orn.glm(features, rng.integers(0, 3, 40), "categorical")
    linear = orn.glm(features[:20], rng.normal(size=20))
    for model in (softmax, linear):
        vi = orn.gaussian_vi(model)
        truth = orn.hmc(model, vi, draws=60, chains=64, seed=1)
        assert np.max(np.abs(vi.mean - truth.mean) / truth.sd) < 0.15
        assert np.max(np.abs(vi.sd / truth.sd - 1.0)) < 0.12


def test_draws_are_those_of_q_and_repeat():
    model = wide_logistic()
    post = orn.gaussian_vi(model, draws=500, seed=3)
    again = orn.gaussian_vi(model, draws=500, seed=3)
    np.testing.assert_array_equal(post.draws, again.draws)
    z = np.linalg.solve(
        np.linalg.cholesky(post.covariance), (post.draws - post.mean).reshape(-1, 12).T
    )
    assert np.max(np.abs(z.mean(axis=1))) < 5.0 / np.sqrt(2000)
    assert np.max(np.abs(np.cov(z) - np.eye(12))) < 5.0 * np.sqrt(2.0 / 2000)
    q = orn.gaussian_vi(model, draws=2, seed=8)
    np.testing.assert_array_equal(q.covariance, post.covariance)


def test_passes_are_counted():
    model = wide_logistic()
    curvature = orn.measure(model)
    post = orn.gaussian_vi(model, curvature=curvature)
    assert post.settings["rounds"] + 1 <= post.settings["passes"] <= 2 * post.settings["rounds"] + 1


def test_too_few_rounds_warn():
    with pytest.warns(orn.ConvergenceWarning, match="raise rounds"):
        post = orn.gaussian_vi(wide_logistic(), rounds=1)
    assert not post.settings["converged"]


def test_two_modes_far_apart_are_refused_or_one_is_found():
    """Between two modes E_q[∇²U] is not positive: q stays at the one that it starts from."""

    def log_likelihood(theta, x):
        return jnp.logaddexp(-8.0 * (theta - 1.0) ** 2, -8.0 * (theta + 1.0) ** 2)

    model = orn.Model(log_likelihood, np.ones(1), init=np.array(0.9))
    post = orn.gaussian_vi(model)
    assert post.mean[0] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"tolerance": 0.0}, "tolerance must be positive"),
        ({"rounds": 0}, "rounds must be a whole number, 1 or more"),
        ({"draws": 1.5}, "draws must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_bad_arguments_are_refused(arguments, sentence):
    with pytest.raises(orn.InputError, match=sentence):
        orn.gaussian_vi(wide_logistic(), **arguments)


def test_a_curvature_that_does_not_fit_is_refused():
    with pytest.raises(orn.InputError, match="3 parameters, the model 12"):
        orn.gaussian_vi(wide_logistic(), curvature=orn.measure(wide_logistic(dimension=3)))
    with pytest.raises(orn.InputError, match="only diagonals"):
        orn.gaussian_vi(wide_logistic(), curvature=orn.measure(wide_logistic(), "diagonal"))
