"""Reading what users bring: arrays, data frames, sparse matrices and memory maps, as numbers with column names."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import scipy.sparse

from ornstein.errors import InputError


def is_sparse(table: Any) -> bool:
    """Whether it is one of SciPy's sparse matrices or arrays."""
    return bool(scipy.sparse.issparse(table))


def features(table: Any) -> tuple[Any, tuple[str, ...]]:
    """The design matrix, not copied where it need not be, and its column names.

    >>> features([[1, 2], [3, 4]])[1]
    ('x0', 'x1')
    """
    if is_sparse(table):
        if table.ndim != 2 or table.dtype.kind not in "fiub":
            raise InputError(
                f"X must be numeric with two axes; it is sparse of dtype {table.dtype} and shape {table.shape}"
            )
        matrix = table.tocsr()
        return matrix, _numbered(matrix.shape[1])
    if isinstance(table, np.ndarray | jax.Array):
        return _two_dimensional(table), _numbered(table.shape[1] if table.ndim == 2 else 1)
    if hasattr(table, "columns") and hasattr(table, "to_numpy"):
        return _from_frame(table)
    return features(_plain_array(table, "X"))


def column(values: Any, what: str) -> np.ndarray:
    """One value per row as a vector: a list, array, Series or one-column frame."""
    array = values.to_numpy() if hasattr(values, "to_numpy") else _plain_array(values, what)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"{what} must have one value per row; it has shape {array.shape}")
    return array


def numbers(values: Any, what: str) -> np.ndarray:
    """One number per row."""
    array = column(values, what)
    if array.dtype.kind == "O":
        array = _numeric_object(array, what)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{what} must be numeric, not of dtype {array.dtype}")
    return array


def _from_frame(frame: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    names = tuple(str(name) for name in frame.columns)
    columns = []
    for position, name in enumerate(names):
        series = frame.iloc[:, position] if hasattr(frame, "iloc") else frame[name]
        columns.append(numbers(series, f"column {name!r}"))
    if not columns:
        raise InputError("the table has no columns")
    common = np.result_type(*columns, np.float32)
    return np.column_stack(columns).astype(common, copy=False), names


def _numeric_object(array: np.ndarray, what: str) -> np.ndarray:
    try:
        return array.astype(float)
    except (TypeError, ValueError):
        culprit = next((v for v in array if not isinstance(v, int | float | np.number)), array[0])
        raise InputError(f"{what} must be numeric; it holds {culprit!r}") from None


def _plain_array(values: Any, what: str) -> np.ndarray:
    """What NumPy makes of a list or the like; a set, a mapping or a function is no array, and neither is a ragged list."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{what} cannot be read as an array: {str(error).splitlines()[0]}"
        ) from None
    if array.ndim == 0 and array.dtype.kind == "O":
        raise InputError(f"{what} cannot be read as an array; it is a {type(values).__name__}")
    return array


def _two_dimensional(array: Any) -> Any:
    if array.dtype.kind == "O":
        array = _numeric_object(array, "X")
    if array.dtype.kind not in "fiub":
        raise InputError(f"X must be numeric, not of dtype {array.dtype}")
    if array.ndim == 1:
        return array[:, None]
    if array.ndim != 2:
        raise InputError(f"X must have two axes, rows and columns; it has shape {array.shape}")
    return array


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(f"x{position}" for position in range(count))
