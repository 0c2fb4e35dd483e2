"""Design matrices: equal to patsy's, the same again from JSON, and empty where rows are unknown."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import patsy
import pytest
import scipy.sparse

import ornstein as orn
from ornstein.regression import design as designs
from ornstein.regression.design import Design, design_as_json, design_from_json
from ornstein.regression.formula import Formula

FORMULAS = (
    "x",
    "a",
    "a * b",
    "a : b",
    "0 + a",
    "0 + a + b",
    "a * x",
    "a : x",
    "a / x",
    "0 + x : a",
    "x * z * a",
    "(a + b + x)**2",
    "C(m)",
    "C(m) : a",
    "I(x**2) + I(x > 0)",
    "center(z) + log(z)",
    "bs(x, df=5)",
    "bs(x, df=6, degree=2) + z",
    "bs(x, knots=[0.0, 0.5])",
    "bs(x, df=4) * a",
    "bs(log(z), df=4) : b",
    "cr(x, df=4)",
    "cr(x, df=5) : a + z",
    "cc(z, df=4)",
)


def table(rows: int = 200, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": rng.normal(size=rows),
            "z": rng.uniform(1.0, 5.0, rows),
            "a": rng.choice(["p", "q", "r"], rows),
            "b": rng.choice(["u", "v"], rows),
            "m": rng.integers(1, 4, rows),
            "y": rng.normal(size=rows),
        }
    )


def built(formula: str, frame: pd.DataFrame) -> tuple[Design, np.ndarray]:
    design = Design.learned(Formula.of(formula), frame)
    return design, design.build(frame, len(frame))


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_design_matrix_has_the_columns_of_patsy_s(formula):
    frame = table()
    design, matrix = built(formula, frame)
    known = patsy.dmatrix(formula.replace("log(", "np.log("), frame, return_type="dataframe")
    assert design.intercept == ("Intercept" in known)
    expected = known.drop(columns="Intercept", errors="ignore").to_numpy()
    assert matrix.shape == expected.shape == (200, len(design.names))
    distance = np.abs(expected[:, :, None] - matrix[:, None, :]).max(axis=0)
    assert distance.min(axis=0).max() < 1e-10 and distance.min(axis=1).max() < 1e-10
    assert len(set(design.names)) == len(design.names)


@pytest.mark.parametrize(
    "formula", [*FORMULAS, "poly(x, degree=3) * a", "scale(x) + cr(z, df=4, constraints='center')"]
)
def test_new_rows_get_the_columns_of_the_fit_also_after_json(formula):
    """Bit for bit, for rows that alone would teach other knots, means and labels."""
    frame = table()
    design, matrix = built(formula, frame)
    text = json.dumps(design_as_json(design))
    again = design_from_json(json.loads(text))
    assert again.names == design.names
    some = frame.iloc[17:29].reset_index(drop=True)
    np.testing.assert_array_equal(again.build(some, 12), matrix[17:29])
    other = Design.learned(Formula.of(formula), some) if "C(m)" not in formula else None
    learns = "bs(" in formula or "cr(" in formula or "center(" in formula
    if learns and other is not None and "knots" not in formula:
        assert design_as_json(other) != design_as_json(design)


def test_what_is_learned_is_learned_from_all_rows():
    """The last row alone holds a label, the smallest and the largest number."""
    frame = table()
    frame.loc[199, ["a", "x"]] = ["last", 99.0]
    design, matrix = built("a + bs(x, df=4)", frame)
    assert design.names[:3] == ("a=p", "a=q", "a=r") or "a=p" in design.names
    assert np.isfinite(matrix).all()


def test_the_reference_and_the_order_of_labels_can_be_chosen():
    frame = table()
    names = built("C(a, reference='q')", frame)[0].names
    assert names == ("a=p", "a=r")
    assert built("C(m, levels=[3, 1, 2])", frame)[0].names == ("m=1", "m=2")
    ordered = frame.assign(a=pd.Categorical(frame["a"], ["r", "unused", "q", "p"], ordered=True))
    assert built("a", ordered)[0].names == ("a=q", "a=p")
    for wrong in ("C(a, reference='t')", "C(a, levels=['p', 'q'])"):
        with pytest.raises(orn.InputError, match="does not fit the labels"):
            built(wrong, frame)


@pytest.mark.parametrize("formula", ["a * x + bs(z, df=4) : b", "C(m) : a : b", "0 + a : x"])
def test_a_sparse_matrix_holds_the_same_numbers(formula, monkeypatch):
    frame = table()
    dense = built(formula, frame)[1]
    monkeypatch.setattr(designs, "SPARSE_COLUMNS", 1)
    monkeypatch.setattr(designs, "SPARSE_SHARE", 2.0)
    sparse = built(formula, frame)[1]
    assert scipy.sparse.issparse(sparse)
    np.testing.assert_array_equal(sparse.toarray(), dense)


def test_many_indicators_are_kept_sparse():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"g{k}": rng.integers(0, 80, 3000).astype(str) for k in range(3)})
    assert scipy.sparse.issparse(built("g0 + g1 + g2", frame)[1])


@pytest.mark.parametrize("sparse", [False, True])
def test_unknown_labels_and_values_out_of_range_leave_the_row_empty(sparse, monkeypatch):
    if sparse:
        monkeypatch.setattr(designs, "SPARSE_COLUMNS", 1)
        monkeypatch.setattr(designs, "SPARSE_SHARE", 2.0)
    frame = table()
    design, _ = built("a + bs(x, df=4) + log(z)", frame)
    new = frame.head(6).copy()
    new.loc[0, "a"], new.loc[1, "x"], new.loc[2, "a"], new.loc[3, "z"] = "new", 50.0, None, np.nan
    matrix = design.build(new, 6)
    matrix = matrix.toarray() if sparse else matrix
    assert list(np.isnan(matrix).any(axis=1)) == [True, True, True, True, False, False]


def test_splines_can_be_told_to_reach_beyond_their_range():
    frame = table()
    design, _ = built("bs(x, df=4, extrapolation='clip')", frame)
    beyond = design.build(frame.head(1).assign(x=50.0), 1)
    at_end = design.build(frame.head(1).assign(x=frame["x"].max()), 1)
    np.testing.assert_allclose(beyond, at_end)


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("bs(x)(a)", "calls"),
        ("bs(x, df=1)", "cannot be computed"),
        ("bs(a, df=4)", "must be numeric"),
        ("log(a)", "must be numeric"),
        ("bs(x, nonsense=4)", "cannot be computed"),
        ("poly(x, degree='a')", "cannot be computed"),
        ("C(a, contrast='sum')", "C takes a column"),
        ("a : offset(x)", "cannot be part of"),
        ("log(x, 2)", "takes one argument"),
    ],
)
def test_what_cannot_be_computed_gets_a_sentence(formula, said):
    with pytest.raises(orn.InputError, match=said):
        built(formula, table())


@pytest.mark.parametrize("damage", ["factors", "blocks", "text", "place"])
def test_a_damaged_description_is_refused(damage):
    found = design_as_json(built("a * x", table())[0])
    if damage in found:
        del found[damage]
    elif damage == "text":
        found["factors"][0]["text"] = "__import__('os')"
    else:
        found["blocks"][0]["factors"] = [7]
    with pytest.raises((orn.OrnsteinError, KeyError)):
        design_from_json(found)
