"""Tables from files: what is read, what is said, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import ornstein as orn
from ornstein.interfaces.table import predicting
from ornstein.regression import columns, reading
from ornstein.regression.regress import Request, regression


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
    model = regression(Request("price ~ ."), tmp_path / "t.parquet")
    assert model.feature_names == ("length", "count", "colour=green", "colour=red", "sold=True")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("empty.csv", b"", "empty.csv is empty (0 bytes)"),
        ("empty.parquet", b"", "empty.parquet is empty (0 bytes)"),
        ("header.csv", b"a,b\n", "header.csv has a header but no rows"),
        ("blank.csv", b"\n\n", "blank.csv holds no columns"),
        ("not.parquet", b"a,b\n1,2\n", "not.parquet is not a Parquet file, or it is damaged"),
        ("not.arrow", b"a,b\n1,2\n", "not.arrow is not an Arrow file, or it is damaged"),
        ("bytes.csv", b"a\xff\x00\x01,b\n1,2\n", "bytes.csv is not text in UTF-8"),
        ("ragged.csv", b"a,b\n1,2\n1,2,3\n", "ragged.csv is not a table"),
        ("longer.csv", b"a,b\n1,2,3\n4,5,6\n", "longer.csv is not a table"),
        ("table.sav", b"x", "the format of table.sav is not recognised"),
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


def test_tables_are_written_by_name(tmp_path):
    for name in ("t.csv", "t.tsv", "t.parquet"):
        predicting.write_table(frame(), tmp_path / name)
        assert list(reading.read_table(tmp_path / name)["colour"]) == list(frame()["colour"])
    with pytest.raises(orn.FileError, match="not in a format that can be written"):
        predicting.write_table(frame(), tmp_path / "t.xlsx")
    with pytest.raises(orn.FileError, match="cannot write"):
        predicting.write_table(frame(), tmp_path / "absent" / "t.csv")


def test_a_name_that_a_text_file_gives_to_two_columns(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('"a b";"a b";y\n1;2;3\n')
    with pytest.raises(orn.FileError, match="two columns named 'a b'"):
        reading.read_table(path)
    path.write_text("a,a.1,y\n1,2,3\n")
    assert list(reading.read_table(path).columns) == ["a", "a.1", "y"]


def test_values_that_parquet_hands_over_as_objects(tmp_path):
    """Dates, decimals, lists and bytes are objects to pandas, as text is, and are no labels."""
    import datetime
    import decimal

    held = {
        "when": [datetime.date(1970, 1, 2), datetime.date(1970, 1, 3)] * 10,
        "price": [decimal.Decimal("1.10"), decimal.Decimal("2.20")] * 10,
        "parts": [[1, 2], [3]] * 10,
        "raw": [b"u", b"v"] * 10,
    }
    path = tmp_path / "table.parquet"
    pd.DataFrame(held).to_parquet(path)
    table = reading.read_table(path)
    assert not columns.is_category(table["price"])
    np.testing.assert_allclose(columns.numbers(table["when"]), [1.0, 2.0] * 10)
    np.testing.assert_allclose(columns.numbers(table["price"]), [1.1, 2.2] * 10)
    for name, kind in (("parts", "ndarray"), ("raw", "bytes")):
        said = f"column '{name}' holds neither numbers nor labels but, in row 1, a {kind}"
        with pytest.raises(orn.InputError, match=said):
            columns.is_category(table[name])


MESSY = """when;price;share;size;name
2013-01-31;1.234,50;45%;3,1;Müller
2013-02-28;980,00;5 %;2,25;Öz
2013-03-01;;100%;7;Z
"""


@pytest.mark.parametrize("code", ["utf-8", "utf-8-sig", "latin-1"])
def test_a_messy_file_is_read_where_there_is_one_way_and_said(tmp_path, code):
    path = tmp_path / "messy.csv"
    path.write_bytes(MESSY.encode(code))
    table = reading.read_table(path)
    np.testing.assert_allclose(table["price"], [1234.5, 980.0, np.nan])
    np.testing.assert_allclose(table["share"], [0.45, 0.05, 1.0])
    np.testing.assert_allclose(table["size"], [3.1, 2.25, 7.0])
    np.testing.assert_allclose(columns.numbers(table["when"]), [15736.0, 15764.0, 15765.0])
    assert list(table["name"]) == ["Müller", "Öz", "Z"]
    said = " | ".join(table.attrs["notes"])
    assert "numbers with a decimal comma: 'price', 'size'" in said
    assert "percentages): 'share'" in said and "dates): 'when'" in said
    assert ("cp1252" in said) == (code == "latin-1")


def test_a_comma_that_may_mean_two_things_is_asked_about(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1,234;2\n5,678;3\n")
    with pytest.raises(orn.FileError, match=r"'1,234', which may be 1234 or 1\.234: add --decimal"):
        reading.read_table(path)
    np.testing.assert_allclose(reading.read_table(path, ",")["a"], [1.234, 5.678])
    np.testing.assert_allclose(reading.read_table(path, ".")["a"], [1234.0, 5678.0])
    path.write_text('a,b\n"1,234",2\n"12,345,678.5",3\n5,4\n')
    table = reading.read_table(path)
    np.testing.assert_allclose(table["a"], [1234.0, 12345678.5, 5.0])
    assert table.attrs["notes"] == ["read as numbers with commas between thousands: 'a'"]


def test_text_with_commas_stays_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a;b\n1,2,3;x\n"4,5";y\nno 50%;2013-02-30\n')
    table = reading.read_table(path)
    assert list(table["a"]) == ["1,2,3", "4,5", "no 50%"]
    assert "notes" in table.attrs and not table.attrs["notes"]


def test_a_packed_file_is_the_same_table(tmp_path):
    import gzip

    plain, packed = tmp_path / "t.csv", tmp_path / "t.csv.gz"
    frame().to_csv(plain, index=False)
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    pd.testing.assert_frame_equal(reading.read_table(packed), reading.read_table(plain))
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(orn.FileError, match="cannot be read"):
        reading.read_table(packed)


def test_excel_without_openpyxl_names_it(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "t.xlsx").write_bytes(b"x")
    with pytest.raises(orn.FileError, match=r"openpyxl.*or save it as \.csv"):
        reading.read_table(tmp_path / "t.xlsx")
