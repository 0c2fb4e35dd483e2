"""Data whose rows lie in one piece: all that a step needs of a row is found at one place.

Rows drawn at random from data beyond the processor's caches cost an access to memory for every
piece that they lie in, and one more where they begin in the middle of a cache line. Features,
response and offset side by side, every row from the start of a line on, are found in three quarters
of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.rows.memory import ALIGNMENT, aligned
from ornstein.types import Traced

# Numbers in a row: with fewer, XLA finds them faster as bytes (rows/bytes.py), which works best
# where rows begin anywhere.
FEWEST = 100

Places: TypeAlias = tuple[tuple[str, int, int | None], ...]  # name, start and width


@jax.tree_util.register_pytree_node_class
class PackedRows:
    """Arrays by name, one after the other in every row of `numbers`, (N, width); read like the
    mapping that they came in.

    The features, which are the first, come as the whole row: what lies behind them is multiplied by
    zeros, because to cut it off would copy every row once more. `widened` gives the `coefficients`,
    the parameters by which features are multiplied, those zeros.
    """

    def __init__(self, numbers: Traced, places: Places, coefficients: str) -> None:
        self.numbers, self._places, self._coefficients = numbers, places, coefficients

    def widened(self, params: Mapping[str, Traced]) -> dict[str, Traced]:
        """The parameters, with a zero for every number of a row that lies behind the features."""
        coefficients = params[self._coefficients]
        behind = (self.numbers.shape[-1] - len(coefficients), *coefficients.shape[1:])
        zeros = jnp.zeros(behind, coefficients.dtype)
        return {**params, self._coefficients: jnp.concatenate([coefficients, zeros])}

    def __contains__(self, name: object) -> bool:
        return any(name == known for known, _, _ in self._places)

    def __getitem__(self, name: str) -> Traced:
        start, width = next((start, width) for known, start, width in self._places if known == name)
        if start == 0:
            return self.numbers
        return (
            self.numbers[..., start] if width is None else self.numbers[..., start : start + width]
        )

    def tree_flatten(self) -> tuple[tuple[Traced], object]:
        return (self.numbers,), (self._places, self._coefficients)

    @classmethod
    def tree_unflatten(cls, fixed: tuple[Places, str], children: tuple[Traced]) -> PackedRows:
        (numbers,), (places, coefficients) = children, fixed
        return cls(numbers, places, coefficients)


def side_by_side(data: Mapping[str, Traced], dtype: str, coefficients: str) -> PackedRows:
    """Arrays of N rows, (N,) or (N, columns), on the device in the working precision; the features
    are called "x".

    >>> rows = {"x": np.arange(6.0).reshape(3, 2), "y": np.arange(3)}
    >>> table = side_by_side(rows, "float32", coefficients="w")
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
    numbers = aligned((len(data["x"]), whole_lines(ends[-1], dtype)), dtype)
    for leaf, start, end in zip(data.values(), starts, ends, strict=True):
        numbers[:, start:end] = leaf.reshape(len(leaf), end - start)
    numbers[:, ends[-1] :] = 0.0
    return PackedRows(
        jax.device_put(numbers), tuple(zip(data, starts, widths, strict=True)), coefficients
    )


def whole_lines(numbers: int, dtype: str) -> int:
    """Numbers in the cache lines that `numbers` of them occupy."""
    line = ALIGNMENT // np.dtype(dtype).itemsize
    return -(-numbers // line) * line
