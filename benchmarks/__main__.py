"""`python -m benchmarks [--quick]`: a table of µs per step and ratios."""

from __future__ import annotations

import argparse
from functools import partial

from rich.console import Console
from rich.table import Table

from benchmarks.steps import Stepper, blackjax_sgld_steps, interleaved, ornstein_steps
from benchmarks.tasks import TASKS, Task

FORMS = ("scalar", "diagonal", "full", "SGLD")


def competitors(task: Task) -> dict[str, Stepper]:
    ours = {
        f"ornstein {form}": ornstein_steps(task, form)
        for form in FORMS
        if form != "full" or task.columns * task.classes <= 2000
    }
    return {**ours, "blackjax SGLD": blackjax_sgld_steps(task)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tasks T1 and T2 only, short rounds")
    parser.add_argument("--task", help="only tasks whose name starts with this, for instance T3")
    arguments = parser.parse_args()
    measure = partial(interleaved, seconds=0.1, rounds=3) if arguments.quick else interleaved
    starts = arguments.task or (("T1", "T2") if arguments.quick else "T")
    chosen = [task for task in TASKS if task.name.startswith(starts)]
    console = Console(width=120)
    for task in chosen:
        result = measure(competitors(task))
        reference = result["blackjax SGLD"]
        table = Table(title=task.name, title_justify="left")
        for heading in ("who", "µs per step", "times faster than blackjax SGLD"):
            table.add_column(heading, justify="left" if heading == "who" else "right")
        for name, value in result.items():
            table.add_row(name, f"{value:.3g}", f"{reference / value:.1f}")
        console.print(table)


if __name__ == "__main__":
    main()
