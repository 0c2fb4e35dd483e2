"""What a step sees of every family: the engine's minibatch gradients, all of them enumerated, have
the mean and covariance of the gradients of single rows, by differences of the log density.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest
from helpers import all_minibatches

import ornstein as orn
from ornstein.compute.precision import width
from ornstein.model.regression import glm

ROWS, BATCH = 5, 2
ALWAYS = ("gaussian", "categorical", "negative-binomial", "student-t", "weibull")
# Families with an auxiliary parameter that follows X's last column.
WITH_COLUMNS = {"gaussian, scale": "scale", "hurdle-poisson, zero": "zero"}
FAMILIES = [
    name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow)
    for name in orn.families.TABLE
] + list(WITH_COLUMNS)


def tiny(name):
    rng = np.random.default_rng(11)
    X = rng.normal(size=(ROWS, 2))
    counts = np.array([0.0, 2.0, 1.0, 5.0, 0.0])
    y = {
        "bernoulli": counts > 0,
        "categorical": np.array([0, 2, 1, 1, 0]),
        "ordinal": np.array([0, 2, 1, 1, 3]),
        "binomial": np.column_stack([counts, counts + 2.0]),
        "beta": np.array([0.2, 0.7, 0.4, 0.9, 0.05]),
        "exponential": np.column_stack([counts + 0.5, counts > 0]),
        "weibull": np.column_stack([counts + 0.5, counts > 0]),
        "gamma": counts + 0.5,
        "log-normal": counts + 0.5,
    }.get(name, counts)
    if name in WITH_COLUMNS:
        return glm(X, y, name.split(",")[0], parts={WITH_COLUMNS[name]: 1})
    classes = {"categorical": [0, 1, 2], "ordinal": [0, 1, 2, 3]}.get(name)
    return orn.glm(X, y, name, classes=classes)


def row_slopes(model, theta):
    """Gradients of −log p of every row and of the prior over N, by central differences."""
    rows = [model.rows(n, n + 1) for n in range(ROWS)]

    def values(theta):
        params = model.layout.unflatten(theta)
        fits = [
            model.loss.log_likelihood(params, jax.tree.map(lambda leaf: leaf[0], row), hyper)
            for row in rows
        ]
        return jax.numpy.stack([*fits, model.loss.log_prior(params, hyper) / ROWS])

    hyper, step = model.hyperparameters, 1e-5
    values = jax.jit(values)
    slopes = [
        (np.asarray(values(theta + step * axis)) - np.asarray(values(theta - step * axis)))
        / (2.0 * step)
        for axis in np.eye(model.dim)
    ]
    slopes = -np.array(slopes).T
    return slopes[:-1], slopes[-1]


@pytest.mark.parametrize("name", FAMILIES)
def test_minibatch_gradients_have_the_mean_and_covariance_of_rows(name):
    model, rng = tiny(name), np.random.default_rng(2)
    centre, moved = 0.3 * rng.normal(size=(2, model.dim))
    batches = all_minibatches("without-replacement", ROWS, BATCH)
    with width("float64"):
        problem = model.problem("float64", centre)
        slope = jax.jit(jax.vmap(model.loss.gradient, (None, None, 0)))
        change = jax.jit(jax.vmap(model.loss.gradient_change, (None, None, 0)))
        found = np.asarray(slope(problem, moved, batches))
        still = np.asarray(slope(problem, 0.0 * moved, batches))
        differences = np.asarray(change(problem, moved, batches))
        fits, prior = row_slopes(model, centre + moved)
    assert np.allclose(found.mean(axis=0), fits.mean(axis=0) + prior, atol=1e-7)
    factor = (ROWS - BATCH) / (ROWS - 1) / BATCH
    wanted = factor * np.cov(fits.T, bias=True)
    assert np.allclose(np.cov(found.T, bias=True), wanted, atol=1e-7)
    assert np.allclose(differences, found - still, atol=1e-12)
