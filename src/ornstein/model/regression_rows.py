"""The rows of a regression as they were given, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ornstein.checks import require_finite
from ornstein.errors import InputError
from ornstein.model import tables
from ornstein.model.families.family import Family
from ornstein.model.on_disk import is_table_on_disk, open_table
from ornstein.model.response import checked_response
from ornstein.types import Array, PyTree


@dataclass(frozen=True, eq=False)
class RegressionRows:
    """Features and response, which fit each other.

    Attributes:
        law: the family, with as many classes as the response has.
        table: (N, F) array, memory map or CSR matrix. names: of its columns; named: whether the
            columns came with them.
        response: as the family's density takes it. classes: its labels in order, where it has any.
        weights, offset: None where there are none.
    """

    law: Family
    table: Any
    names: tuple[str, ...]
    named: bool
    response: Array
    classes: Array | None
    weights: Array | None
    offset: Array | None

    @classmethod
    def of(
        cls,
        X: object,
        y: object,
        law: Family,
        weights: ArrayLike | None,
        offset: ArrayLike | None,
        classes: ArrayLike | None,
    ) -> RegressionRows:
        """What was given, refused where it is not finite or does not fit together."""
        tables.require_one_index((("X", X), ("y", y), ("weights", weights), ("offset", offset)))
        table, names, named, y = _read(X, y)
        n_data, columns = table.shape
        if n_data == 0 or columns == 0:
            raise InputError(f"X must have rows and columns; it has shape {table.shape}")
        require_finite("X", table.data if tables.is_sparse(table) else table, names)
        response, labels = checked_response(y, law, n_data, classes)
        law = law if labels is None else law.of_classes(len(labels))
        own = len(labels) if labels is not None and law.classes else None
        offset = one_per_row(offset, "offset", n_data, own)
        weights = one_per_row(weights, "weights", n_data, None)
        if weights is not None and (np.any(weights < 0) or not np.any(weights > 0)):
            raise InputError("weights must not be negative, and not all zero")
        return cls(law, table, names, named, response, labels, weights, offset)

    @property
    def outputs(self) -> int:
        """Predictors of a row, those of auxiliary parameters aside."""
        return len(self.classes) if self.classes is not None and self.law.classes else 1

    def data(self) -> dict[str, PyTree]:
        """The data of a Model."""
        found = {
            "x": _features(self.table),
            "y": self.response,
            "weight": self.weights,
            "offset": self.offset,
        }
        return {name: leaf for name, leaf in found.items() if leaf is not None}


def _read(X: object, y: object) -> tuple[Any, tuple[str, ...], bool, object]:
    """The table, the names of its columns, whether it came with them, and the response."""
    if not is_table_on_disk(X):
        table, names = tables.features(X)
        return table, names, tables.is_frame(X) or isinstance(X, tables.Named), y
    opened = open_table(X, y if isinstance(y, str) else None)
    table, names = tables.features(opened.features)
    response = y if opened.target is None else opened.target
    return table, opened.names or names, bool(opened.names), response


def one_per_row(
    values: ArrayLike | None, what: str, n_data: int, outputs: int | None
) -> np.ndarray | None:
    """Finite numbers, one per row, or one per row and class; None where there are none."""
    if values is None:
        return None
    if outputs is None:
        array = tables.numbers(values, what).astype(float)
    else:
        array = np.asarray(tables.features(values)[0], dtype=float)
        if array.shape != (n_data, outputs):
            raise InputError(
                f"{what} must have shape {(n_data, outputs)}, one number per row and class; it has"
                f" {array.shape}"
            )
    if array.shape[0] != n_data:
        raise InputError(f"X has {n_data} rows but {what} has {array.shape[0]}")
    require_finite(what, array)
    return array


def _features(table: Any) -> PyTree:
    """Dense rows as they are; sparse rows as padded (column, value) pairs, so that a step costs
    what is not zero.
    """
    if not tables.is_sparse(table):
        return table
    counts = np.diff(table.indptr)
    longest = max(1, int(counts.max()))
    columns = np.zeros((table.shape[0], longest), dtype=np.int32)
    values = np.zeros((table.shape[0], longest), dtype=np.result_type(table.data, np.float32))
    filled = np.arange(longest) < counts[:, None]
    columns[filled], values[filled] = table.indices, table.data
    return {"columns": columns, "values": values}
