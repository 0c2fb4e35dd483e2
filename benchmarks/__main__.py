"""`python -m benchmarks`: µs per step beside the peers, throughput of chains, start-up; ratios, never times, are compared.

python -m benchmarks                 everything, written to docs/benchmarks.md and docs/benchmarks.svg
python -m benchmarks --task T3       one task, printed only
python -m benchmarks --quick         T1 and T2 against the stored ratios, alert at 1.5×
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import compiled_loop, peers
from benchmarks.results import write_results
from benchmarks.startup import startup_times
from benchmarks.steps import Stepper, interleaved, ornstein_steps
from benchmarks.tasks import TASKS, Task

FORMS = ("scalar", "diagonal", "full", "SGLD", "IASG")
STORED = Path(__file__).with_name("stored_ratios.json")
ALERT = 1.5


def competitors(task: Task, with_peers: bool = True) -> tuple[dict[str, Stepper], list[str]]:
    """Everyone who runs this task, and who is missing."""
    wide = task.columns * task.classes > 2000
    everyone = {f"ornstein {form}": ornstein_steps(task, form) for form in FORMS if not (wide and form == "full")}
    missing = []
    if compiled_loop.available():
        everyone["C++ loop, scalar"] = compiled_loop.compiled_steps(task)
    else:
        missing.append("C++ loop (no g++)")
    if with_peers:
        found, absent = peers.installed(task)
        return {**everyone, **found}, missing + absent
    return {**everyone, "blackjax SGLD": peers.blackjax_sgld_steps(task)}, missing


def show(console: Console, task: Task, result: dict[str, float]) -> None:
    table = Table(title=task.name, title_justify="left")
    for heading in ("who", "µs per step", "× the C++ loop", "times faster than blackjax SGLD"):
        table.add_column(heading, justify="left" if heading == "who" else "right")
    limit, reference = result.get("C++ loop, scalar", float("nan")), result["blackjax SGLD"]
    for name, value in result.items():
        table.add_row(name, f"{value:.3g}", f"{value / limit:.2f}", f"{reference / value:.1f}")
    console.print(table)


def chain_throughput(task: Task, counts: tuple[int, ...] = (1, 4, 32)) -> dict[int, float]:
    """Steps per second of all chains together, relative to one chain."""
    result = interleaved({str(count): ornstein_steps(task, "scalar", count) for count in counts})
    return {count: result["1"] / result[str(count)] for count in counts}


def quick(console: Console) -> None:
    """Compare ratios to the stored ones; information, never a failure."""
    found = {}
    for task in TASKS[:3]:
        result = interleaved(competitors(task, with_peers=False)[0], seconds=0.15, rounds=5)
        show(console, task, result)
        found[task.name] = {name: result["blackjax SGLD"] / value for name, value in result.items()}
    if not STORED.exists():
        STORED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        console.print(f"stored these ratios in {STORED.name}")
        return
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    alerts = [
        f"{task}: {name} was {before:.1f} times faster than blackjax SGLD, now {found[task][name]:.1f}"
        for task, names in stored.items()
        for name, before in names.items()
        if name.startswith("ornstein") and found[task][name] * ALERT < before
    ]
    console.print(
        "\n".join(["slower than stored by more than 1.5×:", *alerts]) if alerts else "no ratio fell by more than 1.5×"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--task", help="only tasks whose name starts with this")
    arguments = parser.parse_args()
    console = Console(width=120)
    if arguments.quick:
        quick(console)
        return
    steps, absent = {}, set()
    for task in TASKS:
        if not task.name.startswith(arguments.task or "T"):
            continue
        everyone, missing = competitors(task)
        absent.update(missing)
        steps[task.name] = interleaved(everyone)
        show(console, task, steps[task.name])
    console.print("not here: " + (", ".join(sorted(absent)) or "nobody"))
    if arguments.task:
        return
    chains = {task.name: chain_throughput(task) for task in TASKS[:4]}
    for name, gains in chains.items():
        console.print(f"{name}: " + ", ".join(f"{count} chains {gain:.2f}×" for count, gain in gains.items()))
    start = startup_times()
    console.print(", ".join(f"{what} {seconds:.2f} s" for what, seconds in start.items()))
    write_results(steps, chains, start)


if __name__ == "__main__":
    main()
