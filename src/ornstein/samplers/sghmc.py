"""Stochastic gradient Hamiltonian Monte Carlo: momentum with injected noise, less what the
gradients bring themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ornstein import theory
from ornstein.checks import checked_damping
from ornstein.curvature.curvature import Curvature
from ornstein.dynamics.dynamics import Dynamics
from ornstein.dynamics.minibatches import Minibatches
from ornstein.errors import InputError
from ornstein.samplers.sgld import checked_step_size
from ornstein.samplers.tolerable_step import tolerable_step
from ornstein.theory.matrices import Array
from ornstein.theory.modes import as_matrix


@dataclass(frozen=True)
class SGHMC:
    """v' = (1−α)v − ηN ĝ(θ) + N(0, R), θ' = θ + v' (Chen, Fox and Guestrin 2014), ĝ the minibatch
    gradient of the mean loss.

    R = 2αη I − (η²N²/S) C takes off what the gradient noise adds, so that the law is the posterior
    up to the discretisation of time. With `exact=True` R = 2αη I − (η²N²/S) C − (α/(2−α)) η²N A
    takes that off too, and the law *is* the posterior. A step at which R is no covariance is
    refused. C + K[A⁻¹/N] stands for C.

    Args:
        step_size: η in the units of its paper, where the gradient is that of the summed log
            posterior: H = ηN on the mean loss. "auto" is the largest η with predicted KL(sampler ‖
            posterior) ≤ 0.05; with `exact`, half its bound.
        damping: α in (0, 1], the friction.
        exact: as above.

    >>> from ornstein.curvature.curvature import Curvature
    >>> cur = Curvature(
    ...     mode=[0.0, 0.0],
    ...     hessian=[[2.0, 1.0], [1.0, 2.0]],
    ...     noise=[[1.0, 0.0], [0.0, 3.0]],
    ...     n_data=1000,
    ... )
    >>> SGHMC().tune(cur, batch_size=10).predict(cur).kl_qp <= 0.05
    True
    """

    step_size: float | str = "auto"
    damping: float = 0.1
    exact: bool = False

    def __post_init__(self) -> None:
        checked_step_size(self.step_size)
        checked_damping(self.damping)

    @property
    def name(self) -> str:
        return "SGHMC"

    def tune(self, curvature: Curvature, batch_size: int, scheme: str = "replacement") -> Dynamics:
        """The Dynamics for this Curvature."""
        minibatches = Minibatches.of(curvature, batch_size, scheme)
        batch = minibatches.effective

        def build(step_size: float) -> Dynamics:
            step = np.asarray(step_size * curvature.n_data)
            note = (
                f"step size η = {step_size:.6g}, that is H = ηN = {float(step):.6g} on the mean"
                " loss"
            )
            injected = self._injected(step, curvature, batch)
            return Dynamics(
                step,
                minibatches.size,
                minibatches.scheme,
                self.damping,
                injected=injected,
                sampler=self.name,
                notes=(note,),
            )

        bound = self._bound(curvature, batch)
        if not isinstance(self.step_size, str):
            if self.step_size > bound:
                raise InputError(
                    f"step_size {self.step_size:.4g} is beyond {bound:.4g}, the bound up to which"
                    f" the noise injected by SGHMC is a covariance (damping={self.damping},"
                    f" batch_size={minibatches.size}): use a smaller step, a larger batch or more"
                    " damping"
                )
            return build(float(self.step_size))
        return build(bound / 2.0 if self.exact else tolerable_step(build, curvature, bound))

    def _injected(self, step: Array, curvature: Curvature, batch: float) -> Array:
        noise = curvature.effective_noise
        if self.exact:
            return theory.matched_injection(
                curvature.hessian, noise, step, curvature.n_data, batch, self.damping
            )
        white = 2.0 * self.damping * float(step) / curvature.n_data
        return (white if noise.ndim == 1 else as_matrix(white, curvature.dim)) - float(
            step
        ) ** 2 / batch * noise

    def _bound(self, curvature: Curvature, batch: float) -> float:
        """The largest η for which R is positive semidefinite."""
        n_data, noise = curvature.n_data, curvature.effective_noise
        return (
            theory.injection_bound(
                curvature.hessian, noise, n_data, batch, self.damping, drift=self.exact
            )
            / n_data
        )
