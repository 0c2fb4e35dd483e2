"""Group terms of a formula on a table: the group of each row, and the columns whose coefficients
vary among groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ornstein.checks import brief
from ornstein.errors import FileError, InputError
from ornstein.regression.columns import Columns, Labels, coded, require_column
from ornstein.regression.design import Design, design_as_json, design_from_json
from ornstein.regression.formula import Formula, GroupTerm
from ornstein.types import Array

COLUMN = re.compile(r"[A-Za-z_]\w*|`[^`]*`")


@dataclass(frozen=True, eq=False)
class GroupFactor:
    """What groups the rows, and the effects that each group has of its own.

    Attributes:
        columns: whose labels together name a group.
        designs: the columns of the effects, one design for each term.
        correlated: whether the effects of a term may be correlated.
    """

    columns: tuple[str, ...]
    designs: tuple[Design, ...]
    correlated: tuple[bool, ...]

    @property
    def name(self) -> str:
        return ":".join(self.columns)

    @cached_property
    def effects(self) -> tuple[str, ...]:
        """Names of the effects."""
        return tuple(name for design in self.designs for name in _names(design))

    @property
    def blocks(self) -> tuple[int, ...]:
        """How many effects at a time may be correlated."""
        found: list[int] = []
        for design, correlated in zip(self.designs, self.correlated, strict=True):
            count = len(_names(design))
            found += [count] if correlated else [1] * count
        return tuple(found)

    @property
    def effect_columns(self) -> tuple[str, ...]:
        """The columns of the table that the effects are made from."""
        read = (name for design in self.designs for name in design.column_names)
        return tuple(dict.fromkeys(read))

    def labels(self, table: Columns) -> Labels:
        """The group of each row; −1 where a label is missing."""
        found = coded(table[self.columns[0]])
        for name in self.columns[1:]:
            found = _together(found, coded(table[name]))
        return found

    def matrix(self, table: Columns, rows: int) -> Array:
        """The columns of the effects, NaN where something is missing or unknown."""
        parts = []
        for design in self.designs:
            built = design.build(table, rows)
            parts.append(built if isinstance(built, np.ndarray) else built.toarray())
            if design.intercept:
                parts.insert(len(parts) - 1, np.ones((rows, 1)))
        return np.concatenate(parts, axis=1)

    def as_json(self) -> dict[str, Any]:
        """Texts, numbers, lists and dicts only."""
        designs = [design_as_json(design) for design in self.designs]
        return {
            "columns": list(self.columns),
            "designs": designs,
            "correlated": list(self.correlated),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> GroupFactor:
        """What `as_json` described; every expression is checked again."""
        columns = tuple(str(name) for name in found["columns"])
        designs = tuple(design_from_json(design) for design in found["designs"])
        correlated = tuple(bool(value) for value in found["correlated"])
        if not columns or not designs or len(designs) != len(correlated):
            raise FileError("the description of the groups is damaged")
        return cls(columns, designs, correlated)


def _names(design: Design) -> tuple[str, ...]:
    return (("intercept",) if design.intercept else ()) + design.names


def _together(first: Labels, second: Labels) -> Labels:
    """The combinations of two columns of labels that there are."""
    many = len(second.levels)
    codes = np.where(
        (first.codes >= 0) & (second.codes >= 0), first.codes * many + second.codes, -1
    )
    present, places = np.unique(codes, return_inverse=True)
    missing = int(len(present) > 0 and present[0] < 0)
    levels = tuple(
        f"{first.levels[code // many]}:{second.levels[code % many]}" for code in present[missing:]
    )
    return Labels(places - missing, levels)


def group_columns(terms: Iterable[GroupTerm]) -> tuple[str, ...]:
    """The columns that name groups.

    >>> group_columns([GroupTerm("1", "school/class", True)])
    ('school', 'class')
    """
    read = (name for term in terms for columns in _factors(term.group) for name in columns)
    return tuple(dict.fromkeys(read))


def _factors(text: str) -> list[tuple[str, ...]]:
    """`a:b` is one factor, `a/b` is two: a, and b within a."""
    found: list[tuple[str, ...]] = []
    before: tuple[str, ...] = ()
    for part in text.split("/"):
        names = [name.strip() for name in part.split(":")]
        if not all(COLUMN.fullmatch(name) for name in names):
            raise InputError(
                f"{brief(text)} does not name groups: write a column (1 | school), columns together"
                " (1 | school:class), or one within the other (1 | school/class)"
            )
        before = (*before, *(name.strip("`") for name in names))
        found.append(before)
    return found


def group_factors(terms: Iterable[GroupTerm], table: Columns) -> tuple[GroupFactor, ...]:
    """The factors of a formula's group terms, with what their columns learn from the table."""
    collected: dict[tuple[str, ...], list[tuple[Design, bool]]] = {}
    for term in terms:
        formula = Formula.of(term.expression)
        if formula.response is not None or formula.offsets or formula.groups:
            raise InputError(
                f"{brief(term.expression)} before a bar must be columns such as '1 + x'"
            )
        design = Design.learned(formula, table)
        if not _names(design):
            raise InputError(f"{brief(term.expression)} before a bar has no columns")
        for columns in _factors(term.group):
            for name in columns:
                require_column(table, name, "the formula's")
            collected.setdefault(columns, []).append((design, term.correlated))
    factors = tuple(
        GroupFactor(columns, *map(tuple, zip(*parts, strict=True)))
        for columns, parts in collected.items()
    )
    for factor in factors:
        twice = [name for name in factor.effects if factor.effects.count(name) > 1]
        if twice:
            raise InputError(
                f"the effect {twice[0]!r} of {factor.name!r} is in two terms: leave it out of one,"
                " for instance (0 + x | g)"
            )
    return factors


def effect_features(terms: Iterable[GroupTerm]) -> tuple[str, ...]:
    """The columns that effects are made from."""
    read = (name for term in terms for name in Formula.of(term.expression).column_names)
    return tuple(dict.fromkeys(read))


def shown_terms(terms: Iterable[GroupTerm]) -> str:
    """The terms as a formula has them.

    >>> shown_terms([GroupTerm("1 + x", "g", False)])
    '(1 + x || g)'
    """
    return " + ".join(
        f"({term.expression} {'|' if term.correlated else '||'} {term.group})" for term in terms
    )
