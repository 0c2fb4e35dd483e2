"""All draws of all chains."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ornstein.checks import require_memory
from ornstein.types import Array


class Draws:
    """All draws, (chains, draws, D)."""

    def __init__(self, chains: int, draws: int, dimension: int) -> None:
        require_memory("an array of draws", chains, draws, dimension)
        # zeros take up memory only where something is written
        self.values = np.zeros((chains, draws, dimension))
        self.filled = np.zeros(chains, dtype=int)

    def add(self, chain: int, draws: Array) -> None:
        start = self.filled[chain]
        self.values[chain, start : start + len(draws)] = draws
        self.filled[chain] += len(draws)

    def finished(self) -> Array:
        """What every chain has, up to the shortest."""
        return self.values[:, : int(self.filled.min())]

    def state(self) -> dict[str, Array]:
        """All that is filled, for a checkpoint."""
        return {"values": self.values[:, : int(self.filled.max())], "filled": self.filled}

    def restore(self, state: Mapping[str, Array]) -> None:
        self.filled = np.array(state["filled"], dtype=int)
        self.values[:, : state["values"].shape[1]] = state["values"]
