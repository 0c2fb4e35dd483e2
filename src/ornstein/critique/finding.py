"""One thing that was looked at: its number, its bound, a sentence, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEVELS = ("fits", "doubtful", "does not fit")
SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """`level` is one of LEVELS, or "skipped" where it could not be checked; `number` is an effect
    size and `bound` the largest that fits.
    """

    name: str
    level: str
    number: float
    bound: float
    sentence: str
    remedy: str = ""


def skipped(name: str, reason: str) -> Finding:
    """A finding that could not be made, and why."""
    return Finding(name, SKIPPED, float("nan"), float("nan"), f"skipped: {reason}")


def graded(number: float, good: float, bad: float = np.inf, *, surely: bool = True) -> str:
    """By the size of an effect, if it is `surely` there: a test only keeps chance out.

    >>> graded(1.1, 1.2, 1.5), graded(1.3, 1.2, 1.5), graded(6.0, 1.2, 1.5, surely=False)
    ('fits', 'doubtful', 'fits')
    """
    if number <= good or not surely:
        return "fits"
    return "doubtful" if number <= bad else "does not fit"
