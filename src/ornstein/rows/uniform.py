"""Uniform integers for minibatches, each from a seed and its number alone.

Integer i is ⌊w·N / 2⁶⁴⌋, where w is word i of SplitMix64 (Steele, Lea and Flood, 2014): the bits of
seed + (i+1)·γ, mixed. Every value has the chance 1/N up to a part in 2⁶⁴/N, which no run is long
enough to show. Up to 2³¹ rows have indices of 32 bits, more of them 64. No word waits for the one
before: a compiled loop makes the few that its next steps need in 0.2 ns each (`filled`), a tenth of
what it costs to draw them elsewhere and bring them there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import jax
import numpy as np
from jax import lax
from numpy.typing import NDArray

from ornstein.compute.compiled import WIDE, known_options
from ornstein.compute.precision import double
from ornstein.types import Array, Traced

GAMMA = np.uint64(0x9E3779B97F4A7C15)
LOW, HALF, ONE = np.uint64(2**32 - 1), np.uint64(32), np.uint64(1)
LANES = 64  # integers made at once inside a loop; fewer than this are made in vain
NARROW = 2**31  # up to this number of rows have indices of 32 bits
FEW = 2**12  # up to this number, NumPy has made them before compiled code has begun


def new_seed(generator: np.random.Generator) -> NDArray[np.uint32]:
    """64 random bits in two halves, which JAX takes in any precision."""
    return generator.integers(0, 2**32, 2, dtype=np.uint32)


def words(seed: Traced, numbers: Traced) -> Traced:
    """These words of SplitMix64, of NumPy's or JAX's 64-bit numbers."""
    word = seed + (numbers + ONE) * GAMMA
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


def index_dtype(below: int) -> type[np.int32] | type[np.int64]:
    """The type that holds the integers 0…below−1: 32 bits where those are enough.

    >>> index_dtype(2**31).__name__, index_dtype(2**31 + 1).__name__
    ('int32', 'int64')
    """
    return np.int32 if below <= NARROW else np.int64


def integers(seed: Traced, numbers: Traced, below: Traced, wide: bool = False) -> Traced:
    """The integers of these numbers on 0…below−1: ⌊w·below / 2⁶⁴⌋ by products of halves, none of
    which is beyond 64 bits. More than 2³¹ of them are `wide`.
    """
    word = words((seed[0].astype(np.uint64) << HALF) | seed[1].astype(np.uint64), numbers)
    if wide:
        return _high_half(word, below).astype(np.int64)
    carried = (word & LOW) * below >> HALF
    return ((word >> HALF) * below + carried >> HALF).astype(np.int32)


def _high_half(word: Traced, below: Traced) -> Traced:
    """⌊word·below / 2⁶⁴⌋ where both have 64 bits."""
    left, right = word >> HALF, word & LOW
    high, low = below >> HALF, below & LOW
    carried = (right * low >> HALF) + (left * low & LOW) + (right * high & LOW)
    return left * high + (left * low >> HALF) + (right * high >> HALF) + (carried >> HALF)


def filled(memory: Traced, seed: Traced, first: Traced, count: Traced, below: int) -> Traced:
    """Inside compiled code: `memory` with the integers number first…first+count−1 at its start.

    Its length is a multiple of LANES; what lies behind the integers, up to the next multiple, is
    written over.
    """

    def some(number: Traced, memory: Traced) -> Traced:
        with double():
            start = (first + number * LANES).astype(np.uint64)
            values = integers(seed, start + lax.iota(np.uint64, LANES), np.uint64(below))
        return lax.dynamic_update_slice_in_dim(memory, values, number * LANES, 0)

    return lax.fori_loop(0, (count + (LANES - 1)) // LANES, some, memory)


def room(integers: int) -> int:
    """The length of the memory that `filled` needs for these integers.

    >>> room(100)
    128
    """
    return -(-integers // LANES) * LANES


def fill(out: Array, seed: NDArray[np.uint32], below: int) -> None:
    """Fill `out`, of the type `index_dtype(below)`, with the integers from number 0 on.

    >>> from collections import Counter
    >>> out = np.empty(300_000, dtype=np.int32)
    >>> fill(out, new_seed(np.random.default_rng(0)), 3)
    >>> sorted(Counter(out.tolist()))
    [0, 1, 2]
    """
    if out.size <= FEW:
        numbers = np.arange(out.size, dtype=np.uint64)
        out[:] = integers(seed, numbers, np.uint64(below), below > NARROW)
        return
    count = 1 << (out.size - 1).bit_length()  # a power of two: no compilation for every length
    with double():
        found = _compiled_integers()(count, seed, np.uint64(below), below > NARROW)
        # from_dlpack would wait too, but keep the interpreter from others meanwhile
        found.block_until_ready()
    out[:] = np.from_dlpack(found)[: out.size]


@cache
def _compiled_integers() -> Callable[..., Traced]:
    def first(count: int, seed: Traced, below: Traced, wide: bool) -> Traced:
        return integers(seed, lax.iota(np.uint64, count), below, wide)

    return jax.jit(first, static_argnums=(0, 3), compiler_options=known_options(**WIDE))
