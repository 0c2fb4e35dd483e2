"""The rows that effects are averaged over, and the same rows with other values in a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.checks import brief
from ornstein.errors import InputError
from ornstein.model import tables
from ornstein.model.mixed.model import MixedModel
from ornstein.model.regression import GLM
from ornstein.regression.columns import coded, is_category, numbers
from ornstein.regression.mixed import MixedTablePredict, table_of
from ornstein.regression.table import as_frame
from ornstein.types import Array, PyTree

if TYPE_CHECKING:
    import pandas

    from ornstein.model.model import Model


@dataclass(frozen=True, eq=False)
class Rows:
    """A table of pandas, or a matrix with the names of its columns.

    Attributes:
        labels: columns that the formula takes for labels, with them in their order.
        classes: the labels of the outcome.
        offset: of the rows of a matrix; a table's comes from its columns.
        used: the columns of a table that the formula uses; None is all.
    """

    table: Any
    labels: dict[str, tuple[str, ...]]
    classes: tuple[str, ...] = ()
    offset: Array | None = None
    used: tuple[str, ...] | None = None

    @classmethod
    def of(cls, data: object, model: Model | None, predict: object, what: str) -> Rows:
        """Rows that were given, or those that the model was made from."""
        labels: dict[str, tuple[str, ...]] = {}
        spec = table_of(predict)
        for factor in () if spec is None else spec.design.factors:
            if factor.levels is not None:
                labels.setdefault(factor.expression.column_names[0], factor.levels)
        classes: tuple[str, ...] = () if spec is None else spec.classes
        if isinstance(model, GLM) and model.classes is not None:
            classes = tuple(str(label) for label in model.classes)
        table = _table(data, model, what) if data is None or spec is None else as_frame(data)
        own = data is None and isinstance(model, GLM) and isinstance(table, tables.Named)
        offset = model.data.get("offset") if own and model else None
        return cls(table, labels, classes, offset, _used(predict))

    def __len__(self) -> int:
        return (
            self.table.matrix.shape[0] if isinstance(self.table, tables.Named) else len(self.table)
        )

    def some(self, most: int) -> Rows:
        """At most this number of rows, from all parts of the table."""
        if len(self) <= most:
            return self
        places = np.linspace(0, len(self) - 1, most).astype(int)
        if isinstance(self.table, tables.Named):
            part = replace(self.table, matrix=self.table.matrix[places])
            return replace(
                self, table=part, offset=None if self.offset is None else self.offset[places]
            )
        return replace(self, table=self.table.iloc[places].reset_index(drop=True))

    def levels(self, name: str) -> Sequence[object] | None:
        """A value of the column for each of its labels, the reference first; None for numbers."""
        series = self._series(name)
        if isinstance(series, np.ndarray):
            return None
        if name not in self.labels and not is_category(series):
            return None
        found = coded(series)
        order = [level for level in self.labels.get(name, found.levels) if level in found.levels]
        values = series.to_numpy()
        places = [int(np.argmax(found.codes == found.levels.index(one))) for one in order]
        return [_as_label(values[place]) for place in places]

    def numbers(self, name: str) -> Array:
        """The column in float64."""
        series = self._series(name)
        return series.astype(float) if isinstance(series, np.ndarray) else numbers(series)

    def put(self, name: str, values: object) -> PyTree:
        """The rows with one value, or others, in a column."""
        self._series(name)
        if not isinstance(self.table, tables.Named):
            return self.table.assign(**{name: values})
        matrix = self.table.matrix
        dense = matrix.toarray() if tables.is_sparse(matrix) else np.array(matrix, dtype=float)
        dense = dense.astype(float)
        dense[:, self.table.names.index(name)] = values
        return dense if self.offset is None else tables.NewRows(dense, self.offset)

    def _series(self, name: str) -> pandas.Series | Array:
        names = list(self.table.names if isinstance(self.table, tables.Named) else self.table)
        if name not in names:
            raise InputError(f"there is no column {brief(name)}; there are {brief(names)}")
        if self.used is not None and name not in self.used:
            raise InputError(
                f"the prediction does not depend on the column {brief(name)}; it depends on"
                f" {brief(list(self.used))}"
            )
        if not isinstance(self.table, tables.Named):
            return self.table[name]
        found = self.table.matrix[:, [names.index(name)]]
        return np.asarray(found.toarray() if tables.is_sparse(found) else found)[:, 0]


def _as_label(value: object) -> object:
    """1 for 1.0: the same label, as the fit names it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _used(predict: object) -> tuple[str, ...] | None:
    """The columns of a table that a prediction depends on, where it was made from a formula."""
    spec = table_of(predict)
    if spec is None:
        return None
    groups = predict.groups if isinstance(predict, MixedTablePredict) else ()
    varying = (name for one in groups for name in one.effect_columns)
    return tuple(dict.fromkeys([*spec.column_names, *varying]))


def _table(data: object, model: Model | None, what: str) -> PyTree:
    if data is not None:
        if not tables.is_frame(data):
            return tables.Named(*tables.features(data))
        return as_frame(data)
    if model is None:
        raise InputError(
            f"{what} averages over rows, which a saved file does not hold: {what}(…, model=…), or"
            " data= with the table"
        )
    if isinstance(model, GLM):
        return model.table
    if isinstance(model, MixedModel) and model.frame is not None:
        return model.frame
    raise InputError(f"{what} needs the rows to average over: give data= with the table")
