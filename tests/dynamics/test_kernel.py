"""One step of the kernel, against the recursion written out."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import spd

import ornstein as orn
from ornstein.compute.precision import width

SIZE = 3
RNG = np.random.default_rng(0)
FORMS = {"a number": 0.3, "a diagonal": np.array([0.2, 0.5, 0.1]), "a matrix": 0.1 * spd(RNG, SIZE)}
COVARIANCES = {
    "none": None,
    "a number": 0.04,
    "a diagonal": np.array([0.01, 0.09, 0.0]),
    "a matrix": 0.01 * spd(RNG, SIZE),
}


def matrix(value):
    return np.diag(np.broadcast_to(value, SIZE)) if np.ndim(value) < 2 else value


def stepped(dynamics, state, slope, normal, factor):
    """The state after one step at which the gradient is `slope`."""
    with width("float64"):
        arrays = {name: jnp.asarray(value) for name, value in dynamics.arrays().items()}
        new = dynamics.kernel().step(arrays, state, lambda _: slope, normal, factor)
    return {name: np.asarray(value) for name, value in new.items()}


@pytest.mark.parametrize("damping", [1.0, 0.2])
@pytest.mark.parametrize("noise", COVARIANCES)
@pytest.mark.parametrize("form", FORMS)
def test_a_step_is_the_recursion(form, noise, damping):
    """v' = (1−μ) v − f Hĝ + √f ξ and θ' = θ + v', and ξ has the covariance R."""
    injected, factor = COVARIANCES[noise], 0.25
    dynamics = orn.Dynamics(FORMS[form], 10, damping=damping, injected=injected)
    state = {"position": np.array([1.0, -2.0, 0.5])}
    if damping != 1.0:
        state["velocity"] = np.array([0.1, 0.3, -0.2])
    slope = np.array([2.0, -1.0, 3.0])
    kick = (1.0 - damping) * state.get("velocity", 0.0) - factor * matrix(FORMS[form]) @ slope

    quiet = stepped(dynamics, state, slope, np.zeros(SIZE), factor)
    np.testing.assert_allclose(quiet["position"], state["position"] + kick, rtol=1e-13)
    if damping != 1.0:
        np.testing.assert_allclose(quiet["velocity"], kick, rtol=1e-13)

    moved = [stepped(dynamics, state, slope, unit, factor)["position"] for unit in np.eye(SIZE)]
    root = (np.array(moved) - quiet["position"]).T
    wanted = 0.0 if injected is None else factor * matrix(injected)
    np.testing.assert_allclose(root @ root.T, np.broadcast_to(wanted, (SIZE, SIZE)), atol=1e-12)
    assert dynamics.kernel().needs_normals is (injected is not None)


def test_noise_of_the_form_hgh_enters_with_the_gradient():
    """One product with H then does for both, with the same covariance."""
    step = FORMS["a matrix"]
    dynamics = orn.Dynamics(step, 10, injected=step @ np.diag([1.0, 2.0, 0.5]) @ step)
    assert set(dynamics.arrays()) == {"preconditioner", "gradient_root"}
    state = {"position": np.zeros(SIZE)}
    moved = [stepped(dynamics, state, np.zeros(SIZE), unit, 0.25)["position"] for unit in np.eye(3)]
    np.testing.assert_allclose(np.array(moved).T @ moved, 0.25 * dynamics.injected, atol=1e-12)


def test_kernels_of_the_same_form_are_equal_and_share_compiled_code():
    one, other = (orn.Dynamics(step * np.eye(2), 10).kernel() for step in (0.1, 0.2))
    assert one == other and hash(one) == hash(other)
    assert one != orn.Dynamics(0.1, 10).kernel()
    assert one != orn.Dynamics(0.1 * np.eye(2), 10, damping=0.5).kernel()
