"""What the command line prints: tables and the verdict on stdout, progress and remarks on
stderr.

Every text goes through `_text`: what a terminal would obey is shown instead, and nothing is read
as markup. A stream that cannot be written to is given up with one warning, because no print is
worth a fit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ornstein.checks import printable
from ornstein.interfaces.table.wording import number

if TYPE_CHECKING:
    import pandas

    from ornstein.critique.critique import Critique
    from ornstein.verdict.verdict import Verdict

COLOURS = {
    "trusted": "green",
    "caution": "yellow",
    "not trusted": "red",
    "note": "bright_black",
    "skipped": "bright_black",
    "fits": "green",
    "doubtful": "yellow",
    "does not fit": "red",
}
MARKS = {
    **{"trusted": "✓", "caution": "!", "not trusted": "✗", "note": "i", "skipped": "–"},
    **{"fits": "✓", "doubtful": "!", "does not fit": "✗"},
}
RAISED = ("caution", "not trusted", "doubtful", "does not fit")
WIDTH_WITHOUT_TERMINAL = 120


class _Console(Console):
    """Rich's console; a closed pipe is an error like others, not the end of the process."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError(32, "Broken pipe")


def spell_out_unknown_letters() -> None:
    """Let a stream whose encoding lacks a letter (Latin-1, say) print the letter's number."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _console(stderr: bool = False) -> Console:
    """Made anew each time, so that it writes to whatever stdout is at the moment."""
    console = _Console(stderr=stderr, highlight=False)
    return (
        console
        if console.is_terminal
        else _Console(stderr=stderr, highlight=False, width=WIDTH_WITHOUT_TERMINAL)
    )


def _show(what: RenderableType, *, stderr: bool = False, soft_wrap: bool = False) -> None:
    try:
        _console(stderr).print(what, soft_wrap=soft_wrap)
    except (OSError, ValueError) as error:  # a closed pipe, a full disk, a closed stream
        _give_up(stderr)
        if not stderr:
            reason = getattr(error, "strerror", None) or error
            warn(f"stdout cannot be written to ({reason}); files are not affected")


def _give_up(stderr: bool) -> None:
    """Send the rest nowhere: Python would try again at its exit, and change the exit code."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, (sys.stderr if stderr else sys.stdout).fileno())
        finally:
            os.close(nowhere)


def _text(text: str, style: str = "") -> Text:
    """Lines of text, which may hold names from outside."""
    return Text("\n".join(printable(line, most=None) for line in text.split("\n")), style=style)


def _name(name: object) -> Text:
    return Text(printable(name))


def say(text: str = "", style: str | None = None) -> None:
    """A line on stdout."""
    _show(_text(text, style or ""), soft_wrap=True)


def remark(text: str) -> None:
    """A line on stderr: what is being done, or what was decided."""
    _show(_text(text, "dim"), stderr=True)


def warn(text: str) -> None:
    """A warning as one line on stderr."""
    _show(Text.assemble(("Warning: ", "yellow"), _text(text)), stderr=True)


def complain(text: str) -> None:
    """An error as one sentence on stderr, never wrapped."""
    _show(
        Text.assemble(("Error: ", "bold red"), _text(" ".join(text.split()))),
        stderr=True,
        soft_wrap=True,
    )


def _table(title: str, **options: bool) -> Table:
    return Table(
        title=_text(title, "bold"),
        title_justify="left",
        title_style="",
        header_style="bold",
        box=None,
        pad_edge=False,
        **options,  # type: ignore[arg-type]
    )


def show_frame(frame: pandas.DataFrame, title: str, index: str = "", digits: int = 4) -> None:
    """A data frame as a table; numbers with `digits` significant digits."""
    table = _table(title)
    table.add_column(_name(index), overflow="fold")
    for name in frame.columns:
        table.add_column(_name(name), justify="right")
    for label, row in zip(frame.index, frame.itertuples(index=False), strict=True):
        table.add_row(_name(label), *(_name(number(value, digits)) for value in row))
    _show(table)


def show_verdict(verdict: Verdict) -> None:
    """Can the draws be trusted? The level in a word, then every finding in a sentence, with the
    remedy where there is need of one.
    """
    commands = {finding.name: finding.command for finding in verdict.findings}
    _show_findings("Verdict: ", verdict, commands)


def show_critique(critique: Critique) -> None:
    """Does the model fit? Likewise."""
    _show_findings("Model: ", critique, {})


def _show_findings(title: str, judged: Verdict | Critique, commands: dict[str, str]) -> None:
    colour = COLOURS[judged.level]
    _show(Text.assemble((title, "bold"), (judged.level, f"bold {colour}")))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(width=1)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in judged.findings:
        sentence = _text(finding.sentence)
        if finding.remedy and finding.level in RAISED:
            command = commands.get(finding.name)
            command = command and f"run again with {command}"
            sentence.append_text(_text(f"\n→ {command or finding.remedy}", "italic"))
        table.add_row(
            Text(MARKS[finding.level], style=f"bold {COLOURS[finding.level]}"),
            Text(finding.name),
            sentence,
        )
    _show(table)


def show_files(title: str, files: Sequence[tuple[object, str]]) -> None:
    """Files that were written, each with what it is for."""
    table = _table(title, show_header=False)
    table.add_column(overflow="fold")
    table.add_column(style="dim")
    for path, purpose in files:
        table.add_row(_text(printable(path, most=None)), _text(purpose))
    _show(table)
