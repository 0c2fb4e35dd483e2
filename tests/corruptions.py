"""Sound tables, ways to spoil them, and every entrance through which they can be handed over.

A corruption is a strategy of Hypothesis that gives spoilt input and the words that must be in the
sentence with which it is refused. `ENTRANCES` hand the input over: each raises an error, and
returns normally only if the input was accepted.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import functools
import io
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pyarrow
from hypothesis import strategies as st

import ornstein as orn
from ornstein.interfaces.cli.main import main
from ornstein.regression.regress import Request, regression

ROWS = 24
RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(2, ROWS))
TARGETS = {
    "gaussian": A - 0.5 * B + 0.5 * RNG.normal(size=ROWS),
    "bernoulli": np.arange(ROWS) % 2,
    "categorical": np.arange(ROWS) % 3,
    "poisson": np.arange(ROWS) % 5,
}
GROUPS = np.arange(ROWS) // 4
OBJECTS = ("arrays", "frames", "estimators", "numpyro", "glmm")
FILES = ("csv", "parquet", "command line")
TABLES = ("regress", *FILES)
SAMPLED = ("arrays", "frames", "glmm", "regress")
EVERYWHERE = (*OBJECTS, *TABLES)
MISSING = r"missing|not finite|NaN|infinit|masked"
NOT_NUMERIC = (
    r"numeric|numbers|cannot be put in order|could not convert|must be (a string|real|strictly)"
    r"|different labels|dtype|labels|type|dates"
)
PLACE = r"row|column|\by\b|\bX\b|target|\brows\b|'y'"


@dataclass(frozen=True)
class Given:
    """What is handed over: features by name, the target, and options. `words` must all be in the
    sentence.
    """

    columns: dict[str, Any]
    target: Any
    family: str = "gaussian"
    model_options: dict[str, Any] = field(default_factory=dict)
    run_options: dict[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    contents: bytes | None = None  # of a file, in place of the table
    arguments: tuple[str, ...] = ()  # more of the command line
    name: str = "table.csv"
    formula: str = "y ~ ."
    groups: Any = field(default_factory=GROUPS.copy)  # of a mixed model, and what varies there
    effects: Any = None

    @property
    def matrix(self) -> Any:
        columns = list(self.columns.values())
        if any(isinstance(column, np.ma.MaskedArray) for column in columns):
            return np.ma.column_stack(columns)
        return np.column_stack(columns) if columns else np.empty((len(self.target), 0))

    @property
    def frame(self) -> pd.DataFrame:
        return pd.DataFrame({**self.columns, "y": self.target})


def sound(family: str = "gaussian") -> Given:
    return Given({"a": A.copy(), "b": B.copy()}, TARGETS[family].copy(), family)


class AcceptedError(AssertionError):
    """Spoilt input went through."""


FAMILIES = st.sampled_from(list(TARGETS))
ROW = st.integers(0, ROWS - 1)


def spoilt(values: st.SearchStrategy[Any], *words: str) -> st.SearchStrategy[Given]:
    """One value of one column, the target included, is another one."""

    @st.composite
    def strategy(draw: st.DrawFn) -> Given:
        given, value, row = sound(draw(FAMILIES)), draw(values), draw(ROW)
        # to classes that are read from a file, other text is one more class
        labels = given.family == "categorical" and not isinstance(value, float)
        place = draw(st.sampled_from(["a", "b"] if labels else ["a", "b", "y"]))
        before = given.target if place == "y" else given.columns[place]
        kind = float if isinstance(value, float) else object
        column = np.array(before, dtype=kind)
        column[row] = value
        changed = (
            replace(given, target=column)
            if place == "y"
            else replace(given, columns={**given.columns, place: column})
        )
        return replace(changed, words=words)

    return strategy()


def spoilt_column(make: Any, *words: str) -> st.SearchStrategy[Given]:
    """A whole column of features is another one, made from a number."""

    @st.composite
    def strategy(draw: st.DrawFn) -> Given:
        given, place = sound(draw(FAMILIES)), draw(st.sampled_from(["a", "b"]))
        column = make(given.columns[place], draw(ROW))
        return replace(given, columns={**given.columns, place: column}, words=words)

    return strategy()


def spoilt_target(family: str, make: Any, *words: str) -> st.SearchStrategy[Given]:
    return st.builds(
        lambda row: replace(
            sound(family), target=make(sound(family).target.copy(), row), words=words
        ),
        ROW,
    )


def with_model(family: Any, name: str, values: list[Any], *words: str) -> st.SearchStrategy[Given]:
    return st.builds(
        lambda value: replace(sound(family), model_options={name: value}, words=(name, *words)),
        st.sampled_from(values),
    )


def with_run(name: str, values: list[Any], *words: str) -> st.SearchStrategy[Given]:
    return st.builds(
        lambda value: replace(
            sound(), run_options={name: value}, words=(name.replace("_", "[_-]"), *words)
        ),
        st.sampled_from(values),
    )


def with_formula(formulas: list[str], *words: str) -> st.SearchStrategy[Given]:
    return st.builds(
        lambda formula: replace(sound(), formula=formula, words=words), st.sampled_from(formulas)
    )


def with_groups(make: Any, *words: str) -> st.SearchStrategy[Given]:
    """Other groups, made from a row's number."""
    return st.builds(
        lambda family, row: replace(sound(family), groups=make(row), words=words), FAMILIES, ROW
    )


def with_effects(make: Any, *words: str) -> st.SearchStrategy[Given]:
    """Columns whose coefficients vary among groups."""
    return st.builds(
        lambda family, row: replace(sound(family), effects=make(row), words=words), FAMILIES, ROW
    )


def with_unknown(label: Any) -> Any:
    """Groups of which the given row's is another one."""
    return lambda row: put(GROUPS.astype(object), row, label)


def put(array: Any, row: int, value: Any) -> Any:
    array = np.array(array, dtype=np.result_type(array, type(value)))
    array[row] = value
    return array


def shorter(given: Given, rows: int) -> Given:
    return replace(
        given,
        columns={name: column[:rows] for name, column in given.columns.items()},
        target=given.target[:rows],
    )


def lengths() -> st.SearchStrategy[Given]:
    """A target that is shorter or longer than the features."""
    return st.builds(
        lambda family, rows: replace(
            sound(family),
            target=np.resize(TARGETS[family], rows),
            words=(r"rows|lengths|samples|shape", rf"\b({rows}|{ROWS})\b"),
        ),
        FAMILIES,
        # NumPyro takes one value for that of every row
        st.integers(2, 2 * ROWS).filter(lambda rows: rows != ROWS),
    )


def file_of(contents: st.SearchStrategy[bytes], name: str, *words: str) -> st.SearchStrategy[Given]:
    return st.builds(lambda held: replace(sound(), contents=held, name=name, words=words), contents)


def on_command_line(*arguments: str, words: tuple[str, ...]) -> st.SearchStrategy[Given]:
    return st.builds(
        lambda family: replace(sound(family), arguments=arguments, words=words), FAMILIES
    )


def two_effects(row: int) -> Any:
    return np.column_stack([np.ones(ROWS), A])


HEADER = b"a,b,y\n"
LINES = st.lists(
    st.tuples(st.integers(-99, 99), st.integers(0, 9), st.integers(0, 1)), min_size=2, max_size=9
).map(lambda rows: b"".join(b"%d,%d,%d\n" % row for row in rows))

# name: (where it is refused, strategy)
CORRUPTIONS: dict[str, tuple[tuple[str, ...], st.SearchStrategy[Given]]] = {
    "not a number": (EVERYWHERE, spoilt(st.just(float("nan")), MISSING, PLACE)),
    "infinity": (EVERYWHERE, spoilt(st.sampled_from([np.inf, -np.inf]), MISSING, PLACE)),
    "none": (
        ("arrays", "frames", "estimators", "glmm", *TABLES),
        spoilt(st.just(None), rf"{MISSING}|{NOT_NUMERIC}", PLACE),
    ),
    "missing of pandas": (
        ("arrays", "frames", "glmm", "regress", "csv"),
        spoilt(st.sampled_from([pd.NA, pd.NaT]), rf"{MISSING}|{NOT_NUMERIC}", PLACE),
    ),
    "text among numbers": (
        EVERYWHERE,
        spoilt(st.sampled_from(["high", "1,5", "--", "0x1f", "1.2.3"]), NOT_NUMERIC, PLACE),
    ),
    "complex number": (
        ("arrays", "frames", "glmm", "regress", "csv"),
        spoilt(st.just(1.0 + 2.0j), NOT_NUMERIC, PLACE),
    ),
    "date among numbers": (
        # a table's dates are days, where a whole column holds dates
        ("arrays", "frames"),
        spoilt(st.dates(datetime.date(1990, 1, 1), datetime.date(2030, 1, 1)), NOT_NUMERIC, PLACE),
    ),
    "list among numbers": (("frames", "csv"), spoilt(st.just([1, 2]), NOT_NUMERIC, PLACE)),
    "decimal that is none": (
        ("arrays", "frames"),
        spoilt(st.just(decimal.Decimal("nan")), rf"{MISSING}|{NOT_NUMERIC}", PLACE),
    ),
    "masked": (
        ("arrays", "estimators", "glmm"),
        spoilt_column(
            lambda column, row: np.ma.masked_array(column, mask=np.arange(ROWS) == row),
            MISSING,
            PLACE,
        ),
    ),
    "numbers as text": (
        ("arrays", "frames", "estimators"),
        spoilt_column(lambda column, row: column.astype(str).astype(object), NOT_NUMERIC),
    ),
    "dates": (
        ("frames",),
        spoilt_column(lambda column, row: pd.date_range("2020-01-01", periods=ROWS), NOT_NUMERIC),
    ),
    "categories": (
        ("frames",),
        spoilt_column(lambda column, row: pd.Categorical(["u", "v"] * (ROWS // 2)), NOT_NUMERIC),
    ),
    "nullable with a gap": (
        ("frames", "parquet"),
        spoilt_column(
            lambda column, row: pd.Series(column).where(np.arange(ROWS) != row).astype("Float64"),
            MISSING,
        ),
    ),
    "labels without end": (
        TABLES,
        st.builds(
            lambda labels: Given(
                {"a": np.resize(A, labels), "c": [f"label {number}" for number in range(labels)]},
                np.arange(labels) + np.resize(B, labels),
                words=("column 'c' holds", f"{labels} different labels", "more than 100"),
            ),
            st.integers(101, 300),
        ),
    ),
    "wrong length": ((*OBJECTS, "regress"), lengths()),
    "no rows": (
        ("arrays", "frames", "estimators", "glmm", *TABLES),
        st.builds(
            lambda family: replace(shorter(sound(family), 0), words=(r"rows|sample|empty",)),
            FAMILIES,
        ),
    ),
    "no columns": (
        ("arrays", "estimators", *TABLES),
        st.builds(
            lambda family: replace(sound(family), columns={}, words=(r"columns|feature",)), FAMILIES
        ),
    ),
    "constant columns": (
        TABLES,
        st.builds(
            lambda family, value: replace(
                sound(family),
                columns={"a": np.full(ROWS, value), "b": np.full(ROWS, -value)},
                words=("every column besides the target is constant",),
            ),
            FAMILIES,
            st.floats(-1e6, 1e6),
        ),
    ),
    "constant target": (
        ("arrays", "frames", "estimators", "glmm", *TABLES),
        st.builds(
            lambda family, value: replace(
                sound(family),
                target=np.full(ROWS, float(value)),
                words=(r"constant|one class|only one|one value|nothing|1 class",),
            ),
            st.sampled_from(["gaussian", "bernoulli", "categorical"]),
            st.integers(-5, 5),
        ),
    ),
    "one row": (
        ("arrays", "frames", *TABLES),
        st.builds(
            lambda family: replace(
                shorter(sound(family), 1), words=(r"constant|one class|only one|one value|nothing",)
            ),
            st.sampled_from(["gaussian", "bernoulli", "categorical"]),
        ),
    ),
    "a third class": (
        ("arrays", "frames", "glmm", *TABLES),
        spoilt_target("bernoulli", lambda y, row: put(y, row, 2), "two labels", "3"),
    ),
    "as many classes as rows": (
        ("arrays", "frames"),
        spoilt_target(
            "categorical", lambda y, row: np.arange(row, row + ROWS), "different labels", str(ROWS)
        ),
    ),
    "negative count": (
        ("arrays", "frames", "glmm", "estimators", *TABLES),
        spoilt_target("poisson", lambda y, row: put(y, row, -1 - row), "negative|counts"),
    ),
    "fraction of a count": (
        ("arrays", "frames", "glmm", *TABLES),
        spoilt_target("poisson", lambda y, row: put(y, row, row + 0.5), "fractional", "counts"),
    ),
    "words for a target": (
        ("arrays", "frames", "glmm", *TABLES),
        st.builds(
            lambda family: replace(
                sound(family),
                target=np.array(["u", "v"] * (ROWS // 2), dtype=object),
                words=(NOT_NUMERIC,),
            ),
            st.sampled_from(["gaussian", "poisson"]),
        ),
    ),
    "unknown family": (
        ("arrays", "frames", "glmm", *TABLES),
        st.builds(
            lambda family: replace(
                sound(), family=family, words=(f"unknown family {family!r}", "gaussian")
            ),
            st.sampled_from(["gama", "gausian", "", "normal", "poison"]),
        ),
    ),
    "prior precision": (
        ("arrays", "frames", "estimators"),
        with_model("gaussian", "prior_precision", [-1.0, np.nan, np.inf, -1e-300], "negative"),
    ),
    "prior of another length": (
        ("arrays", "frames"),
        with_model("gaussian", "prior_precision", [[1.0] * n for n in (1, 3, 4)], r"\(2\)"),
    ),
    "noise scale": (
        ("arrays", "frames"),
        with_model("gaussian", "noise_scale", [0.0, -1.0, np.nan, np.inf, "guess"], "positive"),
    ),
    "weights": (
        ("arrays", "frames"),
        with_model(
            "poisson",
            "weights",
            [-np.ones(ROWS), np.zeros(ROWS), np.ones(3), np.full(ROWS, np.nan)],
            "negative|rows|finite",
        ),
    ),
    "draws": (EVERYWHERE, with_run("draws", [0, -3, -(10**6)], r"draws|--draws", "0|-")),
    "chains": (EVERYWHERE, with_run("chains", [0, -1, -7], r"chains|--chains", "0|-")),
    "batch size": (
        (*OBJECTS[:4], *TABLES),  # of a mixed model, groups are the examples
        with_run("batch_size", [0, -1, ROWS + 1, 10**9], r"between 1 and", str(ROWS)),
    ),
    "steps": (EVERYWHERE, with_run("max_steps", [0, -1, 3], r"\d")),
    "seed": (
        ("arrays", "frames", "glmm", *TABLES),
        with_run("seed", [-1, -2, -(2**40)], "0 or more|or equal to 0|x>=0"),
    ),
    "thin": (SAMPLED, with_run("thin", [0, -1, 1.5, "often"], "positive whole number")),
    "dtype": (SAMPLED, with_run("dtype", ["float16", "int32", "double"], "float32")),
    "keep": (SAMPLED, with_run("keep", ["all", "low-rank:0", ""], "moments")),
    "formula of unknown columns": (
        ("regress", "command line"),
        with_formula(["y ~ a + zz", "y ~ a*zz", "y ~ bs(zz)", "y ~ C(zz)", "zz ~ a"], "'zz'"),
    ),
    "formula that is none": (
        ("regress", "command line"),
        with_formula(
            ["y ~", "y", "", "~ a", "y ~ a +", "y ~ (a", "y ~~ a", "y = a", "y ~ a)", "y ~ a ~ b"],
            "formula",
        ),
    ),
    "formula that calls": (
        ("regress", "command line"),
        with_formula(
            ["y ~ sin(a)", "y ~ open(a)", "y ~ a.mean()", "y ~ eval('1')", "y ~ np.log(a)"],
            "formula|function|call",
        ),
    ),
    "formula without columns": (
        ("regress", "command line"),
        with_formula(["y ~ 1", "y ~ 0", "y ~ -1"], "no columns"),
    ),
    "formula of no numbers": (
        ("regress", "command line"),
        with_formula(["y ~ log(a - 1000)", "y ~ sqrt(a - 99)"], "not finite", "row"),
    ),
    "spline of nothing": (
        ("regress", "command line"),
        with_formula(["y ~ bs(a, df=1)", "y ~ bs(a, df=-3)", "y ~ poly(a, 0)"], "computed|columns"),
    ),
    "missing rule": (
        ("regress",),
        with_model("gaussian", "missing", ["skip", "", None, 3], "drop", "error", "indicator"),
    ),
    "link": (
        ("regress",),
        with_model("bernoulli", "link", ["log10", "softmax", 3], "logit|must be a name"),
    ),
    "priors by name": (
        ("regress",),
        with_model(
            "gaussian",
            "priors",
            [{"zz": orn.priors.Normal(0, 1)}, {"a": 3}, {"a": "wide"}, [orn.priors.Flat()]],
        ),
    ),
    "weights of a table": (
        ("regress",),
        with_model("poisson", "weights", ["zz", np.ones(3), -np.ones(ROWS), np.full(ROWS, np.nan)]),
    ),
    "missing group": (
        ("glmm",),
        st.one_of(
            *(
                with_groups(with_unknown(label), "groups", "missing")
                for label in (None, np.nan, pd.NA, pd.NaT)
            )
        ),
    ),
    "masked group": (
        ("glmm",),
        with_groups(
            lambda row: np.ma.masked_array(GROUPS, mask=np.arange(ROWS) == row), "groups", "masked"
        ),
    ),
    "groups of no kind": (
        ("glmm",),
        st.one_of(
            *(
                with_groups(lambda row, value=value: value, "groups")
                for value in (None, 3, "ward", {"a": 1}, np.zeros((ROWS, 2)), [[1], [2, 3]])
            )
        ),
    ),
    "groups of another length": (
        ("glmm",),
        with_groups(lambda row: np.resize(GROUPS, row or 1), "groups", "rows", str(ROWS)),
    ),
    "groups in another order": (
        ("glmm",),
        st.builds(
            lambda family: replace(
                sound(family),
                target=pd.Series(sound(family).target),
                groups=pd.Series(GROUPS, index=range(ROWS)[::-1]),
                words=("groups", "same order"),
            ),
            FAMILIES,
        ),
    ),
    "one group": (("glmm",), with_groups(lambda row: np.full(ROWS, row), "one group only")),
    "effects that are not finite": (
        ("glmm",),
        with_effects(lambda row: put(two_effects(row), row, np.nan), "Z", MISSING, "row"),
    ),
    "effects of another length": (
        ("glmm",),
        with_effects(lambda row: two_effects(row)[: row + 1][:-1], "Z", "rows"),
    ),
    "effects in words": (
        ("glmm",),
        with_effects(lambda row: np.full((ROWS, 1), "high"), r"\bZ\b", "numeric"),
    ),
    "collinear effects": (
        ("glmm",),
        with_effects(lambda row: two_effects(row)[:, [0, 1, 1]], "collinear"),
    ),
    "zero effects": (("glmm",), with_effects(lambda row: np.zeros((ROWS, 1)), "zero in every row")),
    "points": (
        ("glmm",),
        with_model("poisson", "points", [0, -1, 26, 1.5, "many", None], "whole number from 1 to"),
    ),
    "priors of groups": (
        ("glmm",),
        with_model("poisson", "priors", ["wide", 3, {"a": 1.0}], "None, 'flat' or MixedPriors"),
    ),
    "duplicate names": (
        FILES[:1] + FILES[2:],
        file_of(LINES.map(lambda rows: b"a,a,y\n" + rows), "table.csv", "two columns", "'a'"),
    ),
    "ragged lines": (
        ("csv", "command line"),
        file_of(LINES.map(lambda rows: HEADER + rows + b"1,2,3,4,5\n"), "table.csv", "not a table"),
    ),
    "empty file": (
        FILES,
        st.sampled_from(["table.csv", "table.parquet", "table.arrow"]).flatmap(
            lambda name: file_of(st.just(b""), name, "empty", "0 bytes")
        ),
    ),
    "header only": (
        ("csv", "command line"),
        file_of(st.sampled_from([HEADER, b"a;b;y\n", b"\xef\xbb\xbfa,b,y\n"]), "t.csv", "no rows"),
    ),
    "bytes that are no text": (
        ("csv", "command line"),
        file_of(
            st.binary(min_size=1, max_size=60).map(lambda noise: HEADER + b"\xff\xfe" + noise),
            "table.csv",
            # Latin letters are read where they can be; what they make is no regression
            "UTF-8|not a table|NUL|constant|class|numeric|row",
        ),
    ),
    "bytes that are no Parquet": (
        ("parquet", "command line"),
        file_of(st.binary(min_size=1, max_size=200), "table.parquet", "Parquet"),
    ),
    "Parquet that ends early": (
        ("parquet", "command line"),
        file_of(
            st.integers(1, 400).map(lambda cut: _parquet_bytes()[:-cut]), "table.parquet", "Parquet"
        ),
    ),
    "unknown kind of file": (
        FILES,
        st.sampled_from(["table.sav", "table", "table.json.gz", "table.json"]).flatmap(
            lambda name: file_of(LINES, name, ".csv", ".parquet")
        ),
    ),
    "target that is no column": (
        ("command line",),
        on_command_line("--target", "z", words=("'z' is not a column", "'a'")),
    ),
    "column to drop that is none": (
        ("command line",),
        on_command_line("--drop", "aa", words=("'aa' is not a column",)),
    ),
    "all columns dropped": (
        ("command line",),
        on_command_line("--drop", "a", "--drop", "b", words=("no columns besides", "'y'")),
    ),
    "unknown sampler": (
        ("command line",),
        on_command_line("--sampler", "sgd", words=("sgd", "constant-sgd")),
    ),
    "unknown option": (
        ("command line",),
        on_command_line("--colour", "red", words=("--colour",)),
    ),
    "words for a number": (
        ("command line",),
        on_command_line("--draws", "many", words=("--draws", "many")),
    ),
    "precision below zero": (
        ("command line",),
        on_command_line("--prior-precision", "-1", words=("--prior-precision", "-1", "0")),
    ),
    "precision that is not a number": (
        ("command line",),
        on_command_line("--prior-precision", "nan", words=("precision", "nan")),
    ),
    "resumed without a checkpoint": (
        ("command line",),
        on_command_line("--resume", words=("--resume needs --checkpoint",)),
    ),
    "resumed from nothing": (
        ("command line",),
        on_command_line("--resume", "--checkpoint", "nowhere", words=("nowhere",)),
    ),
    "no such scheduler": (
        ("command line",),
        on_command_line("--scheduler", "local:none", words=("local:none",)),
    ),
    "a time in words": (
        ("command line",),
        on_command_line("--checkpoint", "run", "--every", "soon", words=("every", "'soon'")),
    ),
}


@functools.cache
def _parquet_bytes() -> bytes:
    buffer = io.BytesIO()
    sound().frame.to_parquet(buffer, index=False)
    return buffer.getvalue()


def through_arrays(given: Given) -> None:
    _sampled(orn.glm(given.matrix, given.target, given.family, **given.model_options), given)


def through_frames(given: Given) -> None:
    features = pd.DataFrame(given.columns)
    _sampled(orn.glm(features, pd.Series(given.target), given.family, **given.model_options), given)


def _sampled(model: orn.Model, given: Given) -> None:
    """Draw only where it is an option of `sample` that is spoilt."""
    if given.run_options:
        orn.sample(model, orn.ConstantSGD("full"), progress=False, **given.run_options)


ESTIMATORS = {
    "gaussian": "BayesianRegressor",
    "bernoulli": "BayesianClassifier",
    "categorical": "BayesianClassifier",
    "poisson": "BayesianPoissonRegressor",
}


# Families that mixed models have in place of others.
MIXED = {"categorical": "ordinal"}


def through_glmm(given: Given) -> None:
    family = MIXED.get(given.family, given.family)
    matrix, groups = given.matrix, given.groups
    if len(given.target) != ROWS and len(matrix) != ROWS:  # all of it is shorter
        groups = groups[: len(matrix)]
    if given.run_options:
        return _sampled(sound_mixed(), given)
    orn.glmm(matrix, given.target, groups, given.effects, family, **given.model_options)


@functools.cache
def sound_mixed() -> orn.Model:
    return orn.glmm(sound().matrix, sound().target, GROUPS)


def through_regress(given: Given) -> None:
    lengths = {len(column) for column in (*given.columns.values(), given.target)}
    columns = {**given.columns, "y": given.target}
    table = pd.DataFrame(columns) if len(lengths) == 1 else columns
    options = {"family": given.family, "missing": "error", "progress": False}
    if given.run_options:
        sampler = orn.ConstantSGD("full")
        orn.fit(given.formula, table, sampler=sampler, **options, **given.run_options)
    else:
        orn.regress(given.formula, table, **{**options, **given.model_options})


def through_estimators(given: Given) -> None:
    estimator = getattr(orn, ESTIMATORS[given.family])
    options = {**given.model_options, "draws": 5, **given.run_options}
    estimator(**options).fit(given.matrix, given.target)


def through_numpyro(given: Given) -> None:
    _sampled(orn.from_numpyro(_regression, given.matrix, given.target), given)


def _regression(x: Any, y: Any) -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(jnp.asarray(x) @ slope, 1.0), obs=y)


def through_files(given: Given, suffix: str = ".csv") -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = written(given, Path(folder), suffix)
        model = regression(Request(given.formula, given.family, missing="error"), path)
        _sampled(model, given)


def written(given: Given, folder: Path, suffix: str) -> Path:
    """The table as a file; mixed columns, which Parquet does not know, as text."""
    if given.contents is not None:
        path = folder / given.name
        path.write_bytes(given.contents)
        return path
    path = folder / f"table{suffix}"
    frame = given.frame
    if suffix == ".csv":
        frame.to_csv(path, index=False)
        return path
    try:
        frame.to_parquet(path, index=False)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
        mixed = [name for name in frame.columns if frame[name].dtype == object]
        frame.astype(dict.fromkeys(mixed, str)).to_parquet(path, index=False)
    return path


class CommandFailedError(Exception):
    """The command line ended with code 2 and this sentence, and wrote nothing."""


def through_command_line(given: Given) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        suffix = ".csv" if len(given.target) % 2 or given.family == "gaussian" else ".parquet"
        path, out = written(given, Path(folder), suffix), Path(folder) / "out"
        out.mkdir()
        before = path.read_bytes()
        options = [
            f"--{name.replace('_', '-')}={value}" for name, value in given.run_options.items()
        ]
        asked = ["--formula", given.formula] if given.formula != "y ~ ." else ["--target", "y"]
        arguments = ["fit", str(path), *asked, "--family", given.family, "--out", str(out)]
        arguments += ["--missing", "error"]
        said, complaints, code = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaints):
            try:
                main([*arguments, *options, *given.arguments])
            except SystemExit as ended:
                code = int(ended.code or 0)
        left = sorted(str(file.relative_to(folder)) for file in Path(folder).rglob("*"))
        if code != 2 or "Traceback" in complaints.getvalue() or said.getvalue():
            raise AcceptedError(f"exit code {code}: {said.getvalue()} {complaints.getvalue()}")
        if left != sorted(["out", path.name]) or path.read_bytes() != before:
            raise AcceptedError(f"it left {left}")
        errors = [line for line in complaints.getvalue().splitlines() if line.startswith("Error: ")]
        if len(errors) != 1:
            raise AcceptedError(f"not one sentence but {complaints.getvalue()!r}")
        raise CommandFailedError(errors[0].removeprefix("Error: "))


ENTRANCES = {
    "arrays": through_arrays,
    "frames": through_frames,
    "csv": through_files,
    "parquet": functools.partial(through_files, suffix=".parquet"),
    "numpyro": through_numpyro,
    "glmm": through_glmm,
    "regress": through_regress,
    "estimators": through_estimators,
    "command line": through_command_line,
}
