"""How many steps a block of randomness has, and how many values it keeps."""

from __future__ import annotations

import math

from ornstein.compute.kernel import Runnable

# About 4 MB of indices, and as much of normals and kept positions: large enough that a block runs
# for milliseconds, small enough that the memory of a chain stays far below that of its data.
BLOCK_NUMBERS = 2**20
# A step without normals needs no number per parameter: above so few, a block shrinks with a 64th of
# them alone, so that one of a million parameters still holds tens of steps and runs for tens of
# milliseconds.
PARAMETERS_PER_NUMBER, FEW_PARAMETERS = 64, 1024


def block_length(dynamics: Runnable, dimension: int) -> int:
    """Steps per block of randomness, such that indices and normals stay bounded and what is kept
    costs little beside the steps.

    >>> import numpy as np
    >>> from ornstein import Dynamics
    >>> [
    ...     block_length(Dynamics(np.asarray(0.1), 16), dimension)
    ...     for dimension in (10, 10_000, 1_000_000)
    ... ]
    [65536, 1024, 67]
    >>> [
    ...     block_length(Dynamics(np.asarray(0.1), 16, injected=np.asarray(0.1)), dimension)
    ...     for dimension in (10, 1_000_000)
    ... ]
    [65536, 1]
    """
    if not dynamics.kernel().needs_normals:
        dimension = min(dimension, max(FEW_PARAMETERS, dimension // PARAMETERS_PER_NUMBER))
    return max(1, BLOCK_NUMBERS // max(dynamics.batch_size, dimension))


def kept_rows(steps: int, dimension: int) -> int:
    """Rows for kept values: fewer than steps where those are many, for they are memory of every
    chain.
    """
    return max(1, min(steps, BLOCK_NUMBERS // (4 * dimension)))


def divisor_within(steps: int, limit: int) -> int:
    """The largest divisor of `steps` that is at most `limit`.

    >>> divisor_within(1000, 300)
    250
    """
    best = 1
    for candidate in range(1, math.isqrt(steps) + 1):
        if steps % candidate == 0:
            for divisor in (candidate, steps // candidate):
                if best < divisor <= limit:
                    best = divisor
    return best
