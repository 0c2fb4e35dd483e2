"""The rows of a mixed model, and how a model holds them: group by group, in buckets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ornstein.rows.ragged import Buckets, Ragged
from ornstein.types import Array


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a mixed model, checked.

    Attributes:
        x: columns of the fixed effects; z: of those that vary (None is the intercept alone).
        codes: the group of each row, one column for each factor where there are several.
        level: where examples hold several groups, which of them, by factor.
        weight: how often each row counts; None is once.
    """

    x: Array
    z: Array | None
    y: Array
    codes: Array
    offset: Array | None = None
    level: Array | None = None
    weight: Array | None = None

    def deviations(self, values: Array) -> Array:
        """Standard deviations of columns; 0 where it is rounding alone."""
        if self.weight is None:
            return np.asarray(values.std(axis=0))
        mean = np.average(values, axis=0, weights=self.weight)
        found = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=self.weight))
        return np.where(found > 1e-12 * np.abs(mean), found, 0.0)

    def sorted_by_group(self) -> tuple[Rows, Array, Array]:
        """The rows group by group, groups in order of size; the sizes, and which group is where."""
        counts = np.bincount(self.codes)
        order = np.argsort(counts, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        ranked = place[self.codes]
        rows = np.argsort(ranked, kind="stable")
        optional = (self.offset, self.level, self.weight)
        rest = (None if part is None else part[rows] for part in optional)
        z = None if self.z is None else self.z[rows]
        return Rows(self.x[rows], z, self.y[rows], ranked[rows], *rest), counts[order], order


def ragged_data(table: Rows, held: Array, counts: Array) -> dict[str, Any]:
    """The rows as a model's data; `held` of them for each group, which stand for `counts`."""
    starts = np.cumsum(held) - held
    first = Ragged(table.x, starts, held, Buckets.of(held))
    data: dict[str, Any] = {"x": first, "y": first.with_values(table.y)}
    if table.z is not None:
        data["z"] = first.with_values(table.z)
    if table.offset is not None:
        data["offset"] = first.with_values(table.offset)
    if table.level is not None:
        data["level"] = first.with_values(table.level)
    if table.weight is not None:
        data["weight"] = first.with_values(table.weight)
    return data | {"held": held.astype(np.int32), "count": counts.astype(float)}
