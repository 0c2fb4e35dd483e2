"""Data laid out in a random order, so that a minibatch is a slice: read from one end to the other
instead of row by row.

Rows drawn one by one from data beyond the processor's caches cost more to find than to compute
with. A slice that starts anywhere and wraps around has the same first two moments as S distinct
rows, averaged over orders; given one order its covariance is off by a relative √(2S/N) at most. T
steps see T·S/(PASSES·N) orders, whose mean is off by √(2·PASSES/T). The Monte-Carlo error of a
covariance from one chain is √(2τ/T), and chains tuned to the posterior forget within τ ≈ N/(2S)
steps: 256 or more, because `worthwhile` asks for N/S of 512. Chains share the orders, so that with
32 of them the two are about equal.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from weakref import WeakValueDictionary

import jax
import numpy as np
from numpy.typing import NDArray

from ornstein.compute.precision import double
from ornstein.rows.memory import BEYOND_CACHES, aligned
from ornstein.streams import Purpose, stream
from ornstein.types import Array, PyTree

# over the data before they are shuffled again, which takes as long as reading them some four times
PASSES = 8
FEWEST_SLICES = 64 * PASSES


@dataclass(frozen=True, eq=False)
class Order:
    """The data in one order, the first S − 1 rows once more at the end."""

    data: PyTree


class ShuffledRows:
    """One order after the other, shared by all chains: number and seed determine it, and a thread
    prepares the next one.

    >>> rows = ShuffledRows(np.arange(6), batch_size=3, seed=0)
    >>> order = np.asarray(rows.order(0).data)
    >>> (
    ...     sorted(order[:6].tolist()),
    ...     np.array_equal(order[6:], order[:2]),
    ...     np.array_equal(order, rows.order(1).data),
    ... )
    ([0, 1, 2, 3, 4, 5], True, False)
    """

    def __init__(self, data: PyTree, batch_size: int, seed: int) -> None:
        self.batch_size = batch_size
        self._data, self._seed = jax.tree.map(np.asarray, data), seed
        # Chains hold the orders that they use: what none of them needs any more is gone.
        self._used: WeakValueDictionary[int, Order] = WeakValueDictionary()
        self._ahead: tuple[int, Future[Order]] | None = None
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ornstein-shuffle")

    @property
    def n_data(self) -> int:
        return int(jax.tree.leaves(self._data)[0].shape[0])

    def lasting(self, steps: int) -> int:
        """For how many blocks of `steps` minibatches an order lasts."""
        return -(-PASSES * self.n_data // (self.batch_size * steps))

    def order(self, number: int) -> Order:
        with self._lock:
            order = self._used.get(number)
            if order is None:
                waiting, self._ahead = self._ahead, None
                if waiting is None or waiting[0] != number:
                    waiting = (number, self._thread.submit(self._shuffled, number))
                order = self._used[number] = waiting[1].result()
            return order

    def prepare(self, number: int) -> None:
        """Have a thread of its own shuffle what will be asked for."""
        with self._lock:
            if number not in self._used and (self._ahead is None or self._ahead[0] != number):
                self._ahead = (number, self._thread.submit(self._shuffled, number))

    def _shuffled(self, number: int) -> Order:
        permutation = stream(self._seed, Purpose.ORDER, number).permutation(self.n_data)
        return Order(jax.tree.map(lambda leaf: self._laid_out(leaf, permutation), self._data))

    def _laid_out(self, leaf: Array, permutation: NDArray[np.int64]) -> jax.Array:
        rows = len(leaf)
        place = aligned((rows + self.batch_size - 1, *leaf.shape[1:]), leaf.dtype)
        # the other modes copy the whole result
        np.take(leaf, permutation, axis=0, out=place[:rows], mode="clip")
        place[rows:] = place[: self.batch_size - 1]
        with double():  # which keeps numbers in 64 bits, and others as they are
            return jax.device_put(place)


def worthwhile(data: PyTree, batch_size: int) -> bool:
    """Whether slices are faster than rows found one by one, and orders many enough for the law not
    to notice.

    >>> worthwhile(np.zeros((100_000, 10)), 10), worthwhile(np.zeros((1_000_000, 10)), 10)
    (False, True)
    """
    leaves = jax.tree.leaves(data)
    rows = leaves[0].shape[0]
    return bool(
        sum(leaf.nbytes for leaf in leaves) >= BEYOND_CACHES and rows >= FEWEST_SLICES * batch_size
    )
