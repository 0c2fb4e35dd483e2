"""One thing that was looked at: its number, its bound, a sentence, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEVELS = ("trusted", "caution", "not trusted")
# Levels that do not count: what could not be checked, and what explains but does not decide.
SKIPPED, NOTE = "skipped", "note"


@dataclass(frozen=True)
class Finding:
    """`level` is one of LEVELS, "skipped" where it could not be checked, or "note" where it
    explains and does not decide; `number` is compared with `threshold`.

    `sentence` is what the table shows; `detail` and `remedy` are for findings that count against
    the draws; `command` is the remedy as options of `ornstein fit`, where it can be given so.
    """

    name: str
    level: str
    number: float
    threshold: float
    sentence: str
    remedy: str = ""
    detail: str = ""
    command: str = ""


def skipped(name: str, reason: str) -> Finding:
    """A finding that could not be made, and why."""
    return Finding(name, SKIPPED, float("nan"), float("nan"), f"skipped: {reason}")


def graded(number: float, good: float, bad: float = np.inf) -> str:
    """Small is good. Above `good` is a caution, above `bad` not to be trusted, and NaN is
    neither small nor good.
    """
    if np.isnan(number):
        return "not trusted"
    return "trusted" if number <= good else "caution" if number <= bad else "not trusted"


def rounded(distance: float) -> str:
    """A distance in words: rounding error is none, and what is far off is not measured any closer.

    >>> rounded(1e-15), rounded(0.01234), rounded(3e12)
    ('0', '0.012', 'over 1000')
    """
    if distance > 1000.0:
        return "over 1000"
    return f"{distance:.2g}" if distance > 1e-9 else "0"


def worst(*levels: str) -> str:
    """The worst of some levels; notes and what was skipped do not count."""
    return max((level for level in levels if level in LEVELS), key=LEVELS.index, default="trusted")
