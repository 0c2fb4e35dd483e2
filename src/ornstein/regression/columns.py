"""Columns of a table as numbers or labels: what counts as which, and what is refused.

Nothing is guessed in silence. A column of text is a category; a column of numbers with text among
them is refused and the text shown; infinities are refused with the row named. Dates are numbers of
days since 1970.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ornstein.checks import printable
from ornstein.errors import InputError
from ornstein.types import Array

if TYPE_CHECKING:
    import pandas

MOST_LEVELS = 100
# What pandas calls the contents of a column.
DATES = ("datetime64", "datetime", "date")
NO_LABELS = ("mixed", "bytes", "complex", "interval", "timedelta64", "timedelta", "time", "period")
A_DAY = np.timedelta64(1, "D")


class Columns(Protocol):
    """What is asked of a table: the names of its columns, and one column at a time."""

    def __iter__(self) -> Iterator[Any]: ...

    def __getitem__(self, name: Any, /) -> pandas.Series: ...


@dataclass(frozen=True, eq=False)
class Labels:
    """A column of labels: one code per row into `levels`; −1 where missing, −2 where unknown."""

    codes: Array
    levels: tuple[str, ...]

    def with_levels(self, levels: tuple[str, ...]) -> Labels:
        """The same labels, numbered by other levels."""
        places = {level: place for place, level in enumerate(levels)}
        moved = np.array([places.get(level, -2) for level in self.levels] + [-1], dtype=np.int64)
        return Labels(np.where(self.codes >= 0, moved[self.codes], self.codes), levels)


def values(series: pandas.Series, levels: tuple[str, ...] | None) -> Array | Labels:
    """A column as numbers or labels.

    Args:
        levels: None learns which it is; () asks for numbers, as in the fit; others are the labels
            of the fit.
    """
    if levels:
        return coded(series).with_levels(levels)
    if levels is None and is_category(series):
        found = coded(series)
        require_few(series.name, found.levels)
        return found
    return numbers(series)


def numbers(series: pandas.Series) -> Array:
    """A column of numbers in float64, NaN where missing; labels are refused."""
    from pandas.api import types

    if is_date(series):
        return _days(series)
    if is_truth(series) or types.is_numeric_dtype(series):
        require_real(series)
        found = series.to_numpy(dtype=float, na_value=np.nan)
        require_not_infinite(series.name, found)
        return found
    if is_category(series):
        first = series.dropna().iloc[0]
        raise InputError(
            f"column {series.name!r} must be numeric here; it holds {str(first)!r}. Write"
            f" C({printable(series.name)}) for labels"
        )
    found = series.to_numpy(dtype=float, na_value=np.nan)
    require_not_infinite(series.name, found)
    return found


def is_category(series: pandas.Series) -> bool:
    """Whether a column is one of labels; numbers with text among them and values that are neither
    are refused.
    """
    from pandas import CategoricalDtype
    from pandas.api import types

    name = series.name
    if isinstance(series.dtype, CategoricalDtype) or types.is_bool_dtype(series):
        return True
    if types.is_numeric_dtype(series):
        require_real(series)
        return False
    if is_date(series):
        return False
    kind = types.infer_dtype(series, skipna=True)
    if kind in ("decimal", "empty", "integer", "floating", "mixed-integer-float"):
        return False
    if kind == "boolean":
        return True
    if kind in NO_LABELS:
        first = series.dropna().iloc[0]
        raise InputError(
            f"column {name!r} holds neither numbers nor labels but, in row"
            f" {int(np.argmax(series.notna().to_numpy())) + 1}, a {type(first).__name__}: turn it"
            " into numbers or text, or leave it out"
        )
    _refuse_text_among_numbers(series.dropna())
    return True


def is_truth(series: pandas.Series) -> bool:
    """Whether a column holds true and false, and perhaps missing values among them."""
    from pandas.api import types

    if series.dtype == object:
        return types.infer_dtype(series, skipna=True) == "boolean"
    return types.is_bool_dtype(series)


def is_date(series: pandas.Series) -> bool:
    """Whether a column holds dates or moments."""
    from pandas.api import types

    if types.is_datetime64_any_dtype(series):
        return True
    return series.dtype == object and types.infer_dtype(series, skipna=True) in DATES


def _days(series: pandas.Series) -> Array:
    import pandas

    moments = pandas.to_datetime(series, utc=True).dt.tz_localize(None)
    days = moments.to_numpy().astype("datetime64[ns]") - np.datetime64("1970-01-01", "ns")
    return np.where(moments.isna().to_numpy(), np.nan, days / A_DAY)


def require_real(series: pandas.Series) -> None:
    """Refuse a column of complex numbers."""
    from pandas.api import types

    if types.is_complex_dtype(series):
        raise InputError(f"column {series.name!r} holds complex numbers")


def require_not_infinite(name: object, found: Array) -> None:
    """Refuse infinities in a column of numbers."""
    if np.isinf(found).any():
        raise InputError(
            f"column {name!r} holds an infinite value, first in row"
            f" {int(np.argmax(np.isinf(found))) + 1}"
        )


def _refuse_text_among_numbers(series: pandas.Series) -> None:
    import pandas

    texts = series.astype(str)
    is_number = pandas.to_numeric(texts, errors="coerce").notna().to_numpy()
    if is_number.all() or is_number.mean() < 0.5:
        return
    row = int(np.argmin(is_number))
    raise InputError(
        f"column {texts.name!r} is numeric but holds the text {texts.iloc[row]!r} in row {row + 1}"
        f" ({int((~is_number).sum()):,} of {len(texts):,} rows hold text); correct it, or if its"
        f" values are labels write C({printable(texts.name)}) in the formula, or --categorical"
        f" {printable(texts.name)}"
    )


def coded(series: pandas.Series) -> Labels:
    """A column as labels: categories in their own order, others sorted, numbers by size."""
    import pandas

    if isinstance(series.dtype, pandas.CategoricalDtype):
        categories = _texts(series.cat.categories)
        codes = series.cat.codes.to_numpy().astype(np.int64)
        used = np.zeros(len(categories), dtype=bool)
        used[codes[codes >= 0]] = True
        found = Labels(codes, categories)
        return found.with_levels(
            tuple(level for level, kept in zip(categories, used, strict=True) if kept)
        )
    codes, unique = pandas.factorize(series)
    texts = _texts(pandas.Index(unique))
    found = Labels(codes.astype(np.int64), texts)
    return found.with_levels(tuple(sorted(dict.fromkeys(texts), key=natural)))


def _texts(index: pandas.Index) -> tuple[str, ...]:
    """Labels as texts: 1.0 and 1 are the same label."""
    array = np.asarray(index)
    if array.dtype.kind == "f" and np.all(array == np.floor(array)):
        array = array.astype(np.int64)
    return tuple(str(value) for value in array)


def natural(label: str) -> tuple[int, float, str]:
    """A key that sorts numbers by size, and texts after them."""
    try:
        return (0, float(label), label)
    except ValueError:
        return (1, 0.0, label)


def require_few(name: object, levels: Sequence[str], most: int = MOST_LEVELS) -> None:
    """Refuse a column with more labels than should have a coefficient each."""
    if len(levels) > most:
        raise InputError(
            f"column {name!r} holds {len(levels):,} different labels ({shown(levels, most=3)}),"
            f" more than {most}: give them a common distribution with (1 | {printable(name)}), or"
            f" leave it out with --drop {printable(name)}"
        )


def require_column(names: Iterable[str], name: str, what: str) -> None:
    """Refuse a name that is not a column, and offer the nearest one that is."""
    names = list(names)
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    offer = f"did you mean {near[0]!r}?" if near else f"the columns are {shown(names)}"
    raise InputError(f"{what} {name!r} is not a column of the table; {offer}")


def shown(names: Iterable[object], most: int = 8, quoted: bool = False) -> str:
    """A few names, and how many more there are."""
    items: Sequence[str] = [str(name) if quoted else repr(str(name)) for name in names]
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
