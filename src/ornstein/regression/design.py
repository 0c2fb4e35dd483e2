"""The columns of a design matrix: learned once over all rows, then built row by row the same way.

Pass 1, `Design.learned`, asks each factor of the formula what it needs to know (labels, knots,
means, bounds) and formulaic which labels of which factor need a column in which term. Pass 2,
`Design.build`, fills the matrix with what is known. New rows go through pass 2 alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from ornstein.checks import brief
from ornstein.errors import FileError, InputError
from ornstein.regression.columns import Columns, Labels, require_column
from ornstein.regression.expression import Evaluation, Expression
from ornstein.regression.formula import Formula
from ornstein.types import Array

# A matrix of more columns with fewer entries than this share is sparse.
SPARSE_COLUMNS, SPARSE_SHARE = 100, 0.1


@dataclass(frozen=True, eq=False)
class Factor:
    """One factor of the formula and what it learned from the rows of the fit.

    Attributes:
        text: as in the formula. levels: the labels, the first of them the reference; None for
            numbers.
        fields: names of its columns of numbers, "" where there is one only.
        learned: what its functions know, by the text of the call.
    """

    text: str
    levels: tuple[str, ...] | None
    fields: tuple[str, ...]
    learned: dict[str, dict[str, Any]]

    @cached_property
    def expression(self) -> Expression:
        return Expression.of(self.text)

    @classmethod
    def of(cls, expression: Expression, table: Columns) -> Factor:
        """Learn from all rows of a table."""
        learned: dict[str, dict[str, Any]] = {}
        found = Evaluation(expression, table, learned, fitting=True).value()
        if isinstance(found, Labels):
            return cls(expression.text, found.levels, (), learned)
        _, fields = _matrix(found, expression)
        return cls(expression.text, None, fields, _plain(learned))

    def evaluate(self, table: Columns) -> Labels | Array:
        """Codes, or numbers (rows, fields)."""
        found = Evaluation(self.expression, table, self.learned, fitting=False).value()
        return found if isinstance(found, Labels) else _matrix(found, self.expression)[0]

    def names(self, reduced: bool) -> tuple[str, ...]:
        """Names of its columns in a matrix; `reduced` leaves out the reference."""
        if self.levels is None:
            return tuple(f"{self.text}[{field}]" if field else self.shown for field in self.fields)
        return tuple(f"{self.shown}={level}" for level in self.levels[int(reduced) :])

    @property
    def shown(self) -> str:
        """The column's name where the factor is a column, also as `C(column)`."""
        expression = self.expression
        if self.levels is not None:
            return expression.column_names[0]
        return expression.only_column or self.text


def _matrix(found: Any, expression: Expression) -> tuple[Array, tuple[str, ...]]:
    """Numbers as (rows, fields) with the names of the fields."""
    found = getattr(found, "__wrapped__", found)
    if isinstance(found, dict):
        fields = tuple(str(key) for key in found)
        return np.column_stack([np.asarray(part, dtype=float) for part in found.values()]), fields
    array = np.asarray(found, dtype=float)
    if array.ndim == 1:
        return array[:, None], ("",)
    if array.ndim != 2:
        raise InputError(f"{brief(expression.text)} is not one number per row")
    return array, tuple(str(place + 1) for place in range(array.shape[1]))


@dataclass(frozen=True)
class Block:
    """A product of factors, given by their places: `reduced` says of which the reference has no
    column.
    """

    factors: tuple[int, ...]
    reduced: tuple[bool, ...]
    scale: float = 1.0


@dataclass(frozen=True, eq=False)
class Design:
    """Everything that is needed to turn rows into a design matrix, without an intercept column."""

    factors: tuple[Factor, ...]
    blocks: tuple[Block, ...]
    intercept: bool

    @classmethod
    def learned(cls, formula: Formula, table: Columns) -> Design:
        """Pass 1: over all rows, one factor at a time."""
        for name in formula.column_names:
            require_column(table, name, "the formula's")
        places = {text: place for place, text in enumerate(formula.expressions)}
        factors = tuple(Factor.of(expression, table) for expression in formula.expressions.values())
        return cls(factors, _blocks(formula, places, factors), formula.intercept)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the matrix."""
        return tuple(name for block in self.blocks for name in self._block_names(block))

    def width(self, block: Block) -> int:
        """How many columns of the matrix a block has."""
        return len(self._block_names(block))

    def columns_of_terms(self) -> dict[str, tuple[str, ...]]:
        """Names of columns of the matrix by the terms that they belong to: `a`, `a:b`."""
        found: dict[str, tuple[str, ...]] = {}
        for block in self.blocks:
            factors = [self.factors[place] for place in block.factors]
            names = tuple(self._block_names(block))
            for term in {
                ":".join(factor.shown for factor in factors),
                ":".join(factor.text for factor in factors),
            }:
                found[term] = found.get(term, ()) + names
        return found

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns of the table that are read."""
        read = (name for factor in self.factors for name in factor.expression.column_names)
        return tuple(dict.fromkeys(read))

    def build(self, table: Columns, rows: int) -> Any:
        """Pass 2: the matrix, with NaN in rows that hold something missing or unknown.

        Sparse (CSR, SciPy) where most of many columns are indicators.
        """
        found = [factor.evaluate(table) for factor in self.factors]
        parts = [self._part(block, found, rows) for block in self.blocks]
        widths = [part.width for part in parts]
        entries = sum(part.values.shape[1] for part in parts)
        total = sum(widths)
        if total > SPARSE_COLUMNS and entries < SPARSE_SHARE * total:
            return scipy.sparse.hstack([part.sparse() for part in parts], format="csr")
        matrix = np.zeros((rows, total))
        start = 0
        for part in parts:
            part.fill(matrix[:, start : start + part.width])
            start += part.width
        return matrix

    def _part(self, block: Block, found: list[Labels | Array], rows: int) -> Part:
        code, levels = np.zeros(rows, dtype=np.int64), 1
        unknown = np.zeros(rows, dtype=bool)
        values = np.full((rows, 1), block.scale)
        for place, reduced in zip(block.factors, block.reduced, strict=True):
            part = found[place]
            if not isinstance(part, Labels):
                product = values[:, :, None] * part[:, None, :]
                values = product.reshape(rows, values.shape[1] * part.shape[1])
                continue
            unknown |= part.codes < 0
            own = part.codes - int(reduced)
            count = len(part.levels) - int(reduced)
            code = np.where((own >= 0) & (code >= 0), code * count + own, -1)
            levels *= count
        return Part(code, levels, values, unknown)

    def _block_names(self, block: Block) -> list[str]:
        """In the order of `_part`: combinations of labels, and within each the products of
        fields.
        """
        places = list(zip(block.factors, block.reduced, strict=True))
        labels = [place for place in places if self.factors[place[0]].levels is not None]
        numbers = [place for place in places if self.factors[place[0]].levels is None]
        names: list[dict[int, str]] = [{}]
        for place, reduced in labels + numbers:
            own = self.factors[place].names(reduced)
            names = [{**before, place: name} for before in names for name in own]
        return [":".join(name[place] for place, _ in places) for name in names]


@dataclass(frozen=True, eq=False)
class Part:
    """The columns of one block: `values` (rows, m) stand in columns code·m … code·m + m − 1, or
    nowhere where the code is −1.
    """

    code: Array
    levels: int
    values: Array
    unknown: Array

    @property
    def width(self) -> int:
        return self.levels * self.values.shape[1]

    def fill(self, matrix: Array) -> None:
        """Write into these columns of zeros."""
        if self.levels == 1 and not np.any(self.code):
            matrix[...] = self.values
        else:
            many = self.values.shape[1]
            rows = np.flatnonzero(self.code >= 0)
            for column in range(many):
                matrix[rows, self.code[rows] * many + column] = self.values[rows, column]
        matrix[self.unknown] = np.nan

    def sparse(self) -> Any:
        """The same columns as a sparse matrix."""
        rows, many = np.flatnonzero((self.code >= 0) | self.unknown), self.values.shape[1]
        values = np.where(self.unknown[:, None], np.nan, self.values)[rows]
        columns = np.maximum(self.code[rows], 0)[:, None] * many + np.arange(many)
        shape = (len(self.code), self.width)
        repeated = np.repeat(rows, many)
        return scipy.sparse.csr_matrix((values.ravel(), (repeated, columns.ravel())), shape)


def _blocks(
    formula: Formula, places: dict[str, int], factors: tuple[Factor, ...]
) -> tuple[Block, ...]:
    """Which factors keep the column of their reference in which term, so that no column is the sum
    of others: formulaic decides it, on a table of two rows that stands for ours.
    """
    import pandas
    from formulaic import Formula as Parsed
    from formulaic.parser.types import Factor as Symbol
    from formulaic.parser.types import Term as Product

    stand_in = {
        f"f{place}": pandas.Categorical(["a", "b"]) if factor.levels is not None else [1.0, 2.0]
        for place, factor in enumerate(factors)
    }
    terms = [
        Product([Symbol(f"f{places[text]}", eval_method="lookup") for text in term.factors])
        for term in formula.terms
    ]
    ones = [Product([Symbol("1", eval_method="literal")])] if formula.intercept else []
    if not terms:
        return ()
    matrix = Parsed([*ones, *terms], _ordering="none").get_model_matrix(pandas.DataFrame(stand_in))
    scales = [1.0] * len(ones) + [term.scale for term in formula.terms]
    blocks = []
    for structure, scale in zip(matrix.model_spec.structure, scales, strict=True):
        for scoped in structure.scoped_terms:
            symbols = {symbol.factor.expr: symbol.reduced for symbol in scoped.factors}
            if symbols:
                order = tuple(int(name[1:]) for name in symbols)
                blocks.append(Block(order, tuple(symbols.values()), scale))
    return tuple(blocks)


def _plain(value: Any) -> Any:
    """What was learned, as JSON knows it."""
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(f"the formula learned a {type(value).__name__}, which cannot be saved")


def design_as_json(design: Design) -> dict[str, Any]:
    """Numbers, texts, lists and dicts only."""
    return {
        "factors": [
            {
                "text": factor.text,
                "levels": None if factor.levels is None else list(factor.levels),
                "fields": list(factor.fields),
                "learned": factor.learned,
            }
            for factor in design.factors
        ],
        "blocks": [
            {"factors": block.factors, "reduced": block.reduced, "scale": block.scale}
            for block in design.blocks
        ],
        "intercept": design.intercept,
    }


def design_from_json(found: Mapping[str, Any]) -> Design:
    """The design that `design_as_json` described; every expression is checked again."""
    factors = tuple(
        Factor(
            _text(part["text"]),
            None if part["levels"] is None else tuple(map(_text, part["levels"])),
            tuple(map(_text, part["fields"])),
            {_text(call): dict(state) for call, state in part["learned"].items()},
        )
        for part in found["factors"]
    )
    blocks = tuple(
        Block(
            tuple(int(place) for place in part["factors"]),
            tuple(bool(reduced) for reduced in part["reduced"]),
            float(part["scale"]),
        )
        for part in found["blocks"]
    )
    for block in blocks:
        if not all(0 <= place < len(factors) for place in block.factors):
            raise FileError("the description of the design names a factor that it does not hold")
    for factor in factors:
        Expression.of(factor.text)
    return Design(factors, blocks, bool(found["intercept"]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise FileError(f"the description of the design holds {brief(value)} in place of a text")
    return value
