"""NumPy arrays that a likelihood takes from outside: the same numbers in both widths."""

from __future__ import annotations

import dataclasses
import types
from functools import partial

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ornstein as orn
from ornstein.compute.precision import width
from ornstein.model.closed_over import OwnArrays, with_own_arrays

# No float32 holds these numbers: a constant made in the narrow width is seen in the wide one.
PRECISION = np.array([[2.0, 0.3], [0.3, 1.0]]) * 1.1
DATA = np.random.default_rng(0).normal(size=(200, 2))


@dataclasses.dataclass(frozen=True)
class Scaled:
    matrix: np.ndarray

    def __call__(self, theta, example):
        return -0.5 * (theta - example) @ self.matrix @ (theta - example)

    def method(self, theta, example):
        return self(theta, example)


def global_function(theta, example):
    return -0.5 * (theta - example) @ PRECISION @ (theta - example)


def forms():
    """The ways in which a function can name an array."""
    matrix = PRECISION.copy()
    inside = {"deep": [types.SimpleNamespace(matrix=matrix)]}
    module = types.ModuleType("settings_of_the_user")
    module.__file__ = "settings_of_the_user.py"
    module.matrix = matrix

    def helper(theta, example):
        return (theta - example) @ matrix @ (theta - example)

    def default(theta, example, matrix=matrix):
        return -0.5 * (theta - example) @ matrix @ (theta - example)

    return {
        "directly": lambda t, e: -0.5 * (t - e) @ matrix @ (t - e),
        "as a JAX array": lambda t, e: -0.5 * (t - e) @ jnp.asarray(matrix) @ (t - e),
        "a global": global_function,
        "through a helper": lambda t, e: -0.5 * helper(t, e),
        "a default value": default,
        "in containers": lambda t, e: -0.5 * (t - e) @ inside["deep"][0].matrix @ (t - e),
        "a partial": partial(lambda m, t, e: -0.5 * (t - e) @ m @ (t - e), matrix),
        "an object": Scaled(matrix),
        "a method": Scaled(matrix).method,
        "a module": lambda t, e: -0.5 * (t - e) @ module.matrix @ (t - e),
        "compiled": jax.jit(lambda t, e: -0.5 * (t - e) @ matrix @ (t - e)),
    }


@pytest.mark.parametrize("order", [("float64", "float32"), ("float32", "float64")], ids="→".join)
@pytest.mark.parametrize("form", forms())
def test_gradients_are_right_in_both_widths_whichever_comes_first(form, order):
    model = orn.Model(forms()[form], DATA, init=np.zeros(2))
    theta = np.array([0.4, -0.2])
    truth = PRECISION @ (theta - DATA.mean(axis=0))
    for dtype, rounding in ((dtype, 1e-6 if dtype == "float32" else 1e-14) for dtype in order):
        with width(dtype):
            slope = jax.jit(model.loss.gradient)
            found = slope(model.problem(dtype), theta.astype(dtype), np.arange(len(DATA)))
        assert found.dtype == dtype
        assert np.allclose(found, truth, rtol=rounding, atol=rounding)


def test_the_hessian_is_exact_and_draws_come_in_both_widths():
    model = orn.Model(forms()["as a JAX array"], DATA, init=np.zeros(2))
    assert np.abs(orn.measure(model).hessian - PRECISION).max() < 1e-14
    narrow, wide = (
        orn.sample(
            model,
            orn.ConstantSGD("full"),
            draws=200,
            chains=2,
            batch_size=10,
            dtype=dtype,
            progress=False,
        )
        for dtype in ("float32", "float64")
    )
    assert np.allclose(narrow.draws, wide.draws, atol=1e-5) and np.ptp(wide.draws) > 0.1


def test_numbers_are_those_of_the_moment_the_model_was_made():
    matrix = PRECISION.copy()
    model = orn.Model(lambda t, e: -0.5 * (t - e) @ matrix @ (t - e), DATA, init=np.zeros(2))
    matrix[:] = 7.0
    assert np.abs(orn.measure(model).hessian - PRECISION).max() < 1e-14


def test_the_users_objects_stay_as_they_are():
    scaled = Scaled(PRECISION.copy())
    before = scaled.matrix
    orn.Model(scaled, DATA, init=np.zeros(2))
    assert scaled.matrix is before and before.flags.writeable


def test_equal_functions_with_equal_numbers_share_compiled_code():
    function = forms()["directly"]
    one, other = (orn.Model(function, DATA, init=np.zeros(2)).loss for _ in range(2))
    assert one == other and hash(one) == hash(other)


def test_objects_that_hold_arrays_are_equal_to_themselves_alone():
    """They cannot be compared or hashed, which compiled code is found by."""
    one, other = (orn.Model(Scaled(f * PRECISION), DATA, init=np.zeros(2)) for f in (1.0, 2.0))
    assert one.loss != other.loss
    spreads = [
        orn.sample(
            model, orn.ConstantSGD("full"), draws=300, chains=2, batch_size=10, progress=False
        ).covariance
        for model in (one, other)
    ]
    ratio = np.diagonal(spreads[0]) / np.diagonal(spreads[1])
    assert np.all(np.abs(ratio - 2.0) < 0.6)  # 600 draws: five standard errors


def test_functions_without_such_arrays_are_left_alone():
    narrow, array = np.ones(2, np.float32), jnp.ones(2)
    for function in (abs, lambda t: t * narrow, lambda t: t * array, jnp.sin):
        assert with_own_arrays(function) is function


def test_a_function_that_holds_itself_does_not_end_in_a_circle():
    holder = {"matrix": PRECISION}
    holder["self"] = holder
    own = with_own_arrays(lambda t: t @ holder["matrix"] @ t)
    assert isinstance(own, OwnArrays)
    assert float(own(np.ones(2))) == pytest.approx(PRECISION.sum())


def test_it_can_be_pickled():
    own = with_own_arrays(forms()["directly"])
    back = cloudpickle.loads(cloudpickle.dumps(own))
    assert np.array_equal(back(np.ones(2), np.zeros(2)), own(np.ones(2), np.zeros(2)))


def test_an_array_that_is_not_found_is_refused_in_words():
    """Behind a callable of a library, where nobody looks."""

    class Hidden:
        __slots__ = ("array",)

    hidden = Hidden()
    hidden.array = np.array([1.1, 2.0])
    with pytest.raises(orn.InputError, match=r"float64 and shape \(2,\).*jnp.asarray"):
        orn.Model(
            lambda t, e: -0.5 * jnp.sum(((e - t) / hidden.array) ** 2), DATA, init=np.zeros(2)
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numpyro_models_may_close_over_arrays_too(dtype):
    rng = np.random.default_rng(1)
    scales = np.array([1.1, 0.7])
    y = (DATA * scales) @ np.array([0.5, -1.0]) + rng.normal(size=len(DATA))

    def regression(x, y=None):
        weights = numpyro.sample("w", dist.Normal(np.zeros(2), 3.3 * np.ones(2)).to_event(1))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Normal((x * scales) @ weights, 1.0), obs=y)

    model = orn.from_numpyro(regression, DATA, y)
    scaled = DATA * scales
    hessian = (scaled.T @ scaled + np.eye(2) / 3.3**2) / len(DATA)
    assert np.allclose(orn.measure(model).hessian, hessian, rtol=1e-12)
    post = orn.sample(
        model, orn.ConstantSGD("full"), draws=300, chains=2, dtype=dtype, progress=False
    )
    truth = np.linalg.solve(len(DATA) * hessian, scaled.T @ y)
    assert np.all(np.abs(post.mean - truth) < 0.3 * post.sd)
