"""Table 1 as a picture and as Markdown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ornstein.paper import drawing, published
from ornstein.paper.figures import Reproduced
from ornstein.paper.table1 import Cell, rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HOW_TO_READ = (
    "KL in nats, f the posterior (Laplace) and q the sampler. *Exact*: the stationary law in"
    " discrete time, with noise that depends on θ. *Simulated*: mean and standard deviation over"
    " seeds. *Ideal chain*: what a chain of the same length shows on average if the exact law is"
    " right; *z*: how many standard errors the simulation is from that. *Floor*: what is left at"
    " this length where q = f. *Relaxation times*: the length of one seed's chain."
)


def table_reproduced(cells: list[Cell]) -> Reproduced:
    """The figure, the rows and the Markdown table."""
    caption = (
        "KL(posterior ‖ sampler) in nats, for each method and data set: the paper's number, the"
        " exact stationary prediction and the simulation (mean over seeds, bar one standard"
        " deviation). Simulations lie on the predictions wherever the chain is long. Most of the"
        " paper's numbers lie above both, as those of a chain would that is short for its slowest"
        " direction; the paper does not give its lengths."
    )
    return Reproduced(
        "table1", "Table 1: KL divergences", _drawn(cells), rows(cells), caption, _markdown(cells)
    )


def _drawn(cells: list[Cell]) -> Figure:
    datasets = [name for name in published.DATASETS if any(cell.dataset == name for cell in cells)]
    methods = list(dict.fromkeys(cell.method for cell in cells))
    drawn = drawing.figure(4.2 * len(datasets), 5.0)
    grid = np.atleast_1d(drawn.subplots(1, len(datasets), sharey=True))
    for axes, dataset in zip(grid, datasets, strict=True):
        mine = [cell for cell in cells if cell.dataset == dataset]
        height = [len(methods) - 1 - methods.index(cell.method) for cell in mine]
        paper, exact = (
            [cell.paper_kl for cell in mine],
            [max(cell.exact_kl_fq, 1e-4) for cell in mine],
        )
        simulated, spread = [cell.sim_kl_fq for cell in mine], [cell.sim_sd for cell in mine]
        spread = [
            0.0 if math.isnan(value) else min(value, 0.9 * mean)
            for value, mean in zip(spread, simulated, strict=True)
        ]
        axes.plot(paper, height, "D", color=drawing.ORANGE, label="paper", markersize=6)
        axes.plot(
            exact,
            height,
            "s",
            color=drawing.BLACK,
            label="exact prediction (0 shown at 1e-4)",
            markersize=8,
            fillstyle="none",
        )
        axes.errorbar(
            simulated,
            height,
            xerr=spread,
            fmt="o",
            color=drawing.BLUE,
            label="simulated",
            markersize=4,
        )
        axes.plot(
            [cell.floor for cell in mine],
            height,
            "|",
            color=drawing.GREEN,
            markersize=12,
            label="Monte-Carlo floor",
        )
        axes.set(xscale="log", title=dataset, xlabel="KL(posterior ‖ sampler), nats")
        axes.set_yticks(range(len(methods)), methods[::-1])
        axes.grid(axis="x", alpha=0.3)
    handles, labels = grid[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    return drawn


def _markdown(cells: list[Cell]) -> str:
    """The table, KL in nats, and how to read its columns."""
    heading = [
        "data",
        "method",
        "paper",
        "exact KL(f‖q)",
        "continuous time",
        "simulated ± sd",
        "ideal chain",
        "z",
        "exact KL(q‖f)",
        "floor",
        "relaxation times",
        "note",
    ]
    lines = [f"| {' | '.join(heading)} |", f"|{'---|' * len(heading)}"]
    for cell in cells:
        numbers = (cell.paper_kl, cell.exact_kl_fq, cell.continuous_kl_fq)
        after = (
            cell.ideal_kl_fq,
            cell.agreement_z,
            cell.exact_kl_qf,
            cell.floor,
            cell.relaxation_times,
        )
        spread = "" if math.isnan(cell.sim_sd) else f" ± {_number(cell.sim_sd)}"
        simulated = _number(cell.sim_kl_fq) + spread
        shown = [
            cell.dataset,
            cell.method,
            *map(_number, numbers),
            simulated,
            *map(_number, after),
            cell.note,
        ]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines) + f"\n\n{HOW_TO_READ}\n"


def _number(value: float) -> str:
    if math.isnan(value):
        return ""
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    return "0" if abs(value) < 1e-10 else f"{value:.3g}"
