"""The report's figures. Each function returns something that draws on a Matplotlib figure in the
roles of `theme`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ornstein.checks import printable
from ornstein.interfaces.report.theme import Draw, Roles
from ornstein.theory import Process, covariance_standard_error
from ornstein.theory.modes import as_matrix
from ornstein.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from ornstein.interfaces.report.calibration import Reliability
    from ornstein.posterior.curve import Curve
    from ornstein.posterior.posterior import Posterior

MOST_POINTS = 400
# radius of the ellipse that holds 90 % of a two-dimensional normal
NINETY = float(np.sqrt(-2.0 * np.log(0.1)))


@dataclass(frozen=True, eq=False)
class Predicted:
    """A posterior beside what theory said of it: the covariance of its draws, the posterior's own,
    and the process behind.
    """

    posterior: Posterior
    covariance: Array
    target: Array
    mode: Array
    process: Process

    @classmethod
    def of(cls, posterior: Posterior) -> Predicted | None:
        """None where no stationary law was predicted."""
        curvature, prediction = posterior.curvature, posterior.prediction
        if curvature is None or prediction is None or prediction.covariance is None:
            return None
        process = posterior.delivered_process()
        return cls(
            posterior,
            prediction.covariance,
            curvature.posterior_covariance,
            curvature.mode,
            process,
        )


def short(name: str, length: int = 16) -> str:
    """A name that fits an axis."""
    return printable(name, length)


def block(covariance: Array, places: Array | list[int]) -> Array:
    """The covariance of some of the parameters; of a diagonal one, too."""
    where = np.asarray(places)
    return np.diag(covariance[where]) if covariance.ndim == 1 else covariance[np.ix_(where, where)]


def ellipses(law: Predicted, first: int, second: int) -> Draw:
    """Two parameters: draws, and the ellipses that should hold 90 % of them, in predicted standard
    deviations.
    """
    posterior, pair = law.posterior, [first, second]
    predicted, empirical, target = (
        block(matrix, pair) for matrix in (law.covariance, posterior.covariance, law.target)
    )
    unit = np.sqrt(np.diagonal(predicted))
    centre = law.mode[pair]
    flat = posterior.draws.reshape(-1, posterior.draws.shape[-1])[:, pair]
    cloud = (flat[:: max(1, len(flat) // MOST_POINTS)] - centre) / unit
    shift = (posterior.mean[pair] - centre) / unit

    def draw(figure: Figure | SubFigure, roles: Roles) -> None:
        axes = figure.add_subplot()
        axes.plot(*cloud.T, ".", color=roles.muted, alpha=0.35, markersize=3, markeredgewidth=0)
        for covariance, middle, colour, style, label in (
            (target, np.zeros(2), roles.target, ":", "posterior (target)"),
            (predicted, np.zeros(2), roles.predicted, "-", "predicted"),
            (empirical, shift, roles.empirical, "--", "draws"),
        ):
            outline = _ellipse(covariance / np.multiply.outer(unit, unit)) + middle
            axes.plot(*outline.T, style, color=colour, linewidth=1.8, label=label)
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xlabel(short(posterior.names[first], 24))
        axes.set_ylabel(short(posterior.names[second], 20))
        figure.legend(loc="outside upper center", ncols=3, handlelength=1.8, columnspacing=1.0)

    return draw


def _ellipse(covariance: Array) -> Array:
    values, vectors = np.linalg.eigh(covariance)
    angle = np.linspace(0.0, 2.0 * np.pi, 120)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    return NINETY * circle * np.sqrt(np.maximum(values, 0.0)) @ vectors.T


def telling_pairs(law: Predicted, among: Array) -> list[tuple[int, int]]:
    """The two pairs that differ most from the prediction, with no parameter in common, and the most
    correlated pair.
    """
    differing, correlated = [], []
    for position, first in enumerate(among):
        for second in among[position + 1 :]:
            pair = [first, second]
            predicted = block(law.covariance, pair)
            ratio = np.linalg.solve(predicted, block(law.posterior.covariance, pair))
            differing.append(
                (float(np.trace(ratio) - np.log(np.linalg.det(ratio))), int(first), int(second))
            )
            correlation = predicted[0, 1] / np.sqrt(predicted[0, 0] * predicted[1, 1])
            correlated.append((abs(float(correlation)), int(first), int(second)))
    ranked = [pair for _, *pair in sorted(differing, reverse=True)]
    chosen = ranked[:1]
    chosen += [pair for pair in ranked[1:] if not set(pair) & set(chosen[0])][:1]
    chosen += [pair for _, *pair in sorted(correlated, reverse=True) if pair not in chosen][:1]
    return [(first, second) for first, second in chosen]


def covariance_scores(law: Predicted) -> Array:
    """(empirical − predicted) covariance in Monte-Carlo standard errors, entry by entry."""
    posterior, size = law.posterior, law.mode.size
    error = covariance_standard_error(posterior.moment_process(), posterior.settings["states"])
    return (as_matrix(posterior.covariance, size) - as_matrix(law.covariance, size)) / error


def heat_map(matrix: Array, names: list[str], limit: float, digits: int, title: str) -> Draw:
    """A symmetric matrix as squares: one colour for positive, another for negative, the page's own
    for zero.
    """
    labels = [short(name, 14) for name in names]
    size = len(labels)

    def draw(figure: Figure | SubFigure, roles: Roles) -> None:
        from matplotlib.collections import PolyCollection
        from matplotlib.colors import to_rgba

        axes = figure.add_subplot()
        axes.set_title(title)
        shades = np.clip(np.abs(matrix) / limit, 0.0, 1.0)
        colours = np.zeros((size, size, 4))
        colours[matrix >= 0] = to_rgba(roles.predicted)
        colours[matrix < 0] = to_rgba(roles.empirical)
        colours[:, :, 3] = 0.06 + 0.84 * shades
        corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=float) * 0.94 + 0.03
        squares = [
            corners + np.array([column, row]) for row in range(size) for column in range(size)
        ]
        axes.add_collection(
            PolyCollection(squares, facecolors=colours.reshape(-1, 4), edgecolors="none")
        )
        if size <= 8:
            for row, column in np.ndindex(size, size):
                text = f"{matrix[row, column]:.{digits}f}"
                axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=7.5)
        axes.set(xlim=(0, size), ylim=(size, 0), aspect="equal")
        ticks = np.arange(size) + 0.5
        axes.set_xticks(ticks, labels, rotation=90, fontsize=7.5 if size > 10 else 8.5)
        axes.set_yticks(ticks, labels, fontsize=7.5 if size > 10 else 8.5)
        axes.grid(False)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)

    return draw


def trace(series: Array, label: str) -> Draw:
    """One quantity along every chain, (chains, draws)."""
    step = max(1, series.shape[1] // MOST_POINTS)

    def draw(figure: Figure | SubFigure, roles: Roles) -> None:
        axes = figure.add_subplot()
        for chain, values in enumerate(series):
            shown = np.arange(0, series.shape[1], step)
            axes.plot(
                shown, values[shown], color=roles.chains[chain % 4], linewidth=0.6, alpha=0.75
            )
        axes.set(xlabel="draw", xlim=(0, series.shape[1]))
        axes.set_title(short(label, 44))

    return draw


def autocorrelation(
    law: Predicted, covector: Array, series: Array, label: str, lags: int = 6
) -> Draw:
    """Autocorrelation of a linear function of the parameters: the draws' as points, the theory's as
    a curve in steps.
    """
    thin, lags = law.posterior.settings["thin"], min(lags, series.shape[1] - 1)
    found = np.array([_correlation(series, lag) for lag in range(lags + 1)])
    process = law.process
    fine = (
        np.unique(np.linspace(0, lags * thin, 120).astype(int))
        if process.window == 1
        else thin * np.arange(lags + 1)
    )
    curve = np.array(
        [_predicted_autocovariance(process, covector, int(step), thin) for step in fine]
    )
    error = 1.0 / np.sqrt(series.size)

    def draw(figure: Figure | SubFigure, roles: Roles) -> None:
        axes = figure.add_subplot()
        axes.axhspan(-2 * error, 2 * error, color=roles.muted, alpha=0.18, linewidth=0)
        axes.axhline(0.0, color=roles.muted, linewidth=0.7)
        axes.plot(fine, curve / curve[0], color=roles.predicted, linewidth=1.8, label="theory")
        axes.plot(
            thin * np.arange(lags + 1),
            found,
            "o",
            color=roles.empirical,
            markersize=4.5,
            label="draws",
        )
        axes.set(
            xlabel="steps apart",
            ylim=(min(-0.15, found.min() - 0.05, (curve / curve[0]).min() - 0.05), 1.05),
        )
        axes.set_title(short(label, 44))
        axes.legend(loc="upper right")

    return draw


def _predicted_autocovariance(process: Process, covector: Array, step: int, thin: int) -> float:
    at = (
        replace(process, spacing=step).autocovariance(1)
        if process.window == 1 and step
        else process.autocovariance(step // thin)
    )
    return float(np.sum(covector**2 * at) if at.ndim == 1 else covector @ at @ covector)


def _correlation(series: Array, lag: int) -> float:
    """Pooled over chains, about the common mean."""
    centred = series - series.mean()
    size = series.shape[1]
    return float(
        np.sum(centred[:, lag:] * centred[:, : size - lag])
        / series.shape[0]
        / (size - lag)
        / np.mean(centred**2)
    )


def reliability(found: Reliability) -> Draw:
    """What was promised against what happened, with the diagonal where they agree."""

    def draw(figure: Figure | SubFigure, roles: Roles) -> None:
        axes: Axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=roles.muted, linewidth=0.9, linestyle=":")
        axes.fill_between(
            found.promised, found.low, found.high, color=roles.empirical, alpha=0.2, linewidth=0
        )
        axes.plot(
            found.promised,
            found.happened,
            "o-",
            color=roles.empirical,
            markersize=3.5,
            linewidth=1.4,
        )
        axes.set(
            xlabel=found.promised_label,
            ylabel=found.happened_label,
            xlim=(0, 1),
            ylim=(0, 1),
            aspect="equal",
        )

    return draw


def histogram(values: Array, bins: int, label: str) -> Draw:
    """Values in [0, 1] that should be uniform, with the band in which 95 % of flat histograms' bars
    lie.
    """
    import scipy.stats

    counts, edges = np.histogram(values, bins=bins, range=(0.0, 1.0))
    law = scipy.stats.binom(values.size, 1.0 / bins)
    low, high = float(law.ppf(0.025)), float(law.ppf(0.975))

    def draw(figure: Figure | SubFigure, roles: Roles) -> None:
        axes = figure.add_subplot()
        axes.axhspan(low, high, color=roles.muted, alpha=0.2, linewidth=0)
        axes.bar(
            edges[:-1],
            counts,
            width=1.0 / bins * 0.92,
            align="edge",
            color=roles.empirical,
            alpha=0.85,
        )
        axes.set(xlabel=label, ylabel="rows", xlim=(0, 1))

    return draw


def effect(curve: Curve) -> Draw:
    """The average expectation along a column, with 95 % intervals."""

    def draw(figure: Figure | SubFigure, roles: Roles) -> None:
        curve.draw(figure.add_subplot(), roles.chains)

    return draw
