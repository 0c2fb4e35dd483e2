"""A sampling run between any two blocks of steps: warm-up, then draws, with all that changes written down on request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ornstein.collect import Collection
from ornstein.draw_statistics import imported_meanwhile
from ornstein.engine import Pause, Run
from ornstein.model import Model
from ornstein.posterior import Posterior, provenance
from ornstein.precision import width
from ornstein.streaming import Feed
from ornstein.warmup import Tuned, WarmUp, retuner, warm_up

Array = np.ndarray


@dataclass(frozen=True)
class Plan:
    """What was asked for, in plain numbers: steps between draws, steps of the first round of warm-up, and so on."""

    draws: int
    chains: int
    thin: int
    warmup: int
    automatic_warmup: bool
    keep: str
    dtype: str
    seed: int
    first_chain: int = 0
    warmup_limit: int | None = (
        None  # steps a chain that warm-up may take where it goes on until the chain has settled
    )


class Session:
    """Chains on a model together with what they have delivered so far.

    `sampler` is the rule that may tune again during warm-up, None where that is not wanted.
    """

    def __init__(
        self, model: Model, tuned: Tuned, starts: Array, plan: Plan, sampler: Any = None
    ) -> None:
        self.model, self.plan, self.sampler = model, plan, sampler
        mode, dtype = tuned.curvature.mode, plan.dtype
        with width(dtype):
            rows = tuned.dynamics.batch_size
            problem = (
                model.problem_without_data(dtype, mode)
                if model.streams
                else model.problem(dtype, mode, rows)
            )
        feed = Feed(model, mode, dtype, rows) if model.streams else None
        self.run = Run(
            model.loss,
            problem,
            tuned.dynamics,
            model.n_data,
            starts,
            plan.seed,
            dtype,
            feed,
            plan.first_chain,
        )
        self.warmup = WarmUp.planned(
            tuned, plan.warmup, plan.automatic_warmup, plan.chains, plan.warmup_limit
        )
        self._retune = None if sampler is None else retuner(model, self.run, sampler, plan.seed)
        self.collection: Collection | None = None

    @property
    def tuned(self) -> Tuned:
        return self.warmup.tuned

    @property
    def thin(self) -> int:
        """Steps between draws; where draws are window means, warm-up may have tuned the window anew."""
        dynamics = self.tuned.dynamics
        return dynamics.window + dynamics.gap if dynamics.window > 1 else self.plan.thin

    @property
    def steps(self) -> int:
        """Steps taken, over all chains."""
        return sum(chain.step for chain in self.run.chains)

    def warm_up(self, report: Callable[[int], None], pause: Pause | None = None) -> bool:
        """Go on to the end of the warm-up; False if the user interrupted it."""
        if not warm_up(self.run, self.warmup, self._retune, report, pause):
            return False
        if self.collection is None:
            self.collection = self._new_collection()
        return True

    def collect(self, report: Callable[[int], None], pause: Pause | None = None) -> bool:
        """Go on to the last draw; False if the user interrupted it."""
        collection, plan = self.collection, self.plan
        assert collection is not None
        stride = collection.stride
        return self.run.advance(
            plan.draws * self.thin // stride,
            stride,
            collection.receive,
            report,
            start=self.warmup.taken,
            pause=pause,
        )

    def state(self) -> dict[str, Any]:
        """All arrays that change while it runs, as a tree."""
        chains = {str(chain.number): chain.state() for chain in self.run.chains}
        state: dict[str, Any] = {"chains": chains, "warmup": self.warmup.state()}
        return (
            state if self.collection is None else {**state, "collection": self.collection.state()}
        )

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        for chain in self.run.chains:
            chain.restore(state["chains"][str(chain.number)])
        self.warmup.restore(state["warmup"])
        if "collection" in state:
            self.collection = self._new_collection()
            self.collection.restore(state["collection"])

    def _new_collection(self) -> Collection:
        plan = self.plan
        return Collection(
            self.tuned.dynamics, self.model.dim, self.thin, plan.draws, plan.chains, plan.keep
        )


def finished(session: Session, progress: bool, pause: Pause | None, started: float) -> Posterior:
    """Run a session from where it is to its end, or until the user interrupts it, and hand over what it has delivered."""
    plan, run = session.plan, session.run
    with _progress_bar(progress, plan.chains * (plan.warmup + plan.draws * session.thin)) as report:
        report(session.steps)
        complete = session.warm_up(report, pause)
        warmup_seconds = time.perf_counter() - started
        with imported_meanwhile():
            complete = complete and session.collect(report, pause)
    if pause is not None:
        pause.take()
    collection, tuned = session.collection, session.tuned
    if collection is None or collection.moments.states < 2:
        raise KeyboardInterrupt("interrupted during warm-up, before the first draw")
    settings = {
        "batch_size": tuned.dynamics.batch_size,
        "scheme": tuned.dynamics.scheme,
        "thin": session.thin,
        "warmup": session.warmup.taken,
        "steps": sum(chain.step for chain in run.chains),
        "complete": complete,
        "moment_spacing": collection.moments.spacing,
        "seconds": time.perf_counter() - started,
        "seconds_before_draws": warmup_seconds,
        "dtype": plan.dtype,
        "keep": plan.keep,
        "seed": plan.seed,
        **provenance(),
    }
    draws, moments = collection.delivered(plan.draws, plan.seed), collection.moments
    return Posterior.from_run(
        session.model, tuned.dynamics, tuned.curvature, tuned.prediction, draws, moments, settings
    )


def terminal() -> Any:
    """The terminal that says what is going on; None where there is none."""
    from rich.console import Console

    console = Console(stderr=True)
    return console if console.is_terminal else None


@contextmanager
def _progress_bar(show: bool, steps: int) -> Iterator[Callable[[int], None]]:
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
