"""Weights of the rows of a mixed model: a row with weight 3 is three rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import ornstein as orn
from ornstein.compute.precision import width
from ornstein.errors import InputError
from ornstein.model.loss import Problem
from ornstein.model.mixed.checked import glmm
from ornstein.regression.mixed import from_formula
from ornstein.regression.regress import Request

ROWS, GROUPS = 40, 6


def frame():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": 1.0 + rng.normal(size=ROWS), "g": rng.integers(0, GROUPS, ROWS)})
    table["within"] = rng.integers(0, 2, ROWS)
    table["exposure"] = rng.normal(size=ROWS)
    table["y"] = table["x"] + rng.normal(size=GROUPS)[table["g"]] + rng.normal(size=ROWS)
    table["won"] = (table["y"] > 1.0).astype(float)
    table["w"] = rng.integers(0, 4, ROWS)
    return table[table["w"] + table["g"] > 0].reset_index(drop=True)


TABLE = frame()
REPEATED = TABLE.loc[TABLE.index.repeat(TABLE["w"])].reset_index(drop=True)


def log_likelihood(model, theta):
    """Of all rows."""
    with width("float64"):
        problem = Problem(None, model.hyperparameters, np.asarray(1.0), theta, theta)
        parts = [
            model.loss.log_likelihoods(problem, np.zeros(model.dim), model.rows(first, stop))
            for first, stop, _ in model.spans(10**6, 1)
        ]
        return float(sum(np.sum(part) for part in parts))


def assert_alike(weighted, repeated):
    """The same prior, start and likelihood away from it."""
    for name, value in repeated.hyperparameters.items():
        assert weighted.hyperparameters[name] == pytest.approx(value, rel=1e-12), name
    theta = repeated.init + 0.1 * np.random.default_rng(1).normal(size=repeated.dim)
    found = log_likelihood(weighted, theta)
    assert found == pytest.approx(log_likelihood(repeated, theta), rel=1e-10)
    assert abs(found - log_likelihood(repeated, repeated.init)) > 1e-3


@pytest.mark.parametrize(
    ("family", "response", "slopes"),
    [
        ("gaussian", "y", False),
        pytest.param("gaussian", "y", True, marks=pytest.mark.slow),
        pytest.param("bernoulli", "won", False, marks=pytest.mark.slow),
    ],
)
def test_weights_of_one_factor_repeat_rows(family, response, slopes):
    def of(table, weights):
        Z = np.column_stack([np.ones(len(table)), table["x"]]) if slopes else None
        return glmm(
            table[["x"]], table[response], table["g"], Z, family,
            offset=0.3 * table["exposure"], weights=weights,
        )  # fmt: skip

    assert_alike(of(TABLE, TABLE["w"]), of(REPEATED, None))


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ x + offset(exposure) + (1 | g/within)",
        "won ~ x + (1 | g) + (1 | within)",
    ],
)
@pytest.mark.slow
def test_weights_of_several_factors_repeat_rows(formula):
    weighted = from_formula(Request(formula, weights="w"), TABLE)
    assert_alike(weighted, from_formula(Request(formula), REPEATED))


def test_a_formula_takes_weights_by_name_and_as_numbers():
    named = from_formula(Request("y ~ x + (1 | g)", weights="w"), TABLE)
    dotted = from_formula(Request("y ~ . + (1 | g)", weights="w"), TABLE[["y", "x", "g", "w"]])
    given = from_formula(Request("y ~ x + (1 | g)", weights=TABLE["w"].to_numpy()), TABLE)
    assert named.columns == dotted.columns
    for other in (dotted, given):
        assert log_likelihood(named, named.init) == log_likelihood(other, named.init)


def test_weights_that_cannot_be_are_sentences():
    arguments = TABLE[["x"]], TABLE["y"], TABLE["g"]
    with pytest.raises(InputError, match="weights must not be negative, and not all zero"):
        orn.glmm(*arguments, weights=-TABLE["w"])
    with pytest.raises(InputError, match="rows but weights has 2"):
        orn.glmm(*arguments, weights=[1.0, 2.0])
    with pytest.raises(InputError, match="has no link 'cauchit'"):
        orn.glmm(TABLE[["x"]], TABLE["won"], TABLE["g"], family="bernoulli", link="cauchit")
