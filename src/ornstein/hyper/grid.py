"""The paper's blue curve: MAP fits along a grid of one hyperparameter, each started at the last,
and their validation loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from ornstein.curvature.curvature import Curvature
from ornstein.errors import InputError
from ornstein.hyper.coordinates import Coordinates
from ornstein.hyper.full_batch import FullBatch
from ornstein.hyper.held_out import HeldOut
from ornstein.model.model import Model
from ornstein.types import Array


@dataclass(frozen=True, eq=False)
class Grid:
    """Validation loss (nats per row, of the MAP fit) at each value of one hyperparameter, in rising
    order.
    """

    name: str
    values: Array
    losses: Array

    @property
    def best(self) -> float:
        """The value with the smallest validation loss."""
        return float(self.values[np.argmin(self.losses)])

    @property
    def best_loss(self) -> float:
        return float(self.losses.min())


def map_spread(model: Model, curvature: Curvature | None) -> Array:
    """B with BBᵀ = A⁻¹ where the whole Hessian is known: coordinates in which the search for a mode
    takes few steps.
    """
    if curvature is None or curvature.diagonal:
        return np.ones(model.dim)
    lower = np.linalg.cholesky(curvature.hessian)
    return np.asarray(scipy.linalg.solve_triangular(lower, np.eye(model.dim), lower=True).T)


def map_grid(
    model: Model,
    coordinates: Coordinates,
    values: ArrayLike,
    held_out: HeldOut,
    start: Array,
    curvature: Curvature | None,
    report: Callable[[str], None],
) -> Grid:
    """MAP fits from the largest value down to the smallest; `curvature` is one measured somewhere
    along the way.
    """
    values = np.sort(np.asarray(values, dtype=float))
    if coordinates.start.size != 1:
        raise InputError(
            f"the grid runs along one hyperparameter; there are {coordinates.start.size}:"
            f" {coordinates.names}"
        )
    if values.ndim != 1 or values.size < 2 or values[0] <= 0 or not np.all(np.isfinite(values)):
        raise InputError("grid must hold at least two positive values")
    full_batch, theta, losses = FullBatch(model), start, []
    for value in values[::-1]:
        phi = np.log([value]) if coordinates.positive[0] else np.array([value])
        here = coordinates.model_at(model, phi)
        theta = full_batch.mode(
            here,
            theta,
            map_spread(here, None if curvature is None else with_prior_of(here, curvature)),
        )
        losses.append(held_out.loss(here, theta))
        report(f"{coordinates.names[0]} = {value:.3g}: validation loss {losses[-1]:.4f}")
    return Grid(coordinates.names[0], values, np.array(losses[::-1]))


def with_prior_of(model: Model, curvature: Curvature) -> Curvature:
    """The curvature with the prior of `model` in place of its own."""
    if curvature.diagonal or curvature.prior_hessian is None:
        return curvature
    prior = model.prior_hessian(curvature.mode)
    hessian = curvature.hessian + (prior - curvature.prior_hessian) / model.n_data
    return replace(curvature, hessian=hessian, prior_hessian=prior)
