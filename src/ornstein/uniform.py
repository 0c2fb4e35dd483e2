"""Uniform integers by the million, for minibatches.

A compiled pass makes all of them from one seed. Word i is SplitMix64's (Steele, Lea and Flood, 2014): the bits of seed + (i+1)·γ,
mixed. No word waits for the one before, so that several are made at once, in half of the time that NumPy takes one by one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from ornstein.precision import double

PIECE = 2**15  # integers copied and looked through at a time: what a core's cache holds beside the rows of the chains
FEW = 2**15  # up to so many, NumPy has drawn them before a compiled pass has begun
GAMMA = np.uint64(0x9E3779B97F4A7C15)
LOW, HIGH = np.uint64(2**32 - 1), np.uint64(2**64 - 2**32)


def _words(seed: Any, count: int) -> Any:
    """The first `count` words of SplitMix64."""
    word = seed + GAMMA + lax.iota(np.uint32, count).astype(np.uint64) * GAMMA
    word = (word ^ (word >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> 27)) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> 31)


@partial(jax.jit, static_argnums=0, donate_argnums=4, keep_unused=True)
def _pairs(count: int, seed: Any, below: Any, surplus: Any, memory: Any) -> Any:
    """Two integers on 0…below−1 from each of `count` words, one from each half h of 32 bits: ⌊h·below / 2³²⌋ (Lemire, 2019).

    2³² halves fall on `below` values unevenly; without those whose product ends on less than `surplus` = 2³² mod below it is the
    same number each. They are marked by −1. The result lies where `memory` was.
    """
    words, below, surplus = _words(seed, count), below.astype(np.uint64), surplus.astype(np.uint64)
    first, second = (words & LOW) * below, (words >> 32) * below
    first = jnp.where(first & LOW < surplus, LOW, first >> 32)
    second = jnp.where(second & LOW < surplus, HIGH, second & HIGH)
    return first | second


class UniformIntegers:
    """Fills arrays with independent integers, uniform on 0…below−1, in memory that it uses again and again.

    >>> from collections import Counter
    >>> out = np.empty(300_000, dtype=np.int32)
    >>> UniformIntegers(3).fill(np.random.default_rng(0), out)
    >>> sorted(Counter(out.tolist()))
    [0, 1, 2]
    """

    def __init__(self, below: int) -> None:
        self.below = below
        self._memory: Any = None

    def fill(self, generator: np.random.Generator, out: NDArray[np.int32]) -> None:
        """Fill `out`; `generator` gives the seed, and what stands for integers that were rejected."""
        if out.size <= FEW:
            out[:] = generator.integers(0, self.below, out.size, dtype=np.int32)
            return
        pairs = 1 << (out.size - 1).bit_length() - 1  # a power of two: no compilation for every length
        seed = generator.integers(0, 2**64, dtype=np.uint64)
        with double():
            if self._memory is None or self._memory.size != pairs:
                self._memory = jnp.array(np.zeros(pairs, np.uint64))
            self._memory = _pairs(pairs, seed, np.uint32(self.below), np.uint32(2**32 % self.below), self._memory)
            jax.block_until_ready(self._memory)
            found = np.from_dlpack(self._memory).view(np.int32)
        for start in range(0, out.size, PIECE):
            piece = out[start : start + PIECE]
            piece[:] = found[start : start + piece.size]
            rejected = np.flatnonzero(piece < 0)
            piece[rejected] = generator.integers(0, self.below, rejected.size, dtype=np.int32)
