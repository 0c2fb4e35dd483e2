"""Long runs against the state-dependent discrete-time prediction, and the mistakes that such a run
must notice.

Linear regression, N = 5000, six correlated features. Every entry of the covariance must lie within
five Monte-Carlo standard errors of the prediction, and the run must be long enough that five
standard errors are below 3 % of √(Σ_aa Σ_bb): that is the smallest error sure to be noticed, and
each negative control makes a larger one.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from battery import SIGMAS, covariance_scores
from helpers import regression_data, relative, rows_drawn_outside

import ornstein as orn
from ornstein.rows.sources import IndexSource
from ornstein.theory import covariance_standard_error

N, D = 5000, 6
DETECTABLE = 0.03


@lru_cache
def problem():
    X, y = regression_data(N, D, seed=17)
    model = orn.glm(X, y, noise_scale=1.0, intercept=False, prior_precision=1.0)
    return model, orn.measure(model), X, y


def length_for(dynamics, curvature, detectable):
    """Draws per chain (of four) and thinning for which SIGMAS standard errors are below
    `detectable`.
    """
    prediction = dynamics.predict(curvature)
    thin = max(1, int(np.ceil(2.0 * prediction.relaxation_time)))
    thin = thin if thin < 8 else 8 * -(-thin // 8)  # states are kept at an eighth of it
    spacing = max(1, thin // 8)
    process = prediction.process.__class__(
        prediction.process.modes, prediction.process.stationary, spacing=spacing
    )
    scale = np.sqrt(np.multiply.outer(*2 * (np.diagonal(prediction.covariance),)))
    per_state = np.max(covariance_standard_error(process, 1) / scale)
    states = (SIGMAS * per_state / detectable) ** 2
    return max(20, int(1.1 * states * spacing / thin / 4)), thin


def long_run(dynamics, detectable=0.95 * DETECTABLE, seed=1, curvature=None):
    model, measured, _, _ = problem()
    curvature = measured if curvature is None else curvature
    draws, thin = length_for(dynamics, curvature, detectable)
    return orn.sample(
        model,
        dynamics,
        curvature=curvature,
        draws=draws,
        thin=thin,
        seed=seed,
        keep="moments",
        progress=False,
        max_steps=10**9,
    )


def tuned(batch_size, factor=1.0, sampler=None, scheme="replacement"):
    """Full constant SGD with its exact step, or `factor` times that."""
    _, curvature, _, _ = problem()
    dynamics = (sampler or orn.ConstantSGD("full")).tune(
        curvature, batch_size=batch_size, scheme=scheme
    )
    return orn.Dynamics(
        factor * dynamics.preconditioner,
        batch_size,
        scheme,
        dynamics.damping,
        sampler=dynamics.sampler,
    )


def assert_noticed(post, predicted):
    """The prediction is rejected, by a margin."""
    scores, detectable = covariance_scores(post, predicted)
    assert detectable < DETECTABLE * 2
    assert np.max(np.abs(scores)) > 2.0 * SIGMAS


class TestLaw:
    @pytest.mark.parametrize(
        ("batch_size", "factor"),
        [
            # With one row a step the exact step relaxes in 2700 steps; a hundred times that step
            # relaxes faster, and there a sixth of the variance comes from the noise's answer to the
            # chain's own spread.
            pytest.param(1, 100.0, id="1"),
            pytest.param(10, 1.0, id="10", marks=pytest.mark.slow),
            pytest.param(10, 10.0, id="10, large step"),
            pytest.param(100, 1.0, id="100"),
            pytest.param(N // 4, 1.0, id="N/4"),
        ],
    )
    def test_the_covariance_is_the_predicted_one(self, batch_size, factor):
        post = long_run(tuned(batch_size, factor))
        scores, detectable = covariance_scores(post)
        assert detectable < DETECTABLE
        assert np.max(np.abs(scores)) < SIGMAS

    @pytest.mark.slow
    def test_one_row_a_step_at_the_exact_step(self):
        post = long_run(tuned(1))
        scores, detectable = covariance_scores(post)
        assert detectable < DETECTABLE
        assert np.max(np.abs(scores)) < SIGMAS

    @pytest.mark.parametrize("scheme", ["without-replacement", "slices"])
    def test_the_covariance_of_the_other_schemes(self, scheme):
        """f = 0.75 here: leaving it out would be a 25 % error."""
        post = long_run(tuned(N // 4, scheme=scheme))
        scores, detectable = covariance_scores(post)
        assert detectable < DETECTABLE
        assert np.max(np.abs(scores)) < SIGMAS
        assert relative(post.prediction.covariance, problem()[1].posterior_covariance) < 1e-8

    def test_momentum(self):
        # The length is planned for chains without momentum; this one needs 1.6 times as long for
        # the same error.
        post = long_run(
            tuned(100, sampler=orn.ConstantSGD("full", damping=0.3)), detectable=0.75 * DETECTABLE
        )
        scores, detectable = covariance_scores(post)
        assert detectable < DETECTABLE
        assert np.max(np.abs(scores)) < SIGMAS

    def test_the_continuous_prediction_is_rejected_at_the_large_step(self):
        dynamics = tuned(N // 4)
        continuous = dynamics.predict(problem()[1], time="continuous").covariance
        assert_noticed(long_run(dynamics), continuous)

    def test_constant_noise_is_rejected_where_the_spread_is_large(self):
        dynamics = tuned(1, 100.0)
        _, curvature, _, _ = problem()
        constant = orn.Curvature(curvature.mode, curvature.hessian, curvature.noise, N)
        assert_noticed(long_run(dynamics), dynamics.predict(constant).covariance)


class TestControls:
    """Mistakes that must make the check fail. Each run is as long as those above."""

    def test_doubled_noise(self):
        _, curvature, _, _ = problem()
        dynamics = tuned(100)
        step = dynamics.preconditioner
        twice = orn.Dynamics(step, 100, injected=step @ curvature.noise @ step / 100)
        assert_noticed(long_run(twice), dynamics.predict(curvature).covariance)

    def test_noise_frozen_at_the_first_step(self):
        """C from one minibatch at a start two posterior sds away, instead of at the mode."""
        _, curvature, X, y = problem()
        start = curvature.mode + 2.0 * curvature.laplace.standard_deviation
        rows = np.random.default_rng(0).integers(0, N, 100)
        gradients = -(y[rows] - X[rows] @ start)[:, None] * X[rows]
        frozen = orn.Curvature(curvature.mode, curvature.hessian, np.cov(gradients.T), N)
        dynamics = orn.ConstantSGD("full").tune(frozen, batch_size=100)
        post = long_run(dynamics)
        assert_noticed(post, dynamics.predict(frozen).covariance)
        assert_noticed(post, curvature.posterior_covariance)

    def test_missing_bessel_factor(self):
        """C measured within batches of ten and divided by S instead of S − 1: a tenth too small."""
        _, curvature, _, _ = problem()
        biased = orn.Curvature(
            curvature.mode, curvature.hessian, 0.9 * curvature.effective_noise, N
        )
        dynamics = tuned(100)
        assert_noticed(long_run(dynamics), dynamics.predict(biased).covariance)

    def test_missing_finite_population_factor(self):
        dynamics = tuned(N // 4, scheme="without-replacement")
        as_if = orn.Dynamics(dynamics.preconditioner, N // 4)
        assert_noticed(long_run(dynamics), as_if.predict(problem()[1]).covariance)

    def test_reshuffled_epochs(self, monkeypatch):
        def epochs(self, steps):
            per_epoch = self.n_data // self.batch_size
            orders = [
                self.generator.permutation(self.n_data) for _ in range(-(-steps // per_epoch))
            ]
            return np.concatenate(orders).reshape(-1, self.batch_size)[:steps].astype(np.int32)

        monkeypatch.setattr(IndexSource, "draw", epochs)
        with rows_drawn_outside():
            post = long_run(tuned(100))
        assert_noticed(post, post.prediction.covariance)
        # Within an epoch the noise cancels: the law is far too narrow, whatever was tuned.
        assert np.trace(post.covariance) < 0.5 * np.trace(post.prediction.covariance)

    def test_draws_that_are_too_close_are_not_called_long_enough(self):
        """The stated smallest detectable error is honest: a tenth of the run sees √10 times
        less.
        """
        short = long_run(tuned(100), detectable=np.sqrt(10.0) * 0.95 * DETECTABLE)
        _, detectable = covariance_scores(short)
        assert detectable > 2.0 * DETECTABLE


class TestTheChainIsTheChain:
    """Each state regressed on the one before: the drift is I − HA, what is left has covariance
    HCH/S.
    """

    @pytest.mark.parametrize("batch_size", [100, N // 4])
    def test_drift_and_innovations(self, batch_size):
        model, curvature, _, _ = problem()
        dynamics = tuned(batch_size)
        draws = 60_000 if batch_size == 100 else 20_000
        post = orn.sample(
            model,
            dynamics,
            curvature=curvature,
            thin=1,
            draws=draws,
            chains=2,
            seed=2,
            progress=False,
        )
        step = dynamics.preconditioner
        before, after = (post.draws[:, a:b] - curvature.mode for a, b in ((0, -1), (1, None)))
        before, after = before.reshape(-1, D), after.reshape(-1, D)
        drift = np.linalg.lstsq(before, after, rcond=None)[0].T
        assert np.max(np.abs(drift - (np.eye(D) - step @ curvature.hessian))) < 0.025
        rest = after - before @ drift.T
        wanted = step @ curvature.effective_noise @ step / batch_size
        assert relative(rest.T @ rest / len(rest), wanted) < 0.03
        # what K adds is far below the tolerance
        assert relative(step @ curvature.noise @ step / batch_size, wanted) < 0.005

    def test_the_check_would_notice_a_skipped_step(self):
        model, curvature, _, _ = problem()
        dynamics = tuned(N // 4)
        post = orn.sample(
            model,
            dynamics,
            curvature=curvature,
            thin=2,
            draws=5000,
            chains=2,
            seed=2,
            progress=False,
        )
        before, after = (
            post.draws[:, a:b].reshape(-1, D) - curvature.mode for a, b in ((0, -1), (1, None))
        )
        drift = np.linalg.lstsq(before, after, rcond=None)[0].T
        assert (
            np.max(np.abs(drift - (np.eye(D) - dynamics.preconditioner @ curvature.hessian))) > 0.1
        )
