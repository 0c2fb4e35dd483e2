"""How a run holds, draws and sums its rows: every choice made for speed, and every bound behind it.

None of them changes the law of a step: whatever is chosen, a minibatch's gradient is the same up to
rounding. None looks at the number of cores, so that draws do not depend on the machine's size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import numpy as np

from ornstein.rows import bytes, packed, shuffled, summing
from ornstein.rows.grouped import GroupedRows
from ornstein.rows.memory import ALIGNMENT, BEYOND_CACHES
from ornstein.types import PyTree, Traced

# Numbers in a minibatch up to which one core takes half the processor time for a step, and not much
# more of the clock's, than several that XLA would call together at every step. With more numbers
# a chain alone does better on several.
SMALL_STEP = 2**16

Layout = Literal["plain", "bytes", "packed", "shuffled", "fed"]
Summation = Literal["product", "portions"]


@dataclass(frozen=True)
class Traits:
    """What a likelihood declares about itself, so that faster ways can be taken.

    Attributes:
        elementary: a step is nothing but sums, products and functions of one number: no indexing,
            sorting or solving.
        polynomial: the slope of a row is a matter of sums and products alone.
        change: (likelihood, centre, params, example, hyperparameters) ↦ a number whose slope is the
            log likelihood's less what it is at the centre, where that can be had for the price of
            one.
    """

    elementary: bool = False
    polynomial: bool = False
    change: Callable[..., Traced] | None = None


@dataclass(frozen=True)
class Choice:
    """What was chosen for a run.

    Attributes:
        layout: rows as they are ("plain"), as "bytes", side by side ("packed"), in a random order
            of which a minibatch is a slice ("shuffled"), or handed over window by window ("fed").
        summation: slopes of the rows as one "product" with them, or added up in "portions".
        draws_inside: the compiled loop draws the rows of minibatches itself, from a seed.
        one_kernel: the whole loop is compiled into one kernel.
    """

    layout: Layout
    summation: Summation
    draws_inside: bool
    one_kernel: bool

    @classmethod
    def of(
        cls,
        data: PyTree,
        traits: Traits,
        batch_size: int,
        dimension: int,
        chains: int,
        scheme: str,
        fed: bool = False,
    ) -> Choice:
        """The choice for `chains` chains of `dimension` parameters on minibatches of these data;
        where rows are `fed`, data are any number of them.

        >>> rows = {"x": np.zeros((1000, 3)), "y": np.zeros(1000)}
        >>> Choice.of(rows, Traits(elementary=True), 10, 3, 4, "replacement")
        Choice(layout='plain', summation='product', draws_inside=True, one_kernel=True)
        """
        layout = _layout(data, batch_size, scheme, fed)
        # A slice comes as fast as one core can use it. Rows that must be found come faster to
        # several cores, unless those have chains of their own.
        busy = chains > 1 and not begin_at_lines(data)
        small = batch_size * dimension <= SMALL_STEP
        one_kernel = traits.elementary and (layout == "shuffled" or busy or small)
        plain = not isinstance(data, GroupedRows)
        portions = plain and traits.polynomial and summing.pay(data, batch_size)
        return cls(
            layout,
            "portions" if portions else "product",
            one_kernel and not fed and scheme == "replacement",
            one_kernel,
        )


def _layout(data: PyTree, batch_size: int, scheme: str, fed: bool) -> Layout:
    if fed:
        return "fed"
    if isinstance(data, GroupedRows):  # they are found and summed in a way of their own
        return "plain"
    if scheme == "slices" and shuffled.worthwhile(data, batch_size):
        return "shuffled"
    if isinstance(data, packed.PackedRows):
        return "packed"
    return "bytes" if bytes.pay(data) else "plain"


def packs(data: PyTree, dtype: str, numbers: int) -> bool:
    """Whether a step on `numbers` numbers of a minibatch is faster with packed rows of these data.

    It is where the rest of a row finds room in the last cache line of its features.

    >>> wide, wider = ({"x": np.zeros((100_000, k)), "y": np.zeros(100_000)} for k in (100, 112))
    >>> packs(wide, "float32", 10**5), packs(wider, "float32", 10**5)
    (True, False)
    """
    features = data["x"]
    if not (isinstance(features, np.ndarray) and features.dtype.kind == "f"):
        return False
    columns = sum(leaf.shape[1] if leaf.ndim == 2 else 1 for leaf in data.values())
    room = packed.whole_lines(columns, dtype) == packed.whole_lines(features.shape[1], dtype)
    return (
        features.shape[1] >= packed.FEWEST
        and room
        and features.nbytes >= BEYOND_CACHES
        and numbers > SMALL_STEP
        and jax.default_backend() == "cpu"
    )


def begin_at_lines(data: PyTree) -> bool:
    """Whether there are long rows, beyond the caches, that begin at cache lines.

    Compiled into one kernel, a step takes up to twice as long to find them as rows that begin
    anywhere; several kernels do not.

    >>> begin_at_lines(np.zeros((100_000, 100))), begin_at_lines(np.zeros((100_000, 128)))
    (False, True)
    """
    return any(
        leaf.ndim == 2
        and leaf.shape[1] >= packed.FEWEST
        and leaf.shape[1] * leaf.dtype.itemsize % ALIGNMENT == 0
        and leaf.nbytes >= BEYOND_CACHES
        for leaf in jax.tree.leaves(data)
    )
