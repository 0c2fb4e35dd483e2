"""How minibatches are drawn. The scheme is part of the sampler's law, so each one declares its noise factor.

All schemes are independent over time given the data (slices: given the permutation of the moment). A reshuffled epoch is not:
within an epoch its gradients cancel, and the stationary law collapses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ornstein.double_buffer import DoubleBuffer
from ornstein.errors import InputError
from ornstein.shuffled_rows import Order, ShuffledRows
from ornstein.uniform import fill, new_seed

SCHEMES = ("replacement", "without-replacement", "slices")
_EPOCHS = ("epoch", "epochs", "reshuffle", "reshuffled", "reshuffled-epochs", "shuffle", "shuffled")


def checked_scheme(scheme: str) -> str:
    """The scheme's name, or a sentence on why it is refused.

    >>> checked_scheme("without_replacement")
    'without-replacement'
    """
    name = str(scheme).strip().lower().replace("_", "-").replace(" ", "-")
    if name in _EPOCHS:
        raise InputError(
            f"minibatch scheme {scheme!r} is refused: the minibatches of a reshuffled epoch are anti-correlated, their noise "
            f"cancels over the epoch and the draws come out about ten times too narrow. Use one of {SCHEMES}."
        )
    if name not in SCHEMES:
        raise InputError(f"unknown minibatch scheme {scheme!r}; choose one of {SCHEMES}")
    return name


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, also one written as a float; True and False are not."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    return bool(np.isfinite(value) and float(value).is_integer())


def checked_batch_size(batch_size: int, n_data: int, scheme: str) -> int:
    """An integer S with 1 ≤ S ≤ N, and S < N where S = N would leave no noise."""
    if not is_whole(batch_size):
        raise InputError(f"batch_size must be a whole number, not {batch_size!r}")
    if not 1 <= batch_size <= n_data:
        raise InputError(
            f"batch_size must lie between 1 and the number of rows, {n_data}; got {batch_size}"
        )
    if batch_size == n_data and scheme != "replacement":
        raise InputError(
            f"batch_size {batch_size} is the whole data set: drawn {scheme}, its gradient has no noise and nothing is sampled"
        )
    return int(batch_size)


def noise_factor(scheme: str, n_data: int, batch_size: int) -> float:
    """f in Cov(ĝ) = f·C/S: 1 with replacement, (N−S)/(N−1) without.

    >>> noise_factor("without-replacement", 11, 6)
    0.5
    """
    return 1.0 if scheme == "replacement" else (n_data - batch_size) / (n_data - 1)


def effective_batch(scheme: str, n_data: int, batch_size: int) -> float:
    """S/f, which stands for S in every rate."""
    return batch_size / noise_factor(scheme, n_data, batch_size)


def generator_state(generator: np.random.Generator) -> dict[str, NDArray[np.uint64]]:
    """The state of an SFC64 generator as arrays."""
    state = generator.bit_generator.state
    words = np.asarray(state["state"]["state"], dtype=np.uint64)
    half = np.array([state["has_uint32"], state["uinteger"]], dtype=np.uint64)
    return {"words": words.copy(), "half": half}


def generator_from_state(state: Mapping[str, NDArray[np.generic]]) -> np.random.Generator:
    """A generator that goes on where `generator_state` was taken."""
    bits = np.random.SFC64(0)
    bits.state = {
        "bit_generator": "SFC64",
        "state": {"state": np.asarray(state["words"], dtype=np.uint64)},
        "has_uint32": int(np.asarray(state["half"], dtype=np.uint64)[0]),
        "uinteger": int(np.asarray(state["half"], dtype=np.uint64)[1]),
    }
    return np.random.Generator(bits)


@dataclass
class IndexSource:
    """A stream of minibatches as row indices; `state()` and `restore()` make it part of a checkpoint."""

    scheme: str
    n_data: int
    batch_size: int
    generator: np.random.Generator
    permutation: NDArray[np.int32] | None = None
    used: int = 0
    memory: DoubleBuffer | None = (
        None  # where given, what is drawn stays there until the draw after the next
    )

    def draw(self, steps: int) -> NDArray[np.int32]:
        """Indices of the next `steps` minibatches, shape (steps, S)."""
        if self.scheme == "replacement":
            return self._independent(steps)
        if self.scheme == "without-replacement":
            return self._distinct(steps)
        return self._slices(steps)

    def _independent(self, steps: int) -> NDArray[np.int32]:
        """Every row of every minibatch for itself; the same ones that a loop draws from the seed of a `SeedSource`."""
        shape = (steps, self.batch_size)
        rows = (
            np.empty(shape, dtype=np.int32)
            if self.memory is None
            else self.memory.array(shape, np.int32)
        )
        fill(rows.reshape(-1), new_seed(self.generator), self.n_data)
        return rows

    def _distinct(self, steps: int) -> NDArray[np.int32]:
        """The first S distinct values of an independent uniform stream: exactly uniform over subsets."""
        if 8 * self.batch_size > self.n_data:
            keys = np.tile(np.arange(self.n_data, dtype=np.int32), (steps, 1))
            return self.generator.permuted(keys, axis=1)[:, : self.batch_size].copy()
        rows = self.generator.integers(0, self.n_data, (steps, self.batch_size), dtype=np.int32)
        while True:
            rows.sort(axis=1)
            again = np.zeros(rows.shape, dtype=bool)
            again[:, 1:] = rows[:, 1:] == rows[:, :-1]
            count = int(again.sum())
            if count == 0:
                return rows
            rows[again] = self.generator.integers(0, self.n_data, count, dtype=np.int32)

    def _slices(self, steps: int) -> NDArray[np.int32]:
        """Wrap-around slices of shuffled rows; new permutation after every N/S steps."""
        per_permutation = max(1, self.n_data // self.batch_size)
        out = np.empty((steps, self.batch_size), dtype=np.int32)
        within = np.arange(self.batch_size, dtype=np.int64)
        done = 0
        while done < steps:
            if self.permutation is None or self.used >= per_permutation:
                self.permutation = self.generator.permutation(self.n_data).astype(np.int32)
                self.used = 0
            take = min(steps - done, per_permutation - self.used)
            starts = self.generator.integers(0, self.n_data, take)
            out[done : done + take] = self.permutation[(starts[:, None] + within) % self.n_data]
            self.used += take
            done += take
        return out

    def state(self) -> dict[str, NDArray[np.uint64] | NDArray[np.int32] | NDArray[np.int64]]:
        permutation = np.empty(0, dtype=np.int32) if self.permutation is None else self.permutation
        return {
            **generator_state(self.generator),
            "permutation": permutation,
            "used": np.asarray(self.used),
        }

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        self.generator = generator_from_state({"words": state["words"], "half": state["half"]})
        self.permutation = (
            np.asarray(state["permutation"], dtype=np.int32) if state["permutation"].size else None
        )
        self.used = int(np.asarray(state["used"], dtype=np.int64))


@dataclass
class SeedSource:
    """A stream of minibatches with replacement as seeds, from which the compiled loop draws the rows itself."""

    generator: np.random.Generator

    def draw(self, steps: int) -> NDArray[np.uint32]:
        """What stands for the next `steps` minibatches, or any other number of them."""
        return new_seed(self.generator)

    def state(self) -> dict[str, NDArray[np.uint64]]:
        return generator_state(self.generator)

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        self.generator = generator_from_state(state)


@dataclass
class SliceSource:
    """A stream of minibatches as the first rows of slices of shuffled rows, drawn in blocks of equal length."""

    shuffled: ShuffledRows
    generator: np.random.Generator
    blocks: int = 0

    def draw(self, steps: int) -> NDArray[np.int32]:
        """Where the next `steps` minibatches start, shape (steps,); in which order of the rows, `order` tells."""
        self.blocks += 1
        return self.generator.integers(0, self.shuffled.n_data, steps, dtype=np.int32)

    def order(self, steps: int) -> Order:
        """The rows of the block of `steps` minibatches that was drawn last."""
        lasting = self.shuffled.lasting(steps)
        number, place = divmod(self.blocks - 1, lasting)
        order = self.shuffled.order(number)
        if (
            place > 0 or lasting == 1
        ):  # a run that is over after the first block has no use for another order
            self.shuffled.prepare(number + 1)
        return order

    def state(self) -> dict[str, NDArray[np.uint64] | NDArray[np.int64]]:
        return {**generator_state(self.generator), "blocks": np.asarray(self.blocks)}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        self.generator = generator_from_state(state)
        self.blocks = int(np.asarray(state["blocks"], dtype=np.int64))
