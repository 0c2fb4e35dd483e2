"""The minibatch of every step, as a compiled loop gets it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ornstein.rows import uniform
from ornstein.types import PyTree, Traced

Step: TypeAlias = Callable[[Traced, PyTree, PyTree], PyTree]


@dataclass(frozen=True)
class Given:
    """Minibatches that were drawn beforehand, one for each step of a block."""

    def scratch(self) -> Traced:
        """Memory that `steps` hands on."""
        return None

    def steps(
        self,
        batches: PyTree,
        start: Traced,
        count: Traced,
        step: Step,
        moved: PyTree,
        scratch: Traced,
    ) -> tuple[PyTree, Traced]:
        """What `step(number, batch, moved)` leads to, `count` times from number `start` on."""

        def one(number: Traced, moved: PyTree) -> PyTree:
            batch = jax.tree.map(
                lambda leaf: lax.dynamic_index_in_dim(leaf, number, 0, keepdims=False), batches
            )
            return step(number, batch, moved)

        return lax.fori_loop(start, start + count, one, moved), scratch


@dataclass(frozen=True)
class Drawn:
    """Minibatches whose rows are drawn inside the loop, each for itself, and come as a seed."""

    batch_size: int
    n_data: int

    @property
    def at_once(self) -> int:
        """How many are drawn at once: a few kilobytes of indices, in the cache next to the
        processor.
        """
        return max(1, 1024 // self.batch_size)

    def scratch(self) -> Traced:
        """Memory for the indices, which `steps` hands on."""
        return jnp.zeros(uniform.room(self.at_once * self.batch_size), np.int32)

    def steps(
        self, seed: Traced, start: Traced, count: Traced, step: Step, moved: PyTree, scratch: Traced
    ) -> tuple[PyTree, Traced]:
        """As `Given.steps`, on minibatches drawn here, some at a time."""
        size = self.batch_size

        def some(portion: Traced, carry: PyTree) -> PyTree:
            moved, indices = carry
            here = start + portion * self.at_once
            number = jnp.minimum(self.at_once, start + count - here)
            indices = uniform.filled(indices, seed, here * size, number * size, self.n_data)

            def one(place: Traced, moved: PyTree) -> PyTree:
                batch = lax.dynamic_slice_in_dim(indices, place * size, size)
                return step(here + place, batch, moved)

            return lax.fori_loop(0, number, one, moved), indices

        portions = (count + self.at_once - 1) // self.at_once
        return lax.fori_loop(0, portions, some, (moved, scratch))
