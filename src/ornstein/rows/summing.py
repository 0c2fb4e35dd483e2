"""Rows of 8 to 15 numbers, which fill most of a register of the processor: read and added up some
at a time.

A minibatch of such rows is small enough to be used before it has been written to memory, if it is
taken in portions and the slope of every row is found for itself. XLA makes one loop of reading,
multiplying and adding then, where the slope of the sum would be a product with a copy of all rows,
in up to half as much time again. That computes the slope with respect to the predictor anew for
every column, so it pays where that is a matter of sums and products: with an exponential in it, it
does not.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from ornstein.types import PyTree, Traced

FEWEST, MOST = 8, 15  # numbers in a row
PORTION = 32  # rows
# numbers in a minibatch: more may be taken by several kernels, and a loop would start them for
# every portion
LARGEST = 2**16


def pay(data: PyTree, count: int) -> bool:
    """Whether `count` rows of these data are such rows, and a loop over portions of them is one
    kernel.

    >>> import numpy as np
    >>> [pay({"x": np.zeros((5, columns)), "y": np.zeros(5)}, 100) for columns in (7, 11, 16)]
    [False, True, False]
    """
    widths = [leaf.shape[1] if leaf.ndim == 2 else 1 for leaf in jax.tree.leaves(data)]
    return (
        FEWEST <= max(widths) <= MOST
        and count * max(widths) <= LARGEST
        and jax.default_backend() == "cpu"
    )


def summed_slopes(
    slope: Callable[[PyTree], PyTree], read: Callable[[Traced, int], PyTree], count: int
) -> PyTree:
    """The sum over `count` rows of the tree `slope(row)`; `read(start, number)` gives `number` of
    the rows from `start` on.

    >>> rows = jnp.arange(70.0)
    >>> float(
    ...     summed_slopes(
    ...         lambda row: row**2,
    ...         lambda start, number: lax.dynamic_slice_in_dim(rows, start, number),
    ...         70,
    ...     )
    ... )
    111895.0
    """

    def portion(start: Traced, number: int) -> PyTree:
        return jax.tree.map(
            lambda leaf: jnp.sum(leaf, axis=0), jax.vmap(slope)(read(start, number))
        )

    rest = count % PORTION or PORTION
    return lax.fori_loop(
        0,
        (count - rest) // PORTION,
        lambda number, total: jax.tree.map(jnp.add, total, portion(number * PORTION, PORTION)),
        portion(count - rest, rest),
    )
