"""What residuals are looked at along: the numbers of the table and the products of its columns, or
the columns of the matrix where there is no table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ornstein.checks import printable
from ornstein.critique.evidence import Evidence
from ornstein.posterior.averaged_rows import Rows
from ornstein.regression.design import Design
from ornstein.regression.expression import SPLINES
from ornstein.regression.formula import quoted
from ornstein.regression.regress import Regression
from ornstein.regression.table import filled
from ornstein.types import Array

MOST = 200


@dataclass(frozen=True, eq=False)
class Along:
    """Numbers to follow residuals along.

    Attributes:
        remedy: of a curve; "" for labels, along which there is none.
        column: of the table, where the numbers are one.
    """

    name: str
    values: Array
    remedy: str
    column: str = ""


def looked_along(evidence: Evidence) -> list[Along]:
    """Everything that is followed; nothing where that would be too much."""
    model = evidence.model
    if len(model.feature_names) > MOST:
        return []
    if isinstance(model, Regression):
        return [*_of_table(evidence, model), *_of_blocks(evidence, model.spec.design)]
    names = zip(model.feature_names, evidence.columns.T, strict=True)
    return [Along(name, values, f"bs({printable(name)}, df=5)") for name, values in names]


def _of_table(evidence: Evidence, model: Regression) -> list[Along]:
    """The columns that the formula takes for numbers, whatever it makes of them."""
    spec = model.spec
    table = filled(model.table.iloc[evidence.rows].reset_index(drop=True), spec.fills)
    rows = Rows.of(table, model, model.predict, "critique")
    return [
        Along(name, rows.numbers(name), _spline(name, spec.design), quoted(name))
        for name in spec.column_names
        if rows.levels(name) is None
    ]


def _spline(name: str, design: Design) -> str:
    """A spline of the column, or a finer one where there is one."""
    for factor in design.factors:
        spline = factor.text.startswith(tuple(f"{word}(" for word in SPLINES))
        if spline and factor.expression.column_names == (name,):
            return f"a larger df in {factor.text}"
    return f"bs({quoted(name)}, df=5)"


def _of_blocks(evidence: Evidence, design: Design) -> Iterator[Along]:
    """The columns of labels, and those of products such as a:b."""
    place = 0
    for block in design.blocks:
        factors = [design.factors[index] for index in block.factors]
        numeric = [factor for factor in factors if factor.levels is None]
        columns = [name for factor in numeric for name in factor.expression.column_names]
        splines = " and ".join(_spline(name, design) for name in dict.fromkeys(columns))
        remedy = f"{splines} in {':'.join(factor.shown for factor in factors)}" if splines else ""
        for name in design.names[place : place + design.width(block)]:
            if len(factors) > 1 or not numeric:
                label = "" if len(factors) > 1 else quoted(factors[0].shown)
                yield Along(name, evidence.columns[:, place], remedy, label)
            place += 1
