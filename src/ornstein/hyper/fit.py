"""What `orn.em` returns: hyperparameters with their error, the path to them, the posterior there,
and a picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.hyper.grid import Grid
from ornstein.hyper.mean_field import MeanField
from ornstein.posterior.drawing import write_figure
from ornstein.types import Array

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ornstein.model.model import Model
    from ornstein.posterior.posterior import Posterior

# Okabe and Ito's palette.
BLUE, ORANGE, GREEN, RED, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"


@dataclass(frozen=True, eq=False)
class EMFit:
    """Hyperparameters learnt while sampling.

    Attributes:
        hyperparameters: by name; a number, or an array with one entry per group (`groups[name]` has
            the labels).
        errors: Monte-Carlo standard error of each, in the same units and shapes.
        runaway: name of a coordinate ↦ "infinity" or "zero" for those that have no finite best
            value and are held.
        trajectory: a table with one row per block: steps of all chains so far, and every
            hyperparameter.
        posterior: draws of θ at the final hyperparameters, from a chain whose kernel is fixed.
        model: the model at the final hyperparameters.
        evidence: log p(y | λ) by Laplace's method; None where the whole Hessian is out of reach
            (more than 2000 parameters).
        validation: "map" and "posterior" ↦ mean −log p(y|x) per held-out row, in nats, of the MAP
            fit and of the average prediction over the draws; empty without validation data.
        baselines: "grid" ↦ Grid and "bbvi" ↦ MeanField, where asked for; "bbvi" has its MAP loss in
            `validation["bbvi"]`.
        recipe: in words, which recipe found them and what it finds.
        notes: what there is to say about the run.
        settings: blocks, whether they settled, stages, steps, seconds, batch size, seed.
    """

    hyperparameters: dict[str, Array | float]
    errors: dict[str, Array | float]
    groups: dict[str, tuple[object, ...]]
    runaway: dict[str, str]
    trajectory: pandas.DataFrame
    posterior: Posterior
    model: Model
    evidence: float | None
    validation: dict[str, float]
    baselines: dict[str, Grid | MeanField]
    recipe: str
    notes: tuple[str, ...]
    settings: dict[str, Any]

    def __str__(self) -> str:
        lines = [f"Hyperparameters, {self.recipe}"]
        for name, value in self.hyperparameters.items():
            values, errors = np.atleast_1d(value), np.atleast_1d(self.errors[name])
            labels = self.groups[name] or ("",)
            for label, entry, error in zip(labels, values, errors, strict=True):
                coordinate = f"{name}[{label}]" if self.groups[name] else name
                held = (
                    f", held: it runs to {self.runaway[coordinate]}"
                    if coordinate in self.runaway
                    else ""
                )
                lines.append(f"  {coordinate} = {entry:.4g} ± {error:.2g} (Monte Carlo){held}")
        if self.evidence is not None:
            lines.append(f"  log evidence (Laplace) = {self.evidence:.3f}")
        lines += [
            f"  validation loss, {name} = {loss:.4f} nats per row"
            for name, loss in self.validation.items()
        ]
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)

    __repr__ = __str__

    def plot(
        self, path: str | Path | None = None, others: Mapping[str, EMFit] | None = None
    ) -> Figure:
        """The trajectory under the validation curve (with a grid and one hyperparameter), else the
        trajectories alone.

        Args:
            path: where to write the picture; its ending decides the format.
            others: further fits to mark by name, such as `{"paper's recipe": fit}`.

        Returns the matplotlib Figure.
        """
        from matplotlib.figure import Figure

        grid = self.baselines.get("grid")
        if isinstance(grid, Grid):
            figure = Figure(figsize=(6.4, 6.4), layout="constrained")
            top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
            self._draw_curve(top, grid, others or {})
            self._draw_path(bottom, grid.name, others or {})
        else:
            figure = Figure(figsize=(6.4, 4.0), layout="constrained")
            self._draw_all(figure.subplots())
        if path is not None:
            write_figure(figure, path)
        return figure

    def _draw_curve(self, axes: Axes, grid: Grid, others: Mapping[str, EMFit]) -> None:
        axes.plot(
            grid.values,
            grid.losses,
            "-o",
            color=BLUE,
            markersize=3,
            linewidth=1.6,
            label="MAP fits on a grid",
        )
        marks = [("constant SGD", self._only(), self.validation.get("map"), GREEN, "o")]
        found = self.baselines.get("bbvi")
        if isinstance(found, MeanField):
            value = float(np.atleast_1d(next(iter(found.hyperparameters.values())))[0])
            marks.append(
                ("mean-field ELBO (BBVI)", value, self.validation.get("bbvi"), ORANGE, "s")
            )
        for (name, other), colour, shape in zip(others.items(), (RED, PURPLE), "D^", strict=False):
            marks.append((name, other._only(), other.validation.get("map"), colour, shape))
        for name, value, loss, colour, shape in marks:
            if loss is not None:
                label = f"{name}: {value:.3g}"
                axes.plot(
                    value,
                    loss,
                    shape,
                    color=colour,
                    markersize=9,
                    markeredgecolor="black",
                    label=label,
                    zorder=3,
                )
        axes.set_xscale("log")
        axes.set_ylabel("validation loss\n(nats per row)")
        axes.legend(fontsize=9)
        axes.grid(alpha=0.3)

    def _draw_path(self, axes: Axes, name: str, others: Mapping[str, EMFit]) -> None:
        shown = [(self.trajectory, "constant SGD", GREEN)]
        found = self.baselines.get("bbvi")
        if isinstance(found, MeanField):
            shown.append((found.trajectory, "mean-field ELBO (BBVI)", ORANGE))
        shown += [
            (other.trajectory, label, colour)
            for (label, other), colour in zip(others.items(), (RED, PURPLE), strict=False)
        ]
        for table, label, colour in shown:
            axes.plot(
                table[name],
                table["steps"] / table["steps"].iloc[-1],
                color=colour,
                linewidth=1.4,
                label=label,
            )
        axes.invert_yaxis()
        axes.set_xlabel(name.replace("_", " "))
        axes.set_ylabel("share of its steps done")
        axes.grid(alpha=0.3)

    def _draw_all(self, axes: Axes) -> None:
        steps = self.trajectory["steps"]
        names = [name for name in self.trajectory.columns if name != "steps"]
        for name in names:
            axes.plot(
                steps, self.trajectory[name], linewidth=1.4, label=name if len(names) <= 8 else None
            )
        if all(np.all(self.trajectory[name] > 0) for name in names):
            axes.set_yscale("log")
        axes.set_xlabel("steps of all chains")
        axes.set_ylabel("hyperparameter")
        axes.grid(alpha=0.3)
        if len(names) <= 8:
            axes.legend(fontsize=9)

    def _only(self) -> float:
        return float(np.atleast_1d(next(iter(self.hyperparameters.values())))[0])
