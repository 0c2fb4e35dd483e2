"""Every Python block of the README and the documentation runs, page by page, in order."""

from __future__ import annotations

import ast
import json
import re
from importlib import import_module
from pathlib import Path

import mkdocs_hooks
import pytest
from matplotlib.figure import Figure

import ornstein
from ornstein.samplers import PUBLIC

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "ornstein"
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.md"))
ARCHITECTURE = ROOT / "docs" / "developer" / "architecture.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def reference_entries() -> set[str]:
    """What the reference describes, once the samplers are in their place."""
    written = "\n".join(page.read_text(encoding="utf-8") for page in REFERENCE)
    return set(re.findall(r"^::: ([\w.]+)", mkdocs_hooks.with_samplers(written), re.MULTILINE))


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem
)
def test_code_blocks_run(page, capsys):
    namespace: dict[str, object] = {"__name__": "documentation"}
    for number, block in enumerate(blocks(page)):
        # not with the __future__ imports of this file
        code = compile(block, f"{page.name} block {number}", "exec", dont_inherit=True)
        exec(code, namespace)
    printed = {without_numbers(line) for line in capsys.readouterr().out.splitlines()}
    unseen = [line for line in quoted(page) if not any(seen.startswith(line) for seen in printed)]
    assert page.name != "README.md" or not unseen


def quoted(page: Path) -> list[str]:
    """What a page says that its first program prints, up to where it is cut short."""
    text = page.read_text(encoding="utf-8")
    quotations = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = "".join(quotations).splitlines()
    return [without_numbers(line.partition("...")[0]) for line in lines if line.strip() != "..."]


def without_numbers(line: str) -> str:
    """The words of a line: digits depend on the machine, and so do the spaces around them."""
    return re.sub(r"[\s\d.,–-]+", " ", line).strip()


def cells(notebook: Path) -> list[tuple[list[str], str]]:
    """Tags and source of the cells of code."""
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in found if cell["cell_type"] == "code"]
    return [(cell["metadata"].get("tags", []), "".join(cell["source"])) for cell in code]


def shown(source: str, name: str, namespace: dict[str, object]) -> object:
    """Run a cell; the value of its last line is what a notebook shows."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), namespace)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), name, "eval"), namespace)  # noqa: S307


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_on_a_sample(notebook):
    """Cell by cell, and what a notebook would show has a picture or a table of its own."""
    namespace: dict[str, object] = {"__name__": "notebook"}
    pictures_and_tables = 0
    for number, (tags, source) in enumerate(cells(notebook)):
        value = shown(source, f"{notebook.name} cell {number}", namespace)
        if "parameters" in tags:
            namespace["rows"] = 2_000
        if isinstance(value, Figure):
            assert all(axes.has_data() for axes in value.axes)
            pictures_and_tables += 1
        elif hasattr(value, "_repr_html_"):
            text = value._repr_html_()
            assert "<" in text and len(text) > 40
            pictures_and_tables += 1
    assert pictures_and_tables >= 5


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_those_of_one_whole_run(notebook):
    """Or there are none yet: `tools/run_notebooks.py` stores them, without warnings and folders."""
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in found if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    counts = [cell["execution_count"] for cell in code]
    assert counts == (list(range(1, len(code) + 1)) if outputs else [None] * len(code))
    pictures = [cell for cell in code if "image/png" in json.dumps(cell["outputs"])]
    assert all(cell["metadata"].get("alt") for cell in pictures)  # for those who do not see them
    kinds = {output["output_type"] for output in outputs}
    assert kinds <= {"display_data", "execute_result", "stream"}
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert not re.search(r"/(?:home|root|tmp|Users)/", json.dumps(outputs))


def test_a_failing_block_would_be_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nraise KeyError('seen')\n```\n", encoding="utf-8")
    with pytest.raises(KeyError, match="seen"):
        exec(compile(blocks(page)[0], "page", "exec"), {})


def test_every_public_name_is_in_the_reference():
    """By an entry with the name that users write."""
    named = {entry.removeprefix("ornstein.") for entry in reference_entries()}
    formulas = [f"theory.{name}" for name in ornstein.theory.__all__]
    others = set(ornstein.__all__) - {"theory", *ornstein.theory.__all__}
    assert [name for name in sorted({*others, *formulas}) if name not in named] == []


def test_every_page_of_the_reference_is_in_its_list():
    listed = re.findall(r"\(reference/(\w+)\.md\)", (ROOT / "docs" / "api.md").read_text("utf-8"))
    assert sorted(listed) == sorted(page.stem for page in REFERENCE)


def test_the_reference_takes_the_samplers_from_their_registry():
    written = "".join(page.read_text(encoding="utf-8") for page in REFERENCE)
    assert "<!-- samplers -->" in written
    assert not [name for name in PUBLIC if f"::: ornstein.{name}\n" in written]
    assert mkdocs_hooks.with_samplers("<!-- samplers -->").splitlines() == [
        f"::: ornstein.{name}" for name in PUBLIC
    ]


def missing(text: str) -> list[str]:
    """Files, modules and their contents that a text names in backticks and that do not exist.

    A quotation with a space in it is a command.
    """
    named = [word for word in re.findall(r"`([^`]+)`", text) if " " not in word]
    return [word for word in named if not (is_file(word) if is_path(word) else is_object(word))]


def is_path(word: str) -> bool:
    return "/" in word or word.startswith(".") or word.endswith(".py")


def is_file(word: str) -> bool:
    return (PACKAGE / word).exists() or (ROOT / word).exists()


def is_object(word: str) -> bool:
    """Whether it is a public name, or a module below the package or something in one."""
    parts = word.split(".")
    for end in range(len(parts), 0, -1):
        path = PACKAGE.joinpath(*parts[:end])
        if not (path.is_dir() or path.with_suffix(".py").exists()):
            continue
        found = import_module(".".join(["ornstein", *parts[:end]]))
        for part in parts[end:]:
            found = getattr(found, part, None)
        return found is not None
    return word in ornstein.__all__


def test_everything_that_the_architecture_names_is_there():
    text = ARCHITECTURE.read_text(encoding="utf-8")
    assert len(re.findall(r"`[^`\s]+`", text)) > 50
    assert missing(text) == []


def test_a_name_that_is_not_there_would_be_noticed():
    """Negative control: of each kind one that exists and one that does not."""
    text = (
        "`engine/loop.py` `engine/pool.py` `.importlinter` `.linter` `sample` `simple`"
        " `engine.loop.run_block` `engine.loop.walk` `engine.run.Run.advance` `engine.run.Run.stop`"
    )
    wrong = ["engine/pool.py", ".linter", "simple", "engine.loop.walk", "engine.run.Run.stop"]
    assert missing(text) == wrong


def test_the_architecture_names_every_room():
    text = ARCHITECTURE.read_text(encoding="utf-8")
    rooms = [path for path in PACKAGE.iterdir() if not path.name.startswith("_")]
    names = [path.name + "/" * path.is_dir() for path in rooms if path.name != "py.typed"]
    assert [name for name in names if f"`{name}`" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_has_a_picture_or_something_to_run(page):
    """Entries of the reference hold examples that run as doctests; the gallery shows programs."""
    text = page.read_text(encoding="utf-8")
    markers = (mkdocs_hooks.EXAMPLES_MARKER, mkdocs_hooks.MARKER, "\n::: ornstein.")
    shown = re.search(r"!\[[^\]]+\]\(|<img ", text) or any(marker in text for marker in markers)
    assert shown or blocks(page)


def test_the_readme_has_code():
    assert blocks(ROOT / "README.md")
