"""The local picture at the mode: exact against dense formulas, bounded passes, scarce noise, and
refusals in words.
"""

from __future__ import annotations

import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from helpers import hessian_and_noise, logistic_data, regression_data, relative, spd

import ornstein as orn
from ornstein.curvature import autodiff, mode, newton
from ornstein.curvature.autodiff import Autodiff
from ornstein.curvature.closed_form import ClosedForm
from ornstein.curvature.derivatives import derivatives_of


class TestExactness:
    def test_linear_regression_against_dense_formulas(self):
        X, y = regression_data(50, 3)
        precision, scale = np.array([1.0, 0.0, 4.0]), 0.7
        cur = orn.measure(
            orn.glm(X, y, prior_precision=precision, noise_scale=scale, intercept=False)
        )
        mode = np.linalg.solve(X.T @ X / scale**2 + np.diag(precision), X.T @ y / scale**2)
        data_part = X.T @ X / (50 * scale**2)
        gradients = -(y - X @ mode)[:, None] * X / scale**2
        assert cur.mode == pytest.approx(mode, rel=1e-9)
        assert relative(cur.hessian, data_part + np.diag(precision) / 50) < 1e-12
        assert relative(cur.noise, np.cov(gradients.T, bias=True)) < 1e-9
        assert (
            relative(
                cur.posterior_covariance, np.linalg.inv(X.T @ X / scale**2 + np.diag(precision))
            )
            < 1e-10
        )
        assert relative(cur.laplace.covariance, cur.posterior_covariance) == 0 and np.array_equal(
            cur.laplace.mean, cur.mode
        )
        assert relative(cur.prior_hessian, np.diag(precision)) < 1e-12
        assert cur.n_data == 50 and cur.names == ("x0", "x1", "x2") and cur.approximate == ""

    def test_the_noise_response_against_its_definition(self):
        X, y = regression_data(50, 3)
        cur = orn.measure(orn.glm(X, y, noise_scale=0.7, intercept=False, prior_precision=1.0))
        spread = spd(np.random.default_rng(0), 3)
        each = X[:, :, None] * X[:, None, :] / 0.7**2
        data_part = each.mean(axis=0)
        wanted = (
            np.mean([one @ spread @ one for one in each], axis=0) - data_part @ spread @ data_part
        )
        assert relative(cur.noise_response(spread), wanted) < 1e-12
        assert relative(cur.noise_at(spread), cur.noise + wanted) < 1e-12
        assert relative(cur.effective_noise, cur.noise_at(cur.posterior_covariance)) < 1e-12

    def test_logistic_regression_against_dense_formulas(self):
        X, y = logistic_data(200, 3)
        cur = orn.measure(orn.glm(X, y, "bernoulli", intercept=False, prior_precision=1.0))
        found = scipy.optimize.minimize(
            lambda t: np.mean(np.logaddexp(0.0, X @ t) - y * (X @ t)) + t @ t / 400,
            np.zeros(3),
            method="BFGS",
            options={"gtol": 1e-9},
        )
        assert cur.mode == pytest.approx(found.x, abs=1e-6)
        chance = 1 / (1 + np.exp(-X @ cur.mode))
        weights = chance * (1 - chance)
        assert relative(cur.hessian, (X.T * weights) @ X / 200 + np.eye(3) / 200) < 1e-10
        assert relative(cur.noise, np.cov((X * (chance - y)[:, None]).T, bias=True)) < 1e-10
        spread = spd(np.random.default_rng(0), 3)
        data_part = (X.T * weights) @ X / 200
        wanted = (
            X.T * (weights**2 * np.einsum("ni,ij,nj->n", X, spread, X))
        ) @ X / 200 - data_part @ spread @ data_part
        assert relative(cur.noise_response(spread), wanted) < 1e-10

    def test_any_model_has_the_closed_forms_curvature(self):
        X, y = regression_data(60, 2)
        closed = orn.measure(orn.glm(X, y, noise_scale=1.0, intercept=False, prior_precision=1.0))
        generic = orn.measure(
            orn.Model(
                lambda t, e: -0.5 * (e["y"] - e["x"] @ t) ** 2,
                {"x": X, "y": y},
                lambda t: -0.5 * jnp.sum(t**2),
                init=np.zeros(2),
            )
        )
        spread = spd(np.random.default_rng(0), 2)
        assert generic.mode == pytest.approx(closed.mode, rel=1e-8)
        assert (
            relative(generic.hessian, closed.hessian) < 1e-10
            and relative(generic.noise, closed.noise) < 1e-8
        )
        assert relative(generic.noise_response(spread), closed.noise_response(spread)) < 1e-8

    def test_the_mode_is_one_also_with_an_inferred_scale(self):
        X, y = regression_data(80, 3)
        model = orn.glm(X, y, prior_precision=1.0)
        cur = orn.measure(model)
        _, slope = derivatives_of(model).value_and_gradient(cur.mode)
        _, prior_slope = model.scaled_prior(cur.mode)
        total = slope + prior_slope
        # distance in posterior standard deviations
        assert np.sqrt(80 * total @ np.linalg.solve(cur.hessian, total)) < 1e-4
        residual = y - X @ cur.mode[:3] - cur.mode[3]
        assert cur.mode[4] == pytest.approx(np.log(np.sqrt(np.mean(residual**2))), abs=1e-6)

    def test_a_given_mode_is_taken(self):
        X, y = regression_data(50, 2)
        model = orn.glm(X, y, noise_scale=1.0, intercept=False, prior_precision=1.0)
        elsewhere = np.array([0.5, -0.5])
        cur = orn.measure(model, mode=elsewhere)
        gradients = -(y - X @ elsewhere)[:, None] * X
        assert np.array_equal(cur.mode, elsewhere)
        assert relative(cur.noise, np.cov(gradients.T, bias=True)) < 1e-10


class TestPasses:
    """Chunks bound the memory; their size changes nothing."""

    def test_autodiff_does_not_depend_on_the_chunk_size(self, monkeypatch):
        X, y = regression_data(50, 3)
        model = orn.Model(
            lambda t, e: -0.5 * (e["y"] - jnp.tanh(e["x"] @ t)) ** 2,
            {"x": X, "y": y},
            init=np.zeros(3),
        )
        theta, spread = np.array([0.1, -0.3, 0.2]), spd(np.random.default_rng(0), 3)

        def everything():
            auto = Autodiff(model)
            return [
                *auto.value_and_gradient(theta),
                auto.hessian(theta),
                *auto.gradient_moments(theta),
                *auto.diagonal_moments(theta),
                auto.hessian_product(theta, theta),
                auto.squared_hessian(theta)(spread),
            ]

        whole = everything()
        chunks = autodiff.padded_chunks
        # 50 = 7·7 + 1: a ragged end
        monkeypatch.setattr(autodiff, "padded_chunks", lambda model, rows: chunks(model, 7))
        for one, other in zip(everything(), whole, strict=True):
            assert relative(one, other) < 1e-12

    def test_closed_forms_do_not_depend_on_the_chunk_size(self, monkeypatch):
        X, y = regression_data(50, 3)
        model = orn.glm(X, y, prior_precision=1.0)
        spread = spd(np.random.default_rng(0), 5)
        whole = orn.measure(model)
        response = whole.noise_response(spread)
        monkeypatch.setattr("ornstein.model.linear.CHUNK_NUMBERS", 35)  # 7 rows
        pieces = orn.measure(model)
        assert pieces.mode == pytest.approx(whole.mode, rel=1e-8)
        assert (
            relative(pieces.hessian, whole.hessian) < 1e-8
            and relative(pieces.noise, whole.noise) < 1e-8
        )
        assert relative(pieces.noise_response(spread), response) < 1e-8
        assert model._centred(whole.mode)[0]["y"] == pytest.approx(
            y - X @ whole.mode[:3] - whole.mode[3], rel=1e-8
        )

    @pytest.mark.parametrize("family", ["gaussian", "bernoulli", "categorical"])
    @pytest.mark.parametrize("structure", ["full", "diagonal"])
    def test_the_mode_of_many_rows_by_way_of_a_part_of_them(self, family, structure, monkeypatch):
        """The same mode, to a thousandth of a posterior standard deviation, where second
        derivatives of all rows are expensive.
        """
        X, y = regression_data(8000, 3)
        y = (
            np.digitize(y, [-1.0, 1.0])
            if family == "categorical"
            else y > 0
            if family == "bernoulli"
            else y
        )
        model = orn.glm(X * [1.0, 30.0, 0.1], y, family, prior_precision=1.0)
        wanted = orn.measure(model)
        monkeypatch.setattr(mode, "PART_ROWS", 400)
        monkeypatch.setattr(mode, "EXPENSIVE", 0)
        parts = []
        monkeypatch.setattr(
            ClosedForm,
            "part",
            lambda self, rows, part=ClosedForm.part: parts.append(rows) or part(self, rows),
        )
        found = orn.measure(model, structure)
        assert [len(rows) < 1000 for rows in parts] == [True]
        away = (found.mode - wanted.mode) / np.sqrt(np.diag(wanted.posterior_covariance))
        assert np.max(np.abs(away)) < 1e-3

    def test_second_derivatives_are_taken_anew_only_where_those_at_hand_no_longer_do(
        self, monkeypatch
    ):
        """The mode is as good as with new ones at every step, and those at the mode are the
        last.
        """
        X, y = regression_data(400, 4)
        model = orn.glm(
            X, np.random.default_rng(3).poisson(np.exp(y / 3.0)), "poisson", prior_precision=1.0
        )
        places, slopes, steps = [], [], {}
        for name, kept in (("hessian", places), ("value_and_gradient", slopes)):
            original = getattr(ClosedForm, name)
            monkeypatch.setattr(
                ClosedForm,
                name,
                lambda self, theta, f=original, kept=kept: (
                    kept.append(theta.copy()) or f(self, theta)
                ),
            )
        for good in (np.inf, newton.GOOD_STEP):  # no step is infinitely good
            monkeypatch.setattr(newton, "GOOD_STEP", good)
            places.clear(), slopes.clear()
            found = orn.measure(model)
            steps[good] = len(places)
            assert np.array_equal(places[-1], found.mode)
            assert any(np.array_equal(place, found.mode) for place in slopes)
            slope = (
                ClosedForm.value_and_gradient(derivatives_of(model), found.mode)[1]
                + model.scaled_prior(found.mode)[1]
            )
            assert model.n_data * slope @ np.linalg.solve(found.hessian, slope) < 1e-15
        assert steps[newton.GOOD_STEP] <= steps[np.inf] - 2

    def test_a_part_of_the_rows_without_a_mode_is_passed_over(self, monkeypatch):
        """Every hundredth label breaks the order, and none of the part's: its classes are
        separable, those of all rows are not.
        """
        x = np.linspace(-1.0, 1.0, 4000)
        y = x > 0.0
        y[::100] = ~y[::100]
        monkeypatch.setattr(mode, "PART_ROWS", 300)
        monkeypatch.setattr(mode, "EXPENSIVE", 0)
        monkeypatch.setattr(
            ClosedForm,
            "part",
            lambda self, rows, part=ClosedForm.part: part(self, rows[rows % 100 > 0]),
        )
        model = orn.glm(x[:, None], y, "bernoulli", prior_precision=0.0, intercept=False)
        found = orn.measure(model).mode
        monkeypatch.undo()
        assert found == pytest.approx(orn.measure(model).mode, rel=1e-9)

    def test_memory_of_a_pass_is_bounded_whatever_n_is(self, tmp_path):
        def peak(n_data):
            path = tmp_path / f"{n_data}.npy"
            np.save(path, np.random.default_rng(0).random(size=(n_data, 63), dtype=np.float32))
            table = np.load(path, mmap_mode="r")
            model = orn.glm(table, np.asarray(table[:, 0]), noise_scale=1.0, prior_precision=1.0)
            theta = np.full(model.dim, 0.1)
            closed = derivatives_of(model)
            tracemalloc.start()
            closed.hessian(theta)
            closed.gradient_moments(theta)
            closed.value_and_gradient(theta)
            _, highest = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            return highest

        # at least two full chunks of 2²¹ numbers in either
        small, large = peak(70_000), peak(140_000)
        assert large < 1.05 * small
        assert large < 10 * 8 * 2**21  # a few chunks in float64

    def test_a_response_too_dear_is_left_out(self):
        model = orn.Model(
            lambda t, x: -0.5 * jnp.sum((t - x) ** 2), np.zeros((5, 3)), init=np.zeros(3)
        )
        model = model.replace(n_data=10**10)
        assert Autodiff(model).squared_hessian(np.zeros(3)) is None


class TestScarceNoise:
    """Where the data leave a direction without gradient noise."""

    def dead_column(self, **settings):
        X, y = regression_data(300, 3)
        X[:, 1] = 0.0
        return orn.measure(orn.glm(X, y, noise_scale=1.0, intercept=False, **settings))

    def test_a_dead_column_gets_prior_noise_and_an_exact_law(self):
        cur = self.dead_column(prior_precision=2.0)
        dynamics = orn.ConstantSGD("full").tune(cur, batch_size=10)
        assert dynamics.injected is not None
        assert "x1" in dynamics.notes[0] and "prior noise" in dynamics.notes[0]
        prediction = dynamics.predict(cur)
        assert prediction.stable
        assert relative(prediction.covariance, cur.posterior_covariance) < 1e-8

    def test_a_dead_column_with_a_flat_prior_is_refused_by_direction(self):
        with pytest.raises(orn.CurvatureError, match="x1"):
            self.dead_column(prior_precision=0.0)

    def test_more_parameters_than_rows(self):
        rng = np.random.default_rng(0)
        cur = orn.measure(
            orn.glm(
                rng.normal(size=(8, 12)),
                rng.normal(size=8),
                noise_scale=1.0,
                intercept=False,
                prior_precision=1.0,
            )
        )
        dynamics = orn.ConstantSGD("full").tune(cur, batch_size=2)
        prediction = dynamics.predict(cur)
        assert dynamics.injected is not None and prediction.stable
        assert relative(prediction.covariance, cur.posterior_covariance) < 1e-8

    def test_rich_noise_gets_no_injection(self):
        X, y = regression_data(300, 3)
        cur = orn.measure(orn.glm(X, y, noise_scale=1.0, prior_precision=1.0))
        for form in ("scalar", "diagonal", "full", "sqrt"):
            assert orn.ConstantSGD(form).tune(cur, batch_size=10).injected is None

    def test_no_noise_and_no_prior_is_refused_in_words(self):
        hessian, noise = hessian_and_noise(3)
        values, vectors = np.linalg.eigh(noise)
        singular = (vectors[:, 1:] * values[1:]) @ vectors[:, 1:].T
        cur = orn.Curvature(mode=np.zeros(3), hessian=hessian, noise=singular, n_data=1000)
        with pytest.raises(
            orn.CurvatureError,
            match=r"gradient noise C is singular: the direction .* does not explore it",
        ):
            orn.ConstantSGD("full").tune(cur, batch_size=10)


class TestRefusals:
    def test_collinear_columns_with_a_flat_prior_are_named(self):
        X, y = regression_data(50, 2)
        X = np.column_stack([X, X[:, 0] - X[:, 1]])
        with pytest.raises(orn.CurvatureError, match="not positive definite") as caught:
            orn.measure(orn.glm(X, y, prior_precision=0.0, noise_scale=1.0))
        assert all(
            name in str(caught.value) for name in ("x0", "x1", "x2")
        ) and "intercept" not in str(caught.value)

    def test_a_saddle_without_end_is_no_mode(self):
        model = orn.Model(
            lambda t, x: -0.5 * (t["a"] - x) ** 2 + 0.01 * t["b"] ** 2,
            np.arange(5.0),
            init={"a": jnp.zeros(()), "b": jnp.zeros(())},
        )
        with pytest.raises(orn.CurvatureError, match="no mode was found") as caught:
            orn.measure(model)
        assert caught.value.kind == "no-maximum"
        at_saddle = {"structure": "full", "mode": np.array([2.0, 0.0])}
        with pytest.raises(orn.CurvatureError, match=r"not positive definite.*\+1.00 b"):
            orn.measure(model, **at_saddle)

    def test_separable_classes_with_a_flat_prior_have_no_mode(self):
        X = np.linspace(-1, 1, 20)[:, None]
        with pytest.raises(orn.CurvatureError, match="no mode was found"):
            orn.measure(orn.glm(X, X[:, 0] > 0, "bernoulli", prior_precision=0.0))

    def test_one_perfect_predictor_among_others_has_no_mode(self):
        X, y = logistic_data(200, 2)
        X = np.column_stack([X, np.where(np.arange(200) < 20, 1.0, 0.0)])
        y[:20] = 1
        with pytest.raises(orn.CurvatureError, match="separable classes"):
            orn.measure(orn.glm(X, y, "bernoulli", prior_precision=0.0))

    def test_counts_that_are_all_zero_have_no_mode(self):
        with pytest.raises(orn.CurvatureError, match="no mode was found"):
            orn.measure(orn.glm(np.zeros((20, 1)), np.zeros(20), "poisson", prior_precision=1.0))

    def test_a_start_in_a_steep_place_is_no_obstacle(self):
        model = orn.Model(
            lambda t, x: t * x - jnp.exp(t), np.array([1.0, 2.0, 3.0]), init=jnp.asarray(30.0)
        )
        assert orn.measure(model).mode == pytest.approx([np.log(2.0)], rel=1e-8)

    def test_a_perfect_fit_has_no_scale(self):
        X, _ = regression_data(30, 2)
        with pytest.raises(orn.CurvatureError):
            orn.measure(orn.glm(X, X @ [1.0, 2.0], prior_precision=1.0))

    def test_a_bad_start_is_refused(self):
        model = orn.Model(lambda t, x: jnp.log(t) - t * x, np.ones(5), init=jnp.asarray(-9.0))
        with pytest.raises(orn.CurvatureError, match="not finite at init"):
            orn.measure(model)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"hessian": np.diag([1.0, -1.0])}, "not positive definite"),
            ({"hessian": np.array([1.0, -1.0]), "noise": np.ones(2)}, "not positive"),
            ({"hessian": np.array([[1.0, 0.5], [0.0, 1.0]])}, "symmetric"),
            ({"hessian": np.eye(3)}, "shape"),
            ({"noise": np.full((2, 2), np.nan)}, "not finite"),
            ({"mode": [np.inf, 0.0]}, "not finite"),
            ({"n_data": 0}, "1 or more"),
        ],
    )
    def test_a_curvature_written_down_by_hand_is_checked(self, change, words):
        good = {"mode": np.zeros(2), "hessian": np.eye(2), "noise": np.eye(2), "n_data": 10}
        with pytest.raises(orn.OrnsteinError, match=words):
            orn.Curvature(**{**good, **change})

    def test_unknown_words_are_refused(self):
        X, y = regression_data(50, 2)
        model = orn.glm(X, y, prior_precision=1.0)
        with pytest.raises(orn.InputError, match="structure must be"):
            orn.measure(model, structure="banded")
        with pytest.raises(orn.InputError, match="hessian must be"):
            orn.measure(model, hessian="guess")
        with pytest.raises(orn.InputError, match="mode must be a vector of 4"):
            orn.measure(model, mode=np.zeros(2))


class TestFisher:
    def test_it_is_the_second_moment_of_the_gradients(self):
        X, y = logistic_data(200, 3)
        exact = orn.measure(orn.glm(X, y, "bernoulli", intercept=False, prior_precision=1.0))
        cur = orn.measure(
            orn.glm(X, y, "bernoulli", intercept=False, prior_precision=1.0), hessian="fisher"
        )
        assert cur.mode == pytest.approx(exact.mode, abs=1e-4)
        chance = 1 / (1 + np.exp(-X @ cur.mode))
        gradients = X * (chance - y)[:, None]
        assert relative(cur.hessian, gradients.T @ gradients / 200 + np.eye(3) / 200) < 1e-10
        assert cur.noise_response is None and "Fisher" in cur.approximate

    def test_it_serves_where_the_hessian_is_indefinite(self):
        rng = np.random.default_rng(0)
        x = rng.normal(size=100)
        model = orn.Model(
            lambda t, e: -0.5 * (e - t[0] * t[1]) ** 2,
            1.0 + x,
            lambda t: -0.05 * jnp.sum(t**2),
            init=jnp.asarray([1e-3, -1e-3]),
        )
        cur = orn.measure(model, hessian="fisher", mode=np.array([0.1, 0.1]))
        assert np.all(np.linalg.eigvalsh(cur.hessian) > 0)
        with pytest.raises(orn.CurvatureError, match="fisher"):
            orn.measure(model, mode=np.array([0.1, 0.1]))


class TestDiagonal:
    def test_it_keeps_diagonals_and_says_so(self):
        X, y = logistic_data(300, 4)
        model = orn.glm(X, y, "bernoulli", prior_precision=3.0)
        full, cur = orn.measure(model), orn.measure(model, "diagonal")
        assert cur.diagonal and cur.noise.shape == (5,)
        assert cur.mode == pytest.approx(full.mode, abs=1e-3)
        assert cur.noise == pytest.approx(np.diagonal(full.noise), rel=1e-3)
        assert cur.hessian == pytest.approx(
            cur.noise + np.array([3.0, 3.0, 3.0, 3.0, 0.0]) / 300, rel=1e-12
        )
        assert cur.posterior_covariance == pytest.approx(1.0 / (300 * cur.hessian), rel=1e-12)
        assert "diagonals" in cur.approximate
        vector = np.arange(5.0)
        assert cur.hessian_product(vector) == pytest.approx(full.hessian @ vector, rel=1e-3)

    def test_stability_is_decided_by_the_true_largest_eigenvalue(self):
        rng = np.random.default_rng(0)
        # twenty copies of one feature: λ_max is 20 times A_kk
        X = rng.normal(size=(400, 1)) + 0.1 * rng.normal(size=(400, 20))
        y = X[:, 0] + rng.normal(size=400)
        model = orn.glm(X, y, noise_scale=1.0, intercept=False, prior_precision=1.0)
        full, cur = orn.measure(model), orn.measure(model, "diagonal")
        largest = np.linalg.eigvalsh(full.hessian)[-1]
        assert cur.largest_rate(np.asarray(1.0)) == pytest.approx(largest, rel=0.01)
        for share, stable in ((0.9, True), (1.1, False)):
            prediction = orn.Dynamics(share * 2.0 / largest, batch_size=10).predict(cur)
            assert prediction.stable is stable
            assert prediction.step_bound == pytest.approx(2.0 / largest, rel=0.01)
            assert prediction.approximate

    def test_many_parameters_are_taken_as_diagonal_by_themselves(self):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(30, 2001)).astype(np.float32)
        model = orn.Model(
            lambda t, e: -0.5 * jnp.sum((e - t) ** 2),
            x,
            lambda t: -0.5 * jnp.sum(t**2),
            init=np.zeros(2001, dtype=np.float32),
        )
        cur = orn.measure(model)
        assert cur.diagonal
        assert cur.mode == pytest.approx(x.sum(axis=0) / 31.0, abs=1e-4)
        prediction = orn.ConstantSGD("diagonal").tune(cur, batch_size=3).predict(cur)
        assert prediction.covariance.shape == (2001,) and prediction.stable
        assert prediction.kl_qp == pytest.approx(0.0, abs=1e-8)
        with pytest.raises(orn.InputError, match="full"):
            orn.ConstantSGD("full", step_size=np.eye(2001)).tune(cur, batch_size=3)


def test_directions_are_said_by_the_parameters_that_matter():
    cur = orn.Curvature(
        mode=np.zeros(3), hessian=np.eye(3), noise=np.eye(3), n_data=5, names=("age", "dose", "sex")
    )
    assert cur.direction(np.array([0.1, -0.9, 0.0])) == "-0.90 dose, +0.10 age"
