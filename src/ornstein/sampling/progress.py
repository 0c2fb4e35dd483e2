"""What a terminal shows while chains run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def terminal() -> Console | None:
    """The terminal that says what is going on; None where there is none."""
    from rich.console import Console

    console = Console(stderr=True)
    return console if console.is_terminal else None


def remark(show: bool, text: str) -> None:
    """A line on a terminal; silent elsewhere."""
    console = terminal() if show else None
    if console is not None:
        console.print(text, markup=False, highlight=False)


@contextmanager
def progress_bar(show: bool, steps: int) -> Iterator[Callable[[int], None]]:
    """Steps done, steps per second and time left, on a terminal; silent elsewhere."""
    console = terminal() if show else None
    if console is None:
        yield lambda done: None
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("sampling"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.completed:,.0f} steps, {task.fields[rate]} steps/s"),
        TimeRemainingColumn(),
    )
    began = time.perf_counter()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("sampling", total=steps, rate="…")

        def report(done: int) -> None:
            bar.advance(task, done)
            completed = bar.tasks[0].completed
            bar.update(task, rate=f"{completed / max(time.perf_counter() - began, 1e-9):,.0f}")

        yield report
