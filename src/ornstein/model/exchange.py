"""Whether a model is a network as a whole, by measurement: its hidden units can be exchanged.

An axis of several parameter arrays is one of hidden units where reordering its entries, alike in
all these arrays, leaves the log likelihood of rows unchanged at random parameters, while reordering
them in one array alone changes it. Names of arrays say nothing here, and neither does their number:
the classes of a softmax, the groups of a hierarchical model and the columns of a regression
cannot be exchanged, because rows tell them apart. The components of a mixture can; but there the
density of a row is a sum over them, so that what one adds does not depend on the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice

import jax
import numpy as np

from ornstein.compute.compiled import compiled
from ornstein.compute.precision import double
from ornstein.model.loss import Loss
from ornstein.types import Array, PyTree, Traced

ROWS = 16  # that are looked at
# Arrays that one axis may run through, and sets of axes that are tried.
MOST_ARRAYS, MOST_SETS = 6, 3000
# Relative to the log likelihood of a row: equal but for rounding, and plainly different.
SAME, OTHER = 1e-9, 1e-6
# Scales of the random parameters, tried until rows have a density.
SCALES = (0.5, 0.1, 0.02)

Axis = tuple[int, int]  # which array, which of its axes


@dataclass(frozen=True)
class HiddenUnits:
    """Parameter arrays that share an axis of this number of exchangeable units."""

    arrays: tuple[str, ...]
    units: int

    def __str__(self) -> str:
        return f"the {self.units} entries that {', '.join(self.arrays)} share can be exchanged"


def hidden_units(
    loss: Loss, start: Array, rows: PyTree, hyperparameters: PyTree
) -> HiddenUnits | None:
    """The first axis of hidden units that is found; None where there is none."""
    shared = _shared_axes(loss.layout.shapes)
    if not shared:
        return None
    with double():
        look = _Look(loss, rows, hyperparameters)
        theta = look.place(start)
        if theta is None:
            return None
        for units, axes in shared.items():
            found = _exchangeable(look, theta, units, axes)
            if found is not None:
                names = dict.fromkeys(loss.layout.paths[array] for array, _ in found)
                return HiddenUnits(tuple(names), units)
    return None


def _shared_axes(shapes: tuple[tuple[int, ...], ...]) -> dict[int, list[Axis]]:
    """By length, axes of that length where more than one array has one."""
    axes: dict[int, list[Axis]] = defaultdict(list)
    for array, shape in enumerate(shapes):
        for axis, length in enumerate(shape):
            if length > 1:
                axes[length].append((array, axis))
    return {
        length: found for length, found in axes.items() if len({array for array, _ in found}) > 1
    }


def _exchangeable(
    look: _Look, theta: Array, units: int, axes: list[Axis]
) -> tuple[Axis, ...] | None:
    """Axes whose entries can only be reordered together."""
    shift, swap = np.roll(np.arange(units), 1), np.arange(units)
    swap[[0, -1]] = swap[[-1, 0]]
    felt = [axis for axis in axes if look.changes(theta, (axis,), shift, OTHER)]
    for chosen in islice(_sets(felt), MOST_SETS):
        if any(look.changes(theta, chosen, order, SAME) for order in (shift, swap)):
            continue
        if not any(look.mixes(theta, axis) for axis in chosen):
            return chosen
    return None


def _sets(axes: list[Axis]) -> Iterator[tuple[Axis, ...]]:
    """Sets of axes of more than one array: small ones first, and of equal size those whose arrays
    lie near each other.
    """
    for size in range(2, 1 + min(MOST_ARRAYS, len(axes))):
        several = (
            chosen
            for chosen in islice(combinations(axes, size), 20 * MOST_SETS)
            if len({array for array, _ in chosen}) > 1
        )
        yield from sorted(several, key=lambda chosen: chosen[-1][0] - chosen[0][0])


@dataclass(frozen=True, eq=False)
class _Look:
    """Log likelihoods of some rows, at parameters that are reordered."""

    loss: Loss
    rows: PyTree
    hyperparameters: PyTree

    def values(self, theta: Array) -> Array:
        """At one point, (rows,)."""
        return np.asarray(_log_likelihoods(self.loss, theta, self.rows, self.hyperparameters))

    def place(self, start: Array) -> Array | None:
        """Random parameters about the start at which every row has a density."""
        normals = np.random.default_rng(0).standard_normal((len(SCALES), start.size))
        for normal, scale in zip(normals, SCALES, strict=True):
            theta: Array = start + scale * normal
            if np.all(np.isfinite(self.values(theta))):
                return theta
        return None

    def changes(self, theta: Array, axes: tuple[Axis, ...], order: Array, bound: float) -> bool:
        """Whether a reordering along all of these axes changes what a row says."""
        before, after = self.values(theta), self.values(theta[self._places(axes, order)])
        return not np.all(np.abs(after - before) <= bound * (1.0 + np.abs(before)))

    def mixes(self, theta: Array, axis: Axis) -> bool:
        """Whether the first and the last entry each change the density of rows, and what the one
        changes does not depend on the other: components of a mixture.
        """
        first, last = self._entry(axis, 0), self._entry(axis, -1)
        moved = theta + np.random.default_rng(1).uniform(0.2, 0.6, theta.size)
        points = [theta] + [np.where(at, moved, theta) for at in (first, last, first | last)]
        logs = np.array([self.values(point) for point in points])
        if not np.all(np.isfinite(logs)):
            return False
        neither, one, other, both = np.exp(logs - logs.max(axis=0))
        felt = np.minimum(np.abs(one - neither), np.abs(other - neither)) > OTHER
        together = np.abs(both - one - other + neither)
        return bool(np.any(felt) and np.all(together[felt] <= SAME))

    def _entry(self, axis: Axis, entry: int) -> Array:
        """Which parameters belong to one entry along an axis."""
        array, along = axis
        parts = [np.zeros(shape, bool) for shape in self.loss.layout.shapes]
        np.moveaxis(parts[array], along, 0)[entry] = True
        return np.concatenate([part.reshape(-1) for part in parts])

    def _places(self, axes: tuple[Axis, ...], order: Array) -> Array:
        """Which parameter each one becomes."""
        parts, start = [], 0
        for array, shape in enumerate(self.loss.layout.shapes):
            size = int(np.prod(shape))
            part = (start + np.arange(size)).reshape(shape)
            for along in (axis for other, axis in axes if other == array):
                part = np.take(part, order, axis=along)
            parts.append(part.reshape(-1))
            start += size
        return np.concatenate(parts)


@compiled
def _log_likelihoods(loss: Loss, theta: Traced, rows: PyTree, hyperparameters: PyTree) -> Traced:
    params = loss.layout.unflatten(theta)
    return jax.vmap(lambda row: loss.log_likelihood(params, row, hyperparameters))(rows)
