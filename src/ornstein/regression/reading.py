"""Tables from files: CSV and other text, Parquet, Arrow, and Excel where openpyxl is there.

Nothing is guessed in silence: what had to be decided is noted in `attrs["notes"]` of the table.
"""

from __future__ import annotations

import gzip
import importlib.util
import re
import warnings
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from ornstein.errors import FileError
from ornstein.regression.texts import understood

if TYPE_CHECKING:
    import pandas

TEXT, PARQUET, ARROW = (".csv", ".tsv", ".txt"), (".parquet", ".pq"), (".arrow", ".feather", ".ipc")
EXCEL = (".xlsx",)
DELIMITERS = ",;\t|"
# Bytes that no text in Windows' Latin alphabet holds.
NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f\x81\x8d\x8f\x90\x9d]")


def read_table(path: str | Path, decimal: str | None = None) -> pandas.DataFrame:
    """A file as a data frame with rows and named columns.

    The delimiter of a text file is found by looking at its first line. `decimal` says what `1,234`
    means where the file does not.
    """
    path = Path(path)
    if not path.exists():
        raise FileError(f"there is no file {path}")
    if path.is_dir():
        raise FileError(
            f"{path} is a folder, not a file; a folder of Parquet files needs --scheduler, for"
            " instance local:2"
        )
    suffix, packed = path.suffix.lower(), False
    if suffix == ".gz" and Path(path.stem).suffix.lower() in TEXT:
        suffix, packed = Path(path.stem).suffix.lower(), True
    if suffix not in (*TEXT, *PARQUET, *ARROW, *EXCEL):
        raise FileError(
            f"the format of {path.name} is not recognised: give a file that ends in"
            f" {', '.join((*TEXT, '.csv.gz', *PARQUET, *ARROW, *EXCEL))}"
        )
    if path.stat().st_size == 0:
        raise FileError(f"{path.name} is empty (0 bytes)")
    notes: tuple[str, ...] = ()
    if suffix in TEXT:
        frame, notes = _read_text(path, packed, decimal)
    elif suffix in EXCEL:
        frame = _read_excel(path)
    else:
        frame = _read_columns(path, suffix in PARQUET)
    if not len(frame):
        raise FileError(f"{path.name} has a header but no rows")
    frame.columns = [str(name).strip() for name in frame.columns]
    repeated = sorted({name for name in frame.columns if list(frame.columns).count(name) > 1})
    if repeated:
        raise FileError(
            f"{path.name} has two columns named {repeated[0]!r}: rename one in its first line"
        )
    frame = frame.reset_index(drop=True)
    frame.attrs["notes"] = list(notes)
    return frame


def _read_text(
    path: Path, packed: bool, decimal: str | None
) -> tuple[pandas.DataFrame, tuple[str, ...]]:
    import pandas

    code, notes = _encoding(path, packed)
    try:
        with warnings.catch_warnings():
            # Rows longer than the header would otherwise be cut with no more than a warning.
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            mark = _delimiter(path, packed, code)
            frame = pandas.read_csv(
                path, sep=mark, index_col=False, encoding=code, low_memory=False
            )
            # pandas itself would call a second column of the name x "x.1".
            header = pandas.read_csv(
                path, sep=mark, encoding=code, header=None, nrows=1, dtype=str, na_filter=False
            ).iloc[0]
    except pandas.errors.EmptyDataError as error:
        raise FileError(f"{path.name} holds no columns") from error
    except (pandas.errors.ParserError, pandas.errors.ParserWarning, UnicodeDecodeError) as error:
        raise FileError(f"{path.name} is not a table: {_one_line(error)}") from error
    except OSError as error:
        raise FileError(f"{path.name} cannot be read: {error.strerror or error}") from error
    if header[header != ""].duplicated().any():
        frame.columns = pandas.Index(header)
        return frame, notes
    frame, changes = understood(frame, mark, decimal, path.name)
    return frame, (*notes, *changes)


def _encoding(path: Path, packed: bool) -> tuple[str, tuple[str, ...]]:
    """UTF-8, or Windows' Latin letters where it is not that and reads as text."""
    utf8, latin = True, True
    before = b""
    try:
        with _opened(path, packed) as file:
            while block := file.read(2**20):
                utf8 = utf8 and _is_utf8(before + block)
                latin = latin and NO_TEXT.search(block) is None
                before = block[-4:] if utf8 else b""
                # a letter may be cut in two: the next block begins with a part of this one
                before = re.sub(rb"^[\x80-\xbf]+", b"", before)
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{path.name} cannot be read: {_one_line(error)}") from error
    if utf8:
        return "utf-8-sig", ()
    if not latin:
        raise FileError(f"{path.name} is not text in UTF-8 or Latin-1")
    return "cp1252", (f"{path.name} is not UTF-8: read as Latin-1 (cp1252)",)


def _is_utf8(block: bytes) -> bool:
    try:
        block.decode("utf-8")
    except UnicodeDecodeError as error:
        return len(block) - error.start < 4 and error.reason == "unexpected end of data"
    return True


def _opened(path: Path, packed: bool) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if packed else open(path, "rb")


def _delimiter(path: Path, packed: bool, code: str) -> str:
    """The delimiter that cuts the header into the most parts; a comma where there is none at
    all.
    """
    with _opened(path, packed) as file:
        header = file.readline().decode(code, errors="replace")
    return max(DELIMITERS, key=lambda mark: (header.count(mark), mark == ","))


def _read_excel(path: Path) -> pandas.DataFrame:
    import pandas

    if importlib.util.find_spec("openpyxl") is None:
        raise FileError(
            f"{path.name} needs openpyxl to be read: pip install openpyxl, or save it as .csv"
        )
    try:
        return pandas.read_excel(path, engine="openpyxl")
    except Exception as error:  # openpyxl raises whatever its parts raise
        raise FileError(
            f"{path.name} is not an Excel file, or it is damaged: {_one_line(error)}"
        ) from error


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
