"""How often is the verdict right? The tools that measure it, and the rates on the half of the
suite that no threshold was fixed on.
"""

from __future__ import annotations

import pytest
from suite import REPORTING
from verdict_rates import WAYS, Judged, interval, judge, rate, rates

SOUND = Judged("a", "kink", "default", 0, "trusted", 0.01, 0.05, 0.01)
MISSED = Judged("b", "kink", "default", 0, "trusted", 0.5, 0.05, 0.01)
NEEDLESS = Judged("c", "kink", "default", 0, "not trusted", 0.01, 0.05, 0.01)


def test_intervals_are_those_of_clopper_and_pearson():
    assert interval(0, 55) == (0.0, pytest.approx(1.0 - 0.025 ** (1 / 55)))
    assert interval(55, 55) == (pytest.approx(0.025 ** (1 / 55)), 1.0)
    low, high = interval(3, 20)
    assert low == pytest.approx(0.0321, abs=1e-4) and high == pytest.approx(0.3789, abs=1e-4)


def test_problems_are_counted_and_not_seeds():
    again = Judged("b", "kink", "default", 1, "not trusted", 0.5, 0.05, 0.01)
    assert MISSED.wrong and NEEDLESS.wrong and not SOUND.wrong and not again.wrong
    assert rate([SOUND, MISSED, again], lambda fit: fit.wrong).startswith("1 of 2 (50%;")
    refused = Judged("d", "kink", "default", 0, "refused", raised=("no mode",))
    lines = list(rates([SOUND, MISSED, NEEDLESS, refused]))
    assert lines[0] == "default: 3 fits, 1 refused"
    assert "1 of 3" in lines[1] and "1 of 3" in lines[2] and "0 of 3" in lines[3]
    assert "1 of 2" in lines[4] and "1 of 1" in lines[5]


def test_one_problem_is_judged():
    problem = next(p for p in REPORTING if p.name == "collinear: linear, a thousandth")
    found = judge(problem, "exact")
    assert found.level == "trusted" and not found.wrong and found.distance < 0.01


@pytest.mark.nightly
@pytest.mark.parametrize("way", WAYS)
def test_no_verdict_is_wrong(way):
    judged = [judge(problem, way) for problem in REPORTING]
    wrong = [fit for fit in judged if fit.wrong]
    assert not wrong, "\n".join([*rates(judged), *map(str, wrong)])
