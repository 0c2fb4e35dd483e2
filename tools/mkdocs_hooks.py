"""Hooks of the documentation: the reference takes the samplers from their registry, formulas become
MathML while the pages are built, and nothing is loaded from elsewhere.
"""

from __future__ import annotations

import ast
import json
import re
from html import escape, unescape
from pathlib import Path
from typing import Any

from ornstein.samplers import PUBLIC

# The theme takes this from another server, so that search works in pages opened from a file.
FOREIGN = re.compile(r'(<script src=")https://unpkg\.com/iframe-worker/shim(")')
WORDLESS = "No description has been provided for this image"  # what notebooks put
MARKER = "<!-- samplers -->"
EXAMPLES_MARKER = "<!-- examples -->"
EXAMPLES = Path(__file__).parents[1] / "examples"
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def with_samplers(markdown: str) -> str:
    """The page with an entry for each class and function of the registry in place of the marker."""
    return markdown.replace(MARKER, "\n".join(f"::: ornstein.{name}" for name in PUBLIC))


def with_examples(markdown: str) -> str:
    """The page with every example, its words first, in place of the marker."""
    return markdown.replace(
        EXAMPLES_MARKER, "\n".join(map(_example, sorted(EXAMPLES.glob("*.py"))))
    )


def _example(path: Path) -> str:
    source = path.read_text(encoding="utf-8")
    words = ast.get_docstring(ast.parse(source)) or ""
    title, _, rest = words.partition("\n")
    code = source.split('"""', 2)[2].strip()
    # four backticks, so that the page's own test of Python blocks leaves it to that of the examples
    return f"## {title.rstrip('.:')}\n\n`{path.name}`. {rest.strip()}\n\n````py\n{code}\n````\n"


def with_formulas(html: str) -> str:
    """The page with MathML in place of LaTeX.

    >>> with_formulas('<span class="arithmatex">\\\\(x^2\\\\)</span>')[:13]
    '<math xmlns="'
    """
    from latex2mathml.converter import convert

    def converted(found: re.Match[str]) -> str:
        apart = found.group(2) == "["
        formula = convert(unescape(found.group(3)).strip(), display="block" if apart else "inline")
        return f'<div class="formula">{formula}</div>' if apart else str(formula)

    return FORMULA.sub(converted, html)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """What MkDocs calls for each page."""
    if page.file.src_uri == "gallery.md":
        return with_examples(markdown)
    return with_samplers(markdown)


def on_page_content(html: str, **_: Any) -> str:
    """What MkDocs calls with the HTML of each page."""
    return with_formulas(html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """What MkDocs calls with each page as it will be written."""
    source = Path(page.file.abs_src_path)
    words = words_of_pictures(source) if source.suffix == ".ipynb" else []
    return with_own_worker(with_words(output, words), page.file.url.count("/"))


def words_of_pictures(notebook: Path) -> list[str]:
    """What the cells with pictures say of them ("alt" in their metadata), a picture each."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [
        cell["metadata"].get("alt", WORDLESS)
        for cell in cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]


def with_words(html: str, words: list[str]) -> str:
    """The page with words for the pictures that have none, in their order.

    >>> with_words(f'<img alt="{WORDLESS}"><img alt="{WORDLESS}">', ["one", "two"])
    '<img alt="one"><img alt="two">'
    """
    for one in words:
        html = html.replace(f'alt="{WORDLESS}"', f'alt="{escape(one)}"', 1)
    return html


def on_post_template(output: str, **_: Any) -> str:
    """What MkDocs calls with what is not a page of ours, as 404.html."""
    return with_own_worker(output, 0)


def with_own_worker(html: str, depth: int) -> str:
    """The page with our own script for search, where it lies `depth` folders deep."""
    return FOREIGN.sub(rf"\g<1>{'../' * depth}javascripts/worker.js\g<2>", html)
