"""What a terminal shows while a way or chains run."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ornstein.sampling import progress


@pytest.fixture
def shown(monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr(progress, "terminal", lambda: console)
    return screen


def test_a_way_with_the_time_it_has_taken_and_should_take(shown):
    with progress.waiting(True, "nuts [exact] {0}", 90.0):
        pass
    assert "nuts [exact] {0}" in shown.getvalue()
    assert "0 s of about 90 s, 90 s left" in shown.getvalue()


def test_chains_by_their_name(shown):
    with progress.progress_bar(True, 200, "SGLD[exact]") as report:
        report(50)
    assert "SGLD[exact]" in shown.getvalue() and "50 steps" in shown.getvalue()


def test_nothing_where_nothing_is_wanted(shown):
    with progress.waiting(False, "nuts", 1.0), progress.progress_bar(False, 10) as report:
        report(5)
    assert shown.getvalue() == ""
