"""Stochastic gradient Langevin dynamics: SGD on the log posterior with injected noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ornstein import theory
from ornstein.checks import brief, checked_damping, is_number
from ornstein.curvature.curvature import Curvature
from ornstein.dynamics.dynamics import Dynamics
from ornstein.dynamics.minibatches import Minibatches
from ornstein.errors import InputError
from ornstein.samplers.tolerable_step import tolerable_step
from ornstein.theory.matrices import Array

PRECONDITIONERS = ("scalar", "diagonal", "full")


@dataclass(frozen=True)
class SGLD:
    """θ' = θ − (εN/2) Gĝ(θ) + N(0, εG) (Welling and Teh 2011: G = I), ĝ the minibatch gradient of
    the mean loss.

    The law that results (G = I) has (N/2)(AΣ+ΣA) − (εN²/4) AΣA = I + (εN²/4S) C: the posterior as ε
    → 0, wider than it at every ε > 0. With `exact=True` the injected noise is N(0, εG − (ε²N/4) G(A
    + (N/S) C)G), and the law *is* the posterior at any ε up to the bound at which that stops being
    a covariance. With `control_variates=True` the gradient is ĝ(θ) − ĝ(θ̂), θ̂ the mode: what
    remains of the gradient noise is its dependence on the spread of θ, K[Σ]. C + K[Σ] stands for C
    throughout.

    `SGLD(exact=True, control_variates=True, preconditioner="full")` takes a fifth of the step (A +
    (N/S) K[A⁻¹/N])⁻¹ and forgets within some steps wherever S rows know something of every
    direction: a draw costs some minibatches then, where the noise of constant SGD makes it cost a
    pass over the data.

    Args:
        step_size: ε in the units of its paper, where the gradient is that of the summed log
            posterior: H = εN/2 on the mean loss. "auto" is the largest ε with predicted KL(sampler
            ‖ posterior) ≤ 0.05; with `exact`, half its bound, or a tenth of it with a
            preconditioner, because steps as long as Newton's are right on a quadratic loss alone.
        schedule: step counts (array) ↦ ε_t (array), for instance `robbins_monro(…)`. No stationary
            law exists then.
        exact: shape the injected noise as above; refuses a step beyond the bound.
        control_variates: take the gradient's difference from the one at the mode (SGLD-CV).
        damping: μ in (0, 1]. Below 1 it is v' = (1−μ)v − (εN/2) Gĝ + N(0, μεG), θ' = θ + v'.
        preconditioner: "scalar": G = I. "full": NG = (μ/(2−μ) A + (N/S) C)⁻¹, for which `exact` has
            the bound ε ≤ 4μ; "diagonal": one over the diagonal of that matrix.

    >>> from ornstein.curvature.curvature import Curvature
    >>> cur = Curvature(
    ...     mode=[0.0, 0.0],
    ...     hessian=[[2.0, 1.0], [1.0, 2.0]],
    ...     noise=[[1.0, 0.0], [0.0, 3.0]],
    ...     n_data=1000,
    ... )
    >>> round(SGLD().tune(cur, batch_size=10).predict(cur).kl_qp, 2)
    0.05
    >>> round(SGLD(exact=True).tune(cur, batch_size=10).predict(cur).kl_qp, 12)
    0.0
    """

    step_size: float | str = "auto"
    schedule: Callable[[Array], Array] | None = None
    exact: bool = False
    control_variates: bool = False
    damping: float = 1.0
    preconditioner: str = "scalar"

    def __post_init__(self) -> None:
        checked_step_size(self.step_size)
        checked_damping(self.damping)
        if self.preconditioner not in PRECONDITIONERS:
            raise InputError(
                f"preconditioner must be one of {PRECONDITIONERS}, not {self.preconditioner!r}"
            )
        if self.schedule is None:
            return
        if self.step_size != "auto":
            raise InputError(
                "give either step_size or a schedule of step sizes, not both; got"
                f" step_size={self.step_size!r}"
            )
        if self.exact:
            raise InputError(
                "exact=True shapes the injected noise for one constant step: it cannot be"
                " combined with a schedule"
            )
        _checked_schedule(self.schedule)

    @property
    def name(self) -> str:
        form = "" if self.preconditioner == "scalar" else f"({self.preconditioner!r})"
        return ("SGLD-CV" if self.control_variates else "SGLD") + form

    def tune(self, curvature: Curvature, batch_size: int, scheme: str = "replacement") -> Dynamics:
        """The Dynamics for this Curvature."""
        minibatches = Minibatches.of(curvature, batch_size, scheme)
        shape = self._shape(curvature, minibatches.effective)

        def build(step_size: float) -> Dynamics:
            return self._at(step_size, shape, curvature, minibatches)

        if self.schedule is not None:
            return build(float(self.schedule(np.zeros(1))[0]))
        if self.exact:
            return build(self._within_bound(shape, curvature, minibatches))
        if isinstance(self.step_size, str):
            unit = theory.normal_modes(curvature.hessian, shape, self.damping)
            return build(
                tolerable_step(
                    build, curvature, 2.0 / curvature.n_data * theory.mean_square_bound(unit, None)
                )
            )
        return build(float(self.step_size))

    def _at(
        self, step_size: float, shape: Array, curvature: Curvature, minibatches: Minibatches
    ) -> Dynamics:
        n_data = curvature.n_data
        step = np.asarray(step_size * n_data / 2.0 * shape)
        injected = np.asarray(self.damping * step_size * shape)
        if self.exact:
            noise, batch = self._noise(curvature), minibatches.effective
            injected = theory.matched_injection(
                curvature.hessian, noise, step, n_data, batch, self.damping
            )
        taken = f"H = εN/2 = {float(step):.6g}" if step.ndim == 0 else "H = (εN/2) G"
        return Dynamics(
            step,
            minibatches.size,
            minibatches.scheme,
            self.damping,
            injected=injected,
            schedule=None if self.schedule is None else RelativeSchedule(self.schedule, step_size),
            control_variates=self.control_variates,
            sampler=self.name,
            notes=(f"step size ε = {step_size:.6g}, that is {taken} on the mean loss",),
        )

    def _shape(self, curvature: Curvature, batch: float) -> Array:
        """G: the inverse of what a step's drift and gradient noise take of the injected noise, or
        of its diagonal.
        """
        if self.preconditioner == "scalar":
            return np.asarray(1.0)
        if self.preconditioner == "full" and curvature.diagonal:
            raise InputError(
                "the full preconditioner needs the full curvature; this one holds only diagonals."
                " Use 'diagonal'"
            )
        given = curvature.hessian, self._noise(curvature), curvature.n_data, batch, self.damping
        if self.preconditioner == "full":
            return theory.exact_preconditioner(*given) / (2.0 * self.damping * curvature.n_data)
        taken = theory.noise_taken_up(*given)
        return 1.0 / (taken if taken.ndim == 1 else np.diagonal(taken)) / curvature.n_data**2

    def _within_bound(self, shape: Array, curvature: Curvature, minibatches: Minibatches) -> float:
        """The step for exact=True: its share of the bound, or the given one if it keeps to the
        bound.
        """
        n_data, noise, batch = curvature.n_data, self._noise(curvature), minibatches.effective
        bound = (
            2.0
            / n_data
            * theory.injection_bound(
                curvature.hessian, noise, n_data, batch, self.damping, shape=shape
            )
        )
        if isinstance(self.step_size, str):
            return bound * (0.5 if self.preconditioner == "scalar" else 0.1)
        if self.step_size > bound * (1.0 - 1e-9):
            raise InputError(
                f"step_size {self.step_size:.4g} is not below {bound:.4g}, the bound 4/(N λ_max(G(A"
                " + (N/S) C))) up to which the noise injected by exact=True is a covariance"
                f" (batch_size={minibatches.size}): use a smaller step or a larger batch"
            )
        return float(self.step_size)

    def _noise(self, curvature: Curvature) -> Array:
        """C + K[A⁻¹/N], or K[A⁻¹/N] alone where control variates remove C."""
        return (
            curvature.effective_noise - curvature.noise
            if self.control_variates
            else curvature.effective_noise
        )


@dataclass(frozen=True)
class RobbinsMonro:
    """ε_t = scale · (offset + t)^(−power); made by `robbins_monro`."""

    scale: float
    offset: float
    power: float

    def __call__(self, steps: Array) -> Array:
        return self.scale * (self.offset + np.asarray(steps, dtype=float)) ** -self.power


def robbins_monro(scale: float, offset: float = 1000.0, power: float = 0.5) -> RobbinsMonro:
    """A decreasing rate ε_t = scale · (offset + t)^(−power), t the number of steps taken.

    A power in (½, 1] meets Robbins and Monro's conditions, Σε_t = ∞ and Σε_t² < ∞. The default is
    the choice of Mandt, Hoffman and Blei for SGLD, scale/√(1000 + t).

    >>> robbins_monro(0.1)(np.array([0.0, 9000.0]))
    array([0.00316228, 0.001     ])
    """
    if not (np.isfinite(scale) and scale > 0.0 and np.isfinite(offset) and offset > 0.0):
        raise InputError(f"scale and offset must be positive; got {scale} and {offset}")
    if not 0.0 < power <= 1.0:
        raise InputError(
            f"power must lie in (0, 1]; got {power}: beyond 1 the steps add up to a finite distance"
        )
    return RobbinsMonro(float(scale), float(offset), float(power))


@dataclass(frozen=True)
class RelativeSchedule:
    """ε_t/ε_0: the factor on H and R that the engine asks for."""

    schedule: Callable[[Array], Array]
    first: float

    def __call__(self, steps: Array) -> Array:
        return np.asarray(self.schedule(steps), dtype=float) / self.first


def checked_step_size(step_size: object) -> None:
    """Refuse what is neither "auto" nor a positive number."""
    if isinstance(step_size, str):
        if step_size != "auto":
            raise InputError(f"step_size must be 'auto' or a positive number; got {step_size!r}")
        return
    if not is_number(step_size) or float(step_size) <= 0:  # type: ignore[arg-type]
        raise InputError(f"step_size must be 'auto' or a positive number; got {brief(step_size)}")


def _checked_schedule(schedule: Callable[[Array], Array]) -> None:
    counts = np.array([0.0, 1.0, 10.0, 1e3, 1e5, 1e7])
    try:
        rates = np.asarray(schedule(counts), dtype=float)
    except Exception as error:
        raise InputError(
            f"schedule must map an array of step counts to step sizes; it fails: {brief(error)}"
        ) from error
    if rates.shape != counts.shape:
        raise InputError(
            f"schedule must map an array of step counts to one of step sizes; {counts.shape} became"
            f" {rates.shape}"
        )
    if not np.all(np.isfinite(rates)) or np.any(rates <= 0.0):
        raise InputError(
            f"schedule must give positive step sizes; it gave {rates} at steps {counts}"
        )
