"""Tables from files, with column types: what is a number, what is a category, and what is refused.

Nothing is guessed in silence. A column of text is a category; a column of numbers with text among
them is refused and the text shown; missing values, dates and infinities are refused with the
columns named.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from ornstein.errors import FileError

if TYPE_CHECKING:
    import pandas

TEXT, PARQUET, ARROW = (".csv", ".tsv", ".txt"), (".parquet", ".pq"), (".arrow", ".feather", ".ipc")
DELIMITERS = ",;\t|"
MOST_LEVELS = 100
# What pandas calls the contents of a column: of dates, and of lists, bytes and other values that
# Parquet knows.
DATES = ("datetime64", "datetime", "date", "timedelta64", "timedelta", "time", "period")
NO_LABELS = ("mixed", "bytes", "complex", "interval")


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


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
