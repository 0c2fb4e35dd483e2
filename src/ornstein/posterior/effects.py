"""What a column does to the outcome, in the outcome's units: averages over rows, with intervals."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.checks import brief, is_number, printable
from ornstein.errors import InputError, PredictionWarning
from ornstein.posterior.at_draws import RowsAtDraws
from ornstein.posterior.averaged_rows import Rows
from ornstein.posterior.curve import Curve, described, ends
from ornstein.posterior.predictive import Predictive
from ornstein.types import Array, PyTree

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

STEP = 1e-4  # of a column's standard deviation, to both sides
# Of a curve: how many values of a column of numbers, between which shares of them, over how many
# rows.
VALUES, SHARES, CURVE_ROWS = 25, (0.005, 0.995), 2000
# What exp(predictor) is called: the ratio of one unit more, or of a label to the first.
RATIOS = {"logit": "odds ratio", "softmax": "odds ratio", "log": "rate ratio"}

# Rows to what is predicted for them, always at the same draws.
Predicted = Callable[[PyTree], Predictive]


@dataclass(frozen=True, eq=False)
class Effects:
    """Draws of one or more averages over rows, (draws, averages): average marginal effects,
    contrasts of labels, or expectations at values of a column.

    Attributes:
        names: of the averages. ratio_name: "odds ratio", "rate ratio", or "" where the link has
            neither.
        ratio_draws: (draws, ratios): exp of what one unit more, or a label in place of the first,
            adds to the linear predictor, on average over rows.
    """

    names: tuple[str, ...]
    draws: Array
    follow: Callable[[], Curve]
    ratio_name: str = ""
    ratio_names: tuple[str, ...] = ()
    ratio_draws: Array | None = None

    @property
    def mean(self) -> Array:
        return self.draws.mean(axis=0)

    @property
    def sd(self) -> Array:
        return self.draws.std(axis=0, ddof=1)

    def interval(self, probability: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper ends of the central interval."""
        low, high = np.quantile(self.draws, ends(probability), axis=0)
        return low, high

    def summary(self, probability: float = 0.95) -> pandas.DataFrame:
        """One row per average."""
        return described(self.draws, probability, self.names)

    def ratios(self, probability: float = 0.95) -> pandas.DataFrame:
        """Odds ratios (logit, softmax) or rate ratios (log link), one row each."""
        if self.ratio_draws is None:
            raise InputError(
                "ratios exist for the links logit, softmax and log, in models made by orn.glm"
                " or orn.regress"
            )
        return described(self.ratio_draws, probability, self.ratio_names)

    @cached_property
    def along(self) -> Curve:
        """The average expectation over rows along the column's values."""
        return self.follow()

    def curve(self, probability: float = 0.95) -> pandas.DataFrame:
        """The average expectation at values of the column, with intervals: what `plot` shows."""
        return self.along.frame(probability)

    def plot(self, path: str | Path | None = None) -> Figure:
        """A curve with a 95 % band for numbers, points with intervals for labels."""
        return self.along.plot(path)

    def __repr__(self) -> str:
        return str(self.summary().rename(index=printable))

    def _repr_html_(self) -> str:
        return self.summary().to_html(float_format=lambda number: f"{number:.4g}")


def average_effect(predicted: Predicted, rows: Rows, column: str) -> Effects:
    """The average over rows of dE[y]/dx for numbers; for labels, of E[y] at each label less that at
    the first.
    """
    levels = rows.levels(column)
    if levels is not None:
        return _contrasts(predicted, rows, column, levels)
    values = rows.numbers(column)
    if not np.any(np.isfinite(values)):
        raise InputError(f"no row has a value of {brief(column)}")
    upper, lower = _ends_of_steps(values)
    more, less = rows.put(column, upper), rows.put(column, lower)
    above, below = predicted(more), predicted(less)
    if above.source.shape[1] == 0:
        raise InputError(
            f"there is no row to average the effect of {brief(column)} over: none is complete"
        )
    slope = _slope(above, below, upper - lower)
    names = _by_class([column], rows.classes if slope.shape[1] > 1 else ())
    width = float(np.nanmean(upper - lower))
    ratios = _ratios(predicted, [(more, less)], [column], width, rows.classes)
    return Effects(names, slope, lambda: curve_along(predicted, rows, column), *ratios)


def _contrasts(predicted: Predicted, rows: Rows, column: str, levels: Sequence[object]) -> Effects:
    curve = _curve(predicted, rows, column, levels, False)
    labels = [f"{column}={level}" for level in levels]
    names = [f"{label} − {labels[0]}" for label in labels[1:]]
    draws = (curve.draws[:, 1:] - curve.draws[:, :1]).reshape(len(curve.draws), -1)
    first = rows.put(column, levels[0])
    pairs = [(rows.put(column, level), first) for level in levels[1:]]
    ratios = _ratios(predicted, pairs, names, 1.0, curve.classes)
    return Effects(_by_class(names, curve.classes), draws, lambda: curve, *ratios)


def average_at(predicted: Predicted, rows: Rows, column: str, levels: Sequence[object]) -> Effects:
    """The average over rows of E[y] where the column has each of some values in every row."""
    if not len(levels):
        raise InputError(f"give at least one value of {column!r}")
    numeric = rows.levels(column) is None
    for level in levels:
        if numeric and not is_number(level):
            raise InputError(f"{column!r} holds numbers; got {brief(level)}")
    curve = _curve(predicted, rows, column, levels, numeric)
    names = _by_class([f"{column}={level}" for level in levels], curve.classes)
    return Effects(names, curve.draws.reshape(len(curve.draws), -1), lambda: curve)


def curve_along(predicted: Predicted, rows: Rows, column: str, most: int = CURVE_ROWS) -> Curve:
    """The average expectation over at most `most` rows, at each label or at some numbers."""
    levels, some = rows.levels(column), rows.some(most)
    if levels is not None:
        return _curve(predicted, some, column, levels, False)
    return _curve(predicted, some, column, _grid(rows.numbers(column)), True)


def _curve(
    predicted: Predicted, rows: Rows, column: str, levels: Sequence[object], numeric: bool
) -> Curve:
    if not len(levels):
        raise InputError(f"no row has a label of {brief(column)} that the fit has seen")
    found = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PredictionWarning)
        for level in levels:
            one = predicted(rows.put(column, level))
            if one.source.shape[1] == 0:
                raise InputError(f"nothing can be predicted at {column} = {brief(level)}")
            found.append(_average(one))
    for said in dict.fromkeys(str(warning.message) for warning in caught):
        warnings.warn(said, PredictionWarning, stacklevel=4)
    draws = np.stack(found, axis=1)
    classes = rows.classes if draws.shape[2] > 1 else ()
    return Curve(column, tuple(levels), draws, numeric, classes)


def _by_class(names: Sequence[str], classes: tuple[str, ...]) -> tuple[str, ...]:
    """One name each, or one for each class of each."""
    return tuple(f"{name}[{k}]" for name in names for k in classes) if classes else tuple(names)


def _average(one: Predictive) -> Array:
    """The mean over rows of the expectation, (draws, classes or 1), some rows at a time."""
    total: Any = sum(block.sum(axis=1) for block in one.source.blocks())
    mean = total / one.source.shape[1]
    return mean[:, None] if mean.ndim == 1 else mean


def _ends_of_steps(values: Array) -> tuple[Array, Array]:
    """A little more and a little less, never beyond the range of the values: splines end there."""
    step = STEP * (float(np.nanstd(values)) or 1.0)
    low, high = np.nanmin(values), np.nanmax(values)
    if low == high:
        return values + step, values - step
    return np.minimum(values + step, high), np.maximum(values - step, low)


def _slope(above: Predictive, below: Predictive, width: Array) -> Array:
    """The average of differences over what was moved, row by row, where there is a value."""
    complete = above.placed.complete
    if complete is not None:
        width = width[complete]
    count = max(1, int(np.sum(np.isfinite(width))))
    width = np.where(np.isfinite(width), width, np.inf)
    total: Any = 0.0
    for rows, upper, lower in zip(
        _spans(above.source), above.source.blocks(), below.source.blocks(), strict=True
    ):
        share = width[rows] if upper.ndim == 2 else width[rows, None]
        total = total + ((upper - lower) / share).sum(axis=1)
    mean = total / count
    return mean[:, None] if mean.ndim == 1 else mean


def _spans(source: Any) -> Iterator[slice]:
    if isinstance(source, RowsAtDraws):
        yield from source.spans()
    else:
        yield slice(None)


def _ratios(
    predicted: Predicted,
    pairs: list[tuple[PyTree, PyTree]],
    names: Sequence[str],
    width: float,
    classes: tuple[str, ...],
) -> tuple[str, tuple[str, ...], Array | None]:
    """exp of the average difference of predictors, per unit: they are linear in the rows, so that
    the row of averages says it.
    """
    found = []
    for more, less in pairs:
        sources: list[Any] = [predicted(one).source for one in (more, less)]
        if not all(isinstance(source, RowsAtDraws) for source in sources):
            return "", (), None
        link = sources[0].likelihood.law.link
        if link not in RATIOS:
            return "", (), None
        ends = [_of_average_row(source) for source in sources]
        found.append((ends[0] - ends[1]) / width)
    if not found:
        return "", (), None
    differences = np.stack(found, axis=1)
    if differences.ndim == 3:  # classes: against the first
        differences = (differences[:, :, 1:] - differences[:, :, :1]).reshape(len(differences), -1)
        names = _by_class(names, classes[1:])
    return RATIOS[link], tuple(names), np.exp(differences)


def _of_average_row(source: Any) -> Array:
    matrix = np.asarray(source.matrix.mean(axis=0), dtype=float).reshape(1, -1)
    offset = None if source.offset is None else source.offset.mean(axis=0, keepdims=True)
    return replace(source, matrix=matrix, offset=offset).predictors(slice(None))[:, 0]


def _grid(values: Array) -> list[float]:
    """Some values of a column of numbers: all where there are few."""
    known = values[np.isfinite(values)]
    distinct = np.unique(known)
    if len(distinct) <= VALUES:
        return [float(value) for value in distinct]
    low, high = np.quantile(known, SHARES)
    return [float(value) for value in np.linspace(float(low), float(high), VALUES)]
