"""The kernel Stein discrepancy: the kernel by automatic differentiation, its mean under the law,
its errors of both kinds.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from verdict_problems import logistic, regression, sampled

import ornstein as orn
from ornstein.compute.precision import double
from ornstein.verdict.density import Density
from ornstein.verdict.stein import _stein_kernel, kernel_stein_discrepancy, minibatch_scores


def test_kernel_is_the_stein_kernel():
    size, rng = 3, np.random.default_rng(0)
    draws, scores = rng.normal(size=(5, size)), rng.normal(size=(5, size))

    def kernel(x, y):
        return (1.0 + jnp.sum((x - y) ** 2) / size) ** -0.5

    def stein(x, y, s, t):
        mixed = jnp.trace(jax.jacfwd(jax.grad(kernel, 0), 1)(x, y))
        return (
            s @ t * kernel(x, y)
            + s @ jax.grad(kernel, 1)(x, y)
            + t @ jax.grad(kernel, 0)(x, y)
            + mixed
        )

    with double():
        pairs = jax.vmap(jax.vmap(stein, (None, 0, None, 0)), (0, None, 0, None))
        wanted = np.asarray(
            pairs(*(jnp.asarray(array) for array in (draws, draws, scores, scores)))
        )
    np.testing.assert_allclose(_stein_kernel(draws, scores, np.eye(size)), wanted, atol=1e-13)


def test_it_does_not_depend_on_units():
    rng = np.random.default_rng(1)
    draws, root = (
        rng.normal(size=(50, 3)),
        np.array([[2.0, 0.0, 0.0], [1.0, 0.5, 0.0], [0.0, 3.0, 9.0]]),
    )
    one = kernel_stein_discrepancy(draws, -draws, np.eye(3))
    other = kernel_stein_discrepancy(draws @ root.T, -draws @ np.linalg.inv(root), root @ root.T)
    assert other.squared == pytest.approx(one.squared, rel=1e-9)


def test_false_alarms_and_power():
    """Size within the binomial interval over 200 seeds; an sd 30 % too wide is seen in most runs of
    300 draws.
    """
    seeds, rng = 200, np.random.default_rng(2)
    right = [
        kernel_stein_discrepancy(draws, -draws, np.eye(3)).p_value
        for draws in rng.normal(size=(seeds, 150, 3))
    ]
    low, high = scipy.stats.binom.interval(0.99, seeds, 0.05)
    assert low <= np.sum(np.array(right) < 0.05) <= high
    wide = [
        kernel_stein_discrepancy(1.3 * draws, -1.3 * draws, np.eye(3)).p_value
        for draws in rng.normal(size=(20, 300, 3))
    ]
    assert np.mean(np.array(wide) < 0.05) > 0.9


def test_minibatch_scores_are_unbiased():
    model = logistic()
    post = sampled(orn.ConstantSGD("full"), draws=50)(model)
    point = post.draws[0, :1]
    exact = -Density(model).values_and_gradients(point)[1][0]
    many = minibatch_scores(model, np.repeat(point, 4000, axis=0), 20)
    error = many.std(axis=0) / np.sqrt(len(many))
    assert np.all(np.abs(many.mean(axis=0) - exact) < 4.5 * error)


def test_as_a_finding():
    good = sampled(orn.ConstantSGD("full"))(regression())
    narrow = sampled(orn.ConstantSGD("full", step_size=0.1 * good.dynamics.preconditioner))(
        regression()
    )
    assert good.check(stein=True)["Stein discrepancy"].level == "trusted"
    assert narrow.check(stein=True)["Stein discrepancy"].level == "caution"
    assert "minibatches of 100" in good.check(stein=100)["Stein discrepancy"].detail
    assert "Stein discrepancy" not in [finding.name for finding in good.check()]
