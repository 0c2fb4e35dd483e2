"""SGFS: every preconditioner, the user's noise, the bound on the step, both tunings."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import hessian_and_noise, matrix_of, relative
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
from ornstein import theory

FORMS = ("scalar", "diagonal", "full")


def written_down(dimension=4, n_data=2000, seed=0):
    hessian, noise = hessian_and_noise(dimension, seed)
    return orn.Curvature(np.zeros(dimension), hessian, noise, n_data)


@pytest.mark.parametrize("form", FORMS)
def test_one_step_is_the_update_of_its_paper(form):
    """θ' = θ − εHĝ + √ε H E W on all minibatches; the noise is H(εEEᵀ)H with the H of the step
    taken.
    """
    _, _, _, curvature = tiny()
    factor, epsilon = np.array([[0.5, 0.1], [0.0, 0.3]]), 0.05
    dynamics = orn.SGFS(form, step_size=epsilon, injected=factor).tune(curvature, batch_size=2)
    shift = np.array([0.2, 0.4])
    mean, covariance = one_step(dynamics, shift)
    gradient, spread = tiny_minibatch_moments(curvature.mode + shift, "replacement", 2)
    step = matrix_of(dynamics.preconditioner, 2)
    h = step / epsilon
    assert np.allclose(mean[:2], shift - step @ gradient, atol=1e-12)
    assert (
        relative(covariance[:2, :2], step @ spread @ step + epsilon * h @ factor @ factor.T @ h)
        < 1e-10
    )


@pytest.mark.parametrize("damping", [1.0, 0.3])
@pytest.mark.parametrize("batch", [1, 20])
@pytest.mark.parametrize("injected", [None, 0.01, "diagonal", "matrix"], ids=str)
def test_the_full_discrete_form_has_the_posterior_as_its_law(injected, batch, damping):
    rng = np.random.default_rng(1)
    noise = {"diagonal": rng.uniform(0.01, 0.1, 4), "matrix": 0.02 * rng.normal(size=(4, 6))}.get(
        injected, injected
    )
    for curvature in (written_down(), quadratic()[1]):
        given = noise if np.ndim(noise) == 0 else noise[: curvature.dim]
        dynamics = orn.SGFS(injected=given, damping=damping).tune(curvature, batch)
        assert dynamics.predict(curvature).kl_qp < 1e-9


def test_the_discrete_form_is_the_one_of_the_theory_page():
    """H = 2(εA + (εN/S)C + N EEᵀ)⁻¹, and the step is εH."""
    curvature, epsilon, batch = written_down(), 0.003, 20
    dynamics = orn.SGFS(step_size=epsilon, injected=0.05).tune(curvature, batch)
    n = curvature.n_data
    inverse = (
        epsilon * curvature.hessian
        + epsilon * n / batch * curvature.noise
        + n * 0.05**2 * np.eye(4)
    )
    assert relative(dynamics.preconditioner, 2.0 * epsilon * np.linalg.inv(inverse)) < 1e-10


@pytest.mark.parametrize("scheme", ["replacement", "without-replacement"])
def test_the_papers_forms_for_every_batch_size(scheme):
    """H = (2/N)((ε/S)C + EEᵀ)⁻¹, its diagonal and its scalar form, with S/f for S."""
    curvature, epsilon, factor = written_down(), 0.003, np.array([0.05, 0.1, 0.02, 0.2])
    size = 400
    batch = size if scheme == "replacement" else size * (2000 - 1) / (2000 - size)
    total = epsilon / batch * curvature.noise + np.diag(factor**2)
    wanted = {
        "full": 2.0 / 2000 * np.linalg.inv(total),
        "diagonal": 2.0 / 2000 / np.diagonal(total),
        "scalar": 2.0 * 4 / 2000 / np.trace(total),
    }
    for form, h in wanted.items():
        sampler = orn.SGFS(form, step_size=epsilon, injected=factor, tuning="continuous")
        assert relative(sampler.tune(curvature, size, scheme).preconditioner, epsilon * h) < 1e-10
    full = orn.SGFS("full", step_size=epsilon, injected=factor, tuning="continuous").tune(
        curvature, size, scheme
    )
    assert full.predict(curvature, time="continuous").kl_qp < 1e-10


def test_defaults_are_theorem_1_and_as_much_noise_again():
    """ε = 2SD/(N tr C) and EEᵀ = (ε/S)C, with which the law does not depend on ε at all."""
    curvature = written_down()
    dynamics = orn.SGFS().tune(curvature, 20)
    epsilon = theory.theorem_1_rate(curvature.noise, 2000, 20)
    assert f"ε = {epsilon:.6g}" in dynamics.notes[0]
    step = dynamics.preconditioner
    assert (
        relative(step, 2.0 * np.linalg.inv(curvature.hessian + 2.0 * 2000 / 20 * curvature.noise))
        < 1e-10
    )
    assert relative(dynamics.injected, step @ curvature.noise @ step / 20) < 1e-10


@pytest.mark.parametrize("form", ["scalar", "diagonal"])
def test_searched_steps_beat_the_papers_and_their_neighbours(form):
    for curvature in (written_down(), quadratic()[1]):
        searched = orn.SGFS(form, injected=0.02).tune(curvature, 20)
        best = searched.predict(curvature).kl_qp
        paper = (
            orn.SGFS(form, injected=0.02, tuning="continuous")
            .tune(curvature, 20)
            .predict(curvature)
            .kl_qp
        )
        assert best <= paper + 1e-9
        epsilon = float(searched.notes[0].split("=")[1])
        for factor in (0.95, 1.05):
            step = searched.preconditioner * factor
            scaled = step if step.ndim else np.full(curvature.dim, float(step))
            other = orn.Dynamics(step, 20, injected=scaled**2 * 0.02**2 / epsilon)
            assert other.predict(curvature).kl_qp > best - 1e-6


@pytest.mark.parametrize("tuning", ["continuous", "discrete"])
def test_max_step_bounds_the_preconditioner_and_reports_where_it_is_not_needed(tuning):
    """EEᵀ_kk = 2/(h_max N) − (ε/S)C_kk where positive."""
    curvature, epsilon, batch = written_down(), 0.003, 20
    wanted = epsilon / batch * np.sort(np.diagonal(curvature.noise))
    highest = 2.0 / (2000 * (wanted[1] + wanted[2]) / 2.0)  # two parameters need noise, two do not
    dynamics = orn.SGFS("diagonal", epsilon, max_step=highest, tuning=tuning).tune(curvature, batch)
    extra = np.maximum(2.0 / (highest * 2000) - epsilon / batch * np.diagonal(curvature.noise), 0.0)
    assert (
        relative(
            np.diagonal(matrix_of(dynamics.injected, 4)),
            dynamics.preconditioner**2 * extra / epsilon,
        )
        < 1e-10
    )
    assert np.all(dynamics.preconditioner <= epsilon * highest * (1 + 1e-9))
    if tuning == "continuous":
        assert np.allclose(dynamics.preconditioner[extra > 0], epsilon * highest)
    quiet = [name for name, noise in zip(curvature.names, extra, strict=True) if noise == 0.0]
    note = next(note for note in dynamics.notes if "none is injected" in note)
    assert len(quiet) == 2 and all(name in note for name in quiet)
    assert not any(
        "none is injected" in note
        for note in orn.SGFS("diagonal", epsilon, max_step=0.1 * highest)
        .tune(curvature, batch)
        .notes
    )


def test_max_step_of_the_full_form_bounds_every_direction_and_stays_exact():
    curvature, epsilon, batch = written_down(), 0.003, 20
    values = epsilon / batch * np.linalg.eigvalsh(curvature.noise)
    highest = 2.0 / (2000 * (values[1] + values[2]) / 2.0)
    dynamics = orn.SGFS("full", epsilon, max_step=highest).tune(curvature, batch)
    assert np.linalg.eigvalsh(dynamics.preconditioner)[-1] <= epsilon * highest * (1 + 1e-9)
    assert dynamics.predict(curvature).kl_qp < 1e-9
    assert any("2 of 4 eigenvectors" in note for note in dynamics.notes)


def test_injected_noise_keeps_directions_alive_that_the_data_leave_silent():
    """A column without noise is sampled by E, where constant SGD needs the prior's help."""
    curvature = orn.Curvature(np.zeros(2), np.eye(2), np.diag([1.0, 0.0]), 1000)
    with pytest.raises(orn.CurvatureError):
        orn.ConstantSGD().tune(curvature, 20)
    assert orn.SGFS(injected=0.05).tune(curvature, 20).predict(curvature).kl_qp < 1e-9


@pytest.mark.parametrize(
    "sampler",
    [
        orn.SGFS(),
        orn.SGFS("diagonal", injected=0.1),
        orn.SGFS("scalar", tuning="continuous"),
        orn.SGFS(max_step=5.0, damping=0.4),
    ],
    ids=["full", "diagonal", "scalar", "bounded with momentum"],
)
def test_the_covariance_is_as_predicted_on_a_quadratic_loss(sampler):
    model, curvature = quadratic()
    assert_law(run(model, curvature, sampler, 100))


def test_the_covariance_is_as_predicted_on_logistic_regression():
    model, curvature = logistic()
    posterior = run(model, curvature, orn.SGFS(), 400)
    assert_law(posterior)
    assert posterior.prediction.kl_qp < 1e-9


def test_doubled_noise_is_noticed():
    """Negative control: E of twice the variance, the preconditioner as it was."""
    model, curvature = quadratic()
    dynamics = orn.SGFS().tune(curvature, 100)
    posterior = run(model, curvature, dynamics, None)
    louder = orn.Dynamics(dynamics.preconditioner, 100, injected=2.0 * dynamics.injected)
    assert_not_law(posterior, louder.predict(curvature).covariance)


@pytest.mark.parametrize(
    "options",
    [
        {"preconditioner": "sqrt"},
        {"step_size": -1.0},
        {"tuning": "exact"},
        {"damping": 0.0},
        {"max_step": 0.0},
        {"max_step": 1.0, "injected": 0.1},
    ],
    ids=str,
)
def test_bad_settings_are_refused(options):
    with pytest.raises(orn.InputError):
        orn.SGFS(**options)


@pytest.mark.parametrize("injected", [np.ones(3), np.ones((3, 4)), np.nan])
def test_noise_of_a_wrong_shape_is_refused(injected):
    with pytest.raises(orn.InputError, match="injected"):
        orn.SGFS(injected=injected).tune(written_down(), 20)
