"""Write `__init__.pyi`, which tells type checkers the public names, from the table in
`ornstein/__init__.py`.

python tools/stub.py            writes it
python tools/stub.py --check    exits with 1 if it is not current
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from generated import write_or_check

import ornstein

PATH = Path(ornstein.__file__).with_name("__init__.pyi")
WIDTH = 100  # as in pyproject.toml
HEAD = '''"""The public names, for type checkers; `__init__.py` imports each on first use.

Written by tools/stub.py: do not edit.
"""

from ornstein import theory as theory
from ornstein._version import __version__ as __version__
'''


def stub(where: Mapping[str, str]) -> str:
    """The text of the stub for public names and the modules below `ornstein` that hold them."""
    names = sorted(where, key=lambda name: (where[name], _kind(name), name))
    return HEAD + "".join(_line(name, f"ornstein.{where[name]}") for name in names)


def _kind(name: str) -> int:
    """Constants, classes, functions: ruff sorts the imports of a module in this order."""
    return 0 if name.isupper() else 1 if name[0].isupper() else 2


def _line(name: str, module: str) -> str:
    line = f"from {module} import {name} as {name}\n"
    if len(line) <= WIDTH + 1:
        return line
    return f"from {module} import (\n    {name} as {name},\n)\n"


def places() -> dict[str, str]:
    """The module of every public name; a namespace is a name of the package that holds it."""
    spaces = {name: path.rpartition(".")[0] for name, path in ornstein._NAMESPACES.items()}
    return {**ornstein._WHERE, **{name: path for name, path in spaces.items() if path}}


if __name__ == "__main__":
    sys.exit(write_or_check(PATH, stub(places())))
