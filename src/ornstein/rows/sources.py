"""Streams of minibatches: as row indices, as seeds, or as the first rows of slices; each can be
saved and restored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ornstein.rows.memory import DoubleBuffer
from ornstein.rows.shuffled import Order, ShuffledRows
from ornstein.rows.strata import Strata
from ornstein.rows.unequal import UnequalRows
from ornstein.rows.uniform import fill, index_dtype, new_seed
from ornstein.types import Array

Indices: TypeAlias = Array  # of 32 or 64 bits


def generator_state(generator: np.random.Generator) -> dict[str, NDArray[np.uint64]]:
    """The state of an SFC64 generator as arrays."""
    state = generator.bit_generator.state
    words = np.asarray(state["state"]["state"], dtype=np.uint64)
    half = np.array([state["has_uint32"], state["uinteger"]], dtype=np.uint64)
    return {"words": words.copy(), "half": half}


def generator_from_state(state: Mapping[str, NDArray[np.generic]]) -> np.random.Generator:
    """A generator that goes on where `generator_state` was taken."""
    bits = np.random.SFC64(0)
    bits.state = {
        "bit_generator": "SFC64",
        "state": {"state": np.asarray(state["words"], dtype=np.uint64)},
        "has_uint32": int(np.asarray(state["half"], dtype=np.uint64)[0]),
        "uinteger": int(np.asarray(state["half"], dtype=np.uint64)[1]),
    }
    return np.random.Generator(bits)


@dataclass
class IndexSource:
    """A stream of minibatches as row indices; `state()` and `restore()` make it part of a
    checkpoint. Beyond 2³¹ rows indices have 64 bits.
    """

    scheme: str
    n_data: int
    batch_size: int
    generator: np.random.Generator
    permutation: Indices | None = None
    used: int = 0
    # where given, what is drawn stays there until the draw after the next
    memory: DoubleBuffer | None = None
    # how likely each row is, for the schemes "leverage" and "stratified"
    unequal: UnequalRows | Strata | None = None

    @property
    def dtype(self) -> type[np.int32] | type[np.int64]:
        return index_dtype(self.n_data)

    def draw(self, steps: int) -> Indices:
        """Indices of the next `steps` minibatches, shape (steps, S)."""
        if self.unequal is not None:
            return self.unequal.draw(self.generator, (steps, self.batch_size))
        if self.scheme == "replacement":
            return self._independent(steps)
        if self.scheme == "without-replacement":
            return self._distinct(steps)
        return self._slices(steps)

    def _independent(self, steps: int) -> Indices:
        """Every row of every minibatch for itself; the same ones that a loop draws from the seed of
        a `SeedSource`.
        """
        shape = (steps, self.batch_size)
        rows = (
            np.empty(shape, dtype=self.dtype)
            if self.memory is None
            else self.memory.array(shape, self.dtype)
        )
        fill(rows.reshape(-1), new_seed(self.generator), self.n_data)
        return rows

    def _distinct(self, steps: int) -> Indices:
        """The first S distinct values of an independent uniform stream: exactly uniform over
        subsets.
        """
        if 8 * self.batch_size > self.n_data:
            keys = np.tile(np.arange(self.n_data, dtype=self.dtype), (steps, 1))
            return self.generator.permuted(keys, axis=1)[:, : self.batch_size].copy()
        rows = self.generator.integers(0, self.n_data, (steps, self.batch_size), dtype=self.dtype)
        while True:
            rows.sort(axis=1)
            again = np.zeros(rows.shape, dtype=bool)
            again[:, 1:] = rows[:, 1:] == rows[:, :-1]
            count = int(again.sum())
            if count == 0:
                return rows
            rows[again] = self.generator.integers(0, self.n_data, count, dtype=self.dtype)

    def _slices(self, steps: int) -> Indices:
        """Wrap-around slices of shuffled rows; new permutation after every N/S steps."""
        per_permutation = max(1, self.n_data // self.batch_size)
        out = np.empty((steps, self.batch_size), dtype=self.dtype)
        within = np.arange(self.batch_size, dtype=np.int64)
        done = 0
        while done < steps:
            if self.permutation is None or self.used >= per_permutation:
                self.permutation = self.generator.permutation(self.n_data).astype(self.dtype)
                self.used = 0
            take = min(steps - done, per_permutation - self.used)
            starts = self.generator.integers(0, self.n_data, take)
            out[done : done + take] = self.permutation[(starts[:, None] + within) % self.n_data]
            self.used += take
            done += take
        return out

    def state(self) -> dict[str, Array]:
        permutation = (
            np.empty(0, dtype=self.dtype) if self.permutation is None else self.permutation
        )
        return {
            **generator_state(self.generator),
            "permutation": permutation,
            "used": np.asarray(self.used),
        }

    def require(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Refuse a state that this source cannot have been in."""
        permutation, used = state["permutation"], int(state["used"])
        whole = np.array_equal(np.sort(permutation), np.arange(self.n_data))
        if (permutation.size and not whole) or not 0 <= used <= self.n_data // self.batch_size + 1:
            raise ValueError(f"a permutation of {permutation.size} rows, {used} slices taken")
        if permutation.size and self.scheme != "slices":
            raise ValueError(f"a permutation, which minibatches {self.scheme} have no use for")

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        self.generator = generator_from_state({"words": state["words"], "half": state["half"]})
        self.permutation = (
            np.asarray(state["permutation"], dtype=self.dtype)
            if state["permutation"].size
            else None
        )
        self.used = int(np.asarray(state["used"], dtype=np.int64))


@dataclass
class SeedSource:
    """A stream of minibatches with replacement as seeds, from which the compiled loop draws the
    rows itself.
    """

    generator: np.random.Generator

    def draw(self, steps: int) -> NDArray[np.uint32]:
        """What stands for the next `steps` minibatches, or any other number of them."""
        return new_seed(self.generator)

    def require(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """A generator is all there is to it."""

    def state(self) -> dict[str, NDArray[np.uint64]]:
        return generator_state(self.generator)

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        self.generator = generator_from_state(state)


@dataclass
class SliceSource:
    """A stream of minibatches as the first rows of slices of shuffled rows, drawn in blocks of
    equal length.
    """

    shuffled: ShuffledRows
    generator: np.random.Generator
    blocks: int = 0

    def draw(self, steps: int) -> NDArray[np.int32]:
        """Where the next `steps` minibatches start, shape (steps,); in which order of the rows,
        `order` tells.
        """
        self.blocks += 1
        return self.generator.integers(0, self.shuffled.n_data, steps, dtype=np.int32)

    def order(self, steps: int) -> Order:
        """The rows of the block of `steps` minibatches that was drawn last."""
        lasting = self.shuffled.lasting(steps)
        number, place = divmod(self.blocks - 1, lasting)
        order = self.shuffled.order(number)
        # a run that is over after the first block has no use for another order
        if place > 0 or lasting == 1:
            self.shuffled.prepare(number + 1)
        return order

    def state(self) -> dict[str, NDArray[np.uint64] | NDArray[np.int64]]:
        return {**generator_state(self.generator), "blocks": np.asarray(self.blocks)}

    def require(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Refuse a state that this source cannot have been in."""
        if not 0 <= int(state["blocks"]) <= 10**15:
            raise ValueError(f"{state['blocks']} blocks of slices")

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        self.generator = generator_from_state(state)
        self.blocks = int(np.asarray(state["blocks"], dtype=np.int64))
