"""The posterior from a sample of its rows, where passes over all rows take long.

The mean loss of N rows is taken to be

    L(θ) ≈ L_m(θ) + (g − g_m)·δ + ½ δ·(A − A_m)δ,    δ = θ − mode,

where L_m is that of a sample of m rows, g_m and A_m are its gradient and Hessian at the mode, and g
and A are those of all rows. Only what the other rows add beyond second order is left out. How much
that is, passes over all rows at a few draws tell: to second order the KL between the posterior and
this law is half the variance of the difference of their log densities.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import numpy as np

from ornstein.curvature.autodiff import Autodiff
from ornstein.curvature.closed_form import ClosedForm
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.derivatives import BatchedDerivatives, derivatives_of
from ornstein.model.model import Model
from ornstein.rows.ragged import Ragged
from ornstein.types import Array
from ornstein.verdict.coordinates import Coordinates
from ornstein.verdict.density import Density

ROWS = 10_000  # in the sample
FEWEST_TIMES = 4  # as many rows in all, below which none are left out
COMPARED, FAR = 12, 4  # points at which all rows are read: draws, and points far outside
FAR_OFF = 2.5  # times as far from the middle as draws are
# In nats, between the two laws: the KL of a mean that is off by 0.1 sd. Where it is 0.012, one set
# of twelve draws in twenty shows less.
LARGEST_KL = 0.005
# Of the rise of −log density, at points far outside: there only a gross error matters.
LARGEST_SHARE = 0.25


@dataclass(frozen=True, eq=False)
class CorrectedLoss:
    """The mean loss of the sample, with the gradient and Hessian at the mode of all rows.

    Attributes:
        sample: the sampled rows.
        slope, bend: g − g_m and A − A_m.
        level: a constant, which makes the values comparable with those of all rows.
    """

    sample: BatchedDerivatives
    mode: Array
    slope: Array
    bend: Array
    level: float = 0.0

    def values(self, points: Array) -> Array:
        return self.sample.values(points) + self._correction(points)[0]

    def values_and_gradients(self, points: Array) -> tuple[Array, Array]:
        values, slopes = self.sample.values_and_gradients(points)
        more, turned = self._correction(points)
        return values + more, slopes + turned

    def _correction(self, points: Array) -> tuple[Array, Array]:
        moved = points - self.mode
        bent = moved @ self.bend
        value = self.level + moved @ self.slope + 0.5 * np.sum(moved * bent, axis=1)
        return value, self.slope + bent


def sampled(
    density: Density,
    curvature: Curvature,
    draws: Array,
    around: Coordinates,
    generator: np.random.Generator,
) -> Density | None:
    """The posterior from a sample of the rows; None where there are too few rows to leave any out,
    or where it is not near enough the posterior at the draws.

    Takes a pass over all rows at the mode and at each of `COMPARED + FAR` points.
    """
    model = density.model
    if model.n_data < FEWEST_TIMES * ROWS or curvature.diagonal:
        return None
    rows = np.sort(generator.choice(model.n_data, ROWS, replace=False))
    sample = _of_rows(model, rows)
    if sample is None:
        return None
    density.passes += 1
    loss = _corrected(model, sample, curvature)
    near = draws[np.unique(np.linspace(0, len(draws) - 1, COMPARED).astype(int))]
    far = around.theta(FAR_OFF * around.z(near[:FAR]))
    points = np.concatenate([near, far])
    true = density.values(points)
    error = true - Density(model, 0, loss).values(points)
    level = float(np.mean(error[: len(near)]))
    # NaN, where the density is zero at a draw, is no small error
    small = 0.5 * np.var(error[: len(near)], ddof=1) <= LARGEST_KL
    rise = true[len(near) :] - true[: len(near)].min()
    harmless = np.all(np.abs(error[len(near) :] - level) <= LARGEST_SHARE * rise)
    if not (small and harmless):
        return None
    return Density(model, 0, replace(loss, level=level / model.n_data))


def _corrected(model: Model, sample: BatchedDerivatives, curvature: Curvature) -> CorrectedLoss:
    mode = curvature.mode
    slope = derivatives_of(model).value_and_gradient(mode)[1] - sample.value_and_gradient(mode)[1]
    whole = curvature.hessian - model.scaled_prior_hessian(mode)
    return CorrectedLoss(sample, mode, slope, whole - sample.hessian(mode))


def _of_rows(model: Model, rows: Array) -> BatchedDerivatives | None:
    """The derivatives of the mean loss of some rows; None where rows do not stand alone."""
    whole = derivatives_of(model)
    if isinstance(whole, ClosedForm):
        return whole.part(rows)
    if not isinstance(whole, Autodiff):
        return None
    data = jax.tree.map(
        lambda leaf: leaf.part(rows) if isinstance(leaf, Ragged) else np.asarray(leaf[rows]),
        model.data,
    )
    return Autodiff(model.replace(data=data, n_data=len(rows)))
