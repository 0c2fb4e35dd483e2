"""The compiled loop: steps of a kernel on minibatches, and what is kept of them.

The number of steps between kept values is an argument of the compiled code, not a constant in it:
warm-up, sampling and a ragged end all use one compilation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import lax

from ornstein.compute.compiled import compiled_as_one_kernel, compiled_as_several
from ornstein.compute.kernel import Kernel, State
from ornstein.model.loss import Loss, Problem
from ornstein.rows.supply import Drawn, Given
from ornstein.types import PyTree, Traced

GIVEN = Given()
KEPT = 7  # the place of `memory` among the arguments of a compiled block

Memory: TypeAlias = tuple[Traced, Traced | None]  # for kept positions, and for sums of positions
Randomness: TypeAlias = tuple[PyTree, Traced | None, Traced | None]  # minibatches, normals, factors


@dataclass(frozen=True)
class Program:
    """What is compiled.

    Attributes:
        loss: whose gradients are taken.
        kernel: the step.
        summed: whether positions are summed between kept values.
        kept: rows of the memory for kept values.
        supply: how the loop gets its minibatches.
        one_kernel: the whole loop compiled into one kernel, instead of several that are started at
            every step.
    """

    loss: Loss
    kernel: Kernel
    summed: bool
    kept: int
    supply: Given | Drawn = GIVEN
    one_kernel: bool = False


def run_block(
    program: Program, problem: Problem, arrays: Mapping[str, Traced], *rest: PyTree
) -> tuple[State, Traced, Traced | None]:
    """`_loop`, compiled; the state at its end, and the memory given to it with the positions and
    sums kept.
    """
    run = _run_one_kernel if program.one_kernel else _run_kernels
    return run(program, problem, arrays, *rest)


def _loop(
    program: Program,
    problem: Problem,
    arrays: Mapping[str, Traced],
    state: State,
    randomness: Randomness,
    first: Traced,
    keeps: Traced,
    stride: Traced,
    memory: Memory,
) -> tuple[State, Traced, Traced | None]:
    """`keeps` times: take `stride` steps, keep the position (and the sum of the positions on the
    way) in `memory`.
    """
    batches, normals, factors = randomness
    step = partial(_step, program, problem, arrays, normals, factors)

    def one_keep(number: Traced, carry: PyTree) -> PyTree:
        current, scratch, positions, sums = carry
        zero = jnp.zeros_like(current["position"]) if program.summed else None
        (current, total), scratch = program.supply.steps(
            batches, first + number * stride, stride, step, (current, zero), scratch
        )
        positions = positions.at[number].set(current["position"])
        sums = sums.at[number].set(total) if program.summed else None
        return current, scratch, positions, sums

    begin = (state, program.supply.scratch(), *memory)
    state, _, positions, sums = lax.fori_loop(0, keeps, one_keep, begin)
    return state, positions, sums


_run_kernels = compiled_as_several(_loop, given_away=(KEPT,))
_run_one_kernel = compiled_as_one_kernel(_loop, given_away=(KEPT,))


def _step(
    program: Program,
    problem: Problem,
    arrays: Mapping[str, Traced],
    normals: Traced | None,
    factors: Traced | None,
    number: Traced,
    batch: PyTree,
    moved: tuple[State, Traced | None],
) -> tuple[State, Traced | None]:
    """State and sum of positions after one more step, number `number` of the block."""
    current, total = moved
    normal = (
        None if normals is None else lax.dynamic_index_in_dim(normals, number, 0, keepdims=False)
    )
    factor = 1.0 if factors is None else factors[number]
    loss = program.loss
    slope = loss.gradient_change if program.kernel.control_variates else loss.gradient
    current = program.kernel.step(
        arrays, current, lambda position: slope(problem, position, batch), normal, factor
    )
    return current, (None if total is None else total + current["position"])


def kept_memory(program: Program, position: Traced) -> Memory:
    """Memory for the positions that a block keeps, and for their sums."""
    # jnp.zeros would be compiled for every shape
    zeros = np.zeros((program.kept, position.size), position.dtype)
    return jnp.array(zeros), jnp.array(zeros) if program.summed else None
