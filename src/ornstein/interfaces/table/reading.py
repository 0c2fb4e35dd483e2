"""Tables from files, with column types: what is a number, what is a category, and what is refused.

Nothing is guessed in silence. A column of text is a category; a column of numbers with text among
them is refused and the text shown; missing values, dates and infinities are refused with the
columns named.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ornstein.checks import printable
from ornstein.errors import FileError, InputError
from ornstein.posterior.files import replacing

if TYPE_CHECKING:
    import pandas

TEXT, PARQUET, ARROW = (".csv", ".tsv", ".txt"), (".parquet", ".pq"), (".arrow", ".feather", ".ipc")
DELIMITERS = ",;\t|"
MOST_LEVELS = 100
# What pandas calls the contents of a column: of dates, and of lists, bytes and other values that
# Parquet knows.
DATES = ("datetime64", "datetime", "date", "timedelta64", "timedelta", "time", "period")
NO_LABELS = ("mixed", "bytes", "complex", "interval")


class Columns(Protocol):
    """What is asked of a table: the names of its columns, and one column at a time."""

    @property
    def columns(self) -> Iterable[Any]: ...

    def __getitem__(self, name: Any, /) -> pandas.Series: ...

    def __len__(self) -> int: ...


def read_table(path: str | Path) -> pandas.DataFrame:
    """A .csv, .tsv, .parquet or .arrow file as a data frame with rows and named columns.

    The delimiter of a text file is found by looking at its first lines.
    """
    path = Path(path)
    if not path.exists():
        raise FileError(f"there is no file {path}")
    if path.is_dir():
        raise FileError(
            f"{path} is a folder, not a file; a folder of Parquet files needs --scheduler, for"
            " instance local:2"
        )
    suffix = path.suffix.lower()
    if suffix not in (*TEXT, *PARQUET, *ARROW):
        raise FileError(
            f"{path.name} is of no known kind: give a file that ends in"
            f" {', '.join((*TEXT, *PARQUET, *ARROW))}"
        )
    if path.stat().st_size == 0:
        raise FileError(f"{path.name} is empty (0 bytes)")
    frame = _read_text(path) if suffix in TEXT else _read_columns(path, suffix in PARQUET)
    if not len(frame):
        raise FileError(f"{path.name} has a header but no rows")
    frame.columns = [str(name).strip() for name in frame.columns]
    repeated = sorted({name for name in frame.columns if list(frame.columns).count(name) > 1})
    if repeated:
        raise FileError(f"{path.name} has two columns of the name {repeated[0]!r}")
    return frame.reset_index(drop=True)


def _read_text(path: Path) -> pandas.DataFrame:
    import pandas

    try:
        with warnings.catch_warnings():
            # Rows longer than the header would otherwise be cut with no more than a warning.
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            mark, code = _delimiter(path), "utf-8-sig"
            frame = pandas.read_csv(
                path, sep=mark, index_col=False, encoding=code, low_memory=False
            )
            # pandas itself would call a second column of the name x "x.1".
            header = pandas.read_csv(
                path, sep=mark, encoding=code, header=None, nrows=1, dtype=str, na_filter=False
            ).iloc[0]
            if header[header != ""].duplicated().any():
                frame.columns = pandas.Index(header)
            return frame
    except UnicodeDecodeError as error:
        raise FileError(f"{path.name} is not text in UTF-8 (byte {error.start})") from error
    except pandas.errors.EmptyDataError as error:
        raise FileError(f"{path.name} holds no columns") from error
    except (pandas.errors.ParserError, pandas.errors.ParserWarning) as error:
        raise FileError(f"{path.name} is not a table: {_one_line(error)}") from error
    except OSError as error:
        raise FileError(f"{path.name} cannot be read: {error.strerror or error}") from error


def _delimiter(path: Path) -> str:
    """The delimiter that cuts the header into the most parts; a comma where there is none at
    all.
    """
    with open(path, encoding="utf-8-sig") as file:
        header = file.readline()
    return max(DELIMITERS, key=lambda mark: (header.count(mark), mark == ","))


def _read_columns(path: Path, is_parquet: bool) -> pandas.DataFrame:
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise FileError(
            f"{path.name} needs pyarrow to be read: pip install 'ornstein[tables]'"
        ) from error
    try:
        if is_parquet:
            return pyarrow.parquet.read_table(path).to_pandas(ignore_metadata=True)
        with pyarrow.memory_map(str(path)) as source:
            try:
                table = pyarrow.ipc.open_file(source).read_all()
            except pyarrow.ArrowInvalid:
                source.seek(0)
                table = pyarrow.ipc.open_stream(source).read_all()
            return table.to_pandas(ignore_metadata=True)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        kind = "a Parquet" if is_parquet else "an Arrow"
        raise FileError(
            f"{path.name} is not {kind} file, or it is damaged: {_one_line(error)}"
        ) from error


def require_column(frame: Columns, name: str, option: str) -> None:
    """Refuse a name that is not a column, and offer the nearest one that is."""
    if name in frame.columns:
        return
    near = difflib.get_close_matches(name, list(frame.columns), n=1, cutoff=0.6)
    offer = f"did you mean {near[0]!r}?" if near else f"the columns are {shown(frame.columns)}"
    raise InputError(f"{option} {name!r} is not a column of the table; {offer}")


def require_complete(frame: Columns, names: Sequence[str]) -> None:
    """Refuse missing values in these columns, with the columns named."""
    counts = {name: int(frame[name].isna().sum()) for name in names}
    missing = {name: count for name, count in counts.items() if count}
    if missing:
        columns = shown(
            [f"{name!r} ({count:,} of {len(frame):,} rows)" for name, count in missing.items()],
            quoted=True,
        )
        raise InputError(
            f"values are missing in {columns}; fill them in or leave the rows or columns out"
        )


def is_category(series: pandas.Series) -> bool:
    """Whether a complete column is one of labels; numbers with text among them, dates and
    infinities are refused.
    """
    from pandas.api import types

    name = series.name
    if isinstance(series.dtype, _categorical_dtype()) or types.is_bool_dtype(series):
        return True
    if types.is_numeric_dtype(series):
        if types.is_complex_dtype(series):
            raise InputError(f"column {name!r} holds complex numbers")
        require_not_infinite(series)
        return False
    kind = types.infer_dtype(series)
    if kind == "decimal":
        require_not_infinite(series)
        return False
    if kind in DATES:
        raise InputError(
            f"column {name!r} holds dates or times: turn it into numbers, or leave it out with"
            f" --drop {printable(name)}"
        )
    if kind in NO_LABELS:
        raise InputError(
            f"column {name!r} holds neither numbers nor labels but, in row 1, a"
            f" {type(series.iloc[0]).__name__}: turn it into numbers or text, or leave it out with"
            f" --drop {printable(name)}"
        )
    texts = series.astype(str)
    _refuse_text_among_numbers(texts)
    return True


def require_not_infinite(series: pandas.Series) -> None:
    """Refuse infinities in a complete column of numbers, which are no labels either."""
    from pandas.api import types

    if not types.is_numeric_dtype(series) and types.infer_dtype(series) != "decimal":
        return
    bad = ~np.isfinite(series.to_numpy(dtype=float))
    if bad.any():
        raise InputError(
            f"column {series.name!r} holds an infinite value, first in row"
            f" {int(np.argmax(bad)) + 1}"
        )


def _refuse_text_among_numbers(texts: pandas.Series) -> None:
    import pandas

    is_number = pandas.to_numeric(texts, errors="coerce").notna().to_numpy()
    if is_number.all() or is_number.mean() < 0.5:
        return
    row = int(np.argmin(is_number))
    raise InputError(
        f"column {texts.name!r} is numeric but holds the text {texts.iloc[row]!r} in row {row + 1}"
        f" ({int((~is_number).sum()):,} of {len(texts):,} rows hold text); correct it, or if its"
        f" values are labels add --categorical {printable(texts.name)}"
    )


def labels(series: pandas.Series) -> np.ndarray:
    """A column as texts: 1.0 and 1 are the same label."""
    from pandas.api import types

    if types.is_float_dtype(series) and not isinstance(series.dtype, _categorical_dtype()):
        values = series.to_numpy(dtype=float)
        if np.all(values == np.floor(values)):
            return values.astype(np.int64).astype(str).astype(object)
    return series.astype(str).to_numpy(dtype=object)


def levels(series: pandas.Series, most: int = MOST_LEVELS) -> tuple[str, ...]:
    """The different labels of a column, in order (numbers by size); too many are refused."""
    found = sorted(set(labels(series)), key=_natural)
    if len(found) > most:
        raise InputError(
            f"column {series.name!r} holds {len(found):,} different labels"
            f" ({shown(found, most=3)}), more than {most}; leave it out with --drop"
            f" {printable(series.name)}"
        )
    return tuple(found)


def _natural(label: str) -> tuple[int, float, str]:
    try:
        return (0, float(label), label)
    except ValueError:
        return (1, 0.0, label)


def shown(names: Iterable[object], most: int = 8, quoted: bool = False) -> str:
    """A few names, and how many more there are."""
    items: Sequence[str] = [str(name) if quoted else repr(str(name)) for name in names]
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def _categorical_dtype() -> type:
    import pandas

    return pandas.CategoricalDtype


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def has_columns(path: Path, names: list[str]) -> bool:
    """Whether a table has just these columns, in this order."""
    try:
        return list(read_table(path).columns) == names
    except FileError:
        return False


def write_table(frame: pandas.DataFrame, path: Path) -> Path:
    """Write a .csv, .tsv or .parquet file, by its name."""
    suffix = path.suffix.lower()
    if suffix not in (*TEXT, *PARQUET):
        raise FileError(
            f"{path.name} is of no kind that can be written: give a name that ends in .csv, .tsv or"
            " .parquet"
        )
    try:
        with replacing(path) as temporary:
            if suffix in PARQUET:
                frame.to_parquet(temporary, index=False)
            else:
                frame.to_csv(temporary, index=False, sep="\t" if suffix == ".tsv" else ",")
    except ImportError as error:
        raise FileError(
            f"{path.name} needs pyarrow to be written: pip install 'ornstein[tables]'"
        ) from error
    return path
