"""Files that a script generates: write one, or check that it is current."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path


def write_or_check(path: Path, text: str, arguments: Sequence[str] | None = None) -> int:
    """Write `text` to `path`, or with `--check` compare the two; returns the exit code."""
    parser = argparse.ArgumentParser(description=f"Write {path.name}.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it is stale")
    if not parser.parse_args(arguments).check:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return 0
    if is_current(path, text):
        return 0
    print(f"{path} is not current: run make format")
    return 1


def is_current(path: Path, text: str) -> bool:
    """Whether the file holds this text."""
    return path.exists() and path.read_text(encoding="utf-8") == text
