"""Which tests may skip under CI: those that need root, the paper's data, or PyTorch where it cannot
be installed. Any other skip fails the run, so that what is promised is also tested.

Hooks of pytest, active where the variable CI is "true".
"""

from __future__ import annotations

import os
import re

import pytest

ALLOWED = (
    re.compile(r"\bneeds root\b|\bto mount\b"),
    re.compile(r"\bneeds the data of the paper\b"),
    re.compile(r"^(Skipped: )?needs torch$"),
)
OUTPUT = "skipped while collecting"  # what a worker of xdist hands to its controller

_skipped: list[tuple[str, str]] = []  # where, and why


def is_allowed(reason: str) -> bool:
    return any(words.search(reason) for words in ALLOWED)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _note(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        _note(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turn success into failure; a worker of xdist only reports to its controller."""
    workeroutput = getattr(session.config, "workeroutput", None)
    if workeroutput is not None:
        workeroutput[OUTPUT] = _skipped
    elif _unexpected() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Take over what a worker has seen; tests that it ran are reported twice, which does no
    harm.
    """
    for where, why in getattr(node, "workeroutput", {}).get(OUTPUT, []):
        _skipped.append((where, why))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if unexpected := _unexpected():
        terminalreporter.section("skips that CI does not allow", red=True)
        for where, why in unexpected:
            terminalreporter.line(f"{where}: {why}")


def _note(report: pytest.TestReport | pytest.CollectReport) -> None:
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    _skipped.append((report.nodeid, why.removeprefix("Skipped: ")))


def _unexpected() -> list[tuple[str, str]]:
    if os.environ.get("CI") != "true":
        return []
    return sorted({(where, why) for where, why in _skipped if not is_allowed(why)})
