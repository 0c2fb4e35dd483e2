"""Each assumption's number against what it is by definition, and each on data made to break it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from verdict_problems import BATCH, poisson, regression, sampled

import ornstein as orn
from ornstein.curvature.autodiff import Autodiff
from ornstein.curvature.derivatives import derivatives_of
from ornstein.theory import Process, normal_modes
from ornstein.theory.stationary import solve_modes
from ornstein.verdict import assumptions
from ornstein.verdict.fluctuation import fluctuation_dissipation
from ornstein.verdict.noise_assumptions import _noise_size
from ornstein.verdict.subject import Subject


@pytest.fixture(scope="module")
def regular():
    return sampled(orn.ConstantSGD("full"))(regression())


def subject_of(post):
    return Subject(post, post.model)


def test_per_example_gradients_agree_with_autodiff():
    """Closed form and automatic differentiation, and both with their own moments."""
    model = poisson()
    theta = orn.measure(model).mode + 0.1
    closed = np.concatenate(list(derivatives_of(model).example_gradients(theta)))
    automatic = np.concatenate(list(Autodiff(model).example_gradients(theta)))
    np.testing.assert_allclose(closed, automatic, rtol=1e-10, atol=1e-12)
    first, second = derivatives_of(model).gradient_moments(theta)
    np.testing.assert_allclose(closed.mean(axis=0), first, atol=1e-12)
    np.testing.assert_allclose(closed.T @ closed / len(closed), second, rtol=1e-12, atol=1e-12)


# A1
# --------------------------------------------------------------------------------------------------


def test_a1_is_the_kurtosis_of_the_projected_gradients(regular):
    """Of all rows at some draws, each draw about its own mean; of so few rows at a hundred."""
    subject, derivatives = subject_of(regular), derivatives_of(regular.model)
    modes = subject.law.process.modes
    gradients = [
        np.concatenate(list(derivatives.example_gradients(draw)))
        for draw in subject.some_draws(100)
    ]
    projected = np.concatenate([(part - part.mean(axis=0)) @ modes.basis for part in gradients])
    kurtosis = scipy.stats.kurtosis(projected, axis=0) / BATCH
    radius = 1.0 - modes.rates
    left = kurtosis * (1.0 - radius**2) / (1.0 + radius**2)
    found = assumptions.gaussian_noise(subject_of(regular))
    assert found.number == pytest.approx(left.max(), rel=1e-9)
    assert found.level == "trusted"


def test_a1_what_is_left_in_the_draws_is_what_simulation_leaves():
    """A mode driven by skewed-to-heavy noise (Laplace, excess kurtosis 3) keeps (1−r²)/(1+r²) of
    its kurtosis.
    """
    radius, rng = 0.6, np.random.default_rng(0)
    state, kept = np.zeros(20_000), []
    for step in range(160):
        state = radius * state + rng.laplace(size=state.size)
        if step >= 40 and step % 20 == 0:  # r^20 < 4e-5: independent
            kept.append(state)
    values = np.concatenate(kept)
    expected = 3.0 * (1.0 - radius**2) / (1.0 + radius**2)
    # of a sample kurtosis near 1.4, four times the Gaussian variance to be safe
    error = np.sqrt(96.0 / values.size)
    assert scipy.stats.kurtosis(values) == pytest.approx(expected, abs=4.0 * error)


def test_a1_fails_where_one_row_carries_the_noise():
    """A row of such leverage that the fit passes through it: silent at the mode, and all the noise
    elsewhere.
    """
    rng = np.random.default_rng(3)
    features = rng.normal(size=(1000, 4))
    features[17] = [400.0, 0.0, 0.0, 0.0]
    target = features @ np.ones(4) + rng.normal(size=1000)
    target[17] += 3.0
    model = orn.glm(features, target, noise_scale=1.0, intercept=False, prior_precision=1.0)
    post = sampled(orn.ConstantSGD("full"), draws=1000)(model)
    found = assumptions.gaussian_noise(subject_of(post))
    assert found.level == "caution"
    assert "x0" in found.detail
    at_mode = np.concatenate(list(derivatives_of(model).example_gradients(post.curvature.mode)))
    assert scipy.stats.kurtosis(at_mode[:, 0]) / BATCH < found.threshold
    flat = (post.draws - post.mean).reshape(-1, 4)
    # and the draws do have the tails that it speaks of
    assert scipy.stats.kurtosis(flat[:, 0]) > found.threshold


# A2
# --------------------------------------------------------------------------------------------------


def test_a2_expectation_is_exact_for_quadratic_losses(regular):
    """Along Gaussian points C + K[Σ] is the mean noise of a linear regression: averaged over many,
    the two agree.
    """
    law = subject_of(regular).law
    points = np.random.default_rng(0).multivariate_normal(law.curvature.mode, law.spread, size=400)
    derivatives = derivatives_of(regular.model)
    sizes = []
    for point in points:
        first, second = derivatives.gradient_moments(point)
        sizes.append(_noise_size(law, second - np.outer(first, first), whole=True))
    expected = _noise_size(law, law.noise_met, whole=True)
    error = np.std(sizes) / np.sqrt(len(sizes))
    assert np.mean(sizes) == pytest.approx(expected, abs=4.0 * error)
    assert error < 0.002 * expected  # so a K twice as large (0.7 % of C here) would be seen
    assert assumptions.constant_noise(subject_of(regular)).number < 0.02


def test_a2_fails_where_theory_takes_the_noise_for_constant():
    """A small regression sampled at a large step: how the noise depends on the spread of θ is
    then 13 % of it.
    """
    rng = np.random.default_rng(4)
    features = rng.standard_t(3.0, size=(60, 4))
    model = orn.glm(
        features,
        features @ np.ones(4) + rng.normal(size=60),
        noise_scale=1.0,
        intercept=False,
        prior_precision=1.0,
    )
    curvature = replace(orn.measure(model), noise_response=None)
    post = sampled(orn.ConstantSGD("full"), batch_size=4, curvature=curvature)(model)
    assert assumptions.constant_noise(subject_of(post)).level == "caution"


# A3
# --------------------------------------------------------------------------------------------------


def test_a3_is_the_largest_eigenvalue_as_a_share_of_its_bound(regular):
    largest = np.max(
        np.real(np.linalg.eigvals(regular.dynamics.preconditioner @ regular.curvature.hessian))
    )
    found = assumptions.small_steps(subject_of(regular))
    assert found.number == pytest.approx(largest / 2.0, rel=1e-9)
    momentum = sampled(orn.ConstantSGD("full", damping=0.3), draws=50)(regression())
    largest = np.max(
        np.real(np.linalg.eigvals(momentum.dynamics.preconditioner @ momentum.curvature.hessian))
    )
    assert assumptions.small_steps(subject_of(momentum)).number == pytest.approx(
        largest / (2.0 * 1.7), rel=1e-9
    )


def test_a3_fails_near_the_bound():
    curvature = orn.Curvature(mode=[0.0], hessian=[[1.0]], noise=[[1.0]], n_data=1000)
    dynamics = orn.Dynamics(np.array(1.9), 10)
    post = orn.Posterior(
        np.zeros((1, 1, 1)),
        ("a",),
        None,
        {"thin": 1},
        dynamics,
        curvature,
        dynamics.predict(curvature),
    )
    found = assumptions.small_steps(Subject(post, None))
    assert found.level == "caution"
    assert found.number == pytest.approx(0.95)


# A4
# --------------------------------------------------------------------------------------------------


def test_a4_is_nothing_for_a_quadratic_loss(regular):
    verdict = regular.check()
    assert verdict["loss is quadratic"].number < 1e-9
    shift = regular.mean - regular.curvature.mode
    distance = np.sqrt(shift @ np.linalg.solve(regular.curvature.posterior_covariance, shift))
    assert assumptions.mean_shift(subject_of(regular), regular.curvature)[0] == pytest.approx(
        distance, rel=1e-9
    )


def test_a4_the_mean_moves_as_the_posterior_mean_does():
    """Why a shift of the mean is no error yet: E∇L = 0 holds for constant SGD and for the posterior
    alike.

    A Poisson regression of 40 rows: third derivatives give the shift −½A⁻¹∇³L[Σ] of both. What
    stays apart is smaller than it by an order of magnitude; halving the step with the same batch,
    in contrast, halves the shift.
    """
    model = poisson(40)
    curvature = orn.measure(model)
    features = np.column_stack([model.features, np.ones(40)])
    rate = np.exp(features @ curvature.mode)
    spread = np.einsum("ni,ij,nj->n", features, curvature.posterior_covariance, features)
    shift = -0.5 * np.linalg.solve(curvature.hessian, features.T @ (rate * spread) / 40)
    units = np.linalg.cholesky(np.linalg.inv(curvature.posterior_covariance)).T
    assert np.linalg.norm(units @ shift) > 0.1
    dynamics = orn.ConstantSGD("full").tune(curvature, 4)
    options = {"curvature": curvature, "draws": 8000}
    whole = sampled(dynamics, **options)(model)
    half = sampled(replace(dynamics, preconditioner=dynamics.preconditioner / 2.0), **options)(
        model
    )
    # root mean square of the Monte-Carlo error, in sds
    error = np.sqrt(2.0 * Subject(whole, None).error.mean)
    assert error < 0.03
    assert np.linalg.norm(units @ (whole.mean - curvature.mode - shift)) < 4.0 * error + 0.03
    assert np.linalg.norm(units @ (half.mean - curvature.mode - shift / 2.0)) < 4.0 * error + 0.03


# A5
# --------------------------------------------------------------------------------------------------


def test_a5_matters_to_plain_iterate_averaging_alone(regular):
    assert "not needed" in assumptions.noise_is_curvature(subject_of(regular)).sentence
    post = sampled(orn.IASG(rescale=False), draws=50)(regression("misspecified"))
    law = subject_of(post).law
    ratios = scipy.linalg.eigh(law.noise_met, law.curvature.hessian, eigvals_only=True)
    found = assumptions.noise_is_curvature(subject_of(post))
    assert found.level == "caution"
    assert found.number == pytest.approx(np.max(np.abs(ratios - 1.0)), rel=1e-9)


# The gauge
# --------------------------------------------------------------------------------------------------


def test_fluctuation_and_dissipation_balance(regular):
    """Exact for the predicted law; within Monte-Carlo error for a run."""
    assert fluctuation_dissipation(subject_of(regular)) == pytest.approx(1.0, abs=0.05)
    injected = sampled(orn.SGFS("full"), draws=300)(regression())
    assert fluctuation_dissipation(subject_of(injected)) == pytest.approx(1.0, abs=0.08)


def test_fluctuation_and_dissipation_do_not_balance_on_the_way():
    from verdict_problems import short

    assert fluctuation_dissipation(subject_of(short(3.0, start=10.0)(regression()))) > 1.5


def test_the_gauge_is_exact_on_the_law_itself():
    """2 tr(AΣ) = tr(H(C/S + AΣA)) for the exact stationary covariance, without a prior and with
    constant noise.
    """
    hessian = np.array([[2.0, 0.5], [0.5, 1.0]])
    noise, step = np.array([[1.0, 0.2], [0.2, 3.0]]) / 10.0, np.diag([0.2, 0.4])
    modes = normal_modes(hessian, np.diagonal(step))
    spread = Process(modes, solve_modes(modes, noise)).covariance()
    assert 2.0 * np.sum(hessian * spread) == pytest.approx(
        np.sum(step * (noise + hessian @ spread @ hessian)), rel=1e-12
    )
