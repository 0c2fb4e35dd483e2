"""Runs a kernel on a model: randomness by the block, a compiled loop, chains on threads. Knows nothing of theory.

Randomness comes in blocks: a seed where the loop draws the rows of minibatches itself, in a fraction of a nanosecond each
(uniform.py); else indices, and always normals, drawn on the host by helpers while the block before runs.

A chain's whole state is a plain tree of arrays (`Chain.state`): position, velocity, counters, generators and minibatch source.
Threads always take the chain that is furthest behind: whenever a run is stopped, all chains have come about equally far.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import jax
import numpy as np
from jax.errors import JaxRuntimeError

from ornstein.double_buffer import DoubleBuffer
from ornstein.errors import DivergenceError
from ornstein.loop import Drawn, Program, kept_memory, run_block
from ornstein.minibatch import (
    IndexSource,
    SeedSource,
    SliceSource,
    generator_from_state,
    generator_state,
)
from ornstein.model import Loss, Problem
from ornstein.precision import width
from ornstein.row_bytes import as_bytes
from ornstein.row_table import SMALL_STEP, begin_at_lines
from ornstein.shuffled_rows import Order, ShuffledRows, worthwhile

Array = np.ndarray

# About 4 MB of indices, and as much of normals and kept positions: large enough that a block runs for milliseconds, small
# enough that the memory of a chain stays far below that of its data.
BLOCK_NUMBERS = 2**20
# A step without normals needs no number per parameter: above so few, a block shrinks with a 64th of them alone, so that one of a
# million parameters still holds tens of steps and runs for tens of milliseconds.
PARAMETERS_PER_NUMBER, FEW_PARAMETERS = 64, 1024


@dataclass(frozen=True)
class Kept:
    """A stretch of kept values of one chain, as displacements from the centre in float64."""

    positions: Array
    sums: Array | None
    steps: int


@dataclass
class Chain:
    """One chain: its state, its randomness, and how far into the current block of randomness it is."""

    number: int
    source: IndexSource | SeedSource | SliceSource
    normals: np.random.Generator
    state_arrays: dict[str, Any]
    block_steps: int
    schedule: Callable[[Array], Array] | None
    needs_normals: bool
    dimension: int
    dtype: str
    step: int = 0
    used: int = 0
    _block: Any = None
    _order: Order | None = None  # the rows that the block takes slices of
    _block_start: dict[str, Any] = field(default_factory=dict)
    _ahead: Future[Any] | None = None
    feed: Feed | None = None
    _next_window: tuple[int, Future[Any]] | None = None
    _kept: Any = None  # memory for kept values, given to every block and got back from it
    _normal_memory: DoubleBuffer = field(default_factory=DoubleBuffer)

    def advance(
        self,
        program: Program,
        problem: Problem,
        arrays: Any,
        keeps: int,
        stride: int,
        helpers: Executor | None = None,
    ) -> Kept:
        """Keep up to `keeps` values, `stride` steps apart: as many as the current block of randomness has steps for.

        If that uses it up and there is more to come, a helper draws the next one meanwhile.
        """
        if stride > self.block_steps:
            raise ValueError(f"stride {stride} is longer than a block of {self.block_steps} steps")
        with width(self.dtype):
            if self._block is None or self.block_steps - self.used < stride:
                self._next_block()
            now = min(keeps, (self.block_steps - self.used) // stride, program.kept)
            if self.feed is not None:
                now = min(now, max(1, self.feed.steps // stride))
            last = self.block_steps - self.used - now * stride < stride
            dear = self.needs_normals or not isinstance(self.source, SeedSource)
            if helpers is not None and dear and keeps > now and last and self._ahead is None:
                self._ahead = helpers.submit(self._drawn_block, self.step + now * stride)
            before = self.state_arrays["position"]
            self.state_arrays, carried = self._take(program, problem, arrays, now, stride)
            self.used += now * stride
            self.step += now * stride
            positions = _first_rows(self._kept[0], now)
            sums = None if self._kept[1] is None else _first_rows(self._kept[1], now) + carried
        self._require_finite(positions, stride, before, problem.centre)
        return Kept(positions, sums, now * stride)

    def _run(self, program: Program, problem: Problem, arrays: Any, state: Any, *block: Any) -> Any:
        """A block, whose kept values go into the memory of those before; returns the state at its end."""
        memory, self._kept = self._kept or kept_memory(program, state["position"]), None
        state, positions, sums = run_block(program, problem, arrays, state, *block, memory)
        self._kept = positions, sums
        return state

    def _take(
        self, program: Program, problem: Problem, arrays: Any, keeps: int, stride: int
    ) -> tuple[Any, Any]:
        """The state after keeps·stride steps; where rows are handed in, on windows of steps.

        Where a stride is longer than a window it takes several; what the positions of all but the last one sum to comes back.
        """
        if self._order is not None:
            problem = problem._replace(data=self._order.data)
        if self.feed is None:
            return self._run(
                program, problem, arrays, self.state_arrays, self._block, self.used, keeps, stride
            ), 0.0
        end = self.used + keeps * stride
        state: Any = self.state_arrays
        carried: Any = 0.0
        for start in range(self.used, end, self.feed.steps):
            steps = min(end - start, self.feed.steps)
            here = (keeps, stride) if steps == end - self.used else (1, steps)
            window = self._window(start)
            if start + steps < self.block_steps:
                self._next_window = (
                    start + steps,
                    self.feed.ahead(self._indices_from(start + steps)),
                )
            if start > self.used and program.summed:
                carried = carried + _first_rows(self._kept[1], 1)
            state = self._run(program, problem, arrays, state, window, 0, *here)
        return state, carried

    def _window(self, start: int) -> Any:
        """Rows, normals and factors of the steps from `start`."""
        assert self.feed is not None
        waiting, self._next_window = self._next_window, None
        rows = (
            waiting[1].result()
            if waiting and waiting[0] == start
            else self.feed.rows(self._indices_from(start))
        )
        _, normals, factors = self._block
        chosen = self._steps_from(start)
        return (
            rows,
            None if normals is None else normals[chosen],
            None if factors is None else factors[chosen],
        )

    def _indices_from(self, start: int) -> Array:
        return self._block[0][self._steps_from(start)]

    def _steps_from(self, start: int) -> Array:
        """The steps of a window, the last one of the block repeated so that all windows have one length."""
        assert self.feed is not None
        return np.minimum(np.arange(start, start + self.feed.steps), self.block_steps - 1)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on, as arrays. The block in use is drawn anew from the generators at its start."""
        arrays = {name: np.asarray(value) for name, value in self.state_arrays.items()}
        counters = {"step": np.asarray(self.step), "used": np.asarray(self.used)}
        return {
            "arrays": arrays,
            "counters": counters,
            "randomness": self._block_start or self._generators(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        if self._ahead is not None:
            self._ahead.result()  # a helper still draws with the generators that are replaced
            self._ahead = None
        with width(self.dtype):
            self.state_arrays = jax.device_put(dict(state["arrays"]))
        self.source.restore(state["randomness"]["source"])
        self.normals = generator_from_state(state["randomness"]["normals"])
        self.step, self.used = int(state["counters"]["step"]), int(state["counters"]["used"])
        used, started = self.used, self.step - self.used
        self._block = None
        self._block_start = {}
        if used:
            self.step = started
            self._next_block()
            self.step, self.used = started + used, used

    def _generators(self) -> dict[str, Any]:
        return {"source": self.source.state(), "normals": generator_state(self.normals)}

    def _next_block(self) -> None:
        drawn = self._drawn_block(self.step) if self._ahead is None else self._ahead.result()
        self._block_start, self._block, self._order = drawn
        self._ahead = self._next_window = None
        self.used = 0

    def _drawn_block(self, first: int) -> tuple[dict[str, Any], Any, Order | None]:
        """The generators as they are now, the randomness of the steps from `first`, and the rows that it takes slices of."""
        start = self._generators()
        batches = self.source.draw(self.block_steps)
        order = (
            self.source.order(self.block_steps) if isinstance(self.source, SliceSource) else None
        )
        normals = None
        if self.needs_normals:
            normals = self._normal_memory.array((self.block_steps, self.dimension), self.dtype)
            self.normals.standard_normal(dtype=normals.dtype.type, out=normals)
        factors = None
        if self.schedule is not None:
            counts = np.arange(first, first + self.block_steps, dtype=float)
            factors = np.asarray(self.schedule(counts), dtype=self.dtype)
        return start, (batches, normals, factors), order

    def _require_finite(self, positions: Array, stride: int, before: Any, centre: Any) -> None:
        finite = np.isfinite(positions).all(axis=1)
        if finite.all():
            return
        bad = int(np.argmin(finite))
        last = positions[bad - 1] if bad > 0 else np.asarray(before, dtype=float)
        raise DivergenceError(
            f"chain {self.number} left the finite numbers near step {self.step - (len(positions) - bad - 1) * stride}; use a "
            "smaller step size or a larger batch, start nearer the mode, or compute in float64 (dtype='float64')",
            chain=self.number,
            step=self.step - (len(positions) - bad - 1) * stride,
            last_finite=np.asarray(centre, dtype=float) + last,
        )


def _placed(values: Any, dtype: str) -> Any:
    """On the device. NumPy converts, because JAX would compile that for every shape."""
    return jax.device_put(jax.tree.map(lambda value: np.asarray(value, dtype=dtype), values))


def _first_rows(values: Any, count: int) -> Array:
    """A copy in float64. JAX's own slices are compiled for every count anew, and a view that it keeps would hold the memory."""
    values.block_until_ready()  # from_dlpack would wait too, but keep the interpreter from helpers meanwhile
    return np.from_dlpack(values)[:count].astype(float)


def block_length(dynamics: Any, dimension: int) -> int:
    """Steps per block of randomness, such that indices and normals stay bounded and what is kept costs little beside the steps.

    >>> from ornstein import Dynamics
    >>> [
    ...     block_length(Dynamics(np.asarray(0.1), 16), dimension)
    ...     for dimension in (10, 10_000, 1_000_000)
    ... ]
    [65536, 1024, 67]
    >>> [
    ...     block_length(Dynamics(np.asarray(0.1), 16, injected=np.asarray(0.1)), dimension)
    ...     for dimension in (10, 1_000_000)
    ... ]
    [65536, 1]
    """
    if not dynamics.kernel().needs_normals:
        dimension = min(dimension, max(FEW_PARAMETERS, dimension // PARAMETERS_PER_NUMBER))
    return max(1, BLOCK_NUMBERS // max(dynamics.batch_size, dimension))


def kept_rows(steps: int, dimension: int) -> int:
    """Rows for kept values: fewer than steps where those are many, for they are memory of every chain."""
    return max(1, min(steps, BLOCK_NUMBERS // (4 * dimension)))


def divisor_within(steps: int, limit: int) -> int:
    """The largest divisor of `steps` that is at most `limit`.

    >>> divisor_within(1000, 300)
    250
    """
    best = 1
    for candidate in range(1, math.isqrt(steps) + 1):
        if steps % candidate == 0:
            for divisor in (candidate, steps // candidate):
                if best < divisor <= limit:
                    best = divisor
    return best


class Feed(Protocol):
    """Hands over the rows of minibatches where they are not all held (streaming.py); `steps` is how many steps at a time."""

    @property
    def steps(self) -> int: ...

    def rows(self, indices: Array) -> Any: ...

    def ahead(self, indices: Array) -> Future[Any]: ...


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
        dynamics: Any,
        n_data: int,
        starts: Array,
        seed: int,
        dtype: str = "float32",
        feed: Feed | None = None,
        first_chain: int = 0,
    ) -> None:
        dimension = starts.shape[1]
        kernel = dynamics.kernel()
        steps = block_length(dynamics, dimension)
        sliced = (
            dynamics.scheme == "slices"
            and feed is None
            and worthwhile(problem.data, dynamics.batch_size)
        )
        slice_rows = dynamics.batch_size if sliced else 0
        # A slice comes as fast as one core can use it; rows that must be found come faster to several, unless those have chains
        # of their own.
        every_core = len(starts) >= (os.cpu_count() or 1) and not begin_at_lines(problem.data)
        small = loss.elementary and (
            sliced or every_core or dynamics.batch_size * dimension <= SMALL_STEP
        )
        drawn = _drawn(dynamics, n_data) if small and feed is None else None
        self.program = Program(
            loss, kernel, dynamics.window > 1, kept_rows(steps, dimension), slice_rows, drawn, small
        )
        self._compiling, self._compiled = threading.Lock(), False
        self.problem, self.dtype, self.block_steps = problem, dtype, steps
        self._rows = problem.data if sliced else as_bytes(problem.data)
        with width(dtype):
            self.arrays = _placed(dynamics.arrays(), dtype)
            states = [kernel.start(start) for start in _placed(list(starts), dtype)]
        shuffled = ShuffledRows(problem.data, dynamics.batch_size, seed) if sliced else None
        self.chains = [
            Chain(
                number,
                _source(
                    dynamics, n_data, np.random.Generator(np.random.SFC64(rows)), shuffled, drawn
                ),
                np.random.Generator(np.random.SFC64(normals)),
                state,
                steps,
                dynamics.schedule,
                kernel.needs_normals,
                dimension,
                dtype,
                feed=feed,
            )
            for number, (state, (rows, normals)) in enumerate(
                zip(states, _streams(seed, first_chain, len(states)), strict=True)
            )
        ]

    @property
    def _held(self) -> Problem:
        """The problem, its rows as the loop takes them."""
        return self.problem._replace(data=self._rows)

    def retune(self, dynamics: Any) -> None:
        """Change the numbers of the kernel, not its form."""
        with width(self.dtype):
            self.arrays = _placed(dynamics.arrays(), self.dtype)

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
        """Advance every chain by keeps·stride steps, counted from step `start` (None: from where it is now).

        Returns False if the user interrupted it. Whenever `pause` is due, all chains rest between two blocks while it is taken.
        """
        ends = [(chain.step if start is None else start) + keeps * stride for chain in self.chains]
        try:
            while self._advance_to(ends, stride, receive, progress, pause):
                assert pause is not None
                pause.take()
        except KeyboardInterrupt:
            return False
        return True

    def _advance_chain(self, chain: Chain, keeps: int, stride: int, helpers: Executor) -> Kept:
        """Advance a chain; the first one goes alone, because threads that come together would each compile the program."""
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
            if "UNIMPLEMENTED" not in str(error):
                raise
        # What this XLA cannot put into one kernel it can compile as several; a chain that was not compiled has not moved.
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
        waiting = [chain for chain, end in zip(self.chains, ends, strict=True) if chain.step < end]

        def work() -> None:
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
            futures = [pool.submit(work) for _ in range(workers)]
            try:
                _first_error(futures)
            except BaseException:
                stop.set()
                raise
        return bool(waiting)


def _source(
    dynamics: Any,
    n_data: int,
    generator: np.random.Generator,
    shuffled: ShuffledRows | None,
    drawn: Drawn | None,
) -> IndexSource | SeedSource | SliceSource:
    if shuffled is not None:
        return SliceSource(shuffled, generator)
    if drawn is not None:
        return SeedSource(generator)
    return IndexSource(
        dynamics.scheme, n_data, dynamics.batch_size, generator, memory=DoubleBuffer()
    )


def _drawn(dynamics: Any, n_data: int) -> Drawn | None:
    """How the loop draws the rows itself, where each is drawn for itself."""
    return Drawn(dynamics.batch_size, n_data) if dynamics.scheme == "replacement" else None


def _first_error(futures: Sequence[Future[None]]) -> None:
    for future in as_completed(futures):
        future.result()


def _streams(seed: int, first: int, chains: int) -> list[list[np.random.SeedSequence]]:
    """One stream per chain and purpose; a chain's streams do not depend on how many chains there are."""
    return [
        np.random.SeedSequence(seed, spawn_key=(number,)).spawn(2)
        for number in range(first, first + chains)
    ]
