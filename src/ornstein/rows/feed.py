"""Rows handed to the loop window by window, where they are not all held."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from ornstein.types import Array, PyTree

WINDOW_BYTES = 2**21


@dataclass
class Feed:
    """Rows of minibatches by the indices of a window of steps: `gather` finds them, a step takes
    `step_bytes`, and `template` is what it finds where there are no indices.
    """

    gather: Callable[[Array], PyTree]
    step_bytes: int
    template: PyTree
    pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(2, thread_name_prefix="ornstein-rows")
    )

    @property
    def steps(self) -> int:
        """Steps per window: about 2 MB of rows."""
        return max(1, WINDOW_BYTES // max(1, self.step_bytes))

    def rows(self, indices: Array) -> PyTree:
        """The rows at indices of any shape."""
        return self.gather(indices)

    def ahead(self, indices: Array) -> Future[PyTree]:
        """The same, on a thread of its own."""
        return self.pool.submit(self.rows, indices)
