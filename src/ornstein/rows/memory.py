"""Memory on the host that JAX uses where it is, instead of copying it."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ornstein.types import Array

# bytes; JAX uses an array that starts at a multiple of it where it is, and copies any other
ALIGNMENT = 64
# Bytes. NumPy asks the system for pages of this size in all large arrays, and gets them where a
# whole one fits: rows drawn at random are then found a fifth faster, because the processor's list
# of pages is short. JAX's own memory has small pages.
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


class DoubleBuffer:
    """Two arrays given out alternately, so that each is left alone until the other has been given
    out and used.

    Fresh memory for every block would cost more than the numbers in it, because the system clears
    it page by page first.

    >>> import numpy as np
    >>> buffer = DoubleBuffer()
    >>> first, second, third = (buffer.array((3, 2), np.float32) for _ in range(3))
    >>> np.shares_memory(first, second), np.shares_memory(first, third)
    (False, True)
    """

    def __init__(self) -> None:
        self._arrays: list[Array] = []

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """The array that was not given out last, whatever is in it."""
        oldest = self._arrays[0] if len(self._arrays) == 2 else None
        if oldest is None or oldest.shape != shape or oldest.dtype != dtype:
            oldest = aligned(shape, dtype)
        self._arrays = [*self._arrays[-1:], oldest]
        return oldest
