"""Starts that are no good, saddles, kinks and densities without a maximum."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.optimize

import ornstein as orn
from ornstein.baselines.laplace import CountedPasses
from ornstein.curvature.derivatives import derivatives_of
from ornstein.curvature.measure import measure
from ornstein.curvature.mode import find_mode
from ornstein.errors import ModeError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3))
Y = X @ [1.0, 0.0, -1.0] + RNG.normal(size=300)
ROWS = np.column_stack([X, Y])


def standard_normal(params):
    return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))


def gradient_at(model, theta):
    slope = derivatives_of(model).value_and_gradient(theta)[1] + model.scaled_prior(theta)[1]
    return float(np.max(np.abs(slope)))


def network():
    return orn.Model(
        lambda p, r: -0.5 * (r[3] - jnp.tanh(r[:3] @ p["a"]) @ p["b"]) ** 2,
        ROWS,
        standard_normal,
        init={"a": jnp.zeros((3, 2)), "b": jnp.zeros(2)},
    )


def factors():
    """A matrix of rank one: at u = v = 0 the gradient vanishes."""
    rng = np.random.default_rng(1)
    u, v = rng.normal(size=12), rng.normal(size=9)
    i, j = (index.ravel() for index in np.indices((12, 9)))
    noisy = np.outer(u, v).ravel() + 0.1 * rng.normal(size=i.size)
    return orn.Model(
        lambda p, r: -50.0 * (r[2] - p["u"][r[0].astype(int)] * p["v"][r[1].astype(int)]) ** 2,
        np.column_stack([i, j, noisy]),
        standard_normal,
        init={"u": jnp.zeros(12), "v": jnp.zeros(9)},
    )


def mixture():
    """Two components that begin at the same place, where their difference has no gradient."""
    rng = np.random.default_rng(2)
    values = np.where(rng.random(300) < 0.5, -2.0, 2.0) + rng.normal(size=300)
    return orn.Model(
        lambda p, x: jnp.logaddexp(-0.5 * (x - p[0]) ** 2, -0.5 * (x - p[1]) ** 2),
        values,
        lambda p: -0.005 * jnp.sum(p**2),
        init=jnp.zeros(2),
    )


@pytest.mark.parametrize("build", [network, factors, mixture])
def test_a_saddle_at_the_start_is_left(build):
    model = build()
    assert gradient_at(model, model.init) < 0.2
    curvature = orn.measure(model)  # which refuses a Hessian that is not positive definite
    assert gradient_at(model, curvature.mode) < 1e-7
    derivatives = derivatives_of(model)
    values = [
        derivatives.value(theta) + model.scaled_prior(theta)[0]
        for theta in (model.init, curvature.mode)
    ]
    assert values[1] < values[0] - 0.1


def test_the_search_is_the_same_every_time_and_counted():
    model = mixture()
    passes = CountedPasses(derivatives_of(model))
    first = measure(model, derivatives=passes, seed=3)
    assert np.array_equal(first.mode, measure(model, seed=3).mode)
    assert 0 < passes.passes < 60
    assert np.sort(np.abs(measure(model, seed=4).mode)) == pytest.approx(
        np.sort(np.abs(first.mode)), rel=1e-7
    )


def test_an_ordinary_search_costs_two_more_gradients():
    """Those that look for a kink; the Hessians are those of Newton's method."""
    model = orn.glm(X, Y)
    derivatives, gradients, hessians = derivatives_of(model), [], []

    class Counted:
        def value_and_gradient(self, theta):
            gradients.append(theta)
            return derivatives.value_and_gradient(theta)

        def hessian(self, theta):
            hessians.append(theta)
            return derivatives.hessian(theta)

    counted = Counted()
    known = {}

    def hessian(theta):
        return known.setdefault(theta.tobytes(), counted.hessian(theta))

    found = find_mode(model, counted, hessian)
    at_mode = [number for number, theta in enumerate(gradients) if np.array_equal(theta, found)]
    assert len(gradients) - 1 - at_mode[-1] == 2
    assert np.array_equal(hessians[-1], found)


def test_a_wrong_gradient_at_the_start_is_passed_over():
    """The slope of NumPyro's Bernoulli at a logit of exactly 0 is y, where it should be y − 1/2."""
    y = np.r_[np.ones(70), np.zeros(30)]
    model = orn.Model(
        lambda t, x: dist.Bernoulli(logits=t).log_prob(x),
        y,
        lambda t: -0.005 * t**2,
        init=jnp.zeros(()),
    )
    assert gradient_at(model, np.zeros(1)) > 0.6  # 0.2 is right: then this test is of no use
    wanted = scipy.optimize.brentq(lambda t: 70.0 - 100.0 / (1.0 + np.exp(-t)) - 0.01 * t, 0, 2)
    assert orn.measure(model).mode == pytest.approx([wanted], rel=1e-8)


def test_a_start_where_nothing_is_finite_is_passed_over():
    model = orn.Model(
        lambda t, x: -0.5 * (x - jnp.sqrt(t[0]) * t[1] / jnp.sqrt(t[0])) ** 2 - 0.1 * t[0] ** 2,
        np.arange(4.0),
        lambda t: -0.5 * (t[0] - 1.0) ** 2,
        init=jnp.zeros(2),
    )
    assert orn.measure(model).mode == pytest.approx([1.0 / 1.8, 1.5], rel=1e-6)


KINKS = {
    "Laplace likelihood": orn.Model(
        lambda t, r: -jnp.abs(r[3] - r[:3] @ t), ROWS, init=jnp.zeros(3)
    ),
    "Laplace likelihood, normal prior": orn.Model(
        lambda t, r: -jnp.abs(r[3] - r[:3] @ t), ROWS, standard_normal, init=jnp.zeros(3)
    ),
    "lasso": orn.Model(
        lambda t, r: -0.5 * (r[3] - r[:3] @ t) ** 2,
        ROWS,
        lambda t: -40.0 * jnp.sum(jnp.abs(t)),
        init=jnp.ones(3),
    ),
    "quantile": orn.Model(
        lambda t, r: -jnp.maximum(0.8 * (r[3] - r[:3] @ t), -0.2 * (r[3] - r[:3] @ t)),
        ROWS,
        init=jnp.zeros(3),
    ),
}


@pytest.mark.parametrize("name", KINKS)
def test_a_kink_is_called_one(name):
    with pytest.raises(ModeError, match="kink") as caught:
        orn.measure(KINKS[name])
    assert caught.value.kind == "kink" and isinstance(caught.value, orn.CurvatureError)


SMOOTH = {
    "Student's t": (
        lambda t, r: -1.5 * jnp.log1p((r[3] - r[:3] @ t) ** 2 / 2.0),
        standard_normal,
        jnp.zeros(3),
    ),
    "quartic": (lambda t, r: -0.5 * (r[3] - t**3) ** 2, lambda t: -0.5 * t**2, jnp.zeros(())),
    "narrow scale": (
        lambda t, r: -0.5 * (r[0] * jnp.exp(-t)) ** 2 - t,
        lambda t: -0.005 * t**2,
        jnp.asarray(6.0),
    ),
    "a coefficient away from the kink": (
        lambda t, r: -0.5 * (r[3] - r[0] * t) ** 2,
        lambda t: -jnp.abs(t),
        jnp.ones(()),
    ),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_what_is_smooth_at_the_mode_is_no_kink(name):
    likelihood, prior, init = SMOOTH[name]
    model = orn.Model(likelihood, ROWS, prior, init=init)
    assert gradient_at(model, orn.measure(model).mode) < 1e-7


def test_few_rows_far_from_normal_are_no_kink():
    model = orn.Model(lambda t, y: y * t - jnp.exp(t), np.array([0.0, 1.0]), init=jnp.zeros(()))
    assert orn.measure(model).mode == pytest.approx([np.log(0.5)], rel=1e-8)


def hierarchical():
    """Effects without differences: the density grows without bound as their scale runs to zero."""
    rng = np.random.default_rng(3)
    rows = np.column_stack([np.arange(400) % 8, rng.normal(size=400)])

    def prior(p):
        scale = jnp.exp(p["log_scale"])
        effects = jnp.sum(-0.5 * (p["effects"] / scale) ** 2 - p["log_scale"])
        return effects + p["log_scale"] - 0.5 * scale**2 - 0.5 * p["mean"] ** 2

    return orn.Model(
        lambda p, r: -0.5 * (r[1] - p["mean"] - p["effects"][r[0].astype(int)]) ** 2,
        rows,
        prior,
        init={"mean": jnp.zeros(()), "effects": jnp.zeros(8), "log_scale": jnp.zeros(())},
    )


@pytest.mark.parametrize(
    "model",
    [
        hierarchical(),
        orn.glm(X, X[:, 0] > 0.1, "bernoulli", prior_precision=0.0),
        orn.Model(lambda t, x: t * x - jnp.exp(t), np.zeros(9), init=jnp.zeros(())),
    ],
    ids=["a variance to zero", "separable classes", "counts of zero"],
)
def test_no_maximum_is_called_that(model):
    with pytest.raises(ModeError, match="no maximum") as caught:
        orn.measure(model)
    assert caught.value.kind == "no-maximum"
    assert np.all(np.isfinite(caught.value.place))


def test_nothing_finite_anywhere():
    model = orn.Model(lambda t, x: jnp.log(-1.0 - t**2) * x, np.ones(5), init=jnp.zeros(()))
    with pytest.raises(ModeError, match="not finite at init") as caught:
        orn.measure(model)
    assert caught.value.kind == "not finite"
