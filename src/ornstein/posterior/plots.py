"""Plots of posteriors: intervals, ellipses on principal components, traces, and several posteriors
on top of each other.

Every function returns a matplotlib Figure and writes it where a path is given. pyplot and its
global state are not touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.stats

from ornstein.checks import printable
from ornstein.errors import InputError
from ornstein.posterior.drawing import COLOURS, empty_figure, write_figure
from ornstein.theory import Gaussian
from ornstein.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ornstein.posterior.posterior import Posterior

MARKERS, LINES = ("o", "s", "^", "D", "v", "P", "X"), ("-", "--", "-.", ":")
REFERENCE = "#444444"
MOST_PARAMETERS, MOST_TRACES = 12, 4
RADIUS_95 = float(np.sqrt(scipy.stats.chi2.ppf(0.95, 2)))
HALF_95, HALF_50 = 1.96, 0.674


def overlay(
    laws: Mapping[str, Gaussian],
    reference: Gaussian,
    reference_name: str,
    names: Sequence[str],
    path: str | Path | None = None,
) -> Figure:
    """Several laws against a reference: 95 % ellipses on its extreme principal components, and
    intervals of parameters.

    Both panels are in standard deviations of the reference. The intervals are of the parameters
    that differ most.
    """
    single = reference.mean.size == 1
    figure = empty_figure(6.0 if single else 11.0, 5.0)
    panels = [figure.subplots()] if single else list(figure.subplots(1, 2, width_ratios=(1.0, 1.1)))
    if not single:
        _draw_ellipses(panels[0], laws, reference, reference_name, names)
    _draw_differences(panels[-1], laws, reference, names)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=min(4, len(labels)), frameon=False
    )
    return _written(figure, path)


def ellipses(posterior: Posterior, path: str | Path | None = None) -> Figure:
    """The covariance found, the one predicted and that of the posterior, on the latter's extreme
    principal components.
    """
    curvature, prediction = posterior.curvature, posterior.prediction
    if curvature is None or prediction is None or prediction.covariance is None:
        raise InputError(
            "these ellipses need a posterior whose law was predicted: one made by orn.sample"
        )
    if curvature.dim < 2:
        raise InputError("ellipses need at least two parameters")
    laws = {
        "predicted": Gaussian(curvature.mode, prediction.covariance),
        "found": Gaussian(posterior.mean, posterior.covariance),
    }
    figure = empty_figure(6.0, 5.5)
    axes = figure.subplots()
    _draw_ellipses(axes, laws, curvature.laplace, "Laplace at the mode", posterior.names)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return _written(figure, path)


def marginals(
    posterior: Posterior, parameters: Sequence[str] | None = None, path: str | Path | None = None
) -> Figure:
    """Mean, 50 % and 95 % interval of each parameter (the first twelve unless named), from the
    draws' quantiles.
    """
    chosen = _positions(posterior, parameters, MOST_PARAMETERS)
    figure = empty_figure(6.0, 1.2 + 0.35 * len(chosen))
    axes = figure.subplots()
    for row, position in enumerate(chosen):
        values = posterior.draws[:, :, position].ravel()
        low, lower, upper, high = np.quantile(values, [0.025, 0.25, 0.75, 0.975])
        axes.plot(
            [low, high],
            [row, row],
            color=COLOURS[0],
            linewidth=1.5,
            label=None if row else "95 % of the draws",
        )
        axes.plot(
            [lower, upper],
            [row, row],
            color=COLOURS[0],
            linewidth=4.0,
            label=None if row else "50 % of the draws",
        )
        axes.plot(
            values.mean(),
            row,
            "o",
            color="white",
            markeredgecolor=COLOURS[0],
            label=None if row else "mean",
        )
    axes.axvline(0.0, color="#bbbbbb", linewidth=0.8, zorder=0)
    _rows(axes, [posterior.names[position] for position in chosen])
    axes.set_xlabel("value")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return _written(figure, path)


def trace(
    posterior: Posterior, parameters: Sequence[str] | None = None, path: str | Path | None = None
) -> Figure:
    """Draws in the order they came, one line per chain, of the parameters named (the first four
    otherwise).
    """
    chosen = _positions(posterior, parameters, MOST_TRACES)
    figure = empty_figure(8.0, 0.8 + 1.6 * len(chosen))
    panels = np.atleast_1d(figure.subplots(len(chosen), 1, sharex=True))
    for axes, position in zip(panels, chosen, strict=True):
        for chain, values in enumerate(posterior.draws[:, :, position]):
            colour = COLOURS[chain % len(COLOURS)]
            axes.plot(values, color=colour, linewidth=0.6, alpha=0.8, label=f"chain {chain}")
        axes.set_ylabel(_short(posterior.names[position]))
    panels[-1].set_xlabel("draw")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=min(8, len(labels)), frameon=False
    )
    return _written(figure, path)


def elbo(posterior: Posterior, path: str | Path | None = None) -> Figure:
    """The ELBO on the way to its optimum, with what `orn.bbvi` says about convergence."""
    values, steps = posterior.settings.get("elbo", ()), posterior.settings.get("elbo_steps", ())
    if not values:
        raise InputError(
            "there is no ELBO to plot: the posterior was not made by orn.bbvi, or was loaded from a"
            " file"
        )
    figure = empty_figure(7.0, 4.0)
    axes = figure.subplots()
    axes.plot(
        steps,
        values,
        marker="o",
        color=COLOURS[0],
        markersize=3,
        label="mean over a block of steps",
    )
    axes.set_xscale("log")
    axes.set_xlabel("steps")
    axes.set_ylabel("ELBO in nats")
    axes.set_title(posterior.settings["convergence"], fontsize=9, wrap=True)
    axes.legend(frameon=False)
    return _written(figure, path)


def _draw_ellipses(
    axes: Axes, laws: Mapping[str, Gaussian], reference: Gaussian, name: str, names: Sequence[str]
) -> None:
    plane, sizes, labels = _extreme_components(reference, names)
    turn = np.linspace(0.0, 2.0 * np.pi, 201)
    circle = RADIUS_95 * np.stack([np.cos(turn), np.sin(turn)])
    axes.fill(*circle, color=REFERENCE, alpha=0.15, linewidth=0)
    axes.plot(*circle, color=REFERENCE, linewidth=2.0, label=f"{_short(name)} (reference)")
    for number, (label, law) in enumerate(laws.items()):
        style = _style(number)
        centre = plane @ (law.mean - reference.mean) / sizes
        spread = (
            (plane * law.covariance) @ plane.T
            if law.covariance.ndim == 1
            else plane @ law.covariance @ plane.T
        )
        values, vectors = np.linalg.eigh(spread / np.multiply.outer(sizes, sizes))
        curve = centre[:, None] + (vectors * np.sqrt(np.maximum(values, 0.0))) @ circle
        axes.plot(*curve, color=style["color"], linestyle=style["linestyle"], linewidth=1.8)
        axes.plot(*centre, markersize=6, **style, label=_short(label))
    axes.set_xlabel(f"largest component: {labels[0]}")
    axes.set_ylabel(f"smallest component: {labels[1]}")
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_title("95 % ellipses, in sds of the reference", fontsize=10)


def _draw_differences(
    axes: Axes, laws: Mapping[str, Gaussian], reference: Gaussian, names: Sequence[str]
) -> None:
    unit = reference.standard_deviation
    shifts = {label: (law.mean - reference.mean) / unit for label, law in laws.items()}
    widths = {label: law.standard_deviation / unit for label, law in laws.items()}
    different = np.max(
        [np.abs(shifts[label]) + np.abs(np.log(widths[label])) for label in laws], axis=0
    )
    chosen = np.sort(np.argsort(-different, kind="stable")[:MOST_PARAMETERS])
    axes.axvspan(-HALF_95, HALF_95, color=REFERENCE, alpha=0.10, linewidth=0)
    axes.axvspan(-HALF_50, HALF_50, color=REFERENCE, alpha=0.12, linewidth=0)
    gap = 0.7 / max(len(laws), 1)
    for number, label in enumerate(laws):
        style = _style(number)
        for row, position in enumerate(chosen):
            height = row + (number - (len(laws) - 1) / 2.0) * gap
            centre, width = shifts[label][position], widths[label][position]
            for half, thickness in ((HALF_95, 1.2), (HALF_50, 3.0)):
                ends = [centre - half * width, centre + half * width]
                axes.plot(
                    ends,
                    [height, height],
                    color=style["color"],
                    linewidth=thickness,
                    solid_capstyle="butt",
                )
            shown = _short(label) if row == 0 else None
            axes.plot(
                centre,
                height,
                color=style["color"],
                marker=style["marker"],
                markersize=4,
                linestyle="none",
                label=shown,
            )
    _rows(axes, [names[position] for position in chosen])
    axes.set_xlabel("distance from the reference's mean, in its sds")
    some = (
        f"the {len(chosen)} of {len(names)} parameters that differ most: "
        if len(names) > len(chosen)
        else ""
    )
    axes.set_title(f"{some}50 % and 95 % intervals (grey: reference)", fontsize=10)


def _extreme_components(
    law: Gaussian, names: Sequence[str]
) -> tuple[Array, Array, tuple[str, str]]:
    """Unit vectors of the largest and the smallest principal component, their standard deviations,
    and both in words.
    """
    if law.covariance.ndim == 1:
        extremes = [int(np.argmax(law.covariance)), int(np.argmin(law.covariance))]
        plane = np.zeros((2, law.mean.size))
        plane[[0, 1], extremes] = 1.0
        sizes = np.sqrt(law.covariance[extremes])
    else:
        values, vectors = np.linalg.eigh(law.covariance)
        plane, sizes = vectors[:, [-1, 0]].T, np.sqrt(values[[-1, 0]])
    return plane, sizes, (_in_words(plane[0], names), _in_words(plane[1], names))


def _in_words(vector: Array, names: Sequence[str], most: int = 3) -> str:
    signed = vector * np.sign(vector[np.argmax(np.abs(vector))])
    order = [
        position for position in np.argsort(-np.abs(signed))[:most] if abs(signed[position]) >= 0.1
    ]
    rest = " + …" if np.sum(signed[order] ** 2) < 0.98 else ""
    return (
        " ".join(f"{signed[position]:+.1f} {_short(names[position])}" for position in order).lstrip(
            "+"
        )
        + rest
    )


def _positions(posterior: Posterior, parameters: Sequence[str] | None, most: int) -> list[int]:
    if not posterior.draws.shape[1]:
        raise InputError(
            "only moments were kept, there are no draws to plot: run again with keep='draws'"
        )
    if parameters is None:
        return list(range(min(most, len(posterior.names))))
    unknown = [name for name in parameters if name not in posterior.names]
    if unknown or not parameters:
        raise InputError(
            f"unknown parameters {unknown}; the posterior has"
            f" {', '.join(map(printable, posterior.names[:8]))}, …"
        )
    return [posterior.names.index(name) for name in parameters]


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), [_short(label) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)


def _short(name: str, most: int = 22) -> str:
    """A name that fits an axis, its dollar signs kept from opening a formula."""
    return printable(name, most).replace("$", r"\$")


def _style(number: int) -> dict[str, Any]:
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": LINES[number % len(LINES)],
    }


def _written(figure: Figure, path: str | Path | None) -> Figure:
    if path is not None:
        write_figure(figure, path)
    return figure
