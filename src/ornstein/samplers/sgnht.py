"""The stochastic gradient Nosé–Hoover thermostat: friction that adapts until the kinetic energy is
right.

The one sampler here that is not linear. Its theory holds the thermostat at its mean: what remains
is momentum SGD with injected noise, whose damping is the one that gives the wanted kinetic energy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import scipy

from ornstein import theory
from ornstein.checks import brief, is_number
from ornstein.compute.kernel import State
from ornstein.curvature.curvature import Curvature
from ornstein.dynamics.dynamics import Dynamics
from ornstein.dynamics.minibatches import Minibatches
from ornstein.dynamics.prediction import Prediction
from ornstein.errors import InputError
from ornstein.samplers.sgld import checked_step_size
from ornstein.samplers.tolerable_step import tolerable_step
from ornstein.theory.matrices import Array
from ornstein.types import Traced


@dataclass(frozen=True)
class SGNHT:
    """v' = (1−ζ)v − ηN ĝ(θ) + N(0, 2aηI), θ' = θ + v', ζ' = ζ + (1−ζ/2)|v'|²/D − η (Ding et al.
    2014), ĝ of the mean loss.

    The thermostat ζ rises while the velocities carry too much energy and falls while they carry too
    little, so it finds by itself the friction that the gradient noise calls for. Its paper has
    |v'|²/D, the limit of small ζ: with steps of a finite length that leaves the law too narrow by a
    factor 1−ζ/2, which is what the factor makes up for.

    The law is the posterior as η → 0. At a finite η it is the posterior only if the gradient noise
    is the same in all directions, since one ζ serves them all. The chain starts with ζ at its
    predicted mean.

    Args:
        step_size: η in the units of its paper (the square of its time step h): H = ηN on the mean
            loss. "auto" is the largest η with predicted KL(sampler ‖ posterior) ≤ 0.05.
        damping: a in (0, 1), the strength of the injected noise and, without gradient noise, the
            mean of ζ.

    >>> from ornstein.curvature.curvature import Curvature
    >>> cur = Curvature(
    ...     mode=[0.0, 0.0],
    ...     hessian=[[2.0, 1.0], [1.0, 2.0]],
    ...     noise=[[1.0, 0.0], [0.0, 3.0]],
    ...     n_data=1000,
    ... )
    >>> tuned = SGNHT(step_size=1e-7, damping=0.1).tune(cur, batch_size=10)
    >>> round(tuned.damping, 3)  # the mean of ζ: a + ηN² tr C/(2SD) to first order
    0.11
    """

    step_size: float | str = "auto"
    damping: float = 0.1

    def __post_init__(self) -> None:
        checked_step_size(self.step_size)
        if not is_number(self.damping) or not 0.0 < self.damping < 1.0:
            raise InputError(f"damping must lie between 0 and 1; got {brief(self.damping)}")

    @property
    def name(self) -> str:
        return "SGNHT"

    def tune(
        self, curvature: Curvature, batch_size: int, scheme: str = "replacement"
    ) -> ThermostatDynamics:
        """The dynamics for this Curvature, its `damping` the predicted mean of the thermostat."""
        minibatches = Minibatches.of(curvature, batch_size, scheme)
        noise = curvature.effective_noise / minibatches.effective
        thermostat = Thermostat.of(curvature, noise, self.damping)
        bound = thermostat.largest_step()

        def build(step_size: float) -> ThermostatDynamics:
            return ThermostatDynamics(
                np.asarray(step_size * curvature.n_data),
                minibatches.size,
                minibatches.scheme,
                thermostat.mean(step_size),
                injected=np.asarray(2.0 * self.damping * step_size),
                sampler=self.name,
                notes=(
                    (
                        f"step size η = {step_size:.6g}, that is H = ηN ="
                        f" {step_size * curvature.n_data:.6g} on the mean loss"
                    ),
                ),
                energy=step_size,
            )

        if isinstance(self.step_size, str):
            return build(tolerable_step(build, curvature, bound))
        if self.step_size > bound:
            raise InputError(
                f"step_size {self.step_size:.4g} is beyond {bound:.4g}, the bound at which the"
                f" thermostat would have to stand above 1 (damping={self.damping},"
                f" batch_size={minibatches.size}): use a smaller step, a larger batch or less"
                " damping"
            )
        return build(float(self.step_size))


@dataclass(frozen=True, eq=False)
class ThermostatDynamics(Dynamics):
    """The linear recursion at the thermostat's mean, `damping`, with a kernel that lets the
    thermostat move.

    `energy` is η, the kinetic energy (1−ζ/2)|v|²/D at which the thermostat rests.
    """

    energy: float = 0.0

    def predict(self, curvature: Curvature, time: str = "discrete") -> Prediction:
        """The law at the mean of the thermostat; approximate, because it moves."""
        linear = super().predict(curvature, time)
        held = "the thermostat is held at its mean"
        return replace(linear, approximate="; ".join(filter(None, (linear.approximate, held))))

    def kernel(self) -> ThermostatKernel:
        """The step as a hashable function for the engine."""
        return ThermostatKernel()

    def arrays(self) -> dict[str, Array]:
        """The numbers that `kernel` needs."""
        assert self.injected is not None
        return {
            "preconditioner": self.preconditioner,
            "injected_root": np.sqrt(self.injected),
            "memory": np.asarray(1.0 - self.damping),
            "energy": np.asarray(self.energy),
        }


@dataclass(frozen=True)
class ThermostatKernel:
    """One step in displacements from the mode; the thermostat is kept as its deviation from its
    predicted mean.
    """

    @property
    def needs_normals(self) -> bool:
        return True

    @property
    def control_variates(self) -> bool:
        return False

    def start(self, displacement: Traced) -> State:
        zero = jnp.zeros_like(displacement)
        return {
            "position": displacement,
            "velocity": zero,
            "thermostat": jnp.zeros((), displacement.dtype),
        }

    def step(
        self,
        arrays: Mapping[str, Traced],
        state: State,
        gradient: Callable[[Traced], Traced],
        normal: Traced,
        factor: Traced,
    ) -> State:
        memory = arrays["memory"] - state["thermostat"]
        move = (
            -arrays["preconditioner"] * gradient(state["position"])
            + arrays["injected_root"] * normal
        )
        velocity = memory * state["velocity"] + move
        # 1 − ζ/2 = (1 + memory)/2
        thermostat = (
            state["thermostat"] + (1.0 + memory) / 2.0 * jnp.mean(velocity**2) - arrays["energy"]
        )
        return {
            "position": state["position"] + velocity,
            "velocity": velocity,
            "thermostat": thermostat,
        }


@dataclass(frozen=True, eq=False)
class Thermostat:
    """What the mean of the thermostat ζ depends on: Hessian and gradient noise, along the
    eigenvectors of the Hessian.
    """

    curvatures: Array
    noises: Array
    n_data: int
    damping: float

    @classmethod
    def of(cls, curvature: Curvature, noise: Array, damping: float) -> Thermostat:
        """`noise` is the covariance of one minibatch gradient."""
        modes = theory.normal_modes(curvature.hessian, 1.0)
        along = modes.gradient_noise(noise)
        return cls(
            modes.rates, along if along.ndim == 1 else np.diagonal(along), curvature.n_data, damping
        )

    def excess(self, step_size: float, thermostat: float) -> float:
        """E(1−ζ/2)|v|²/(Dη) − 1 with the thermostat held at ζ.

        Along an eigenvector with rate e = ηNa the velocity has the variance 2q/(ζ(4−2ζ−e)), q the
        noise of one step.
        """
        rates = step_size * self.n_data * self.curvatures
        driven = (step_size * self.n_data) ** 2 * self.noises + 2.0 * self.damping * step_size
        room = 4.0 - 2.0 * thermostat - rates
        if np.any(room <= 0.0):
            return float("inf")
        return float(np.mean((2.0 - thermostat) * driven / (thermostat * room)) / step_size - 1.0)

    def mean(self, step_size: float) -> float:
        """The ζ without excess: a + ηN² tr C/(2SD) to first order in η."""

        def excess(log_thermostat: float) -> float:
            return min(self.excess(step_size, float(np.exp(log_thermostat))), 1e6)

        return float(
            np.exp(scipy.optimize.brentq(excess, np.log(self.damping / 2.0), 0.0, xtol=1e-10))
        )

    def largest_step(self) -> float:
        """Just below the η at which the mean of ζ reaches 1."""
        stable = 2.0 / (self.n_data * float(np.max(self.curvatures)))

        def excess(log_step: float) -> float:
            return min(self.excess(float(np.exp(log_step)), 1.0), 1e6)

        return 0.999 * float(
            np.exp(
                scipy.optimize.brentq(excess, np.log(1e-15 * stable), np.log(stable), xtol=1e-10)
            )
        )
