"""Averages along the values of a column, as a table and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ornstein.checks import brief, is_number, printable
from ornstein.errors import InputError
from ornstein.posterior.drawing import COLOURS, single_axes, write_figure
from ornstein.types import Array

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Curve:
    """Averages over rows at values of a column: `draws` are (draws, values, classes or 1)."""

    column: str
    values: tuple[object, ...]
    draws: Array
    numeric: bool
    classes: tuple[str, ...] = ()

    def frame(self, probability: float = 0.95) -> pandas.DataFrame:
        """One row per value, and per class where there are several."""
        import pandas

        parts = []
        for place in range(self.draws.shape[2]):
            part = described(self.draws[:, :, place], probability)
            part.insert(0, self.column, list(self.values))
            if self.classes:
                part.insert(1, "class", self.classes[place])
            parts.append(part)
        return pandas.concat(parts, ignore_index=True)

    def plot(self, path: str | Path | None = None) -> Figure:
        """A figure of its own, written where a path is given."""
        figure, axes = single_axes(6.0, 4.0)
        self.draw(axes, COLOURS)
        if path is not None:
            write_figure(figure, path)
        return figure

    def draw(self, axes: Axes, colours: Sequence[str]) -> None:
        """Means with 95 % intervals: a band for numbers, bars for labels; a colour per class."""
        for place in range(self.draws.shape[2]):
            colour = colours[place % len(colours)]
            if self.numeric:
                self._band(axes, place, colour)
            else:
                self._bars(axes, place, colour)
        if self.numeric:
            from matplotlib.ticker import MaxNLocator

            x = np.asarray(self.values, dtype=float)
            whole = bool(np.all(x == np.floor(x)))
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=whole))
        else:
            names = [printable(value, 14) for value in self.values]
            turned = 90 if sum(len(name) for name in names) > 30 else 0
            axes.set_xticks(np.arange(len(names)), names, rotation=turned)
        axes.set(xlabel=printable(self.column, 30), ylabel="average expectation")
        if self.classes:
            axes.legend(fontsize="small")

    def _band(self, axes: Axes, place: int, colour: str) -> None:
        mean, low, high = self._three(place)
        x = np.asarray(self.values, dtype=float)
        axes.fill_between(x, low, high, color=colour, alpha=0.22, linewidth=0)
        axes.plot(x, mean, color=colour, linewidth=1.8, label=self._label(place))

    def _bars(self, axes: Axes, place: int, colour: str) -> None:
        mean, low, high = self._three(place)
        beside = 0.7 * ((place + 0.5) / self.draws.shape[2] - 0.5)
        x = np.arange(len(self.values)) + beside
        axes.vlines(x, low, high, color=colour, linewidth=2.0)
        axes.plot(x, mean, "o", color=colour, markersize=4.5, label=self._label(place))

    def _three(self, place: int) -> tuple[Array, Array, Array]:
        draws = self.draws[:, :, place]
        low, high = np.quantile(draws, ends(0.95), axis=0)
        return draws.mean(axis=0), low, high

    def _label(self, place: int) -> str | None:
        return printable(self.classes[place], 20) if self.classes else None


def described(
    draws: Array, probability: float, names: Sequence[str] | None = None
) -> pandas.DataFrame:
    """Mean, sd and central interval of each column of (draws, columns)."""
    import pandas

    low, high = np.quantile(draws, ends(probability), axis=0)
    sd = draws.std(axis=0, ddof=1)
    columns = {"mean": draws.mean(axis=0), "sd": sd, "low": low, "high": high}
    index = None if names is None else pandas.Index(list(names), dtype=object)
    return pandas.DataFrame(columns, index=index)


def ends(probability: float) -> list[float]:
    """The levels of the quantiles of a central interval."""
    if not is_number(probability) or not 0.0 < probability < 1.0:
        raise InputError(f"probability must lie between 0 and 1; got {brief(probability)}")
    tail = (1.0 - probability) / 2.0
    return [tail, 1.0 - tail]
