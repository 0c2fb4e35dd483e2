"""Rows drawn with unequal probabilities: the exact law, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

import ornstein as orn
from ornstein.rows.sources import IndexSource
from ornstein.rows.unequal import UnequalRows


def probabilities(count, seed=0):
    """Half uniform, half very uneven."""
    uneven = np.random.default_rng(seed).gamma(0.05, size=count)
    return 0.5 / count + 0.5 * uneven / uneven.sum()


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000])
def test_every_number_finds_the_row_whose_stretch_it_lies_in(count):
    rows = UnequalRows.of(probabilities(count))
    edges = np.concatenate([[0.0], rows.cumulative[:-1]])
    uniform = np.sort(
        np.concatenate([edges, np.nextafter(edges[1:], 0.0), np.linspace(0, 1, 5001)])
    )
    uniform = uniform[uniform < 1.0]
    wanted = np.searchsorted(rows.cumulative, uniform, side="right")
    assert np.array_equal(rows.found(uniform), wanted)


def test_each_row_has_its_share_of_the_numbers():
    chance = probabilities(50)
    points = 2_000_000
    found = UnequalRows.of(chance).found((np.arange(points) + 0.5) / points)
    assert np.bincount(found, minlength=50) / points == pytest.approx(chance, abs=1.0 / points)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.array([0.5, 0.4]), "sum 1"),
        (np.array([0.9, 0.1]), r"below 1/\(2N\) = 0.25; got 0.1"),
        (np.array([np.nan, 1.0]), "sum 1"),
        (np.full((2, 2), 0.25), "one number per row"),
    ],
)
def test_what_are_no_probabilities_is_refused(values, said):
    with pytest.raises(orn.InputError, match=said):
        UnequalRows.of(values)


def test_a_restored_stream_goes_on():
    rows = UnequalRows.of(probabilities(20))

    def source():
        generator = np.random.Generator(np.random.SFC64(3))
        return IndexSource("leverage", 20, 4, generator, unequal=rows)

    one, other = source(), source()
    one.draw(10)
    state = one.state()
    other.restore(state)
    other.require(state)
    assert np.array_equal(one.draw(10), other.draw(10))
