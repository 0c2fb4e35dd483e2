"""Memory for what is drawn ahead: filled on the host while compiled code still reads what was drawn before."""

from __future__ import annotations

from typing import Any

from numpy.typing import DTypeLike, NDArray

from ornstein.aligned import aligned


class DoubleBuffer:
    """Two arrays given out in turn, so that each is left alone until the other has been given out and used.

    Fresh memory for every block would cost more than the numbers in it, because the system clears it page by page first.

    >>> import numpy as np
    >>> buffer = DoubleBuffer()
    >>> first, second, third = (buffer.array((3, 2), np.float32) for _ in range(3))
    >>> np.shares_memory(first, second), np.shares_memory(first, third)
    (False, True)
    """

    def __init__(self) -> None:
        self._arrays: list[NDArray[Any]] = []

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """The array that was not given out last, whatever is in it."""
        oldest = self._arrays[0] if len(self._arrays) == 2 else None
        if oldest is None or oldest.shape != shape or oldest.dtype != dtype:
            oldest = aligned(shape, dtype)
        self._arrays = [*self._arrays[-1:], oldest]
        return oldest
