"""Constant SGD: stochastic gradient descent at a constant rate, tuned so that its stationary law is
near the posterior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import scipy
from numpy.typing import ArrayLike

from ornstein import theory
from ornstein.checks import as_numbers, brief, checked_damping
from ornstein.curvature.curvature import Curvature
from ornstein.dynamics.dynamics import Dynamics
from ornstein.dynamics.minibatches import Minibatches
from ornstein.errors import InputError
from ornstein.samplers.noise_floor import SampledNoise, sampled_noise
from ornstein.theory.matrices import Array

PRECONDITIONERS = ("scalar", "diagonal", "full", "sqrt")
EXACT_DIAGONAL_LIMIT = 200


class SearchOptions(TypedDict):
    """What every search for a step is told."""

    damping: float
    objective: str


@dataclass(frozen=True)
class ConstantSGD:
    """θ' = θ − Hĝ(θ), or with momentum v' = (1−μ)v − Hĝ(θ), θ' = θ + v' (Mandt, Hoffman and Blei
    2017, section 4).

    The law that results is N(mode, Σ) with Σ = MΣMᵀ + H(C + K[Σ])H/S, M = I − HA.
    `tuning="discrete"` picks H for that Σ: with the full preconditioner it *is* the posterior; with
    the others it is as near as they can be. `tuning="continuous"` is the paper's formula, the limit
    of small steps.

    Args:
        preconditioner: "full"; "diagonal"; "sqrt" (H = ε/√diag C, as AdaGrad would); "scalar" (H =
            ε).
        step_size: "auto", or a number ε of the mean loss: H = ε for scalar, ε/√C_kk for sqrt,
            ε/C_kk for diagonal, εC⁻¹ for full; an array of shape (D,) or (D, D) is taken as H
            itself.
        damping: μ in (0, 1]; below 1 the chain has momentum.
        objective: for scalar, diagonal and sqrt: minimise "kl_qp" = KL(sampler ‖ posterior) or
            "kl_pq".
        target: "posterior", or "sandwich" A⁻¹CA⁻¹/N, which is robust to misspecification.

    >>> from ornstein.curvature.curvature import Curvature
    >>> cur = Curvature(
    ...     mode=[0.0, 0.0],
    ...     hessian=[[2.0, 1.0], [1.0, 2.0]],
    ...     noise=[[1.0, 0.0], [0.0, 3.0]],
    ...     n_data=1000,
    ... )
    >>> prediction = ConstantSGD("full").tune(cur, batch_size=10).predict(cur)
    >>> round(prediction.kl_qp, 12)
    0.0
    """

    preconditioner: str = "full"
    step_size: ArrayLike = "auto"
    damping: float = 1.0
    tuning: str = "discrete"
    objective: str = "kl_qp"
    target: str = "posterior"
    control_variates: bool = False

    def __post_init__(self) -> None:
        _choice("preconditioner", self.preconditioner, PRECONDITIONERS)
        _choice("tuning", self.tuning, ("discrete", "continuous"))
        _choice("objective", self.objective, theory.rates.OBJECTIVES)
        _choice("target", self.target, ("posterior", "sandwich"))
        checked_damping(self.damping)
        if not isinstance(self.step_size, str):
            given = as_numbers("step_size", self.step_size)
            if not np.all(np.isfinite(given)) or (given.ndim < 2 and np.any(given <= 0)):
                raise InputError(
                    f"step_size must be positive and finite; got {brief(self.step_size)}"
                )
        elif self.step_size != "auto":
            raise InputError(
                f"step_size must be 'auto', a number or an array; got {self.step_size!r}"
            )
        if self.target == "sandwich" and self.tuning == "continuous":
            raise InputError(
                "the paper's continuous-time formulas aim at the posterior: target='sandwich' needs"
                " tuning='discrete'"
            )
        if self.control_variates:
            raise InputError(
                "constant SGD refuses control variates: its gradient noise is what makes it sample,"
                " and they remove it. Use SGLD(control_variates=True), whose noise is injected"
            )

    @property
    def name(self) -> str:
        return f"ConstantSGD({self.preconditioner!r})"

    def tune(self, curvature: Curvature, batch_size: int, scheme: str = "replacement") -> Dynamics:
        """The Dynamics for this Curvature. Never raises on instability: its prediction says
        `stable=False`.
        """
        minibatches = Minibatches.of(curvature, batch_size, scheme)
        batch = minibatches.effective
        noise = curvature.effective_noise if self.tuning == "discrete" else curvature.noise
        sampled = sampled_noise(curvature, noise, batch)
        notes = sampled.notes
        if isinstance(self.step_size, str):
            step, more = self._automatic(curvature, sampled, batch)
            notes += more
        else:
            step = self._given(sampled.noise)
        if curvature.diagonal and step.ndim == 2:
            raise InputError(
                "the full preconditioner needs the full curvature; this one holds only diagonals."
                " Use 'diagonal'"
            )
        return Dynamics(
            step,
            minibatches.size,
            minibatches.scheme,
            self.damping,
            injected=sampled.injected(step, batch),
            target=self.target,
            sampler=self.name,
            notes=notes,
        )

    def _given(self, noise: Array) -> Array:
        given = np.asarray(self.step_size, dtype=float)
        if given.ndim > 0 or self.preconditioner == "scalar":
            return given
        if self.preconditioner == "sqrt":
            return given * theory.square_root_shape(noise)
        if self.preconditioner == "diagonal" or noise.ndim == 1:
            return given / (noise if noise.ndim == 1 else np.diagonal(noise))
        return given * theory.theorem_2_preconditioner(noise, 2, 1.0)

    def _automatic(
        self, curvature: Curvature, sampled: SampledNoise, batch: float
    ) -> tuple[Array, tuple[str, ...]]:
        if self.tuning == "continuous":
            return self.damping * self._paper(curvature, sampled.noise, batch), ()
        n_data, noise = curvature.n_data, sampled.noise
        if self.preconditioner == "full":
            if self.target == "sandwich":
                return (
                    theory.sandwich_preconditioner(curvature.hessian, n_data, batch, self.damping),
                    (),
                )
            return (
                theory.exact_preconditioner(curvature.hessian, noise, n_data, batch, self.damping),
                (),
            )
        step, notes = self._search(curvature, noise, batch)
        for _ in range(4):
            # The noise depends on the spread that the step itself causes: search again on the
            # noise met there.
            if curvature.noise_response is None:
                break
            trial = Dynamics(step, 1, damping=self.damping)
            spread = _spread(trial, curvature, sampled, batch)
            if spread is None:
                shrunk = (
                    "the rate that is best for constant noise diverges where the noise"
                    " depends on θ: the best stable one is taken"
                )
                return self._shrunk(step, curvature, sampled, batch), (*notes, shrunk)
            previous = step
            noise = sampled.noise - curvature.effective_noise + curvature.noise_at(spread)
            step, notes = self._search(curvature, noise, batch)
            if np.max(np.abs(np.log(step / previous))) < 1e-4:
                break
        return step, notes

    def _shrunk(
        self, step: Array, curvature: Curvature, sampled: SampledNoise, batch: float
    ) -> Array:
        """The multiple of an unstable step whose law, with the noise that depends on it, is nearest
        the target.
        """
        target = self._target(curvature)

        def divergence(log_factor: float) -> float:
            spread = _spread(
                Dynamics(np.exp(log_factor) * step, 1, damping=self.damping),
                curvature,
                sampled,
                batch,
            )
            worst = 1e6 * (1.0 + np.exp(log_factor))
            if spread is None:
                return worst
            return min(
                worst,
                theory.kl_covariance(
                    *((spread, target) if self.objective == "kl_qp" else (target, spread))
                ),
            )

        found = scipy.optimize.minimize_scalar(
            divergence, bounds=(np.log(1e-3), 0.0), method="bounded", options={"xatol": 1e-2}
        )
        return np.exp(found.x) * step

    def _search(
        self, curvature: Curvature, noise: Array, batch: float
    ) -> tuple[Array, tuple[str, ...]]:
        target = self._target(curvature)
        options: SearchOptions = {"damping": self.damping, "objective": self.objective}
        if self.preconditioner == "scalar":
            return (
                np.asarray(theory.exact_rate(curvature.hessian, noise, target, batch, **options)),
                (),
            )
        if self.preconditioner == "sqrt":
            shape = theory.square_root_shape(noise)
            return (
                shape
                * theory.exact_rate(
                    curvature.hessian, noise, target, batch, shape=shape, **options
                ),
                (),
            )
        if curvature.diagonal and self.target == "posterior":
            return (
                theory.exact_preconditioner(
                    curvature.hessian, noise, curvature.n_data, batch, self.damping
                ),
                (),
            )
        shape = theory.diagonal_corollary(noise, curvature.n_data, batch)
        start = shape * theory.exact_rate(
            curvature.hessian, noise, target, batch, shape=shape, **options
        )
        if curvature.diagonal or curvature.dim > EXACT_DIAGONAL_LIMIT:
            return start, (
                (
                    f"diagonal tuning beyond {EXACT_DIAGONAL_LIMIT} parameters: 1/C_kk with an"
                    " exact common factor"
                ),
            )
        return theory.exact_diagonal(curvature.hessian, noise, target, batch, start, **options), ()

    def _target(self, curvature: Curvature) -> Array:
        if self.target == "posterior":
            return curvature.posterior_covariance
        return theory.sandwich_covariance(curvature.hessian, curvature.noise, curvature.n_data)

    def _paper(self, curvature: Curvature, noise: Array, batch: float) -> Array:
        """The paper's continuous-time formulas (corrected where ERRATA says so)."""
        n_data = curvature.n_data
        if self.preconditioner == "full":
            return theory.theorem_2_preconditioner(noise, n_data, batch)
        if self.preconditioner == "diagonal":
            return theory.diagonal_corollary(noise, n_data, batch)
        if self.preconditioner == "sqrt":
            return theory.square_root_shape(noise) * theory.square_root_rate(noise, n_data, batch)
        if self.objective == "kl_pq":
            return np.asarray(theory.reverse_kl_rate(curvature.hessian, noise, n_data, batch))
        return np.asarray(theory.theorem_1_rate(noise, n_data, batch))


def _spread(
    trial: Dynamics, curvature: Curvature, sampled: SampledNoise, batch: float
) -> Array | None:
    """Σ of a trial step with the noise that depends on it; None where it is unstable."""
    response = curvature.noise_response
    assert response is not None
    modes = theory.normal_modes(curvature.hessian, trial.preconditioner, trial.damping)
    if not modes.stable:
        return None
    constant = (sampled.noise - curvature.effective_noise + curvature.noise) / batch
    solved = theory.solve_modes_responding(
        modes, constant, lambda spread: response(spread) / batch, tolerance=1e-5
    )
    return None if solved is None else modes.to_theta(solved)


def _choice(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{what} must be one of {allowed}, not {value!r}")
