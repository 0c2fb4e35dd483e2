"""Runs a kernel on a model: randomness by the block, a compiled loop, chains on threads. Knows
nothing of theory.

Randomness comes in blocks: a seed where the loop draws the rows of minibatches itself, in a
fraction of a nanosecond each (uniform.py); else indices, and always normals, drawn on the host by
helpers while the block before runs.

A chain's whole state is a plain tree of arrays (`Chain.state`): position, velocity, counters,
generators and minibatch source. Threads always take the chain that is furthest behind: whenever a
run is stopped, all chains have come about equally far.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from typing import Protocol

import numpy as np
from jax.errors import JaxRuntimeError

from ornstein.compute.kernel import Runnable
from ornstein.compute.precision import width
from ornstein.engine.blocks import block_length, kept_rows
from ornstein.engine.chain import Chain, Feed, Frame, Kept, placed
from ornstein.engine.loop import Program
from ornstein.model.loss import Loss, Problem
from ornstein.rows.choice import Choice
from ornstein.rows.held import HeldRows
from ornstein.rows.memory import DoubleBuffer
from ornstein.rows.shuffled import ShuffledRows
from ornstein.rows.sources import IndexSource, SeedSource, SliceSource
from ornstein.rows.strata import Strata
from ornstein.rows.supply import Drawn, Given
from ornstein.rows.unequal import UnequalRows
from ornstein.streams import Purpose, stream
from ornstein.types import Array

# What XLA says where it cannot compile, or link, a loop as one kernel.
NOT_ONE_KERNEL = ("UNIMPLEMENTED", "Failed to materialize symbols")


class Pause(Protocol):
    """Something to do now and then while all chains rest."""

    def due(self) -> bool: ...

    def take(self) -> None: ...


class Run:
    """Chains of one dynamics on one model, advanced together."""

    def __init__(
        self,
        loss: Loss,
        problem: Problem,
        dynamics: Runnable,
        n_data: int,
        starts: Array,
        seed: int,
        dtype: str = "float32",
        feed: Feed | None = None,
        first_chain: int = 0,
        unequal: UnequalRows | Strata | None = None,
        frame: Frame | None = None,
    ) -> None:
        dimension = starts.shape[1]
        kernel = dynamics.kernel()
        steps = block_length(dynamics, dimension)
        choice = Choice.of(
            problem.data if feed is None else feed.template,
            loss.traits,
            dynamics.batch_size,
            dimension,
            len(starts),
            dynamics.scheme,
            fed=feed is not None,
        )
        supply = Drawn(dynamics.batch_size, n_data) if choice.draws_inside else Given()
        self.program = Program(
            loss,
            kernel,
            dynamics.window > 1,
            kept_rows(steps, dimension),
            supply,
            choice.one_kernel,
        )
        self._compiling, self._compiled = threading.Lock(), False
        self._busy = 0  # threads at work
        self.problem, self.dtype, self.block_steps = problem, dtype, steps
        self.rows = HeldRows.of(problem.data, choice, dynamics.batch_size)
        with width(dtype):
            self.arrays = placed(dynamics.arrays(), dtype)
            states = [kernel.start(start) for start in placed(list(starts), dtype)]
        shuffled = (
            ShuffledRows(problem.data, dynamics.batch_size, seed)
            if choice.layout == "shuffled"
            else None
        )
        self.chains = [
            Chain(
                number,
                _source(
                    dynamics,
                    n_data,
                    stream(seed, Purpose.ROWS, first_chain + number),
                    shuffled,
                    choice.draws_inside,
                    unequal,
                ),
                stream(seed, Purpose.NORMALS, first_chain + number),
                state,
                steps,
                dynamics.schedule,
                kernel.needs_normals,
                dimension,
                dtype,
                feed=feed,
                frame=frame,
            )
            for number, state in enumerate(states)
        ]

    @property
    def _held(self) -> Problem:
        """The problem, its rows as the loop takes them."""
        return self.problem._replace(data=self.rows)

    def retune(self, dynamics: Runnable) -> None:
        """Change the numbers of the kernel, not its form."""
        with width(self.dtype):
            self.arrays = placed(dynamics.arrays(), self.dtype)

    def advance(
        self,
        keeps: int,
        stride: int,
        receive: Callable[[int, Kept], None],
        progress: Callable[[int], None] | None = None,
        *,
        start: int | None = None,
        pause: Pause | None = None,
    ) -> bool:
        """Advance every chain by keeps·stride steps, counted from step `start` (None: from where it
        is now).

        Returns False if the user interrupted it. Whenever `pause` is due, all chains rest between
        two blocks while it is taken.
        """
        ends = [(chain.step if start is None else start) + keeps * stride for chain in self.chains]
        try:
            while self._advance_to(ends, stride, receive, progress, pause):
                assert pause is not None
                pause.take()
        except KeyboardInterrupt:
            if self._busy:  # a second Ctrl-C: what the chains have kept is still changing
                raise
            return False
        return True

    def _advance_chain(self, chain: Chain, keeps: int, stride: int, helpers: Executor) -> Kept:
        """Advance a chain; the first one goes alone, because threads that come together would each
        compile the program.
        """
        with self._compiling:
            if not self._compiled:
                kept = self._advance_first(chain, keeps, stride, helpers)
                self._compiled = True
                return kept
        return chain.advance(self.program, self._held, self.arrays, keeps, stride, helpers)

    def _advance_first(self, chain: Chain, keeps: int, stride: int, helpers: Executor) -> Kept:
        try:
            return chain.advance(self.program, self._held, self.arrays, keeps, stride, helpers)
        except JaxRuntimeError as error:
            if not any(sign in str(error) for sign in NOT_ONE_KERNEL):
                raise
        # What this XLA cannot put into one kernel it can compile as several; a chain that was not
        # compiled has not moved.
        self.program = replace(self.program, one_kernel=False)
        return chain.advance(self.program, self._held, self.arrays, keeps, stride, helpers)

    def _advance_to(
        self,
        ends: Sequence[int],
        stride: int,
        receive: Callable[[int, Kept], None],
        progress: Callable[[int], None] | None,
        pause: Pause | None,
    ) -> bool:
        """Advance every chain to its end, or until the pause is due; True if it was."""
        stop, choosing = threading.Event(), threading.Lock()
        started = threading.Event()  # all threads: Ctrl-C in `submit` loses sight of one
        waiting = [chain for chain, end in zip(self.chains, ends, strict=True) if chain.step < end]

        def work() -> None:
            started.wait()
            if stop.is_set():
                return
            with choosing:
                self._busy += 1
            try:
                advance_the_last()
            finally:
                with choosing:
                    self._busy -= 1

        def advance_the_last() -> None:
            while not stop.is_set():
                with choosing:
                    if not waiting:
                        return
                    chain = min(waiting, key=lambda chain: chain.step)
                    waiting.remove(chain)
                end = ends[chain.number]
                kept = self._advance_chain(chain, (end - chain.step) // stride, stride, helpers)
                receive(chain.number, kept)
                if progress is not None:
                    progress(kept.steps)
                if chain.step < end:
                    with choosing:
                        waiting.append(chain)
                if pause is not None and pause.due():
                    stop.set()

        workers = min(len(waiting), os.cpu_count() or 1)
        with (
            ThreadPoolExecutor(max(1, workers)) as helpers,
            ThreadPoolExecutor(max(1, workers)) as pool,
        ):
            try:
                futures = [pool.submit(work) for _ in range(workers)]
                started.set()
                _first_error(futures)
            except BaseException:
                stop.set()
                started.set()
                raise
        return bool(waiting)


def _source(
    dynamics: Runnable,
    n_data: int,
    generator: np.random.Generator,
    shuffled: ShuffledRows | None,
    draws_inside: bool,
    unequal: UnequalRows | Strata | None,
) -> IndexSource | SeedSource | SliceSource:
    if shuffled is not None:
        return SliceSource(shuffled, generator)
    if draws_inside:
        return SeedSource(generator)
    return IndexSource(
        dynamics.scheme,
        n_data,
        dynamics.batch_size,
        generator,
        memory=DoubleBuffer(),
        unequal=unequal,
    )


def _first_error(futures: Sequence[Future[None]]) -> None:
    for future in as_completed(futures):
        future.result()
