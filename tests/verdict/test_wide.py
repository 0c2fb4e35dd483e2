"""How far thousands of parameters move, by size and not by significance alone."""

from __future__ import annotations

import numpy as np
import pytest

from ornstein.verdict.wide import Shifts

COUNT, SIZE = 48, 5000


def moved(shift, width, memory, seed=0):
    """Draws of standard normals, and what moves made of them that remember a share of the start."""
    rng = np.random.default_rng(seed)
    before = rng.standard_normal((COUNT, SIZE))
    fresh = shift + width * rng.standard_normal((COUNT, SIZE))
    after = memory * before + (1.0 - memory) * shift + np.sqrt(1.0 - memory**2) * (fresh - shift)
    return Shifts.of(before, after, np.zeros(SIZE), np.ones(SIZE), np.full(SIZE, 1000.0))


@pytest.mark.parametrize("memory", [0.0, 0.5])
def test_draws_that_keep_their_law_move_by_chance_only(memory):
    found = moved(np.zeros(SIZE), 1.0, memory)
    assert found.typical < 0.06 and found.width == pytest.approx(1.0, abs=0.01)
    assert found.farthest(COUNT, 0.002) is None


@pytest.mark.parametrize("memory", [0.0, 0.5])
def test_small_shifts_of_all_and_wrong_widths_are_measured(memory):
    shift = 0.2 * np.where(np.arange(SIZE) % 2, 1.0, -1.0)
    found = moved(shift, 1.0, memory)
    assert found.typical == pytest.approx(0.2, abs=0.03)
    wider = moved(np.zeros(SIZE), 1.1, memory)
    assert wider.width == pytest.approx(1.1, abs=0.02)


def test_one_parameter_of_thousands_is_found():
    shift = np.zeros(SIZE)
    shift[1234] = 3.0
    found = moved(shift, 1.0, 0.0)
    assert found.farthest(COUNT, 0.002) == 1234
    assert found.typical < 0.1
