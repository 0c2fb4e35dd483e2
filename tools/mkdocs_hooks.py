"""Hooks of the documentation: the reference takes the samplers from their registry, and formulas
become MathML while the pages are built, so that no page loads a script for them.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from ornstein.samplers import PUBLIC

MARKER = "<!-- samplers -->"
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def with_samplers(markdown: str) -> str:
    """The page with an entry for each class and function of the registry in place of the marker."""
    return markdown.replace(MARKER, "\n".join(f"::: ornstein.{name}" for name in PUBLIC))


def with_formulas(html: str) -> str:
    """The page with MathML in place of LaTeX.

    >>> with_formulas('<span class="arithmatex">\\\\(x^2\\\\)</span>')[:13]
    '<math xmlns="'
    """
    from latex2mathml.converter import convert

    def converted(found: re.Match[str]) -> str:
        display = "block" if found.group(2) == "[" else "inline"
        return str(convert(unescape(found.group(3)).strip(), display=display))

    return FORMULA.sub(converted, html)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """What MkDocs calls for each page."""
    return with_samplers(markdown) if page.file.src_uri == "api.md" else markdown


def on_page_content(html: str, **_: Any) -> str:
    """What MkDocs calls with the HTML of each page."""
    return with_formulas(html)
