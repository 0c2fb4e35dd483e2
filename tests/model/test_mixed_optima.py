"""Modes of mixed models under flat priors: maxima of likelihoods written down another way.

Each likelihood is NumPy alone, and is differentiated numerically where our mode is: the Newton step
that leads from there to its own maximum must be below 1e-4.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers import data_directory
from scipy.special import expit, log_expit, logsumexp

import ornstein as orn
from ornstein.curvature.nodes import settled

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


def two_effects(model, data, label, x, z, y):
    """log p(y) with an intercept and a slope that vary: whole covariance matrices by group."""
    fixed, z = np.column_stack([x, np.ones(len(data))]), np.column_stack([np.ones(len(data)), z])
    groups = list(data.groupby(label).indices.values())

    def log_likelihood(theta):
        params = model.layout.unflatten(theta)
        a, w, c = params["factor"]
        row = np.exp(c) * np.array([w, 1.0]) / np.hypot(w, 1.0)
        factor = np.array([[np.exp(a), 0.0], row])
        total, r = 0.0, y - fixed @ params["coef"]
        for rows in groups:
            root = z[rows] @ factor
            covariance = root @ root.T + np.exp(2.0 * params["log_scale"]) * np.eye(len(rows))
            total -= 0.5 * (
                r[rows] @ np.linalg.solve(covariance, r[rows]) + np.linalg.slogdet(covariance)[1]
            )
        return total

    return log_likelihood


def test_sleepstudy():
    data = table("sleepstudy")
    formula = "Reaction ~ Days + (1 + Days | Subject)"
    model = orn.regress(formula, data, priors="flat", progress=False)
    days, y = data.Days.to_numpy(float), data.Reaction.to_numpy(float)
    assert_maximum(model, two_effects(model, data, "Subject", days, days, y))


def test_schizophrenia_with_two_effects():
    data = table("schizophrenia")
    X = np.column_stack([data.TxDrug, data.SqrtWeek, data.TxDrug * data.SqrtWeek]).astype(float)
    Z = np.column_stack([np.ones(len(data)), data.SqrtWeek])
    y = data.imps79.to_numpy(float)
    model = orn.glmm(X, y, data.id, Z, priors="flat")
    assert_maximum(model, two_effects(model, data, "id", X, data.SqrtWeek, y))


def integrated(model, labels, columns, log_density):
    """log p(y) with a random intercept, each group integrated on a dense grid; `log_density` is of
    predictors (rows, points) and the parameters, rows in the order of the groups.
    """
    codes = np.unique(labels, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    grid = np.linspace(-8.0, 8.0, 321)

    def log_likelihood(theta):
        params = model.layout.unflatten(theta)
        u = (columns @ params["coef"])[order][:, None] + np.exp(params["factor"][0]) * grid
        logs = np.add.reduceat(log_density(u, params, order), starts, axis=0)
        return np.sum(logsumexp(logs - 0.5 * grid**2, axis=1))

    return log_likelihood


def binary(y):
    signs = np.where(y, 1.0, -1.0)[:, None]
    return lambda u, params, order: log_expit(signs[order] * u)


def cumulative(y):
    """Levels 0, 1, … by cut points, as differences of probabilities."""

    def log_density(u, params, order):
        steps = np.exp(params["cutpoints"][1:])
        cuts = params["cutpoints"][0] + np.concatenate([[0.0], np.cumsum(steps)])
        edges = np.concatenate([[-np.inf], cuts, [np.inf]])
        own = y[order]
        return np.log(expit(edges[own + 1][:, None] - u) - expit(edges[own][:, None] - u))

    return log_density


def test_contraception():
    """The published formula, at as many nodes as there may be."""
    data = table("Contraception")
    formula = "use ~ age + I(age^2) + urban + livch + (1 | urban:district)"
    model = orn.regress(formula, data, priors="flat", progress=False).with_points(25)
    model = settled(model, 25)
    children = [data.livch == level for level in ("1", "2", "3+")]
    columns = [data.age, data.age**2, data.urban == "Y", *children, np.ones(len(data))]
    columns = np.column_stack(columns).astype(float)
    labels = data.urban + ":" + data.district.astype(str)
    assert_maximum(model, integrated(model, labels, columns, binary(data.use == "Y")))


def schizophrenia():
    data = table("schizophrenia")
    return data, np.column_stack([data.TxDrug, data.SqrtWeek, data.TxDrug * data.SqrtWeek])


def test_schizophrenia_binary():
    data, x = schizophrenia()
    model = orn.glmm(x, data.imps79b, data.id, family="bernoulli", priors="flat", points=25)
    columns = np.column_stack([x, np.ones(len(data))])
    assert_maximum(model, integrated(model, data.id, columns, binary(data.imps79b == 1)))


def test_schizophrenia_ordinal():
    data, x = schizophrenia()
    model = orn.glmm(x, data.imps79o, data.id, family="ordinal", priors="flat", points=25)
    levels = data.imps79o.to_numpy(int) - 1
    assert_maximum(model, integrated(model, data.id, x, cumulative(levels)))
