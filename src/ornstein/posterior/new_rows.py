"""New rows as users bring them: a matrix with the model's columns, found by name where it has
names.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from ornstein.checks import is_number, require_finite
from ornstein.errors import InputError, PredictionWarning
from ornstein.model import tables
from ornstein.model.families.likelihood import Predict
from ornstein.model.regression_rows import one_per_row
from ornstein.types import Array


@dataclass(frozen=True, eq=False)
class Asked:
    """The complete rows to predict and their offset; which of all rows they are, None where all
    are; and whether one row was given without an axis.
    """

    matrix: Any
    offset: Array | None = None
    complete: Array | None = None
    single: bool = False


def asked_rows(predict: Predict, width: int, inputs: object, offset: Any = None) -> Asked:
    """Rows of a table or a matrix; rows that are not complete are left out, with one warning."""
    new = predict.new_rows(inputs)
    if new is None:
        rows, single = _regression_rows(inputs, width, predict.columns)
        return Asked(rows, _offset(predict, offset, rows.shape[0]), single=single)
    if offset is not None:
        raise InputError("the rows of a table have their offset in its columns; leave offset= out")
    if new.complete is None or np.all(new.complete):
        return Asked(new.matrix, new.offset)
    warnings.warn(new.said, PredictionWarning, stacklevel=4)
    offset = None if new.offset is None else new.offset[new.complete]
    return Asked(new.matrix[new.complete], offset, new.complete)


def _offset(predict: Predict, given: Any, count: int) -> Array | None:
    """The offset of the rows of a matrix, (rows,) or (rows, classes)."""
    if given is None:
        if predict.offset:
            raise InputError(
                "the model was made with an offset and does not know that of these rows: predict(…,"
                " offset=…), 0 for none"
            )
        return None
    classes = predict.likelihood.predictors if predict.likelihood.law.classes else None
    if is_number(given):
        given = np.full(count if classes is None else (count, classes), float(given))
    return one_per_row(given, "offset", count, classes)


def _regression_rows(inputs: Any, width: int, names: tuple[str, ...]) -> tuple[Any, bool]:
    """New rows with the model's columns, and whether they were given as one row without an axis."""
    if inputs is None:
        raise InputError("predict needs rows; got None")
    rows, given = tables.features(inputs)
    single = np.ndim(inputs) == 1 and not tables.is_frame(inputs) and width > 1
    if single:
        rows = rows.T
    if tables.is_frame(inputs) and names and given != names:
        rows, given = rows[:, tables.places_of(given, names)], names
    if rows.shape[1] != width:
        raise InputError(f"predict needs rows of {width} columns; these have {rows.shape[1]}")
    known = names or given if not single else None
    require_finite("X", rows.data if tables.is_sparse(rows) else rows, known)
    return rows if tables.is_sparse(rows) else np.asarray(rows), single
