"""What a formula may say, and that it runs nothing else."""

from __future__ import annotations

import builtins
import os

import numpy as np
import pandas as pd
import pytest

import ornstein as orn
from ornstein.regression.expression import Evaluation, Expression
from ornstein.regression.formula import Formula, GroupTerm, group_terms
from ornstein.regression.regress import Request, regression

TABLE = pd.DataFrame({"y": np.arange(12.0) % 5, "x": np.arange(12.0) ** 2, "g": ["a", "b"] * 6})

HOSTILE = (
    "y ~ __import__('os').system('true')",
    "y ~ __import__('os')",
    "__import__('os').system('true') ~ x",
    "y ~ eval('1')",
    "y ~ exec('x = 1')",
    "y ~ open('/etc/passwd')",
    "y ~ open('x', 'w')",
    "y ~ print(x)",
    "y ~ x.values",
    "y ~ x.__class__",
    "y ~ log(x.values)",
    "y ~ log(x.__class__)",
    "y ~ I(x.__class__.__mro__)",
    "y ~ I(().__class__.__bases__[0].__subclasses__())",
    "y ~ I(x.to_csv('stolen'))",
    "y ~ x.to_csv('stolen')",
    "y ~ np.log(x)",
    "y ~ np.load('x.npy', allow_pickle=True)",
    "y ~ I((lambda: 1)())",
    "y ~ (lambda: 1)()",
    "y ~ I(lambda z: z)",
    'y ~ I(f"{x}")',
    'y ~ I(f"{x.__class__}")',
    "y ~ C(x)(x)",
    "y ~ log(x)(x)",
    "y ~ bs(x)(df=3)",
    "y ~ getattr(x, 'values')",
    "y ~ log(getattr(x, 'values'))",
    "y ~ I(getattr(x, '__class__')())",
    "y ~ globals()",
    "y ~ I(globals()['os'])",
    "y ~ locals()",
    "y ~ vars(x)",
    "y ~ I([z for z in x])",
    "y ~ I({z: 1 for z in x})",
    "y ~ I(z := 3)",
    "y ~ I(x[0])",
    "y ~ I(x[::-1])",
    "y ~ x[0]",
    "y ~ I(x if x else y)",
    "y ~ I(x and y)",
    "y ~ I(not x)",
    "y ~ I(x @ x)",
    "y ~ I(*x)",
    "y ~ bs(x, **{'df': 3})",
    "y ~ bs(x, df=open('f'))",
    "y ~ bs(x, df=__import__('os').getpid())",
    "y ~ bs(x, knots=[open('f')])",
    "y ~ log(log)(x)",
    "y ~ I(b'bytes')",
    "y ~ I(1j * x)",
    "y ~ I(...)",
    "y ~ I(None)",
    "y ~ I(await x)",
    "y ~ I(yield)",
    "y ~ hashed(x, levels=3)",
    "y ~ lag(x)",
    "y ~ Q('x')",
    "y ~ {__import__('os').getpid()}",
    "y ~ {x.values}",
    "y ~ contr.treatment(g)",
    "y ~ C(g, contr.sum)",
    "y ~ `x`.values",
    "y ~ `__class__`",
    "y ~ quoted_0_ + `x`",
    "y ~ x + \x00",
    "y ~ offset(__import__('os').getpid())",
    "log(open('f')) ~ x",
    "successes(open('f'), x) ~ x",
    "y ~ (1 | __import__('os').getpid())",
    "y ~ " + "(" * 400 + "x" + ")" * 400,
    "y ~ I(" + "-" * 5000 + "x)",
    "y ~ I(9**9**9**9 * x + " + "log(" * 60 + "x" + ")" * 61,
    "y ~ (x + g + y)**1000000",
    "y ~ " + "*".join(f"v{k}" for k in range(40)),
    "y ~ x ~ g",
    "y ~",
    "y ~ x +",
    "y ~ )x(",
    "y ~ 'x'",
    "y ~ x; import os",
    "y ~ x # comment\nimport os",
)


@pytest.mark.parametrize("formula", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_formula_is_refused_in_a_sentence_and_runs_nothing(
    formula, monkeypatch, tmp_path
):
    def forbidden(*arguments, **options):
        raise AssertionError(f"it ran: {arguments}")

    import formulaic  # noqa: F401

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "system", forbidden)
    monkeypatch.setattr(builtins, "eval", forbidden)
    monkeypatch.setattr(builtins, "exec", forbidden)
    with pytest.raises(orn.InputError) as caught:
        regression(Request(formula), TABLE)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    assert not list(tmp_path.iterdir())


def test_there_are_sixty_of_them():
    assert len(set(HOSTILE)) >= 60


def test_a_formula_s_parts():
    formula = Formula.of("log(y) ~ a*b + I(a**2) - b + offset(log(e)) + offset(w) + 0")
    assert formula.response.column_names == ("y",)
    assert [term.factors for term in formula.terms] == [("a",), ("I(a ** 2)",), ("a", "b")]
    assert [offset.text for offset in formula.offsets] == ["log(e)", "w"]
    assert not formula.intercept
    assert formula.column_names == ("a", "b", "e", "w")


def test_group_terms_are_parsed_into_data_and_taken_out():
    rest, groups = group_terms("x + (1 | school) + log(z) + (1 + x || school:year)")
    assert groups == (
        GroupTerm("1", "school", True),
        GroupTerm("1 + x", "school:year", False),
    )
    formula = Formula.of(f"y ~ {rest}")
    assert [term.factors for term in formula.terms] == [("x",), ("log(z)",)]
    assert group_terms("(1 | g)") == ("1", (GroupTerm("1", "g", True),))
    assert group_terms("(x + z)**2") == ("(x + z)**2", ())
    for wrong in ("(1 | )", "(| g)", "(1 ||| g)"):
        with pytest.raises(orn.InputError, match="must be"):
            group_terms(wrong)


def test_a_group_term_is_refused_where_effects_cannot_be_integrated_out():
    with pytest.raises(orn.InputError, match="group term for 'g'"):
        regression(Request("y ~ x + (1 | g)"), TABLE)


def test_left_sides_of_two_columns():
    table = TABLE.assign(n=TABLE["y"] + 1.0, seen=[True, False, True] * 4)
    model = regression(Request("successes(y, n) ~ x"), table)
    assert model.likelihood.family == "binomial"
    np.testing.assert_array_equal(model.response, table[["y", "n"]])
    model = regression(Request("censored(n, seen) ~ x"), table)
    assert model.likelihood.family == "weibull"
    np.testing.assert_array_equal(model.response[:, 1], [1.0, 0.0, 1.0] * 4)
    some = table.assign(seen=table["seen"].astype(object).where(table["x"] != 4.0))
    assert list(regression(Request("censored(n, seen) ~ x"), some).response[:3, 1]) == [1, 0, 1]
    with pytest.raises(orn.InputError, match="write g == 'b' if that is what counts"):
        regression(Request("censored(n, g) ~ x"), table)
    assert regression(Request("censored(n, g == 'b') ~ x"), table).response[1, 1] == 1.0
    with pytest.raises(orn.InputError, match="does not fit the poisson family"):
        regression(Request("successes(y, n) ~ x", "poisson"), table)
    with pytest.raises(orn.InputError, match="needs successes and trials on the left side"):
        regression(Request("y ~ x", "binomial"), table)
    with pytest.raises(orn.InputError, match="needs two columns"):
        Formula.of("successes(y) ~ x")


def test_names_of_any_kind_can_be_written():
    table = {
        "class": TABLE["y"],
        "body mass": TABLE["x"],
        "Sepal.Width": TABLE["x"] + TABLE["y"],
        "Größe": np.sqrt(TABLE["x"]),
        "lambda": TABLE["y"] ** 2,
        "log": TABLE["y"] ** 3,
    }
    formula = "class ~ `body mass` + Sepal.Width + log1p(Sepal.Width) + Größe + lambda + log"
    model = regression(Request(formula), table)
    assert set(model.feature_names) == {*table, "log1p(Sepal.Width)"} - {"class"}
    every = regression(Request("class ~ ."), table)
    assert set(every.feature_names) == set(table) - {"class"}
    place = model.feature_names.index("body mass")
    np.testing.assert_allclose(model.features[:, place], TABLE["x"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", lambda x, z: x),
        ("log(x + 1)", lambda x, z: np.log(x + 1)),
        ("I(x**2 - 2*x/z)", lambda x, z: x**2 - 2 * x / z),
        ("I(-x % 3)", lambda x, z: -x % 3),
        ("sqrt(exp(log1p(x)))", lambda x, z: np.sqrt(1 + x)),
        ("I(x > 2)", lambda x, z: (x > 2).astype(float)),
        ("I(2 ** 3 ** 2 * x)", lambda x, z: 512.0 * x),
        ("scale(x)", lambda x, z: (x - x.mean()) / x.std(ddof=1)),
        ("center(x)", lambda x, z: x - x.mean()),
    ],
)
def test_expressions_are_what_they_say(text, expected):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.uniform(0, 5, 50), "z": rng.uniform(1, 2, 50)})
    found = Evaluation(Expression.of(text), table, {}, fitting=True).value()
    np.testing.assert_allclose(found, expected(table["x"], table["z"]), rtol=1e-12)


def test_a_column_that_is_misspelt_gets_an_offer():
    with pytest.raises(orn.InputError, match=r"'lenght' is not a column.*did you mean 'length'"):
        regression(Request("y ~ lenght"), {"y": [1.0, 2.0, 4.0], "length": [1.0, 2.0, 3.0]})
    with pytest.raises(orn.InputError, match="the target 'z' is not a column"):
        regression(Request("z ~ x"), TABLE)
