"""The theory's identities, each against an independent computation. D up to 8, A and C that do not
commute.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
import scipy.optimize
from helpers import (
    companion,
    hessian_and_noise,
    joint_covariance,
    kl_by_definition,
    matrix_of,
    regression_data,
    relative,
    spd,
)

import ornstein as orn
from ornstein import theory
from ornstein.theory import Gaussian, Process, normal_modes
from ornstein.theory.stationary import solve_modes

EXACT = 1e-10
N, S = 1000, 20
DIMENSIONS = (1, 2, 3, 5, 8)
DAMPINGS = (1.0, 0.5, 0.1)


def step_of_kind(kind, hessian, seed=0, share=0.3):
    """A scalar, diagonal or full step whose fastest mode has rate 2·share."""
    rng = np.random.default_rng(seed + 77)
    dimension = len(hessian)
    shape = {
        "scalar": np.asarray(1.0),
        "diagonal": rng.uniform(0.3, 2.0, dimension),
        "full": spd(rng, dimension),
    }[kind]
    fastest = np.max(np.linalg.eigvals(matrix_of(shape, dimension) @ hessian).real)
    return shape * 2.0 * share / fastest


def brisk_step(hessian, noise):
    """A full step, unrelated to the tunings, in which no direction is slow."""
    return np.linalg.inv(2.0 * hessian + noise)


def process(hessian, noise, step, damping=1.0, injected=None, **delivery):
    modes = normal_modes(hessian, step, damping)
    return Process(modes, solve_modes(modes, noise, injected), **delivery)


# --- the stationary covariance --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["scalar", "diagonal", "full"])
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_the_discrete_covariance_solves_the_lyapunov_equation(dimension, kind):
    hessian, noise = hessian_and_noise(dimension)
    step = step_of_kind(kind, hessian)
    injected = spd(np.random.default_rng(5), dimension) * 1e-3
    whole = matrix_of(step, dimension)
    carried = np.eye(dimension) - whole @ hessian
    wanted = scipy.linalg.solve_discrete_lyapunov(carried, whole @ noise @ whole / S + injected)
    found = theory.stationary_covariance(hessian, noise / S, step, injected=injected)
    assert relative(found, wanted) < EXACT


@pytest.mark.parametrize("kind", ["scalar", "diagonal", "full"])
@pytest.mark.parametrize("damping", [0.9, 0.5, 0.1, 0.03])
@pytest.mark.parametrize("dimension", [1, 3, 8])
def test_momentum_in_discrete_time_against_the_companion_matrix(dimension, damping, kind):
    hessian, noise = hessian_and_noise(dimension, seed=1)
    step = step_of_kind(kind, hessian)
    injected = spd(np.random.default_rng(5), dimension) * 1e-3
    joint = joint_covariance(hessian, noise / S, matrix_of(step, dimension), damping, injected)
    found = theory.stationary_covariance(
        hessian, noise / S, step, damping=damping, injected=injected
    )
    assert relative(found, joint[:dimension, :dimension]) < EXACT


@pytest.mark.parametrize("damping", DAMPINGS)
def test_the_eigenbasis_formulas_of_the_theory_page(damping):
    hessian, noise = hessian_and_noise(4, seed=2)
    rate = float(step_of_kind("scalar", hessian))
    values, basis = np.linalg.eigh(hessian)
    rotated = basis.T @ noise @ basis
    left, right = values[:, None], values[None, :]
    if damping == 1.0:
        wanted = rate * rotated / (S * (left + right - rate * left * right))
    else:
        m, p, q = 1.0 - damping, 2.0 - damping - rate * left, 2.0 - damping - rate * right
        wanted = (
            rate**2
            / S
            * rotated
            / (1 - m**2 - p * q + m * (p**2 + q**2 - 2 * m * p * q) / (1 - m**2))
        )
    found = theory.stationary_covariance(hessian, noise / S, rate, damping=damping)
    assert relative(basis.T @ found @ basis, wanted) < EXACT


@pytest.mark.parametrize("damping", DAMPINGS)
def test_diagonal_matrices_given_as_vectors_agree_with_whole_ones(damping):
    rng = np.random.default_rng(3)
    a, c, h, r = rng.uniform(0.5, 2.0, (4, 5))
    h, r = 0.2 * h, 0.01 * r
    vector = theory.stationary_covariance(a, c / S, h, damping=damping, injected=r)
    whole = theory.stationary_covariance(
        np.diag(a), np.diag(c) / S, np.diag(h), damping=damping, injected=np.diag(r)
    )
    mixed = theory.stationary_covariance(np.diag(a), c / S, h, damping=damping, injected=r)
    assert vector.shape == (5,)
    assert relative(np.diag(vector), whole) < EXACT and relative(mixed, whole) < EXACT


@pytest.mark.parametrize("damping", DAMPINGS)
@pytest.mark.parametrize("kind", ["scalar", "full"])
def test_stability_and_relaxation_are_those_of_the_companion_matrix(damping, kind):
    hessian, _ = hessian_and_noise(4, seed=3)
    step = step_of_kind(kind, hessian)
    modes = normal_modes(hessian, step, damping)
    radius = np.max(np.abs(np.linalg.eigvals(companion(hessian, matrix_of(step, 4), damping))))
    # Near a double root an eigenvalue solver loses half its digits.
    assert modes.radius == pytest.approx(radius, abs=1e-7)
    assert modes.relaxation_time == pytest.approx(-1.0 / np.log(radius), rel=1e-6)
    bound = theory.mean_square_bound(modes, None)
    for factor, stable in ((0.999 * bound, True), (1.001 * bound, False)):
        edge = np.max(
            np.abs(np.linalg.eigvals(companion(hessian, factor * matrix_of(step, 4), damping)))
        )
        assert normal_modes(hessian, factor * step, damping).stable is stable
        assert bool(edge < 1.0) is stable


# --- autocovariance and windows -------------------------------------------------------------------


@pytest.mark.parametrize("damping", DAMPINGS)
@pytest.mark.parametrize("kind", ["scalar", "full"])
def test_autocovariance_is_a_power_of_the_companion_matrix(damping, kind):
    hessian, noise = hessian_and_noise(3, seed=4)
    step = step_of_kind(kind, hessian)
    law = process(hessian, noise / S, step, damping, spacing=3)
    joint = joint_covariance(hessian, noise / S, matrix_of(step, 3), damping)
    powers = companion(hessian, matrix_of(step, 3), damping)
    for lag in (0, 1, 2, 7):
        wanted = (np.linalg.matrix_power(powers, 3 * lag) @ joint)[:3, :3]
        assert np.max(np.abs(law.autocovariance(lag) - wanted)) < EXACT * np.max(
            np.abs(joint[:3, :3])
        )
        assert relative(law.autocovariance(-lag), law.autocovariance(lag).T) < EXACT


@pytest.mark.parametrize("damping", DAMPINGS)
@pytest.mark.parametrize(("window", "gap"), [(2, 0), (7, 0), (7, 4), (40, 3)])
def test_window_means_against_brute_force_sums(damping, window, gap):
    hessian, noise = hessian_and_noise(3, seed=5)
    step = step_of_kind("full", hessian)
    injected = spd(np.random.default_rng(5), 3) * 1e-3
    joint = joint_covariance(hessian, noise / S, step, damping, injected)
    matrix = companion(hessian, step, damping)

    def gamma(lag):
        value = (np.linalg.matrix_power(matrix, abs(lag)) @ joint)[:3, :3]
        return value if lag >= 0 else value.T

    def brute(lag):
        shift = lag * (window + gap)
        return sum(gamma(shift + s - t) for s in range(window) for t in range(window)) / window**2

    law = process(hessian, noise / S, step, damping, injected, spacing=window + gap, window=window)
    direct = theory.window_covariance(
        hessian, noise / S, step, window, damping=damping, injected=injected
    )
    assert relative(direct, brute(0)) < EXACT
    for lag in (0, 1, 2):
        assert np.max(np.abs(law.autocovariance(lag) - brute(lag))) < EXACT * np.max(
            np.abs(brute(0))
        )


def test_the_window_formula_of_the_theory_page():
    hessian, noise = hessian_and_noise(4, seed=6)
    step = step_of_kind("full", hessian)
    sigma = theory.stationary_covariance(hessian, noise / S, step)
    carried, identity, window = np.eye(4) - step @ hessian, np.eye(4), 25
    rest = np.linalg.inv(identity - carried)
    power = np.linalg.matrix_power(carried, window)
    weights = (window * identity - carried @ (identity - power) @ rest) @ rest
    wanted = (weights @ sigma + sigma @ weights.T - window * sigma) / window**2
    assert relative(theory.window_covariance(hessian, noise / S, step, window), wanted) < EXACT


def test_output_maps_transform_the_delivered_covariance():
    hessian, noise = hessian_and_noise(3, seed=6)
    step = step_of_kind("full", hessian)
    mapping = np.random.default_rng(0).normal(size=(3, 3))
    plain = process(hessian, noise / S, step, window=5, spacing=5)
    for scale, whole in (
        (np.asarray(1.7), 1.7 * np.eye(3)),
        (np.array([1.0, 2.0, 3.0]), np.diag([1.0, 2.0, 3.0])),
        (mapping,) * 2,
    ):
        mapped = process(hessian, noise / S, step, window=5, spacing=5, scale=scale)
        assert relative(mapped.covariance(), whole @ plain.covariance() @ whole.T) < EXACT
        assert relative(mapped.autocovariance(1), whole @ plain.autocovariance(1) @ whole.T) < EXACT


def test_long_windows_tend_to_the_sandwich_for_every_preconditioner():
    hessian, noise = hessian_and_noise(4, seed=7)
    wanted = theory.sandwich_covariance(hessian, noise, S)
    inverse = np.linalg.inv(hessian)
    assert relative(wanted, inverse @ noise @ inverse / S) < EXACT
    for kind in ("scalar", "diagonal", "full"):
        step = step_of_kind(kind, hessian)
        errors = [
            relative(T * theory.window_covariance(hessian, noise / S, step, T), wanted)
            for T in (10**5, 2 * 10**5)
        ]
        assert errors[0] < 1e-2
        assert errors[0] / errors[1] == pytest.approx(2.0, rel=1e-3)  # the rest falls like 1/T
    injected = spd(np.random.default_rng(5), 4) * 1e-3
    step = step_of_kind("full", hessian)
    back = np.linalg.inv(step)
    with_injection = inverse @ (noise / S + back @ injected @ back.T) @ inverse
    found = 10**7 * theory.window_covariance(hessian, noise / S, step, 10**7, injected=injected)
    assert relative(found, with_injection) < 1e-4


# --- tunings that are exact in discrete time ------------------------------------------------------


@pytest.mark.parametrize("damping", DAMPINGS)
@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("batch", [1, 20, 900])
def test_the_exact_full_preconditioner_has_the_posterior_as_its_law(dimension, damping, batch):
    hessian, noise = hessian_and_noise(dimension, seed=dimension)
    step = theory.exact_preconditioner(hessian, noise, N, batch, damping)
    posterior = np.linalg.inv(hessian) / N
    joint = joint_covariance(hessian, noise / batch, step, damping)
    assert relative(joint[:dimension, :dimension], posterior) < EXACT
    assert (
        relative(
            theory.stationary_covariance(hessian, noise / batch, step, damping=damping), posterior
        )
        < EXACT
    )


def test_the_exact_step_without_momentum_is_far_off_with_it():
    hessian, noise = hessian_and_noise(3)
    step = theory.exact_preconditioner(hessian, noise, N, S)
    found = theory.stationary_covariance(hessian, noise / S, step, damping=0.1)
    assert np.trace(found @ hessian) * N / 3 > 5.0


def test_theorem_2_diverges_where_the_exact_form_does_not():
    hessian, noise = hessian_and_noise(3)
    worst = np.max(np.linalg.eigvals(np.linalg.solve(noise, hessian)).real)
    for share, stable in ((0.99, True), (1.01, False)):
        batch = share * N / worst
        assert (
            normal_modes(hessian, theory.theorem_2_preconditioner(noise, N, batch)).stable is stable
        )
        assert normal_modes(hessian, theory.exact_preconditioner(hessian, noise, N, batch)).stable


@pytest.mark.parametrize("damping", DAMPINGS)
@pytest.mark.parametrize("kind", ["scalar", "diagonal", "full"])
def test_matched_injection_makes_the_posterior_the_law_of_any_step(damping, kind):
    hessian, noise = hessian_and_noise(4, seed=8)
    step = step_of_kind(kind, hessian, share=0.002 * damping)
    injected = theory.matched_injection(hessian, noise, step, N, S, damping)
    assert np.all(np.linalg.eigvalsh(matrix_of(injected, 4)) > 0)
    found = joint_covariance(
        hessian, noise / S, matrix_of(step, 4), damping, matrix_of(injected, 4)
    )[:4, :4]
    assert relative(found, np.linalg.inv(hessian) / N) < EXACT


def test_matched_injection_of_a_scalar_step_is_the_exact_langevin_noise():
    hessian, noise = hessian_and_noise(3, seed=8)
    rate = 1e-5
    injected = theory.matched_injection(hessian, noise, rate * N / 2.0, N, S)
    wanted = rate * (np.eye(3) - rate * N / 4.0 * (hessian + N / S * noise))
    assert relative(injected, wanted) < EXACT
    a, c, h = np.array([1.0, 2.0]), np.array([3.0, 1.0]), np.array([0.01, 0.02])
    whole = theory.matched_injection(np.diag(a), np.diag(c), np.diag(h), N, S)
    assert relative(np.diag(theory.matched_injection(a, c, h, N, S)), whole) < EXACT


@pytest.mark.parametrize("damping", DAMPINGS)
def test_prior_noise_keeps_the_posterior_exact_where_the_data_leave_no_noise(damping):
    hessian, noise = hessian_and_noise(4, seed=9)
    noise[:, 3] = noise[3, :] = 0.0
    prior = np.diag([1.0, 2.0, 3.0, 40.0])
    hessian = hessian + prior / N
    lifted = noise + prior / N
    step = theory.exact_preconditioner(hessian, lifted, N, S, damping)
    injected = step @ prior @ step / (N * S)
    found = joint_covariance(hessian, noise / S, step, damping, injected)[:4, :4]
    # the dead direction relaxes in thousands of steps
    assert relative(found, np.linalg.inv(hessian) / N) < 1e-8


@pytest.mark.parametrize("damping", DAMPINGS)
def test_the_sandwich_preconditioner_has_the_sandwich_as_its_law(damping):
    hessian, noise = hessian_and_noise(4, seed=10)
    step = theory.sandwich_preconditioner(hessian, N, S, damping)
    found = joint_covariance(hessian, noise / S, step, damping)[:4, :4]
    assert relative(found, theory.sandwich_covariance(hessian, noise, N)) < EXACT
    vector = theory.sandwich_preconditioner(np.diagonal(hessian), N, S, damping)
    assert (
        relative(
            np.diag(vector),
            theory.sandwich_preconditioner(np.diag(np.diagonal(hessian)), N, S, damping),
        )
        < EXACT
    )


# --- the paper's rates ----------------------------------------------------------------------------


def continuous_covariance(hessian, noise, step):
    """HAΣ + ΣAH = HCH/S by SciPy."""
    drift = step @ hessian
    return scipy.linalg.solve_continuous_lyapunov(drift, step @ noise @ step / S)


def searched_rate(function, guess):
    found = scipy.optimize.minimize_scalar(
        function, bounds=np.log(guess) + np.array([-3.0, 3.0]), options={"xatol": 1e-12}
    )
    return float(np.exp(found.x))


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_theorem_1_and_the_square_root_rate_minimise_kl_in_continuous_time(dimension):
    hessian, noise = hessian_and_noise(dimension, seed=11)
    posterior = np.linalg.inv(hessian) / N
    shapes = {"scalar": np.eye(dimension), "sqrt": np.diag(theory.square_root_shape(noise))}
    assert relative(shapes["sqrt"], np.diag(np.diagonal(noise) ** -0.5)) < EXACT
    rates = {
        "scalar": theory.theorem_1_rate(noise, N, S),
        "sqrt": theory.square_root_rate(noise, N, S),
    }
    for name, shape in shapes.items():
        best = searched_rate(
            lambda log_rate, shape=shape: kl_by_definition(
                continuous_covariance(hessian, noise, np.exp(log_rate) * shape), posterior
            ),
            1.3 * rates[name],
        )
        assert rates[name] == pytest.approx(best, rel=1e-6)
        # Where the derivative in log ε vanishes, tr(P⁻¹Σ) = D: no search, no rounding of a flat
        # minimum.
        covariance = continuous_covariance(hessian, noise, rates[name] * shape)
        assert N * np.trace(hessian @ covariance) == pytest.approx(dimension, rel=EXACT)


def test_theorem_1_is_the_corrected_formula():
    _, noise = hessian_and_noise(3)
    assert theory.theorem_1_rate(noise, N, S) == pytest.approx(
        2 * S * 3 / (N * np.trace(noise)), rel=EXACT
    )


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_the_reverse_kl_rate_minimises_the_other_kl(dimension):
    hessian, noise = hessian_and_noise(dimension, seed=12)
    posterior = np.linalg.inv(hessian) / N
    rate = theory.reverse_kl_rate(hessian, noise, N, S)
    best = searched_rate(
        lambda log_rate: kl_by_definition(
            posterior, continuous_covariance(hessian, noise, np.exp(log_rate) * np.eye(dimension))
        ),
        1.3 * rate,
    )
    assert rate == pytest.approx(best, rel=1e-6)
    covariance = continuous_covariance(hessian, noise, rate * np.eye(dimension))
    assert np.trace(np.linalg.solve(covariance, posterior)) == pytest.approx(dimension, rel=EXACT)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_theorem_2_has_the_posterior_as_its_law_in_continuous_time(dimension):
    hessian, noise = hessian_and_noise(dimension, seed=13)
    step = theory.theorem_2_preconditioner(noise, N, S)
    found = theory.stationary_covariance(hessian, noise / S, step, time="continuous")
    assert relative(found, continuous_covariance(hessian, noise, step)) < EXACT
    assert relative(found, np.linalg.inv(hessian) / N) < EXACT


def test_the_diagonal_corollary_is_optimal_exactly_when_noise_and_curvature_are_proportional():
    hessian, other = hessian_and_noise(4, seed=14)
    posterior = np.linalg.inv(hessian) / N

    def slope(noise):
        start = np.log(theory.diagonal_corollary(noise, N, S))

        def divergence(log_step):
            return kl_by_definition(
                continuous_covariance(hessian, noise, np.diag(np.exp(log_step))), posterior
            )

        return np.max(np.abs(scipy.optimize.approx_fprime(start, divergence, 1e-6)))

    assert slope(3.0 * hessian) < 1e-4
    assert slope(other) > 1e-2
    assert (
        relative(theory.diagonal_corollary(other, N, S), 2 * S / (N * np.diagonal(other))) < EXACT
    )


# --- searches on the exact covariance -------------------------------------------------------------


def discrete_covariance(hessian, noise, step, damping):
    return joint_covariance(hessian, noise, step, damping)[: len(hessian), : len(hessian)]


@pytest.mark.parametrize("objective", ["kl_qp", "kl_pq"])
@pytest.mark.parametrize("damping", [1.0, 0.3])
@pytest.mark.parametrize("form", ["scalar", "sqrt"])
@pytest.mark.parametrize("batch", [20, 300])
def test_exact_rates_minimise_the_discrete_kl(form, damping, objective, batch):
    hessian, noise = hessian_and_noise(4, seed=15)
    posterior = np.linalg.inv(hessian) / N
    shape = np.ones(4) if form == "scalar" else theory.square_root_shape(noise)

    def divergence(log_rate):
        step = np.exp(log_rate) * np.diag(shape)
        if np.max(np.abs(np.linalg.eigvals(companion(hessian, step, damping)))) >= 1.0:
            return 1e6
        covariance = discrete_covariance(hessian, noise / batch, step, damping)
        return kl_by_definition(
            *((covariance, posterior) if objective == "kl_qp" else (posterior, covariance))
        )

    rate = theory.exact_rate(
        hessian, noise, posterior, batch, shape=shape, damping=damping, objective=objective
    )
    grid = np.log(rate) + np.linspace(-6.0, 3.0, 181)
    values = [divergence(point) for point in grid]
    best = grid[int(np.argmin(values))]
    found = scipy.optimize.minimize_scalar(
        divergence, bounds=(best - 0.05, best + 0.05), options={"xatol": 1e-12}
    )
    assert rate == pytest.approx(np.exp(found.x), rel=1e-5)
    assert divergence(np.log(rate)) <= min(values) + 1e-12


def test_the_exact_rate_takes_injected_noise_into_account():
    hessian, noise = hessian_and_noise(3, seed=16)
    posterior, injected = np.linalg.inv(hessian) / N, 1e-6 * np.eye(3)

    def divergence(log_rate):
        step = np.exp(log_rate) * np.eye(3)
        covariance = joint_covariance(hessian, noise / S, step, 1.0, injected)[:3, :3]
        return kl_by_definition(covariance, posterior)

    rate = theory.exact_rate(hessian, noise, posterior, S, injected=injected)
    found = scipy.optimize.minimize_scalar(
        divergence, bounds=np.log(rate) + np.array([-1, 1]), options={"xatol": 1e-12}
    )
    assert rate == pytest.approx(np.exp(found.x), rel=1e-5)


@pytest.mark.parametrize("objective", ["kl_qp", "kl_pq"])
@pytest.mark.parametrize("damping", [1.0, 0.3])
def test_the_exact_diagonal_is_a_stationary_point_and_better_than_the_corollary(damping, objective):
    hessian, noise = hessian_and_noise(4, seed=17)
    posterior = np.linalg.inv(hessian) / N
    corollary = damping * theory.diagonal_corollary(noise, N, S)

    def divergence(log_step):
        covariance = discrete_covariance(hessian, noise / S, np.diag(np.exp(log_step)), damping)
        return kl_by_definition(
            *((covariance, posterior) if objective == "kl_qp" else (posterior, covariance))
        )

    step = theory.exact_diagonal(
        hessian, noise, posterior, S, corollary, damping=damping, objective=objective
    )
    found = np.log(step)
    slope = [(divergence(found + d) - divergence(found - d)) / 2e-4 for d in 1e-4 * np.eye(4)]
    assert np.max(np.abs(slope)) < 1e-6
    assert divergence(found) < divergence(np.log(corollary)) - 1e-3
    shape = theory.diagonal_corollary(noise, N, S)
    common = shape * theory.exact_rate(
        hessian, noise, posterior, S, shape=shape, damping=damping, objective=objective
    )
    assert divergence(found) <= divergence(np.log(common)) + 1e-12


# --- the paper's forms as the limit of small steps ------------------------------------------------


def test_discrete_covariance_tends_to_the_continuous_one_in_first_order():
    hessian, noise = hessian_and_noise(4, seed=18)
    unit = brisk_step(hessian, noise)

    def error(share):
        discrete = theory.stationary_covariance(hessian, noise / S, share * unit)
        return relative(
            theory.stationary_covariance(hessian, noise / S, share * unit, time="continuous"),
            discrete,
        )

    assert error(1.0) > 0.05
    assert error(1e-3) / error(5e-4) == pytest.approx(2.0, rel=1e-2)
    assert error(1e-7) < 1e-6


@pytest.mark.parametrize(
    ("exact", "limit"),
    [
        (
            lambda a, c, n: theory.exact_preconditioner(a, c, n, S),
            lambda a, c, n: theory.theorem_2_preconditioner(c, n, S),
        ),
        (
            lambda a, c, n: theory.exact_rate(a, c, np.linalg.inv(a) / n, S),
            lambda a, c, n: theory.theorem_1_rate(c, n, S),
        ),
        (
            lambda a, c, n: theory.exact_rate(
                a, c, np.linalg.inv(a) / n, S, shape=theory.square_root_shape(c)
            ),
            lambda a, c, n: theory.square_root_rate(c, n, S),
        ),
        (
            lambda a, c, n: theory.exact_rate(a, c, np.linalg.inv(a) / n, S, objective="kl_pq"),
            lambda a, c, n: theory.reverse_kl_rate(a, c, n, S),
        ),
    ],
    ids=["full", "scalar", "sqrt", "reverse"],
)
def test_exact_tunings_tend_to_the_papers_in_first_order(exact, limit):
    hessian, noise = hessian_and_noise(3, seed=19)

    def error(n_data):
        return relative(exact(hessian, noise, n_data), limit(hessian, noise, n_data))

    assert error(10**4) / error(2 * 10**4) == pytest.approx(2.0, rel=0.05)
    assert error(10**6) < 1e-3


def langevin_joint(hessian, noise, rate, damping):
    """(θ, v) of dθ = v dt, dv = −(μv + εAθ) dt + (ε/√S) B dW by SciPy's continuous Lyapunov
    solver.
    """
    size = len(hessian)
    zero = np.zeros((size, size))
    drift = np.block([[zero, -np.eye(size)], [rate * hessian, damping * np.eye(size)]])
    return scipy.linalg.solve_continuous_lyapunov(
        drift, np.block([[zero, zero], [zero, rate**2 / S * noise]])
    )


@pytest.mark.parametrize("damping", [0.5, 0.3, 0.05])
def test_the_corrected_momentum_equation(damping):
    hessian, noise = hessian_and_noise(4, seed=20)
    rate = 0.02
    sigma = theory.stationary_covariance(
        hessian, noise / S, rate, damping=damping, time="continuous"
    )
    joint = langevin_joint(hessian, noise, rate, damping)
    assert relative(sigma, joint[:4, :4]) < EXACT
    both = hessian @ sigma + sigma @ hessian
    twice = hessian @ hessian @ sigma - 2.0 * hessian @ sigma @ hessian + sigma @ hessian @ hessian
    # ERRATA row 3
    assert relative(damping * both + rate / (2.0 * damping) * twice, rate / S * noise) < EXACT
    # as printed: only where A and C commute
    assert relative(damping * both, rate / S * noise) > 0.01
    assert relative(joint[4:, 4:], rate / 2.0 * both) < EXACT  # ERRATA row 4
    assert np.trace(hessian @ sigma) == pytest.approx(
        rate / (2.0 * damping * S) * np.trace(noise), rel=EXACT
    )


def test_momentum_in_discrete_time_tends_to_the_corrected_equation():
    hessian, noise = hessian_and_noise(3, seed=21)

    def error(damping):
        # the step in time is μ: with ε ∝ μ² the oscillation per relaxation stays the same
        rate = 0.1 * damping**2
        discrete = theory.stationary_covariance(hessian, noise / S, rate, damping=damping)
        return relative(
            theory.stationary_covariance(
                hessian, noise / S, rate, damping=damping, time="continuous"
            ),
            discrete,
        )

    assert error(0.02) / error(0.01) == pytest.approx(2.0, rel=0.05)


def test_langevin_equations_in_both_times():
    hessian, noise = hessian_and_noise(3, seed=22)
    rate = 2e-4
    step, injected = rate * N / 2.0, np.asarray(rate)
    sigma = theory.stationary_covariance(
        hessian, noise / S, step, injected=injected, time="continuous"
    )
    right = np.eye(3) + rate * N**2 / (4.0 * S) * noise
    assert relative(N / 2.0 * (hessian @ sigma + sigma @ hessian), right) < EXACT  # ERRATA row 1
    sigma = theory.stationary_covariance(hessian, noise / S, step, injected=injected)
    left = (
        N / 2.0 * (hessian @ sigma + sigma @ hessian)
        - rate * N**2 / 4.0 * hessian @ sigma @ hessian
    )
    assert relative(left, right) < EXACT


# --- noise that depends on the spread -------------------------------------------------------------


def responding_problem(seed=23, dimension=4, n_data=60):
    """A, C, and K both as a function and as the D²×D² matrix, of a weighted linear regression."""
    features, _ = regression_data(n_data, dimension, seed)
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.5, 1.5, n_data)
    each = weights[:, None, None] * features[:, :, None] * features[:, None, :]
    data_part = each.mean(axis=0)
    hessian = data_part + 0.1 * np.eye(dimension)
    noise = spd(rng, dimension)
    matrix = np.mean([np.kron(one, one) for one in each], axis=0) - np.kron(data_part, data_part)

    def respond(covariance):
        spread = np.einsum("ni,ij,nj->n", features, covariance, features)
        return (
            features.T * (weights**2 * spread)
        ) @ features / n_data - data_part @ covariance @ data_part

    return hessian, noise, respond, matrix


def second_moment_map(hessian, step, damping, response):
    """The matrix that carries vec E[zzᵀ] one step on, without its source."""
    size = len(hessian)
    forward = companion(hessian, step, damping)
    enter = np.vstack([step, step])
    pick = np.hstack([np.eye(size), np.zeros((size, size))])
    return np.kron(forward, forward) + np.kron(enter, enter) @ response @ np.kron(pick, pick)


@pytest.mark.parametrize("damping", [1.0, 0.4])
@pytest.mark.parametrize("kind", ["scalar", "full"])
def test_state_dependent_noise_against_the_vec_kron_solve(damping, kind):
    hessian, noise, respond, matrix = responding_problem()
    step, batch, size = step_of_kind(kind, hessian, share=0.1), 5.0, len(hessian)
    whole = matrix_of(step, size)
    injected = 1e-3 * spd(np.random.default_rng(1), size)
    source = np.kron(np.ones((2, 2)), whole @ noise @ whole / batch + injected)
    carried = second_moment_map(hessian, whole, damping, matrix / batch)
    solved = np.linalg.solve(np.eye(len(carried)) - carried, source.reshape(-1)).reshape(
        2 * size, 2 * size
    )[:size, :size]
    modes = normal_modes(hessian, step, damping)
    found = theory.solve_modes_responding(
        modes, noise / batch, lambda spread: respond(spread) / batch, injected
    )
    assert relative(modes.to_theta(found), solved) < EXACT
    constant = theory.stationary_covariance(
        hessian, noise / batch, step, damping=damping, injected=injected
    )
    assert relative(constant, solved) > 0.01  # constant-noise theory is visibly another


def test_the_plain_equation_of_the_theory_page_without_momentum():
    hessian, noise, respond, matrix = responding_problem(seed=24)
    step, batch, size = step_of_kind("full", hessian, share=0.1), 5.0, len(hessian)
    carried = np.eye(size) - step @ hessian
    system = np.eye(size**2) - np.kron(carried, carried) - np.kron(step, step) @ matrix / batch
    wanted = np.linalg.solve(system, (step @ noise @ step / batch).reshape(-1)).reshape(size, size)
    modes = normal_modes(hessian, step)
    found = theory.solve_modes_responding(
        modes, noise / batch, lambda spread: respond(spread) / batch
    )
    assert relative(modes.to_theta(found), wanted) < EXACT


@pytest.mark.parametrize("damping", [1.0, 0.4])
def test_full_tuning_with_the_response_at_the_posterior_is_exact(damping):
    hessian, noise, respond, _ = responding_problem(seed=25)
    n_data, batch = 60, 3.0
    posterior = np.linalg.inv(hessian) / n_data
    step = theory.exact_preconditioner(hessian, noise + respond(posterior), n_data, batch, damping)
    modes = normal_modes(hessian, step, damping)
    found = theory.solve_modes_responding(
        modes, noise / batch, lambda spread: respond(spread) / batch
    )
    # the iteration stops at 1e-11 of its last increment
    assert relative(modes.to_theta(found), posterior) < 1e-9


@pytest.mark.parametrize("damping", [1.0, 0.4])
def test_the_law_that_was_tuned_for_is_recognised_without_asking_for_the_answer_of_the_noise(
    damping,
):
    hessian, noise, respond, _ = responding_problem(seed=25)
    n_data, batch, calls = 60, 3.0, []
    posterior = np.linalg.inv(hessian) / n_data
    step = theory.exact_preconditioner(hessian, noise + respond(posterior), n_data, batch, damping)
    modes = normal_modes(hessian, step, damping)

    def response(spread):
        calls.append(1)
        return respond(spread) / batch

    found = theory.solve_modes_responding(
        modes, noise / batch, response, guess=(posterior, respond(posterior) / batch)
    )
    assert relative(modes.to_theta(found), posterior) < EXACT and not calls
    other = 1.001 * posterior
    found = theory.solve_modes_responding(
        modes, noise / batch, response, guess=(other, respond(other) / batch)
    )
    assert relative(modes.to_theta(found), posterior) < 1e-9 and calls


@pytest.mark.parametrize("damping", [1.0, 0.4])
@pytest.mark.parametrize("factor", [1.001, 1.2])
def test_a_solution_that_is_no_covariance_is_not_taken_for_a_law(damping, factor):
    """Beyond the bound the linear equation still has a solution, but a step makes more of it than
    it was.
    """
    hessian, noise, respond, matrix = responding_problem(seed=26)
    step, batch, size = step_of_kind("full", hessian), 2.0, len(hessian)

    def response(spread):
        return respond(spread) / batch

    modes = normal_modes(hessian, step, damping)
    modes = normal_modes(
        hessian, factor * theory.mean_square_bound(modes, response, 10_000, 1e-12) * step, damping
    )
    assert modes.stable
    across = (
        np.kron(modes.basis.T, modes.basis.T) @ matrix @ np.kron(modes.basis, modes.basis) / batch
    )
    divisor = modes.divisor("discrete", diagonal=False).reshape(-1)
    solution = np.linalg.solve(
        np.diag(divisor) - across, modes.gradient_noise(noise / batch).reshape(-1)
    ).reshape(size, size)
    guess = modes.to_theta((solution + solution.T) / 2.0)
    assert (
        theory.solve_modes_responding(
            modes, noise / batch, response, guess=(guess, response(guess))
        )
        is None
    )


@pytest.mark.parametrize("damping", [1.0, 0.4, 0.1])
@pytest.mark.parametrize("kind", ["scalar", "full"])
def test_the_mean_square_bound_is_where_the_second_moment_map_reaches_radius_one(damping, kind):
    hessian, noise, respond, matrix = responding_problem(seed=26)
    step, batch = step_of_kind(kind, hessian), 2.0
    whole = matrix_of(step, len(hessian))

    def radius(factor):
        return np.max(
            np.abs(
                np.linalg.eigvals(
                    second_moment_map(hessian, factor * whole, damping, matrix / batch)
                )
            )
        )

    plain = 2.0 * (2.0 - damping) / np.max(normal_modes(hessian, step, damping).rates)
    wanted = scipy.optimize.brentq(lambda factor: radius(factor) - 1.0, 1e-3 * plain, plain)

    def response(spread):
        return respond(spread) / batch

    modes = normal_modes(hessian, step, damping)
    assert wanted < 0.9 * plain  # the response matters here
    assert theory.mean_square_bound(modes, response) == pytest.approx(wanted, rel=2e-3)
    assert theory.mean_square_bound(
        modes, response, rounds=10_000, tolerance=1e-12
    ) == pytest.approx(wanted, rel=1e-8)
    for factor, stable in ((0.98, True), (1.0 - 1e-6, True), (1.0 + 1e-6, False), (1.02, False)):
        trial = normal_modes(hessian, factor * wanted * step, damping)
        solved = theory.solve_modes_responding(trial, noise / batch, response)
        assert (solved is not None) is stable


def test_the_answer_of_the_noise_is_asked_for_half_as_often_as_the_series_would():
    """The series shrinks by the largest eigenvalue r of K/d at a time; conjugate gradients by
    (1−√(1−r))/(1+√(1−r)) or better.
    """
    hessian, noise, respond, matrix = responding_problem(dimension=12, n_data=300)
    step, batch, calls = step_of_kind("full", hessian, share=0.2), 2.0, []
    modes = normal_modes(hessian, step)
    found = theory.solve_modes_responding(
        modes, noise / batch, lambda spread: calls.append(1) or respond(spread) / batch
    )
    driven = (
        np.kron(modes.basis.T, modes.basis.T) @ matrix @ np.kron(modes.basis, modes.basis) / batch
    )
    divisor = modes.divisor("discrete", diagonal=False).reshape(-1)
    assert found.reshape(-1) == pytest.approx(
        np.linalg.solve(np.diag(divisor) - driven, modes.gradient_noise(noise / batch).reshape(-1)),
        rel=1e-8,
    )
    shrinkage = np.max(np.linalg.eigvals(driven / divisor[:, None]).real)
    series = np.log(1e-11) / np.log(shrinkage)
    assert shrinkage > 0.3 and len(calls) < 0.6 * series


def test_a_response_across_the_diagonal_is_followed_also_from_diagonals():
    rng = np.random.default_rng(3)
    each = [spd(rng, 3) for _ in range(5)]
    center = np.mean(each, axis=0)

    def respond(covariance):
        whole = np.diag(covariance) if covariance.ndim == 1 else covariance
        return 0.5 * (
            np.mean([one @ whole @ one for one in each], axis=0) - center @ whole @ center
        )

    hessian, noise = np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.5, 2.0])
    from_diagonals = theory.solve_modes_responding(normal_modes(hessian, 0.1), noise, respond)
    modes = normal_modes(np.diag(hessian), 0.1)
    from_matrices = theory.solve_modes_responding(modes, np.diag(noise), respond)
    found = normal_modes(hessian, 0.1).to_theta(from_diagonals)
    assert relative(found, modes.to_theta(from_matrices)) < 1e-9
    assert np.max(np.abs(found - np.diag(np.diagonal(found)))) > 1e-4


# --- distances and Monte-Carlo error --------------------------------------------------------------


def test_kl_in_one_dimension_against_numeric_integration():
    q, p = Gaussian([0.3], [[2.0]]), Gaussian([-0.5], [[0.7]])

    def log_density(x, law):
        return -0.5 * (x - law.mean[0]) ** 2 / law.covariance[0, 0] - 0.5 * np.log(
            2 * np.pi * law.covariance[0, 0]
        )

    value, _ = scipy.integrate.quad(
        lambda x: np.exp(log_density(x, q)) * (log_density(x, q) - log_density(x, p)),
        -20,
        20,
        epsabs=1e-12,
        epsrel=1e-12,
    )
    assert theory.kl(q, p) == pytest.approx(value, rel=1e-9)


def test_kl_is_zero_for_equals_positive_else_and_invariant_under_maps():
    rng = np.random.default_rng(27)
    q, p = Gaussian(rng.normal(size=5), spd(rng, 5)), Gaussian(rng.normal(size=5), spd(rng, 5))
    assert theory.kl(q, q) == pytest.approx(0.0, abs=1e-12)
    forward, backward = theory.kl(q, p), theory.kl(p, q)
    assert forward > 0 and backward > 0 and abs(forward - backward) > 1e-3
    shift = q.mean - p.mean
    wanted = kl_by_definition(q.covariance, p.covariance) + 0.5 * shift @ np.linalg.solve(
        p.covariance, shift
    )
    assert forward == pytest.approx(wanted, rel=EXACT)
    mapping, offset = rng.normal(size=(5, 5)), rng.normal(size=5)
    q2, p2 = (
        Gaussian(mapping @ g.mean + offset, mapping @ g.covariance @ mapping.T) for g in (q, p)
    )
    assert theory.kl(q2, p2) == pytest.approx(forward, rel=1e-8)


def test_kl_of_diagonals_is_that_of_the_matrices():
    rng = np.random.default_rng(28)
    (m, n), (v, w) = rng.normal(size=(2, 4)), rng.uniform(0.5, 2, size=(2, 4))
    whole = theory.kl(Gaussian(m, np.diag(v)), Gaussian(n, np.diag(w)))
    assert theory.kl(Gaussian(m, v), Gaussian(n, w)) == pytest.approx(whole, rel=EXACT)
    assert theory.kl(Gaussian(m, v), Gaussian(n, np.diag(w))) == pytest.approx(whole, rel=EXACT)
    assert theory.kl_covariance(v, w) == pytest.approx(
        kl_by_definition(np.diag(v), np.diag(w)), rel=EXACT
    )


def test_kl_of_a_degenerate_law_is_infinite():
    flat, round_ = np.diag([1.0, 0.0]), np.eye(2)
    assert (
        theory.kl_covariance(flat, round_) == np.inf
        and theory.kl_covariance(round_, flat) == np.inf
    )
    assert theory.kl_covariance(np.array([1.0, 0.0]), np.ones(2)) == np.inf
    assert theory.kl_covariance(np.ones(2), np.array([1.0, 0.0])) == np.inf


def test_the_floor_of_independent_draws():
    hessian, noise = hessian_and_noise(5, seed=29)
    step = np.linalg.inv(hessian)  # M = 0: every state is independent of the one before
    law = process(hessian, noise / S, step)
    assert theory.monte_carlo_floor(law, 1000) == pytest.approx(5 * 8 / 4000, rel=1e-8)
    far = process(hessian, noise / S, brisk_step(hessian, noise), damping=0.5, spacing=500)
    assert theory.monte_carlo_floor(far, 1000) == pytest.approx(5 * 8 / 4000, rel=1e-6)


@pytest.mark.parametrize(
    "delivery",
    [
        {"spacing": 1},
        {"spacing": 3},
        {"spacing": 2, "damping": 0.3},
        {"spacing": 6, "window": 5},
        {"spacing": 6, "window": 6, "damping": 0.3},
    ],
    ids=str,
)
def test_the_floor_and_the_standard_errors_against_sums_over_lags(delivery):
    hessian, noise = hessian_and_noise(3, seed=30)
    law = process(hessian, noise / S, brisk_step(hessian, noise), **delivery)
    root = np.linalg.inv(scipy.linalg.sqrtm(law.covariance()).real)
    total, errors = 0.0, np.zeros((3, 3))
    for lag in range(-800, 801):
        gamma = law.autocovariance(lag)
        whitened = root @ gamma @ root
        total += (
            np.trace(whitened) / 2 + (np.trace(whitened) ** 2 + np.trace(whitened @ whitened)) / 4
        )
        errors += np.multiply.outer(np.diagonal(gamma), np.diagonal(gamma)) + gamma * gamma.T
    assert theory.monte_carlo_floor(law, 7) == pytest.approx(total / 7, rel=1e-6)
    assert relative(theory.covariance_standard_error(law, 7), np.sqrt(errors / 7)) < 1e-6


def simulated(hessian, noise, step, damping, spacing, window, draws, replicates, rng):
    """Draws of the Gaussian recursion itself from its stationary law: (replicates, draws, D)."""
    size = len(hessian)
    joint = joint_covariance(hessian, noise, step, damping)
    values, vectors = np.linalg.eigh(joint)
    state = rng.normal(size=(replicates, 2 * size)) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    position, velocity = state[:, :size], state[:, size:]
    root = np.linalg.cholesky(noise)
    out = np.empty((replicates, draws, size))
    for draw in range(draws):
        total = np.zeros_like(position)
        for inner in range(spacing):
            slope = position @ hessian + rng.normal(size=position.shape) @ root.T
            velocity = (1.0 - damping) * velocity - slope @ step
            position = position + velocity
            if inner < window:
                total += position
        out[:, draw] = position if window == 1 else total / window
    return out


@pytest.mark.parametrize(
    ("damping", "spacing", "window"),
    [(1.0, 1, 1), (0.3, 2, 1), (1.0, 5, 4)],
    ids=["iterates", "momentum", "windows"],
)
def test_the_floor_and_the_standard_errors_against_simulation(damping, spacing, window):
    hessian, noise = hessian_and_noise(2, seed=31)
    step = step_of_kind("full", hessian, share=0.3)
    law = process(hessian, noise / S, step, damping, spacing=spacing, window=window)
    draws, replicates = 1500, 3000
    series = simulated(
        hessian,
        noise / S,
        step,
        damping,
        spacing,
        window,
        draws,
        replicates,
        np.random.default_rng(0),
    )
    means = series.mean(axis=1)
    centred = series - means[:, None]
    covariances = np.einsum("rti,rtj->rij", centred, centred) / draws
    truth = Gaussian(np.zeros(2), law.covariance())
    distances = np.array(
        [theory.kl(Gaussian(m, c), truth) for m, c in zip(means, covariances, strict=True)]
    )
    error = distances.std(ddof=1) / np.sqrt(replicates)
    floor = theory.monte_carlo_floor(law, draws)
    # The floor is the leading order in 1/n; the next one is smaller by about the floor itself.
    assert abs(distances.mean() - floor) < 4.0 * error + 2.0 * floor**2
    assert error < 0.03 * floor
    predicted = theory.covariance_standard_error(law, draws)
    found = covariances.std(axis=0, ddof=1)
    assert np.max(np.abs(found / predicted - 1.0)) < 5.0 / np.sqrt(2.0 * replicates) + 2.0 * floor


def test_long_relaxation_is_summed_in_strides_without_loss():
    hessian = np.diag([1.0, 1e-4])
    law = process(hessian, np.eye(2) / S, np.asarray(0.1), damping=0.5)
    assert law.modes.relaxation_time > 1e4
    modes = law.modes
    decay = [np.max(np.abs(np.linalg.eigvals(matrix))) for matrix in modes.companion]
    floor = theory.monte_carlo_floor(law, 10**6)
    # Each slow mode adds (1/2n)·2τ from its mean and (1/4n)·2·τ from its variance.
    slow = -1.0 / np.log(max(decay))
    assert floor == pytest.approx((slow + slow / 2.0) / 10**6, rel=0.02)


def test_gaussians_refuse_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match="does not fit"):
        Gaussian(np.zeros(2), np.eye(3))


@pytest.mark.parametrize("strength", [3.0, 10.0])
def test_a_rate_that_its_own_noise_would_break_is_shrunk_to_the_best(strength):
    """The rate that is best for constant noise diverges once the noise answers to it; the best one
    lies below the bound.
    """
    hessian = np.diag([1.0, 1e-3])

    def respond(spread):
        return strength * np.trace(hessian @ spread) * hessian

    curvature = orn.Curvature(np.zeros(2), hessian, hessian, 1000, noise_response=respond)
    constant = orn.Curvature(np.zeros(2), hessian, hessian, 1000)
    sampler = orn.ConstantSGD("scalar", objective="kl_pq")
    assert not sampler.tune(constant, batch_size=10).predict(curvature).stable
    dynamics = sampler.tune(curvature, batch_size=10)
    assert any("best stable one" in note for note in dynamics.notes)
    best = dynamics.predict(curvature).kl_pq
    for factor in (0.8, 0.95, 1.03):
        other = orn.ConstantSGD("scalar", step_size=factor * float(dynamics.preconditioner)).tune(
            curvature, batch_size=10
        )
        assert other.predict(curvature).kl_pq > best
