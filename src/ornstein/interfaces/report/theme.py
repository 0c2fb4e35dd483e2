"""Figures that follow the page from light to dark: drawn once, in roles instead of colours.

Matplotlib wants colours, so each role is drawn in a colour of its own that occurs nowhere else, and
in the SVG that colour is replaced by a CSS variable of the page. For a PNG file the roles get the
colours of the light page.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ornstein.checks import printable
from ornstein.posterior.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure


@dataclass(frozen=True)
class Roles:
    """A colour for each thing a figure shows."""

    ink: str
    muted: str
    grid: str
    predicted: str
    empirical: str
    target: str
    chains: tuple[str, str, str, str]


ON_PAGE = Roles(
    "#010101",
    "#020202",
    "#030303",
    "#040404",
    "#050505",
    "#060606",
    ("#070707", "#080808", "#090909", "#0a0a0a"),
)
LIGHT = Roles(
    "#1c2330",
    "#5b6472",
    "#dde1e8",
    "#1d5fd1",
    "#d9600a",
    "#5b6472",
    ("#1d5fd1", "#d9600a", "#0f8a5f", "#8a4fd0"),
)
_VARIABLES = {
    ON_PAGE.ink: "var(--ink)",
    ON_PAGE.muted: "var(--muted)",
    ON_PAGE.grid: "var(--grid)",
    ON_PAGE.predicted: "var(--predicted)",
    ON_PAGE.empirical: "var(--empirical)",
    ON_PAGE.target: "var(--target)",
    **{colour: f"var(--chain-{number})" for number, colour in enumerate(ON_PAGE.chains, start=1)},
}
OURS = {"Software": "ornstein"}  # by which a later run knows the file for one of its own
Draw = Callable[["Figure | SubFigure", Roles], None]


@contextmanager
def _style(roles: Roles) -> Iterator[None]:
    import matplotlib

    settings: dict[Any, Any] = {
        "font.size": 9,
        "axes.titlesize": 9.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": roles.muted,
        "axes.labelcolor": roles.ink,
        "axes.linewidth": 0.7,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": roles.grid,
        "grid.linewidth": 0.7,
        "legend.fontsize": 8.5,
        "legend.frameon": False,
        "legend.borderaxespad": 0.2,
        "text.color": roles.ink,
        "xtick.color": roles.muted,
        "ytick.color": roles.muted,
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
        "figure.facecolor": "none" if roles is ON_PAGE else "white",
        "axes.facecolor": "none",
        "savefig.facecolor": "auto",
        "svg.fonttype": "none",
        "text.parse_math": False,  # a dollar sign in a column's name is a dollar sign
        "figure.constrained_layout.use": True,
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # The page's own fonts show what Matplotlib's cannot.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def as_svg(draw: Draw, name: str, description: str, size: tuple[float, float] = (4.2, 3.0)) -> str:
    """The figure as an SVG element for the page; `name` keeps its ids apart from those of other
    figures.
    """
    import matplotlib
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    with _style(ON_PAGE), matplotlib.rc_context({"svg.hashsalt": name}):
        figure = Figure(figsize=size)
        draw(figure, ON_PAGE)
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return _inlined(buffer.getvalue(), name, description)


def as_png(
    rows: Sequence[Sequence[Draw]], path: Path, size: tuple[float, float] = (4.2, 3.0)
) -> Path:
    """Figures of this size each, row by row, as one PNG file on white."""
    from matplotlib.figure import Figure

    columns = max(len(row) for row in rows)
    with _style(LIGHT):
        figure = Figure(figsize=(columns * size[0], len(rows) * size[1]))
        parts = figure.subfigures(len(rows), columns, squeeze=False)
        for line, row in zip(parts, rows, strict=True):
            for part, draw in zip(line, row, strict=False):
                draw(part, LIGHT)
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=130, metadata=OURS)
    return path


def _inlined(text: str, name: str, description: str) -> str:
    """Only the element; scaled by the page; colours as variables; ids of its own."""
    text = text[text.index("<svg") :]
    box = re.search(r'viewBox="([^"]+)"', text)
    assert box is not None
    body = text[text.index(">") + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'id="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'href="#', f'href="#{name}-', body)
    body = re.sub(r"url\(#", f"url(#{name}-", body)
    body = re.sub(
        r"#0[0-9a]0[0-9a]0[0-9a]\b",
        lambda match: _VARIABLES.get(match.group(), match.group()),
        body,
    )
    body = re.sub(r"font-family: [^;\"]*", "font-family: var(--sans)", body)
    body = re.sub(r"(font: [^;\"']*)'[^;\"]*", r"\1var(--sans)", body)
    body = body.replace("xlink:href", "href")
    return (
        f'<svg viewBox="{box.group(1)}" role="img"'
        f' aria-label="{escape(printable(description, most=None), quote=True)}">{body}'
    )
