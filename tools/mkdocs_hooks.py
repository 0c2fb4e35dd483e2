"""Hooks of the documentation: the reference takes the samplers from their registry."""

from __future__ import annotations

from typing import Any

from ornstein.samplers import PUBLIC

MARKER = "<!-- samplers -->"


def with_samplers(markdown: str) -> str:
    """The page with an entry for each class and function of the registry in place of the marker."""
    return markdown.replace(MARKER, "\n".join(f"::: ornstein.{name}" for name in PUBLIC))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """What MkDocs calls for each page."""
    return with_samplers(markdown) if page.file.src_uri == "api.md" else markdown
