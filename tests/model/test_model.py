"""What a Model is: the mean loss and its scaling, centres, layouts, hyperparameters, and the check
on a user's likelihood.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import regression_data

import ornstein as orn
from ornstein.compute.precision import double, width
from ornstein.model.parameters import Layout
from ornstein.rows.memory import HUGE_PAGE


def normal_likelihood(theta, x):
    return -0.5 * jnp.sum((x - theta) ** 2)


def normal_prior(theta):
    return -2.0 * jnp.sum(theta**2)


def loss_value(model, theta, rows, centre=None):
    with double():
        problem = model.problem("float64", centre)
        batch = jax.tree.map(lambda leaf: leaf[rows], problem.data)
        shift = jnp.asarray(theta if centre is None else theta - centre)
        return float(jax.jit(model.loss.minibatch)(problem, shift, batch))


def loss_gradient(model, theta, rows, centre=None, dtype="float64"):
    with width(dtype):
        problem = model.problem(dtype, centre)
        shift = jnp.asarray(theta if centre is None else theta - centre, dtype=dtype)
        return np.asarray(
            jax.jit(model.loss.gradient)(problem, shift, jnp.asarray(rows, dtype=jnp.int32))
        )


class TestScaling:
    """N and the prior are scaled here and nowhere else."""

    def test_the_loss_is_the_mean_over_rows_plus_the_prior_over_n(self):
        x = np.random.default_rng(0).normal(size=(7, 2))
        model = orn.Model(normal_likelihood, x, normal_prior, init=np.zeros(2))
        theta = np.array([0.3, -0.2])
        wanted = np.mean(0.5 * np.sum((x - theta) ** 2, axis=1)) + 2.0 * np.sum(theta**2) / 7
        assert loss_value(model, theta, np.arange(7)) == pytest.approx(wanted, rel=1e-14)

    def test_a_minibatch_replaces_the_mean_and_leaves_the_prior_over_n(self):
        x = np.random.default_rng(0).normal(size=(7, 2))
        model = orn.Model(normal_likelihood, x, normal_prior, init=np.zeros(2))
        theta, rows = np.array([0.3, -0.2]), [5, 1, 1]
        wanted = np.mean(theta - x[rows], axis=0) + 4.0 * theta / 7
        assert loss_gradient(model, theta, rows) == pytest.approx(wanted, rel=1e-14)

    def test_a_flat_prior_is_the_default(self):
        x = np.arange(5.0)
        model = orn.Model(lambda t, e: -0.5 * (e - t) ** 2, x, init=0.0)
        assert model.scaled_prior(np.array([3.0])) == (0.0, pytest.approx([0.0]))
        assert model.prior_hessian(np.array([3.0])) == pytest.approx(np.zeros((1, 1)))

    def test_the_prior_and_its_derivatives(self):
        model = orn.Model(normal_likelihood, np.zeros((10, 2)), normal_prior, init=np.zeros(2))
        theta = np.array([1.0, -2.0])
        value, slope = model.scaled_prior(theta)
        assert value == pytest.approx(2.0 * 5.0 / 10, rel=1e-14)
        assert slope == pytest.approx(4.0 * theta / 10, rel=1e-14)
        assert model.prior_hessian(theta) == pytest.approx(4.0 * np.eye(2), rel=1e-14)

    def test_only_the_diagonal_of_the_priors_hessian_for_many_parameters(self):
        scale = jnp.linspace(1.0, 2.0, 2001)
        model = orn.Model(
            lambda t, x: -0.5 * x * jnp.sum(t**2),
            np.ones(3),
            lambda t: -0.5 * jnp.sum(scale * t**2),
            init=np.zeros(2001),
        )
        assert model.prior_hessian(np.zeros(2001)) == pytest.approx(
            np.asarray(scale, dtype=float), rel=1e-12
        )


class TestCentre:
    """Positions are measured from a centre: same gradients, to rounding."""

    @pytest.mark.parametrize(
        "build",
        [
            lambda X, y: orn.glm(X, y, prior_precision=1.0),
            lambda X, y: orn.glm(
                X,
                y,
                noise_scale=0.7,
                offset=np.linspace(0, 1, len(y)),
                weights=np.linspace(0.5, 2, len(y)),
                prior_precision=1.0,
            ),
            lambda X, y: orn.glm(
                X, y > 0, "bernoulli", offset=np.linspace(0, 1, len(y)), prior_precision=1.0
            ),
            lambda X, y: orn.glm(
                X,
                np.digitize(y, [-1, 1]),
                "categorical",
                offset=np.outer(np.linspace(0, 1, len(y)), [0, 1, 2]),
                prior_precision=1.0,
            ),
            lambda X, y: orn.glm(X, np.digitize(y, [-1, 1]), "categorical", prior_precision=0.0),
            lambda X, y: orn.glm(
                X,
                np.floor(np.abs(y)),
                "poisson",
                weights=np.linspace(0.5, 2, len(y)),
                prior_precision=1.0,
            ),
            lambda X, y: orn.Model(
                lambda t, e: -0.5 * (e["y"] - e["x"] @ t) ** 2,
                {"x": X, "y": y},
                lambda t: -jnp.sum(t**2),
                init=np.zeros(3),
            ),
        ],
        ids=["infer", "gaussian", "bernoulli", "categorical", "reference", "poisson", "generic"],
    )
    def test_gradients_do_not_depend_on_the_centre(self, build):
        X, y = regression_data(20, 3)
        model = build(X, y)
        rng = np.random.default_rng(0)
        centre, shift = rng.normal(size=(2, model.dim))
        rows = np.array([3, 3, 11])
        plain = loss_gradient(model, centre + 0.1 * shift, rows)
        centred = loss_gradient(model, centre + 0.1 * shift, rows, centre)
        assert np.max(np.abs(plain - centred)) < 1e-12 * np.max(np.abs(plain))

    def test_a_far_centre_costs_no_digits_in_float32(self):
        X, y = regression_data(50, 2)
        X = X + 100.0  # intercept and slopes nearly cancel
        model = orn.glm(X, y, noise_scale=1.0, prior_precision=1.0)
        mode = orn.measure(model).mode
        theta = mode + np.array([1e-4, -2e-4, 0.1])
        exact = loss_gradient(model, theta, np.arange(50))
        residual = y - X @ theta[:2] - theta[2]
        # of x and y - offset themselves
        rounding = 2.0**-23 * np.mean(np.abs(X) * np.abs(residual)[:, None])
        error = np.max(np.abs(loss_gradient(model, theta, np.arange(50), mode, "float32") - exact))
        plain = np.max(np.abs(loss_gradient(model, theta, np.arange(50), None, "float32") - exact))
        assert error < 2.0 * rounding
        assert plain > 10.0 * error


class Weights(NamedTuple):
    slope: object
    bias: object


class TestLayout:
    @pytest.mark.parametrize(
        ("params", "names"),
        [
            (np.zeros(()), ("theta",)),
            (np.zeros(2), ("theta[0]", "theta[1]")),
            ({"w": np.zeros((1, 2)), "b": 0.0}, ("b", "w[0,0]", "w[0,1]")),
            ([np.zeros(1), {"a": 0.0}], ("0[0]", "1.a")),
            (Weights(np.zeros(2), 0.0), ("slope[0]", "slope[1]", "bias")),
        ],
        ids=["scalar", "vector", "dict", "list", "named tuple"],
    )
    def test_every_number_has_a_name(self, params, names):
        model = orn.Model(
            lambda p, x: sum(jnp.sum(leaf) for leaf in jax.tree.leaves(p)) * x,
            np.ones(3),
            init=params,
        )
        assert model.names == names
        assert model.dim == len(names)

    def test_flatten_and_unflatten_undo_each_other_also_with_leading_axes(self):
        params = {"w": np.arange(6.0).reshape(2, 3), "b": np.array(7.0)}
        layout = Layout.of(params)
        flat = layout.flatten(params)
        assert flat.tolist() == [7, 0, 1, 2, 3, 4, 5]
        many = layout.unflatten(np.stack([[flat, flat + 10]] * 4))
        assert many["w"].shape == (4, 2, 2, 3) and many["b"].shape == (4, 2)
        assert np.array_equal(many["w"][0, 1], params["w"] + 10)

    def test_other_shapes_are_refused(self):
        layout = Layout.of({"w": np.zeros(3)})
        with pytest.raises(orn.InputError, match="do not fit"):
            layout.flatten({"w": np.zeros(4)})
        with pytest.raises(orn.InputError, match="do not fit"):
            layout.flatten({"v": np.zeros(3)})


class TestHyperparameters:
    def build(self):
        return orn.Model(
            lambda t, x, hyper: -0.5 * ((x - t) / hyper["scale"]) ** 2,
            np.arange(4.0),
            lambda t, hyper: -0.5 * hyper["precision"] * t**2,
            init=0.0,
            hyperparameters={"scale": 2.0, "precision": 3.0},
        )

    def test_they_reach_likelihood_and_prior(self):
        model = self.build()
        assert loss_gradient(model, np.array([1.0]), [3]) == pytest.approx(
            [(1.0 - 3.0) / 4.0 + 3.0 / 4.0], rel=1e-14
        )

    def test_they_can_be_moved_without_touching_the_model(self):
        model = self.build()
        moved = model.with_hyperparameters(precision=8.0)
        assert loss_gradient(moved, np.array([1.0]), [3]) == pytest.approx(
            [(1.0 - 3.0) / 4.0 + 8.0 / 4.0], rel=1e-14
        )
        assert float(model.hyperparameters["precision"]) == 3.0
        assert moved.loss is model.loss  # no new compilation

    def test_unknown_ones_are_refused(self):
        with pytest.raises(orn.InputError, match=r"unknown hyperparameters \['depth'\]"):
            self.build().with_hyperparameters(depth=1.0)

    def test_a_glm_at_another_prior_precision_has_another_mode(self):
        X, y = regression_data(30, 2)
        model = orn.glm(X, y, noise_scale=1.0, intercept=False, prior_precision=1.0)
        mode = orn.measure(model.with_hyperparameters(prior_precision=50.0)).mode
        assert mode == pytest.approx(np.linalg.solve(X.T @ X + 50.0 * np.eye(2), X.T @ y), rel=1e-8)


class TestFunctions:
    """Which functions pass for a log likelihood."""

    @pytest.mark.parametrize(
        "function",
        [
            lambda t, x: -0.5 * (x - t) ** 2,
            lambda *both: -0.5 * (both[1] - both[0]) ** 2,
            lambda t, x, scale=1.0: -0.5 * ((x - t) / scale) ** 2,
            partial(lambda scale, t, x: -0.5 * ((x - t) / scale) ** 2, 1.0),
        ],
        ids=["plain", "starred", "default", "partial"],
    )
    def test_two_arguments_in_any_dress(self, function):
        model = orn.Model(function, np.arange(4.0), init=0.0)
        assert loss_gradient(model, np.array([1.0]), [3]) == pytest.approx([-2.0])

    def test_equal_models_share_their_compiled_code(self):
        X, y = regression_data(20, 3)
        one, other = (
            orn.glm(X, y, prior_precision=1.0),
            orn.glm(X[:10], y[:10] + 1.0, prior_precision=1.0),
        )
        assert one.loss == other.loss and hash(one.loss) == hash(other.loss)
        assert one.loss != orn.glm(X, y, noise_scale=1.0, prior_precision=1.0).loss


class TestData:
    def test_frames_lists_and_trees_are_read(self):
        import pandas

        frame = pandas.DataFrame({"x": [1.0, 2.0, 3.0]})
        model = orn.Model(lambda t, e: -0.5 * (e["f"][0] - t) ** 2, {"f": frame}, init=0.0)
        assert model.n_data == 3
        assert loss_gradient(model, np.array([0.0]), [2]) == pytest.approx([-3.0])

    @pytest.mark.parametrize("dtype", [np.int64, np.uint64])
    def test_integers_beyond_32_bits_do_not_wrap_around(self, dtype):
        x = np.array([3_000_000_000, 5_000_000_000], dtype=dtype)
        model = orn.Model(lambda t, e: -t * e, x, init=0.0)
        for centre in (None, np.zeros(1)):
            assert loss_gradient(model, np.zeros(1), [0], centre, "float32") == pytest.approx(
                [3e9], rel=1e-6
            )

    def test_small_integers_stay_integers(self):
        with width("float32"):
            problem = orn.glm(np.eye(4), [0, 1, 0, 1], "categorical", prior_precision=1.0).problem()
        assert problem.data["y"].dtype == jnp.int32

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_large_data_lie_on_whole_pages(self, dtype):
        """In memory of ours, which may have large pages, and not in a copy of JAX's; data of the
        user stay the user's.
        """
        x = np.random.default_rng(0).normal(size=HUGE_PAGE // 4)
        with width(dtype):
            (data,) = jax.tree.leaves(
                orn.Model(lambda t, e: -t * e, x, init=0.0).problem(dtype).data
            )
        assert data.unsafe_buffer_pointer() % HUGE_PAGE == 0
        x[0] += 1.0
        assert np.array_equal(np.asarray(data)[1:], x[1:].astype(dtype))
        assert np.asarray(data)[0] != x[0].astype(dtype)


class TestCheckGradients:
    n_data = 900

    def columns(self):
        X, y = regression_data(self.n_data, 3)
        return {"x": X, "y": y}

    @staticmethod
    def likelihood(theta, example):
        return -0.5 * (example["y"] - example["x"] @ theta) ** 2

    def model(self, function):
        return orn.Model(function, self.columns(), lambda t: -0.5 * jnp.sum(t**2), init=np.zeros(3))

    def test_a_right_likelihood_passes_with_a_ratio_near_one(self):
        assert orn.check_gradients(self.model(self.likelihood)) == pytest.approx(1.0, abs=0.3)

    @pytest.mark.parametrize("family", ["gaussian", "bernoulli", "categorical", "poisson"])
    def test_every_family_passes(self, family):
        X, y = regression_data(self.n_data, 3)
        target = {
            "gaussian": y,
            "bernoulli": y > 0,
            "categorical": np.digitize(y, [-1, 1]),
            "poisson": np.exp(y / 4) // 1,
        }[family]
        assert 0.1 < orn.check_gradients(orn.glm(X, target, family, prior_precision=1.0)) < 10.0

    def test_a_likelihood_divided_by_n_is_caught(self):
        with pytest.raises(orn.InputError, match="divided by N"):
            orn.check_gradients(self.model(lambda t, e: self.likelihood(t, e) / self.n_data))

    def test_a_likelihood_multiplied_by_n_is_caught(self):
        with pytest.raises(orn.InputError, match="multiplied by N"):
            orn.check_gradients(self.model(lambda t, e: self.likelihood(t, e) * self.n_data))

    @pytest.mark.parametrize("reduce", [jnp.sum, jnp.mean], ids=["sum", "mean"])
    def test_a_likelihood_over_the_whole_data_set_is_caught(self, reduce):
        data = jax.tree.map(jnp.asarray, self.columns())

        def everything(theta, example):
            return reduce(-0.5 * (data["y"] - data["x"] @ theta) ** 2)

        with pytest.raises(orn.InputError, match="same value for every row"):
            orn.check_gradients(self.model(everything))
