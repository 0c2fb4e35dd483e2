"""`ornstein reproduce`: every table and figure of the paper into one folder, with the numbers
behind them and one page on all.

For each: a figure (PNG and SVG), a CSV file and a comparison in Markdown. Numbers are written with
nine digits and carry their seed; running it again gives the same files (figures aside).
"""

from __future__ import annotations

import csv
import datetime
import math
import os
import platform
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ornstein.errors import FileError, InputError
from ornstein.paper import convergence, figures, table1
from ornstein.paper.figures import Reproduced
from ornstein.paper.table_figure import table_reproduced
from ornstein.posterior.files import replacing

Maker = Callable[[str | Path | None, bool, Callable[[str], None]], list[Reproduced]]


def _table(
    directory: str | Path | None, quick: bool, report: Callable[[str], None]
) -> list[Reproduced]:
    return [table_reproduced(table1.table_1(directory, quick, report))]


def _hyperparameters(
    directory: str | Path | None, quick: bool, report: Callable[[str], None]
) -> list[Reproduced]:
    from ornstein.paper.hyperparameters import figure_6

    return [figure_6(directory, quick, report)]


MAKERS: dict[str, Maker] = {
    "table1": _table,
    "fig1": lambda *arguments: [figures.figure_1(*arguments)],
    "fig2": lambda *arguments: [figures.figure_2(*arguments)],
    "fig3": lambda *arguments: [figures.figure_3(*arguments)],
    "fig4": convergence.both,
    "fig5": convergence.both,
    "fig6": _hyperparameters,
}


def reproduce(
    what: str,
    out: str | Path,
    data_dir: str | Path | None = None,
    quick: bool = False,
    report: Callable[[str], None] = print,
) -> list[Path]:
    """Make `what` ("table1", "fig1" … "fig6" or "all") in the folder `out`; returns the files
    written.

    With "all", a table or figure whose data are absent is left out and reported; asked for by
    name, it is an error.
    """
    if what != "all" and what not in MAKERS:
        raise InputError(
            f"there is no {what!r} to reproduce; choose one of {', '.join((*MAKERS, 'all'))}"
        )
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter(), time.process_time()
    done: list[Reproduced] = []
    left_out: list[str] = []
    files: list[Path] = []
    for name in [key for key in MAKERS if key != "fig5"] if what == "all" else [what]:
        try:
            made = [
                part for part in MAKERS[name](data_dir, quick, report) if what in ("all", part.name)
            ]
        except FileError as error:
            if what != "all":
                raise
            left_out.append(f"{name}: {error}")
            continue
        # Written at once: what comes later may take long, or be interrupted.
        files += [path for part in made for path in write_part(part, folder)]
        done += made
        report(f"{', '.join(part.name for part in made)} done after {_taken(*began)}")
    files.append(_page(done, left_out, folder, what, quick))
    for part in done:
        report(f"{part.title}. {part.caption}")
    for sentence in left_out:
        report(f"left out: {sentence}")
    report(f"{len(files)} files in {folder}, {_taken(*began)}")
    return files


def _taken(wall: float, processor: float) -> str:
    """Time since then; the processor's too, which other work on the machine does not lengthen."""
    return (
        f"{time.perf_counter() - wall:.0f} s ({time.process_time() - processor:.0f} s of processor"
        " time)"
    )


def write_part(part: Reproduced, folder: Path) -> list[Path]:
    """Figure, CSV and Markdown of one part."""
    from ornstein.paper.drawing import write_figure

    table = folder / f"{part.name}.csv"
    with (
        replacing(table) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, fieldnames=list(part.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _plain(value) for key, value in row.items()} for row in part.rows)
    text = folder / f"{part.name}.md"
    with replacing(text) as temporary:
        temporary.write_text(
            f"# {part.title}\n\n![{part.title}]({part.name}.png)\n\n{part.caption}\n\n"
            f"{part.comparison}",
            encoding="utf-8",
        )
    return [*write_figure(part.drawn, folder, part.name), table, text]


def _plain(value: Any) -> object:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.9g}"
    return f"{float(value):.9g}" if hasattr(value, "dtype") and value.dtype.kind == "f" else value


def _page(
    parts: Iterable[Reproduced], left_out: list[str], folder: Path, what: str, quick: bool
) -> Path:
    """One self-contained page with all parts."""
    import jinja2

    environment = jinja2.Environment(loader=jinja2.PackageLoader("ornstein.paper"), autoescape=True)
    command = f"ornstein reproduce {what}{' --quick' if quick else ''}"
    page = folder / "reproduction.html"
    html = environment.get_template("reproduction.html").render(
        parts=[(part, (folder / f"{part.name}.svg").read_text(encoding="utf-8")) for part in parts],
        left_out=left_out,
        command=command,
        date=f"{datetime.date.today():%Y-%m-%d}",
        machine=f"{os.cpu_count()} cores, {platform.machine()}",
    )
    with replacing(page) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return page
