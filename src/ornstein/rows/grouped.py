"""Groups of different size on the device, and minibatches in which every group is equally likely.

How many groups of each bucket a minibatch of S groups holds is random, but compiled code needs
fixed shapes. So the groups drawn are put in order of size, largest first, and fill slots: the first
few slots hold as many rows as the longest bucket, the next fewer, and so on. The slots are as many
as do for all but one minibatch in some thousands. One that they do not fit is summed group by
group, each filled up to the longest: slowly, but with the same result, so that the law of the
minibatch is the plain one, noise C/S.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jax import lax

from ornstein.rows.ragged import Buckets
from ornstein.rows.strata import Strata
from ornstein.types import PyTree, Traced

OVERFLOW = 1e-4  # probability that a minibatch has more groups of a bucket than slots


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["rows", "groups", "starts", "counts"],
    meta_fields=["buckets", "strata"],
)
@dataclass(frozen=True)
class GroupedRows:
    """The rows of all groups in one table, and what there is once per group.

    Attributes:
        rows: by name, (rows, …), those of a group one after the other; groups in order of size.
        groups: by name, (N, …).
        starts, counts: where the rows of a group begin, and how many there are.
        strata: where minibatches have fixed numbers of groups of each size, how many.
    """

    rows: dict[str, Traced]
    groups: dict[str, Traced]
    starts: Traced
    counts: Traced
    buckets: Buckets
    strata: Strata | None = None

    def take(self, groups: Traced, length: int) -> dict[str, Traced]:
        """Examples of these groups, each filled up to `length` rows by its last one."""
        read = partial(_read, groups)
        within = jnp.minimum(jnp.arange(length), read(self.counts)[:, None] - 1)
        places = read(self.starts)[:, None] + within
        rows = {name: _read(places, leaf) for name, leaf in self.rows.items()}
        return rows | {name: read(leaf) for name, leaf in self.groups.items()}

    def each(self, function: Callable[[PyTree], Traced]) -> Traced:
        """`function` of every group, in their order."""
        found = [
            jax.vmap(function)(self.take(jnp.arange(first, stop), length))
            for length, first, stop in zip(
                self.buckets.lengths, self.buckets.firsts, self.buckets.stops, strict=True
            )
            if stop > first
        ]
        return jnp.concatenate(found)

    def mean_slope(
        self, function: Callable[[PyTree, PyTree], Traced], params: PyTree, batch: Traced
    ) -> PyTree:
        """The gradient, in the parameters, of the mean of `function(params, group)` over the groups
        in a minibatch.
        """
        if self.strata is not None:
            return self._slope_of_strata(function, params, batch, self.strata)
        ordered = -jnp.sort(-batch)
        slots = slots_of(self.buckets, batch.shape[0])
        if len(slots) == 1 and slots[0][0] == self.buckets.lengths[-1]:
            total = self._slope_of_slots(function, params, slots, ordered)
        else:
            total = lax.cond(
                _fits(self.buckets, slots, ordered),
                partial(self._slope_of_slots, function, params, slots),
                partial(self._slope_one_by_one, function, params),
                ordered,
            )
        return jax.tree.map(lambda leaf: leaf / batch.shape[0], total)

    def _slope_of_strata(
        self,
        function: Callable[[PyTree, PyTree], Traced],
        params: PyTree,
        batch: Traced,
        strata: Strata,
    ) -> PyTree:
        """Each bucket's mean, weighted with its share of all groups."""
        sizes, shares = strata.sizes(batch.shape[0]), strata.groups / self.buckets.groups

        def mean(params: PyTree) -> Traced:
            parts, start = [], 0
            for length, size, share in zip(self.buckets.lengths, sizes, shares, strict=True):
                groups = self.take(batch[start : start + size], length)
                parts.append(float(share) * jnp.mean(jax.vmap(partial(function, params))(groups)))
                start += size
            return sum(parts[1:], parts[0])

        return jax.grad(mean)(params)

    def _slope_of_slots(
        self,
        function: Callable[[PyTree, PyTree], Traced],
        params: PyTree,
        slots: tuple[tuple[int, int, int], ...],
        ordered: Traced,
    ) -> PyTree:
        def total(params: PyTree) -> Traced:
            parts = [
                jnp.sum(jax.vmap(partial(function, params))(self.take(ordered[first:stop], length)))
                for length, first, stop in slots
            ]
            return sum(parts[1:], parts[0])

        return jax.grad(total)(params)

    def _slope_one_by_one(
        self, function: Callable[[PyTree, PyTree], Traced], params: PyTree, ordered: Traced
    ) -> PyTree:
        longest = self.buckets.lengths[-1]

        def add(place: Traced, total: PyTree) -> PyTree:
            group = self.take(lax.dynamic_slice_in_dim(ordered, place, 1), longest)
            one = jax.grad(function)(params, jax.tree.map(lambda leaf: leaf[0], group))
            return jax.tree.map(jnp.add, total, one)

        return lax.fori_loop(0, ordered.shape[0], add, jax.tree.map(jnp.zeros_like, params))


def slots_of(buckets: Buckets, size: int) -> tuple[tuple[int, int, int], ...]:
    """Length, first and end of the slots of each length, the longest first.

    >>> slots_of(Buckets((2, 10), (0, 900), 1000), 100)
    ((10, 0, 23), (2, 23, 100))
    """
    slots: list[tuple[int, int, int]] = []
    done = 0
    for length, first in zip(reversed(buckets.lengths), reversed(buckets.firsts), strict=True):
        share = (buckets.groups - first) / buckets.groups
        most = int(scipy.stats.binom.isf(OVERFLOW, size, share)) if share < 1.0 else size
        stop = min(size, max(done, most))
        if stop > done:
            slots.append((length, done, stop))
        done = stop
    return tuple(slots)


def _fits(buckets: Buckets, slots: tuple[tuple[int, int, int], ...], ordered: Traced) -> Traced:
    """Whether every group is in a slot that is long enough: enough to ask it of the first of
    each length, groups being in order.
    """
    first_beyond = np.array(
        [buckets.stops[buckets.lengths.index(length)] for length, _, _ in slots]
    )
    firsts = np.array([first for _, first, _ in slots])
    return jnp.all(ordered[firsts] < jnp.asarray(first_beyond, ordered.dtype))


def _read(places: Traced, leaf: Any) -> Traced:
    return leaf.at[places].get(mode="promise_in_bounds")
