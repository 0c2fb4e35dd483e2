"""Modes of mixed models under flat priors: maxima of likelihoods written down another way.

Each likelihood is NumPy alone, and is differentiated numerically where our mode is: the Newton step
that leads from there to its own maximum must be below 1e-4.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers import data_directory
from scipy.special import log_expit, logsumexp

import ornstein as orn

pytestmark = pytest.mark.slow


def step_to_maximum(function, theta):
    """The Newton step of a function at a point, by central differences."""
    size, h = len(theta), 1e-4 * np.maximum(1.0, np.abs(theta))
    moves = np.diag(h)
    up = np.array([function(theta + move) for move in moves])
    down = np.array([function(theta - move) for move in moves])
    here = function(theta)
    slope = (up - down) / (2.0 * h)
    hessian = np.diag((up - 2.0 * here + down) / h**2)
    for i in range(size):
        for j in range(i):
            both = function(theta + moves[i] + moves[j]) + function(theta - moves[i] - moves[j])
            mixed = both - up[i] - up[j] - down[i] - down[j] + 2.0 * here
            hessian[i, j] = hessian[j, i] = mixed / (2.0 * h[i] * h[j])
    return np.linalg.solve(hessian, -slope)


def assert_maximum(model, function):
    step = step_to_maximum(function, model.init)
    assert np.max(np.abs(step)) < 1e-4, dict(zip(model.names, step, strict=True))
    moved = step_to_maximum(function, model.init + 1e-3)
    assert np.max(np.abs(moved)) > 3e-4, "the check must see a mode that is off"


def table(name):
    return pd.read_csv(data_directory() / "mixed" / f"{name}.csv.gz")


def test_chem97_by_school():
    """A random intercept: the covariance of a group is σ²I + τ²11ᵀ, its inverse by hand."""
    data = table("Chem97")
    x, y = data[["gcsecnt"]].to_numpy(float), data.score.to_numpy(float)
    model = orn.glmm(x, y, data.school, priors="flat")
    codes = np.unique(data.school, return_inverse=True)[1]
    counts = np.bincount(codes)

    def log_likelihood(theta):
        params = model.layout.unflatten(theta)
        s2, t2 = np.exp(2.0 * params["log_scale"]), np.exp(2.0 * params["factor"][0])
        r = y - x[:, 0] * params["coef"][0] - params["coef"][1]
        sums = np.bincount(codes, r)
        total = np.sum(r**2) / s2 - np.sum(sums**2 * t2 / (s2 + counts * t2)) / s2
        logs = np.sum((counts - 1) * np.log(s2) + np.log(s2 + counts * t2))
        return -0.5 * (total + logs)

    assert_maximum(model, log_likelihood)


def test_schizophrenia_with_two_effects():
    """Whole covariance matrices, group by group."""
    data = table("schizophrenia")
    X = np.column_stack([data.TxDrug, data.SqrtWeek, data.TxDrug * data.SqrtWeek]).astype(float)
    Z = np.column_stack([np.ones(len(data)), data.SqrtWeek])
    y = data.imps79.to_numpy(float)
    model = orn.glmm(X, y, data.id, Z, priors="flat")
    fixed = np.column_stack([X, np.ones(len(data))])
    groups = list(data.groupby("id").indices.values())

    def log_likelihood(theta):
        params = model.layout.unflatten(theta)
        a, w, c = params["factor"]
        row = np.exp(c) * np.array([w, 1.0]) / np.hypot(w, 1.0)
        factor = np.array([[np.exp(a), 0.0], row])
        total, r = 0.0, y - fixed @ params["coef"]
        for rows in groups:
            root = Z[rows] @ factor
            covariance = root @ root.T + np.exp(2.0 * params["log_scale"]) * np.eye(len(rows))
            total -= 0.5 * (
                r[rows] @ np.linalg.solve(covariance, r[rows]) + np.linalg.slogdet(covariance)[1]
            )
        return total

    assert_maximum(model, log_likelihood)


def test_schizophrenia_binary():
    """A random intercept of a bernoulli response, integrated on a dense grid."""
    data = table("schizophrenia")
    x = np.column_stack([data.TxDrug, data.SqrtWeek, data.TxDrug * data.SqrtWeek]).astype(float)
    labels, y = np.unique(data.imps79b, return_inverse=True)
    assert len(labels) == 2
    model = orn.glmm(x, data.imps79b, data.id, family="bernoulli", priors="flat", points=25)
    fixed = np.column_stack([x, np.ones(len(data))])
    codes = np.unique(data.id, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    grid = np.linspace(-8.0, 8.0, 321)

    def log_likelihood(theta):
        params = model.layout.unflatten(theta)
        u = fixed @ params["coef"]
        u = u[order][:, None] + np.exp(params["factor"][0]) * grid
        logs = log_expit(np.where(y[order][:, None] > 0, u, -u))
        return np.sum(logsumexp(np.add.reduceat(logs, starts, axis=0) - 0.5 * grid**2, axis=1))

    assert_maximum(model, log_likelihood)
