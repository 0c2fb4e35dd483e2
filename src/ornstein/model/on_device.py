"""Arrays on the device in the working precision."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.rows.memory import aligned
from ornstein.types import Array, Traced


def working_dtype(leaf: Array | Traced, dtype: str) -> np.dtype:
    """The working precision for floats; other types stay as they are."""
    return np.dtype(dtype) if np.dtype(leaf.dtype).kind == "f" else np.dtype(leaf.dtype)


def on_device(leaf: Array | Traced, dtype: str) -> Traced:
    """On the device, floats in the working precision, integers in 32 bits; integers that do not fit
    become floats.
    """
    kind = np.dtype(leaf.dtype).kind
    if kind != "f" and (kind not in "iu" or _fits_32_bits(leaf)):
        return jnp.asarray(leaf)
    if not isinstance(leaf, np.ndarray):
        return jnp.asarray(leaf, dtype=dtype)
    numbers = aligned(leaf.shape, dtype)
    numbers[...] = leaf
    return jax.device_put(numbers)


def _fits_32_bits(leaf: Array | Traced) -> bool:
    """Whether no integer would wrap around on the way to 32 bits."""
    return bool(leaf.dtype.itemsize <= 4 or (leaf.min() >= -(2**31) and leaf.max() < 2**31))
