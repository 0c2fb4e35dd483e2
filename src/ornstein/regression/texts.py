"""Numbers and dates that a text file writes in a way of its own: `1,234`, `3,14`, `45 %`,
`2013-01-31`. They are read where there is one way to read them, and every change is noted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ornstein.errors import FileError

if TYPE_CHECKING:
    import pandas

FEW = 200  # values that are looked at before all of a column are
THOUSANDS = re.compile(r"\s*[-+]?\d{1,3}(,\d{3})+(\.\d+)?\s*|\s*[-+]?\d+(\.\d+)?\s*")
COMMA = re.compile(r"\s*[-+]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?\s*")
DOUBTFUL = re.compile(r"\s*[-+]?[1-9]\d{0,2},\d{3}\s*|\s*[-+]?\d{1,3}\s*")
PERCENT = re.compile(r"\s*[-+]?\d+([.,]\d+)?\s*%\s*")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?Z?)?")


def understood(
    frame: pandas.DataFrame, delimiter: str, decimal: str | None, source: str
) -> tuple[pandas.DataFrame, tuple[str, ...]]:
    """The table with such columns as numbers, and a sentence on each kind of change.

    Args:
        delimiter: of the file; where it is a comma, `1,234` is taken for 1234.
        decimal: "," or ".", where it is known; else a column that can be read both ways is refused.
    """
    changed: dict[str, Any] = {}
    notes: dict[str, list[str]] = {}
    for name in frame.columns:
        series = frame[name]
        if series.dtype != object and str(series.dtype) not in ("str", "string"):
            continue
        found = _read(series, delimiter, decimal, source)
        if found is not None:
            kind, changed[name] = found
            notes.setdefault(kind, []).append(repr(name))
    said = tuple(f"read as {kind}: {', '.join(names)}" for kind, names in notes.items())
    return (frame.assign(**changed) if changed else frame), said


def _read(
    series: pandas.Series, delimiter: str, decimal: str | None, source: str
) -> tuple[str, pandas.Series] | None:
    import pandas

    texts = series.dropna()
    if not len(texts) or not all(isinstance(value, str) for value in texts.iloc[:FEW]):
        return None
    if _all(PERCENT, texts):
        plain = series.str.replace("%", "").str.replace(",", ".").str.strip()
        return "shares of 1 (they are percentages)", pandas.to_numeric(plain) / 100.0
    if _all(DATE, texts):
        try:
            return "days since 1970 (they are dates)", pandas.to_datetime(series, utc=True)
        except ValueError:
            return None
    if not texts.iloc[:FEW].str.contains(",").any() and not texts.str.contains(",").any():
        return None
    with_comma, with_groups = _all(COMMA, texts), _all(THOUSANDS, texts)
    if decimal is None and delimiter != "," and with_comma and with_groups:
        doubtful = _all(DOUBTFUL, texts)
        if doubtful:
            value = texts[texts.str.contains(",")].iloc[0]
            raise FileError(
                f"column {series.name!r} of {source} holds {value!r}, which may be"
                f" {value.replace(',', '')} or {value.replace(',', '.')}: add --decimal , or"
                " --decimal . to say which"
            )
    if with_comma and (decimal == "," or (decimal is None and not with_groups)):
        plain = series.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
        return "numbers with a decimal comma", pandas.to_numeric(plain.str.strip())
    if with_groups:
        plain = series.str.replace(",", "", regex=False)
        return "numbers with commas between thousands", pandas.to_numeric(plain.str.strip())
    return None


def _all(pattern: re.Pattern[str], texts: pandas.Series) -> bool:
    """Whether every text is written so: a few are looked at first."""
    return bool(
        texts.iloc[:FEW].str.fullmatch(pattern).all() and texts.str.fullmatch(pattern).all()
    )
