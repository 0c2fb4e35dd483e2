"""What a notebook shows of a Posterior: the answers on draws and on model, and the summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ornstein import markup

if TYPE_CHECKING:
    import pandas

MOST_ROWS = 60


def as_html(what: str, levels: Mapping[str, str], summary: pandas.DataFrame) -> str:
    """A sentence, a line for the level of each judgement, and the table."""
    judged = "".join(markup.heading(f"{name}: {level}", level) for name, level in levels.items())
    rows = [[name, *row] for name, row in zip(summary.index, summary.to_numpy(), strict=True)]
    more = len(rows) - MOST_ROWS
    said = markup.sentence(f"and {more:,} more parameters") if more > 0 else ""
    shown = markup.table([summary.columns.name or "", *summary.columns], rows[:MOST_ROWS])
    return markup.sentence(what) + judged + shown + said
