"""Tables from files, their encoding, and the way back to the original scale."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.special
from ornstein.interfaces.table.encoding import Encoding

import ornstein as orn
from ornstein.interfaces.table import reading
from ornstein.interfaces.table.fitting import Table
from ornstein.model.parameters import Layout
from ornstein.posterior.posterior import Posterior


def frame(rows: int = 60, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {"length": rng.normal(30.0, 4.0, rows), "count": rng.integers(0, 50, rows)}
    )
    table["colour"] = np.array(["red", "green", "blue"])[np.arange(rows) % 3]
    table["sold"] = np.arange(rows) % 2 == 0
    table["price"] = (
        3.0 * table["length"]
        - table["count"]
        + 10.0 * (table["colour"] == "red")
        + rng.normal(size=rows)
    )
    return table


def posterior_of(params: dict[str, np.ndarray], names: tuple[str, ...]) -> Posterior:
    """Made-up draws, (chains, draws, …) per leaf."""
    layout = Layout.of({name: values[0, 0] for name, values in params.items()})
    lead = next(iter(params.values())).shape[:2]
    draws = np.concatenate([params[path].reshape(*lead, -1) for path in layout.paths], axis=2)
    return Posterior(draws, names, layout, {})


@pytest.mark.parametrize(
    "kind", ["csv", "semicolon.csv", "tsv", "parquet", "arrow", "stream.arrow"]
)
def test_every_kind_of_file_gives_the_same_table(tmp_path, kind):
    expected = frame()
    path = tmp_path / f"table.{kind}"
    if kind == "parquet":
        expected.to_parquet(path)
    elif kind == "arrow":
        expected.to_feather(path)
    elif kind == "stream.arrow":
        import pyarrow

        with pyarrow.OSFile(str(path), "wb") as sink:
            table = pyarrow.Table.from_pandas(expected)
            with pyarrow.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
    else:
        expected.to_csv(
            path, index=False, sep={"csv": ",", "semicolon.csv": ";", "tsv": "\t"}[kind]
        )
    found = reading.read_table(path)
    assert list(found.columns) == list(expected.columns)
    for name in expected.columns:
        if expected[name].dtype.kind == "f":
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-14)
        else:
            assert list(found[name]) == list(expected[name])


def test_a_categorical_column_of_arrow_is_read_as_labels(tmp_path):
    table = frame()
    table["colour"] = table["colour"].astype("category")
    table.to_parquet(tmp_path / "t.parquet")
    encoding = Encoding.of(reading.read_table(tmp_path / "t.parquet"), "price")
    assert encoding.feature_names == ("length", "count", "colour=green", "colour=red", "sold=True")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("empty.csv", b"", "empty.csv is empty (0 bytes)"),
        ("empty.parquet", b"", "empty.parquet is empty (0 bytes)"),
        ("header.csv", b"a,b\n", "header.csv has a header but no rows"),
        ("blank.csv", b"\n\n", "blank.csv holds no columns"),
        ("not.parquet", b"a,b\n1,2\n", "not.parquet is not a Parquet file, or it is damaged"),
        ("not.arrow", b"a,b\n1,2\n", "not.arrow is not an Arrow file, or it is damaged"),
        ("latin.csv", "größe,b\n1,2\n".encode("latin-1"), "latin.csv is not text in UTF-8"),
        ("ragged.csv", b"a,b\n1,2\n1,2,3\n", "ragged.csv is not a table"),
        ("longer.csv", b"a,b\n1,2,3\n4,5,6\n", "longer.csv is not a table"),
        ("table.xlsx", b"x", "table.xlsx is of no known kind"),
    ],
)
def test_files_that_are_no_tables_get_a_sentence(tmp_path, name, content, sentence):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(orn.FileError) as caught:
        reading.read_table(path)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders_get_a_sentence(tmp_path):
    with pytest.raises(orn.FileError, match="there is no file"):
        reading.read_table(tmp_path / "absent.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(orn.FileError, match="is a folder"):
        reading.read_table(tmp_path / "folder.csv")


@pytest.mark.parametrize("cut", [1, 40, 200, -1])
def test_a_damaged_parquet_file_gets_a_sentence(tmp_path, cut):
    path = tmp_path / "t.parquet"
    frame().to_parquet(path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(orn.FileError, match="damaged"):
        reading.read_table(path)


def changed(**columns) -> pd.DataFrame:
    table = frame()
    for name, values in columns.items():
        table[name] = values
    return table


@pytest.mark.parametrize(
    ("table", "target", "sentence"),
    [
        (
            frame(),
            "prise",
            "the target 'prise' is not a column of the table; did you mean 'price'?",
        ),
        (frame(), "zzz", "the columns are 'length', 'count', 'colour', 'sold', 'price'"),
        (changed(price=1.0), "price", "the target 'price' has only one value, 1.0"),
        (changed(kind="a"), "kind", "the target 'kind' has only one value, a"),
        (
            changed(length=[np.nan, *range(59)]),
            "price",
            r"values are missing in 'length' (1 of 60 rows)",
        ),
        (
            changed(colour=[None, *["red"] * 59]),
            "price",
            r"values are missing in 'colour' (1 of 60 rows)",
        ),
        (
            changed(length=["3.0"] * 50 + ["three"] * 10),
            "price",
            "column 'length' is numeric but holds the text 'three' in row 51",
        ),
        (
            changed(length=[np.inf, *range(59)]),
            "price",
            "column 'length' holds an infinite value, first in row 1",
        ),
        (
            changed(when=pd.date_range("2020-01-01", periods=60)),
            "price",
            "column 'when' holds dates or times",
        ),
        (frame()[["price"]], "price", "the table has no columns besides the target 'price'"),
        (
            frame()[["price"]].assign(one=1.0),
            "price",
            "every column besides the target is constant",
        ),
    ],
)
def test_tables_that_cannot_be_used_get_a_sentence(table, target, sentence):
    with pytest.raises(orn.InputError) as caught:
        Encoding.of(table, target)
    assert sentence in str(caught.value)


def test_too_many_labels_are_refused_and_a_column_can_be_dropped():
    table = frame(240)
    table["id"] = [f"n{i}" for i in range(240)]
    with pytest.raises(
        orn.InputError, match=r"column 'id' holds 240 different labels .* --drop id"
    ):
        Encoding.of(table, "price")
    assert "id" not in str(Encoding.of(table, "price", drop=["id"]).feature_names)


def test_a_constant_column_is_left_out_and_said_to_be():
    encoding = Encoding.of(frame().assign(one=1.0, word="w"), "price")
    assert encoding.notes == ("left out, constant: 'one', 'word'",)
    assert not any("one" in name or "word" in name for name in encoding.feature_names)


@pytest.mark.parametrize(
    ("values", "family"),
    [
        (np.linspace(0.0, 1.0, 60), "gaussian"),
        (np.arange(60) % 2, "bernoulli"),
        ([True, False] * 30, "bernoulli"),
        (["yes", "no"] * 30, "bernoulli"),
        (["a", "b", "c"] * 20, "categorical"),
        (np.arange(60) % 5, "gaussian"),
        (np.arange(60) - 30, "gaussian"),
    ],
)
def test_the_family_is_chosen_conservatively_and_said(values, family):
    encoding = Encoding.of(changed(price=values), "price")
    assert encoding.family == family
    assert "price" in encoding.reason


def test_whole_numbers_are_gaussian_with_a_hint():
    reason = Encoding.of(changed(price=np.arange(60) % 5), "price").reason
    assert "--family poisson or categorical" in reason
    assert "poisson" not in Encoding.of(changed(price=np.linspace(0, 1, 60)), "price").reason
    assert (
        Encoding.of(changed(price=np.arange(60) % 5), "price", family="poisson").family == "poisson"
    )
    with pytest.raises(orn.InputError, match="holds labels"):
        Encoding.of(frame(), "colour", family="gaussian")
    with pytest.raises(orn.InputError, match="unknown family"):
        Encoding.of(frame(), "price", family="gamma")


def test_features_are_standardised_indicators_included():
    table = frame()
    encoding = Encoding.of(table, "price", categorical=["count"])
    design = encoding.features(table)
    np.testing.assert_allclose(design.mean(), 0.0, atol=1e-12)
    np.testing.assert_allclose(design.std(ddof=0), 1.0, atol=1e-12)
    levels = [str(level) for level in sorted(set(table["count"]))]
    assert list(encoding.columns[1].levels) == levels
    assert encoding.feature_names[:2] == ("length", f"count={levels[1]}")


def test_new_rows_are_encoded_as_the_old_ones_and_strangers_refused():
    table = frame()
    encoding = Encoding.of(table, "price")
    np.testing.assert_allclose(
        encoding.features(table.iloc[5:6]).to_numpy(), encoding.features(table).to_numpy()[5:6]
    )
    with pytest.raises(
        orn.InputError, match="column 'colour' holds 'pink', which the fit has not seen"
    ):
        encoding.features(table.assign(colour="pink"))
    with pytest.raises(orn.InputError, match="lacks the column 'count'"):
        encoding.features(table.drop(columns="count"))
    with pytest.raises(orn.InputError, match="column 'length' must be numeric"):
        encoding.features(table.assign(length="long"))
    with pytest.raises(orn.InputError, match="values are missing in 'length'"):
        encoding.features(table.assign(length=np.nan))


def test_the_encoding_survives_json():
    for target in ("price", "colour", "sold"):
        encoding = Encoding.of(frame(), target)
        assert Encoding.from_json(encoding.to_json()) == encoding
    for damaged in ("", "{}", "[]", '{"columns": [1]}', encoding.to_json()[:-9]):
        with pytest.raises(orn.FileError, match="damaged"):
            Encoding.from_json(damaged)


def raw_design(encoding: Encoding, table: pd.DataFrame) -> np.ndarray:
    return np.concatenate([column.raw(table[column.name]) for column in encoding.columns], axis=1)


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson"])
def test_coefficients_on_the_original_scale_predict_the_same(family):
    table = frame().assign(visits=np.arange(60) % 7)
    encoding = Encoding.of(
        table, {"gaussian": "price", "bernoulli": "sold", "poisson": "visits"}[family], family
    )
    rng = np.random.default_rng(1)
    size = len(encoding.feature_names)
    params = {"coef": rng.normal(size=(2, 3, size)), "intercept": rng.normal(size=(2, 3))}
    names = (*encoding.feature_names, "intercept")
    if family == "gaussian":
        params["log_scale"], names = rng.normal(size=(2, 3)), (*names, "log_scale")
    original = encoding.original(posterior_of(params, names))
    found = original.params
    standardised = (
        np.einsum("np,cdp->cdn", encoding.features(table).to_numpy(), params["coef"])
        + params["intercept"][..., None]
    )
    expected = encoding.target_mean + encoding.target_scale * standardised
    on_table = (
        np.einsum("np,cdp->cdn", raw_design(encoding, table), found["coef"])
        + found["intercept"][..., None]
    )
    np.testing.assert_allclose(on_table, expected, rtol=1e-10, atol=1e-10)
    assert original.names[: size + 1] == (*encoding.feature_names, "intercept")
    if family == "gaussian":
        assert original.names[-1] == "sigma"
        np.testing.assert_allclose(
            found["sigma"], table["price"].std(ddof=0) * np.exp(params["log_scale"])
        )


@pytest.mark.parametrize("flat", [False, True])
def test_class_probabilities_are_the_same_on_the_original_scale(flat):
    table = frame()
    encoding = Encoding.of(table, "colour")
    rng = np.random.default_rng(2)
    size, classes = len(encoding.feature_names), 3
    params = {
        "coef": rng.normal(size=(1, 2, size, classes - flat)),
        "intercept": rng.normal(size=(1, 2, classes - 1)),
    }
    names = tuple(map(str, range(size * (classes - flat) + classes - 1)))
    original = encoding.original(posterior_of(params, names))
    found = original.params
    assert original.names[:2] == ("length[green]", "length[red]")
    assert original.names[-2:] == ("intercept[green]", "intercept[red]")

    def probabilities(design: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
        zeros = np.zeros((*intercept.shape[:-1], 1))
        logits = np.einsum("np,cdpk->cdnk", design, coef)
        if coef.shape[-1] < classes:
            logits = np.concatenate([np.zeros_like(logits[..., :1]), logits], axis=-1)
        return scipy.special.softmax(
            logits + np.concatenate([zeros, intercept], axis=-1)[:, :, None], axis=-1
        )

    np.testing.assert_allclose(
        probabilities(raw_design(encoding, table), found["coef"], found["intercept"]),
        probabilities(encoding.features(table).to_numpy(), params["coef"], params["intercept"]),
        rtol=1e-9,
    )


@pytest.mark.parametrize("target", ["price", "sold", "colour"])
def test_classes_are_in_the_order_of_the_model(target):
    table = Table.of(frame(), target)
    model = table.model
    if table.encoding.classes:
        assert tuple(str(label) for label in model.classes) == table.encoding.classes
    assert model.feature_names == table.encoding.feature_names


def test_least_squares_comes_back_on_the_original_scale():
    """With a flat prior the mode is the least-squares fit on the raw columns."""
    data = frame(300)
    table = Table.of(data, "price", prior_precision=0.0)
    mode = orn.measure(table.model).mode
    posterior = posterior_of(
        {
            "coef": mode[None, None, :-2],
            "intercept": mode[None, None, -2],
            "log_scale": mode[None, None, -1],
        },
        table.model.names,
    )
    found = table.encoding.original(posterior).draws[0, 0]
    design = np.column_stack([raw_design(table.encoding, data), np.ones(len(data))])
    solution, residual, *_ = np.linalg.lstsq(design, data["price"], rcond=None)
    np.testing.assert_allclose(found[:-1], solution, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found[-1], np.sqrt(residual[0] / len(data)), rtol=1e-6)


def test_tables_are_written_by_name(tmp_path):
    for name in ("t.csv", "t.tsv", "t.parquet"):
        reading.write_table(frame(), tmp_path / name)
        assert list(reading.read_table(tmp_path / name)["colour"]) == list(frame()["colour"])
    with pytest.raises(orn.FileError, match="no kind that can be written"):
        reading.write_table(frame(), tmp_path / "t.xlsx")
    with pytest.raises(orn.FileError, match="cannot write"):
        reading.write_table(frame(), tmp_path / "absent" / "t.csv")


@pytest.mark.parametrize("target", ["price", "sold", "colour"])
def test_the_standardising_factors_undo_the_scale_of_the_slopes(target):
    table = frame()
    encoding = Encoding.of(table, target)
    rng = np.random.default_rng(3)
    others = 2 if target == "colour" else 1
    shape = (
        (len(encoding.feature_names), others)
        if target == "colour"
        else (len(encoding.feature_names),)
    )
    params = {
        "coef": rng.normal(size=(1, 1, *shape)),
        "intercept": rng.normal(size=(1, 1, *shape[1:])),
    }
    original = encoding.original(posterior_of(params, ()))
    slopes = original.draws[0, 0, : len(encoding.standardising)]
    np.testing.assert_allclose(
        slopes * encoding.standardising, params["coef"].reshape(-1), rtol=1e-12
    )


def test_a_name_that_a_text_file_gives_to_two_columns(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('"a b";"a b";y\n1;2;3\n')
    with pytest.raises(orn.FileError, match="two columns of the name 'a b'"):
        reading.read_table(path)
    path.write_text("a,a.1,y\n1,2,3\n")
    assert list(reading.read_table(path).columns) == ["a", "a.1", "y"]


def test_values_that_parquet_hands_over_as_objects(tmp_path):
    """Dates, decimals, lists and bytes are objects to pandas, as text is, and are no labels."""
    import datetime
    import decimal

    columns = {
        "when": [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)] * 10,
        "price": [decimal.Decimal("1.10"), decimal.Decimal("2.20")] * 10,
        "parts": [[1, 2], [3]] * 10,
        "raw": [b"u", b"v"] * 10,
    }
    path = tmp_path / "table.parquet"
    pd.DataFrame(columns).to_parquet(path)
    table = reading.read_table(path)
    assert not reading.is_category(table["price"])
    with pytest.raises(orn.InputError, match="column 'when' holds dates or times"):
        reading.is_category(table["when"])
    for name, kind in (("parts", "ndarray"), ("raw", "bytes")):
        said = f"column '{name}' holds neither numbers nor labels but, in row 1, a {kind}"
        with pytest.raises(orn.InputError, match=said):
            reading.is_category(table[name])
    encoding = Encoding.of(table[["price"]].assign(y=np.arange(20.0)), "y")
    assert encoding.columns[0].levels == () and encoding.columns[0].means == pytest.approx([1.65])


def test_an_infinite_label(tmp_path):
    table = pd.DataFrame({"a": np.arange(6.0), "y": [0.0, 1.0, np.inf] * 2})
    with pytest.raises(orn.InputError, match="column 'y' holds an infinite value, first in row 3"):
        Encoding.of(table, "y", "categorical")
