"""What a rule of tuning makes and what it must offer: the Stage of one block, the protocol Tuning,
and what the rules share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike

from ornstein.curvature.curvature import Curvature
from ornstein.dynamics.dynamics import Dynamics
from ornstein.engine.blocks import block_length
from ornstein.engine.run import Run
from ornstein.model.model import Model
from ornstein.types import Array, PyTree

# λ_max(HA) of a capped step: half the bound, so that a curvature a little off does no harm.
CAP = 1.0
LONGEST_STRIDE = 500


@dataclass(frozen=True, eq=False)
class Stage:
    """Chains ready to run at one φ; positions are displacements from `centre`."""

    dynamics: Dynamics
    centre: Array
    starts: Array
    stride: int
    curvature: Curvature | None = None


class Tuning(Protocol):
    """What the loop over blocks asks of a recipe; `finds` says in words what it finds."""

    finds: ClassVar[str]
    notes: dict[str, str]

    def stage(self, model: Model, positions: Array | None, seed: np.random.SeedSequence) -> Stage:
        """Chains for `model`, which go on from `positions` (chains, D) of the last block."""

    def follow(self, model: Model, run: Run, positions: Array) -> Dynamics | None:
        """Re-tune a running chain by what was seen along it; the new dynamics, or None where it
        stays.
        """

    def state(self) -> dict[str, PyTree]:
        """What one stage hands on to the next, as a tree of arrays."""

    def restore(self, state: Mapping[str, PyTree]) -> None:
        """Go on from `state`."""


def given(**values: ArrayLike | None) -> dict[str, Array]:
    """Those that are there, as arrays."""
    return {name: np.asarray(value) for name, value in values.items() if value is not None}


def bounded_stride(wanted: int, dynamics: Dynamics, model: Model) -> int:
    """The wanted stride, or that of one block where it is shorter; at least 1."""
    return max(1, min(wanted, block_length(dynamics, model.dim)))


def power_of_two(bound: float) -> int:
    """The largest one within the bound, at least 1."""
    return 2 ** int(math.log2(max(bound, 1.0)))
