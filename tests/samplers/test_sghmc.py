"""SGHMC: momentum with injected noise, less the noise of the gradients."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import hessian_and_noise, joint_covariance, relative
from sampler_checks import (
    assert_law,
    assert_not_law,
    logistic,
    one_step,
    quadratic,
    run,
    tiny,
    tiny_minibatch_moments,
)

import ornstein as orn


def written_down(dimension=4, n_data=2000, seed=0):
    hessian, noise = hessian_and_noise(dimension, seed)
    return orn.Curvature(np.zeros(dimension), hessian, noise, n_data)


def step_size_of(dynamics, curvature):
    return float(dynamics.preconditioner) / curvature.n_data


@pytest.mark.parametrize("scheme", ["replacement", "without-replacement", "slices"])
def test_one_step_is_the_update_of_its_paper(scheme):
    """v' = (1−α)v − η∇Ũ + N(0, 2(α−β)η) with β = ηV/2, V the covariance of ∇Ũ = N ĝ where the chain
    lives; θ' = θ + v'.
    """
    _, _, _, curvature = tiny()
    dynamics = orn.SGHMC(damping=0.3).tune(curvature, 2, scheme)
    eta = step_size_of(dynamics, curvature)
    shift, velocity = np.array([0.2, -0.3]), np.array([0.05, 0.1])
    mean, covariance = one_step(dynamics, shift, velocity)
    gradient, spread = tiny_minibatch_moments(curvature.mode + shift, scheme, 2)
    moved = 0.7 * velocity - eta * 5 * gradient
    assert np.allclose(mean, np.concatenate([shift + moved, moved]), atol=1e-12)
    finite = 1.0 if scheme == "replacement" else (5 - 2) / (5 - 1)
    taken_off = finite * 25 * curvature.effective_noise / 2
    wanted = eta**2 * 25 * spread + 2.0 * 0.3 * eta * np.eye(2) - eta**2 * taken_off
    assert relative(covariance, np.block([[wanted, wanted], [wanted, wanted]])) < 1e-10


@pytest.mark.parametrize("exact", [False, True])
def test_the_step_is_refused_beyond_the_bound_of_its_noise(exact):
    curvature = written_down()
    sampler = orn.SGHMC(damping=0.2, exact=exact)
    n, batch = curvature.n_data, 50
    taken = n**2 / batch * curvature.noise + (0.2 / 1.8 * n * curvature.hessian if exact else 0.0)
    bound = 2.0 * 0.2 / np.linalg.eigvalsh(taken)[-1]
    inside = orn.SGHMC(0.999 * bound, 0.2, exact).tune(curvature, batch)
    assert np.linalg.eigvalsh(inside.injected)[0] > 0
    with pytest.raises(orn.InputError, match=f"beyond {bound:.4g}"):
        orn.SGHMC(1.001 * bound, 0.2, exact).tune(curvature, batch)
    if exact:
        assert np.isclose(step_size_of(sampler.tune(curvature, batch), curvature), bound / 2.0)


@pytest.mark.parametrize("damping", [1.0, 0.3, 0.05])
def test_the_exact_form_has_the_posterior_as_its_law(damping):
    for curvature in (written_down(), quadratic()[1]):
        assert (
            orn.SGHMC(damping=damping, exact=True).tune(curvature, 50).predict(curvature).kl_qp
            < 1e-9
        )


def test_the_automatic_step_keeps_the_divergence_small():
    """Only the discretisation of time is left to correct: at a large batch it decides, else the
    bound on R does.
    """
    for batch in (20, 1500):
        curvature = written_down()
        dynamics = orn.SGHMC(damping=0.2).tune(curvature, batch)
        assert dynamics.predict(curvature).kl_qp <= 0.05
        larger = 1.05 * step_size_of(dynamics, curvature)
        try:
            assert orn.SGHMC(larger, 0.2).tune(curvature, batch).predict(curvature).kl_qp > 0.05
        except orn.InputError as error:
            assert "is a covariance" in str(error)


def test_the_prediction_is_that_of_the_companion_matrix():
    curvature = written_down()
    dynamics = orn.SGHMC(damping=0.2).tune(curvature, 50)
    step = float(dynamics.preconditioner) * np.eye(4)
    joint = joint_covariance(curvature.hessian, curvature.noise / 50, step, 0.2, dynamics.injected)
    assert relative(dynamics.predict(curvature).covariance, joint[:4, :4]) < 1e-9


@pytest.mark.parametrize(
    "sampler",
    [orn.SGHMC(), orn.SGHMC(exact=True), orn.SGHMC(damping=1.0)],
    ids=["plain", "exact", "overdamped"],
)
def test_the_covariance_is_as_predicted_on_a_quadratic_loss(sampler):
    model, curvature = quadratic()
    posterior = run(model, curvature, sampler, 200)
    assert_law(posterior)
    assert posterior.prediction.kl_qp <= 0.05


def test_the_covariance_is_as_predicted_on_logistic_regression():
    model, curvature = logistic()
    assert_law(run(model, curvature, orn.SGHMC(), 400))


def test_noise_that_is_not_corrected_and_doubled_noise_are_noticed():
    """Negative controls: the run takes off the gradient noise; laws that do not, or that inject
    twice as much, must not fit.
    """
    model, curvature = quadratic()
    dynamics = orn.SGHMC().tune(curvature, 200)
    posterior = run(model, curvature, dynamics, None)
    eta = step_size_of(dynamics, curvature)
    for injected in (2.0 * 0.1 * eta * np.eye(3), 2.0 * dynamics.injected):
        wrong = orn.Dynamics(dynamics.preconditioner, 200, damping=0.1, injected=injected)
        assert_not_law(posterior, wrong.predict(curvature).covariance)


@pytest.mark.parametrize(
    "options",
    [{"step_size": 0.0}, {"step_size": "big"}, {"damping": 0.0}, {"damping": 1.1}],
    ids=str,
)
def test_bad_settings_are_refused(options):
    with pytest.raises(orn.InputError):
        orn.SGHMC(**options)
