"""What theory says a Dynamics will do on a Curvature: one function for every linear sampler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ornstein.dynamics.minibatches import require_noise_of
from ornstein.errors import InputError
from ornstein.rows.scheme import checked_batch_size, effective_batch
from ornstein.theory import (
    Modes,
    Process,
    kl_covariance,
    mean_square_bound,
    normal_modes,
    solve_modes_responding,
)
from ornstein.theory.matrices import Array
from ornstein.theory.stationary import solve_modes

if TYPE_CHECKING:
    from ornstein.curvature.curvature import Curvature
    from ornstein.dynamics.dynamics import Dynamics

NO_STATIONARY_LAW = (
    "the rate changes from step to step, so no stationary law exists; stability and relaxation time"
    " are those of the first rate"
)


@dataclass(frozen=True, eq=False)
class Prediction:
    """The stationary law of what the sampler delivers, and how far it is from the posterior.

    Attributes:
        covariance: of one delivered draw; None where the recursion has no stationary law: it is
            unstable, or its rate changes.
        kl_qp: KL(sampler ‖ posterior) in nats; kl_pq: KL(posterior ‖ sampler).
        relaxation_time: τ = −1/log ρ(F), in steps.
        stable: whether a stationary covariance exists (in mean square, where the noise
            depends on θ).
        time: "discrete" or "continuous".
        approximate: in words, what about it is not exact; empty if nothing is.
    """

    covariance: Array | None
    kl_qp: float
    kl_pq: float
    relaxation_time: float
    stable: bool
    time: str
    approximate: str
    process: Process | None
    _bound: Callable[[], float]

    @cached_property
    def step_bound(self) -> float:
        """The stability bound: on the step size for a scalar preconditioner, else on a common
        factor of H.
        """
        return self._bound()


def predict(dynamics: Dynamics, curvature: Curvature, time: str = "discrete") -> Prediction:
    """Solve the one Lyapunov equation for this Dynamics on this Curvature."""
    require_fit(dynamics, curvature)
    modes = _modes(dynamics, curvature)
    batch = effective_batch(dynamics.scheme, curvature.n_data, dynamics.batch_size)
    constant = (
        np.zeros_like(curvature.noise) if dynamics.control_variates else curvature.noise / batch
    )
    responds = curvature.noise_response if time == "discrete" else None
    response = None if responds is None else lambda spread: responds(spread) / batch

    def bound() -> float:
        scale = float(dynamics.preconditioner) if dynamics.preconditioner.ndim == 0 else 1.0
        if curvature.hessian_product is not None:
            return (
                scale
                * 2.0
                * (2.0 - dynamics.damping)
                / curvature.largest_rate(dynamics.preconditioner)
            )
        return scale * mean_square_bound(modes, response)

    stationary = None
    if modes.stable and response is None:
        stationary = solve_modes(modes, constant, dynamics.injected, time)
    elif modes.stable and response is not None:
        # What samplers are tuned for, and often are exact about.
        guess = (
            curvature.posterior_covariance,
            (curvature.effective_noise - curvature.noise) / batch,
        )
        stationary = solve_modes_responding(
            modes, constant, response, dynamics.injected, guess=guess
        )
    if stationary is None:
        return Prediction(
            None, np.inf, np.inf, np.inf, False, time, curvature.approximate, None, bound
        )
    if dynamics.schedule is not None:
        return Prediction(
            None, np.nan, np.nan, modes.relaxation_time, True, time, NO_STATIONARY_LAW, None, bound
        )
    process = Process(
        modes, stationary, dynamics.window + dynamics.gap, dynamics.window, dynamics.output_map
    )
    covariance = process.covariance()
    posterior = curvature.posterior_covariance
    return Prediction(
        covariance,
        kl_covariance(covariance, posterior),
        kl_covariance(posterior, covariance),
        modes.relaxation_time,
        True,
        time,
        curvature.approximate,
        process,
        bound,
    )


def require_fit(dynamics: Dynamics, curvature: Curvature) -> None:
    """Refuse a batch that the data cannot give, and arrays of another length."""
    checked_batch_size(dynamics.batch_size, curvature.n_data, dynamics.scheme)
    require_noise_of(curvature, dynamics.scheme)
    for name in ("preconditioner", "injected", "output_map"):
        value = getattr(dynamics, name)
        if value is not None and any(length != curvature.dim for length in value.shape):
            raise InputError(
                f"the {name} has shape {value.shape}, but there are {curvature.dim} parameters"
            )


def _modes(dynamics: Dynamics, curvature: Curvature) -> Modes:
    modes = normal_modes(curvature.hessian, dynamics.preconditioner, dynamics.damping)
    if curvature.hessian_product is None:
        return modes
    # Only the diagonal of A is known, but its largest eigenvalue decides stability: let the fastest
    # mode carry it.
    rates = modes.rates.copy()
    rates[np.argmax(rates)] = max(rates.max(), curvature.largest_rate(dynamics.preconditioner))
    return (
        modes
        if rates.max() < 2.0 * (2.0 - dynamics.damping)
        else Modes(rates, modes.basis, modes.inverse, modes.damping)
    )
