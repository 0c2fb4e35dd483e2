"""From a model to a Posterior: budgets, refusals, starts, widths, what is kept, and the white-wine
figure.
"""

from __future__ import annotations

import warnings
from functools import lru_cache

import jax.numpy as jnp
import numpy as np
import pytest
from battery import SIGMAS, covariance_scores, mean_error
from helpers import regression_data, relative

import ornstein as orn
from ornstein import checks
from ornstein.theory import monte_carlo_floor


@lru_cache
def regression():
    X, y = regression_data(1000, 3, seed=6)
    model = orn.glm(X, y, noise_scale=1.0, intercept=False, prior_precision=1.0)
    return model, orn.measure(model)


FULL = orn.ConstantSGD("full")


def quick(sampler=FULL, **options):
    model, curvature = regression()
    defaults = {
        "curvature": curvature,
        "batch_size": 20,
        "draws": 50,
        "chains": 2,
        "progress": False,
    }
    if hasattr(sampler, "kernel"):
        defaults.pop("batch_size")
    return orn.sample(model, sampler, **{**defaults, **options})


class TestWine:
    """The paper's setting, S = 100, everything on auto, 10⁶ steps in all."""

    def test_the_full_preconditioner_reaches_the_laplace_posterior(self, wine_data):
        X, y = wine_data
        model = orn.glm(X, y, noise_scale=1.0, prior_precision=1.0, intercept=False)
        post = orn.sample(
            model,
            orn.ConstantSGD("full"),
            batch_size=100,
            draws=1100,
            max_steps=10**6,
            progress=False,
        )
        laplace = orn.Gaussian(
            np.linalg.solve(X.T @ X + np.eye(11), X.T @ y), np.linalg.inv(X.T @ X + np.eye(11))
        )
        forward, backward = post.kl_to(laplace)
        assert post.settings["steps"] <= 10**6
        assert backward <= 0.01 and forward <= 0.01
        # The rest is Monte-Carlo error: no more than twice what an ideal chain of this length
        # shows.
        assert backward < 2.0 * monte_carlo_floor(post.moment_process(), post.settings["states"])
        assert post.prediction.kl_pq < 1e-9

    def test_float32_has_no_detectable_bias(self, wine_data):
        """Common random numbers: the two widths see the same minibatches, so that only rounding is
        left.
        """
        X, y = wine_data
        model = orn.glm(X, y, noise_scale=1.0, prior_precision=1.0, intercept=False)
        curvature = orn.measure(model)
        options = {
            "batch_size": 100,
            "draws": 500,
            "chains": 2,
            "curvature": curvature,
            "progress": False,
        }
        single, double = (
            orn.sample(model, orn.ConstantSGD("full"), dtype=dtype, **options)
            for dtype in ("float32", "float64")
        )
        shift = np.abs(single.draws - double.draws) / curvature.laplace.standard_deviation
        assert np.max(shift) < 1e-3
        assert relative(single.covariance, double.covariance) < 1e-4


class TestBudget:
    def slow_model(self):
        X, y = regression_data(2000, 3)
        return orn.glm(
            X * np.array([1.0, 1.0, 0.02]), y, noise_scale=1.0, intercept=False, prior_precision=1.0
        )

    def test_thinning_is_two_relaxation_times(self):
        post = quick()
        assert (
            2.0 * post.prediction.relaxation_time
            <= post.settings["thin"]
            <= 2.0 * post.prediction.relaxation_time + 8
        )

    def test_a_budget_that_is_too_small_cuts_thinning_with_a_warning(self):
        model = self.slow_model()
        with pytest.warns(
            orn.BudgetWarning, match="thinning is cut from .* worth about .* Raise max_steps"
        ):
            post = orn.sample(
                model,
                orn.ConstantSGD("scalar"),
                batch_size=20,
                draws=100,
                max_steps=50_000,
                progress=False,
            )
        assert post.settings["thin"] < 2.0 * post.prediction.relaxation_time
        # rounds of warm-up are rounded up to whole strides
        assert post.settings["steps"] <= 50_000 * 1.01

    def test_the_bound_holds_also_where_warm_up_does_not_settle(self):
        """From a start 300 posterior sds away the slow direction cannot settle within the budget:
        said, not run for ever.
        """
        model = self.slow_model()
        curvature = orn.measure(model)
        start = curvature.mode + 300.0 * curvature.laplace.standard_deviation
        with pytest.warns() as caught:
            post = orn.sample(
                model,
                orn.ConstantSGD("scalar"),
                curvature=curvature,
                batch_size=20,
                draws=100,
                max_steps=50_000,
                init=start,
                progress=False,
            )
        kinds = {warning.category for warning in caught}
        assert kinds == {orn.BudgetWarning, orn.StationarityWarning}
        assert post.settings["steps"] <= 50_000 * 1.01

    def test_enough_budget_gives_no_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            quick()

    def test_given_numbers_are_taken(self):
        post = quick(thin=3, warmup=17)
        assert post.settings["thin"] == 3 and post.settings["warmup"] == 17
        assert post.settings["steps"] == 2 * (17 + 50 * 3)

    def test_the_automatic_batch_is_halved_until_the_step_is_stable(self):
        model, curvature = regression()
        sampler = orn.ConstantSGD("full", tuning="continuous")
        scarce = orn.Curvature(
            curvature.mode, curvature.hessian, 0.02 * curvature.noise, curvature.n_data
        )
        assert not sampler.tune(scarce, batch_size=32).predict(scarce).stable
        post = orn.sample(
            model, sampler, curvature=scarce, draws=5, chains=1, warmup=0, progress=False
        )
        assert post.settings["batch_size"] in (4, 8, 16)
        assert (
            not sampler.tune(scarce, batch_size=2 * post.settings["batch_size"])
            .predict(scarce)
            .stable
        )

    @pytest.mark.parametrize("batch_size", ["auto", 20])
    def test_the_law_is_predicted_once(self, monkeypatch, batch_size):
        """On many rows that takes longer than anything else."""
        predict, calls = orn.Dynamics.predict, []
        monkeypatch.setattr(
            orn.Dynamics, "predict", lambda *given: calls.append(1) or predict(*given)
        )
        assert quick(batch_size=batch_size, draws=5).prediction.stable
        assert len(calls) == 1


class TestStability:
    @pytest.mark.parametrize("damping", [1.0, 0.3])
    def test_a_step_beyond_the_bound_is_refused_naming_it(self, damping):
        _, curvature = regression()
        bound = (
            orn.ConstantSGD("scalar", 1e-3, damping)
            .tune(curvature, 20)
            .predict(curvature)
            .step_bound
        )
        with pytest.raises(orn.StabilityError) as caught:
            quick(orn.ConstantSGD("scalar", 1.02 * bound, damping))
        assert f"the step size {1.02 * bound:.4g} is beyond the stability bound {bound:.4g}" in str(
            caught.value
        )
        assert quick(
            orn.ConstantSGD("scalar", 0.9 * bound, damping), draws=5, thin=1, warmup=0
        ).draws.shape == (2, 5, 3)

    def test_a_matrix_is_refused_with_the_factor_that_saves_it(self):
        _, curvature = regression()
        dynamics = orn.ConstantSGD("full").tune(curvature, 20)
        wild = orn.Dynamics(100.0 * dynamics.preconditioner, 20)
        bound = wild.predict(curvature).step_bound
        assert bound < 1.0
        with pytest.raises(orn.StabilityError, match=f"multiply it by less than {bound:.4g}"):
            quick(wild)
        assert orn.Dynamics(0.98 * bound * wild.preconditioner, 20).predict(curvature).stable

    def test_a_chain_that_leaves_the_finite_numbers_says_where(self):
        X, y = regression_data(400, 2)
        model = orn.glm(X, np.floor(np.exp(np.clip(y, -2, 2))), "poisson", prior_precision=1.0)
        far = {"coef": np.array([40.0, 40.0]), "intercept": np.zeros(())}
        with pytest.raises(
            orn.DivergenceError, match="reached non-finite values near step"
        ) as caught:
            orn.sample(
                model,
                orn.ConstantSGD("full"),
                init=far,
                warmup=200,
                draws=10,
                batch_size=5,
                progress=False,
                max_steps=10**7,
            )
        error = caught.value
        assert error.step >= 1 and error.chain in range(4)
        assert error.last_finite.shape == (3,) and np.all(np.isfinite(error.last_finite))


class TestStarts:
    def test_chains_start_where_they_are_told_as_a_tree_or_flat(self):
        model, _ = regression()
        at = np.array([5.0, -4.0, 3.0])
        slow = orn.Dynamics(1e-9, batch_size=20)
        flat = quick(slow, init=at, thin=1, warmup=0)
        tree = quick(slow, init={"coef": at}, thin=1, warmup=0)
        assert flat.draws == pytest.approx(np.broadcast_to(at, (2, 50, 3)), abs=1e-4)
        assert np.array_equal(flat.draws, tree.draws)
        assert model.names == flat.names

    @pytest.mark.slow
    def test_without_a_start_chains_begin_in_the_predicted_law(self):
        _, _ = regression()
        slow = orn.Dynamics(1e-9, batch_size=20)
        post = quick(slow, thin=1, warmup=0, draws=1, chains=2000)
        law = post.prediction.process.modes.to_theta(post.prediction.process.stationary)
        found = np.cov(post.draws[:, 0].T)
        scale = np.sqrt(np.multiply.outer(np.diagonal(law), np.diagonal(law)))
        assert np.max(np.abs(found - law) / scale) < 5.0 * np.sqrt(2.0 / 2000)

    def test_a_far_start_is_forgotten_in_warm_up(self):
        _, curvature = regression()
        start = curvature.mode + 20.0 * curvature.laplace.standard_deviation
        post = quick(init=start, draws=500, chains=4)
        assert np.max(np.abs(post.mean - curvature.mode) / mean_error(post)) < SIGMAS
        scores, _ = covariance_scores(post)
        assert np.max(np.abs(scores)) < SIGMAS

    def test_starts_that_do_not_fit_are_refused(self):
        for start in (np.zeros(4), {"coef": np.zeros(2)}, np.full(3, np.nan)):
            with pytest.raises(orn.InputError):
                quick(init=start)


class TestWidths:
    def test_both_widths_sample_the_same_chain(self):
        single, double = quick(dtype="float32"), quick(dtype="float64")
        assert single.draws.dtype == double.draws.dtype == np.float64
        assert np.max(np.abs(single.draws - double.draws)) < 1e-4
        assert not np.array_equal(single.draws, double.draws)

    def test_the_users_jax_configuration_is_left_alone(self):
        quick(dtype="float64", draws=5)
        assert jnp.ones(1).dtype == jnp.float32


class TestKeep:
    def test_moments_are_those_of_the_run_with_draws(self):
        whole, moments = quick(), quick(keep="moments")
        assert moments.draws.shape == (2, 0, 3)
        assert np.array_equal(whole.mean, moments.mean) and np.array_equal(
            whole.covariance, moments.covariance
        )
        assert list(moments.summary().columns) == ["mean", "sd"]
        assert moments.summary()["sd"].to_numpy() == pytest.approx(
            np.sqrt(np.diagonal(moments.covariance))
        )
        with pytest.raises(orn.InputError, match="only their moments were kept"):
            moments.predict(np.eye(3))

    def test_moments_take_in_the_states_between_draws(self):
        post = quick(thin=24, draws=100)
        assert post.settings["moment_spacing"] == 3 and post.settings["states"] == 2 * 100 * 8
        every = quick(thin=3, draws=800)
        flat = every.draws.reshape(-1, 3)
        assert post.mean == pytest.approx(flat.mean(axis=0), rel=1e-9)
        assert post.covariance == pytest.approx(np.cov(flat.T), rel=1e-9)
        assert np.array_equal(post.draws, every.draws[:, 7::8])

    def test_an_allocation_above_the_limit_is_refused_with_its_size(self):
        with pytest.raises(
            orn.InputError, match=r"2\.4 GB, above the limit of 2 GB.*keep='moments'"
        ):
            quick(draws=50_000_000, thin=1, max_steps=10**9, warmup=0)

    def test_the_refusal_comes_before_the_run(self, monkeypatch):
        monkeypatch.setattr(checks, "LARGEST_ALLOCATION", 1000)
        monkeypatch.setattr(
            "ornstein.engine.run.Run.advance",
            lambda *_, **__: pytest.fail("steps were taken first"),
        )
        with pytest.raises(orn.InputError, match="GB"):
            quick()


class TestAnyModel:
    def model(self):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(500, 3))
        y = x @ np.array([[1.0, 0.0], [0.5, -1.0], [0.0, 2.0]]) + 0.5 + rng.normal(size=(500, 2))

        def log_likelihood(params, example):
            residual = example["y"] - example["x"] @ params["layer"]["weight"] - params["bias"]
            return -0.5 * jnp.sum(residual**2)

        def predict(params, inputs):
            return inputs @ params["layer"]["weight"] + params["bias"]

        init = {"layer": {"weight": jnp.zeros((3, 2))}, "bias": jnp.zeros(2)}
        return orn.Model(
            log_likelihood,
            {"x": x, "y": y},
            lambda p: -0.5 * jnp.sum(p["bias"] ** 2),
            init=init,
            predict=predict,
        ), x

    def test_draws_come_back_in_the_users_tree(self):
        model, x = self.model()
        post = orn.sample(model, orn.ConstantSGD("full"), draws=300, chains=2, progress=False)
        assert post.params["layer"]["weight"].shape == (2, 300, 3, 2) and post.params[
            "bias"
        ].shape == (2, 300, 2)
        assert post.names[:3] == ("bias[0]", "bias[1]", "layer.weight[0,0]")
        assert np.array_equal(
            post.params["layer"]["weight"][1, 7], post.draws[1, 7, 2:].reshape(3, 2)
        )
        scores, _ = covariance_scores(post)
        assert np.max(np.abs(scores)) < SIGMAS
        found = post.predict(x[:5])
        assert found.draws.shape == (600, 5, 2)
        at_mode = model.layout.unflatten(post.curvature.mode)
        assert found.mean == pytest.approx(
            x[:5] @ at_mode["layer"]["weight"] + at_mode["bias"], abs=0.05
        )

    def test_arviz_has_one_variable_per_leaf(self):
        model, _ = self.model()
        post = orn.sample(
            model, orn.ConstantSGD("full"), draws=20, chains=2, warmup=0, progress=False
        )
        data = post.to_arviz()
        assert data.posterior["layer.weight"].shape == (2, 20, 3, 2)
        assert np.array_equal(data.posterior["bias"].to_numpy(), post.params["bias"])
        assert data.posterior.attrs["seed"] == "0"

    def test_a_model_without_predict_says_so(self):
        model = orn.Model(lambda t, x: -0.5 * (x - t) ** 2, np.arange(50.0), init=0.0)
        with pytest.raises(orn.InputError, match="no predict function"):
            orn.sample(model, orn.ConstantSGD("full"), draws=5, warmup=0, progress=False).predict(
                np.zeros(2)
            )


class TestPosterior:
    def test_the_summary_has_every_parameter(self):
        table = quick(draws=200).summary(0.9)
        assert list(table.index) == ["x0", "x1", "x2"]
        assert {"mean", "sd", "5%", "95%", "mcse", "ess_bulk", "ess_tail", "r_hat"} <= set(
            table.columns
        )
        assert np.all(table["5%"] < table["mean"]) and np.all(table["mean"] < table["95%"])
        assert np.all(table["r_hat"] < 1.1) and np.all(table["ess_bulk"] > 50)

    def test_effective_sizes_are_as_predicted(self):
        """Draws two relaxation times apart: correlation e⁻² or less, so at least 3/4 of them
        count.
        """
        table = quick(draws=2000).summary()
        assert np.all(table["ess_bulk"] > 0.6 * 4000)

    def test_settings_say_where_the_draws_came_from(self):
        settings = quick(seed=3).settings
        assert {"ornstein", "jax", "numpy", "scipy", "python", "seconds", "steps"} <= set(settings)
        assert (
            settings["seed"] == 3
            and settings["dtype"] == "float32"
            and settings["complete"] is True
        )

    def test_default_sampler_is_full_constant_sgd(self):
        assert quick().dynamics.sampler == "ConstantSGD('full')"

    def test_a_curvature_of_another_model_is_refused(self):
        cur = orn.Curvature(mode=np.zeros(2), hessian=np.eye(2), noise=np.eye(2), n_data=1000)
        with pytest.raises(orn.InputError, match="the curvature has 2 parameters, the model 3"):
            quick(curvature=cur)

    def test_nothing_is_printed_without_a_terminal(self, capfd):
        quick(progress=True)
        captured = capfd.readouterr()
        assert captured.out == "" and captured.err == ""


class TestThreads:
    def test_chains_on_threads_draw_what_each_would_draw_alone(self):
        together = quick(chains=5, draws=30)
        alone = quick(chains=1, draws=30)
        assert np.array_equal(together.draws[:1], alone.draws)
        assert len({draws.tobytes() for draws in together.draws}) == 5

    def test_an_error_in_one_chain_stops_all(self, monkeypatch):
        from ornstein.engine.chain import Chain

        advance = Chain.advance

        def failing(self, *arguments):
            if self.number == 1:
                raise orn.DivergenceError("chain 1 fails", chain=1, step=0, last_finite=None)
            return advance(self, *arguments)

        monkeypatch.setattr(Chain, "advance", failing)
        with pytest.raises(orn.DivergenceError, match="chain 1 fails"):
            quick(chains=4)
