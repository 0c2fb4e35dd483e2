"""Who runs the tasks of one step, and how chains add up."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import compiled_loop, peers
from benchmarks.steps import Stepper, interleaved, ornstein_steps
from benchmarks.tasks import TASKS, Task
from ornstein.rows.shuffled import worthwhile

EVERY_CORE = "a C++ loop on every core"
ROUNDS = 30  # of a tenth of a second
FORMS = ("scalar", "scalar, slices", "diagonal", "full", "SGLD", "SGLD, slices", "IASG")


def forms(task: Task) -> list[str]:
    """Those that make sense: no whole matrix of thousands of parameters, and slices of large data
    alone.
    """
    left_out = {"full"} if task.columns * task.classes > 2000 else set()
    if not worthwhile(np.broadcast_to(np.float32(0.0), (task.rows, task.columns)), task.batch_size):
        left_out |= {form for form in FORMS if "slices" in form}
    return [form for form in FORMS if form not in left_out]


def competitors(task: Task, with_peers: bool = True) -> tuple[dict[str, Stepper], list[str]]:
    """Everyone who runs this task, and who is missing."""
    everyone = {f"ornstein {form}": ornstein_steps(task, form) for form in forms(task)}
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


def steps_section(console: Console, prefix: str = "T") -> dict[str, Any]:
    """µs per step of everyone on the tasks whose name starts with `prefix`, and who was not
    there.
    """
    steps, absent = {}, set()
    for task in TASKS:
        if task.name.startswith(prefix):
            everyone, missing = competitors(task)
            absent.update(missing)
            steps[task.name] = interleaved(everyone, seconds=0.1, rounds=ROUNDS)
            absent.update(
                f"{name} (no finite numbers on {task.name[:2]})"
                for name in everyone
                if name not in steps[task.name]
            )
            show(console, task, steps[task.name])
    console.print("not here: " + (", ".join(sorted(absent)) or "nobody"))
    return {"steps": steps, "absent": sorted(absent)}


def chains_section(
    console: Console, prefix: str = "T", counts: tuple[int, ...] = (1, 4, 32)
) -> dict[str, dict[str, float]]:
    """Steps per second of all chains together, relative to one chain, on T1 to T3; and what the
    machine gives C++ loops.
    """
    gains = {}
    for task in (task for task in TASKS[:4] if task.name.startswith(prefix)):
        steppers = {f"{count} chains": ornstein_steps(task, "scalar", count) for count in counts}
        if compiled_loop.available():
            one = compiled_loop.compiled_steps(task)
            steppers |= {"one C++ loop": one, EVERY_CORE: compiled_loop.on_every_core(task)}
        result = interleaved(steppers, seconds=0.1, rounds=ROUNDS)
        gains[task.name] = {
            name: result["1 chains"] / result[name] for name in steppers if name.endswith("chains")
        }
        if EVERY_CORE in result:
            gains[task.name][EVERY_CORE] = result["one C++ loop"] / result[EVERY_CORE]
        console.print(
            f"{task.name}: "
            + ", ".join(f"{name} {gain:.2f}×" for name, gain in gains[task.name].items())
        )
    return gains
