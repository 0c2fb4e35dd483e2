"""The compiled loop: steps of a kernel on minibatches drawn beforehand, and what is kept of them.

The number of steps between kept values is an argument of the compiled code, not a constant in it: warm-up, sampling and a ragged
end all use one compilation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.errors import JaxRuntimeError
from jax.experimental.xla_metadata import set_xla_metadata

from ornstein.compiled import compiled
from ornstein.model import Loss, Problem

KEPT = 7  # the place of `memory` among the arguments of a compiled block


@dataclass(frozen=True)
class Program:
    """What is compiled: the loss, the step, and whether positions are summed between kept values."""

    loss: Loss
    kernel: Any
    summed: bool
    kept: int  # rows of the buffer for kept values
    slice_rows: int = 0  # rows of a minibatch where it is a slice of the data and comes as its first row, else 0
    one_kernel: bool = False  # the whole loop compiled into one kernel, instead of several that are started at every step


@partial(compiled, given_away=(KEPT,))
def _run_kernels(program: Program, *arguments: Any) -> tuple[Any, Any, Any]:
    """`_loop` as XLA likes to compile it, as several kernels."""
    return _loop(program, *arguments)


@cache
def _one_kernel_options() -> dict[str, str]:
    """Keeps XLA from taking sums over many rows with a library, which no kernel can do inside; nothing where it has none."""
    options = {"xla_cpu_experimental_ynn_fusion_type": ""}
    try:
        jax.jit(lambda number: number, compiler_options=options).lower(0.0).compile()
    except JaxRuntimeError:
        return {}
    return options


@partial(compiled, options=_one_kernel_options, given_away=(KEPT,))
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
    batches, normals, factors = randomness
    given = problem._replace(data=None) if program.slice_rows else problem

    def one_step(step: Any, carry: Any) -> Any:
        current, total = carry
        batch = jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, step, 0, keepdims=False), batches)
        if program.slice_rows:
            first_row = batch
            batch = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, first_row, program.slice_rows, 0), problem.data)
        normal = None if normals is None else lax.dynamic_index_in_dim(normals, step, 0, keepdims=False)
        factor = 1.0 if factors is None else factors[step]
        current = program.kernel.step(
            arrays, current, lambda position: program.loss.gradient(given, position, batch), normal, factor
        )
        return current, (total + current["position"] if program.summed else total)

    def one_keep(number: Any, carry: Any) -> Any:
        current, positions, sums = carry
        start = first + number * stride
        zero = jnp.zeros_like(current["position"]) if program.summed else None
        current, total = lax.fori_loop(start, start + stride, one_step, (current, zero))
        positions = positions.at[number].set(current["position"])
        sums = sums.at[number].set(total) if program.summed else None
        return current, positions, sums

    return lax.fori_loop(0, keeps, one_keep, (state, *memory))


def kept_memory(program: Program, position: Any) -> tuple[Any, Any]:
    """Memory for the positions that a block keeps, and for their sums."""
    zeros = np.zeros((program.kept, position.size), position.dtype)  # jnp.zeros would be compiled for every shape
    return jnp.array(zeros), jnp.array(zeros) if program.summed else None
