"""Groups of different size: minibatches in which every group is equally likely."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ornstein.rows.grouped import GroupedRows, slots_of
from ornstein.rows.ragged import Buckets, Ragged

COUNTS = np.array([1, 1, 1, 1, 2, 2, 2, 2, 4, 5])
BUCKETS = Buckets((2, 5), (0, 8), 10)


def held():
    """Ten groups, the values of whose rows are all different."""
    starts = np.cumsum(COUNTS) - COUNTS
    values = np.arange(1.0, COUNTS.sum() + 1.0)
    rows = {"x": jnp.asarray(values)}
    counts = jnp.asarray(COUNTS)
    return GroupedRows(rows, {"held": counts}, jnp.asarray(starts), counts, BUCKETS)


def misfit(params, group):
    """Quadratic in the parameter, with the rows that count."""
    own = jnp.arange(group["x"].shape[0]) < group["held"]
    return jnp.sum(jnp.where(own, 0.5 * (params - group["x"]) ** 2, 0.0))


def slopes(params):
    ends = np.cumsum(COUNTS)
    return np.array(
        [
            np.sum(params - np.arange(end - count + 1, end + 1))
            for end, count in zip(ends, COUNTS, strict=True)
        ]
    )


@pytest.mark.parametrize(
    "batch",
    [
        [0, 4, 7, 9],  # fits the slots
        [3, 3, 1, 0],  # repeated groups, none of the long ones
        [9, 9, 8, 9, 8, 8, 9, 9, 9, 9, 9, 9],  # more long groups than slots
    ],
)
def test_any_minibatch_has_the_mean_slope_of_its_groups(batch):
    assert slots_of(BUCKETS, 12)[0][2] < 12, "the last batch must not fit the slots"
    found = held().mean_slope(misfit, jnp.asarray(2.0), jnp.asarray(batch))
    assert float(found) == pytest.approx(slopes(2.0)[batch].mean(), rel=1e-6)


def test_the_law_of_a_minibatch_is_that_of_equal_probability():
    """All minibatches of two: mean of the slope, and variance C/2."""
    rows, every = held(), slopes(2.0)
    pairs = np.array([(a, b) for a in range(10) for b in range(10)])
    found = jax.vmap(lambda pair: rows.mean_slope(misfit, jnp.asarray(2.0), pair))(pairs)
    assert float(np.mean(found)) == pytest.approx(every.mean(), rel=1e-6)
    assert float(np.var(found)) == pytest.approx(every.var() / 2.0, rel=1e-5)
    fixed = np.array([(a, b) for a in range(8) for b in (8, 9)])
    counts = [float(rows.mean_slope(misfit, jnp.asarray(2.0), pair)) for pair in fixed]
    assert abs(np.var(counts) / (every.var() / 2.0) - 1.0) > 0.2, "fixed counts have another law"


def test_ragged_rows_are_those_on_the_device():
    rows = held()
    starts = np.cumsum(COUNTS) - COUNTS
    ragged = Ragged(np.asarray(rows.rows["x"]), starts, COUNTS, BUCKETS)
    for groups in (slice(0, 3), np.array([9, 2])):
        chosen = np.arange(10)[groups]
        length = ragged[groups].shape[1]
        taken = rows.take(jnp.asarray(chosen), length)["x"]
        assert np.array_equal(ragged[groups], taken)
        assert length == BUCKETS.length_of(chosen.max())
