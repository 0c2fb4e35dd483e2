"""How arrays and frames become rows: what is refused in words, and what is taken as it is."""

from __future__ import annotations

import datetime
import decimal

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import ornstein as orn
from ornstein.model import tables

N = 40
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 2))
Y = X @ [1.0, -1.0] + rng.normal(size=N)


def frame(**columns):
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], **columns})


def objects(values, row, value):
    changed = np.array(values, dtype=object)
    changed[row] = value
    return changed


def masked(values, row=3):
    hidden = np.zeros(np.shape(values), dtype=bool)
    hidden[row] = True
    return np.ma.array(values, mask=hidden)


def fit(X=X, y=Y, **options):
    return orn.glm(X, y, **options)


class Nothing:
    """An object that is not a number."""


REFUSED = {
    "masked X": (lambda: fit(masked(X)), r"X has 2 masked values, first in row 3"),
    "masked y": (lambda: fit(y=masked(Y)), r"y has 1 masked value, first in row 3"),
    "masked labels": (lambda: fit(y=masked(Y > 0), family="bernoulli"), "y has 1 masked value"),
    "masked weights": (lambda: fit(weights=masked(np.ones(N))), "weights has 1 masked value"),
    "masked offset": (lambda: fit(offset=masked(np.ones(N))), "offset has 1 masked value"),
    "masked offset of classes": (
        lambda: fit(y=np.arange(N) % 3, family="categorical", offset=masked(np.ones((N, 3)))),
        "3 masked values",
    ),
    "masked rows in a list": (lambda: fit([masked(row, 1) for row in X]), "40 masked values"),
    "masked precision": (lambda: fit(prior_precision=masked(np.ones(2), 1)), "prior_precision"),
    "NaN among objects": (lambda: fit(objects(X, (2, 1), np.nan)), r"missing value.*row 2"),
    "NaN in a column": (lambda: fit(frame(c=objects(Y, 4, np.nan))), r"column 'c'.*row 4"),
    "None in a column": (lambda: fit(frame(c=objects(Y, 4, None))), r"column 'c'.*row 4"),
    "pandas.NA in a column": (lambda: fit(frame(c=objects(Y, 4, pd.NA))), r"column 'c'.*row 4"),
    "NaT in a column": (lambda: fit(frame(c=objects(Y, 4, pd.NaT))), r"column 'c'.*row 4"),
    "missing integers": (
        lambda: fit(frame(c=pd.array([1, None] * 20, dtype="Int64"))),
        r"column 'c' holds a missing value, first in row 1",
    ),
    "missing floats": (lambda: fit(y=pd.array([1.5, None] * 20, dtype="Float64")), "row 1"),
    "missing booleans": (
        lambda: fit(y=pd.array([True, None] * 20, dtype="boolean"), family="bernoulli"),
        "missing",
    ),
    "missing labels": (
        lambda: fit(y=pd.Series(["u", None] * 20, dtype="string"), family="bernoulli"),
        "missing",
    ),
    "missing dates as labels": (
        lambda: fit(y=np.array(["2020-01-01", "NaT"] * 20, "datetime64[D]"), family="bernoulli"),
        "missing label, first in row 1",
    ),
    "text that parses": (lambda: fit(X.astype(str)), r"X must be numeric.*text"),
    "bytes that parse": (lambda: fit(X.astype("S20")), r"X must be numeric.*text"),
    "a column of text": (lambda: fit(frame(c=["1.5"] * N)), r"column 'c'.*'1.5'.*text"),
    "text among objects": (lambda: fit(objects(X, (5, 0), "2")), r"'2' in row 5.*text"),
    "text for y": (lambda: fit(y=Y.astype(str)), r"y must be numeric.*text"),
    "text for weights": (lambda: fit(weights=["1"] * N), r"weights must be numeric"),
    "text for offsets": (lambda: fit(offset=["1"] * N), r"offset must be numeric"),
    "text for offsets of classes": (
        lambda: fit(y=np.arange(N) % 3, family="categorical", offset=np.full((N, 3), "1")),
        "must be numeric",
    ),
    "text for a precision": (lambda: fit(prior_precision="2"), "prior_precision must be a number"),
    "text for precisions": (lambda: fit(prior_precision=["1", "2"]), "prior_precision must be"),
    "text for a hyperparameter": (
        lambda: orn.Model(lambda t, x, h: -((x - t) ** 2), Y, init=0.0, hyperparameters={"s": "2"}),
        "hyperparameter 's' must be a number",
    ),
    "complex": (lambda: fit(X + 1j), r"X must be numeric, not of dtype complex128.*real part"),
    "complex y": (lambda: fit(y=Y + 1j), r"y must be numeric"),
    "dates": (lambda: fit(X.astype("datetime64[s]")), r"X must be numeric.*dates"),
    "durations": (lambda: fit(frame(c=pd.to_timedelta(np.arange(N), "D"))), r"column 'c'.*dur"),
    "dates as objects": (
        lambda: fit(objects(X, (1, 1), datetime.date(2020, 1, 1))),
        r"datetime.date\(2020, 1, 1\) in row 1",
    ),
    "categories": (lambda: fit(frame(c=pd.Categorical([1, 2] * 20))), r"column 'c'.*categories"),
    "categories as y": (lambda: fit(y=pd.Series(pd.Categorical([1, 2] * 20))), "y holds cat"),
    "any object": (lambda: fit(objects(X, (7, 0), Nothing())), r"Nothing.* in row 7"),
    "sparse complex": (lambda: fit(scipy.sparse.csr_matrix(X + 1j)), "must be numeric"),
    "labels of different types": (
        lambda: fit(y=objects(np.arange(N) % 2, 0, "u"), family="bernoulli", classes=[0, 1]),
        "kind|label",
    ),
    "y in another order": (
        lambda: fit(frame(), pd.Series(Y)[::-1]),
        r"index of y is not in the same order as that of X: row 0 is 39 in y and"
        r" 0.*y\.loc\[X\.index\]",
    ),
    "weights in another order": (
        lambda: fit(frame(), weights=pd.Series(np.ones(N), index=np.arange(N)[::-1])),
        r"index of weights is not in the same order",
    ),
    "offset in another order": (
        lambda: fit(frame(), offset=pd.Series(np.ones(N), index=[1, 0, *range(2, N)])),
        r"index of offset is not in the same order as that of X: row 0 is 1 in offset",
    ),
    "weights in another order than y": (
        lambda: fit(X, pd.Series(Y), weights=pd.Series(np.ones(N), index=np.arange(N)[::-1])),
        r"index of weights is not in the same order as that of y",
    ),
    "masked data of a model": (
        lambda: orn.Model(lambda t, x: -((x - t) ** 2), masked(Y), init=0.0),
        "data has 1 masked value",
    ),
    "missing data of a model": (
        lambda: orn.Model(
            lambda t, x: -((x - t) ** 2), pd.array([1.0, None] * 20, dtype="Float64"), init=0.0
        ),
        "data holds a missing value, first in row 1",
    ),
    "data of a model in another order": (
        lambda: orn.Model(
            lambda t, row: -((row["y"] - t * row["x"]) ** 2),
            {"x": pd.Series(X[:, 0]), "y": pd.Series(Y)[::-1]},
            init=0.0,
        ),
        "index of",
    ),
    "masked validation": (
        lambda: orn.em(fit(), validation=(X, masked(Y))),
        "y has 1 masked value",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_number_is_refused_in_words(name):
    case, words = REFUSED[name]
    with pytest.raises(orn.InputError, match=words):
        case()


TAKEN = {
    "a mask of nothing": np.ma.array(X),
    "a mask that is all False": np.ma.array(X, mask=np.zeros((N, 2), dtype=bool)),
    "numbers as objects": X.astype(object),
    "decimals": np.array([[decimal.Decimal(v) for v in row] for row in X.tolist()], dtype=object),
    "nullable types": pd.DataFrame(X, columns=["a", "b"]).astype("Float64"),
    "a frame in another order of its own": pd.DataFrame(X[::-1])[::-1].reset_index(drop=True),
    "rows of masked arrays": [np.ma.array(row) for row in X],
    "a matrix": X.view(np.matrix),
    "long doubles": X.astype(np.longdouble),
    "on a device": jnp.asarray(X),
    "sparse": scipy.sparse.coo_matrix(X),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_holds_the_same_numbers_is_the_same_design(name):
    found, _ = tables.features(TAKEN[name])
    found = found.toarray() if scipy.sparse.issparse(found) else np.asarray(found)
    assert found.dtype.kind == "f" and found.dtype.itemsize <= 8
    np.testing.assert_allclose(found, X, rtol=1e-6)


def test_responses_of_nullable_types_are_fine():
    assert fit(y=pd.array(Y, dtype="Float64")).response.dtype == np.float64
    assert fit(y=pd.array(np.arange(N), dtype="Int64")).response.tolist() == list(range(N))
    labels = pd.array([True, False] * 20, dtype="boolean")
    assert fit(y=labels, family="bernoulli").classes.tolist() == [False, True]
    words = pd.Series(["u", "v"] * 20, dtype="string")
    assert fit(y=words, family="bernoulli").classes.tolist() == ["u", "v"]


def test_equal_indices_are_fine_in_any_order():
    order = rng.permutation(N)
    model = fit(frame().iloc[order], pd.Series(Y).iloc[order])
    assert np.array_equal(model.response, Y[order])
    assert np.array_equal(fit(frame(), pd.Series(Y).iloc[order].to_numpy()).response, Y[order])
    # other labels say nothing about the order
    assert np.array_equal(fit(frame(), pd.Series(Y, index=range(7, N + 7))).response, Y)
    words = pd.Series(Y, index=[1, *"abc", *range(N - 4)])
    assert np.array_equal(fit(frame(), words).response, Y)


def test_entries_stored_in_two_parts_are_one():
    """An entry that is stored twice counts as its sum in every product, also when it is squared."""
    twice = scipy.sparse.csr_matrix(
        (np.repeat(X.ravel() / 2.0, 2), np.tile([0, 0, 1, 1], N), np.arange(N + 1) * 4), (N, 2)
    )
    found, _ = tables.features(twice)
    assert found.nnz == 2 * N and twice.nnz == 4 * N
    np.testing.assert_allclose(found.toarray(), X)


def test_polars_and_arrow(tmp_path):
    pl = pytest.importorskip("polars")
    pa = pytest.importorskip("pyarrow")
    table = pl.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    np.testing.assert_array_equal(tables.features(table)[0], X)
    with pytest.raises(orn.InputError, match=r"column 'c' has 1 missing value"):
        fit(table.with_columns(c=pl.Series([None, *range(1, N)])))
    with pytest.raises(orn.InputError, match=r"column 'c' must be numeric"):
        fit(table.with_columns(c=pl.Series(["1"] * N)))
    np.testing.assert_array_equal(fit(y=pa.array(Y)).response, Y)
    with pytest.raises(orn.InputError, match="missing"):
        fit(y=pa.array([None, *Y[1:]]))


@pytest.mark.parametrize("shape", [(N,), (N, 2, 1)])
def test_a_mapped_array_of_another_shape(tmp_path, shape):
    np.save(tmp_path / "x.npy", np.ones(shape))
    if len(shape) == 1:
        assert fit(tmp_path / "x.npy").features.shape == (N, 1)
    else:
        with pytest.raises(orn.InputError, match="two axes"):
            fit(tmp_path / "x.npy")


def test_numpyro_models_are_not_given_what_a_mask_hides():
    numpyro = pytest.importorskip("numpyro")
    from numpyro import distributions as dist

    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    with pytest.raises(orn.InputError, match="1 masked value"):
        orn.from_numpyro(model, masked(Y))
    with pytest.raises(orn.InputError, match="missing"):
        orn.from_numpyro(model, pd.array([1.0, None], dtype="Float64"))
    assert orn.from_numpyro(model, pd.array(Y, dtype="Float64")).n_data == N
