"""Arrays that a model takes from outside (closures, globals, partial arguments, attributes): found,
and replaced by some of their rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np

from ornstein.interfaces.numpyro.arguments import KINDS
from ornstein.interfaces.numpyro.handled import Function
from ornstein.model.closed_over import Rebuilding
from ornstein.types import PyTree


@dataclass(frozen=True, eq=False)
class Outside:
    """An array from outside, known by its identity."""

    array: PyTree


class _Listing(Rebuilding):
    """Lists the arrays with this number of rows, and replaces none."""

    def __init__(self, rows: int) -> None:
        super().__init__({})
        self.rows = rows
        self.found: dict[int, PyTree] = {}

    def array(self, array: PyTree) -> PyTree:
        if _is_numeric(array) and array.ndim and array.shape[0] == self.rows:
            self.found[id(array)] = array
        return array

    array_of_jax = array


class _Replacing(Rebuilding):
    def __init__(self, replaced: Mapping[int, PyTree]) -> None:
        super().__init__({})
        self.replaced = replaced

    def array(self, array: PyTree) -> PyTree:
        return self.replaced.get(id(array), array)

    array_of_jax = array


def arrays_outside(function: Function, rows: int) -> tuple[Outside, ...]:
    """The arrays with this number of rows that a function takes from outside.

    >>> y = np.arange(3.0)
    >>> [found.array.tolist() for found in arrays_outside(lambda x: x + y, 3)]
    [[0.0, 1.0, 2.0]]
    """
    listing = _Listing(rows)
    listing.of(function)
    return tuple(Outside(array) for array in listing.found.values())


def with_rows(function: Function, rows: Mapping[Outside, PyTree]) -> Function:
    """The function with other arrays in place of those from outside.

    >>> y = np.arange(3.0)
    >>> def total():
    ...     return y.sum()
    >>> (found,) = arrays_outside(total, 3)
    >>> float(with_rows(total, {found: np.ones(1)})()), float(total())
    (1.0, 3.0)
    """
    if not rows:
        return function
    replaced: Function = _Replacing({id(each.array): new for each, new in rows.items()}).of(
        function
    )
    return replaced


def _is_numeric(array: PyTree) -> bool:
    if isinstance(array, jax.Array) and jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        return False
    return np.dtype(array.dtype).kind in KINDS
