"""The command line. `main` turns every foreseen error into one sentence on stderr and exit code 2.

Commands import what they need when they run, so that `ornstein --help` does not wait for JAX.
"""

from __future__ import annotations

import sys
import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ornstein.errors import FileError, InputError, OrnsteinError, OrnsteinWarning

if TYPE_CHECKING:
    from ornstein.interfaces.fitting import Table

app = typer.Typer(
    name="ornstein",
    help="Bayesian posteriors at the price of SGD: fit, judge and report a regression from a table.",
    epilog="Example:  ornstein fit wine.csv --target quality",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Data = Annotated[
    Path,
    typer.Argument(help="A .csv, .tsv, .parquet or .arrow file with a header.", show_default=False),
]
DataOrFolder = Annotated[
    Path,
    typer.Argument(
        help="A .csv, .tsv, .parquet or .arrow file with a header; with --scheduler also a folder of .parquet files.",
        show_default=False,
    ),
]
Target = Annotated[
    str, typer.Option("--target", "-t", help="The column to explain.", show_default=False)
]
SAMPLER_HELP = (
    "constant-sgd-full, constant-sgd-diagonal, constant-sgd-sqrt, constant-sgd-scalar, sgld, sgld-exact, sgfs-full, "
    "sgfs-diagonal, sghmc or iasg."
)
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


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from ornstein import __version__

        typer.echo(f"ornstein {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(epilog="Example:  ornstein demo")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the plots, the report and the fit.")] = Path(
        "ornstein-demo"
    ),
    seed: Seed = 0,
) -> None:
    """Fit a data set that comes with scikit-learn, judge the fit, and write plots and a report."""
    from ornstein.interfaces.demo import run_demo

    run_demo(out, seed)


@app.command(epilog="Example:  ornstein fit wine.csv --target quality --out wine-fit")
def fit(
    context: typer.Context,
    data: DataOrFolder,
    target: Target,
    family: Family = "auto",
    sampler: Annotated[str, typer.Option(help=SAMPLER_HELP)] = "constant-sgd-full",
    batch_size: Batch = None,
    draws: Draws = 1000,
    chains: Chains = 4,
    seed: Seed = 0,
    prior_precision: Precision = 1.0,
    categorical: Categorical = None,
    drop: Drop = None,
    max_steps: MaxSteps = 20_000_000,
    out: Annotated[
        Path, typer.Option(help="Folder for posterior.nc, fit.orn and report.html.")
    ] = Path("ornstein-fit"),
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 1 unless the verdict is “trusted”.")
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the state of the run, written as it goes, so that a run that stops can be continued.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        str, typer.Option(help="How often the checkpoint is written: 30s, 5m, 1h.")
    ] = "60s",
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue the run in the --checkpoint folder, with its settings; only --draws may be raised.",
        ),
    ] = False,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="Run on Dask: the address of a scheduler (tcp://host:8786), or local:4 for four processes on this machine.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Fit a regression to a table, judge it, and write the draws, the fit and a report.

    Columns of text become indicators with the first level as reference. Columns, and the target of a gaussian regression,
    are standardised; the prior is on that scale. Coefficients are reported on the scale of the table.
    """
    from ornstein.interfaces import console
    from ornstein.interfaces.fitting import sampler_by_name
    from ornstein.interfaces.results import write_results

    started = time.perf_counter()
    chosen = sampler_by_name(sampler)
    if resume and checkpoint is None:
        raise InputError("--resume needs --checkpoint, the folder of the run to go on with")
    if checkpoint is not None and not resume and any(checkpoint.glob("checkpoint-*.npz")):
        raise FileError(
            f"{checkpoint} holds a checkpoint already: add --resume to go on with it, or choose another folder"
        )
    folder = _folder(out)
    options = {
        "batch_size": "auto" if batch_size is None else batch_size,
        "draws": draws,
        "chains": chains,
        "seed": seed,
        "max_steps": max_steps,
        "checkpoint": checkpoint,
        "every": every,
    }
    with _client(scheduler) as client:
        table = _table(
            data, target, family, categorical, drop, prior_precision, folder_too=client is not None
        )
        if resume and checkpoint is not None and client is None:
            asked = context.get_parameter_source("draws")
            more = draws if asked is not None and asked.name == "COMMANDLINE" else None
            posterior = table.resume(checkpoint, data.name, draws=more, every=every)
        else:
            posterior = table.sample(chosen, data.name, client=client, **options)
    if not posterior.settings.get("complete", True):
        again = "" if checkpoint is None else "; --resume goes on from there"
        console.warn(
            f"interrupted: {posterior.draws.shape[1]} of {draws} draws a chain were taken{again}"
        )
    verdict = write_results(table, posterior, folder)
    console.say(f"{time.perf_counter() - started:.1f} s", style="dim")
    if strict and verdict.level != "trusted":
        raise typer.Exit(1)


@app.command(
    epilog="Example:  ornstein predict wine-fit/fit.orn new-wines.csv --out predictions.csv"
)
def predict(
    fit: Annotated[
        Path, typer.Argument(help="The fit.orn that `ornstein fit` wrote.", show_default=False)
    ],
    data: Data,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A .csv or .parquet file; beside the data as NAME-predictions.csv if not given.",
            show_default=False,
        ),
    ] = None,
    probability: Annotated[
        float, typer.Option(help="Probability that the interval holds, between 0 and 1.")
    ] = 0.95,
    draws: Annotated[
        int, typer.Option(help="Use at most this many posterior draws.", min=2)
    ] = 1000,
    seed: Seed = 0,
) -> None:
    """Add a mean, a standard deviation and an interval for the target to every row of a table.

    For a gaussian or poisson target they are those of a new observation: the uncertainty of the coefficients and the noise of
    a single value. For classes they are those of the probability of a class, over the posterior.
    """
    from ornstein.interfaces import console
    from ornstein.interfaces.fitting import encoding_of
    from ornstein.interfaces.predicting import predict_table
    from ornstein.interfaces.reading import read_table, write_table
    from ornstein.storage import load

    posterior = load(fit)
    encoding = encoding_of(posterior, str(fit))
    frame = read_table(data)
    predicted = predict_table(posterior, encoding, frame, probability, draws, seed)
    path = write_table(predicted, out or data.with_name(f"{data.stem}-predictions.csv"))
    added = predicted.columns[len(frame.columns) :]
    console.show_frame(predicted[added[:9]].head(5), f"First of {len(predicted):,} rows", "row")
    if encoding.family == "bernoulli":
        console.remark(f"{encoding.target}_mean is the probability of {encoding.classes[1]!r}")
    console.say(f"Written: {path}")


@app.command(
    epilog="Example:  ornstein compare wine.csv --target quality --method constant-sgd-full --method sgld --method nuts"
)
def compare(
    data: Data,
    target: Target,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            "-m",
            help="A sampler of `ornstein fit`, or laplace, bbvi or nuts; may be repeated.",
            show_default=False,
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="The method that the others are measured against; nuts if it is among them, else laplace.",
            show_default=False,
        ),
    ] = None,
    family: Family = "auto",
    batch_size: Batch = None,
    draws: Draws = 1000,
    chains: Chains = 4,
    seed: Seed = 0,
    prior_precision: Precision = 1.0,
    categorical: Categorical = None,
    drop: Drop = None,
    max_steps: MaxSteps = 2_000_000,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Draw them on top of each other in this .png or .svg.", show_default=False
        ),
    ] = None,
) -> None:
    """Run several samplers and baselines on a table and print how they differ, and what they cost."""
    from ornstein.interfaces.comparing import compare_methods

    table = _table(data, target, family, categorical, drop, prior_precision)
    options = {"draws": draws, "chains": chains, "seed": seed}
    stochastic = {
        "batch_size": "auto" if batch_size is None else batch_size,
        "max_steps": max_steps,
    }
    compare_methods(table, method, reference, options, stochastic, plot)


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
            help="C, covariance of one row's gradient: a number (C = c·I), D numbers, or a .csv or .npy file.",
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

    Steps are those of the mean loss. KL is between the law that the sampler settles in and the posterior N(mode, A⁻¹/N).
    """
    from ornstein.interfaces.theory_table import show_theory

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
            help="Folder with the paper's data files; else ORNSTEIN_DATA, the cache, the public source.",
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
) -> None:
    """Make the table and the figures of Mandt, Hoffman and Blei (2017) again, beside the paper's numbers."""
    from ornstein.interfaces import console
    from ornstein.paper.reproduce import reproduce as make

    files = make(what, _folder(out), data_dir, quick, report=console.remark)
    console.show_files("Written", [(path, "") for path in files])


def _table(
    data: Path,
    target: str,
    family: str,
    categorical: list[str] | None,
    drop: list[str] | None,
    prior_precision: float,
    folder_too: bool = False,
) -> Table:
    """Read and understand the table, and say what was understood."""
    from ornstein.interfaces import console
    from ornstein.interfaces.fitting import Table
    from ornstein.interfaces.reading import read_table
    from ornstein.interfaces.scheduling import ParquetFolder

    frame = ParquetFolder.at(data) if data.is_dir() and folder_too else read_table(data)
    table = Table.of(frame, target, family, categorical or (), drop or (), prior_precision)
    encoding = table.encoding
    console.remark(
        f"{data.name}: {len(frame):,} rows, {len(encoding.columns)} columns as {len(encoding.feature_names)} features"
    )
    console.remark(f"family {encoding.family}: {encoding.reason}")
    for note in encoding.notes:
        console.remark(note)
    return table


def _client(address: str | None) -> AbstractContextManager[Any]:
    """A client of the scheduler, or None where none was asked for."""
    if address is None:
        return nullcontext()
    from ornstein.interfaces.scheduling import scheduler

    return scheduler(address)


def _folder(path: Path) -> Path:
    """The folder, made if need be, before any time is spent."""
    if path.exists() and not path.is_dir():
        raise FileError(f"{path} is a file; --out needs a folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make the folder {path}: {error.strerror}") from error
    return path


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0, 1 where `--strict` is not content, 2 on an error, 130 when interrupted."""
    from ornstein.interfaces import console

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", OrnsteinWarning)
        warnings.showwarning = lambda message, *rest, **more: console.warn(str(message))
        try:
            code = app(arguments, standalone_mode=False)
        except OrnsteinError as error:
            console.complain(str(error))
            code = 2
        except (KeyboardInterrupt, typer.Abort):
            console.complain("interrupted")
            code = 130
        except Exception as error:
            # Typer's own complaints are Click's, or those of its copy of Click: alike in form, not in class.
            if not hasattr(error, "format_message"):
                raise
            console.complain(error.format_message())
            code = 2
    sys.exit(code if isinstance(code, int) else 0)
