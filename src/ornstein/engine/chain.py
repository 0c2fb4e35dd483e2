"""One chain: its state, its randomness, and how far into the current block of randomness it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Protocol

import jax
import numpy as np

from ornstein.compute.kernel import State
from ornstein.compute.precision import width
from ornstein.engine.loop import Program, kept_memory, run_block
from ornstein.errors import DivergenceError
from ornstein.model.loss import Problem
from ornstein.rows.memory import DoubleBuffer
from ornstein.rows.shuffled import Order
from ornstein.rows.sources import (
    IndexSource,
    SeedSource,
    SliceSource,
    generator_from_state,
    generator_state,
)
from ornstein.types import Array, PyTree, Traced

TOGETHER = 32  # positions that are taken out of a frame at a time


@dataclass(frozen=True)
class Kept:
    """A stretch of kept values of one chain, as displacements from the centre in float64."""

    positions: Array
    sums: Array | None
    steps: int


@dataclass(frozen=True, eq=False)
class Frame:
    """A chain's positions w are the displacements `matrix` · w from `centre`."""

    centre: Array
    matrix: Array

    def displacements(self, positions: Array) -> Array:
        """The same numbers for a position whatever others come with it: products of one shape."""
        count, size = positions.shape
        found = np.empty_like(positions)
        block = np.zeros((TOGETHER, size))
        for start in range(0, count, TOGETHER):
            some = min(TOGETHER, count - start)
            block[:some] = positions[start : start + some]
            found[start : start + some] = (block @ self.matrix.T)[:some]
        return found


@dataclass
class Chain:
    """One chain: its state, its randomness, and how far into the current block of randomness it
    is.
    """

    number: int
    source: IndexSource | SeedSource | SliceSource
    normals: np.random.Generator
    state_arrays: State
    block_steps: int
    schedule: Callable[[Array], Array] | None
    needs_normals: bool
    dimension: int
    dtype: str
    step: int = 0
    used: int = 0
    _block: PyTree = None
    _order: Order | None = None  # the rows that the block takes slices of
    _block_start: dict[str, PyTree] = field(default_factory=dict)
    _ahead: Future[PyTree] | None = None
    feed: Feed | None = None
    frame: Frame | None = None
    _next_window: tuple[int, Future[PyTree]] | None = None
    _kept: PyTree = None  # memory for kept values, given to every block and got back from it
    _normal_memory: DoubleBuffer = field(default_factory=DoubleBuffer)

    def advance(
        self,
        program: Program,
        problem: Problem,
        arrays: Mapping[str, Traced],
        keeps: int,
        stride: int,
        helpers: Executor | None = None,
    ) -> Kept:
        """Keep up to `keeps` values, `stride` steps apart: as many as the current block of
        randomness has steps for.

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
            costly = self.needs_normals or not isinstance(self.source, SeedSource)
            if helpers is not None and costly and keeps > now and last and self._ahead is None:
                self._ahead = helpers.submit(self._drawn_block, self.step + now * stride)
            before = self.state_arrays["position"]
            self.state_arrays, carried = self._take(program, problem, arrays, now, stride)
            self.used += now * stride
            self.step += now * stride
            positions = _first_rows(self._kept[0], now)
            sums = None if self._kept[1] is None else _first_rows(self._kept[1], now) + carried
        centre, before = np.asarray(problem.centre, dtype=float), np.asarray(before, dtype=float)
        if self.frame is not None:
            centre, before = self.frame.centre, self.frame.displacements(before[None])[0]
            positions = self.frame.displacements(positions)
            sums = None if sums is None else self.frame.displacements(sums)
        self._require_finite(positions, stride, before, centre)
        return Kept(positions, sums, now * stride)

    def _run(
        self,
        program: Program,
        problem: Problem,
        arrays: Mapping[str, Traced],
        state: PyTree,
        *block: PyTree,
    ) -> PyTree:
        """A block, whose kept values go into the memory of those before; returns the state at its
        end.
        """
        memory, self._kept = self._kept or kept_memory(program, state["position"]), None
        state, positions, sums = run_block(program, problem, arrays, state, *block, memory)
        self._kept = positions, sums
        return state

    def _take(
        self,
        program: Program,
        problem: Problem,
        arrays: Mapping[str, Traced],
        keeps: int,
        stride: int,
    ) -> tuple[PyTree, PyTree]:
        """The state after keeps·stride steps; where rows are handed in, on windows of steps.

        Where a stride is longer than a window it takes several; what the positions of all but the
        last one sum to comes back.
        """
        if self._order is not None:
            problem = problem._replace(data=replace(problem.data, data=self._order.data))
        if self.feed is None:
            return (
                self._run(
                    program,
                    problem,
                    arrays,
                    self.state_arrays,
                    self._block,
                    self.used,
                    keeps,
                    stride,
                ),
                0.0,
            )
        end = self.used + keeps * stride
        state: PyTree = self.state_arrays
        carried: PyTree = 0.0
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

    def _window(self, start: int) -> PyTree:
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
        """The steps of a window, the last one of the block repeated so that all windows have one
        length.
        """
        assert self.feed is not None
        return np.minimum(np.arange(start, start + self.feed.steps), self.block_steps - 1)

    def state(self) -> dict[str, PyTree]:
        """Everything needed to go on, as arrays. The block in use is drawn anew from the generators
        at its start.
        """
        arrays = {name: np.asarray(value) for name, value in self.state_arrays.items()}
        counters = {"step": np.asarray(self.step), "used": np.asarray(self.used)}
        return {
            "arrays": arrays,
            "counters": counters,
            "randomness": self._block_start or self._generators(),
        }

    def restore(self, state: dict[str, PyTree]) -> None:
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

    def _generators(self) -> dict[str, PyTree]:
        return {"source": self.source.state(), "normals": generator_state(self.normals)}

    def _next_block(self) -> None:
        drawn = self._drawn_block(self.step) if self._ahead is None else self._ahead.result()
        self._block_start, self._block, self._order = drawn
        self._ahead = self._next_window = None
        self.used = 0

    def _drawn_block(self, first: int) -> tuple[dict[str, PyTree], PyTree, Order | None]:
        """The generators as they are now, the randomness of the steps from `first`, and the rows
        that it takes slices of.
        """
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

    def _require_finite(self, positions: Array, stride: int, before: Array, centre: Array) -> None:
        finite = np.isfinite(positions).all(axis=1)
        if finite.all():
            return
        bad = int(np.argmin(finite))
        last = positions[bad - 1] if bad > 0 else before
        raise DivergenceError(
            f"chain {self.number} reached non-finite values near step"
            f" {self.step - (len(positions) - bad - 1) * stride}; use a smaller step size or a"
            " larger batch, start nearer the mode, or compute in float64 (dtype='float64')",
            chain=self.number,
            step=self.step - (len(positions) - bad - 1) * stride,
            last_finite=centre + last,
        )


def placed(values: PyTree, dtype: str) -> PyTree:
    """On the device. NumPy converts, because JAX would compile that for every shape."""
    return jax.device_put(jax.tree.map(lambda value: np.asarray(value, dtype=dtype), values))


def _first_rows(values: PyTree, count: int) -> Array:
    """A copy in float64. JAX's own slices are compiled for every count anew, and a view that it
    keeps would hold the memory.
    """
    # from_dlpack would wait too, but keep the interpreter from helpers meanwhile
    values.block_until_ready()
    return np.from_dlpack(values)[:count].astype(float)


class Feed(Protocol):
    """Hands over the rows of minibatches where they are not all held (rows/feed.py): those of
    `steps` steps at a time. `template` is a tree of no rows at all.
    """

    @property
    def steps(self) -> int: ...

    @property
    def template(self) -> PyTree: ...

    def rows(self, indices: Array) -> PyTree: ...

    def ahead(self, indices: Array) -> Future[PyTree]: ...
