"""Reading what users bring: arrays, data frames, sparse matrices and memory maps, as numbers with
column names.

This is the one place that decides how values become rows. It refuses what NumPy would take for
numbers although they are none: masked and missing values, text, dates, categories and complex
numbers.
"""

from __future__ import annotations

import decimal
import numbers as kinds_of_numbers
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import scipy.sparse

from ornstein.checks import brief
from ornstein.errors import InputError
from ornstein.types import Array, Traced

NUMERIC = "fiub"
# What to do with values of other dtypes, by the letter of their kind.
REMEDIES = {
    "c": "take the real part, or the absolute value",
    "M": "turn dates into numbers first, for instance days since the first one",
    "m": "turn durations into numbers first, for instance seconds",
    "U": "turn text into numbers first, for instance with astype(float)",
    "S": "turn text into numbers first, for instance with astype(float)",
}
MISSING = ("NoneType", "NAType", "NaTType")
MOST_COLUMNS = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Named:
    """A matrix, dense or sparse, with the names of its columns."""

    matrix: Any
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class NewRows:
    """Rows to predict: their matrix, their offset, which of them are complete, and a sentence on
    why others are not.
    """

    matrix: Any
    offset: Array | None = None
    complete: Array | None = None
    said: str = ""


def is_sparse(table: object) -> bool:
    """Whether it is one of SciPy's sparse matrices or arrays."""
    return bool(scipy.sparse.issparse(table))


def is_frame(table: object) -> bool:
    """Whether it is a data frame, of pandas or polars."""
    return hasattr(table, "columns") and hasattr(table, "to_numpy")


def features(table: Any, what: str = "X") -> tuple[Any, tuple[str, ...]]:
    """The design matrix, not copied where it need not be, and its column names.

    >>> features([[1, 2], [3, 4]])[1]
    ('x0', 'x1')
    """
    if isinstance(table, Named):
        return features(table.matrix, what)[0], table.names
    if is_sparse(table):
        matrix = _sparse(table, what)
        return matrix, numbered(matrix.shape[1])
    if is_frame(table):
        return _from_frame(table)
    array = _two_dimensional(numeric(plain(table, what), what), what)
    return array, numbered(array.shape[1])


def column(values: object, what: str) -> np.ndarray:
    """One value per row as a vector: a list, array, Series or one-column frame."""
    if is_frame(values) and len(values.columns) == 1:  # type: ignore[attr-defined]
        values = _series(values, 0)
    array = np.asarray(plain(values, what))
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"{what} must have one value per row; it has shape {array.shape}")
    return array


def numbers(values: object, what: str) -> np.ndarray:
    """One number per row."""
    return np.asarray(numeric(_refusing_categories(column(values, what), values, what), what))


def labels(values: object, what: str) -> np.ndarray:
    """One label per row, of any kind, none of them missing."""
    array = column(values, what)
    if array.dtype.kind in "OMm":
        import pandas

        _require_none(pandas.isna(array), f"{what} holds a missing label")
    return array


def plain(values: object, what: str) -> Array | Traced:
    """The values as an array without mask; arrays in memory, on disk or on a device as they are.

    >>> plain(np.ma.array([1, 2], mask=[False, True]), "y")
    Traceback (most recent call last):
    ...
    ornstein.errors.InputError: y has 1 masked value, first in row 1: fill it or drop its row,...
    """
    if isinstance(values, list | tuple) and any(
        isinstance(item, np.ma.MaskedArray) for item in values
    ):
        values = np.ma.array(values)
    if isinstance(values, np.ma.MaskedArray):
        return _unmasked(values, what)
    if isinstance(values, np.matrix):
        return np.asarray(values)
    if isinstance(values, np.ndarray | jax.Array):
        return values
    if is_frame(values):
        return features(values)[0]
    return _from_series(values, what) if hasattr(values, "to_numpy") else _array(values, what)


def require_numeric(values: object, what: str) -> None:
    """Refuse what the conversions of other libraries would take for numbers although it is none;
    everything else is left for them to judge.
    """
    if is_frame(values):
        for position, name in enumerate(values.columns):  # type: ignore[attr-defined]
            require_numeric(_series(values, position), f"column {str(name)!r}")
        return
    require_unmasked(values, what)
    _refusing_categories(None, values, what)
    if values is None or is_sparse(values):
        return
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        return
    if array.dtype.kind in "USMm":
        numeric(array, what)
    if array.dtype.kind == "O":
        for place, value in enumerate(array.flat):
            if isinstance(value, str | bytes):
                raise _no_number(value, _row(place, array), what)


def require_unmasked(values: object, what: str) -> None:
    """Refuse a masked array that hides a value."""
    if isinstance(values, np.ma.MaskedArray):
        _unmasked(values, what)


def require_one_index(tables: Iterable[tuple[str, object]]) -> None:
    """Refuse tables whose pandas indices have the same labels in another order: rows are paired by
    position, which would pair rows of different labels.
    """
    known: tuple[str, Any] | None = None
    for what, table in tables:
        index: Any = getattr(table, "index", None)
        if not hasattr(index, "equals"):
            continue
        if known is None:
            known = what, index
        elif _is_another_order(index, known[1]):
            first = int(np.argmax(np.asarray(index != known[1])))
            raise InputError(
                f"the index of {what} is not in the same order as that of {known[0]}: row"
                f" {first} is"
                f" {_label(index, first)} in {what} and {_label(known[1], first)} in {known[0]}."
                f" Rows are paired by position: put {what} into the order of {known[0]}"
                f" ({what}.loc[{known[0]}.index]), or give {what}.to_numpy()"
            )


def _label(index: Any, row: int) -> str:
    return brief(index[row].item() if isinstance(index[row], np.generic) else index[row])


def _is_another_order(index: Any, other: Any) -> bool:
    """Whether two indices of pandas have the same labels, not in the same order."""
    if len(index) != len(other) or index.equals(other):
        return False
    return bool(
        index.difference(other, sort=False).empty and other.difference(index, sort=False).empty
    )


def numbered(count: int) -> tuple[str, ...]:
    """Names for columns that have none."""
    return tuple(f"x{position}" for position in range(count))


def places_of(given: tuple[str, ...], names: tuple[str, ...]) -> list[int]:
    """Where in the table that was given the columns of the model are."""
    places = {name: place for place, name in enumerate(given)}
    known = set(names)
    troubles = [
        ("lack", [name for name in names if name not in places]),
        ("have the unknown", [name for name in given if name not in known]),
        ("repeat the", [name for place, name in enumerate(given) if places[name] != place]),
    ]
    for trouble, found in troubles:
        if found:
            raise InputError(
                f"the rows to predict {trouble} column{'s' if len(found) > 1 else ''}"
                f" {_listed(found)}; the model was made from {_listed(list(names))}"
            )
    return [places[name] for name in names]


def _listed(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(brief(name) for name in names[:most]) + more


def _sparse(table: Any, what: str) -> Any:
    if table.ndim != 2 or table.dtype.kind not in NUMERIC:
        raise InputError(
            f"{what} must be numeric with two axes; it is sparse of dtype {table.dtype} and shape"
            f" {table.shape}"
        )
    if table.shape[1] > MOST_COLUMNS:
        raise InputError(
            f"{what} has {table.shape[1]} columns; sparse rows may have at most {MOST_COLUMNS}"
        )
    matrix = table.tocsr()
    if not matrix.has_canonical_format:
        # an entry that is stored in two parts would be squared part by part
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def _from_frame(frame: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    names = tuple(str(name) for name in frame.columns)
    columns = [
        numbers(_series(frame, position), f"column {name!r}") for position, name in enumerate(names)
    ]
    if not columns:
        raise InputError("the table has no columns")
    common = np.result_type(*columns, np.float32)
    return np.column_stack(columns).astype(common, copy=False), names


def _series(frame: Any, position: int) -> Any:
    return frame.iloc[:, position] if hasattr(frame, "iloc") else frame[frame.columns[position]]


def _from_series(values: Any, what: str) -> np.ndarray:
    """A Series, an Index or an Arrow array; one with missing values is refused, where they are not
    NaN among floats.
    """
    dtype = getattr(values, "dtype", None)
    if hasattr(values, "isna") and not isinstance(dtype, np.dtype):
        _require_none(np.asarray(values.isna()), f"{what} holds a missing value")
    missing = getattr(values, "null_count", 0)
    missing = missing() if callable(missing) else missing
    if missing:
        raise InputError(f"{what} has {missing} missing values: fill them, or drop their rows")
    if type(values).__module__.split(".")[0] == "pyarrow":
        return np.asarray(values.to_numpy(zero_copy_only=False))
    known = getattr(dtype, "numpy_dtype", None)  # of pandas' nullable types
    if isinstance(known, np.dtype) and known.kind in NUMERIC:
        return np.asarray(values.to_numpy(dtype=known))
    return np.asarray(values.to_numpy())


def _unmasked(array: np.ma.MaskedArray, what: str) -> np.ndarray:
    hidden = np.ma.getmaskarray(array)
    count = int(hidden.sum())
    if count:
        row = int(np.argwhere(hidden)[0][0]) if hidden.ndim else 0
        raise InputError(
            f"{what} has {count} masked value{'s' if count > 1 else ''}, first in row {row}: fill"
            f" {'them or drop their rows' if count > 1 else 'it or drop its row'}, because the"
            " numbers beneath a mask mean nothing"
        )
    return np.ma.getdata(array)


def numeric(array: Array | Traced, what: str) -> Array | Traced:
    """The array, refused unless it holds real numbers."""
    if array.dtype.kind == "O":
        array = _numeric_objects(np.asarray(array), what)
    kind = array.dtype.kind
    if kind not in NUMERIC:
        held = f", such as {array.flat[0]!r}" if kind in "US" and array.size else ""
        remedy = f": {REMEDIES[kind]}" if kind in REMEDIES else ""
        raise InputError(f"{what} must be numeric, not of dtype {array.dtype}{held}{remedy}")
    # wider floats than JAX knows
    return array.astype(float) if kind == "f" and array.dtype.itemsize > 8 else array


def _numeric_objects(array: np.ndarray, what: str) -> np.ndarray:
    """Objects that are all numbers, as numbers; text is none, even if it looks like one."""
    for place, value in enumerate(array.flat):
        if not _is_number(value):
            raise _no_number(value, _row(place, array), what)
    return array.astype(float)


def _is_number(value: object) -> bool:
    """Whether it is one real number; NaN is not."""
    if isinstance(value, np.ndarray | jax.Array) and not isinstance(value, np.ma.MaskedArray):
        return value.ndim == 0 and value.dtype.kind in NUMERIC and bool(value == value)
    real = isinstance(value, kinds_of_numbers.Real | decimal.Decimal | np.bool_)
    return real and bool(value == value)


def _no_number(value: object, row: int, what: str) -> InputError:
    if type(value).__name__ in MISSING or isinstance(value, float | np.floating | decimal.Decimal):
        return InputError(f"{what} holds a missing value, {value!r}, first in row {row}")
    remedy = f": {REMEDIES['U']}" if isinstance(value, str | bytes) else ""
    return InputError(f"{what} must be numeric; it holds {brief(value)} in row {row}{remedy}")


def _row(place: int, array: np.ndarray) -> int:
    return place // max(1, array[0].size if array.ndim > 1 else 1)


def _refusing_categories(array: Any, values: Any, what: str) -> Any:
    """The array, unless the values are categories, whose numbers would be mere names."""
    if is_frame(values) and len(values.columns) == 1:
        values = _series(values, 0)
    if str(getattr(values, "dtype", "")) in ("category", "Categorical", "Enum"):
        raise InputError(
            f"{what} holds categories, not numbers: turn them into columns of 0 and 1 first, or"
            " into numbers with astype(float)"
        )
    return array


def _require_none(missing: np.ndarray, said: str) -> None:
    if np.any(missing):
        raise InputError(f"{said}, first in row {int(np.argmax(missing))}")


def _array(values: object, what: str) -> np.ndarray:
    """What NumPy makes of a list or the like; a set, a mapping or a function is no array, and
    neither is a ragged list.
    """
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{what} cannot be read as an array: {str(error).splitlines()[0]}"
        ) from None
    if array.ndim == 0 and array.dtype.kind == "O":
        raise InputError(f"{what} cannot be read as an array; it is a {type(values).__name__}")
    return array


def _two_dimensional(array: Array | Traced, what: str) -> Array | Traced:
    if array.ndim == 1:
        return array[:, None]
    if array.ndim != 2:
        raise InputError(f"{what} must have two axes, rows and columns; it has shape {array.shape}")
    return array
