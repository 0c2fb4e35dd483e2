"""The commands `theory` and `reproduce`, added to those of `app`: step sizes without a run, and the
paper's experiments.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ornstein.interfaces.cli.app import app
from ornstein.interfaces.cli.reproducing import reproduce


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


app.command(epilog="Example:  ornstein reproduce table1 --data-dir data --out reproduction")(
    reproduce
)
