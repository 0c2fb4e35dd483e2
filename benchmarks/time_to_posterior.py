"""Seconds in a fresh process, start-up and compilation included, until the KL to the reference is
at most 0.05.

    python -m benchmarks.time_to_posterior --problem wine --limit 60

Every method runs alone in its own process, which writes a line (seconds since the process was
started, KL) whenever it has a better answer; computing the KL is not counted, reading the arrays
is. SGLD runs once per rate, and the best counts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.methods import METHODS, SGLD_RATES
from benchmarks.problems import NAMES, Problem

ENOUGH = 0.05
COVERTYPE_FACTOR = 5.0  # its limit, as a multiple of the others'
ROOT = Path(__file__).parents[1]


def worker(file: Path, method: str, started: float, rate: float | None) -> None:
    """What the fresh process does: one line of JSON per answer, until it is stopped."""
    problem = Problem.load(file)
    not_counted = 0.0
    answers = METHODS[method](problem) if rate is None else METHODS[method](problem, rate)
    for mean, covariance in answers:
        reached = time.time()
        print(
            json.dumps([reached - started - not_counted, problem.distance(mean, covariance)]),
            flush=True,
        )
        not_counted += time.time() - reached


def trace(file: Path, method: str, limit: float, rate: float | None = None) -> dict[str, Any]:
    """One method in its own process: its points (seconds, KL), and why it ended."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.time_to_posterior",
        "--worker",
        str(file),
        "--method",
        method,
    ]
    command += [] if rate is None else ["--rate", str(rate)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *_paths()])}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [*command, "--started", repr(time.time())],
            stdout=output,
            stderr=errors,
            env=environment,
            text=True,
        )
        try:
            ended = _watched(process, output, limit)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        errors.seek(0)
        points = _points(output.read())
        complaint = (errors.read().strip().splitlines() or [""])[-1]
    return {
        "points": worth_keeping(points),
        "ended": _reason(complaint) if ended == "failed" else ended,
    }


def _reason(complaint: str) -> str:
    """The last line of a traceback in words."""
    absent = re.match(r"ModuleNotFoundError: No module named '(\w+)", complaint)
    return f"{absent[1]} is not installed" if absent else complaint[:300]


def _points(text: str) -> list[list[float]]:
    """The whole lines that are points; libraries may print what they like in between."""
    return [
        json.loads(line)
        for line in text.splitlines(keepends=True)
        if line.startswith("[") and line.endswith("]\n")
    ]


def worth_keeping(points: list[list[float]]) -> list[list[float]]:
    """Those 1 % of the time apart, which is what a plot shows; the first that is close enough, the
    nearest and the last.
    """
    asked = [
        next((point for point in points if point[1] <= ENOUGH), None),
        min(points, key=lambda point: point[1], default=None),
    ]
    kept, last = [], 0.0
    for point in points:
        if point[0] >= 1.01 * last or point is points[-1] or any(point is one for one in asked):
            kept.append(point)
            last = point[0]
    return kept


def _paths() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def _watched(process: subprocess.Popen[str], output: Any, limit: float) -> str:
    """Wait for the end, the limit, or a KL well below what is asked for."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        try:
            return "done" if process.wait(timeout=0.25) == 0 else "failed"
        except subprocess.TimeoutExpired:
            points = _points(os.pread(output.fileno(), 2**24, 0).decode())
            if points and points[-1][1] < ENOUGH / 5.0:
                return "close enough"
    return "limit"


def seconds_to(points: list[list[float]], enough: float = ENOUGH) -> float | None:
    """When the KL first is small enough."""
    return next((seconds for seconds, distance in points if distance <= enough), None)


def best_of(traces: dict[str, dict[str, Any]]) -> str:
    """The rate that is there first, or else comes nearest."""

    def rank(rate: str) -> tuple[float, float]:
        points = traces[rate]["points"]
        reached = seconds_to(points)
        return (
            float("inf") if reached is None else reached,
            min((distance for _, distance in points), default=float("inf")),
        )

    return min(traces, key=rank)


def methods_for(name: str) -> list[str]:
    """The diagonal metric is for where a full one is expensive."""
    return [method for method in METHODS if method != "ornstein diagonal" or name == "covertype"]


def one_problem(
    problem: Problem, limit: float, console: Console, methods: list[str] | None = None
) -> dict[str, Any]:
    """All methods on one data set, one after the other."""
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{problem.name}.npz"
        problem.save(file)
        for method in methods or methods_for(problem.name):
            if method == "blackjax SGLD":
                traces = {f"{rate:g}": trace(file, method, limit, rate) for rate in SGLD_RATES}
                chosen = best_of(traces)
                result[method] = {**traces[chosen], "rate": chosen, "all rates": traces}
            else:
                result[method] = trace(file, method, limit)
            console.print(f"{problem.name}, {method}: {in_words(result[method])}")
    return result


def in_words(found: dict[str, Any]) -> str:
    reached = seconds_to(found["points"])
    if reached is not None:
        return f"{reached:.1f} s"
    if not found["points"]:
        return (
            "no answer within the limit"
            if found["ended"] == "limit"
            else f"left out: {found['ended']}"
        )
    seconds, nearest = min(found["points"], key=lambda point: point[1])
    return f"not reached; KL {nearest:.2g} after {seconds:.0f} s"


def posterior_section(
    console: Console,
    limit: float = 60.0,
    names: tuple[str, ...] = NAMES,
    directory: str | None = None,
    rows: int | None = None,
    draws: int | None = None,
    methods: list[str] | None = None,
) -> dict[str, Any]:
    """Every data set that is at hand; those that are not are named with the reason."""
    from benchmarks.reference import problem_of
    from ornstein.errors import FileError

    result: dict[str, Any] = {"enough": ENOUGH, "problems": {}, "absent": {}}
    for name in names:
        try:
            problem = problem_of(name, directory, rows, draws)
        except FileError as error:
            result["absent"][name] = str(error).split(":")[0]
            console.print(f"{name} is left out: {result['absent'][name]}")
            continue
        allowed = limit * (COVERTYPE_FACTOR if name == "covertype" else 1.0)
        result["problems"][name] = {
            "rows": len(problem.response),
            "parameters": problem.mean.size,
            "limit": allowed,
            "marginal": problem.marginal,
            "reference error": problem.error,
            "methods": one_problem(problem, allowed, console, methods),
        }
    console.print(table_of(result))
    return result


def table_of(result: dict[str, Any]) -> Table:
    table = Table(title=f"seconds until KL ≤ {result['enough']}", title_justify="left")
    table.add_column("who")
    for name in result["problems"]:
        table.add_column(name)
    for method in METHODS:
        cells = [
            in_words(part["methods"][method]) if method in part["methods"] else ""
            for part in result["problems"].values()
        ]
        if any(cells):
            table.add_row(method, *cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problem", nargs="*", default=list(NAMES), choices=NAMES)
    parser.add_argument("--method", choices=tuple(METHODS))
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--data-dir")
    parser.add_argument("--rows", type=int, help="rows of each data set, the first ones")
    parser.add_argument("--reference-draws", type=int)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        worker(given.worker, given.method, given.started, given.rate)
        return
    methods = None if given.method is None else [given.method]
    console = Console(width=140)
    posterior_section(
        console,
        given.limit,
        tuple(given.problem),
        given.data_dir,
        given.rows,
        given.reference_draws,
        methods,
    )


if __name__ == "__main__":
    main()
