"""Regressions as Models: likelihoods against SciPy, closed forms against autodiff, input of every
kind, priors and coding.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import polars
import pytest
import scipy.sparse
import scipy.special
import scipy.stats
from helpers import regression_data, relative

import ornstein as orn
from ornstein.compute.precision import double
from ornstein.curvature.autodiff import Autodiff
from ornstein.curvature.derivatives import derivatives_of
from ornstein.model.linear import LinearPredictor

N, D = 40, 3


def target(family, y):
    return {
        "gaussian": y,
        "bernoulli": (y > 0).astype(int),
        "categorical": np.digitize(y, [-1.0, 1.0]),
        "five classes": np.digitize(y, [-2.0, -1.0, 0.0, 1.0]),
        "poisson": np.floor(np.exp(y / 3.0)),
    }[family]


def build(family, **settings):
    X, y = regression_data(N, D, seed=3)
    named = "categorical" if family == "five classes" else family
    return orn.glm(X, target(family, y), named, **{"prior_precision": 1.0, **settings})


RAMP, WAVE = np.linspace(0.2, 2.0, N), np.cos(np.arange(N))
MODELS = {
    "gaussian infer": ("gaussian", {}),
    "gaussian infer, weights and offset": ("gaussian", {"weights": RAMP, "offset": WAVE}),
    "gaussian fixed, no intercept": ("gaussian", {"noise_scale": 0.7, "intercept": False}),
    "bernoulli": ("bernoulli", {}),
    "bernoulli, weights and offset": ("bernoulli", {"weights": RAMP, "offset": WAVE}),
    "poisson, weights and offset": ("poisson", {"weights": RAMP, "offset": WAVE}),
    "categorical": ("categorical", {}),
    "categorical, flat, weights": ("categorical", {"prior_precision": 0.0, "weights": RAMP}),
    "categorical, intercept prior, offset": (
        "categorical",
        {"intercept_precision": 1.0, "offset": np.outer(WAVE, [0.0, 1.0, -1.0])},
    ),
    "five classes": ("five classes", {}),
    "five classes, no intercept, weights": ("five classes", {"intercept": False, "weights": RAMP}),
    "five classes, flat, offset": (
        "five classes",
        {"prior_precision": 0.0, "offset": np.outer(WAVE, np.arange(5.0))},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_closed_forms_equal_autodiff(name):
    family, settings = MODELS[name]
    model = build(family, **settings)
    rng = np.random.default_rng(1)
    theta, vector = 0.3 * rng.normal(size=(2, model.dim))
    spread = rng.normal(size=(model.dim, model.dim))
    spread = spread @ spread.T
    closed, auto = derivatives_of(model), Autodiff(model)
    value, slope = closed.value_and_gradient(theta)
    auto_value, auto_slope = auto.value_and_gradient(theta)
    assert value == pytest.approx(auto_value, rel=1e-12)
    assert relative(slope, auto_slope) < 1e-12
    assert relative(closed.hessian(theta), auto.hessian(theta)) < 1e-12
    for ours, theirs in zip(
        closed.gradient_moments(theta), auto.gradient_moments(theta), strict=True
    ):
        assert relative(ours, theirs) < 1e-12
    for ours, theirs in zip(
        closed.diagonal_moments(theta), auto.diagonal_moments(theta), strict=True
    ):
        assert relative(ours, theirs) < 1e-12
    assert (
        relative(closed.hessian_product(theta, vector), auto.hessian_product(theta, vector)) < 1e-12
    )
    assert relative(closed.hessian_product(theta, vector), closed.hessian(theta) @ vector) < 1e-12
    assert (
        relative(closed.squared_hessian(theta)(spread), auto.squared_hessian(theta)(spread)) < 1e-12
    )


def log_likelihoods(model, theta):
    with double():
        problem = model.problem("float64")
        return np.asarray(
            jax.jit(model.loss.log_likelihoods)(problem, jnp.asarray(theta), problem.data)
        )


class TestLikelihoods:
    """Per-example log densities are SciPy's, constants included."""

    theta = np.array([0.3, -0.2, 0.5, 0.1])

    def rows(self, family):
        X, y = regression_data(N, D, seed=3)
        return X, target(family, y), X @ self.theta[:3] + self.theta[3]

    def test_gaussian_with_known_scale(self):
        X, y, mean = self.rows("gaussian")
        wanted = scipy.stats.norm(mean, 0.7).logpdf(y)
        assert log_likelihoods(
            orn.glm(X, y, noise_scale=0.7, prior_precision=1.0), self.theta
        ) == pytest.approx(wanted, rel=1e-12)

    def test_gaussian_with_inferred_scale(self):
        X, y, mean = self.rows("gaussian")
        wanted = scipy.stats.norm(mean, np.exp(-0.4)).logpdf(y)
        assert log_likelihoods(
            orn.glm(X, y, prior_precision=1.0), np.append(self.theta, -0.4)
        ) == pytest.approx(wanted, rel=1e-12)

    def test_bernoulli(self):
        X, y, logit = self.rows("bernoulli")
        wanted = scipy.stats.bernoulli(scipy.special.expit(logit)).logpmf(y)
        assert log_likelihoods(
            orn.glm(X, y, "bernoulli", prior_precision=1.0), self.theta
        ) == pytest.approx(wanted, rel=1e-12)

    def test_poisson_with_weights_and_offset(self):
        X, y, log_rate = self.rows("poisson")
        weights, offset = np.linspace(0.5, 2.0, N), np.cos(np.arange(N))
        wanted = weights * scipy.stats.poisson(np.exp(log_rate + offset)).logpmf(y)
        model = orn.glm(X, y, "poisson", weights=weights, offset=offset, prior_precision=1.0)
        assert log_likelihoods(model, self.theta) == pytest.approx(wanted, rel=1e-12)

    def test_categorical(self):
        X, y, _ = self.rows("categorical")
        rng = np.random.default_rng(0)
        coef, intercept = rng.normal(size=(D, 3)), np.array([0.0, 0.4, -0.3])
        wanted = scipy.special.log_softmax(X @ coef + intercept, axis=1)[np.arange(N), y]
        # the flat intercept takes the first class as reference
        model = orn.glm(X, y, "categorical", prior_precision=1.0)
        found = log_likelihoods(
            model, model.layout.flatten({"coef": coef, "intercept": intercept[1:]})
        )
        assert found == pytest.approx(wanted, rel=1e-12)

    def test_extreme_predictors_stay_finite(self):
        X = np.array([[1.0], [-1.0]])
        model = orn.glm(X, [0, 1], "bernoulli", intercept=False, prior_precision=1.0)
        assert log_likelihoods(model, np.array([800.0])) == pytest.approx([-800.0, -800.0])


class TestWeightsAndPriors:
    def test_whole_weights_are_repeated_rows(self):
        X, y = regression_data(N, D)
        counts = np.arange(N) % 3
        weighted = orn.glm(X, y, weights=counts, noise_scale=1.0, prior_precision=1.0)
        repeated = orn.glm(
            np.repeat(X, counts, axis=0), np.repeat(y, counts), noise_scale=1.0, prior_precision=1.0
        )
        assert orn.measure(weighted).mode == pytest.approx(orn.measure(repeated).mode, rel=1e-8)
        posterior = [orn.measure(model).posterior_covariance for model in (weighted, repeated)]
        assert relative(*posterior) < 1e-8

    def test_an_offset_shifts_the_target(self):
        X, y = regression_data(N, D)
        shift = np.cos(np.arange(N))
        one, other = (
            orn.glm(X, y, offset=shift, noise_scale=1.0, prior_precision=1.0),
            orn.glm(X, y - shift, noise_scale=1.0, prior_precision=1.0),
        )
        assert orn.measure(one).mode == pytest.approx(orn.measure(other).mode, rel=1e-8)

    def test_precisions_per_column_are_the_priors_hessian(self):
        model = build("gaussian", prior_precision=[1.0, 0.0, 5.0], intercept_precision=2.0)
        # log σ is flat
        assert model.prior_hessian(model.init) == pytest.approx(np.diag([1.0, 0.0, 5.0, 2.0, 0.0]))

    def test_precisions_per_column_and_class(self):
        precision = np.arange(1.0, 10.0).reshape(3, 3)
        model = build("categorical", prior_precision=precision, intercept=False)
        assert model.prior_hessian(model.init) == pytest.approx(np.diag(precision.reshape(-1)))
        by_column = build("categorical", prior_precision=[1.0, 2.0, 3.0], intercept=False)
        assert by_column.prior_hessian(by_column.init) == pytest.approx(
            np.diag(np.repeat([1.0, 2.0, 3.0], 3))
        )

    def test_the_prior_is_a_normalised_density(self):
        model = build("gaussian", prior_precision=4.0, intercept=False, noise_scale=1.0)
        theta = np.array([0.1, 0.2, -0.3])
        value, _ = model.scaled_prior(theta)
        assert value == pytest.approx(
            -np.sum(scipy.stats.norm(0.0, 0.5).logpdf(theta)) / N, rel=1e-12
        )


class TestCoding:
    def test_with_a_prior_every_class_has_its_logits_and_flat_blocks_take_a_reference(self):
        assert build("categorical").dim == 3 * 3 + 2
        assert build("categorical", intercept_precision=1.0).dim == 3 * 3 + 3
        assert build("categorical", prior_precision=0.0).dim == 3 * 2 + 2
        assert build("categorical", prior_precision=np.zeros(3)).dim == 3 * 2 + 2

    def test_names_carry_the_labels(self):
        X, y = regression_data(N, 1)
        model = orn.glm(X, np.where(y > 0, "up", "down"), "categorical", prior_precision=1.0)
        assert model.names == ("x0[down]", "x0[up]", "intercept[up]")
        assert model.classes.tolist() == ["down", "up"]

    def test_two_classes_with_a_reference_are_the_bernoulli_family(self):
        X, y = regression_data(N, D)
        label = np.where(y + np.random.default_rng(0).normal(size=N) > 0, "b", "a")
        flat = orn.measure(orn.glm(X, label, "categorical", prior_precision=0.0))
        plain = orn.measure(orn.glm(X, label, "bernoulli", prior_precision=0.0))
        assert flat.mode == pytest.approx(plain.mode, rel=1e-6)
        assert relative(flat.posterior_covariance, plain.posterior_covariance) < 1e-6

    @pytest.mark.parametrize("labels", [[0, 1], [-1, 1], [True, False], ["no", "yes"], [2.0, 3.0]])
    def test_bernoulli_labels_of_any_kind(self, labels):
        X, y = regression_data(N, D)
        named = np.where(y > 0, labels[1], labels[0])
        model = orn.glm(X, named, "bernoulli", prior_precision=1.0)
        assert model.response.tolist() == (named == max(labels)).astype(float).tolist()


def sparse_table(X):
    return scipy.sparse.csr_matrix(np.where(np.abs(X) > 0.5, X, 0.0))


def forbidden_for_sparse(method):
    def checked(self, *arguments):
        assert not scipy.sparse.issparse(self.features), "zeros were filled up"
        return method(self, *arguments)

    return checked


class TestInput:
    """The same numbers in any container are the same model."""

    def same(self, one, other):
        assert one.dim == other.dim
        found, wanted = orn.measure(one), orn.measure(other)
        assert found.mode == pytest.approx(wanted.mode, rel=1e-6)
        assert (
            relative(found.hessian, wanted.hessian) < 1e-6
            and relative(found.noise, wanted.noise) < 1e-6
        )

    @pytest.mark.parametrize(
        "kind",
        [
            "jax",
            "list",
            "pandas",
            "polars",
            "memmap",
            "float32",
            "fortran",
            "csr",
            "csc",
            "coo",
            "array",
        ],
    )
    def test_every_container(self, kind, tmp_path):
        X, y = regression_data(N, D)
        if kind in ("csr", "csc", "coo", "array"):
            X = sparse_table(X).toarray()
        path = tmp_path / "x.npy"
        np.save(path, X)
        table = {
            "jax": lambda: jnp.asarray(X),
            "list": lambda: X.tolist(),
            "pandas": lambda: pandas.DataFrame(X),
            "polars": lambda: polars.DataFrame({f"c{k}": X[:, k] for k in range(D)}),
            "memmap": lambda: np.load(path, mmap_mode="r"),
            "float32": lambda: X.astype(np.float32),
            "fortran": lambda: np.asfortranarray(X),
            "csr": lambda: scipy.sparse.csr_matrix(X),
            "csc": lambda: scipy.sparse.csc_matrix(X),
            "coo": lambda: scipy.sparse.coo_array(X),
            "array": lambda: scipy.sparse.csr_array(X),
        }[kind]()
        self.same(orn.glm(table, y, prior_precision=1.0), orn.glm(X, y, prior_precision=1.0))

    @pytest.mark.parametrize(
        "wrap", [pandas.Series, polars.Series, jnp.asarray, list, lambda y: np.asarray(y)[:, None]]
    )
    def test_every_container_for_the_target(self, wrap):
        X, y = regression_data(N, D)
        self.same(orn.glm(X, wrap(y), prior_precision=1.0), orn.glm(X, y, prior_precision=1.0))

    @pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame])
    def test_column_names_become_parameter_names(self, frame):
        X, y = regression_data(N, 2)
        model = orn.glm(frame({"age": X[:, 0], "dose": X[:, 1]}), y, prior_precision=1.0)
        assert model.names == ("age", "dose", "intercept", "log_scale")

    def test_arrays_get_numbered_names(self):
        X, y = regression_data(N, 2)
        assert orn.glm(X, y, noise_scale=1.0, intercept=False, prior_precision=1.0).names == (
            "x0",
            "x1",
        )

    @pytest.mark.parametrize("family", ["gaussian", "bernoulli", "categorical", "poisson"])
    def test_sparse_rows_have_the_gradients_of_dense_ones(self, family):
        X, y = regression_data(N, D)
        table = sparse_table(X)
        pair = [
            orn.glm(kind, target(family, y), family, prior_precision=1.0)
            for kind in (table, table.toarray())
        ]
        theta = 0.2 * np.random.default_rng(0).normal(size=pair[0].dim)
        rows = jnp.asarray([1, 5, 5, 30], dtype=jnp.int32)
        with double():
            slopes = [
                jax.jit(m.loss.gradient)(m.problem("float64"), jnp.asarray(theta), rows)
                for m in pair
            ]
        assert relative(*slopes) < 1e-13

    @pytest.mark.parametrize("family", ["gaussian", "bernoulli", "categorical", "poisson"])
    def test_passes_over_sparse_rows_are_those_over_dense_ones(self, family, monkeypatch):
        """In several chunks, with offsets; those that need products alone never fill the zeros
        up.
        """
        monkeypatch.setattr("ornstein.model.linear.CHUNK_NUMBERS", 50)
        X, y = regression_data(N, D)
        table = sparse_table(X)
        offset = np.linspace(-0.5, 0.5, N)
        sparse, dense = (
            orn.glm(
                kind,
                target(family, y),
                family,
                offset=None if family == "categorical" else offset,
                prior_precision=1.0,
            )
            for kind in (table, table.toarray())
        )
        theta, vector = 0.2 * np.random.default_rng(0).normal(size=(2, sparse.dim))
        wanted, found = derivatives_of(dense), derivatives_of(sparse)
        monkeypatch.setattr(
            LinearPredictor, "filled_up_rows", forbidden_for_sparse(LinearPredictor.filled_up_rows)
        )
        assert found.value(theta) == pytest.approx(wanted.value(theta), rel=1e-13)
        assert (
            relative(found.value_and_gradient(theta)[1], wanted.value_and_gradient(theta)[1])
            < 1e-13
        )
        for one, other in zip(
            found.diagonal_moments(theta), wanted.diagonal_moments(theta), strict=True
        ):
            assert relative(one, other) < 1e-12
        assert (
            relative(found.hessian_product(theta, vector), wanted.hessian_product(theta, vector))
            < 1e-13
        )
        assert relative(found.linear.linear_part(theta), wanted.linear.linear_part(theta)) < 1e-13

    def test_empty_sparse_rows_and_stored_zeros(self):
        table = scipy.sparse.csr_matrix(([1.0, 0.0, 2.0], ([0, 1, 2], [0, 1, 1])), shape=(4, 2))
        self.same(
            orn.glm(table, [1.0, 2.0, 0.0, 4.0], prior_precision=1.0),
            orn.glm(table.toarray(), [1.0, 2.0, 0.0, 4.0], prior_precision=1.0),
        )

    def test_integers_and_booleans(self):
        X, y = regression_data(N, D)
        rounded = np.round(5 * X).astype(np.int64)
        self.same(
            orn.glm(rounded, y, prior_precision=1.0),
            orn.glm(rounded.astype(float), y, prior_precision=1.0),
        )
        self.same(
            orn.glm(X > 0, y, prior_precision=1.0),
            orn.glm((X > 0).astype(float), y, prior_precision=1.0),
        )

    def test_mixed_frames_become_one_float_table(self):
        _, y = regression_data(N, 1)
        frame = pandas.DataFrame({"whole": np.arange(N), "flag": y > 0, "real": y**2})
        model = orn.glm(frame, y, prior_precision=1.0)
        assert model.features.dtype == np.float64
        assert np.array_equal(model.features[:, 1], (y > 0).astype(float))

    def test_a_memory_map_is_not_copied(self, tmp_path):
        X, y = regression_data(N, D)
        np.save(tmp_path / "x.npy", X)
        table = np.load(tmp_path / "x.npy", mmap_mode="r")
        assert np.shares_memory(orn.glm(table, y, prior_precision=1.0).features, table)


class TestPredict:
    """E[y | x, θ] over the posterior."""

    @pytest.mark.parametrize("family", ["gaussian", "bernoulli", "categorical", "poisson"])
    def test_predictions_are_means_of_the_family(self, family):
        X, y = regression_data(200, D)
        model = orn.glm(X, target(family, y), family, prior_precision=1.0)
        post = orn.sample(
            model, orn.ConstantSGD("full"), draws=5, chains=2, warmup=0, progress=False
        )
        found = post.predict(X[:4])
        params = jax.tree.map(lambda leaf: leaf.reshape(10, *leaf.shape[2:]), post.params)
        coef, intercept = params["coef"], params["intercept"]
        if family == "categorical":
            padded = np.concatenate([np.zeros((10, 1)), intercept], axis=1)
            wanted = scipy.special.softmax(
                np.einsum("ni,rik->rnk", X[:4], coef) + padded[:, None], axis=-1
            )
        else:
            linear = np.einsum("ni,ri->rn", X[:4], coef) + intercept[:, None]
            link = {"gaussian": lambda u: u, "bernoulli": scipy.special.expit, "poisson": np.exp}[
                family
            ]
            wanted = link(linear)
        assert found.draws == pytest.approx(wanted, rel=1e-4, abs=1e-6)
        assert found.mean == pytest.approx(wanted.mean(axis=0), rel=1e-4)
        assert found.sd == pytest.approx(wanted.std(axis=0, ddof=1), rel=1e-2)
        low, high = found.interval(0.5)
        assert np.all(low <= found.mean + 3 * found.sd) and np.all(low <= high)

    def test_new_rows_of_every_kind(self):
        X, y = regression_data(200, D)
        post = orn.sample(
            orn.glm(X, y, prior_precision=1.0),
            orn.ConstantSGD("full"),
            draws=5,
            chains=2,
            warmup=0,
            progress=False,
        )
        wanted = post.predict(X[:4]).mean
        for kind in (pandas.DataFrame, jnp.asarray, scipy.sparse.csr_matrix):
            assert post.predict(kind(X[:4])).mean == pytest.approx(wanted, rel=1e-5)

    def test_wrong_columns_get_a_sentence(self):
        X, y = regression_data(200, D)
        post = orn.sample(
            orn.glm(X, y, prior_precision=1.0),
            orn.ConstantSGD("full"),
            draws=5,
            chains=2,
            warmup=0,
            progress=False,
        )
        with pytest.raises(orn.InputError, match="predict"):
            post.predict(X[:4, :2])
