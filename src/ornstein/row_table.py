"""Data whose rows lie in one piece: all that a step needs of a row is found at one place.

Rows drawn at random from data beyond the processor's caches cost an access to memory for every piece that they lie in, and one
more where they begin in the middle of a cache line. Features, response and offset side by side, every row from the start of a line
on, are found in three quarters of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ornstein.aligned import ALIGNMENT, BEYOND_CACHES, aligned

# Numbers in a row: with fewer, XLA finds them faster as bytes (row_bytes.py), which works best where rows begin anywhere.
FEWEST = 100
# Up to so many numbers in a minibatch one core takes half the processor time for a step, and not much more of the clock's, than
# several that XLA would call together at every step. With more numbers a chain alone does better on several.
SMALL_STEP = 2**16


@jax.tree_util.register_pytree_node_class
class RowTable:
    """Arrays by name, one after the other in every row of `numbers`, (N, width); read like the mapping that they came in.

    The features, which are the first, come as the whole row: what lies behind them is to be multiplied by zeros, because to cut it
    off would copy every row once more.
    """

    def __init__(self, numbers: Any, places: tuple[tuple[str, int, int | None], ...]) -> None:
        self.numbers, self._places = numbers, places

    def __contains__(self, name: object) -> bool:
        return any(name == known for known, _, _ in self._places)

    def __getitem__(self, name: str) -> Any:
        start, width = next((start, width) for known, start, width in self._places if known == name)
        if start == 0:
            return self.numbers
        return (
            self.numbers[..., start] if width is None else self.numbers[..., start : start + width]
        )

    def tree_flatten(self) -> tuple[tuple[Any], Any]:
        return (self.numbers,), self._places

    @classmethod
    def tree_unflatten(cls, places: Any, children: tuple[Any]) -> RowTable:
        return cls(*children, places)


def side_by_side(data: Mapping[str, Any], dtype: str) -> RowTable:
    """Arrays of N rows, (N,) or (N, columns), on the device in the working precision; the features are called "x".

    >>> table = side_by_side({"x": np.arange(6.0).reshape(3, 2), "y": np.arange(3)}, "float32")
    >>> (
    ...     table.numbers.shape,
    ...     np.asarray(table["x"])[2, :4].tolist(),
    ...     np.asarray(table["y"]).tolist(),
    ...     "offset" in table,
    ... )
    ((3, 16), [4.0, 5.0, 2.0, 0.0], [0.0, 1.0, 2.0], False)
    """
    data = {"x": data["x"], **data}
    widths = [leaf.shape[1] if leaf.ndim == 2 else None for leaf in data.values()]
    ends = np.cumsum([width or 1 for width in widths]).tolist()
    starts = [0, *ends[:-1]]
    numbers = aligned((len(data["x"]), _whole_lines(ends[-1], dtype)), dtype)
    for leaf, start, end in zip(data.values(), starts, ends, strict=True):
        numbers[:, start:end] = leaf.reshape(len(leaf), end - start)
    numbers[:, ends[-1] :] = 0.0
    return RowTable(jax.device_put(numbers), tuple(zip(data, starts, widths, strict=True)))


def pays(data: Mapping[str, Any], dtype: str, numbers: int) -> bool:
    """Whether a step on `numbers` numbers of a minibatch is faster with a table of these data.

    It is where the rest of a row finds room in the last cache line of its features.

    >>> [
    ...     pays({"x": np.zeros((100_000, columns)), "y": np.zeros(100_000)}, "float32", 10**5)
    ...     for columns in (100, 112)
    ... ]
    [True, False]
    """
    features = data["x"]
    if not (
        isinstance(features, np.ndarray)
        and features.dtype.kind == "f"
        and features.shape[1] >= FEWEST
    ):
        return False
    columns = sum(leaf.shape[1] if leaf.ndim == 2 else 1 for leaf in data.values())
    room = _whole_lines(columns, dtype) == _whole_lines(features.shape[1], dtype)
    return (
        room
        and features.nbytes >= BEYOND_CACHES
        and numbers > SMALL_STEP
        and jax.default_backend() == "cpu"
    )


def begin_at_lines(data: Any) -> bool:
    """Whether there are long rows, beyond the caches, that begin at cache lines.

    Compiled into one kernel, a step takes up to twice as long to find them as rows that begin anywhere; several kernels do not.

    >>> begin_at_lines(np.zeros((100_000, 100))), begin_at_lines(np.zeros((100_000, 128)))
    (False, True)
    """
    return any(
        leaf.ndim == 2
        and leaf.shape[1] >= FEWEST
        and leaf.shape[1] * leaf.dtype.itemsize % ALIGNMENT == 0
        and leaf.nbytes >= BEYOND_CACHES
        for leaf in jax.tree.leaves(data)
    )


def _whole_lines(numbers: int, dtype: str) -> int:
    """As many numbers as the cache lines hold that so many need."""
    line = ALIGNMENT // np.dtype(dtype).itemsize
    return -(-numbers // line) * line
