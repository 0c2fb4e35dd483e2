"""The arguments of the commands: how they are declared, and what is made of them (the table, the
client of a scheduler).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ornstein.errors import InputError
from ornstein.samplers import FORMS

if TYPE_CHECKING:
    from distributed import Client

    from ornstein.dynamics.dynamics import Sampler
    from ornstein.model.model import Model
    from ornstein.regression.regress import Request

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
Formula = Annotated[
    str | None,
    typer.Option(
        "--formula",
        "-f",
        help="Such as 'y ~ a * b + bs(c, df=5) + (1 | g)'; in place of --target and --use.",
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option("--target", "-t", help="The column to explain by all others.", show_default=False),
]
Use = Annotated[
    list[str] | None,
    typer.Option(
        "--use",
        help="A column or a term to explain the target by, in place of all; may be repeated.",
        show_default=False,
    ),
]
Offset = Annotated[
    str | None,
    typer.Option(help="A column that is added to the linear predictor.", show_default=False),
]
Exposure = Annotated[
    str | None,
    typer.Option(
        help="A column of times or sizes that counts are proportional to.", show_default=False
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(help="A column that multiplies the log likelihoods.", show_default=False),
]
Priors = Annotated[
    list[str] | None,
    typer.Option(
        "--prior",
        help=(
            "The prior of a column or term, such as 'age=Normal(0, 1)': Normal, StudentT(df, loc,"
            " scale) or Flat(); may be repeated."
        ),
        show_default=False,
    ),
]
Missing = Annotated[
    str,
    typer.Option(help="Rows with missing values: drop, error, or indicator (fill and mark)."),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        help="What a number such as 1,234 means in a text file: '.' or ','.", show_default=False
    ),
]
Link = Annotated[str | None, typer.Option(help="The link of the family.", show_default=False)]
Zero = Annotated[
    str | None,
    typer.Option(
        help="Terms that explain the zeros of a zero-inflated or hurdle family: 'x + z'.",
        show_default=False,
    ),
]
Scale = Annotated[
    str | None,
    typer.Option(
        help="Terms that explain the scale of a gaussian or student-t family: 'x + z'.",
        show_default=False,
    ),
]
Groups = Annotated[
    str,
    typer.Option(
        help="Of a mixed model: predict for the average group, or for new ones (average, new)."
    ),
]
SAMPLER_HELP = (
    "auto, which chooses (see `ornstein plan`); or by name: laplace, laplace-weighted, nuts,"
    f" nuts-metric, {', '.join([*FORMS][:-1])} or {[*FORMS][-1]}."
)
Budget = Annotated[
    float | None,
    typer.Option(
        help="With auto: limit on the passes over the data that everything takes together.",
        show_default=False,
    ),
]
Deadline = Annotated[
    str | None,
    typer.Option(help="With auto: stop early, after 60s, 5m or 1h.", show_default=False),
]
Family = Annotated[
    str,
    typer.Option(help="auto, gaussian, bernoulli, categorical, poisson or another family's name."),
]
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
    float | None,
    typer.Option(
        help=(
            "1/variance of a normal prior on each standardised coefficient; 0 is flat. Not given:"
            " weakly informative, on the scale of the data."
        ),
        min=0.0,
        show_default=False,
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
    int, typer.Option("--max-steps", help="Limit on the steps of all chains together.", min=1)
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
Expectation = Annotated[
    bool,
    typer.Option(
        "--expectation",
        help="Also add sd and interval of the expectation, the mean of many such outcomes.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Exit with code 1 unless draws are “trusted” and the model “fits”."
    ),
]
Robust = Annotated[
    bool,
    typer.Option(
        "--robust",
        help="Robust standard errors (the sandwich A⁻¹CA⁻¹/N) in place of the posterior's.",
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


def request_of(
    formula: str | None,
    target: str | None,
    use: list[str] | None,
    drop: list[str] | None,
    categorical: list[str] | None,
    offset: str | None = None,
    exposure: str | None = None,
    prior: list[str] | None = None,
    zero: str | None = None,
    scale: str | None = None,
    **settings: Any,
) -> Request:
    """The formula that the options say, with the other settings of a regression."""
    from ornstein.regression.formula import quoted
    from ornstein.regression.regress import Request

    if (formula is None) == (target is None):
        raise InputError(
            "give either --formula 'y ~ ...' or --target, the column to explain by all others"
        )
    if formula is not None and use:
        raise InputError("--use belongs to --target: write its terms into --formula")
    if formula is None:
        assert target is not None
        names = [
            f"C({quoted(name)})" if name in (categorical or ()) else name for name in use or ()
        ]
        formula = f"{quoted(target)} ~ {' + '.join(names) or '.'}"
    if offset is not None:
        formula += f" + offset({quoted(offset)})"
    if exposure is not None:
        formula += f" + offset(log({quoted(exposure)}))"
    left_out, labels = tuple(drop or ()), tuple(categorical or ())
    priors = dict(map(_prior, prior)) if prior else None
    parts = tuple((word, text) for word, text in (("zero", zero), ("scale", scale)) if text)
    return Request(
        formula, priors=priors, parts=parts, left_out=left_out, labels=labels, **settings
    )


def _prior(text: str) -> tuple[str, Any]:
    """`age=Normal(0, 1)` as a name and a prior; numbers only, nothing is evaluated."""
    import ast
    import re

    from ornstein.model import priors

    found = re.fullmatch(r"(.+)=\s*(\w+)\((.*)\)\s*", text)
    known = {"Normal": priors.Normal, "StudentT": priors.StudentT, "Flat": priors.Flat}
    try:
        if found is None:
            raise ValueError(text)
        name, kind, numbers = found.groups()
        given = ast.literal_eval(f"({numbers},)") if numbers.strip() else ()
        return name.strip(), known[kind](*given)
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError):
        raise InputError(
            f"--prior {text!r} must look like 'age=Normal(0, 1)', with {', '.join(known)}"
        ) from None


def robust_sampler(name: str) -> Sampler:
    """The sampler of that name, aimed at the sandwich."""
    from dataclasses import replace

    from ornstein.samplers import sampler_by_name
    from ornstein.samplers.constant_sgd import ConstantSGD
    from ornstein.samplers.iasg import IASG

    sampler = sampler_by_name("constant-sgd-full" if name == "auto" else name)
    if not isinstance(sampler, ConstantSGD | IASG):
        raise InputError(f"--robust needs constant-sgd-full or iasg; got {name}")
    return replace(sampler, target="sandwich")


def model_of(data: Path, request: Request, folder_too: bool = False) -> Model:
    """Read and understand the table, and print what was understood."""
    from ornstein.checks import printable
    from ornstein.entrances.models import from_table, glm, understood
    from ornstein.interfaces.cli import console

    model: Model
    if data.is_dir() and folder_too:
        from ornstein.regression.folder import ParquetFolder, regression_on

        model, spec = regression_on(request, ParquetFolder.at(data), glm)
        first, *others = spec.understood(model.n_data)
    else:
        model = table_model = from_table(request, data)
        first, *others = understood(table_model)
    console.remark(f"{printable(data.name)}: {first}")
    for note in others:
        console.remark(note)
    return model


def client_of(address: str | None) -> AbstractContextManager[Client | None]:
    """A client of the scheduler, or None where none was asked for."""
    if address is None:
        return nullcontext()
    from ornstein.interfaces.cli.scheduling import scheduler

    return scheduler(address)
