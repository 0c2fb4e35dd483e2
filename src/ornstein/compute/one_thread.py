"""BLAS on one thread: sums whose rounding does not depend on the number of cores.

A product with a vector is shared out among the threads of BLAS, and how it is shared out decides
the order in which numbers are added. What is tuned from such sums decides every draw.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_inside = 0
_limits: Any = None


@cache
def _libraries() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  (it brings a BLAS of its own, which must be there to be found)

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_thread() -> Iterator[None]:
    """Let BLAS use one thread inside the block.

    The setting is that of the process. It holds from the first block that is entered, on whichever
    thread, until the last one is left.
    """
    global _inside, _limits
    with _lock:
        if _inside == 0:
            _limits = _libraries().limit(limits=1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limits.restore_original_limits()
                _limits = None
