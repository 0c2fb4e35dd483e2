"""The gradient's change since the mode, which control variates take for the gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import ornstein as orn
from ornstein.compute.precision import width

ROUNDING = 1e-13
ROWS, COLUMNS = 40, 5
FORMS = {
    "gaussian, scale inferred": {},
    "gaussian": {"noise_scale": 0.7},
    "bernoulli": {"family": "bernoulli"},
    "bernoulli, no intercept": {"family": "bernoulli", "intercept": False},
    "poisson": {"family": "poisson"},
    "categorical": {"family": "categorical"},
    "categorical, flat prior": {"family": "categorical", "prior_precision": 0.0},
}


def model_of(form, extras=False, sparse=False):
    rng = np.random.default_rng(3)
    settings = {"family": "gaussian", **FORMS[form]}
    X = rng.normal(size=(ROWS, COLUMNS)) * (rng.random((ROWS, COLUMNS)) < 0.6)
    y = rng.normal(size=ROWS) if settings["family"] == "gaussian" else rng.integers(0, 3, ROWS)
    y = np.minimum(y, 1) if settings["family"] == "bernoulli" else y
    if extras:
        classes = 3 if settings["family"] == "categorical" else 1
        offset = 0.3 * rng.normal(size=(ROWS, classes))
        settings |= {
            "weights": rng.random(ROWS) + 0.5,
            "offset": offset if classes > 1 else offset[:, 0],
        }
    return orn.glm(scipy.sparse.csr_array(X) if sparse else X, y, **settings)


def change_and_difference(model, problem, displacement, batch):
    def both(problem, displacement):
        moved, still = (
            model.loss.gradient(problem, place, batch)
            for place in (displacement, 0.0 * displacement)
        )
        return model.loss.gradient_change(problem, displacement, batch), moved - still

    with width("float64"):
        return [np.asarray(found) for found in jax.jit(both)(problem, displacement)]


def problem_at(model, centre):
    with width("float64"):
        return model.problem("float64", centre)


@pytest.mark.parametrize(("extras", "sparse"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("form", FORMS)
def test_it_is_the_difference_of_two_gradients(form, extras, sparse):
    """At a centre that is not zero and at zero, where nothing has been put into the offset."""
    model = model_of(form, extras, sparse)
    rng = np.random.default_rng(0)
    for centre in (0.4 * rng.normal(size=model.dim), np.zeros(model.dim)):
        displacement, batch = 0.3 * rng.normal(size=model.dim), np.array([3, 17, 3, 39])
        change, difference = change_and_difference(
            model, problem_at(model, centre), displacement, batch
        )
        assert np.allclose(change, difference, rtol=ROUNDING, atol=ROUNDING)
        assert np.max(np.abs(change)) > 1e-2


def test_it_vanishes_at_the_centre():
    model = model_of("categorical", extras=True)
    problem = problem_at(model, np.full(model.dim, 0.2))
    change, _ = change_and_difference(model, problem, np.zeros(model.dim), np.arange(9))
    assert np.allclose(change, 0.0, atol=1e-16)


def test_a_centre_that_is_not_in_the_offset_is_seen():
    """The negative control: what `Likelihood.change` relies on does not hold."""
    model = model_of("bernoulli")
    problem = problem_at(model, np.zeros(model.dim))._replace(
        likelihood_centre=np.full(model.dim, 0.2)
    )
    change, difference = change_and_difference(
        model, problem, np.full(model.dim, 0.1), np.arange(9)
    )
    assert not np.allclose(change, difference, rtol=1e-3, atol=1e-3)


def test_any_other_likelihood_takes_two_gradients():
    def log_likelihood(theta, x):
        return -0.5 * (x - theta[0] * jnp.exp(theta[1])) ** 2

    model = orn.Model(log_likelihood, np.arange(5.0), init=np.array([1.0, 0.1]))
    problem = problem_at(model, np.array([0.9, 0.2]))
    change, difference = change_and_difference(
        model, problem, np.array([0.1, -0.3]), np.array([0, 4])
    )
    assert np.allclose(change, difference, rtol=ROUNDING, atol=ROUNDING) and np.all(change != 0)
