"""The law of minibatches drawn by leverage: one step by enumeration, a long run, a run that goes
on, and controls that must fail.
"""

from __future__ import annotations

from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest
from battery import tiny
from helpers import matrix_of
from sampler_checks import assert_law, assert_not_law

import ornstein as orn
from ornstein.compute.precision import width
from ornstein.curvature.leverage import factors

SAMPLERS = {
    "ConstantSGD": orn.ConstantSGD("full"),
    "SGLD-CV": orn.SGLD(exact=True, control_variates=True, preconditioner="full"),
    "momentum": orn.ConstantSGD("diagonal", damping=0.4),
}


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("name", ["gaussian", "bernoulli", "gaussian, scale inferred"])
def test_one_step_by_enumeration(name, sampler):
    """All 25 minibatches of two of five rows, each with its probability."""
    small = tiny(name)
    curvature = orn.measure(small.model, scheme="leverage")
    chance = curvature.probabilities
    dynamics = sampler.tune(curvature, 2, "leverage")
    kernel, size = dynamics.kernel(), curvature.dim
    displacement = 0.3 * np.random.default_rng(0).normal(size=size)
    drawn = small.model.reweighted(factors(chance))
    batches = np.array(list(product(range(5), repeat=2)))
    likely = chance[batches].prod(axis=1)
    with width("float64"):
        problem = drawn.problem("float64", curvature.mode)
        arrays = {key: jnp.asarray(value) for key, value in dynamics.arrays().items()}
        start = kernel.start(jnp.asarray(displacement))
        loss = drawn.loss
        slope = loss.gradient_change if dynamics.control_variates else loss.gradient
        moved = np.array(
            [
                kernel.step(
                    arrays,
                    start,
                    lambda position, batch=batch: slope(problem, position, batch),
                    jnp.zeros(size),
                    1.0,
                )["position"]
                - start["position"]
                for batch in batches
            ]
        )
    mean = likely @ moved
    covariance = (moved - mean).T * likely @ (moved - mean)
    slopes = small.slopes(curvature.mode + displacement)
    prior = small.prior_slope(curvature.mode + displacement)
    if dynamics.control_variates:
        slopes = slopes - small.slopes(curvature.mode)
        prior = prior - small.prior_slope(curvature.mode)
    step, average = matrix_of(dynamics.preconditioner, size), slopes.mean(axis=0)
    noise = (slopes.T / (25 * chance)) @ slopes - np.outer(average, average)
    assert mean == pytest.approx(-step @ (average + prior), rel=1e-9, abs=1e-12)
    assert covariance == pytest.approx(step @ noise @ step / 2.0, rel=1e-8, abs=1e-14)


def rare_rows(rows, n_data=500, seed=0):
    """A column that is 1 in a few rows only."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=n_data), np.arange(n_data) < rows])
    y = X @ [1.0, 0.5] + rng.normal(size=n_data)
    return orn.glm(X, y, noise_scale=1.0, prior_precision=0.01)


def sampled(model, sampler, **options):
    return orn.sample(model, sampler, draws=1500, progress=False, seed=1, **options)


def test_the_law_of_a_run():
    posterior = sampled(rare_rows(8), orn.ConstantSGD("full"), scheme="leverage")
    assert_law(posterior)
    # The noise of rows that are drawn alike is another.
    assert_not_law(posterior, 1.5 * posterior.prediction.covariance)


def test_a_column_of_one_row():
    """Uniform minibatches hold the row in one of thirty steps: constant SGD and the rare direction
    never meet. Control variates and minibatches that know the row give its exact width, and forget
    in a few steps.
    """
    model = rare_rows(1)
    truth = np.sqrt(np.diagonal(orn.laplace(model).covariance))
    cv = SAMPLERS["SGLD-CV"]
    posterior = sampled(model, cv, scheme="leverage")
    assert_law(posterior)
    flat = posterior.draws.reshape(-1, 3)
    # independent draws: the error of a standard deviation is 1/√(2n)
    assert flat.std(axis=0) / truth == pytest.approx(np.ones(3), abs=4.0 / np.sqrt(2 * len(flat)))
    alike = sampled(model, orn.ConstantSGD("full"))
    assert alike.draws.reshape(-1, 3).std(axis=0)[1] / truth[1] < 0.6
    assert posterior.prediction.relaxation_time < 20.0


def test_a_run_that_was_stopped_goes_on(tmp_path):
    model, sampler = rare_rows(4), orn.ConstantSGD("full")
    options = {"scheme": "leverage", "draws": 200, "progress": False, "chains": 2}
    whole = orn.sample(model, sampler, **options)
    orn.sample(model, sampler, **{**options, "draws": 60}, checkpoint=tmp_path / "run")
    again = orn.resume(tmp_path / "run", model, draws=200, progress=False)
    assert np.array_equal(whole.draws, again.draws)
    assert again.curvature.probabilities is not None


def test_the_verdict_looks_at_the_noise_of_minibatches_as_they_are_drawn():
    posterior = sampled(rare_rows(8), orn.ConstantSGD("full"), scheme="leverage")
    verdict = posterior.check()
    assert verdict.level == "trusted", str(verdict)
    # Theory and the gradients at the draws agree on the noise of these minibatches, not of others.
    assert verdict["noise is constant"].number < 0.1
    chance = posterior.curvature.probabilities
    uniform = orn.measure(rare_rows(8)).noise
    assert np.linalg.norm(posterior.curvature.noise / uniform - 1.0) > 0.5
    assert chance[:8].sum() > 0.1


def test_where_it_cannot_be_used_it_is_refused():
    with pytest.raises(orn.InputError, match="em does not support scheme='leverage'"):
        orn.em(rare_rows(4), scheme="leverage")
