"""Rows as a run holds them: a minibatch is taken, and a slope averaged over it, in one way however
the rows lie.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from ornstein.rows import bytes, packed, summing
from ornstein.rows.choice import Choice
from ornstein.rows.grouped import GroupedRows
from ornstein.types import PyTree, Traced

NARROW = 16  # columns: what a register holds at most; fewer would leave a part of it empty


@partial(
    jax.tree_util.register_dataclass, data_fields=["data"], meta_fields=["slice_rows", "portions"]
)
@dataclass(frozen=True)
class HeldRows:
    """Rows on the device and how minibatches of them are taken.

    Attributes:
        data: the rows, as numbers, as bytes or packed side by side; None where minibatches come as
            rows themselves.
        slice_rows: rows of a minibatch where it is a slice of the data and comes as its first row,
            else 0.
        portions: slopes are added up in portions of rows, instead of as one product.

    >>> import numpy as np
    >>> rows = HeldRows({"x": jnp.arange(6.0).reshape(3, 2)})
    >>> rows.mean_slope(lambda w, row: row["x"] @ w, jnp.ones(2), np.array([0, 2])).tolist()
    [2.0, 3.0]
    """

    data: PyTree
    slice_rows: int = 0
    portions: bool = False

    @classmethod
    def of(cls, data: PyTree, choice: Choice, batch_size: int) -> HeldRows:
        """The data in the form that was chosen."""
        return cls(
            bytes.as_bytes(data) if choice.layout == "bytes" else data,
            batch_size if choice.layout == "shuffled" else 0,
            choice.summation == "portions",
        )

    def mean_slope(
        self, function: Callable[[PyTree, PyTree], Traced], params: PyTree, batch: PyTree
    ) -> PyTree:
        """The gradient, in the parameters, of the mean of `function(params, row)` over a
        minibatch.
        """
        if isinstance(self.data, GroupedRows):
            return self.data.mean_slope(function, params, batch)
        if self.slice_rows:
            batch = jax.tree.map(
                lambda leaf: lax.dynamic_slice_in_dim(leaf, batch, self.slice_rows, 0), self.data
            )
        if self.portions:
            count = jax.tree.leaves(batch)[0].shape[0]
            slope = jax.grad(lambda params, row: function(fitting(params, row), row))
            total = summing.summed_slopes(
                partial(slope, params), partial(self._taken, batch), count
            )
            return jax.tree.map(lambda leaf: leaf / count, total)
        return _slope_of_the_mean(function, params, self._taken(batch))

    def _taken(self, batch: PyTree, start: Traced = 0, count: int | None = None) -> PyTree:
        """Rows of a minibatch: those at its indices, or the minibatch itself where it is rows;
        `count` of them from `start` on, or all.
        """
        if count is not None and jax.tree.leaves(batch)[0].shape[0] > count:
            batch = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, count), batch)
        if self.data is None or self.slice_rows:
            return batch
        rows = jax.tree.map(lambda leaf: leaf.at[batch].get(mode="promise_in_bounds"), self.data)
        return bytes.as_numbers(rows)


def held_rows(data: PyTree) -> HeldRows:
    """Rows that are held already, or plain data as such."""
    return data if isinstance(data, HeldRows) else HeldRows(data)


def fitting(params: PyTree, rows: PyTree) -> PyTree:
    """The parameters as rows of this layout need them."""
    return rows.widened(params) if isinstance(rows, packed.PackedRows) else params


def _slope_of_the_mean(
    function: Callable[[PyTree, PyTree], Traced], params: PyTree, rows: PyTree
) -> PyTree:
    # Narrow rows are laid side by side: then a register of the processor holds numbers of many
    # examples, not part of one.
    axes = jax.tree.map(lambda leaf: int(leaf.ndim == 2 and leaf.shape[1] < NARROW), rows)
    rows = jax.tree.map(lambda leaf, axis: jnp.moveaxis(leaf, 0, axis), rows, axes)

    def mean(params: PyTree) -> Traced:
        return jnp.mean(jax.vmap(function, (None, axes))(fitting(params, rows), rows))

    return jax.grad(mean)(params)
