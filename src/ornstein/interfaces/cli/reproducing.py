"""`ornstein reproduce`: the table and the figures of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ornstein.interfaces.cli.arguments import Force


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="table1, fig1, fig2, fig3, fig4, fig5, fig6 or all.", show_default=False
        ),
    ],
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            help=(
                "Folder with the paper's data files; else ORNSTEIN_DATA, the cache, the public"
                " source."
            ),
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Short chains and few rows: two minutes instead of three quarters of an hour.",
        ),
    ] = False,
    out: Annotated[
        Path, typer.Option(help="Folder for the figures, tables and reproduction.html.")
    ] = Path("reproduction"),
    force: Force = False,
) -> None:
    """Make the table and the figures of Mandt, Hoffman and Blei (2017) again, beside the paper's
    numbers.
    """
    from ornstein.interfaces.cli import console
    from ornstein.interfaces.cli.outputs import result_folder
    from ornstein.paper.reproduce import reproduce as make

    with result_folder(out, ["reproduction.html"], force=force) as folder:
        files = make(what, folder, data_dir, quick, report=console.remark)
    console.show_files("Written", [(path, "") for path in files])
