"""What is predicted of a Dynamics, against the companion matrix and SciPy's Lyapunov solver."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import (
    companion,
    hessian_and_noise,
    joint_covariance,
    kl_by_definition,
    matrix_of,
    relative,
)

import ornstein as orn

SIZE, N_DATA, BATCH = 3, 200, 20
HESSIAN, NOISE = hessian_and_noise(SIZE)
CURVATURE = orn.Curvature(mode=np.zeros(SIZE), hessian=HESSIAN, noise=NOISE, n_data=N_DATA)
STEPS = {
    "a number": 0.1,
    "a diagonal": np.array([0.05, 0.1, 0.2]),
    "a matrix": 0.1 * np.linalg.inv(NOISE),
}
# What stands for S: without replacement the covariance of a mean is smaller by (N−S)/(N−1).
EFFECTIVE = {"replacement": BATCH, "without-replacement": BATCH * (N_DATA - 1) / (N_DATA - BATCH)}


@pytest.mark.parametrize("scheme", EFFECTIVE)
@pytest.mark.parametrize("damping", [1.0, 0.3])
@pytest.mark.parametrize("form", STEPS)
def test_the_law_is_that_of_the_companion_matrix(form, damping, scheme):
    injected = 1e-4 * np.eye(SIZE)
    dynamics = orn.Dynamics(STEPS[form], BATCH, scheme, damping=damping, injected=injected)
    step, found = matrix_of(STEPS[form], SIZE), dynamics.predict(CURVATURE)
    joint = joint_covariance(HESSIAN, NOISE / EFFECTIVE[scheme], step, damping, injected)
    wanted = joint[:SIZE, :SIZE]
    assert relative(found.covariance, wanted) < 1e-9
    posterior = np.linalg.inv(HESSIAN) / N_DATA
    assert found.kl_qp == pytest.approx(kl_by_definition(wanted, posterior), rel=1e-7)
    assert found.kl_pq == pytest.approx(kl_by_definition(posterior, wanted), rel=1e-7)
    radius = np.abs(np.linalg.eigvals(companion(HESSIAN, step, damping))).max()
    assert found.relaxation_time == pytest.approx(-1.0 / np.log(radius), rel=1e-9)


@pytest.mark.parametrize("damping", [1.0, 0.3])
@pytest.mark.parametrize("form", STEPS)
def test_the_bound_is_where_the_companion_matrix_stops_contracting(form, damping):
    def at(factor):
        """The largest eigenvalue of F, and whether that is predicted to be stable."""
        step = factor * bound * (1.0 if np.ndim(STEPS[form]) == 0 else STEPS[form])
        found = orn.Dynamics(step, BATCH, damping=damping).predict(CURVATURE)
        radius = np.abs(np.linalg.eigvals(companion(HESSIAN, matrix_of(step, SIZE), damping))).max()
        return radius, found.stable, found.covariance

    bound = orn.Dynamics(STEPS[form], BATCH, damping=damping).predict(CURVATURE).step_bound
    radius, stable, covariance = at(0.999)
    assert radius < 1.0 and stable and covariance is not None
    radius, stable, covariance = at(1.001)
    assert radius > 1.0 and not stable and covariance is None


def test_control_variates_leave_the_injected_noise_alone():
    """Where the noise does not depend on θ, all of it cancels."""
    injected = 1e-4 * np.eye(SIZE)
    dynamics = orn.Dynamics(0.1, BATCH, injected=injected, control_variates=True)
    joint = joint_covariance(HESSIAN, 0.0 * NOISE, 0.1 * np.eye(SIZE), 1.0, injected)
    assert relative(dynamics.predict(CURVATURE).covariance, joint[:SIZE, :SIZE]) < 1e-9


def test_a_rate_that_changes_has_no_stationary_law():
    found = orn.Dynamics(0.1, BATCH, schedule=lambda steps: 1.0 / (1.0 + steps)).predict(CURVATURE)
    assert found.stable and found.covariance is None and np.isnan(found.kl_qp)
    assert "the rate changes" in found.approximate


def test_small_steps_have_the_law_of_continuous_time():
    """The two differ in first order of the step: a tenth of it leaves a tenth of the difference."""

    def difference(step):
        dynamics = orn.Dynamics(step, BATCH)
        laws = [dynamics.predict(CURVATURE, time).covariance for time in ("discrete", "continuous")]
        return relative(*laws)

    assert difference(0.001) == pytest.approx(0.1 * difference(0.01), rel=0.05)


@pytest.mark.parametrize(
    "arrays",
    [{"preconditioner": np.ones(2)}, {"injected": np.eye(2)}, {"output_map": np.ones((SIZE, 2))}],
    ids=lambda arrays: next(iter(arrays)),
)
def test_arrays_of_another_length_are_refused(arrays):
    dynamics = orn.Dynamics(**{"preconditioner": 0.1, "batch_size": BATCH, **arrays})
    with pytest.raises(orn.InputError, match=f"{next(iter(arrays))} has shape .* 3 parameters"):
        dynamics.predict(CURVATURE)


@pytest.mark.parametrize(
    ("name", "value"),
    [("damping", "0.5"), ("damping", 0.0), ("window", 2.5), ("window", 0), ("gap", "1")],
)
def test_what_is_no_number_of_steps_or_damping_is_refused(name, value):
    with pytest.raises(orn.InputError, match=f"^{name} must .*; got"):
        orn.Dynamics(0.1, BATCH, **{name: value})
