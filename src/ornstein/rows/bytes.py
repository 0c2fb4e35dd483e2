"""Rows of some dozen numbers, held as bytes so that a compiled loop copies them in whole registers.

XLA copies the rows of a minibatch in a loop over their numbers. Where those are few it writes the
loop out, number by number, and the processor has no room left to ask for the next rows while it
waits for memory: rows drawn from data beyond its caches then take three times as long as they need.
A loop over bytes is too long to be written out.
"""

from __future__ import annotations

import jax
import numpy as np
from jax import lax

from ornstein.types import PyTree, Traced

# Numbers in a row. Fewer are laid side by side (rows/summing.py); XLA does not unroll loops over
# more.
FEWEST, MOST = 16, 99


@jax.tree_util.register_pytree_node_class
class RowBytes:
    """An array of rows as bytes, shape (N, bytes of a row); any rows of it are taken like those of
    an array.
    """

    def __init__(self, data: Traced, dtype: np.dtype) -> None:
        self.data, self.dtype = data, dtype

    def numbers(self) -> jax.Array:
        """What the bytes stand for: an array (N, columns)."""
        rows, length = self.data.shape
        size = self.dtype.itemsize
        return lax.bitcast_convert_type(self.data.reshape(rows, length // size, size), self.dtype)

    def tree_flatten(self) -> tuple[tuple[Traced], np.dtype]:
        return (self.data,), self.dtype

    @classmethod
    def tree_unflatten(cls, dtype: np.dtype, children: tuple[Traced]) -> RowBytes:
        return cls(*children, dtype)


def as_bytes(data: PyTree) -> PyTree:
    """The data with those leaves as bytes for which it pays; no number is copied.

    >>> import jax.numpy as jnp
    >>> held = as_bytes({"x": jnp.ones((5, 20)), "y": jnp.ones(5)})
    >>> held["x"].data.shape, held["y"].shape, as_numbers(held)["x"].shape
    ((5, 80), (5,), (5, 20))
    """
    return jax.tree.map(
        lambda leaf: RowBytes(_viewed(leaf), leaf.dtype) if _pays(leaf) else leaf, data
    )


def as_numbers(rows: PyTree) -> PyTree:
    """Inside compiled code: rows of what `as_bytes` gave, as they were."""
    return jax.tree.map(
        lambda leaf: leaf.numbers() if isinstance(leaf, RowBytes) else leaf,
        rows,
        is_leaf=lambda leaf: isinstance(leaf, RowBytes),
    )


def pay(data: PyTree) -> bool:
    """Whether any leaf is such rows.

    >>> import jax.numpy as jnp
    >>> [pay({"x": jnp.zeros((5, columns)), "y": jnp.zeros(5)}) for columns in (15, 16, 99, 100)]
    [False, True, True, False]
    """
    return any(_pays(leaf) for leaf in jax.tree.leaves(data))


def _pays(leaf: jax.Array) -> bool:
    return (
        isinstance(leaf, jax.Array)
        and all(device.platform == "cpu" for device in leaf.devices())
        and leaf.ndim == 2
        and leaf.dtype.kind == "f"
        and FEWEST <= leaf.shape[1] <= MOST
    )


def _viewed(leaf: jax.Array) -> jax.Array:
    return jax.device_put(np.asarray(leaf).view(np.uint8))
