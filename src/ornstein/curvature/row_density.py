"""The posterior of a wide regression at many points, in the precision of its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ornstein.compute.precision import width
from ornstein.curvature.closed_form import losses_and_first_at_points
from ornstein.curvature.row_averages import RowAverages
from ornstein.types import Array

CHUNK_NUMBERS = 2**21  # predictors of some rows at all points


@dataclass(eq=False)
class RowDensity:
    """U(θ), which is −log of the posterior up to a constant, and its gradient; infinite where the
    density is zero. `passes` counts how often all rows were read.

    Dense rows in float32 leave errors of about 1e-4 in U: far below what a decision on a trajectory
    turns on.
    """

    averages: RowAverages
    passes: int = 0

    def values_and_gradients(self, points: Array) -> tuple[Array, Array]:
        """U and its gradient at points (k, D): shapes (k,) and (k, D)."""
        self.passes += len(points)
        rows, model = self.averages.rows, self.averages.model
        values, slopes = np.zeros(len(points)), np.zeros(points.shape)
        count, size = rows.shape
        some = max(1, CHUNK_NUMBERS // (size * len(points)))
        for start in range(0, count, some):
            found = self._of_rows(slice(start, min(start + some, count)), points)
            values += found[0]
            slopes += found[1]
        prior_values, prior_slopes = model.scaled_priors(points)
        values += model.n_data * prior_values
        slopes += model.n_data * prior_slopes
        return np.where(np.isfinite(values), values, np.inf), slopes

    def _of_rows(self, part: slice, points: Array) -> tuple[Array, Array]:
        rows = self.averages.rows.part(part)
        linear, numbers = rows.linear, rows.features.dtype
        predictors = rows.predictors(points.T)
        if linear.offset is not None:
            known = linear.offset.reshape(len(predictors), -1)
            predictors[:, : known.shape[1]] += known[:, :, None]
        response = linear.response
        response = response if response.dtype.kind in "iu" else np.asarray(response, numbers)
        weights = np.ones(len(response)) if linear.weights is None else linear.weights
        with width(str(numbers)):
            losses, first = losses_and_first_at_points(
                linear.example_loss,
                np.asarray(predictors, numbers),
                response,
                np.asarray(weights, numbers),
                linear.hyperparameters,
            )
        gathered = rows.gathered(np.asarray(first))
        return np.asarray(losses, dtype=float).sum(axis=0), gathered.T
