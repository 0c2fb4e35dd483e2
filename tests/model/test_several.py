"""Several factors, nested or crossed, against densities written down another way."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.stats
from helpers import data_directory
from scipy.special import expit, log_expit

import ornstein as orn
from ornstein.compute.precision import width
from ornstein.curvature.derivatives import derivatives_of
from ornstein.errors import ApproximationWarning
from ornstein.model.loss import Problem
from ornstein.model.mixed import several_model
from ornstein.posterior.drawn_effects import effects_of_factors
from ornstein.regression.mixed import from_formula
from ornstein.regression.regress import Request


def log_likelihood(model, theta):
    """Of all rows."""
    with width("float64"):
        problem = Problem(None, model.hyperparameters, np.asarray(1.0), theta, theta)
        parts = [
            model.loss.log_likelihoods(problem, np.zeros(model.dim), model.rows(first, stop))
            for first, stop, _ in model.spans(10**6, 1)
        ]
        return float(sum(np.sum(part) for part in parts))


def frame(rows=60, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"x": rng.normal(size=rows)})
    table["a"] = rng.integers(0, 4, rows)
    table["b"] = rng.integers(0, 3, rows)
    table["c"] = rng.integers(0, 7, rows)
    u = 0.5 * table["x"] + rng.normal(size=4)[table["a"]] + rng.normal(size=7)[table["c"]]
    table["y"] = u + 0.7 * rng.normal(size=rows)
    table["won"] = rng.random(rows) < expit(u)
    return table


def columns_of_effects(model, table):
    """ZL of all rows and all groups of all factors, written down densely, by factor."""
    factor = model.covariance.matrix(model.layout.unflatten(model.point)["factor"])
    parts = []
    for place, groups in enumerate(model.groups):
        spec = model.predict.groups[place]
        z, labels = spec.matrix(table, len(table)), spec.labels(table)
        own = model.predict.part(place)
        moved = z @ factor[own, own]
        wide = np.zeros((len(table), len(groups.labels), moved.shape[1]))
        wide[np.arange(len(table)), labels.codes] = moved
        parts.append(wide.reshape(len(table), -1))
    return np.concatenate(parts, axis=1)


def placed(formula, table, **settings):
    """The model at a point away from where its search starts."""
    model = from_formula(Request(formula, **settings), table)
    rng = np.random.default_rng(1)
    return model.replace(point=model.init + 0.2 * rng.normal(size=model.dim))


CROSSED = "(1 | a) + (1 + x | c)"
NESTED = "(1 + x | a/b)"
DEEP = "(1 | a/b/c)"


def slow(groups):
    return pytest.param(groups, marks=pytest.mark.slow)


@pytest.mark.parametrize("groups", [CROSSED, NESTED, slow(DEEP), slow("(1 | a/b) + (1 | c)")])
def test_the_gaussian_marginal_is_the_density_of_the_rows(groups):
    table = frame()
    model = placed(f"y ~ x + {groups}", table)
    params = model.layout.unflatten(model.point)
    root = columns_of_effects(model, table)
    noise = np.exp(2.0 * params["log_scale"]) * np.eye(len(table))
    mean = np.column_stack([table["x"], np.ones(len(table))]) @ params["coef"]
    law = scipy.stats.multivariate_normal(mean, root @ root.T + noise)
    assert log_likelihood(model, model.point) == pytest.approx(law.logpdf(table["y"]), rel=1e-10)
    nested = groups in (NESTED, DEEP)
    assert model.n_data == (4 if nested else 1)


def laplace(table, fixed, root):
    """Laplace's approximation with all effects in one matrix, its mode by SciPy."""
    signs = np.where(table["won"], 1.0, -1.0)

    def loss(z):
        u = fixed + root @ z
        slope = -signs * expit(-signs * u)
        return -np.sum(log_expit(signs * u)) + 0.5 * z @ z, root.T @ slope + z

    found = scipy.optimize.minimize(
        loss, np.zeros(root.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-9}
    )
    chance = expit(fixed + root @ found.x)
    curved = (root * (chance * (1.0 - chance))[:, None]).T @ root + np.eye(root.shape[1])
    return -found.fun - 0.5 * np.linalg.slogdet(curved)[1], found.x, curved


@pytest.mark.parametrize("groups", [slow(CROSSED), NESTED])
def test_other_families_have_the_laplace_approximation_of_all_effects(groups):
    table = frame()
    model = placed(f"won ~ x + {groups}", table)
    params = model.layout.unflatten(model.point)
    fixed = np.column_stack([table["x"], np.ones(len(table))]) @ params["coef"]
    expected, *_ = laplace(table, fixed, columns_of_effects(model, table))
    assert log_likelihood(model, model.point) == pytest.approx(expected, abs=1e-7)


@pytest.mark.slow
def test_derivatives_are_those_of_the_value():
    model = placed(f"won ~ x + {CROSSED}", frame())
    derivatives, theta = derivatives_of(model), model.point
    steps = 1e-4 * np.eye(model.dim)
    pairs = [
        (derivatives.value_and_gradient(theta + step), derivatives.value_and_gradient(theta - step))
        for step in steps
    ]
    slope = [(up[0] - down[0]) / 2e-4 for up, down in pairs]
    curved = np.array([(up[1] - down[1]) / 2e-4 for up, down in pairs])
    assert derivatives.value_and_gradient(theta)[1] == pytest.approx(slope, abs=2e-6)
    assert derivatives.hessian(theta) == pytest.approx(curved, abs=1e-5)


@pytest.mark.parametrize("groups", [CROSSED, slow(NESTED)])
def test_effects_have_their_conditional_law(groups):
    """Means and covariances of all effects by the formulas for a normal."""
    table, count = frame(), 6000
    model = placed(f"y ~ x + {groups}", table)
    params = model.layout.unflatten(model.point)
    root = columns_of_effects(model, table) / np.exp(params["log_scale"])
    fixed = np.column_stack([table["x"], np.ones(len(table))]) @ params["coef"]
    residual = (table["y"] - fixed) / np.exp(params["log_scale"])
    inverse = np.linalg.inv(root.T @ root + np.eye(root.shape[1]))
    mean = inverse @ root.T @ residual
    factor = model.covariance.matrix(params["factor"])
    blocks = []
    for place, groups_of in enumerate(model.groups):
        own = model.predict.part(place)
        blocks += [factor[own, own]] * len(groups_of.labels)
    units = scipy.linalg.block_diag(*blocks)
    drawn = effects_of_factors(model, np.tile(model.point, (count, 1)), 0)
    flat = np.concatenate([part.reshape(count, -1) for part in drawn], axis=1)
    law, covariance = units @ mean, units @ inverse @ units.T
    sd = np.sqrt(np.diagonal(covariance))
    assert np.max(np.abs(flat.mean(axis=0) - law) / sd) < 4.5 / np.sqrt(count)
    off = (np.cov(flat.T) - covariance) / np.outer(sd, sd)
    assert np.max(np.abs(off)) < 5.5 / np.sqrt(count)


def test_factors_too_large_for_one_matrix_are_refused(monkeypatch):
    monkeypatch.setattr(several_model, "MOST_OTHERS", 3)
    with pytest.raises(orn.InputError, match="4 effects beside those of 'c'"):
        from_formula(Request("y ~ x + (1 | a) + (1 | c)"), frame())


def table_of(name):
    return pd.read_csv(data_directory() / "mixed" / f"{name}.csv.gz")


@pytest.mark.slow
def test_penicillin_equals_the_published_fit():
    """lme4: deviance 332.1883; sds .8456, 1.7706 and .5499; mean 22.97222."""
    model = orn.regress(
        "diameter ~ 1 + (1 | plate) + (1 | sample)",
        table_of("Penicillin"),
        priors="flat",
        progress=False,
    )
    deviance = 2.0 * model.n_data * derivatives_of(model).value(model.init)
    found = model.constrained(model.init)
    assert deviance == pytest.approx(332.1883, abs=1e-4)
    assert found["sd(intercept|plate)"] == pytest.approx(0.8456, abs=1e-4)
    assert found["sd(intercept|sample)"] == pytest.approx(1.7706, abs=1e-4)
    assert found["sigma"] == pytest.approx(0.5499, abs=1e-4)
    assert found["intercept"] == pytest.approx(22.97222, abs=1e-5)


@pytest.mark.slow
def test_verbagg_can_be_fitted():
    formula = "r2 ~ Anger + Gender + btype + situ + (1 | id) + (1 | item)"
    with pytest.warns(ApproximationWarning, match="the effects of id and item are integrated out"):
        model = orn.regress(formula, table_of("VerbAgg"), priors="flat", progress=False)
    deviance = 2.0 * model.n_data * derivatives_of(model).value(model.init)
    assert deviance == pytest.approx(8135.83, abs=0.02)
