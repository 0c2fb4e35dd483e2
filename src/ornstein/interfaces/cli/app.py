"""The commands of the command line.

Commands import what they need when they run, so that `ornstein --help` does not wait for JAX.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ornstein.errors import FileError, InputError
from ornstein.interfaces.cli.arguments import (
    SAMPLER_HELP,
    Batch,
    Budget,
    Categorical,
    Chains,
    Checkpoint,
    Data,
    DataOrFolder,
    Deadline,
    Decimal,
    Draws,
    Drop,
    Every,
    Expectation,
    Exposure,
    Family,
    Force,
    Formula,
    Groups,
    Link,
    MaxSteps,
    Missing,
    Offset,
    Precision,
    Priors,
    Resume,
    Robust,
    Scale,
    Scheduler,
    Seed,
    Strict,
    Target,
    Use,
    Weights,
    Zero,
    client_of,
    model_of,
    request_of,
    robust_sampler,
)
from ornstein.interfaces.cli.interrupts import Commands, said_where

app = typer.Typer(
    name="ornstein",
    cls=Commands,
    help=(
        "Bayesian posteriors at the price of SGD: fit, judge and report a regression from a table."
    ),
    epilog="Example:  ornstein fit wine.csv --formula 'quality ~ bs(alcohol, df=4) + colour'",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from ornstein._version import __version__

        typer.echo(f"ornstein {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(epilog="Example:  ornstein fit wine.csv --target quality --out wine-fit")
def fit(
    context: typer.Context,
    data: DataOrFolder,
    formula: Formula = None,
    target: Target = None,
    use: Use = None,
    drop: Drop = None,
    categorical: Categorical = None,
    family: Family = "auto",
    link: Link = None,
    offset: Offset = None,
    exposure: Exposure = None,
    weights: Weights = None,
    zero: Zero = None,
    scale: Scale = None,
    missing: Missing = "drop",
    decimal: Decimal = None,
    prior: Priors = None,
    prior_precision: Precision = None,
    sampler: Annotated[str, typer.Option(help=SAMPLER_HELP)] = "auto",
    robust: Robust = False,
    batch_size: Batch = None,
    draws: Draws = 1000,
    chains: Chains = 4,
    seed: Seed = 0,
    max_steps: MaxSteps = 20_000_000,
    out: Annotated[
        Path, typer.Option(help="Folder for posterior.nc, fit.orn and report.html.")
    ] = Path("ornstein-fit"),
    strict: Strict = False,
    checkpoint: Checkpoint = None,
    every: Every = "60s",
    resume: Resume = False,
    scheduler: Scheduler = None,
    budget: Budget = None,
    deadline: Deadline = None,
    force: Force = False,
) -> None:
    """Fit a regression to a table, judge it, and write the draws, the fit and a report.

    A formula may call C, bs, cr, cc, poly, log, log1p, exp, sqrt, center, scale, I and offset.
    Columns of text become indicators with the first label as reference. Coefficients are in the
    units of the table; their prior is weakly informative on the scale of the data.
    """
    with context.obj.deferred():
        import pandas  # noqa: F401

        from ornstein.entrances import running
        from ornstein.interfaces.cli import console
        from ornstein.interfaces.cli.outputs import FIT, result_folder
        from ornstein.interfaces.cli.results import show_results, write_results
        from ornstein.interfaces.table.fitting import described
        from ornstein.ways import require_way

    started = time.perf_counter()
    named = None if sampler == "auto" else require_way(sampler)
    chosen = robust_sampler(sampler) if robust else named
    if resume and checkpoint is None:
        raise InputError("--resume needs --checkpoint, the folder of the run to continue")
    if checkpoint is not None and not resume and any(checkpoint.glob("checkpoint-*.npz")):
        raise FileError(
            f"{checkpoint} already holds a checkpoint: add --resume to continue it, or choose"
            " another folder"
        )
    request = request_of(
        formula,
        target,
        use,
        drop,
        categorical,
        offset,
        exposure,
        prior,
        zero,
        scale,
        family=family,
        link=link,
        weights=weights,
        missing=missing,
        decimal=decimal,
        prior_precision=prior_precision,
    )
    options: dict[str, Any] = {
        "batch_size": "auto" if batch_size is None else batch_size,
        "draws": draws,
        "chains": chains,
        "seed": seed,
        "max_steps": max_steps,
        "checkpoint": checkpoint,
        "every": every,
        "budget": budget,
        "deadline": deadline,
    }
    again = "" if checkpoint is None else "; --resume continues from the checkpoint"
    with result_folder(out, FIT, [data], force) as folder:
        with client_of(scheduler) as client, said_where(again):
            model = model_of(data, request, folder_too=client is not None)
            if resume and checkpoint is not None and client is None:
                asked = context.get_parameter_source("draws")
                more = draws if asked is not None and asked.name == "COMMANDLINE" else None
                posterior = running.resume(checkpoint, model, draws=more, every=every)
            else:
                posterior = running.sample(model, chosen, client=client, **options)
            posterior = described(posterior, data.name, request, model.n_data)
        results = write_results(posterior, folder)
    show_results(results)
    console.say(f"{time.perf_counter() - started:.1f} s", style="dim")
    if not posterior.settings.get("complete", True):
        raise KeyboardInterrupt(
            f"interrupted: {posterior.draws.shape[1]} of {draws} draws a chain were taken, and are"
            f" saved in {folder}{again}"
        )
    if strict and not (results.verdict.trusted and results.critique.level in ("fits", "skipped")):
        raise typer.Exit(1)


@app.command(epilog="Example:  ornstein plan wine.csv --target quality")
def plan(
    data: Data,
    formula: Formula = None,
    target: Target = None,
    family: Family = "auto",
    batch_size: Batch = None,
    draws: Draws = 1000,
    chains: Chains = 4,
    seed: Seed = 0,
    prior_precision: Precision = None,
    categorical: Categorical = None,
    drop: Drop = None,
    use: Use = None,
    missing: Missing = "drop",
    budget: Budget = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Save a plot of the plan to this .png or .svg.", show_default=False),
    ] = None,
    force: Force = False,
) -> None:
    """Print every way to the posterior of a table's regression: predicted distance, cost, and which
    one `ornstein fit` would take. Nothing is sampled.
    """
    from ornstein.interfaces.cli import console
    from ornstein.interfaces.cli.outputs import require_place
    from ornstein.ways.plan import plan as make

    require_place(plot, [data], force)
    request = request_of(
        formula,
        target,
        use,
        drop,
        categorical,
        family=family,
        missing=missing,
        prior_precision=prior_precision,
    )
    size = "auto" if batch_size is None else batch_size
    made = make(
        model_of(data, request), budget, draws=draws, chains=chains, seed=seed, batch_size=size
    )
    console.say(str(made))
    if plot is not None:
        made.plot(plot)
        console.say(f"Written: {plot}")


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
    expectation: Expectation = False,
    groups: Groups = "average",
    seed: Seed = 0,
    decimal: Decimal = None,
    force: Force = False,
) -> None:
    """Add a mean, a standard deviation and an interval for the target to every row of a table.

    For numbers they are those of a new outcome: the uncertainty of the coefficients and the noise
    of a single value. For classes they are those of the probability of a class, over the posterior.
    Rows with missing values or unknown labels stay empty and are counted.
    """
    from ornstein.checks import printable
    from ornstein.interfaces.cli import console
    from ornstein.interfaces.cli.outputs import require_not_input, require_own
    from ornstein.interfaces.table.fitting import from_table
    from ornstein.interfaces.table.predicting import has_columns, predict_table, write_table
    from ornstein.posterior.storage import load
    from ornstein.regression.reading import read_table

    path = out or data.with_name(f"{data.stem}-predictions.csv")
    require_not_input([path], [data, fit])
    posterior, spec = from_table(load(fit), str(fit))
    frame = read_table(data, decimal)
    predicted = predict_table(posterior, frame, probability, draws, seed, expectation, groups)
    if path.exists():
        require_own([path], lambda earlier: has_columns(earlier, list(predicted.columns)), force)
        console.remark(f"{path} holds earlier predictions, which are replaced")
    write_table(predicted, path)
    added = predicted.columns[len(frame.columns) :]
    console.show_frame(predicted[added[:9]].head(5), f"First of {len(predicted):,} rows", "row")
    if len(spec.classes) == 2:
        console.remark(f"{printable(spec.target)}_mean is the probability of {spec.classes[1]!r}")
    console.say(f"Written: {path}")


@app.command(epilog="Example:  ornstein demo")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the plots, the report and the fit.")] = Path(
        "ornstein-demo"
    ),
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Fit a data set that comes with scikit-learn, judge the fit, and write plots and a report."""
    from ornstein.interfaces.cli.demo import run_demo
    from ornstein.interfaces.cli.outputs import FIT, PLOTS, result_folder

    with result_folder(out, (*FIT, *PLOTS), force=force) as folder:
        run_demo(folder, seed)


@app.command(
    epilog=(
        "Example:  ornstein compare wine.csv --target quality --method constant-sgd-full --method"
        " sgld --method nuts"
    )
)
def compare(
    data: Data,
    formula: Formula = None,
    target: Target = None,
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
            help=(
                "The method that the others are compared with; nuts if it is among them, else"
                " laplace."
            ),
            show_default=False,
        ),
    ] = None,
    family: Family = "auto",
    batch_size: Batch = None,
    draws: Draws = 1000,
    chains: Chains = 4,
    seed: Seed = 0,
    prior_precision: Precision = None,
    categorical: Categorical = None,
    drop: Drop = None,
    use: Use = None,
    missing: Missing = "drop",
    max_steps: MaxSteps = 2_000_000,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Save a plot of them on top of each other to this .png or .svg.",
            show_default=False,
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Run several samplers and baselines on a table and print how they differ, and what they
    cost.
    """
    from ornstein.interfaces.cli.comparing import compare_methods
    from ornstein.interfaces.cli.outputs import require_place

    require_place(plot, [data], force)
    request = request_of(
        formula,
        target,
        use,
        drop,
        categorical,
        family=family,
        missing=missing,
        prior_precision=prior_precision,
    )
    model = model_of(data, request)
    options = {"draws": draws, "chains": chains, "seed": seed}
    stochastic = {
        "batch_size": "auto" if batch_size is None else batch_size,
        "max_steps": max_steps,
    }
    compare_methods(model, method, reference, options, stochastic, plot)
