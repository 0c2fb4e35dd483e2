"""Figures 1 to 3 of the paper: ellipses on the principal plane, predicted covariances, and averaged
iterates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.baselines.bbvi import bbvi
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.measure import measure
from ornstein.entrances.running import sample
from ornstein.model.regression import GLM, glm
from ornstein.paper import drawing, published
from ornstein.paper.data import paper_model
from ornstein.posterior.posterior import Posterior
from ornstein.samplers.constant_sgd import ConstantSGD
from ornstein.samplers.iasg import IASG
from ornstein.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEPS = {"wine": 600_000, "skin": 30_000}  # of figure 1, over all chains


@dataclass(frozen=True, eq=False)
class Reproduced:
    """A figure, the numbers behind it, and what to see in it."""

    name: str
    title: str
    drawn: Figure
    rows: list[dict[str, object]]
    caption: str
    comparison: str = ""


def markdown_table(rows: list[dict[str, object]]) -> str:
    """Rows as a Markdown table, numbers with three digits.

    >>> print(markdown_table([{"method": "sgd", "kl": 0.12345}]), end="")
    | method | kl |
    |---|---|
    | sgd | 0.123 |
    """
    lines = [f"| {' | '.join(rows[0])} |", f"|{'---|' * len(rows[0])}"]
    for row in rows:
        cells = [
            f"{value:.3g}" if isinstance(value, float | np.floating) else str(value)
            for value in row.values()
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def synthetic_model(seed: int = 0) -> GLM:
    """The paper's artificial linear regression: N = 10,000, ten unit-normal features, weights from
    the prior, unit noise.
    """
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(published.SYNTHETIC_ROWS, published.SYNTHETIC_COLUMNS))
    weights = rng.normal(size=published.SYNTHETIC_COLUMNS)
    response = features @ weights + rng.normal(size=published.SYNTHETIC_ROWS)
    return glm(features, response, prior_precision=1.0, noise_scale=1.0, intercept=False)


def figure_1(
    directory: str | Path | None, quick: bool, report: Callable[[str], None]
) -> Reproduced:
    """Posterior, iterates and 3-sd ellipses on the smallest and largest principal components; wine
    and skin.
    """
    panels = [
        ("wine", "linear regression, white wine"),
        ("skin", "logistic regression, skin segmentation"),
    ]
    drawn = drawing.figure(12.0, 7.4)
    grid = drawn.subplots(2, 3)
    rows: list[dict[str, object]] = []
    for line, (dataset, title) in zip(grid, panels, strict=True):
        model = paper_model(dataset, directory)
        curvature = measure(model)
        plane = drawing.principal_plane(curvature.posterior_covariance)
        for axes, (name, posterior) in zip(
            line, _columns(model, curvature, dataset, quick), strict=True
        ):
            report(f"figure 1: {dataset}, {name}")
            _principal_panel(axes, posterior, curvature, plane)
            axes.set_title(f"{title}\n{name}", fontsize=10)
            forward, backward = posterior.kl_to(curvature.laplace)
            rows.append(
                {"dataset": dataset, "method": name, "kl_qf": forward, "kl_fq": backward, "seed": 0}
            )
    handles, labels = grid[0, 0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=9, markerscale=6)
    caption = (
        "Draws of the posterior (blue) and iterates of the sampler (light blue) on the directions"
        " of smallest and largest posterior variance, in thousandths of the coefficients of"
        " standardised features. Ellipses at three standard deviations: posterior, empirical"
        " covariance of the iterates, and the covariance predicted for them. Full preconditioning"
        " meets the posterior; the scalar rate is too wide in one direction and too narrow in the"
        " other, exactly as predicted; mean-field BBVI is too narrow along the long axis and too"
        " wide along the short one."
    )
    return Reproduced(
        "fig1",
        "Figure 1: stationary distributions and posteriors",
        drawn,
        rows,
        caption,
        markdown_table(rows),
    )


def _columns(
    model: GLM, curvature: Curvature, dataset: str, quick: bool
) -> list[tuple[str, Posterior]]:
    """The paper's three columns; chains as long as `STEPS` allow, up to two relaxation times a
    draw.
    """
    batch_size, draws, chains = published.BATCH_SIZES[dataset], 750, 2
    steps = STEPS[dataset] // (10 if quick else 1)

    def run(preconditioner: str) -> Posterior:
        dynamics = ConstantSGD(preconditioner, tuning="continuous").tune(curvature, batch_size)
        relaxation = dynamics.predict(curvature).relaxation_time
        thin = max(1, min(math.ceil(2.0 * relaxation), steps // (draws * chains)))
        options: dict[str, Any] = {
            "draws": draws,
            "chains": chains,
            "thin": thin,
            "warmup": min(math.ceil(5 * relaxation), steps),
        }
        return sample(model, dynamics, curvature=curvature, progress=False, **options)

    return [
        ("constant SGD, full preconditioner", run("full")),
        ("constant SGD, scalar rate", run("scalar")),
        ("BBVI, mean field", bbvi(model, tolerance=0.05 if quick else 0.005)),
    ]


def _principal_panel(axes: Axes, posterior: Posterior, curvature: Curvature, plane: Array) -> None:
    plane = 1e3 * plane  # thousandths, so that the axes need no factor of their own
    rng = np.random.default_rng(0)
    exact = (
        rng.multivariate_normal(np.zeros(curvature.dim), curvature.posterior_covariance, 1500)
        @ plane.T
    )
    flat = (posterior.draws.reshape(-1, curvature.dim) - curvature.mode) @ plane.T
    axes.plot(
        *exact.T,
        ".",
        color=drawing.BLUE,
        markersize=1.5,
        label="posterior draws",
        zorder=1,
        rasterized=True,
    )
    axes.plot(
        *flat[:1500].T,
        ".",
        color=drawing.SKY,
        markersize=1.5,
        label="sampler's draws",
        zorder=2,
        rasterized=True,
    )
    origin = np.zeros(2)
    drawing.ellipse(
        axes, plane @ curvature.posterior_covariance @ plane.T, origin, drawing.BLACK, "posterior"
    )
    shift = plane @ (posterior.mean - curvature.mode)
    drawing.ellipse(
        axes, plane @ posterior.covariance @ plane.T, shift, drawing.ORANGE, "empirical"
    )
    if posterior.prediction is not None and posterior.prediction.covariance is not None:
        predicted = plane @ posterior.prediction.covariance @ plane.T
        drawing.ellipse(axes, predicted, origin, drawing.RED, "predicted", style="--")
    axes.set_xlabel("smallest principal component, 10⁻³", fontsize=9)
    axes.set_ylabel("largest principal component, 10⁻³", fontsize=9)


def figure_2(
    directory: str | Path | None, quick: bool, report: Callable[[str], None]
) -> Reproduced:
    """Empirical against predicted covariance of constant SGD on wine, 11 × 11."""
    report("figure 2")
    model = paper_model("wine", directory)
    posterior = sample(
        model,
        ConstantSGD("scalar", tuning="continuous"),
        batch_size=published.BATCH_SIZES["wine"],
        draws=200 if quick else 1000,
        progress=False,
    )
    assert posterior.prediction is not None
    empirical, predicted = posterior.covariance, posterior.prediction.covariance
    assert predicted is not None
    limit = float(np.abs(predicted).max())
    drawn = drawing.figure(10.5, 3.6)
    grid = drawn.subplots(1, 3)
    image = drawing.covariance_panel(
        grid[0], empirical, limit, "empirical covariance of the iterates"
    )
    drawing.covariance_panel(grid[1], predicted, limit, "predicted (discrete, noise depends on θ)")
    drawing.covariance_panel(grid[2], empirical - predicted, limit, "difference, same scale")
    drawn.colorbar(image, ax=grid, label="covariance of standardised coefficients", shrink=0.8)
    for axes in grid:
        axes.set_xlabel("feature 1 … 11")
    rows = [
        {
            "row": i,
            "column": j,
            "empirical": empirical[i, j],
            "predicted": predicted[i, j],
            "seed": 0,
        }
        for i in range(len(empirical))
        for j in range(len(empirical))
    ]
    caption = (
        "Covariance of the iterates of constant SGD with the scalar rate of Theorem 1 on white"
        " wine, measured and predicted. The largest difference is"
        f" {np.abs(empirical - predicted).max() / limit:.1%} of the largest entry."
    )
    comparison = [
        {
            "largest difference / largest entry": np.abs(empirical - predicted).max() / limit,
            "trace empirical / predicted": np.trace(empirical) / np.trace(predicted),
            "steps": posterior.settings["steps"],
            "relaxation time, steps": posterior.prediction.relaxation_time,
        }
    ]
    text = (
        markdown_table(comparison)
        + "\nThe paper shows the two matrices without numbers and finds very good agreement.\n"
    )
    return Reproduced(
        "fig2", "Figure 2: empirical and predicted covariance", drawn, rows, caption, text
    )


def figure_3(
    directory: str | Path | None, quick: bool, report: Callable[[str], None]
) -> Reproduced:
    """Iterates, posterior and averaged iterates on the synthetic linear regression."""
    report("figure 3")
    model = synthetic_model()
    curvature = measure(model)
    batch_size, step_size = (
        int(published.IASG_PANEL["batch_size"]),
        published.IASG_PANEL["step_size"],
    )
    window = int(published.IASG_PANEL["window"])
    draws = 50 if quick else 1000
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "curvature": curvature,
        "progress": False,
        "chains": 2,
    }
    options["max_steps"] = 10**9
    averaged = sample(
        model, IASG(window, step_size, "scalar", rescale=False), draws=draws, **options
    )
    iterates = sample(model, ConstantSGD("scalar", step_size=step_size), draws=500, **options)
    panels = {
        "(a) iterates of SGD": iterates.covariance,
        "(b) posterior": curvature.posterior_covariance,
        f"(c) averaged iterates, T = {window:,}": averaged.covariance,
    }
    drawn = drawing.figure(11.0, 3.6)
    grid = drawn.subplots(1, 3)
    for axes, (title, covariance) in zip(grid, panels.items(), strict=True):
        limit = float(np.abs(covariance).max())
        image = drawing.covariance_panel(axes, covariance, limit, title)
        drawn.colorbar(image, ax=axes, shrink=0.8, format="%.1e")
        axes.set_xlabel("parameter 1 … 10")
    rows = [
        {"panel": title[:3], "row": i, "column": j, "covariance": covariance[i, j], "seed": 0}
        for title, covariance in panels.items()
        for i in range(len(covariance))
        for j in range(len(covariance))
    ]
    ratio = float(
        np.mean(np.diagonal(averaged.covariance) / np.diagonal(curvature.posterior_covariance))
    )
    caption = (
        "Linear regression on data from the model, S = 1, ε = 0.005. Each panel has its own scale:"
        " the iterates are isotropic and"
        f" {np.trace(iterates.covariance) / np.trace(curvature.posterior_covariance):.0f} times"
        " wider than the posterior; means over windows of N/S steps have its covariance (mean"
        f" ratio of the variances {ratio:.3f})."
    )
    comparison = [
        {
            "panel": title,
            "trace / posterior's": np.trace(covariance) / np.trace(curvature.posterior_covariance),
        }
        for title, covariance in panels.items()
    ]
    text = (
        markdown_table(comparison)
        + "\nThe paper shows the panels without numbers: a very strong resemblance of (b) and"
        " (c).\n"
    )
    return Reproduced("fig3", "Figure 3: iterate averaging", drawn, rows, caption, text)
