"""Sizes that keep the architecture visible: of the package, of files, of what has no type."""

from __future__ import annotations

import ast
from configparser import ConfigParser

from helpers import ROOT

PACKAGE = ROOT / "src" / "ornstein"
FILES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").glob("*/**/test_*.py"))


def untyped(source):
    """How often `Any` is used; imports do not count."""
    return sum(
        isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(ast.parse(source))
    )


def test_the_package_itself_holds_few_files():
    assert len([path for path in PACKAGE.iterdir() if path.is_file()]) <= 10


def test_every_room_has_its_tests():
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    tested = {path.parent.relative_to(ROOT / "tests").parts[0] for path in TESTS}
    assert rooms <= tested, sorted(rooms - tested)


def test_no_file_is_long():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert [f"{path}: {length}" for path, length in lengths.items() if length > 400] == []


def test_random_streams_are_made_in_one_place():
    found = [path for path in FILES if "SeedSequence(" in path.read_text(encoding="utf-8")]
    assert [path.relative_to(PACKAGE).as_posix() for path in found] == ["streams.py"]


def test_theory_may_import_no_room_but_the_errors():
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    theory = contracts["importlinter:contract:theory"]["forbidden_modules"].split()
    rooms = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"} - {
        "__init__",
        "__main__",
        "_version",
        "__pycache__",
        "theory",
        "errors",
    }
    assert set(theory) == {f"ornstein.{room}" for room in rooms}


def test_little_is_any():
    assert untyped("from typing import Any\nx: dict[str, Any] = {}\ndef f(y: Any) -> int: ...") == 2
    uses = {path: untyped(path.read_text(encoding="utf-8")) for path in FILES}
    assert sum(uses.values()) < 300, sorted(uses.items(), key=lambda item: -item[1])[:10]
