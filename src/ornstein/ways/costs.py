"""What things cost on the reference machine: one core of an Intel Xeon at 2.5 GHz, AVX-512, with
nothing else to do.

The choice between ways looks at these numbers and never at a clock, so that it is the same
everywhere. What is shown to users is multiplied by `machine_factor`, measured once per process.
"""

from __future__ import annotations

import time
from functools import cache

import numpy as np

from ornstein.compute.one_thread import one_thread

# Seconds. A gradient of all rows takes ROW + COLUMN·D for each, one density value among many
# (as products of matrices) POINT_ROW + POINT_COLUMN·D.
ROW, COLUMN = 8e-9, 2.0e-9
POINT_ROW, POINT_COLUMN = 5e-8, 2e-10
# A leapfrog step, and its share of D² for the coordinates.
LEAPFROG, LEAPFROG_SQUARE = 2.5e-5, 1e-9
# A step on a minibatch: the step itself, each row, each number of a row, D² for a full step.
STEP, STEP_ROW, STEP_COLUMN, STEP_SQUARE = 1.2e-6, 6e-9, 1.0e-9, 1.6e-10
# A gradient of all chains in lockstep, beside the rows.
KICK = 3e-4
# Compiling a chain of stochastic gradients, and one of NUTS.
COMPILING, COMPILING_NUTS = 0.6, 2.5
# The matrix equations of a sampler's law, times D³.
TUNING = 1e-9
# An independent draw: its normal numbers, and their product with a matrix.
DRAW_COLUMN, DRAW_SQUARE = 2e-8, 5e-11

# The budget where none is given: PRODUCTS products of numbers, that is a few minutes of NUTS, as
# passes over N rows of D parameters; and the fewest and most passes.
PRODUCTS, FEWEST, MOST = 3e11, 2000.0, 8e6


def default_budget(n_data: int, dimension: int) -> float:
    """Passes over the data that are allowed where no budget is given.

    >>> default_budget(1000, 5), default_budget(500_000, 378)
    (8000000.0, 2000.0)
    """
    return float(np.clip(PRODUCTS / (n_data * (dimension + 10.0)), FEWEST, MOST))


def gradient_seconds(n_data: int, dimension: int) -> float:
    """A gradient of all rows."""
    return n_data * (ROW + COLUMN * dimension)


def point_seconds(n_data: int, dimension: int) -> float:
    """The density at one point among many."""
    return n_data * (POINT_ROW + POINT_COLUMN * dimension)


def step_seconds(rows: int, dimension: int, full: bool) -> float:
    """A step on a minibatch of this number of rows."""
    square = STEP_SQUARE * dimension**2 if full else 0.0
    return STEP + rows * (STEP_ROW + STEP_COLUMN * dimension) + square


def tuning_seconds(dimension: int) -> float:
    """Tuning a sampler and predicting its law; at least."""
    return TUNING * dimension**3


def drawing_seconds(draws: int, dimension: int) -> float:
    """Independent draws from a Gaussian."""
    return draws * (DRAW_COLUMN * dimension + DRAW_SQUARE * dimension**2)


@cache
@one_thread()
def machine_factor() -> float:
    """How many times slower a core of this machine is than the reference: products of matrices,
    timed once per process. Only shown, never chosen by.
    """
    matrix = np.random.default_rng(0).standard_normal((400, 400))
    times = []
    for _ in range(5):
        began = time.perf_counter()
        _ = matrix @ matrix
        times.append(time.perf_counter() - began)
    return float(np.clip(min(times) / 2.2e-3, 0.2, 20.0))
