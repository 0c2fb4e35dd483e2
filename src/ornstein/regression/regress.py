"""A formula and a table as a Model that knows its table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.checks import brief
from ornstein.errors import InputError
from ornstein.model import tables
from ornstein.model.families.likelihood import Likelihood, Predict
from ornstein.model.mixed.priors import MixedPriors
from ornstein.model.regression import GLM, glm
from ornstein.regression.columns import require_column, shown
from ornstein.regression.design import Design
from ornstein.regression.formula import Formula, quoted, stands_for_all
from ornstein.regression.groups import group_columns
from ornstein.regression.spec import Spec, moments, offset_of
from ornstein.regression.table import as_frame, complete, indicator, per_row, varying
from ornstein.regression.target import Target, target_of
from ornstein.types import Array

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class Request:
    """What `regress` is asked for, and what only the command line asks for.

    Attributes:
        prior_precision: 1/variance of the prior on standardised coefficients; None is the weak
            default.
        parts: formulas of auxiliary parameters, right sides only, by the user's word.
        decimal: the mark that a text file has before decimals, where it can be read both ways.
        left_out: columns that `.` does not stand for. labels: columns whose numbers are labels
            where `.` stands for them.
    """

    formula: str
    family: Any = "auto"
    link: str | None = None
    priors: Mapping[str, Any] | MixedPriors | str | None = None
    missing: str = "drop"
    weights: Any = None
    prior_precision: float | None = None
    parts: tuple[tuple[str, str], ...] = ()
    decimal: str | None = None
    left_out: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


EMPTY = Spec("", "", "", "", (), Design((), (), True))


@dataclass(frozen=True)
class TablePredict(Predict):
    """E[y | x, θ] of the rows of a table, by the names of its columns."""

    spec: Spec = EMPTY

    @classmethod
    def of(cls, likelihood: Likelihood, spec: Spec) -> TablePredict:
        return cls(likelihood, spec.feature_names, spec, offset=bool(spec.offsets))

    def new_rows(self, inputs: object) -> tables.NewRows | None:
        """Rows of a table, or a matrix with the columns of the design."""
        if isinstance(inputs, tables.NewRows):
            return inputs
        if inputs is None or tables.is_sparse(inputs) or isinstance(inputs, np.ndarray | list):
            return None
        return self.spec.new_rows(inputs)


class Regression(GLM):
    """A regression made from a table; made by `regress`. `frame` are the rows that it uses."""

    spec: Spec
    frame: pandas.DataFrame

    @property
    def table(self) -> pandas.DataFrame:
        return self.frame


def regression(request: Request, data: Any) -> Regression:
    """The Model of a formula on the rows of a table."""
    frame = as_frame(data, request.decimal)
    formula, left_out = formula_of(request, frame)
    require_no_groups(formula)
    notes = (*frame.attrs.get("notes", ()), *left_out)
    assert formula.response is not None
    weighted = (request.weights,) if isinstance(request.weights, str) else ()
    offset_names = [name for part in formula.offsets for name in part.column_names]
    others = [*formula.response.column_names, *weighted, *offset_names]
    parts = [(word, part_formula(word, text, formula)) for word, text in request.parts]
    read = [*formula.column_names, *(name for _, part in parts for name in part.column_names)]
    require_known(frame, [*read, *others], formula, weighted)
    features = [name for name in dict.fromkeys(read) if name not in others]
    labels = [name for part in (formula, *dict(parts).values()) for name in part.label_names]
    rows = complete(frame, features, others, request.missing, labels)
    notes += (rows.note,) if rows.note else ()
    formula = replace(with_indicators(formula, rows.fills), response=formula.response)
    parts = [(word, with_indicators(part, rows.fills)) for word, part in parts]
    assert formula.response is not None
    target = target_of(formula.response, rows.frame, request.family, request.link)
    spec = Spec(
        formula.text,
        formula.response.text.strip("`"),  # a column's own name, where it is one
        target.law.name,
        target.reason,
        target.classes,
        _learned(formula, rows.frame),
        tuple(part.text for part in formula.offsets),
        rows.fills,
        notes=notes,
        parts=tuple((word, _learned(part, rows.frame)) for word, part in parts),
    )
    matrix = _built(spec, rows.frame)
    scale = float(np.std(target.values)) if target.law.follows_response else 1.0
    spec = spec.with_numbers(*moments(matrix), scale)
    weights = weights_of(request.weights, rows.frame, rows.kept)
    offset = offset_of(spec.offsets, rows.frame)
    return _model(spec, matrix, target, weights, offset, request).replace(frame=rows.given)


def formula_of(request: Request, frame: Any) -> tuple[Formula, tuple[str, ...]]:
    """The formula with `.` written out, and what was left out of it."""
    notes: tuple[str, ...] = ()
    others: list[str] = []
    for name in (*request.left_out, *request.labels):
        require_column(frame.columns, name, "--drop or --categorical")
    if stands_for_all(request.formula):
        first = Formula.of(request.formula, ["1"])
        used = {*(first.response.column_names if first.response else ()), *request.left_out}
        used |= {name for part in first.offsets for name in part.column_names}
        used |= set(group_columns(first.groups))
        weighted = {request.weights} if isinstance(request.weights, str) else set()
        for name in used | weighted:
            require_column(frame.columns, name, "weights" if name in weighted else "the target")
        used |= weighted
        kept, constant = varying(frame, [name for name in frame.columns if name not in used])
        if not kept:
            raise InputError(
                "every column besides the target is constant: there is nothing to explain it with"
                if constant
                else f"the table has no columns besides {shown(sorted(used))}"
            )
        notes = (f"left out, constant: {shown(constant)}",) if constant else ()
        others = [f"C({quoted(name)})" if name in request.labels else quoted(name) for name in kept]
    formula = Formula.of(request.formula, others)
    if formula.response is None:
        raise InputError(
            f"the formula {brief(request.formula)} has no left side: write 'y ~ ...', with the"
            " column to explain for y"
        )
    return formula, notes


def require_no_groups(formula: Formula) -> None:
    """Refuse group terms where the effects of groups cannot be integrated out."""
    if formula.groups:
        raise InputError(
            f"the formula has a group term for {formula.groups[0].group!r}, which needs all rows"
            " in memory: orn.regress or orn.fit on a table; or write the group as a factor"
        )


def require_known(
    frame: pandas.DataFrame, names: list[str], formula: Formula, weighted: tuple[str, ...] = ()
) -> None:
    """Refuse names that are no columns."""
    for name in dict.fromkeys(names):
        require_column(frame.columns, name, _named(name, formula, weighted))


def _named(name: str, formula: Formula, weighted: tuple[str, ...]) -> str:
    assert formula.response is not None
    if name in formula.response.column_names:
        return "the target"
    return "weights" if name in weighted else "the formula's"


def with_indicators(formula: Formula, fills: Mapping[str, float | str]) -> Formula:
    """A term for each of its columns that says where a number is missing."""
    read = formula.column_names
    marks = [
        indicator(name)
        for name, value in fills.items()
        if name in read and not isinstance(value, str)
    ]
    if not marks:
        return formula
    return Formula.of(" + ".join([formula.text, *(quoted(name) for name in marks)]))


def part_formula(word: str, text: str, formula: Formula) -> Formula:
    """The right side that explains an auxiliary parameter; `.` stands for the columns of the main
    one.
    """
    part = Formula.of(text, [quoted(name) for name in formula.column_names])
    wrong = "a left side" if part.response else "offsets" if part.offsets else ""
    wrong = wrong or ("groups" if part.groups else "" if part.intercept else "no intercept")
    if wrong:
        raise InputError(
            f"{word}={brief(text)} has {wrong}: give the columns that explain it, as in"
            f" {word}='x + z'"
        )
    return part


def _learned(formula: Formula, frame: pandas.DataFrame) -> Design:
    """What the rows teach."""
    design = Design.learned(formula, frame)
    if not design.blocks:
        raise InputError(
            f"the formula {brief(formula.text)} has no columns besides the intercept: name at"
            " least one"
        )
    return design


def _built(spec: Spec, frame: pandas.DataFrame) -> Any:
    """The matrix of the rows: the only time that it is built."""
    matrix = spec.matrix(frame, len(frame))
    broken = _first_broken(matrix)
    if broken is not None:
        column, count, row = broken
        raise InputError(
            f"{spec.feature_names[column]!r} is not finite in {count:,} rows, first in row"
            f" {row + 1}: a logarithm of zero, or a value outside the bounds of a spline"
        )
    means, scales = moments(matrix)
    alone = len(spec.design.names) if not spec.design.intercept else 0
    constant = zip(spec.feature_names[alone:], means[alone:], scales[alone:], strict=True)
    for name, mean, scale in constant:
        if not scale and mean:
            raise InputError(
                f"{name!r} is the same in every row, as the intercept is: leave it out"
            )
    return matrix


def _first_broken(matrix: Any) -> tuple[int, int, int] | None:
    """Column, number of rows and first row where a matrix is not finite."""
    if isinstance(matrix, np.ndarray):
        if np.isfinite(matrix.sum()):
            return None
        bad = ~np.isfinite(matrix)
        if not bad.any():
            return None
        column = int(np.argmax(bad.any(axis=0)))
        return column, int(bad[:, column].sum()), int(np.argmax(bad[:, column]))
    found = matrix.tocoo()
    bad = ~np.isfinite(found.data)
    if not bad.any():
        return None
    return int(found.col[bad][0]), int(bad.sum()), int(found.row[bad].min())


def weights_of(weights: Any, frame: pandas.DataFrame, kept: Array) -> Array | None:
    """One weight for each row that is used; `weights` name a column, or are one for each row."""
    if weights is None:
        return None
    if isinstance(weights, str):
        return per_row(frame[weights], f"weights {weights!r}", np.ones(len(frame), dtype=bool))
    return per_row(weights, "weights", kept)


def standardised(precision: float | None, spec: Spec) -> Array | None:
    """1/variance of the prior on the slopes in units of the table, for one that is meant on
    standardised columns; None is the default of `glm`.
    """
    if precision is None:
        return None
    return precision * replace(spec, scales=_positive(spec.scales)).units ** 2


def _positive(scales: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(scale if scale > 0 else 1.0 for scale in scales)


def by_column(
    priors: Mapping[str, Any] | MixedPriors | str | None, spec: Spec
) -> dict[str, Any] | None:
    """Priors by the columns of the design: the name of a factor or of a term stands for all of its
    columns.
    """
    if not priors:
        return None
    if not isinstance(priors, Mapping):
        raise InputError(
            f"priors must be a dict by column; {brief(priors)} is for mixed models, with a term"
            " such as (1 | g)"
        )
    columns = spec.design.columns_of_terms()
    for word, design in spec.parts:
        for term, names in design.columns_of_terms().items():
            columns[f"{word}:{term}"] = tuple(f"{word}:{name}" for name in names)
    found: dict[str, Any] = {}
    for name, prior in priors.items():
        key = " ".join(str(name).split())
        for column in columns.get(key, columns.get(key.strip("`"), (name,))):
            found[column] = prior
    return found


def _model(
    spec: Spec,
    matrix: Any,
    target: Target,
    weights: Array | None,
    offset: Array | None,
    request: Request,
) -> Regression:
    if offset is not None and target.law.classes:
        raise InputError(f"the {target.law.name} family takes no offset in a formula")
    model = glm(
        tables.Named(matrix, spec.feature_names),
        target.values,
        target.law,
        prior_precision=standardised(request.prior_precision, spec),
        priors=by_column(request.priors, spec),
        intercept=spec.design.intercept and target.law.intercepts,
        weights=weights,
        offset=offset,
        parts=spec.part_widths,
    )
    return with_table(model, spec)


def with_table(model: GLM, spec: Spec) -> Regression:
    """The regression with the names and labels of its table."""
    made = object.__new__(Regression)
    assert isinstance(model.predict, Predict)
    names = model.names
    if model.likelihood.law.classes:
        names = labelled(names, spec.classes)
    labels = np.array(spec.classes, dtype=object) if spec.classes else None
    spec = replace(spec, priors=model.priors)
    predict = TablePredict.of(model.predict.likelihood, spec)
    changes = {"predict": predict, "names": names, "classes": labels, "spec": spec}
    vars(made).update({**vars(model), **changes})
    return made


def labelled(names: tuple[str, ...], classes: tuple[str, ...]) -> tuple[str, ...]:
    """Names of parameters with labels in place of the codes of classes.

    >>> labelled(("age[1.0]", "intercept[0]"), ("barn", "house"))
    ('age[house]', 'intercept[barn]')
    """
    parts = [re.fullmatch(r"(.*)\[(\d+)(?:\.0)?\]", name, flags=re.DOTALL) for name in names]
    return tuple(
        name if part is None else f"{part.group(1)}[{classes[int(part.group(2))]}]"
        for name, part in zip(names, parts, strict=True)
    )
