"""SGLD: constant and decreasing rates, exact noise, control variates, momentum."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from helpers import hessian_and_noise, relative
from sampler_checks import (
    assert_law,
    assert_not_law,
    logistic,
    one_step,
    quadratic,
    run,
    scores,
    tiny,
    tiny_gradients,
    tiny_minibatch_moments,
)

import ornstein as orn
from ornstein import theory
from ornstein.rows.scheme import noise_factor

SCHEMES = ("replacement", "without-replacement", "slices")


def written_down(dimension=4, n_data=2000, seed=0):
    hessian, noise = hessian_and_noise(dimension, seed)
    return orn.Curvature(np.zeros(dimension), hessian, noise, n_data)


# One step.


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_one_step_is_the_update_of_its_paper(scheme, factor):
    """θ' = θ + (ε/2)(∇log p(θ) + (N/S) Σ_batch ∇log p(x|θ)) + N(0, ε), on all minibatches of five
    rows.
    """
    _, _, _, curvature = tiny()
    epsilon, shift = 0.02, np.array([0.3, -0.2])
    dynamics = orn.SGLD(step_size=epsilon).tune(curvature, batch_size=2, scheme=scheme)
    mean, covariance = one_step(dynamics, shift, factor=factor)
    gradient, spread = tiny_minibatch_moments(curvature.mode + shift, scheme, 2)
    rate = factor * epsilon
    assert np.allclose(mean[:2], shift - rate / 2 * 5 * gradient, atol=1e-12)
    assert relative(covariance[:2, :2], (rate * 5 / 2) ** 2 * spread + rate * np.eye(2)) < 1e-12


def test_one_step_with_control_variates_takes_off_the_noise_at_the_mode():
    _, _, _, curvature = tiny()
    epsilon, shift = 0.02, np.array([0.3, -0.2])
    dynamics = orn.SGLD(step_size=epsilon, control_variates=True).tune(curvature, batch_size=1)
    mean, covariance = one_step(dynamics, shift)
    differences = tiny_gradients(curvature.mode + shift) - tiny_gradients(curvature.mode)
    assert np.allclose(mean[:2], shift - epsilon / 2 * 5 * differences.mean(axis=0), atol=1e-12)
    assert np.allclose(
        differences.mean(axis=0), tiny_gradients(curvature.mode + shift).mean(axis=0), atol=1e-9
    )
    wanted = (epsilon * 5 / 2) ** 2 * np.cov(
        differences, rowvar=False, bias=True
    ) + epsilon * np.eye(2)
    assert relative(covariance[:2, :2], wanted) < 1e-10
    assert np.allclose(one_step(dynamics, np.zeros(2))[1][:2, :2], epsilon * np.eye(2), atol=1e-15)


def test_one_step_of_the_exact_form_injects_what_is_missing():
    _, _, _, curvature = tiny()
    dynamics = orn.SGLD(exact=True).tune(curvature, batch_size=2)
    epsilon = 2.0 * float(dynamics.preconditioner) / 5
    noise = curvature.effective_noise
    wanted = epsilon * (np.eye(2) - epsilon * 5 / 4 * (curvature.hessian + 5 / 2 * noise))
    spread = tiny_minibatch_moments(curvature.mode, "replacement", 2)[1]
    _, covariance = one_step(dynamics, np.zeros(2))
    assert relative(covariance[:2, :2], wanted + (epsilon * 5 / 2) ** 2 * spread) < 1e-10


# What theory says of it.


def test_the_prediction_solves_the_corrected_equation():
    """(N/2)(AΣ+ΣA) − (εN²/4)AΣA = I + (εN²/4S)C, where the paper prints εN/2S."""
    curvature = written_down()
    epsilon, batch = 1e-6, 50
    found = orn.SGLD(step_size=epsilon).tune(curvature, batch).predict(curvature).covariance
    a, c, n = curvature.hessian, curvature.noise, curvature.n_data
    left = n / 2 * (a @ found + found @ a) - epsilon * n**2 / 4 * a @ found @ a
    assert relative(left, np.eye(4) + epsilon * n**2 / (4 * batch) * c) < 1e-10
    assert relative(left, np.eye(4) + epsilon * n / (2 * batch) * c) > 1e-2


def test_the_automatic_step_is_the_largest_with_a_small_divergence():
    for curvature, choices in (
        (written_down(), ({}, {"damping": 0.2})),
        (quadratic()[1], ({}, {"control_variates": True})),
    ):
        for options in choices:
            dynamics = orn.SGLD(**options).tune(curvature, 50)
            epsilon = 2.0 * float(dynamics.preconditioner) / curvature.n_data
            larger = orn.SGLD(step_size=1.1 * epsilon, **options).tune(curvature, 50)
            assert (
                0.045 < dynamics.predict(curvature).kl_qp <= 0.05 < larger.predict(curvature).kl_qp
            )


@pytest.mark.parametrize("control_variates", [False, True])
@pytest.mark.parametrize("damping", [1.0, 0.3])
@pytest.mark.parametrize("scheme", ["replacement", "without-replacement"])
def test_the_exact_form_has_the_posterior_as_its_law_up_to_its_bound(
    damping, scheme, control_variates
):
    for curvature in (written_down(), quadratic()[1]):
        sampler = orn.SGLD(exact=True, control_variates=control_variates, damping=damping)
        half = sampler.tune(curvature, 50, scheme)
        bound = 4.0 * float(half.preconditioner) / curvature.n_data
        for epsilon in (1e-3 * bound, 0.5 * bound, 0.999 * bound):
            options = {"exact": True, "control_variates": control_variates, "damping": damping}
            dynamics = orn.SGLD(epsilon, **options).tune(curvature, 50, scheme)
            assert dynamics.predict(curvature).kl_qp < 1e-8
        with pytest.raises(orn.InputError, match="is not below"):
            orn.SGLD(
                1.01 * bound, exact=True, control_variates=control_variates, damping=damping
            ).tune(curvature, 50, scheme)


def test_the_bound_of_the_exact_form_is_the_one_of_the_theory_page():
    curvature = written_down()
    bound = 4.0 * float(orn.SGLD(exact=True).tune(curvature, 20).preconditioner) / curvature.n_data
    largest = np.linalg.eigvalsh(curvature.hessian + curvature.n_data / 20 * curvature.noise)[-1]
    assert np.isclose(bound, 4.0 / (curvature.n_data * largest))


@pytest.mark.parametrize("drift", [True, False])
@pytest.mark.parametrize("damping", [1.0, 0.2])
def test_the_injection_is_a_covariance_exactly_up_to_its_bound(damping, drift):
    hessian, noise = hessian_and_noise(4)
    bound = theory.injection_bound(hessian, noise, 500, 20, damping, drift=drift)

    def smallest(step):
        matched = theory.matched_injection(
            hessian if drift else 0.0 * hessian, noise, step, 500, 20, damping
        )
        return np.linalg.eigvalsh(matched)[0] / step

    assert smallest(0.999 * bound) > 0 > smallest(1.001 * bound)
    assert abs(smallest(bound)) < 1e-12


def test_momentum_changes_nothing_as_the_step_vanishes():
    curvature = written_down()
    posterior = curvature.posterior_covariance
    for damping in (0.1, 0.5):
        found = (
            orn.SGLD(step_size=1e-12, damping=damping)
            .tune(curvature, 50)
            .predict(curvature)
            .covariance
        )
        assert relative(found, posterior) < 1e-3


# What runs.


@pytest.mark.parametrize("options", [{}, {"damping": 0.3}, {"control_variates": True}], ids=str)
def test_the_covariance_is_as_predicted_on_a_quadratic_loss(options):
    """At a step so large that, without control variates, the law is many times wider than the
    posterior.
    """
    model, curvature = quadratic()
    assert_law(run(model, curvature, orn.SGLD(step_size=2e-4, **options), 20))


@pytest.mark.parametrize("options", [{}, {"damping": 0.3}], ids=str)
def test_the_exact_form_samples_the_posterior(options):
    model, curvature = quadratic()
    posterior = run(model, curvature, orn.SGLD(exact=True, **options), 200)
    assert_law(posterior)
    assert relative(posterior.prediction.covariance, curvature.posterior_covariance) < 1e-9


@pytest.mark.parametrize("options", [{}, {"exact": True}, {"control_variates": True}], ids=str)
def test_the_covariance_is_as_predicted_on_logistic_regression(options):
    model, curvature = logistic()
    step_size = "auto" if options.get("exact") else 1e-4
    assert_law(run(model, curvature, orn.SGLD(step_size, **options), 50))


def test_control_variates_are_right_where_plain_langevin_is_off_by_half():
    """At this step every variance of plain SGLD is more than 50 % too large; with control variates
    it is within 3 %.
    """
    model, curvature = quadratic()
    epsilon, batch = 4e-5, 7
    target = np.diagonal(curvature.posterior_covariance)
    plain = run(model, curvature, orn.SGLD(epsilon), batch)
    controlled = run(model, curvature, orn.SGLD(epsilon, control_variates=True), batch)
    assert np.all(np.diagonal(plain.covariance) / target > 1.5)
    assert_law(plain)
    assert_law(controlled)
    assert np.all(np.abs(np.diagonal(controlled.prediction.covariance) / target - 1.0) < 0.03)
    # No Monte-Carlo error can explain the plain one: its distance from the posterior is many times
    # the bound.
    worst, bound = scores(plain, curvature.posterior_covariance)
    assert worst > 3.0 * bound


def test_a_law_with_n_for_n_squared_is_noticed():
    """Negative control: the paper's coefficient εN/2S in place of εN²/4S."""
    model, curvature = quadratic()
    epsilon, batch = 2e-4, 20
    posterior = run(model, curvature, orn.SGLD(epsilon), batch)
    n_data, noise = curvature.n_data, curvature.noise
    driven = np.eye(3) + epsilon * n_data / (2 * batch) * noise
    drift = n_data / 2 * curvature.hessian
    wrong = scipy.linalg.solve_continuous_lyapunov(drift, driven)
    assert_not_law(posterior, wrong)


def test_doubled_noise_is_noticed():
    """Negative control: injected noise of twice the variance, and gradient noise of twice the
    variance.
    """
    model, curvature = quadratic()
    dynamics = orn.SGLD(exact=True).tune(curvature, 200)
    posterior = run(model, curvature, dynamics, None)
    louder = orn.Dynamics(dynamics.preconditioner, 200, injected=2.0 * dynamics.injected).predict(
        curvature
    )
    assert_not_law(posterior, louder.covariance)
    smaller = orn.Dynamics(dynamics.preconditioner, 100, injected=dynamics.injected).predict(
        curvature
    )
    assert_not_law(posterior, smaller.covariance)


# Preconditioned.


@pytest.mark.parametrize("control_variates", [False, True])
@pytest.mark.parametrize("damping", [1.0, 0.3])
def test_the_full_preconditioner_is_the_inverse_of_what_a_step_takes_up(damping, control_variates):
    """H = (ε/2)(μ/(2−μ) A + (N/S) C)⁻¹, R = (εμ − ε²/4)/N times the same inverse, and the bound is
    4μ; all by hand.
    """
    curvature, batch = quadratic()[1], 50
    options = {
        "exact": True,
        "control_variates": control_variates,
        "damping": damping,
        "preconditioner": "full",
    }
    noise = curvature.effective_noise - (curvature.noise if control_variates else 0.0)
    inverse = np.linalg.inv(
        damping / (2.0 - damping) * curvature.hessian + curvature.n_data / batch * noise
    )
    automatic = orn.SGLD(**options).tune(curvature, batch)
    assert relative(automatic.preconditioner, 0.2 * damping * inverse) < 1e-10
    epsilon = 1.3 * damping
    dynamics = orn.SGLD(epsilon, **options).tune(curvature, batch)
    assert relative(dynamics.preconditioner, epsilon / 2 * inverse) < 1e-10
    assert (
        relative(
            dynamics.injected, (epsilon * damping - epsilon**2 / 4) / curvature.n_data * inverse
        )
        < 1e-9
    )
    orn.SGLD(3.999 * damping, **options).tune(curvature, batch)
    with pytest.raises(orn.InputError, match="is not below"):
        orn.SGLD(4.0 * damping, **options).tune(curvature, batch)


@pytest.mark.parametrize("preconditioner", ["diagonal", "full"])
@pytest.mark.parametrize("control_variates", [False, True])
@pytest.mark.parametrize("damping", [1.0, 0.3])
@pytest.mark.parametrize("scheme", ["replacement", "without-replacement"])
def test_the_preconditioned_exact_form_has_the_posterior_as_its_law_up_to_its_bound(
    preconditioner, scheme, damping, control_variates
):
    options = {
        "exact": True,
        "control_variates": control_variates,
        "damping": damping,
        "preconditioner": preconditioner,
    }
    for curvature in (written_down(), quadratic()[1]):
        tenth = orn.SGLD(**options).tune(curvature, 50, scheme)
        for factor in (1e-3, 1.0, 9.99):
            injected = theory.matched_injection(
                curvature.hessian,
                curvature.effective_noise - (curvature.noise if control_variates else 0.0),
                factor * tenth.preconditioner,
                curvature.n_data,
                50 / noise_factor(scheme, curvature.n_data, 50),
                damping,
            )
            settings = {"injected": injected, "control_variates": control_variates}
            dynamics = orn.Dynamics(factor * tenth.preconditioner, 50, scheme, damping, **settings)
            assert dynamics.predict(curvature).kl_qp < 1e-8
        assert np.linalg.eigvalsh(injected)[0] > 0
        assert tenth.predict(curvature).kl_qp < 1e-8


def test_control_variates_and_curvature_make_a_draw_cost_a_few_minibatches():
    """The rates of forgetting are (ε/2)/(1 + k), k the eigenvalues of (N/S) A⁻¹K, and few steps do;
    without either many do.
    """
    curvature, batch = quadratic()[1], 50
    response = curvature.effective_noise - curvature.noise
    ratios = scipy.linalg.eigvalsh(curvature.n_data / batch * response, curvature.hessian)
    options = {"exact": True, "preconditioner": "full"}
    controlled = (
        orn.SGLD(2.0, **options, control_variates=True).tune(curvature, batch).predict(curvature)
    )
    slowest = 1.0 / (1.0 + ratios[-1])
    assert np.isclose(controlled.relaxation_time, -1.0 / np.log(1.0 - slowest), rtol=1e-9)
    assert controlled.relaxation_time < 1.0
    plain = orn.SGLD(2.0, **options).tune(curvature, batch).predict(curvature)
    scalar = orn.SGLD(exact=True, control_variates=True).tune(curvature, batch).predict(curvature)
    assert plain.relaxation_time > 20.0 * controlled.relaxation_time
    assert scalar.relaxation_time > 3.0 * controlled.relaxation_time


PRECONDITIONED = [
    {"preconditioner": "full", "exact": True, "control_variates": True},
    {"preconditioner": "full", "control_variates": True},
    {"preconditioner": "full", "exact": True, "damping": 0.4},
    {"preconditioner": "diagonal", "exact": True, "control_variates": True},
]


@pytest.mark.parametrize("options", PRECONDITIONED, ids=str)
@pytest.mark.parametrize("problem", [quadratic, logistic])
def test_the_covariance_is_as_predicted_with_a_preconditioner(problem, options):
    model, curvature = problem()
    assert_law(run(model, curvature, orn.SGLD(**options), 50, draws=1200))


def test_unshaped_noise_with_a_preconditioner_is_noticed():
    """Negative control: N(0, εG) where the exact form injects less."""
    model, curvature = quadratic()
    exact = orn.SGLD(2.0, exact=True, control_variates=True, preconditioner="full").tune(
        curvature, 50
    )
    plain = orn.SGLD(2.0, control_variates=True, preconditioner="full").tune(curvature, 50)
    assert_not_law(run(model, curvature, exact, None), plain.predict(curvature).covariance)
    assert_not_law(run(model, curvature, plain, None), curvature.posterior_covariance)


def test_the_injection_is_symmetric_where_the_curvature_spans_ten_decades():
    """Products of matrices are so only up to rounding, which a Dynamics would refuse."""
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(40, 40)))[0]
    hessian = (rotation * np.geomspace(1e-10, 1.0, 40)) @ rotation.T
    curvature = orn.Curvature(np.zeros(40), (hessian + hessian.T) / 2, np.eye(40), 1000)
    for preconditioner in ("full", "diagonal"):
        dynamics = orn.SGLD(exact=True, preconditioner=preconditioner).tune(curvature, 50)
        assert np.array_equal(dynamics.injected, dynamics.injected.T)


def test_the_full_preconditioner_needs_the_full_curvature():
    diagonal = orn.Curvature(np.zeros(2), np.ones(2), np.ones(2), 100)
    with pytest.raises(orn.InputError, match="holds only diagonals"):
        orn.SGLD(preconditioner="full").tune(diagonal, 10)
    assert orn.SGLD(preconditioner="diagonal", exact=True).tune(
        diagonal, 10
    ).preconditioner.shape == (2,)


# Decreasing rates.


def test_the_schedule_of_the_paper_and_in_general():
    steps = np.array([0.0, 3000.0])
    assert np.allclose(orn.robbins_monro(0.5)(steps), 0.5 / np.sqrt(1000.0 + steps))
    assert np.allclose(orn.robbins_monro(2.0, 10.0, 0.75)(steps), 2.0 * (10.0 + steps) ** -0.75)
    for bad in ({"scale": 0.0}, {"scale": 1.0, "power": 1.5}, {"scale": 1.0, "offset": -1.0}):
        with pytest.raises(orn.InputError):
            orn.robbins_monro(**bad)


def test_the_engine_takes_each_rate_at_its_step():
    """Rows that are all alike make a chain without noise: θ_T is a product over all rates, known
    exactly.
    """
    features = np.ones((50, 1))
    model = orn.glm(
        features, np.full(50, 2.0), noise_scale=1.0, intercept=False, prior_precision=1.0
    )
    curvature = orn.measure(model)
    schedule = orn.robbins_monro(1e-3, 5.0, 0.6)
    silent = orn.SGLD(schedule=schedule, control_variates=True).tune(curvature, 7)
    silent = orn.Dynamics(
        silent.preconditioner,
        7,
        injected=np.zeros(()),
        schedule=silent.schedule,
        control_variates=True,
    )
    start = curvature.mode + 1.0
    options = {"thin": 1, "warmup": 0, "init": start, "chains": 2, "dtype": "float64"}
    posterior = run(model, curvature, silent, None, draws=400, **options)
    factors = 1.0 - schedule(np.arange(400.0)) * 50 / 2 * curvature.hessian[0, 0]
    assert np.allclose(posterior.draws[0, :, 0] - curvature.mode, np.cumprod(factors), rtol=1e-9)
    assert np.array_equal(posterior.draws[0], posterior.draws[1])


def test_a_decreasing_rate_has_no_stationary_law_and_says_so():
    model, curvature = quadratic()
    sampler = orn.SGLD(schedule=orn.robbins_monro(1e-3))
    prediction = sampler.tune(curvature, 50).predict(curvature)
    assert prediction.covariance is None and prediction.stable and np.isnan(prediction.kl_qp)
    assert "no stationary law" in prediction.approximate
    posterior = run(model, curvature, sampler, 50, draws=200)
    said = str(posterior.check())
    assert "no stationary law" in " ".join(said.split())
    assert len(posterior.summary()) == 3


def test_a_decreasing_rate_brings_the_law_to_the_posterior():
    """Σ_t by its exact recursion, over many chains: the run's covariance is the mean of Σ_t over
    the kept steps.
    """
    model, curvature = quadratic()
    schedule = orn.robbins_monro(8e-4, 100.0, 0.5)
    dynamics = orn.SGLD(schedule=schedule).tune(curvature, 50)
    posterior = run(model, curvature, dynamics, None, draws=400, thin=50, warmup=100, chains=16)
    covariance, kept, noise = curvature.posterior_covariance, [], curvature.effective_noise
    for step, rate in enumerate(schedule(np.arange(100.0 + 400 * 50))):
        h = rate * curvature.n_data / 2
        contraction = np.eye(3) - h * curvature.hessian
        covariance = contraction @ covariance @ contraction + h**2 / 50 * noise + rate * np.eye(3)
        if (step + 1) % 50 == 0:
            noise = curvature.noise_at(covariance)
            kept.append(covariance)
    kept = kept[2:]  # 100 steps of warm-up
    pooled = np.mean(kept, axis=0)
    # Monte-Carlo error from the chains themselves: 16 independent estimates of the same second
    # moments about the mode.
    shifted = posterior.draws - curvature.mode
    seconds = np.einsum("cti,ctj->cij", shifted, shifted) / shifted.shape[1]
    error = seconds.std(axis=0, ddof=1) / np.sqrt(16)
    # t with 15 degrees of freedom, six entries, 1 in 400
    assert np.max(np.abs(seconds.mean(axis=0) - pooled) / error) < 4.5
    assert np.all(np.diagonal(kept[-1]) < np.diagonal(kept[0]))
    assert theory.kl_covariance(
        kept[-1], curvature.posterior_covariance
    ) < 0.5 * theory.kl_covariance(kept[0], curvature.posterior_covariance)


# What is refused.


@pytest.mark.parametrize(
    "options",
    [
        {"step_size": 0.0},
        {"step_size": "large"},
        {"step_size": np.nan},
        {"damping": 0.0},
        {"damping": 1.5},
        {"preconditioner": "sqrt"},
        {"schedule": orn.robbins_monro(1.0), "step_size": 0.1},
        {"schedule": orn.robbins_monro(1.0), "exact": True},
        {"schedule": lambda steps: 1.0},
        {"schedule": lambda steps: 0.0 * steps},
    ],
    ids=lambda options: " ".join(options),
)
def test_bad_settings_are_refused(options):
    with pytest.raises(orn.InputError):
        orn.SGLD(**options)


def test_an_unstable_step_is_refused_in_both_units():
    model, curvature = quadratic()
    assert not orn.SGLD(step_size=1.0).tune(curvature, 20).predict(curvature).stable
    with pytest.raises(orn.StabilityError, match=r"ε = 1.*on the mean loss"):
        run(model, curvature, orn.SGLD(step_size=1.0), 20)


def test_constant_sgd_refuses_control_variates_and_says_why():
    with pytest.raises(orn.InputError, match="gradient noise is what makes it sample"):
        orn.ConstantSGD(control_variates=True)
