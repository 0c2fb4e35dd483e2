"""One step of the linear recursion, as compiled code runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax.numpy as jnp

from ornstein.compute.kernel import State
from ornstein.compute.products import applied
from ornstein.types import Traced


@dataclass(frozen=True)
class LinearKernel:
    """One step of the recursion in displacements from the mode; equal kernels share compiled code.

    With `control_variates` the loop hands it the gradient's change since the mode for the gradient.
    """

    preconditioner_axes: int
    injected_axes: int | None
    momentum: bool
    control_variates: bool

    @property
    def needs_normals(self) -> bool:
        return self.injected_axes is not None

    def start(self, displacement: Traced) -> State:
        state = {"position": displacement}
        return {**state, "velocity": jnp.zeros_like(displacement)} if self.momentum else state

    def step(
        self,
        arrays: Mapping[str, Traced],
        state: State,
        gradient: Callable[[Traced], Traced],
        normal: Traced,
        factor: Traced,
    ) -> State:
        slope = gradient(state["position"])
        if "gradient_root" in arrays:
            slope = slope + arrays["gradient_root"] * normal / jnp.sqrt(factor)
        move = -factor * applied(arrays["preconditioner"], slope)
        if "injected_root" in arrays:
            move = move + jnp.sqrt(factor) * applied(arrays["injected_root"], normal)
        if not self.momentum:
            return {"position": state["position"] + move}
        velocity = arrays["memory"] * state["velocity"] + move
        return {"position": state["position"] + velocity, "velocity": velocity}
