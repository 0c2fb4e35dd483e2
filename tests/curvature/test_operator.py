"""Precisions as operators: the same products, blocks, solutions and draws as the whole matrix."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from helpers import relative

import ornstein as orn
from ornstein.curvature.closed_form import ClosedForm
from ornstein.curvature.operator import Precision, PredictorRows
from ornstein.curvature.row_averages import STILL, RowAverages, Spread
from ornstein.curvature.row_density import RowDensity
from ornstein.curvature.solves import Head, solved
from ornstein.verdict.density import Density


def sparse_model(family, n_data=200, columns=12, seed=0, **options):
    rng = np.random.default_rng(seed)
    features = scipy.sparse.random(n_data, columns, 0.3, random_state=rng, format="csr")
    labels = rng.integers(0, 2 if family == "bernoulli" else 3, n_data)
    offset = rng.normal(size=(n_data, 3) if family == "categorical" else n_data)
    weights = rng.uniform(0.5, 2.0, n_data)
    given = {"prior_precision": 1.0, "offset": offset, "weights": weights, **options}
    return orn.glm(features, labels, family, **given)


@pytest.fixture(scope="module", params=["bernoulli", "categorical"])
def case(request):
    """A model with an intercept, a point, the operator there and the whole matrix."""
    model = sparse_model(request.param)
    theta = 0.3 * np.random.default_rng(1).normal(size=model.dim)
    _, slope, precision = RowAverages.of(model).over(theta, STILL)
    derivatives = ClosedForm(model.linear)
    whole = model.n_data * derivatives.hessian(theta) + model.prior_hessian(theta)
    gradient = derivatives.value_and_gradient(theta)[1] + model.scaled_prior(theta)[1]
    return slope, precision, whole, model.n_data * gradient


def test_products_diagonal_and_blocks(case):
    slope, precision, whole, gradient = case
    vectors = np.random.default_rng(2).normal(size=(len(whole), 4))
    assert relative(precision.product(vectors), whole @ vectors) < 1e-13
    assert relative(precision.diagonal, np.diagonal(whole)) < 1e-13
    some = np.array([len(whole) - 1, 0, 5, 3])
    assert relative(precision.block(some), whole[np.ix_(some, some)]) < 1e-13
    assert relative(slope, gradient) < 1e-12


@pytest.mark.parametrize("size", [0, 5, 12])
def test_solutions_are_as_good_as_their_tolerance(case, size):
    _, precision, whole, _ = case
    head, right = Head.of(precision, size), np.random.default_rng(3).normal(size=(len(whole), 3))
    exact = np.linalg.solve(whole, right)
    for tolerance in (1e-2, 1e-5, 1e-10):
        found, spent = solved(precision.product, head, right, tolerance)
        assert relative(found, exact) < 100.0 * tolerance
        assert spent <= 3 * 3 * len(whole)
    again, spent = solved(precision.product, head, right, 1e-9, start=found)
    assert spent == 3 and np.array_equal(again, found)  # one look at what is solved already


def test_a_head_of_all_parameters_solves_at_once(case):
    _, precision, whole, _ = case
    right = np.random.default_rng(3).normal(size=(len(whole), 3))
    found, spent = solved(precision.product, Head.of(precision, len(whole)), right, 1e-9)
    assert spent <= 6 and relative(found, np.linalg.solve(whole, right)) < 1e-8


def test_the_factor_of_the_preconditioner_is_exact(case):
    _, precision, whole, _ = case
    head, unit = Head.of(precision, 6), np.eye(len(whole))
    matrix = np.diag(np.diagonal(whole)).copy()
    matrix[np.ix_(head.heavy, head.heavy)] = whole[np.ix_(head.heavy, head.heavy)]
    root = head.root(unit).T
    assert relative(root @ root.T, np.linalg.inv(matrix)) < 1e-12
    assert relative(head.root_transposed(unit).T, root.T) < 1e-12
    assert relative(head.inverse_root(unit).T @ root, unit) < 1e-12
    assert relative(head.solve(unit) @ matrix, unit) < 1e-12


def test_noise_has_the_precision_as_its_covariance(case):
    _, precision, whole, _ = case
    count = 20_000
    noise = precision.noise(np.random.default_rng(4), count)
    unit = np.sqrt(np.diagonal(whole))
    error = np.cov(noise) / np.multiply.outer(unit, unit) - whole / np.multiply.outer(unit, unit)
    assert np.max(np.abs(error)) < 5.5 * np.sqrt(2.0 / count)


def test_averages_over_rows_are_those_over_the_gaussian():
    """One predictor: from its variances, as with the whole covariance."""
    model = sparse_model("bernoulli", n_data=80, columns=4)
    covariance = np.diag(np.array([0.5, 0.2, 1.0, 0.3, 0.1]))
    mean = 0.2 * np.ones(model.dim)
    averages = RowAverages.of(model)
    extended = np.column_stack([model.features.toarray(), np.ones(80)])
    spread = Spread(variances=np.sum((extended @ covariance) * extended, axis=1))
    _, slope, precision = averages.over(mean, spread)
    value, wanted, hessian = ClosedForm(model.linear).expected(mean, covariance)
    slope_of_prior = model.n_data * model.scaled_prior(mean)[1]
    assert relative(slope, 80 * wanted + slope_of_prior) < 1e-12
    whole = 80 * hessian + model.prior_hessian(mean)
    assert relative(precision.product(np.eye(5)), whole) < 1e-12
    assert averages.over(mean, spread)[0] == pytest.approx(
        80 * (value + model.scaled_prior(mean)[0]), rel=1e-12
    )


def test_several_predictors_are_averaged_over_draws():
    model = sparse_model("categorical", n_data=60, columns=3)
    covariance = 0.3 * np.eye(model.dim)
    rng = np.random.default_rng(5)
    deviations = np.sqrt(0.3) * rng.standard_normal((model.dim, 2000))
    averages = RowAverages.of(model)
    _, slope, precision = averages.over(np.zeros(model.dim), Spread.of(averages.rows, deviations))
    _, wanted, hessian = ClosedForm(model.linear).expected(np.zeros(model.dim), covariance)
    whole = 60 * hessian + model.prior_hessian(np.zeros(model.dim))
    assert relative(slope, 60 * wanted) < 0.02  # the prior's slope vanishes at zero
    assert relative(precision.product(np.eye(model.dim)), whole) < 0.02


def test_rows_that_bend_the_wrong_way_are_refused():
    model = sparse_model("bernoulli")
    _, _, precision = RowAverages.of(model).over(np.zeros(model.dim), STILL)
    wrong = Precision(precision.rows, -precision.weights, precision.prior)
    with pytest.raises(orn.CurvatureError, match="negative"):
        wrong.noise(np.random.default_rng(0), 1)


def test_no_curvature_in_some_direction_is_refused():
    features = scipy.sparse.csr_matrix(np.array([[1.0, 0.0], [1.0, 0.0], [2.0, 0.0]]))
    model = orn.glm(features, [0, 1, 1], "bernoulli", prior_precision=0.0, intercept=False)
    _, _, precision = RowAverages.of(model).over(np.zeros(2), STILL)
    with pytest.raises(orn.CurvatureError, match="give the prior a positive precision"):
        Head.of(precision, 1)


def test_other_priors_and_models_are_refused():
    with pytest.raises(orn.InputError, match="not normal with independent parameters"):
        RowAverages.of(sparse_model("bernoulli", prior_precision=None))  # correlates the intercept
    model = orn.Model(lambda theta, x: -0.5 * (x - theta) ** 2, np.arange(3.0), init=np.zeros(()))
    with pytest.raises(orn.InputError, match="only regressions"):
        RowAverages.of(model)


def test_rows_in_and_out():
    model = sparse_model("categorical")
    rows = PredictorRows.of(model.linear)
    theta = np.random.default_rng(6).normal(size=model.dim)
    assert (
        relative(rows.predictors(theta[:, None])[:, :, 0], model.linear.linear_part(theta)) < 1e-13
    )
    slopes = np.random.default_rng(7).normal(size=(*rows.shape, 2))
    both = np.sum(slopes * rows.predictors(theta[:, None]), axis=(0, 1))
    assert theta @ rows.gathered(slopes) == pytest.approx(both, rel=1e-12)


@pytest.mark.parametrize("family", ["bernoulli", "categorical"])
def test_the_whole_matrix_of_dense_rows(family):
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 2 if family == "bernoulli" else 3, 90)
    model = orn.glm(rng.normal(size=(90, 7)), labels, family, 1.0)
    theta = 0.3 * rng.normal(size=model.dim)
    _, _, precision = RowAverages.of(model).over(theta, STILL)
    derivatives = ClosedForm(model.linear)
    whole = model.n_data * derivatives.hessian(theta) + model.prior_hessian(theta)
    assert precision.dense and relative(precision.whole(), whole) < 1e-13
    # weights of both signs, which no factor by rows has
    mixed = Precision(
        precision.rows, precision.weights * rng.normal(size=(90, 1, 1)), precision.prior
    )
    assert relative(mixed.whole(), mixed.product(np.eye(model.dim))) < 1e-13


def test_float32_rows_are_enough_for_a_preconditioner_and_for_draws(monkeypatch):
    """The factor of a matrix in float32 gives the same sds, and solutions to any tolerance."""
    rng = np.random.default_rng(9)
    X = np.abs(rng.normal(size=(400, 60)))
    model = orn.glm(X, rng.integers(0, 2, 400), "bernoulli", 1.0, intercept=False)
    _, _, exact = RowAverages.of(model).over(np.zeros(60), STILL)
    monkeypatch.setattr("ornstein.curvature.operator.FULL_LIMIT", 10)
    _, _, precision = RowAverages.of(model).over(np.zeros(60), STILL)
    assert precision.rows.features.dtype == np.float32
    head = Head.of(precision, 60)
    assert head.whole and head.factor.dtype == np.float32
    inverse = np.linalg.inv(exact.product(np.eye(60)))
    assert np.max(np.abs(head.variances / np.diagonal(inverse) - 1.0)) < 1e-3
    found, spent = solved(exact.product, head, np.eye(60), 1e-9)
    assert np.max(np.abs(found - inverse)) < 1e-8 and spent <= 60 * 4


def test_columns_far_from_zero_stay_in_float64(monkeypatch):
    monkeypatch.setattr("ornstein.curvature.operator.FULL_LIMIT", 1)
    X = 1e6 + np.random.default_rng(0).normal(size=(30, 2))
    model = orn.glm(X, np.arange(30) % 2, "bernoulli", 1.0, intercept=False)
    assert PredictorRows.of(model.linear).features.dtype == np.float64


@pytest.mark.parametrize("family", ["bernoulli", "categorical"])
def test_the_density_by_rows_is_the_density(family):
    model = sparse_model(family)
    points = 0.3 * np.random.default_rng(10).normal(size=(5, model.dim))
    values, slopes = RowDensity(RowAverages.of(model)).values_and_gradients(points)
    wanted, gradients = Density(model).values_and_gradients(points)
    assert relative(values, wanted) < 1e-13 and relative(slopes, gradients) < 1e-12
