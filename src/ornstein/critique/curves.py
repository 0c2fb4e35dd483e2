"""How much of the residuals a curve explains: their means in groups of rows with like values."""

from __future__ import annotations

import numpy as np
import scipy.stats

from ornstein.types import Array

GROUPS = 10


def explained(
    values: Array, column: Array, groups: int = GROUPS, least: int = 3
) -> tuple[float, float]:
    """The share of the variance between groups of the column, chance taken off, and the F test's
    p-value; nothing where there are fewer groups than `least`: two have no curve.

    >>> x = np.linspace(-1.0, 1.0, 1000)
    >>> share, chance = explained(x**2, x)
    >>> round(share, 2), chance < 1e-9
    (0.95, True)
    """
    codes = groups_of(column, groups)
    sizes = np.bincount(codes)
    if len(sizes) < least:
        return 0.0, 1.0
    means = np.bincount(codes, values) / sizes
    centred = values - values.mean()
    total = float(centred @ centred)
    between = float(sizes @ (means - values.mean()) ** 2)
    free, left = len(sizes) - 1, len(values) - len(sizes)
    if total <= 0.0 or left < 1:
        return 0.0, 1.0
    within = max((total - between) / left, 1e-300)
    chance = float(scipy.stats.f.sf(between / free / within, free, left))
    return max(0.0, 1.0 - within * (len(values) - 1) / total), chance


def groups_of(column: Array, groups: int) -> Array:
    """A group 0, 1, … for each value: of about equal size, equal values together."""
    edges = np.unique(np.quantile(column, np.linspace(0.0, 1.0, groups + 1)[1:-1]))
    return np.unique(np.searchsorted(edges, column), return_inverse=True)[1]
