"""Both recipes of `orn.em` on one model beside their baselines: what the paper's figure of
variational EM compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from ornstein.hyper.em import em
from ornstein.hyper.fit import EMFit
from ornstein.hyper.grid import Grid
from ornstein.hyper.mean_field import MeanField
from ornstein.model.model import Model
from ornstein.types import PyTree

if TYPE_CHECKING:
    import pandas


def both_recipes(
    model: Model,
    validation: PyTree,
    grid: ArrayLike | None = None,
    *,
    paper_blocks: int | None = None,
    **options: Any,
) -> dict[str, EMFit]:
    """ "corrected" (with the grid of MAP fits and BBVI) and "paper" ↦ their fits; `options` go to
    both calls of `orn.em`.

    `paper_blocks` bounds the blocks of the paper's recipe alone: at its one rate the slowest
    direction can take millions of steps, and λ is then still on its way (`drift` says how fast).
    `fits["corrected"].plot("figure.png", {"paper's recipe": fits["paper"]})` draws the trajectories
    over the validation curve.
    """
    corrected = em(model, validation=validation, baselines=("grid", "bbvi"), grid=grid, **options)
    if paper_blocks is not None:
        options |= {"max_blocks": paper_blocks}
    return {
        "corrected": corrected,
        "paper": em(model, recipe="paper", validation=validation, **options),
    }


def drift(fit: EMFit) -> float:
    """The relative change of the (one) hyperparameter per block, over the last quarter of the
    blocks.
    """
    (name,) = fit.hyperparameters
    path = fit.trajectory[name].to_numpy()
    count = max(2, (len(path) - 1) // 4)
    return float((path[-1] / path[-1 - count]) ** (1.0 / count) - 1.0)


def table(fits: Mapping[str, EMFit]) -> pandas.DataFrame:
    """One row per way to choose the hyperparameter: its value and the validation loss of the MAP
    fit there (nats per row).
    """
    import pandas

    rows: list[tuple[str, object, object, float]] = []
    for name, fit in fits.items():
        (parameter,) = fit.hyperparameters
        rows.append(
            (name, fit.hyperparameters[parameter], fit.errors[parameter], fit.validation["map"])
        )
        grid, field = fit.baselines.get("grid"), fit.baselines.get("bbvi")
        if isinstance(field, MeanField):
            rows.append(
                (
                    "mean-field ELBO (BBVI)",
                    field.hyperparameters[parameter],
                    None,
                    fit.validation["bbvi"],
                )
            )
        if isinstance(grid, Grid):
            rows.append(("best of the grid", grid.best, None, grid.best_loss))
    return pandas.DataFrame(
        rows, columns=["recipe", "value", "error", "validation loss"]
    ).set_index("recipe")
