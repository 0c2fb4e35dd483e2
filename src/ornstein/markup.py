"""What notebooks show of results: small tables in HTML, in which every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ornstein.checks import printable

RAISED = {
    **dict.fromkeys(("caution", "doubtful"), "#8f5b00"),
    **dict.fromkeys(("not trusted", "does not fit"), "#b3261e"),
}
COLOURS = dict.fromkeys(("trusted", "fits"), "#0b7a4b") | RAISED
OTHER = "#5b6472"


def cell(value: object) -> str:
    """A value as the text of a cell.

    >>> cell("<b>"), cell(0.123456)
    ('&lt;b&gt;', '0.1235')
    """
    text = f"{value:.4g}" if isinstance(value, float) else printable(value, most=None)
    return escape(text)


def heading(text: str, level: str) -> str:
    """A line in bold, white on the colour of a level, which light and dark pages show alike."""
    style = f"color:#fff;background:{COLOURS.get(level, OTHER)};padding:2px 8px;border-radius:4px"
    return f'<p><strong style="{style}">{cell(text)}</strong></p>'


def sentence(text: str) -> str:
    """A paragraph."""
    return f"<p>{cell(text)}</p>"


def table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table; the first cell of each row is its name.

    >>> table(["", "mean"], [["x", 1.0]])
    '<table><thead><tr><th></th><th>mean</th></tr></thead><tbody><tr><th>x</th><td>1</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{cell(name)}</th>" for name in header)
    body = "".join(
        f"<tr><th>{cell(row[0])}</th>{''.join(f'<td>{cell(one)}</td>' for one in row[1:])}</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def findings(title: str, level: str, found: Iterable[tuple[str, str, str, str]]) -> str:
    """A judgement: its level, and of each finding name, level, sentence and, where it is raised,
    remedy.

    >>> "take more" in findings("Verdict", "trusted", [("ESS", "trusted", "3,473", "take more")])
    False
    """
    rows = [
        (name, own, f"{said} → {remedy}" if remedy and own in RAISED else said)
        for name, own, said, remedy in found
    ]
    return heading(f"{title}: {level}", level) + table(["", "level", "what was found"], rows)
