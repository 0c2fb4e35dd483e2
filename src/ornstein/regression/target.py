"""The left side of a formula: its values, and the family that fits them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.checks import brief, printable
from ornstein.errors import InputError
from ornstein.model.families.family import Family
from ornstein.model.families.recognised import recognised
from ornstein.model.families.table import family_of
from ornstein.regression.columns import (
    Columns,
    Labels,
    coded,
    is_category,
    is_truth,
    natural,
    numbers,
)
from ornstein.regression.expression import Evaluation, Expression
from ornstein.regression.formula import Response, quoted
from ornstein.types import Array

if TYPE_CHECKING:
    import pandas

MOST_CLASSES = 50
# The family of a left side with two columns, and what its first column is called there.
TWO_COLUMNS = {"successes": ("binomial", "successes"), "censored": ("weibull", "time")}


@dataclass(frozen=True, eq=False)
class Target:
    """Values as `glm` takes them (numbers, or codes of `classes`), the family and the reason."""

    values: Array
    law: Family
    reason: str
    classes: tuple[str, ...] = ()


def target_of(
    response: Response, table: Columns, family: str | Family, link: str | None = None
) -> Target:
    """Evaluate the left side; `family` is a family, its name or "auto"."""
    if response.kind != "column":
        return _of_two_columns(response, table, family, link)
    asked = None if family == "auto" else family_of(family, link)
    if asked is not None and asked.columns:
        raise InputError(
            f"the {asked.name} family needs {' and '.join(asked.columns)} on the left side:"
            " write successes(k, n) or censored(time, event)"
        )
    (expression,) = response.parts
    name = expression.only_column
    series = None if name is None else table[name]
    if series is None:
        found: Any = Evaluation(expression, table, {}, fitting=True).value()
    else:
        found = coded(series) if is_category(series) else numbers(series)
    _require_variety(found, response.text)
    if asked is None:
        chosen, reason = _chosen(found, response.text, series)
        asked = family_of(chosen, link)
    else:
        reason = "as asked for"
    if asked.labels:
        return _as_classes(found, series, asked, reason, response.text)
    if isinstance(found, Labels):
        if series is not None and is_truth(series):
            return Target(numbers(series), asked, reason)
        raise InputError(
            f"the target {response.text!r} holds labels ({found.levels[0]!r}); the {asked.name}"
            " family needs numbers"
        )
    _require_finite(found, response.text)
    return Target(found, asked, reason)


def _of_two_columns(
    response: Response, table: Columns, family: str | Family, link: str | None
) -> Target:
    """`successes(k, n)` or `censored(time, event)`, as the two columns of y."""
    default, first = TWO_COLUMNS[response.kind]
    law = family_of(default if family == "auto" else family, link)
    if law.columns[:1] != (first,):
        raise InputError(f"{brief(response.text)} does not fit the {law.name} family")
    parts = [_numbers_of(part, table, response.text) for part in response.parts]
    for part, found in zip(response.parts, parts, strict=True):
        _require_finite(found, part.text)
    asked = "the left side says so" if family == "auto" else "as asked for"
    return Target(np.column_stack(parts), law, asked)


def _numbers_of(part: Expression, table: Columns, text: str) -> Array:
    """A part of the left side as numbers; true and false are 1 and 0."""
    name = part.only_column
    if name is None:
        return np.asarray(Evaluation(part, table, {}, fitting=True).value())
    series = table[name]
    if is_category(series) and not is_truth(series):
        label = coded(series).levels[-1]
        raise InputError(
            f"{text!r} needs numbers, or true and false; {name!r} holds {label!r}: write"
            f" {quoted(name)} == {label!r} if that is what counts"
        )
    return numbers(series)


def _chosen(found: Any, name: str, series: Any) -> tuple[str, str]:
    """The family and why: only two values or labels change it from gaussian, for whole numbers may
    be anything.
    """
    if isinstance(found, Labels):
        count = len(found.levels)
        if count == 2:
            return "bernoulli", f"the target {name!r} has two different values"
        if _is_ordered(series):
            return "ordinal", f"the target {name!r} has {count} labels in an order"
        return "categorical", f"the target {name!r} has {count} different labels"
    number = recognised(found)
    hint = f"; {number.hint}" if number.hint else ""
    kind = number.reason.removeprefix("it ")
    return number.family, f"the target {name!r} {kind}{hint}"


def _is_ordered(series: pandas.Series | None) -> bool:
    import pandas

    dtype = None if series is None else series.dtype
    return isinstance(dtype, pandas.CategoricalDtype) and bool(dtype.ordered)


def _as_classes(
    found: Any, series: pandas.Series | None, law: Family, reason: str, name: str
) -> Target:
    if not isinstance(found, Labels):
        import pandas

        found = coded(pandas.Series(found) if series is None else series)
    if len(found.levels) > MOST_CLASSES:
        raise InputError(
            f"the target {name!r} has {len(found.levels):,} different labels, more than"
            f" {MOST_CLASSES}; is it the right column?"
        )
    if law.name == "bernoulli" and len(found.levels) > 2:
        raise InputError(
            f"the {law.name} family needs two labels; the target {name!r} has {len(found.levels)}:"
            " use the family categorical"
        )
    if law.ordered:
        _require_order(found, series, name)
    return Target(found.codes.astype(float), law, reason, found.levels)


def _require_order(found: Labels, series: pandas.Series | None, name: str) -> None:
    """Numbers and ordered columns of pandas have one, texts that which `levels=` gives."""
    numeric = all(natural(level)[0] == 0 for level in found.levels)
    if numeric or _is_ordered(series) or "levels=" in name.replace(" ", ""):
        return
    levels = ", ".join(repr(level) for level in found.levels[:3])
    raise InputError(
        f"the target {name!r} holds labels whose order is not known ({levels}): write"
        f" C({name}, levels=[…]) with the labels from the lowest to the highest, or give an ordered"
        " pandas column"
    )


def _require_variety(found: Any, name: str) -> None:
    only = found.levels[:2] if isinstance(found, Labels) else found[:1]
    if isinstance(found, Labels):
        varies = len(found.levels) > 1
    else:
        varies = len(found) > 0 and bool(np.any(found != found[0]))
    if not varies:
        held = printable(only[0]) if len(only) else "none"
        raise InputError(
            f"the target {name!r} has only one value, {held}; there is nothing to explain"
        )


def _require_finite(found: Array, name: str) -> None:
    bad = ~np.isfinite(found)
    if bad.any():
        raise InputError(
            f"the target {name!r} is not finite in {int(bad.sum()):,} rows, first in row"
            f" {int(np.argmax(bad)) + 1}"
        )
