"""What a column does to the outcome, in the outcome's units: averages over rows, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ornstein.checks import brief, is_number
from ornstein.errors import InputError
from ornstein.model import tables
from ornstein.model.regression import GLM
from ornstein.regression.regress import Regression
from ornstein.types import Array, PyTree

if TYPE_CHECKING:
    import pandas

    from ornstein.model.model import Model

STEP = 1e-4  # of a column's standard deviation, to both sides

# Rows to expectations (draws, rows, …).
Expected = Callable[[PyTree], Array]


@dataclass(frozen=True, eq=False)
class Effects:
    """Draws of one or more averages over rows, (draws, averages)."""

    names: tuple[str, ...]
    draws: Array

    @property
    def mean(self) -> Array:
        return self.draws.mean(axis=0)

    @property
    def sd(self) -> Array:
        return self.draws.std(axis=0, ddof=1)

    def interval(self, probability: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper ends of the central interval."""
        if not is_number(probability) or not 0.0 < probability < 1.0:
            raise InputError(f"probability must lie between 0 and 1; got {brief(probability)}")
        tail = (1.0 - probability) / 2.0
        low, high = np.quantile(self.draws, [tail, 1.0 - tail], axis=0)
        return low, high

    def summary(self, probability: float = 0.95) -> pandas.DataFrame:
        """One row per average."""
        import pandas

        low, high = self.interval(probability)
        columns = {"mean": self.mean, "sd": self.sd, "low": low, "high": high}
        return pandas.DataFrame(columns, index=pandas.Index(list(self.names), dtype=object))

    def __repr__(self) -> str:
        return str(self.summary())


def average_effect(expected: Expected, data: object, column: str, model: Model | None) -> Effects:
    """The average over rows of dE[y]/dx for numbers; for labels, of E[y] at each label less that at
    the first.
    """
    table = _table(data, model, "effects")
    values = _column(table, column)
    if values.dtype.kind not in "iuf":
        found = average_at(expected, table, column, sorted(set(values.tolist())), model)
        names = tuple(f"{name} − {found.names[0]}" for name in found.names[1:])
        return Effects(names, found.draws[:, 1:] - found.draws[:, :1])
    step = STEP * (float(np.std(values.astype(float))) or 1.0)
    ends = [_average(expected(_with(table, column, values + sign * step))) for sign in (1.0, -1.0)]
    slope = (ends[0] - ends[1]) / (2.0 * step)
    return Effects(_names(column, slope), slope)


def average_at(
    expected: Expected, data: object, column: str, levels: Sequence[object], model: Model | None
) -> Effects:
    """The average over rows of E[y] where the column has each of some values in every row."""
    table = _table(data, model, "predict_at")
    rows = len(_column(table, column))
    names: list[str] = []
    found = []
    for level in levels:
        filled = np.full(rows, level, dtype=object if isinstance(level, str) else None)
        draws = _average(expected(_with(table, column, filled)))
        names += _names(f"{column}={level}", draws)
        found.append(draws)
    return Effects(tuple(names), np.concatenate(found, axis=1))


def _names(name: str, draws: Array) -> tuple[str, ...]:
    """One name, or one for each class."""
    count = draws.shape[1]
    return (name,) if count == 1 else tuple(f"{name}[{k}]" for k in range(count))


def _average(expected: Array) -> Array:
    mean = np.nanmean(expected, axis=1)
    return mean[:, None] if mean.ndim == 1 else mean


def _table(data: object, model: Model | None, what: str) -> PyTree:
    """The rows to average over: a table that was given, or those of a model made from columns."""
    if data is not None:
        return data if tables.is_frame(data) else tables.Named(*tables.features(data))
    if isinstance(model, GLM) and not isinstance(model, Regression):
        return tables.Named(model.features, model.feature_names)
    if model is None:
        raise InputError(
            f"{what} averages over rows, which a saved file does not hold: {what}(…, model=…), or"
            " data= with the table"
        )
    raise InputError(f"{what} needs the rows to average over: give data= with the table")


def _column(table: PyTree, name: str) -> Array:
    names = list(table.names if isinstance(table, tables.Named) else table.columns)
    if name not in names:
        raise InputError(f"there is no column {brief(name)}; there are {brief(names)}")
    if isinstance(table, tables.Named):
        found = table.matrix[:, [names.index(name)]]
        return np.asarray(found.toarray() if tables.is_sparse(found) else found)[:, 0]
    return np.asarray(table[name])


def _with(table: PyTree, name: str, values: Array) -> PyTree:
    """The table with other values in a column."""
    if not isinstance(table, tables.Named):
        import pandas

        frame = table if isinstance(table, pandas.DataFrame) else table.to_pandas()
        return frame.assign(**{name: values})
    matrix = table.matrix
    dense = matrix.toarray() if tables.is_sparse(matrix) else np.array(matrix, dtype=float)
    dense = dense.astype(float)
    dense[:, table.names.index(name)] = values
    return dense
