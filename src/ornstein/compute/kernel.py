"""What the engine runs: a step as compiled code takes it, and what it must know beside the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ornstein.types import Traced

State: TypeAlias = dict[str, Traced]  # "position", and whatever else a step carries on


class Kernel(Protocol):
    """One step; hashable, and equal kernels share compiled code."""

    @property
    def needs_normals(self) -> bool:
        """Whether `step` is given standard normal numbers, one for each parameter."""

    @property
    def control_variates(self) -> bool:
        """Whether `step` is given the gradient's change since the centre for the gradient."""

    def start(self, displacement: Traced) -> State:
        """The state of a chain that begins at this displacement from the centre."""

    def step(
        self,
        arrays: Mapping[str, Traced],
        state: State,
        gradient: Callable[[Traced], Traced],
        normal: Traced,
        factor: Traced,
    ) -> State:
        """The state after one step with these numbers; `factor` multiplies the step size."""


class Runnable(Protocol):
    """A kernel, its numbers, and how its minibatches are drawn."""

    @property
    def batch_size(self) -> int: ...

    @property
    def scheme(self) -> str: ...

    @property
    def window(self) -> int: ...

    @property
    def schedule(self) -> Callable[[NDArray[np.float64]], NDArray[np.float64]] | None: ...

    def kernel(self) -> Kernel: ...

    def arrays(self) -> dict[str, NDArray[np.float64]]: ...
