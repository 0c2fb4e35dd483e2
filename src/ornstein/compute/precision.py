"""Which floating-point width JAX computes in, chosen per block of code and never globally."""

from __future__ import annotations

from contextlib import AbstractContextManager

import jax


def double() -> AbstractContextManager[None]:
    """Compute in float64 inside the block, on this thread only; JAX's global configuration is left
    alone.
    """
    return jax.enable_x64(True)


def width(dtype: str) -> AbstractContextManager[None]:
    """The context for 'float32' or 'float64'."""
    return jax.enable_x64(dtype == "float64")
