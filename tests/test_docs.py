"""Every Python block of the README and the documentation runs, page by page, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem
)
def test_code_blocks_run(page, capsys):
    namespace: dict[str, object] = {"__name__": "documentation"}
    for number, block in enumerate(blocks(page)):
        exec(compile(block, f"{page.name} block {number}", "exec"), namespace)


def test_a_failing_block_would_be_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nraise KeyError('seen')\n```\n", encoding="utf-8")
    with pytest.raises(KeyError, match="seen"):
        exec(compile(blocks(page)[0], "page", "exec"), {})


def test_every_public_name_is_in_the_reference():
    """By its own entry, or by that of the module it lives in."""
    import ornstein

    entries = set(
        re.findall(
            r"^::: ([\w.]+)", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    named = {entry.rsplit(".", 1)[1] for entry in entries}
    modules = {entry for entry in entries if entry in ("ornstein.errors",)}
    missing = [
        name
        for name in ornstein.__all__
        if name != "theory"
        and name not in named
        and getattr(ornstein, name).__module__ not in modules
    ]
    assert missing == []


def test_the_readme_has_code():
    assert blocks(ROOT / "README.md")
