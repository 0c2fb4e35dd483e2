"""Memory on the host that JAX uses where it is, instead of copying it."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

ALIGNMENT = (
    64  # bytes; JAX uses an array that starts at a multiple of it where it is, and copies any other
)
# Bytes. NumPy asks the system for pages of this size in all large arrays, and gets them where a whole one fits: rows drawn at
# random are then found a fifth faster, because the processor's list of pages is short. JAX's own memory has small pages.
HUGE_PAGE = 2**21
BEYOND_CACHES = 2**25  # bytes: what is larger comes from memory, at every access anew


def aligned(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[np.generic]:
    """An array with anything in it, from the start of a page on where it is large.

    >>> (
    ...     aligned((3, 2), np.float32).ctypes.data % ALIGNMENT,
    ...     aligned((1000, 1000), np.float32).ctypes.data % HUGE_PAGE,
    ... )
    (0, 0)
    """
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    alignment = HUGE_PAGE if size >= HUGE_PAGE else ALIGNMENT
    memory = np.empty(size + alignment, dtype=np.uint8)
    start = -memory.ctypes.data % alignment
    return memory[start : start + size].view(dtype).reshape(shape)
