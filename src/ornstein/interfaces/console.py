"""What the command line prints: tables and the verdict on stdout, progress and remarks on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import pandas

    from ornstein.diagnostics.verdict import Verdict

COLOURS = {"trusted": "green", "caution": "yellow", "not trusted": "red", "skipped": "bright_black"}
MARKS = {"trusted": "✓", "caution": "!", "not trusted": "✗", "skipped": "–"}
WIDTH_WITHOUT_TERMINAL = 120


def _console(stderr: bool = False) -> Console:
    """Made anew each time, so that it writes to whatever stdout is at the moment."""
    console = Console(stderr=stderr, highlight=False)
    return (
        console
        if console.is_terminal
        else Console(stderr=stderr, highlight=False, width=WIDTH_WITHOUT_TERMINAL)
    )


def say(text: str = "", style: str | None = None) -> None:
    """A line on stdout."""
    _console().print(Text(text, style=style or ""), soft_wrap=True)


def remark(text: str) -> None:
    """A line on stderr: what is being done, or what was decided."""
    _console(stderr=True).print(Text(text, style="dim"))


def warn(text: str) -> None:
    """A warning as one line on stderr."""
    _console(stderr=True).print(Text.assemble(("Warning: ", "yellow"), text))


def complain(text: str) -> None:
    """An error as one sentence on stderr, never wrapped."""
    _console(stderr=True).print(
        Text.assemble(("Error: ", "bold red"), " ".join(text.split())), soft_wrap=True
    )


def show_frame(frame: pandas.DataFrame, title: str, index: str = "", digits: int = 4) -> None:
    """A data frame as a table; numbers with `digits` significant digits."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        box=None,
        pad_edge=False,
    )
    table.add_column(index, overflow="fold")
    for name in frame.columns:
        table.add_column(str(name), justify="right")
    for label, row in zip(frame.index, frame.itertuples(index=False), strict=True):
        table.add_row(Text(str(label)), *(Text(number(value, digits)) for value in row))
    _console().print(table)


def show_verdict(verdict: Verdict) -> None:
    """The level in a word, then every finding in a sentence, with the remedy where there is need of one."""
    colour = COLOURS[verdict.level]
    console = _console()
    console.print(Text.assemble(("Verdict: ", "bold"), (verdict.level, f"bold {colour}")))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(width=1)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in verdict.findings:
        sentence = Text(finding.sentence)
        if finding.remedy and finding.level in ("caution", "not trusted"):
            sentence.append(f"\n→ {finding.remedy}", style="italic")
        table.add_row(
            Text(MARKS[finding.level], style=f"bold {COLOURS[finding.level]}"),
            Text(finding.name),
            sentence,
        )
    console.print(table)


def show_files(title: str, files: Sequence[tuple[Any, str]]) -> None:
    """Files that were written, each with what it is for."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        show_header=False,
        pad_edge=False,
    )
    table.add_column(overflow="fold")
    table.add_column(style="dim")
    for path, purpose in files:
        table.add_row(Text(str(path)), Text(purpose))
    _console().print(table)


def number(value: Any, digits: int = 4) -> str:
    """A number as people write it.

    >>> number(0.000123456), number(1234567.0), number(4000), number("text")
    ('0.0001235', '1,234,567', '4,000', 'text')
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return str(value)
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    real = float(value)
    return f"{real:,.0f}" if 10.0**digits <= abs(real) < 1e9 else f"{real:.{digits}g}"
