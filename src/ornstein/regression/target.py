"""The left side of a formula: its values, and the family that fits them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.checks import brief, printable
from ornstein.errors import InputError
from ornstein.model.families.likelihood import FAMILIES
from ornstein.regression.columns import Labels, coded, values
from ornstein.regression.expression import Evaluation
from ornstein.regression.formula import Response
from ornstein.types import Array

if TYPE_CHECKING:
    import pandas

MOST_CLASSES = 50
DISCRETE = ("bernoulli", "categorical")


@dataclass(frozen=True, eq=False)
class Target:
    """Values as `glm` takes them (numbers, or codes of `classes`), the family and the reason."""

    values: Array
    family: str
    reason: str
    classes: tuple[str, ...] = ()


def family_name(family: object) -> str:
    """A family's name with hyphens; an unknown one is refused.

    >>> family_name("gaussian")
    'gaussian'
    """
    name = "-".join(str(family).split())
    if name != "auto" and name not in FAMILIES:
        raise InputError(f"unknown family {brief(family)}; choose auto or one of {FAMILIES}")
    return name


def target_of(response: Response, table: pandas.DataFrame, family: str) -> Target:
    """Evaluate the left side; `family` is a name or "auto"."""
    if response.kind != "column":
        raise InputError(
            f"{brief(response.text)} on the left side needs a family that this version lacks:"
            f" there are {', '.join(FAMILIES)}"
        )
    (expression,) = response.parts
    name = expression.only_column
    if name is None:
        found: Any = Evaluation(expression, table, {}, fitting=True).value()
    else:
        found = values(table[name], None) if not _many_labels(table[name]) else coded(table[name])
    _require_variety(found, response.text)
    if family == "auto":
        family, reason = _chosen(found, response.text, name is not None and table[name])
    else:
        reason = "as asked for"
    if family in DISCRETE:
        return _as_classes(found, table[name] if name else None, family, reason, response.text)
    if isinstance(found, Labels):
        if name is not None and table[name].dtype == bool:
            return Target(table[name].to_numpy(dtype=float), family, reason)
        raise InputError(
            f"the target {response.text!r} holds labels ({found.levels[0]!r}); the {family} family"
            " needs numbers"
        )
    _require_finite(found, response.text)
    return Target(found, family, reason)


def _many_labels(series: pandas.Series) -> bool:
    """Labels are counted by `_as_classes`, with a sentence for targets."""
    from ornstein.regression.columns import is_category

    return is_category(series)


def _chosen(found: Any, name: str, series: Any) -> tuple[str, str]:
    """The family and why: only two values or labels change it from gaussian, for whole numbers may
    be anything.
    """
    if isinstance(found, Labels):
        count = len(found.levels)
        if count == 2:
            return "bernoulli", f"the target {name!r} has two different values"
        ordered = getattr(getattr(series, "dtype", None), "ordered", False)
        order = ", whose order is not used" if ordered else ""
        return "categorical", f"the target {name!r} has {count} different labels{order}"
    if len(np.unique(found[:1000])) <= 2 and len(np.unique(found)) == 2:
        return "bernoulli", f"the target {name!r} has two different values"
    reason = f"the target {name!r} is numeric"
    if np.all(found == np.floor(found)) and found.min() >= 0:
        reason += (
            "; its whole numbers may be counts or labels: then ask for the family poisson or"
            " categorical"
        )
    elif found.min() >= 0.0 and found.max() <= 1.0:
        reason += "; it lies between 0 and 1: proportions of known totals are successes(k, n)"
    return "gaussian", reason


def _as_classes(
    found: Any, series: pandas.Series | None, family: str, reason: str, name: str
) -> Target:
    if not isinstance(found, Labels):
        import pandas

        found = coded(pandas.Series(found) if series is None else series)
    if len(found.levels) > MOST_CLASSES:
        raise InputError(
            f"the target {name!r} has {len(found.levels):,} different labels, more than"
            f" {MOST_CLASSES}; is it the right column?"
        )
    if family == "bernoulli" and len(found.levels) > 2:
        raise InputError(
            f"the bernoulli family needs two labels; the target {name!r} has {len(found.levels)}:"
            " use the family categorical"
        )
    return Target(found.codes.astype(float), family, reason, found.levels)


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
