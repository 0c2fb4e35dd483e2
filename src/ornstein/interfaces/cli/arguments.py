"""The arguments of the commands: how they are declared, and what is made of them (the table, the
client of a scheduler).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ornstein.samplers import FORMS

if TYPE_CHECKING:
    from distributed import Client

    from ornstein.interfaces.table.fitting import Table

Data = Annotated[
    Path,
    typer.Argument(help="A .csv, .tsv, .parquet or .arrow file with a header.", show_default=False),
]
DataOrFolder = Annotated[
    Path,
    typer.Argument(
        help=(
            "A .csv, .tsv, .parquet or .arrow file with a header; with --scheduler also a folder of"
            " .parquet files."
        ),
        show_default=False,
    ),
]
Target = Annotated[
    str, typer.Option("--target", "-t", help="The column to explain.", show_default=False)
]
SAMPLER_HELP = (
    "auto, which chooses (see `ornstein plan`); or by name: laplace, laplace-weighted, nuts,"
    f" nuts-metric, {', '.join([*FORMS][:-1])} or {[*FORMS][-1]}."
)
Budget = Annotated[
    float | None,
    typer.Option(
        help="With auto: passes over the data that everything together may take.",
        show_default=False,
    ),
]
Deadline = Annotated[
    str | None,
    typer.Option(help="With auto: stop early, after 60s, 5m or 1h.", show_default=False),
]
Family = Annotated[str, typer.Option(help="auto, gaussian, bernoulli, categorical or poisson.")]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch-size", help="Rows per step; chosen near √N if not given.", show_default=False
    ),
]
Draws = Annotated[int, typer.Option(help="Kept draws per chain.", min=1)]
Chains = Annotated[int, typer.Option(help="Independent chains.", min=1)]
Seed = Annotated[int, typer.Option(help="Same seed, same draws.", min=0)]
Precision = Annotated[
    float,
    typer.Option(
        help="1/variance of the normal prior on each standardised coefficient; 0 is flat.", min=0.0
    ),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(
        "--categorical",
        help="A column of numbers that are labels; may be repeated.",
        show_default=False,
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", help="A column to leave out; may be repeated.", show_default=False),
]
MaxSteps = Annotated[
    int, typer.Option("--max-steps", help="Most steps that all chains together may take.", min=1)
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        help=(
            "Folder for the state of the run, written as it goes, so that a run that stops can"
            " be continued."
        ),
        show_default=False,
    ),
]
Every = Annotated[str, typer.Option(help="How often the checkpoint is written: 30s, 5m, 1h.")]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help=(
            "Continue the run in the --checkpoint folder, with its settings; only --draws may"
            " be raised."
        ),
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Overwrite files that ornstein did not write.")
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help=(
            "Run on Dask: the address of a scheduler (tcp://host:8786), or local:4 for four"
            " processes on this machine."
        ),
        show_default=False,
    ),
]


def table_of(
    data: Path,
    target: str,
    family: str,
    categorical: list[str] | None,
    drop: list[str] | None,
    prior_precision: float,
    folder_too: bool = False,
) -> Table:
    """Read and understand the table, and say what was understood."""
    from ornstein.checks import printable
    from ornstein.interfaces.cli import console
    from ornstein.interfaces.table.fitting import Table
    from ornstein.interfaces.table.folder import ParquetFolder
    from ornstein.interfaces.table.reading import read_table

    frame = ParquetFolder.at(data) if data.is_dir() and folder_too else read_table(data)
    table = Table.of(frame, target, family, categorical or (), drop or (), prior_precision)
    encoding = table.encoding
    console.remark(
        f"{printable(data.name)}: {len(frame):,} rows, {len(encoding.columns)} columns as"
        f" {len(encoding.feature_names)} features"
    )
    console.remark(f"family {encoding.family}: {encoding.reason}")
    for note in encoding.notes:
        console.remark(note)
    return table


def client_of(address: str | None) -> AbstractContextManager[Client | None]:
    """A client of the scheduler, or None where none was asked for."""
    if address is None:
        return nullcontext()
    from ornstein.interfaces.cli.scheduling import scheduler

    return scheduler(address)
