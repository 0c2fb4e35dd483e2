"""Which rows of the table of coefficients belong together, and what they are compared with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ornstein.regression.spec import Spec


@dataclass(frozen=True)
class Term:
    """Where a row belongs: rows with the same `key` have the same unit. `reference` are the labels
    that the row is compared with.
    """

    key: object
    reference: str = ""


def terms_of(names: Iterable[object], spec: Spec | None) -> list[Term]:
    """A term for each parameter. Without a table all share one scale."""
    if spec is None:
        return [Term("all") for _ in names]
    known = _by_name(spec)
    return [_found(str(name), known) for name in names]


def _by_name(spec: Spec) -> dict[str, Term]:
    design = spec.design
    found: dict[str, Term] = {}
    start = 0
    for number, block in enumerate(design.blocks):
        reduced = [
            design.factors[place]
            for place, without in zip(block.factors, block.reduced, strict=True)
            if without
        ]
        reference = ", ".join(f"{one.shown}={one.levels[0]}" for one in reduced if one.levels)
        count = design.width(block)
        for name in design.names[start : start + count]:
            found[name] = Term(number, reference)
        start += count
    return found


def _found(name: str, known: dict[str, Term]) -> Term:
    """By its name, or by that before the label of a class."""
    of_class = name.rpartition("[")[0]
    return known.get(name) or known.get(of_class) or Term(name)
