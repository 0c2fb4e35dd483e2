"""Crossed effects as explicit coefficients: students and lecturers of InstEval."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import scipy.optimize
import scipy.sparse
from helpers import data_directory

import ornstein as orn
from ornstein.curvature.row_averages import STILL, RowAverages

pytestmark = pytest.mark.slow
OBJECTIVE = 237585.553  # −2 log likelihood at its maximum, by MixedModels.jl


def indicators(column):
    labels, codes = np.unique(column, return_inverse=True)
    ones = np.ones(len(codes))
    return scipy.sparse.csr_array((ones, (np.arange(len(codes)), codes)), (len(codes), len(labels)))


@pytest.fixture(scope="module")
def table():
    """y and the columns of service * dept, of every student and of every lecturer."""
    data = pd.read_csv(data_directory() / "mixed" / "InstEval.csv.gz")
    service, dept = (indicators(data[name]).toarray()[:, 1:] for name in ("service", "dept"))
    fixed = np.column_stack([np.ones(len(data)), service, dept, service * dept])
    parts = [scipy.sparse.csr_array(fixed), indicators(data.s), indicators(data.d)]
    return data.y.to_numpy(float), parts


def objective(relative_sds, products, sizes, count):
    """−2 log likelihood with σ and the fixed coefficients at their best, and σ; `products` are XᵀX
    and Xᵀy in the order students, lecturers, fixed coefficients, y.
    """
    students, lecturers = sizes
    weights = 1.0 / np.exp(relative_sds) ** 2
    # students meet each other nowhere: their block is diagonal, and is eliminated first
    own = products[:students, :students].diagonal() + weights[0]
    beside = products[:students, students:]
    rest = products[students:, students:] - beside.T @ (beside / own[:, None])
    rest[np.arange(lecturers), np.arange(lecturers)] += weights[1]
    factor = np.linalg.cholesky(rest)
    logs = 2.0 * np.log(np.diagonal(factor))
    squares = np.exp(logs[-1])
    determinant = np.sum(np.log(own)) + logs[:lecturers].sum()
    determinant -= students * np.log(weights[0]) + lecturers * np.log(weights[1])
    return determinant + count * (1.0 + np.log(2.0 * np.pi * squares / count)), squares / count


def test_insteval(table):
    y, parts = table
    fixed, students, lecturers = (part.shape[1] for part in parts)
    ordered = scipy.sparse.hstack([parts[1], parts[2], parts[0], y[:, None]], format="csr")
    products = (ordered.T @ ordered).toarray()
    sizes = students, lecturers
    best = scipy.optimize.minimize(
        lambda place: objective(place, products, sizes, y.size)[0],
        np.log([0.3, 0.4]),
        method="Nelder-Mead",
        options={"xatol": 1e-5, "fatol": 1e-6},
    )
    assert best.fun == pytest.approx(OBJECTIVE, abs=0.01)
    noise = objective(best.x, products, sizes, y.size)[1]
    own = np.repeat(np.exp(-2.0 * best.x) / noise, [students, lecturers])
    precision = np.concatenate([np.zeros(fixed), own])
    features = scipy.sparse.csr_matrix(scipy.sparse.hstack(parts))
    model = orn.glm(features, y, "gaussian", precision, noise_scale=noise**0.5, intercept=False)
    assert model.dim == 4128

    _, _, operator = RowAverages.of(model).over(model.init, STILL)
    whole = operator.block(np.arange(model.dim))
    factor = np.linalg.cholesky(whole)
    mean = scipy.linalg.cho_solve((factor, True), features.T @ y / noise)
    # the same objective from the precision that the library takes from the rows
    random = np.linalg.cholesky(whole[fixed:, fixed:])
    value = (y @ y / noise - mean @ (features.T @ y) / noise) + y.size * np.log(2 * np.pi * noise)
    value += 2.0 * np.sum(np.log(np.diagonal(random))) - np.sum(np.log(own))
    assert value == pytest.approx(OBJECTIVE, abs=0.01)

    inverse, _ = scipy.linalg.lapack.dtrtri(factor, lower=1)
    sd = np.sqrt(np.sum(inverse**2, axis=0))
    post = orn.sample(model, draws=125, progress=False)
    assert post.verdict.level == "trusted", post.verdict
    assert np.max(np.abs(post.mean - mean) / sd) < 0.01
    assert np.mean(post.sd / sd) == pytest.approx(1.0, abs=0.01)
    assert np.max(np.abs(post.sd / sd - 1.0)) < 0.25
    flat = post.draws.reshape(-1, model.dim)
    error = (flat.mean(axis=0) - mean) / sd * np.sqrt(len(flat))
    assert np.mean(error**2) == pytest.approx(1.0, abs=0.15) and np.abs(error).max() < 5.0
