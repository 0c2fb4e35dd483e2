"""The compiled loop: steps of a kernel on minibatches drawn beforehand, and what is kept of them.

The number of steps between kept values is an argument of the compiled code, not a constant in it: warm-up, sampling and a ragged
end all use one compilation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

from ornstein import uniform
from ornstein.compiled import WIDE, compiled, known_options
from ornstein.model import Loss, Problem

KEPT = 7  # the place of `memory` among the arguments of a compiled block
# Keeps XLA from taking sums over many rows with a library, which no kernel can do inside.
NO_LIBRARY = {"xla_cpu_experimental_ynn_fusion_type": ""}


@dataclass(frozen=True)
class Drawn:
    """Minibatches whose rows are drawn inside the loop, each for itself, and come as a seed."""

    batch_size: int
    n_data: int

    @property
    def steps(self) -> int:
        """How many are drawn at once: a few kilobytes of indices, in the cache next to the processor."""
        return max(1, 1024 // self.batch_size)


@dataclass(frozen=True)
class Program:
    """What is compiled: the loss, the step, and whether positions are summed between kept values."""

    loss: Loss
    kernel: Any
    summed: bool
    kept: int  # rows of the buffer for kept values
    slice_rows: int = (
        0  # rows of a minibatch where it is a slice of the data and comes as its first row, else 0
    )
    drawn: Drawn | None = None
    one_kernel: bool = False  # the whole loop compiled into one kernel, instead of several that are started at every step


@partial(compiled, options=partial(known_options, **WIDE), given_away=(KEPT,))
def _run_kernels(program: Program, *arguments: Any) -> tuple[Any, Any, Any]:
    """`_loop` as XLA likes to compile it, as several kernels."""
    return _loop(program, *arguments)


@partial(compiled, options=partial(known_options, **WIDE, **NO_LIBRARY), given_away=(KEPT,))
def _run_one_kernel(program: Program, *arguments: Any) -> tuple[Any, Any, Any]:
    """`_loop` as one kernel. XLA does so with loops over a few bytes; the marks make it do so with any, or mean nothing to it."""
    with set_xla_metadata(xla_cpu_small_call="true", inlineable="false"):
        return jax.jit(partial(_loop, program))(*arguments)


def run_block(program: Program, *arguments: Any) -> tuple[Any, Any, Any]:
    """`_loop`, compiled; the state at its end, and the memory given to it with the positions and sums kept."""
    return (_run_one_kernel if program.one_kernel else _run_kernels)(program, *arguments)


def _loop(
    program: Program,
    problem: Problem,
    arrays: Any,
    state: Any,
    randomness: Any,
    first: Any,
    keeps: Any,
    stride: Any,
    memory: Any,
) -> tuple[Any, Any, Any]:
    """`keeps` times: take `stride` steps, keep the position (and the sum of the positions on the way) in `memory`."""
    step = partial(_step, program, problem, arrays, randomness)
    batches, indices = randomness[0], None
    take = partial(_on_given, step, batches, stride)
    if program.drawn is not None:
        indices = jnp.zeros(uniform.room(program.drawn.steps * program.drawn.batch_size), np.int32)
        take = partial(_on_drawn, step, program.drawn, batches, stride)

    def one_keep(number: Any, carry: Any) -> Any:
        current, indices, positions, sums = carry
        zero = jnp.zeros_like(current["position"]) if program.summed else None
        (current, total), indices = take(first + number * stride, (current, zero), indices)
        positions = positions.at[number].set(current["position"])
        sums = sums.at[number].set(total) if program.summed else None
        return current, indices, positions, sums

    state, _, positions, sums = lax.fori_loop(0, keeps, one_keep, (state, indices, *memory))
    return state, positions, sums


def _step(
    program: Program,
    problem: Problem,
    arrays: Any,
    randomness: Any,
    number: Any,
    batch: Any,
    moved: Any,
) -> Any:
    """State and sum of positions after one more step, number `number` of the block."""
    (current, total), (_, normals, factors) = moved, randomness
    if program.slice_rows:
        batch, problem = (
            _slice(problem.data, batch, program.slice_rows),
            problem._replace(data=None),
        )
    normal = (
        None if normals is None else lax.dynamic_index_in_dim(normals, number, 0, keepdims=False)
    )
    factor = 1.0 if factors is None else factors[number]
    loss = program.loss
    slope = (
        loss.gradient_change
        if getattr(program.kernel, "control_variates", False)
        else loss.gradient
    )
    current = program.kernel.step(
        arrays, current, lambda position: slope(problem, position, batch), normal, factor
    )
    return current, (total + current["position"] if program.summed else total)


def _slice(data: Any, start: Any, rows: int) -> Any:
    return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, rows, 0), data)


def _on_given(
    step: Any, batches: Any, stride: Any, start: Any, moved: Any, indices: None
) -> tuple[Any, None]:
    """`stride` steps on minibatches that were drawn beforehand."""

    def one(number: Any, moved: Any) -> Any:
        return step(
            number,
            jax.tree.map(
                lambda leaf: lax.dynamic_index_in_dim(leaf, number, 0, keepdims=False), batches
            ),
            moved,
        )

    return lax.fori_loop(start, start + stride, one, moved), indices


def _on_drawn(
    step: Any, drawn: Drawn, seed: Any, stride: Any, start: Any, moved: Any, indices: Any
) -> tuple[Any, Any]:
    """`stride` steps on minibatches drawn here, some at a time, into the memory `indices`."""
    size = drawn.batch_size

    def some(portion: Any, carry: Any) -> Any:
        moved, indices = carry
        here = start + portion * drawn.steps
        count = jnp.minimum(drawn.steps, start + stride - here)
        indices = uniform.filled(indices, seed, here * size, count * size, drawn.n_data)

        def one(place: Any, moved: Any) -> Any:
            return step(here + place, lax.dynamic_slice_in_dim(indices, place * size, size), moved)

        return lax.fori_loop(0, count, one, moved), indices

    return lax.fori_loop(0, (stride + drawn.steps - 1) // drawn.steps, some, (moved, indices))


def kept_memory(program: Program, position: Any) -> tuple[Any, Any]:
    """Memory for the positions that a block keeps, and for their sums."""
    zeros = np.zeros(
        (program.kept, position.size), position.dtype
    )  # jnp.zeros would be compiled for every shape
    return jnp.array(zeros), jnp.array(zeros) if program.summed else None
