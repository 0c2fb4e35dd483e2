"""What a terminal shows while chains run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TextColumn


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


def _named() -> TextColumn:
    """What runs, whatever characters its name has."""
    from rich.progress import TextColumn

    return TextColumn("{task.description}", markup=False)


@contextmanager
def waiting(show: bool, what: str, seconds: float) -> Iterator[None]:
    """What runs, for how long, and how long it should take, on a terminal; silent elsewhere."""
    console = terminal() if show else None
    if console is None:
        yield
        return
    from rich.console import RenderableType
    from rich.progress import BarColumn, Progress, TextColumn

    class Clock(Progress):
        def get_renderables(self) -> Iterable[RenderableType]:
            for task in self.tasks:
                passed = task.elapsed or 0.0
                left = max(0.0, seconds - passed)
                task.completed = min(passed, 0.99 * seconds)
                task.fields["time"] = f"{passed:.0f} s of about {seconds:.0f} s, {left:.0f} s left"
            return super().get_renderables()

    columns = (_named(), BarColumn(), TextColumn("{task.fields[time]}"))
    with Clock(*columns, console=console, transient=True) as bar:
        bar.add_task(what, total=seconds, time="")
        yield


@contextmanager
def progress_bar(show: bool, steps: int, what: str = "sampling") -> Iterator[Callable[[int], None]]:
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
        _named(),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.completed:,.0f} steps, {task.fields[rate]} steps/s"),
        TimeRemainingColumn(),
    )
    began = time.perf_counter()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=steps, rate="…")

        def report(done: int) -> None:
            bar.advance(task, done)
            completed = bar.tasks[0].completed
            bar.update(task, rate=f"{completed / max(time.perf_counter() - began, 1e-9):,.0f}")

        yield report
