"""SECURITY.md: every promise names its tests, and they exist; nothing is unpickled or evaluated."""

from __future__ import annotations

import ast
import re

import pytest
from helpers import ROOT

SAID = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(?:\w+::)?(\w+)`", SAID)
# Calls that execute what they are given, and modules whose readers do.
EVALUATING = {"eval", "exec", "compile", "__import__"}
UNPICKLING = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def defined(source: str) -> set[str]:
    """Names of the functions of a module."""
    return {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}


def test_every_test_that_is_named_exists():
    missing = [
        f"{path}::{name}"
        for path, name in NAMED
        if not (ROOT / path).exists() or name not in defined((ROOT / path).read_text("utf-8"))
    ]
    assert NAMED and not missing, "\n".join(missing)


def test_every_promise_names_a_test():
    promised = SAID.split("## What is promised")[1].split("## What is not promised")[0]
    promises = re.split(r"^- ", promised, flags=re.MULTILINE)[1:]
    assert len(promises) >= 10
    for promise in promises:
        assert re.search(r"^  - `tests/", promise, re.MULTILINE), promise


def executed(source: str) -> list[str]:
    """What a module would execute of what it is given."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [node.func.id] * (node.func.id in EVALUATING)
        elif isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.split(".")[0] in UNPICKLING]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module] * (node.module.split(".")[0] in UNPICKLING)
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            found += ["allow_pickle"] * (ast.unparse(node.value) != "False")
    return found


def test_nothing_is_unpickled_or_evaluated():
    found = {
        str(path.relative_to(ROOT)): calls
        for path in (ROOT / "src").rglob("*.py")
        if (calls := executed(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "eval(text)",
        "import pickle",
        "from dill import loads",
        "np.load(path, allow_pickle=True)",
    ],
)
def test_the_check_would_notice(source):
    assert executed(source)
