"""Rows as bytes: the same numbers to the last bit, in the same memory, and only where it pays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ornstein.compute.precision import width
from ornstein.rows.bytes import FEWEST, MOST, RowBytes, as_bytes, as_numbers


def numbers(dtype, columns=20):
    values = np.random.default_rng(0).normal(size=(50, columns)).astype(dtype)
    values[3, :5] = [0.0, -0.0, np.inf, np.nan, np.finfo(dtype).smallest_subnormal]
    return values


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [FEWEST, MOST])
def test_rows_taken_from_bytes_are_those_taken_from_numbers(dtype, columns):
    values, chosen = numbers(dtype, columns), np.array([3, 49, 3, 0])
    with width(dtype):
        held = as_bytes({"x": jnp.asarray(values), "y": jnp.arange(50)})
        found = jax.jit(lambda data, rows: as_numbers(jax.tree.map(lambda leaf: leaf[rows], data)))(
            held, chosen
        )
    assert isinstance(held["x"], RowBytes) and found["x"].dtype == dtype
    assert np.asarray(found["x"]).tobytes() == values[chosen].tobytes()
    assert np.array_equal(found["y"], chosen)


def test_the_memory_is_that_of_the_numbers():
    values = jnp.asarray(np.ones((1000, 20), dtype=np.float32))
    assert as_bytes(values).data.unsafe_buffer_pointer() == values.unsafe_buffer_pointer()


@pytest.mark.parametrize(
    "leaf",
    [
        np.ones(50),
        np.ones((50, FEWEST - 1)),
        np.ones((50, MOST + 1)),
        np.ones((50, 20), dtype=np.int32),
        np.ones((50, 4, 20)),
    ],
    ids=["one column", "narrow", "wide", "whole numbers", "rows of matrices"],
)
def test_others_are_left_alone(leaf):
    leaf = jnp.asarray(leaf)
    assert as_bytes([leaf])[0] is leaf and as_numbers([leaf])[0] is leaf
    assert as_bytes(None) is None  # rows that are handed in with every step
