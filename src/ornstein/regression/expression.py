"""The functions that a formula may call, checked before anything runs and evaluated without `eval`.

A factor such as `bs(log(hour + 1), df=6)` is parsed by `ast` and walked node by node. Columns,
numbers, texts, arithmetic, comparisons and the functions of `FUNCTIONS` are all there is: whatever
else the text may be, it is refused in a sentence and nothing of it runs.

Some functions learn from the rows of the fit (`bs` its knots, `scale` its mean): what they learned
is a plain dict, one per call, kept by the text of the call.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from ornstein.checks import brief
from ornstein.errors import InputError
from ornstein.regression import columns as of
from ornstein.types import Array

FUNCTIONS = (
    *("C", "bs", "cr", "cc", "poly", "scale", "center"),
    *("log", "log1p", "exp", "sqrt", "I", "offset"),
)
SPLINES = ("bs", "cr", "cc")
PLAIN: dict[str, Callable[[Array], Array]] = {
    "log": np.log,
    "log1p": np.log1p,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "I": np.asarray,
    "offset": np.asarray,
}
OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: np.power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
DEEPEST = 20  # calls and operators within each other
QUOTED = re.compile(r"`([^`]*)`")


@dataclass(frozen=True)
class Expression:
    """A checked factor: its text, its tree, and the names that stand for quoted columns."""

    text: str
    tree: ast.expr
    quoted: dict[str, str]

    @classmethod
    def of(cls, text: str) -> Expression:
        """Parse and check; the columns are checked later, where the table is known.

        >>> Expression.of("log(`my column`)").column_names
        ('my column',)
        >>> Expression.of("__import__('os')")
        Traceback (most recent call last):
        ...
        ornstein.errors.InputError: the formula calls '__import__', which is not one of its...
        """
        quoted: dict[str, str] = {}

        def stand_in(found: re.Match[str]) -> str:
            name = f"quoted_{len(quoted)}_"
            while name in text:
                name += "_"
            quoted[name] = found.group(1)
            return name

        try:
            tree = ast.parse(QUOTED.sub(stand_in, text), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise InputError(f"the formula cannot be read at {brief(text)}") from None
        expression = cls(text, tree, quoted)
        expression._check(tree, 0)
        return expression

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns that it reads, in the order in which they stand there."""
        return tuple(dict.fromkeys(self._names(self.tree)))

    @property
    def only_column(self) -> str | None:
        """The column, where the expression is nothing else."""
        return self._column(self.tree)

    @property
    def labelled_column(self) -> str | None:
        """The column, where the expression is C(column, …)."""
        match self.tree:
            case ast.Call(func=ast.Name(id="C"), args=[column, *_]):
                return self._column(column)
        return None

    def shown(self, node: ast.AST) -> str:
        """A part of the text as it was written."""
        text = ast.unparse(node)
        for stand_in, name in self.quoted.items():
            text = text.replace(stand_in, f"`{name}`")
        return text

    def _column(self, node: ast.AST) -> str | None:
        """The column that a name stands for; a dotted name is one column, as in R."""
        if isinstance(node, ast.Name):
            return self.quoted.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            start = self._column(node.value)
            return None if start is None or "__" in node.attr else f"{start}.{node.attr}"
        return None

    def _names(self, node: ast.AST) -> list[str]:
        name = self._column(node)
        if name is not None:
            return [name]
        parts: list[ast.AST] = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Call):
            parts = [*node.args, *(keyword.value for keyword in node.keywords)]
        return [found for part in parts for found in self._names(part)]

    def _check(self, node: ast.AST, depth: int) -> None:
        if depth > DEEPEST:
            raise InputError(f"the formula nests calls more than {DEEPEST} deep")
        name = self._column(node)
        if name is not None:
            if "__" in name and name not in self.quoted.values():
                raise InputError(
                    f"the formula names {brief(name)}: names with two underscores need"
                    " backticks around them"
                )
            return
        if isinstance(node, ast.Constant):
            if not isinstance(node.value, bool | int | float | str):
                raise InputError(
                    f"the formula holds {brief(self.shown(node))}, which is not a number"
                )
            return
        parts = self._parts(node)
        for part in parts:
            self._check(part, depth + 1)

    def _parts(self, node: ast.AST) -> list[ast.expr]:
        if isinstance(node, ast.Call):
            self._require_function(node)
            return [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return [node.left, node.right]
        if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
            return [node.operand]
        if isinstance(node, ast.Compare) and [type(op) in OPERATORS for op in node.ops] == [True]:
            return [node.left, *node.comparators]
        literal = ast.Constant | ast.UnaryOp
        if isinstance(node, ast.List | ast.Tuple) and all(
            isinstance(item, literal) for item in node.elts
        ):
            return list(node.elts)
        raise InputError(
            f"the formula holds {brief(self.shown(node))}; it may call {', '.join(FUNCTIONS)} with"
            " columns, numbers, texts and arithmetic, and nothing else"
        )

    def _require_function(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else self.shown(node.func)
        if name not in FUNCTIONS or not isinstance(node.func, ast.Name):
            raise InputError(
                f"the formula calls {brief(name)}, which is not one of its functions"
                f" ({', '.join(FUNCTIONS)}): compute it as a column of the table first"
            )
        starred = any(isinstance(argument, ast.Starred) for argument in node.args)
        if not node.args or starred or any(keyword.arg is None for keyword in node.keywords):
            raise InputError(f"{brief(self.shown(node))} needs a column as its first argument")


@dataclass(frozen=True)
class Evaluation:
    """One walk over an expression with the rows of a table.

    `learned` holds what the functions know, by the text of their call; where `fitting`, they learn
    it here.
    """

    expression: Expression
    table: of.Columns
    learned: dict[str, dict[str, Any]]
    fitting: bool

    def value(self) -> Any:
        """Numbers per row, a dict or matrix of several per row, or `columns.Labels`."""
        name = self.expression.only_column
        if name is not None:
            found = of.values(self.table[name], self._known_levels(name))
            if self.fitting and isinstance(found, of.Labels):
                self.learned[name] = {"levels": list(found.levels)}
            return found
        with np.errstate(all="ignore"):
            return self._of(self.expression.tree)

    def _known_levels(self, call: str) -> Any:
        """None while learning; () for numbers; else the levels that were learned."""
        return None if self.fitting else tuple(self.learned.get(call, {}).get("levels", ()))

    def _of(self, node: ast.AST) -> Any:
        name = self.expression._column(node)
        if name is not None:
            return of.numbers(self.table[name])
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str | bool):
                return node.value
            return np.float64(cast(float, node.value))
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](self._number(node.left), self._number(node.right))
        if isinstance(node, ast.UnaryOp):
            return OPERATORS[type(node.op)](self._number(node.operand))
        if isinstance(node, ast.Compare):
            left, right = node.left, node.comparators[0]
            compare = OPERATORS[type(node.ops[0])]
            return self._compared(compare, left, right)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise InputError(f"the formula uses {brief(self.expression.shown(node))} as a number")

    def _compared(self, compare: Callable[..., Any], left: ast.expr, right: ast.expr) -> Array:
        """1 where it holds; a column of text may be compared with a text."""
        name = self.expression._column(left)
        if name is not None and isinstance(right, ast.Constant) and isinstance(right.value, str):
            series = self.table[name]
            found = of.coded(series)
            wanted = np.array([compare(level, right.value) for level in found.levels], dtype=float)
            return np.where(found.codes >= 0, wanted[found.codes], np.nan)
        first, second = self._number(left), self._number(right)
        known = ~(np.isnan(first) | np.isnan(second))
        return np.where(known, compare(first, second), np.nan)

    def _number(self, node: ast.AST) -> Any:
        value = self._of(node)
        if isinstance(value, str) or not isinstance(value, np.ndarray | np.generic | bool):
            raise InputError(f"{brief(self.expression.shown(node))} is not one number per row")
        return value

    def _call(self, node: ast.Call) -> Any:
        assert isinstance(node.func, ast.Name)
        function, text = node.func.id, self.expression.shown(node)
        options = {str(keyword.arg): self._option(keyword.value) for keyword in node.keywords}
        extra = [self._option(argument) for argument in node.args[1:]]
        if function == "C":
            return self._labels(node, text, extra, options)
        values = self._number(node.args[0])
        if np.ndim(values) != 1:
            raise InputError(f"{brief(text)} needs a column as its first argument")
        if function in PLAIN:
            if extra or options:
                raise InputError(f"{brief(text)} takes one argument")
            return PLAIN[function](values)
        state = self.learned.setdefault(text, {}) if self.fitting else self.learned.get(text)
        if state is None:
            raise InputError(f"the fit does not say what {brief(text)} learned from its rows")
        state = state if self.fitting else _revived(state)
        return _learning(function, values, extra, options, state, text)

    def _labels(
        self, node: ast.Call, text: str, extra: list[Any], options: dict[str, Any]
    ) -> of.Labels:
        name = self.expression._column(node.args[0])
        if name is None or extra[1:] or set(options) - {"reference", "levels"}:
            raise InputError(
                f"{brief(text)}: C takes a column, and reference= or levels= where wanted"
            )
        found = of.coded(self.table[name])
        if not self.fitting:
            return found.with_levels(self._known_levels(text))
        of.require_few(name, found.levels)
        reference = extra[0] if extra else options.get("reference")
        found = _reordered(found, reference, options.get("levels"), text)
        self.learned[text] = {"levels": list(found.levels)}
        return found

    def _option(self, node: ast.AST) -> Any:
        """A literal: whole numbers stay whole, for `df=6`."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
            return OPERATORS[type(node.op)](node.operand.value)
        if isinstance(node, ast.List | ast.Tuple):
            return [self._option(item) for item in node.elts]
        raise InputError(
            f"{brief(self.expression.shown(node))} must be a number or a text, not computed"
        )


def _reordered(
    found: of.Labels, reference: object, levels: list[Any] | None, text: str
) -> of.Labels:
    order = list(found.levels) if levels is None else [str(level) for level in levels]
    if reference is not None:
        order = [str(reference), *(level for level in order if level != str(reference))]
    unknown = [level for level in order if level not in found.levels and levels is None]
    lacking = [level for level in found.levels if level not in order]
    if unknown or lacking or len(set(order)) < len(order):
        raise InputError(
            f"{brief(text)} does not fit the labels of the column, which are"
            f" {of.shown(found.levels)}"
        )
    return found.with_levels(tuple(order))


def _learning(
    function: str,
    values: Array,
    extra: list[Any],
    options: dict[str, Any],
    state: dict[str, Any],
    text: str,
) -> Any:
    """What formulaic makes of the numbers; beyond the range of a spline there is NaN."""
    from formulaic import transforms

    known: dict[str, Callable[..., Any]] = {
        "bs": transforms.basis_spline,
        "cr": transforms.natural_cubic_spline,
        "cc": transforms.cyclic_cubic_spline,
        "poly": transforms.poly,
        "scale": transforms.scale,
        "center": transforms.center,
    }
    if function in SPLINES:
        options = {"extrapolation": "na", **options}
    try:
        return known[function](values, *extra, **options, _state=state)
    except (TypeError, ValueError, ArithmeticError, LookupError) as error:
        said = " ".join(str(error).split()).replace("`", "")
        raise InputError(f"{brief(text)} cannot be computed: {said}") from None


def _revived(state: dict[str, Any]) -> dict[str, Any]:
    """JSON has no whole numbers as keys, which `poly` needs, and no arrays, which `cr` needs."""
    found = dict(state)
    for name in ("alpha", "norms2"):
        if name in found:
            found[name] = {int(degree): float(value) for degree, value in found[name].items()}
    if isinstance(found.get("constraints"), list):
        found["constraints"] = np.asarray(found["constraints"], dtype=float)
    return found
