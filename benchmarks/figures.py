"""The plots of the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.growth import QUANTITIES
from benchmarks.methods import METHODS

COLOURS = [
    "#0072b2",
    "#56b4e9",
    "#009e73",
    "#e69f00",
    "#cc79a7",
    "#000000",
    "#d55e00",
    "#999999",
    "#f0e442",
    "#8c564b",
    "#7f3c8d",
    "#3969ac",
    "#e377c2",
]


def steps(found: dict[str, dict[str, float]], path: Path) -> None:
    """µs per step, one column per task."""
    figure = _figure(9, 4.5)
    axes = figure.subplots()
    names = list(dict.fromkeys(name for result in found.values() for name in result))
    for position, name in enumerate(names):
        # who is equally fast would otherwise lie on top of each other
        aside = 0.6 * (position / len(names) - 0.5)
        points = [
            (number + aside, result[name])
            for number, result in enumerate(found.values())
            if name in result
        ]
        marker = "o" if name.startswith("ornstein") else "s"
        axes.plot(
            *zip(*points, strict=True), marker, color=COLOURS[position % len(COLOURS)], label=name
        )
    axes.set_yscale("log")
    axes.set_ylabel("µs per step (lower is faster)")
    axes.set_xticks(
        range(len(found)),
        [task.replace(" N=", "\nN=").replace(" S=", "\nS=") for task in found],
        fontsize=7,
    )
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _save(figure, path)


def time_to_posterior(result: dict[str, Any], path: Path) -> None:
    """KL against seconds, one panel per data set; a method that never had an answer has no line."""
    from matplotlib.ticker import LogLocator, NullFormatter

    problems = result["problems"]
    columns = min(2, len(problems))
    rows = -(-len(problems) // columns)
    figure = _figure(4.2 * columns + 1.8, 3.2 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, (name, part) in zip(panels, problems.items(), strict=False):
        for position, method in enumerate(METHODS):
            points = [
                point
                for point in part["methods"].get(method, {"points": []})["points"]
                if point[1] < float("inf")
            ]
            if points:
                seconds, distances = zip(*points, strict=True)
                mark = "o-" if method.startswith("ornstein") else "s-"
                panel.plot(
                    seconds,
                    _floored(distances),
                    mark,
                    ms=3,
                    lw=1,
                    color=COLOURS[position],
                    label=method,
                )
        panel.axhline(result["enough"], color="#666666", lw=1, ls="--")
        panel.set(
            xscale="log",
            yscale="log",
            title=name,
            xlabel="seconds, start-up included",
            ylabel="KL to the reference, nats",
        )
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.grid(alpha=0.3)
    for panel in panels[len(problems) :]:
        panel.set_visible(False)
    shown = {
        label: line
        for panel in panels
        for line, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(shown.values(), shown.keys(), fontsize=7, loc="outside right upper")
    _save(figure, path)


def _floored(distances: tuple[float, ...]) -> list[float]:
    """An exact answer has a KL of rounding errors; a logarithm must not show them as fifteen
    decades.
    """
    return [max(distance, 1e-5) for distance in distances]


def growth(result: dict[str, Any], path: Path) -> None:
    """One row of panels per quantity, one column per axis."""
    figure = _figure(11, 8)
    panels = figure.subplots(
        len(QUANTITIES), len(result["axes"]), sharex="col", sharey="row", squeeze=False
    )
    for column, (axis, found) in enumerate(result["axes"].items()):
        for row, (quantity, unit) in enumerate(QUANTITIES.items()):
            panel = panels[row, column]
            points = [
                (point["size"], point[quantity])
                for point in found["points"]
                if point.get(quantity, 0.0) > 0.0
            ]
            if points:
                panel.plot(*zip(*points, strict=True), "o-", color=COLOURS[0], ms=4)
            slope = found["slopes"][quantity]
            panel.set(
                xscale="log", yscale="log", title="" if slope is None else f"slope {slope:.2f}"
            )
            panel.title.set_fontsize(8)
            panel.grid(alpha=0.3)
            if column == 0:
                panel.set_ylabel(f"{quantity}, {unit}")
            if row == len(QUANTITIES) - 1:
                panel.set_xlabel(axis)
    _save(figure, path)


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Any, path: Path) -> None:
    from matplotlib import rc_context

    # without it names inside the file are new each time
    with rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(path, metadata={"Date": None}, facecolor="white")
