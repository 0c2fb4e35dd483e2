"""Which ways were tried for a posterior, in the order in which they ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ornstein.checks import printable


@dataclass(frozen=True)
class Attempt:
    """One way that was tried.

    Attributes:
        way: its name.
        verdict: "trusted", "caution" or "not trusted"; "refused" where it delivered no draws.
        passes: over the data, those of its check included.
        seconds: what it took on this machine, its check included.
        reason: what spoke against it; empty where nothing did.
    """

    way: str
    verdict: str
    passes: float
    seconds: float
    reason: str = ""

    def __str__(self) -> str:
        said = f" ({self.reason})" if self.reason else ""
        worked = f"{self.passes:,.0f} passes, {self.seconds:.1f} s"
        return printable(f"{self.way}: {self.verdict}, {worked}{said}", None)


def stored(history: Sequence[Attempt]) -> list[dict[str, Any]]:
    """Plain values, for a file."""
    return [asdict(attempt) for attempt in history]


def restored(rows: Sequence[dict[str, Any]]) -> tuple[Attempt, ...]:
    """What `stored` was given.

    >>> restored(stored([Attempt("laplace", "trusted", 70.0, 0.2)]))
    (Attempt(way='laplace', verdict='trusted', passes=70.0, seconds=0.2, reason=''),)
    """
    attempts = tuple(Attempt(**row) for row in rows)
    for attempt in attempts:
        texts = (attempt.way, attempt.verdict, attempt.reason)
        numbers = (attempt.passes, attempt.seconds)
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"a history with {texts}")
        if not all(isinstance(number, int | float) for number in numbers):
            raise ValueError(f"a history with {numbers}")
    return attempts
