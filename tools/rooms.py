"""Draw docs/developer/rooms.svg, the rooms of the library, from the contracts in .importlinter.

python tools/rooms.py            writes it
python tools/rooms.py --check    exits with 1 if it is not current
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from configparser import ConfigParser
from html import escape
from pathlib import Path

from generated import write_or_check

ROOT = Path(__file__).resolve().parents[1]
CONTRACT, PATH = ROOT / ".importlinter", ROOT / "docs" / "developer" / "rooms.svg"

# What each room knows, in a few words.
KNOWS = {
    "interfaces": "other tools: tables, the report, the command line, scikit-learn, NumPyro",
    "paper": "the data and experiments of the paper",
    "entrances": "the public functions glm, regress, sample and resume",
    "baselines": "other methods, to compare",
    "cluster": "many processes, on Dask",
    "hyper": "learning hyperparameters",
    "ways": "each way to a posterior: forecast, run, judge, remedy",
    "verdict": "whether the draws can be trusted",
    "critique": "whether the model fits the data",
    "sampling": "the way to a posterior: plan, warm up, collect, checkpoint",
    "posterior": "draws as a result: summaries, files, plots, comparison",
    "engine": "how to run a kernel; no theory",
    "samplers": "rules that turn a Curvature into a Dynamics, one per file",
    "dynamics": "the recursion that every sampler is, and its predicted law",
    "curvature": "the mode, the Hessian A, the gradient noise C",
    "regression": "formulas and tables: from columns to a model and back",
    "model": "what is inferred; the only room that knows N",
    "rows": "how rows are held, drawn and summed; no model",
    "compute": "JAX: precision, compilation, the Kernel protocol",
    "theory": "formulas, on NumPy and SciPy alone",
    "streams": "random streams",
    "markup": "tables in HTML, for notebooks",
    "checks": "what values must be",
    "errors": "errors and warnings",
    "types": "the types of arrays and trees",
}
INTRODUCTION = (
    "A room imports only rooms below it. Rooms side by side do not import each other.",
    "Blue, 1 to 5: the flow from a model to a verdict.",
)
FLOW = ("model", "curvature", "dynamics", "posterior", "verdict")

WIDTH, MARGIN, GAP, BOXES = 780, 24, 6, 84  # BOXES: where the boxes begin, right of the arrow
LINE, TOP = 20, 96
LETTER = 7.2  # width of a letter in the widest of the usual fonts
PLAIN, NOUN = ("#f3f4f6", "#9ca3af"), ("#dbe4ff", "#3b5bdb")  # fill and border


def drawing(contract: str) -> str:
    """The picture of the rooms in the text of a contract file."""
    parser = ConfigParser()
    parser.read_string(contract)
    rooms = parser["importlinter:contract:rooms"]
    layers = [[room.strip() for room in layer.split("|")] for layer in _lines(rooms["layers"])]
    _require_words(room for layer in layers for room in layer)
    boxes, bottom = _stack(layers)
    notes = _notes(parser)
    height = bottom + LINE * len(notes) + 34
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            f' width="{WIDTH}" height="{height}" role="img" aria-labelledby="title"'
            ' font-family="system-ui, sans-serif" font-size="14" fill="#1f2937">',
            '<title id="title">The rooms of ornstein: each imports only rooms below it</title>',
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
            _text(MARGIN, 38, "The rooms of ornstein", 'font-size="20" font-weight="600"'),
            *(_text(MARGIN, 62 + LINE * k, line) for k, line in enumerate(INTRODUCTION)),
            *_arrow(TOP, bottom - GAP),
            *boxes,
            *(_text(MARGIN, bottom + 20 + LINE * k, note) for k, note in enumerate(notes)),
            "</svg>\n",
        ]
    )


def _require_words(rooms: Iterable[str]) -> None:
    rooms = set(rooms)
    if missing := sorted(rooms - set(KNOWS)):
        raise ValueError(f"say in KNOWS of tools/rooms.py what these rooms know: {missing}")
    if stale := sorted(set(KNOWS) - rooms):
        raise ValueError(f"KNOWS of tools/rooms.py describes what is no room: {stale}")


def _stack(layers: list[list[str]]) -> tuple[list[str], int]:
    """The boxes, top layer first, and where they end."""
    boxes, top = [], TOP
    for layer in layers:
        height = 32 if len(layer) == 1 else 52
        width = (WIDTH - MARGIN - BOXES - GAP * (len(layer) - 1)) / len(layer)
        for place, room in enumerate(layer):
            boxes += _box(room, BOXES + place * (width + GAP), top, width, height)
        top += height + GAP
    return boxes, top


def _box(room: str, x: float, y: int, width: float, height: int) -> list[str]:
    """A room: one line in a low box, its name above its words in a high one."""
    fill, border = NOUN if room in FLOW else PLAIN
    left, base = (x + 124, y + 21) if height < 50 else (x + 14, y + 41)
    if left + LETTER * len(KNOWS[room]) > x + width - (40 if room in FLOW else 10):
        raise ValueError(f"the words for {room} in tools/rooms.py are too long for its box")
    parts = [
        f'<rect x="{x:g}" y="{y}" width="{width:g}" height="{height}" rx="5"'
        f' fill="{fill}" stroke="{border}"/>',
        _text(x + 14, y + 21, room, 'font-weight="600"'),
        _text(left, base, KNOWS[room]),
    ]
    if room in FLOW:
        centre = x + width - 20
        style = 'fill="#ffffff" font-size="12" font-weight="600" text-anchor="middle"'
        parts += [
            f'<circle cx="{centre:g}" cy="{y + 16}" r="10" fill="{border}"/>',
            _text(centre, y + 20, str(FLOW.index(room) + 1), style),
        ]
    return parts


def _arrow(top: int, bottom: int) -> list[str]:
    """From the highest room to the lowest: which way imports go."""
    x, middle = 56, (top + bottom) // 2
    turned = f'text-anchor="middle" transform="rotate(-90 {x - 12} {middle})"'
    return [
        f'<path d="M{x} {top}V{bottom - 10}" stroke="#6b7280" stroke-width="2"/>',
        f'<path d="M{x - 6} {bottom - 12}h12l-6 12z" fill="#6b7280"/>',
        _text(x - 12, middle, "imports", turned),
    ]


def _notes(parser: ConfigParser) -> list[str]:
    """The exceptions to the layers, and what is forbidden beside them."""
    ignored = _lines(parser["importlinter:contract:rooms"].get("ignore_imports", ""))
    notes = ["Exceptions, imported only when a method is called:"] if ignored else []
    notes += [f"   {line.replace('ornstein.', '').replace('->', '→')}" for line in ignored]
    others = [
        section["name"]
        for section in parser.values()
        if section.get("type") in ("forbidden", "acyclic_siblings")
    ]
    return notes + (["Also checked:"] if others else []) + [f"   {name}." for name in others]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _text(x: float, y: float, text: str, style: str = "") -> str:
    place = f'x="{x:g}" y="{y:g}" xml:space="preserve"'
    return f"<text {place} {style}".rstrip() + f">{escape(text)}</text>"


if __name__ == "__main__":
    try:
        picture = drawing(CONTRACT.read_text(encoding="utf-8"))
    except ValueError as error:
        sys.exit(str(error))
    sys.exit(write_or_check(PATH, picture))
