"""Phrases that plain English has better words for stay out of code, comments and documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "docs", "examples", "benchmarks", "tools", "tests", ".github")
ENDINGS = {".py", ".md", ".ipynb", ".j2", ".yml", ".js"}
GLOSSARY = {  # the phrase, and what to write
    r"(?:holds?|held) (?:\w+ ){0,2}against": "compared with",
    r"speaks? against": "the problem itself",
    r"(?:answers? to (?:the spread|θ|a spread)|answers? of the noise)": "depends on",
    r"content findings": "findings that passed",
    r"is said to be": "is",
    r"\d by chance": "expected from Monte Carlo error",
    r"of no known kind": "is not recognised",
    r"in turn and": "in rotating order",
    r"may write over": "may overwrite",
    r"what lies there": "cached files",
    r"dear": "expensive",
    r"roads?": "method",
    r"so many": "the number",
    r"everyone runs": "all libraries run",
    r"how many a row becomes": "numbers produced per row",
    r"early and late draws agree": "early and late draws do not differ",
    r"noise is \+?\d+(?:\.\d+)? % off": "the noise is far larger than predicted",
    r"assumptions? A[1-5]": "the assumption by its name: noise is constant",
    r"(?<!there )(?:is|are) no (?:model|table|number|numbers|words|gaussian)": "is not a",
    r"say which of them": "name one of them",
    r"left the finite numbers": "reached non-finite values",
    r"matter of caution": "with caution",
    r"goes? on with": "continue with",
}
BREAK = re.compile(r"\n[ \t]*(?:# )?")
ANY = re.compile(rf"\b(?:{'|'.join(GLOSSARY)})\b", re.IGNORECASE)


def found(text: str) -> list[str]:
    """The phrases of a text, also where they go on in the next line, and what to write."""
    phrases = {match.group().lower() for match in ANY.finditer(BREAK.sub(" ", text))}
    return sorted(f"{phrase!r}: write {better(phrase)!r}" for phrase in phrases)


def better(phrase: str) -> str:
    return next(
        words for form, words in GLOSSARY.items() if re.fullmatch(form, phrase, re.IGNORECASE)
    )


def pages(folder: str) -> list[Path]:
    below = (ROOT / folder).rglob("*") if folder else ROOT.glob("*")
    return sorted(path for path in below if path.suffix in ENDINGS and path != Path(__file__))


@pytest.mark.parametrize("folder", ["", *FOLDERS])
def test_the_glossary_is_kept(folder):
    seen = {page.name: found(page.read_text(encoding="utf-8")) for page in pages(folder)}
    assert seen and not {page: words for page, words in seen.items() if words}


@pytest.mark.parametrize("text", ["the noise answers to the spread of θ", "A Dear pass", "so many"])
def test_a_phrase_of_the_glossary_is_found(text):
    assert found(text)


def test_its_own_words_are_not():
    assert not found("the road2 in dearth of somany")
