"""Minibatches of more rows than an index of 32 bits can name."""

from __future__ import annotations

import os

import numpy as np
import pytest

import ornstein as orn
from ornstein.compute.precision import width
from ornstein.engine.run import Run
from ornstein.model.contract import MOST_IN_MEMORY, checked_rows
from ornstein.rows.sources import IndexSource

MANY = 2**31 + 2**30  # a third of the rows have numbers that 32 bits would make negative
SCHEMES = ("replacement", "without-replacement")


def source(n_data, scheme, batch_size=8, seed=0):
    return IndexSource(scheme, n_data, batch_size, np.random.Generator(np.random.SFC64(seed)))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_row_is_drawn_beyond_2_to_the_31(scheme):
    drawn = source(MANY, scheme).draw(20_000)
    assert drawn.dtype == np.int64 and drawn.min() >= 0 and drawn.max() < MANY
    share = np.mean(drawn >= 2**31)
    assert share == pytest.approx(1 / 3, abs=4 * np.sqrt(2 / 9 / drawn.size))
    again = source(MANY, scheme)
    assert np.array_equal(again.draw(20_000), drawn)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("n_data", [100, 2**31 - 1, 2**31])
def test_up_to_there_indices_have_32_bits(scheme, n_data):
    assert source(n_data, scheme).draw(3).dtype == np.int32


def test_indices_of_existing_runs_stay_the_same():
    """Drawn by the version before indices could have 64 bits."""
    drawn = [source(n, scheme, 3).draw(2).ravel().tolist() for n, scheme in RECORDED]
    assert drawn == list(RECORDED.values())


RECORDED = {
    (1000, "replacement"): [693, 610, 256, 812, 742, 661],
    (2**31 - 1, "replacement"): [
        1490052944,
        1311546801,
        551474341,
        1745349610,
        1593546748,
        1419787484,
    ],
    (1000, "without-replacement"): [353, 568, 724, 234, 396, 599],
    (2**31 - 1, "without-replacement"): [
        759123856,
        1221250862,
        1555378584,
        504294480,
        851308541,
        1287440078,
    ],
    (20, "slices"): [4, 11, 8, 11, 8, 6],
}


def sparse_map(path, rows):
    """A column of zeros, as a file with a hole: few blocks of the disk are used."""
    with open(path, "wb") as file:
        file.truncate(rows)
    return np.memmap(path, dtype=np.int8, mode="r+", shape=(rows,))


def test_a_run_on_a_map_of_more_rows_sees_all_of_them(tmp_path):
    """The whole way of a minibatch: drawn, gathered from a file, handed to the loop."""
    column = sparse_map(tmp_path / "rows", MANY)
    if os.stat(tmp_path / "rows").st_blocks > 2**12:
        pytest.skip("this file system has no files with holes")
    small = orn.Model(lambda t, x: -0.5 * (x - t) ** 2, np.zeros(10, dtype=np.int8), init=0.0)
    model = small.replace(data=column, n_data=MANY)
    assert model.streams
    feed = model.feed(np.zeros(1), "float32", 4)
    seen, gather = [], feed.gather
    feed.gather = lambda indices: seen.append(np.array(indices)) or gather(indices)
    dynamics = orn.Dynamics(np.asarray(0.1), 4)
    with width("float32"):
        problem = model.problem_without_data("float32", np.zeros(1))
    run = Run(model.loss, problem, dynamics, MANY, np.zeros((1, 1)), 0, feed=feed)
    kept = []
    run.block_steps = run.chains[0].block_steps = 50
    assert run.advance(10, 5, lambda chain, values: kept.append(values.positions))
    indices = np.concatenate([found.ravel() for found in seen])
    assert indices.min() >= 0 and indices.max() >= 2**31
    assert np.all(np.concatenate(kept) == 0.0)
    column[2**31 + 7] = 5
    assert model.gathered(np.array([[0, 2**31 + 7]]), np.zeros(1), "float32").tolist() == [[0, 5]]


class Long:
    """Reports a length that no test could hold."""

    ndim, dtype = 1, np.dtype(np.int8)

    def __init__(self, rows):
        self.shape = (rows,)


def test_more_rows_in_memory_are_refused():
    assert checked_rows([Long(MOST_IN_MEMORY)]) == MOST_IN_MEMORY
    with pytest.raises(orn.InputError, match=r"hold 2147483649 rows in memory; at most 2147483648"):
        checked_rows([Long(MOST_IN_MEMORY + 1)])
