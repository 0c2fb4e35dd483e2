"""What users bring as a table, as a data frame of pandas with complete rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.checks import brief
from ornstein.errors import InputError
from ornstein.model import tables
from ornstein.regression.columns import coded, is_category, numbers, shown
from ornstein.types import Array

if TYPE_CHECKING:
    import pandas

MISSING_LABEL = "missing"
MISSING = ("drop", "error", "indicator")


def _unequal(columns: Mapping[Any, Any]) -> str:
    """The first two columns of different lengths, in words; empty where there are none."""
    sizes = [(brief(name), np.size(column)) for name, column in columns.items()]
    for name, size in sizes:
        if size != sizes[0][1]:
            return f"{sizes[0][0]} has {sizes[0][1]} rows but {name} has {size}"
    return ""


def as_frame(data: Any, decimal: str | None = None) -> pandas.DataFrame:
    """A data frame from pandas, polars, Arrow, a dict of columns, or a path to a file."""
    import pandas

    if isinstance(data, str | Path):
        from ornstein.regression.reading import read_table

        return read_table(data, decimal)
    if isinstance(data, dict):
        try:
            data = pandas.DataFrame(data)
        except ValueError as error:
            raise InputError(f"data is not a table: {_unequal(data) or error}") from None
    if not isinstance(data, pandas.DataFrame):
        if not hasattr(data, "to_pandas"):
            raise InputError(
                "data must be a table of pandas, polars or Arrow, a dict of columns, or the path of"
                f" a file; got a {type(data).__name__}"
            )
        data = data.to_pandas()
    names = [str(name) for name in data.columns]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"the table has two columns named {repeated[0]!r}: rename one")
    if not len(data):
        raise InputError("the table has no rows")
    return data.set_axis(names, axis=1)


def varying(frame: pandas.DataFrame, names: Iterable[str]) -> tuple[list[str], list[str]]:
    """The columns that change from row to row, and those that never do."""
    found: tuple[list[str], list[str]] = ([], [])
    for name in names:
        present = frame[name].dropna()
        changes = len(present) > 0 and _changes(present)
        found[0 if changes else 1].append(name)
    return found


def _changes(series: pandas.Series) -> bool:
    try:
        values = numbers(series) if not is_category(series) else None
    except InputError:
        return True  # refused with its reason where it is used
    if values is None:
        return bool((series != series.iloc[0]).any())
    spread = float(np.ptp(values))
    return bool(spread > 1e-12 * max(abs(float(values[0])), 1e-300))


@dataclass(frozen=True, eq=False)
class Complete:
    """Rows without missing values: which of the given rows they are, what was filled, a sentence
    on what was done, and the same rows before that.
    """

    frame: pandas.DataFrame
    kept: Array
    given: pandas.DataFrame
    fills: dict[str, float | str] = field(default_factory=dict)
    note: str = ""


def complete(
    frame: pandas.DataFrame,
    features: Sequence[str],
    others: Sequence[str],
    missing: str,
    labels: Iterable[str] = (),
) -> Complete:
    """The rows with a value in every column that is used.

    Args:
        features: columns of the right side, which `missing="indicator"` fills.
        others: columns of the left side, weights and offsets, whose rows are dropped.
        missing: "drop", "error" or "indicator".
        labels: those of the features whose numbers are labels.
    """
    if missing not in MISSING:
        raise InputError(f"missing must be one of {', '.join(MISSING)}; got {brief(missing)}")
    used = list(dict.fromkeys([*features, *others]))
    frame = frame[used].reset_index(drop=True)
    counts = {name: int(frame[name].isna().sum()) for name in used}
    counts = {name: count for name, count in counts.items() if count}
    if not counts:
        return Complete(frame, np.ones(len(frame), dtype=bool), frame)
    listed = shown([f"{name!r} ({count:,})" for name, count in counts.items()], quoted=True)
    if missing == "error":
        raise InputError(
            f"values are missing in {listed} of {len(frame):,} rows; fill them in, leave the"
            " columns out, or ask for missing='drop' or 'indicator'"
        )
    fills: dict[str, float | str] = {}
    given = frame
    if missing == "indicator":
        # in rows that stay, or there would be marks in no row
        stays = frame[frame[list(others)].notna().all(axis=1)]
        lacking = [name for name in features if stays[name].isna().any()]
        fills = {name: _fill(frame[name], name in labels) for name in lacking}
        _require_free(fills, used)
        frame = filled(frame, fills)
    absent = frame[[name for name in used if name not in fills]].isna().any(axis=1).to_numpy()
    if absent.all():
        raise InputError(f"every row has a missing value: they are in {listed}")
    parts = []
    if absent.any():
        parts.append(f"{int(absent.sum()):,} of {len(frame):,} rows left out")
    if fills:
        parts.append(f"{shown(list(fills))} filled and marked")
    note = f"{', '.join(parts)}: values are missing in {listed}"
    kept = ~absent
    complete_rows = frame[kept].reset_index(drop=True)
    before = given[kept].reset_index(drop=True) if fills else complete_rows
    return Complete(complete_rows, kept, before, fills, note)


def _fill(series: pandas.Series, labels: bool) -> float | str:
    if series.isna().all():
        raise InputError(f"column {series.name!r} has no values: leave it out")
    if labels or is_category(series):
        return MISSING_LABEL
    return float(np.nanmean(numbers(series)))


def _require_free(fills: Mapping[str, float | str], used: Sequence[str]) -> None:
    """Refuse a column that has the name of the indicator of another one."""
    for name, value in fills.items():
        if not isinstance(value, str) and indicator(name) in used:
            raise InputError(
                f"missing='indicator' adds a column {indicator(name)!r} for {name!r}, but the"
                " formula uses one of that name: rename it"
            )


def per_row(values: Any, what: str, kept: Array) -> Array:
    """An array given beside the table, for the rows that were kept."""
    array = tables.numbers(values, what).astype(float)
    if len(array) != len(kept):
        raise InputError(f"the table has {len(kept):,} rows but {what} has {len(array):,}")
    return array[kept]


def filled(frame: pandas.DataFrame, fills: Mapping[str, float | str]) -> pandas.DataFrame:
    """The table with missing values filled, and a column of 0 and 1 beside each filled number."""
    changed: dict[str, Any] = {}
    for name, value in fills.items():
        series = frame[name]
        if isinstance(value, str):
            changed[name] = _marked(series, value)
        else:
            changed[name] = series.fillna(value)
            changed[indicator(name)] = series.isna().astype(float)
    return frame.assign(**changed) if changed else frame


def _marked(series: pandas.Series, label: str) -> Any:
    """Labels in their order, and after them the one that stands for missing values."""
    import pandas

    found = coded(series)
    levels = [level for level in found.levels if level != label] + [label]
    codes = found.with_levels(tuple(levels)).codes
    codes = np.where(codes < 0, len(levels) - 1, codes).astype(np.int64)
    return pandas.Categorical.from_codes(codes, pandas.Index(levels))


def indicator(name: str) -> str:
    """The column that says where another one is missing."""
    return f"{name}_missing"
