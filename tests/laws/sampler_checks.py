"""What the tests of single samplers share: the law of one step by enumeration, and the covariance
of a run against its law.
"""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from helpers import all_minibatches, logistic_data

import ornstein as orn
from ornstein.compute.precision import width
from ornstein.theory import covariance_standard_error


def heteroscedastic_data(n_data, seed=0):
    """Correlated features, and noise that grows with the first: A and C neither commute nor are
    they proportional.
    """
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_data, 3)) @ np.array(
        [[1.0, 0.5, 0.0], [0.0, 1.0, -0.4], [0.0, 0.0, 0.7]]
    )
    target = features @ [1.0, -0.5, 0.8] + rng.normal(size=n_data) * (
        0.4 + 0.6 * np.abs(features[:, 0])
    )
    return features, target


@lru_cache
def quadratic(n_data=1000):
    """A model whose loss is quadratic, with its curvature; made once, so that the tests share
    compiled code.
    """
    features, target = heteroscedastic_data(n_data)
    model = orn.glm(features, target, noise_scale=1.0, intercept=False, prior_precision=1.0)
    curvature = orn.measure(model)
    product = curvature.hessian @ curvature.noise
    assert np.linalg.norm(product - product.T) > 0.1 * np.linalg.norm(product)
    return model, curvature


@lru_cache
def logistic(n_data=4000):
    features, labels = logistic_data(n_data, 3, seed=2)
    model = orn.glm(features, labels, family="bernoulli", intercept=False, prior_precision=1.0)
    return model, orn.measure(model)


@lru_cache
def tiny():
    """Five rows, two parameters: small enough to enumerate every minibatch of two."""
    features, target = heteroscedastic_data(5, seed=3)
    features = features[:, :2]
    model = orn.glm(features, target, noise_scale=0.8, prior_precision=0.7, intercept=False)
    return features, target, model, orn.measure(model)


def tiny_gradients(position):
    """The gradient of the mean loss (prior included) that each row alone stands for, by hand: (5,
    2).
    """
    features, target, _, _ = tiny()
    residual = features @ position - target
    return features * residual[:, None] / 0.8**2 + 0.7 * position / len(target)


def tiny_minibatch_moments(position, scheme, batch_size):
    """Mean and covariance of the minibatch gradient over all minibatches, by hand."""
    batches = all_minibatches(scheme, 5, batch_size)
    means = tiny_gradients(position)[batches].mean(axis=1)
    return means.mean(axis=0), np.cov(means, rowvar=False, bias=True)


def one_step(dynamics, displacement, velocity=None, factor=1.0, **state):
    """Mean and covariance of the position and velocity after one step from a fixed state, over
    minibatches and injected noise.

    All minibatches are enumerated. A step is affine in the injected normals: their law follows from
    the unit vectors.
    """
    _, _, model, curvature = tiny()
    kernel, size = dynamics.kernel(), len(displacement)
    with width("float64"):
        problem = model.problem("float64", curvature.mode)
        arrays = {name: jnp.asarray(value) for name, value in dynamics.arrays().items()}
        start = {
            **kernel.start(jnp.asarray(displacement)),
            **{name: jnp.asarray(value) for name, value in state.items()},
        }
        if velocity is not None:
            start["velocity"] = jnp.asarray(velocity)

        def moved(indices, normal):
            slope = model.loss.gradient_change if dynamics.control_variates else model.loss.gradient
            after = kernel.step(
                arrays, start, lambda position: slope(problem, position, indices), normal, factor
            )
            return jnp.concatenate(
                [after["position"], after.get("velocity", after["position"] - start["position"])]
            )

        batches = jnp.asarray(all_minibatches(dynamics.scheme, 5, dynamics.batch_size))
        normals = jnp.concatenate([jnp.zeros((1, size)), jnp.eye(size)])
        every = jax.jit(jax.vmap(jax.vmap(moved, (0, None)), (None, 0)))
        outcomes = np.asarray(every(batches, normals))
    quiet = outcomes[0]
    injected = (outcomes[1:] - quiet).mean(axis=1)
    # the same for every minibatch
    assert np.allclose(outcomes[1:] - quiet, injected[:, None, :], atol=1e-12)
    return quiet.mean(axis=0), np.cov(quiet, rowvar=False, bias=True) + injected.T @ injected


def scores(posterior, law=None):
    """z of every entry of the covariance against the predicted law (or another one), and the
    largest |z| expected by chance.

    The bound is Bonferroni's at 1 in 1000. An entry that is wrong by bound × standard error is
    found half of the time, by twice that almost surely: the smallest detectable error is about 4.3
    standard errors.
    """
    error = covariance_standard_error(posterior.moment_process(), posterior.settings["states"])
    predicted = posterior.prediction.covariance if law is None else law
    size = len(predicted)
    z = np.abs(posterior.covariance - predicted) / error
    return float(np.max(z)), float(scipy.stats.norm.isf(1e-3 / (size * (size + 1))))


def detectable(posterior):
    """The largest relative error of a variance that could go unnoticed half of the time."""
    error = covariance_standard_error(posterior.moment_process(), posterior.settings["states"])
    return float(
        np.max(
            scores(posterior)[1] * np.diagonal(error) / np.diagonal(posterior.prediction.covariance)
        )
    )


def assert_law(posterior, resolution=0.2):
    """The covariance of the run is the predicted one, and the run was long enough to see an error
    of `resolution`.
    """
    worst, bound = scores(posterior)
    assert worst < bound, f"z = {worst:.2f}, by chance up to {bound:.2f}"
    assert detectable(posterior) < resolution


def assert_not_law(posterior, law):
    """A wrong law is noticed."""
    worst, bound = scores(posterior, law)
    assert worst > 2.0 * bound, (
        f"z = {worst:.2f} against a bound of {bound:.2f}: the wrong law was hardly noticed"
    )


def run(model, curvature, sampler, batch_size, draws=600, **options):
    """Sample with few words."""
    settings = {"chains": 4, "seed": 1, "progress": False, "max_steps": 10**9, **options}
    if hasattr(sampler, "kernel"):
        return orn.sample(model, sampler, curvature=curvature, draws=draws, **settings)
    return orn.sample(
        model, sampler, batch_size=batch_size, curvature=curvature, draws=draws, **settings
    )
