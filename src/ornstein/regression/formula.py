"""A formula's text as terms: formulaic parses it, and every factor is checked before it is used.

    y ~ a + bs(b, df=5) * c + offset(log(e)) + (1 | g)

The left side is a column or a function of columns, `successes(k, n)` or `censored(time, event)`.
Terms with a bar belong to groups (mixed models) and are taken out before formulaic sees the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from keyword import iskeyword

from ornstein.checks import brief
from ornstein.errors import InputError
from ornstein.regression.expression import Expression

LONGEST, DEEPEST, MOST_TERMS = 20_000, 30, 20_000
STRUCTURED = ("successes", "censored")
DOT = re.compile(r"(?<![\w.`)\]])\.(?![\w.`(])")
POWER = re.compile(r"(?:\*\*|\^)\s*(\d+)")
NAME = re.compile(r"[A-Za-z_]\w*|`[^`]*`")
FUNCTION_CALL = re.compile(r"[\w.]+\s*$")


@dataclass(frozen=True)
class Response:
    """The left side: `kind` "column" with one expression, or one of `STRUCTURED` with two."""

    kind: str
    parts: tuple[Expression, ...]
    text: str

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.column_names)


@dataclass(frozen=True)
class Term:
    """A product of factors, by their text, and a number before it."""

    factors: tuple[str, ...]
    scale: float = 1.0


@dataclass(frozen=True)
class GroupTerm:
    """`(expression | group)`: coefficients that vary between the groups; `||` without correlation
    between them.
    """

    expression: str
    group: str
    correlated: bool


@dataclass(frozen=True)
class Formula:
    """What a formula says; `response` is None where it has a right side only."""

    text: str
    response: Response | None
    terms: tuple[Term, ...]
    intercept: bool
    offsets: tuple[Expression, ...]
    groups: tuple[GroupTerm, ...]
    expressions: dict[str, Expression]

    @property
    def column_names(self) -> tuple[str, ...]:
        """Every column that the right side reads."""
        read = [*self.expressions.values(), *self.offsets]
        return tuple(dict.fromkeys(name for part in read for name in part.column_names))

    @property
    def label_names(self) -> tuple[str, ...]:
        """The columns inside C(…), whose numbers are labels."""
        found = (part.labelled_column for part in self.expressions.values())
        return tuple(dict.fromkeys(name for name in found if name is not None))

    @classmethod
    def of(cls, text: str, others: Iterable[str] = ()) -> Formula:
        """Parse and check.

        Args:
            text: with or without a left side.
            others: what `.` stands for: factors, such as the names of the other columns.

        >>> formula = Formula.of("y ~ a * b + offset(log(e))")
        >>> [term.factors for term in formula.terms], formula.offsets[0].text
        ([('a',), ('b',), ('a', 'b')], 'log(e)')
        """
        left, right = _sides(_checked(text))
        response = None if left is None else _response(left)
        right = _without_dot(right, list(others))
        right, groups = group_terms(right)
        _require_few_terms(right)
        terms, intercept = _terms(right)
        offsets = tuple(expression for term in terms if (expression := _offset(term)) is not None)
        kept = tuple(term for term in terms if _offset(term) is None)
        factors = dict.fromkeys(factor for term in kept for factor in term.factors)
        expressions = {factor: Expression.of(factor) for factor in factors}
        shown = right if left is None else f"{left} ~ {right}"
        return cls(shown, response, kept, intercept, offsets, groups, expressions)


def _checked(text: object) -> str:
    if not isinstance(text, str):
        raise InputError(f"a formula is a text such as 'y ~ x'; got {brief(text)}")
    if len(text) > LONGEST:
        raise InputError(f"the formula has {len(text):,} letters, more than {LONGEST:,}")
    if not text.isprintable() and not text.replace("\n", " ").isprintable():
        raise InputError(f"the formula {brief(text)} holds characters that cannot be printed")
    depth = deepest = 0
    for letter in _masked(text):
        depth += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, depth)
        if depth < 0:
            break
    if depth or deepest > DEEPEST:
        reason = "brackets that do not match" if depth else f"more than {DEEPEST} nested brackets"
        raise InputError(f"the formula {brief(text)} has {reason}")
    return text.replace("\n", " ").strip()


def _masked(text: str) -> str:
    """The text with what stands in quotes replaced by letters, place for place."""
    return re.sub(r"`[^`]*`|\"[^\"]*\"|'[^']*'", lambda found: "q" * len(found.group()), text)


def _at_top(text: str, mark: str) -> list[int]:
    """Where a letter stands outside brackets and quotes."""
    places, depth = [], 0
    for place, letter in enumerate(_masked(text)):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and letter == mark:
            places.append(place)
    return places


def _sides(text: str) -> tuple[str | None, str]:
    places = _at_top(text, "~")
    if len(places) > 1 or _masked(text).count("~") > len(places):
        raise InputError(f"the formula {brief(text)} has more than one '~'")
    if not places:
        return None, text
    left, right = text[: places[0]].strip(), text[places[0] + 1 :].strip()
    if not right:
        raise InputError(f"the formula {brief(text)} has nothing on its right side")
    return left or None, right


def _response(left: str) -> Response:
    called = re.match(r"(\w+)\s*\((.*)\)$", left)
    if called is None or called.group(1) not in STRUCTURED:
        return Response("column", (Expression.of(quoted(left) if iskeyword(left) else left),), left)
    inside = called.group(2)
    commas = _at_top(inside, ",")
    if len(commas) != 1:
        raise InputError(f"{brief(left)} needs two columns, for instance {called.group(1)}(a, b)")
    parts = inside[: commas[0]].strip(), inside[commas[0] + 1 :].strip()
    return Response(called.group(1), tuple(Expression.of(part) for part in parts), left)


def stands_for_all(text: str) -> bool:
    """Whether the right side holds a `.` by itself.

    >>> stands_for_all("y ~ . - x"), stands_for_all("y ~ x.1 + log(0.5 * x)")
    (True, False)
    """
    return isinstance(text, str) and DOT.search(_masked(text)) is not None


def _without_dot(right: str, others: list[str]) -> str:
    """Each `.` by itself as the sum of all other columns."""
    places = [found.start() for found in DOT.finditer(_masked(right))]
    if not places:
        return right
    if not others:
        raise InputError("the formula's '.' stands for all other columns; the table has none")
    every = " + ".join(others)
    whole = every if right == "." else f"({every})"
    for place in reversed(places):
        right = right[:place] + whole + right[place + 1 :]
    return right


def quoted(name: str) -> str:
    """A column's name as a formula can hold it.

    >>> quoted("age"), quoted("body mass index")
    ('age', '`body mass index`')
    """
    if "`" in name:
        raise InputError(f"column {name!r} has a backtick in its name: rename it")
    plain = re.fullmatch(r"[A-Za-z]\w*", name) and "__" not in name and not iskeyword(name)
    return name if plain else f"`{name}`"


def group_terms(right: str) -> tuple[str, tuple[GroupTerm, ...]]:
    """The right side without its terms `(expression | group)`, and these."""
    masked, groups, kept, start = _masked(right), [], [], 0
    for opening, closing in _brackets(masked):
        inside = right[opening + 1 : closing]
        bars = _at_top(inside, "|")
        if not bars or FUNCTION_CALL.search(masked[:opening]):
            continue
        expression, group = inside[: bars[0]].strip(), inside[bars[-1] + 1 :].strip()
        if not expression or not group or bars[-1] - bars[0] != len(bars) - 1 or len(bars) > 2:
            raise InputError(f"{brief(inside)} must be (terms | group), for instance (1 | school)")
        groups.append(GroupTerm(expression, group, len(bars) == 1))
        kept.append(right[start:opening])
        start = closing + 1
    kept.append(right[start:])
    if not groups:
        return right, ()
    left = re.sub(r"(?:\+\s*)+(?=\+|$|-)", "", "".join(kept)).strip()
    return re.sub(r"^\+\s*", "", left) or "1", tuple(groups)


def _brackets(masked: str) -> list[tuple[int, int]]:
    """Outermost pairs of round brackets."""
    pairs, depth, opening = [], 0, 0
    for place, letter in enumerate(masked):
        if letter == "(":
            opening = place if depth == 0 else opening
            depth += 1
        elif letter == ")":
            depth -= 1
            if depth == 0:
                pairs.append((opening, place))
    return pairs


def _require_few_terms(right: str) -> None:
    """Refuse what would multiply out to more terms than can be meant, before it is tried."""
    masked = _masked(right)
    starts = sorted({-1, *_at_top(right, "+"), *_at_top(right, "-")})
    for start, stop in zip(starts, [*starts[1:], len(right)], strict=True):
        part = re.sub(r"\w+\s*\([^()]*\)", "f", masked[start + 1 : stop])
        names = max(1, len(NAME.findall(part)))
        powers = [int(power) for power in POWER.findall(part)]
        products = len(re.findall(r"(?<!\*)\*(?!\*)|:|/|%in%", part)) + 1
        if any(power > 10 for power in powers):
            raise InputError(f"the formula raises to the power {max(powers)}, more than 10")
        count = (names / products + 1.0) ** products
        for power in powers:
            count = count**power
            if count > MOST_TERMS:
                break
        if count > MOST_TERMS:
            raise InputError(
                f"{brief(right[start + 1 : stop].strip())} expands to more than"
                f" {MOST_TERMS:,} terms: write fewer interactions"
            )


def _terms(right: str) -> tuple[list[Term], bool]:
    """The terms as formulaic reads them, without the intercept, and whether there is one."""
    from formulaic.errors import FormulaicError
    from formulaic.parser import DefaultFormulaParser
    from formulaic.parser.types import Factor

    parser = DefaultFormulaParser(feature_flags=DefaultFormulaParser.FeatureFlags.NONE)
    try:
        found = parser.get_terms(right)
        parsed = sorted(found if isinstance(found, list | tuple) else list(found), key=_degree)
    except (FormulaicError, SyntaxError, ValueError, TypeError, RecursionError) as error:
        said = re.sub(r"\x1b\[[0-9;]*m|⧛|⧚", "", str(error)).strip().splitlines() or [""]
        raise InputError(f"the formula {brief(right)} cannot be read: {said[0]}") from None
    terms, intercept = [], False
    for term in parsed:
        scale, factors = 1.0, []
        for factor in term.factors:
            if factor.eval_method is Factor.EvalMethod.LITERAL:
                scale *= float(factor.expr)
            elif factor.eval_method is Factor.EvalMethod.LOOKUP:
                factors.append(quoted(factor.expr))
            else:
                factors.append(factor.expr)
        if factors:
            terms.append(Term(tuple(factors), scale))
        else:
            intercept = True
    return terms, intercept


def _degree(term: object) -> int:
    return len(term.factors)  # type: ignore[attr-defined]


def _offset(term: Term) -> Expression | None:
    """What is inside, where the term is `offset(…)`."""
    if not any(re.match(r"offset\s*\(", factor) for factor in term.factors):
        return None
    if len(term.factors) > 1:
        raise InputError(
            f"offset(…) is added as it is: it cannot be part of {':'.join(term.factors)!r}"
        )
    expression = Expression.of(term.factors[0])
    (inside,) = expression.tree.args  # type: ignore[attr-defined]
    return Expression.of(expression.shown(inside))
