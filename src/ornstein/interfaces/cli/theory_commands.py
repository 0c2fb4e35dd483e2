"""The commands `theory` and `reproduce`, added to those of `app`: step sizes without a run, and the
paper's experiments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ornstein.interfaces.cli.app import app
from ornstein.interfaces.cli.arguments import Force


@app.command(
    epilog="Example:  ornstein theory --rows 50000 --batch-size 256 --dimension 20 --noise 1.0"
)
def theory(
    rows: Annotated[
        int, typer.Option("--rows", "-N", help="N, the number of rows.", min=1, show_default=False)
    ],
    batch_size: Annotated[
        int, typer.Option("--batch-size", "-S", help="S, rows per step.", min=1, show_default=False)
    ],
    dimension: Annotated[
        int | None,
        typer.Option(
            "--dimension", "-D", help="D, the number of parameters.", min=1, show_default=False
        ),
    ] = None,
    noise: Annotated[
        str,
        typer.Option(
            "--noise",
            "-C",
            help=(
                "C, covariance of one row's gradient: a number (C = c·I), D numbers, or a .csv or"
                " .npy file."
            ),
        ),
    ] = "1.0",
    hessian: Annotated[
        str | None,
        typer.Option(
            "--hessian",
            "-A",
            help="A, Hessian of the mean loss, likewise; equal to C if not given.",
            show_default=False,
        ),
    ] = None,
    sampler: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this sampler of `ornstein fit`; may be repeated.", show_default=False
        ),
    ] = None,
) -> None:
    """Answer “which step size for this N, S, D, C?” without running anything.

    Steps are those of the mean loss. KL is between the law that the sampler settles in and the
    posterior N(mode, A⁻¹/N).
    """
    from ornstein.interfaces.cli.theory_table import show_theory

    show_theory(rows, batch_size, dimension, noise, hessian, sampler)


@app.command(epilog="Example:  ornstein reproduce table1 --data-dir data --out reproduction")
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
