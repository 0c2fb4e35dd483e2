"""Iterate averaging: means over windows of SGD, about one pass over the data each, as draws from
the posterior.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from ornstein import theory
from ornstein.checks import as_numbers, checked_damping, is_whole
from ornstein.curvature.curvature import Curvature
from ornstein.dynamics.dynamics import Dynamics
from ornstein.dynamics.minibatches import Minibatches
from ornstein.errors import InputError, WindowWarning
from ornstein.samplers.noise_floor import SampledNoise, sampled_noise
from ornstein.theory.matrices import Array
from ornstein.theory.modes import as_matrix

PRECONDITIONERS = ("auto", "scalar", "diagonal", "full")
# A window of c relaxation times is short of its limit by 1/c.
ENOUGH = 30.0
# The fastest rate of HA. The faster the chain, the wider its iterates spread and the more they feel
# that the loss is not quadratic: a tenth where the window can be lengthened instead, H ≈ ½A⁻¹ where
# it cannot.
GENTLE, BRISK = 0.1, 0.5
# How far from the bound of stability in mean square to stay.
PART_OF_BOUND = 0.25


@dataclass(frozen=True)
class IASG:
    """Draws are means of `window` successive iterates of constant SGD (Mandt, Hoffman and Blei
    2017, Algorithm 1).

    As windows grow, their covariance approaches the *sandwich* A⁻¹CA⁻¹/(TS) for every step H. With
    T = N/S and C = A that is the posterior. What differs from it (another length of the window, its
    being finite, C ≠ A, noise that depends on θ) is made up for by a linear map of the draws about
    their mean, V^-½(V^½ P V^½)^½V^-½, from the exactly predicted covariance V of the windows to the
    target P. With C = A and long windows it is the scaling by √(TS/N).

    A window should hold 30 relaxation times or more. For a scalar step that needs (S/N) λ_max/λ_min
    < 2/30; `tune` says in its notes whether it does, and warns (WindowWarning) where a window or
    step that was asked for does not.

    Args:
        window: T in steps. "auto" is N/S, or as many as it takes for 30 relaxation times where
            `rescale` allows it.
        step_size: ε of the mean loss: H = ε for scalar, ε/A_kk for diagonal, εA⁻¹ for full; an
            array of shape (D,) or (D, D) is taken as H itself. "auto" is the smallest step whose
            windows hold 30 relaxation times, within a quarter of the stability bound.
        preconditioner: "scalar", "diagonal" or "full"; "auto" is scalar where the window is then
            long enough, else full.
        rescale: apply the linear map. False is the plain Algorithm 1.
        target: "posterior" A⁻¹/N, or "sandwich" A⁻¹CA⁻¹/N, which is robust to misspecification.
        gap: steps thrown away between windows; one relaxation time or two remove what correlation
            they have.
        damping: μ in (0, 1]; below 1 the chain has momentum.

    >>> from ornstein.curvature.curvature import Curvature
    >>> cur = Curvature(
    ...     mode=[0.0, 0.0],
    ...     hessian=[[2.0, 1.0], [1.0, 2.0]],
    ...     noise=[[1.0, 0.0], [0.0, 3.0]],
    ...     n_data=10_000,
    ... )
    >>> tuned = IASG().tune(cur, batch_size=10)
    >>> tuned.window, round(tuned.predict(cur).kl_qp, 12)
    (1000, 0.0)
    """

    window: int | str = "auto"
    step_size: ArrayLike = "auto"
    preconditioner: str = "auto"
    rescale: bool = True
    target: str = "posterior"
    gap: int = 0
    damping: float = 1.0

    def __post_init__(self) -> None:
        if self.preconditioner not in PRECONDITIONERS:
            raise InputError(
                f"preconditioner must be one of {PRECONDITIONERS}, not {self.preconditioner!r}"
            )
        if self.target not in ("posterior", "sandwich"):
            raise InputError(f"target must be 'posterior' or 'sandwich', not {self.target!r}")
        if self.window != "auto" and not (is_whole(self.window) and int(self.window) >= 2):
            raise InputError(
                f"window must be 'auto' or a whole number of steps, 2 or more; got {self.window!r}"
            )
        if not is_whole(self.gap) or self.gap < 0:
            raise InputError(f"gap must be a whole number of steps, 0 or more; got {self.gap!r}")
        checked_damping(self.damping)
        if isinstance(self.step_size, str):
            if self.step_size != "auto":
                raise InputError(
                    f"step_size must be 'auto', a number or an array; got {self.step_size!r}"
                )
            return
        given = as_numbers("step_size", self.step_size)
        if not np.all(np.isfinite(given)) or (given.ndim < 2 and np.any(given <= 0)):
            raise InputError(f"step_size must be positive and finite; got {self.step_size!r}")

    @property
    def name(self) -> str:
        return "IASG" if self.target == "posterior" else "IASG(target='sandwich')"

    def tune(self, curvature: Curvature, batch_size: int, scheme: str = "replacement") -> Dynamics:
        """The Dynamics for this Curvature. Never raises on instability: its prediction says
        `stable=False`.
        """
        problem = _Problem(curvature, Minibatches.of(curvature, batch_size, scheme), self.damping)
        window = problem.pass_length if isinstance(self.window, str) else int(self.window)
        sampled = self._sampled_noise(curvature)
        dynamics, times = self._first_feasible(problem, sampled, window)
        notes = [*sampled.notes, *self._on_preconditioner(problem, window, dynamics)]
        if times == 0.0:  # no stationary law: the prediction says so, and sample refuses
            return replace(dynamics, notes=tuple(notes))
        if times < ENOUGH and self._can_lengthen:
            window = int(np.ceil(ENOUGH * window / times))
            notes.append(
                f"N/S = {problem.pass_length} steps are {times:.3g} relaxation times: {window} are"
                " taken instead"
            )
            dynamics, times = replace(dynamics, window=window), ENOUGH
        notes.append(
            f"a window of {window} steps is {times:.3g} relaxation times (wanted: {ENOUGH:.0f});"
            " passes over the data per draw:"
            f" {(window + self.gap) * problem.minibatches.size / curvature.n_data:.3g}"
        )
        if times < ENOUGH:
            warnings.warn(self._too_short(problem, window, times), WindowWarning, stacklevel=2)
        return replace(dynamics, output_map=self._map(dynamics, curvature), notes=tuple(notes))

    @property
    def _can_lengthen(self) -> bool:
        return self.rescale and isinstance(self.window, str)

    def _sampled_noise(self, curvature: Curvature) -> SampledNoise:
        """The sandwich has no spread where the gradients have no noise; the posterior needs prior
        noise there.

        Windows are mapped to the posterior from any noise that there is, however little: the batch
        size does not matter.
        """
        if self.target == "sandwich":
            return SampledNoise(curvature.effective_noise)
        return sampled_noise(curvature, curvature.effective_noise, batch_size=1.0)

    def _first_feasible(
        self, problem: _Problem, sampled: SampledNoise, window: int
    ) -> tuple[Dynamics, float]:
        """The first step whose window is long enough, else the last; and the window's length in
        relaxation times.
        """
        for step in self._steps(problem, window):
            dynamics = Dynamics(
                step,
                problem.minibatches.size,
                problem.minibatches.scheme,
                self.damping,
                injected=sampled.injected(step, problem.batch),
                window=window,
                gap=int(self.gap),
                target=self.target,
                sampler=self.name,
            )
            times = window / max(dynamics.predict(problem.curvature).relaxation_time, 1e-12)
            if times >= ENOUGH:
                break
        return dynamics, times

    def _steps(self, problem: _Problem, window: int) -> Iterator[Array]:
        """The steps to try, in order."""
        if np.ndim(self.step_size) > 0:
            yield np.asarray(self.step_size, dtype=float)
        elif self.preconditioner != "auto":
            yield self._step(problem, window, self.preconditioner)
        else:
            yield self._step(problem, window, "scalar")
            if isinstance(self.step_size, str):
                yield self._step(
                    problem, window, "diagonal" if problem.curvature.diagonal else "full"
                )

    def _step(self, problem: _Problem, window: int, preconditioner: str) -> Array:
        shape = problem.shape(preconditioner)
        if not isinstance(self.step_size, str):
            return np.asarray(self.step_size, dtype=float) * shape
        fastest = GENTLE if self._can_lengthen else BRISK
        return problem.rate(shape, window, fastest) * shape

    def _map(self, dynamics: Dynamics, curvature: Curvature) -> Array | None:
        """From the predicted covariance of the windows to the target, computed in units of the
        posterior's sds.
        """
        spread = dynamics.predict(curvature).covariance
        if not self.rescale or spread is None:
            return None
        target = curvature.posterior_covariance
        if self.target == "sandwich":
            target = theory.sandwich_covariance(
                curvature.hessian, curvature.noise, curvature.n_data
            )
        if spread.ndim == 1 and target.ndim == 1:
            return theory.transport_map(spread, target)
        unit = curvature.laplace.standard_deviation
        units = np.multiply.outer(unit, unit)
        source, destination = (
            as_matrix(spread, curvature.dim) / units,
            as_matrix(target, curvature.dim) / units,
        )
        return theory.transport_map(source, destination) * np.divide.outer(unit, unit)

    def _on_preconditioner(self, problem: _Problem, window: int, dynamics: Dynamics) -> list[str]:
        if (
            self.preconditioner != "auto"
            or not isinstance(self.step_size, str)
            or dynamics.preconditioner.ndim == 0
        ):
            return []
        return [
            f"with λ_max/λ_min = {problem.condition_number:.3g} no scalar step makes windows of"
            f" {window} steps long enough for the slowest direction and keeps the fastest one near"
            " the mode: H ∝ A⁻¹ is taken"
        ]

    def _too_short(self, problem: _Problem, window: int, times: float) -> str:
        said = (
            f"a window of {window} steps is only {times:.3g} relaxation times long (wanted:"
            f" {ENOUGH:.0f}): "
        )
        bias = (
            "the linear map leans on the predicted covariance"
            if self.rescale
            else f"they are up to {1 / times:.0%} too narrow"
        )
        said += f"neighbouring draws are correlated, and {bias}"
        ways = [
            f"window={int(np.ceil(ENOUGH * window / times))} or more"
            + ("" if self.rescale else " with rescale=True")
        ]
        if not isinstance(self.step_size, str):
            ways.append("step_size='auto' or a larger step")
        if (
            self.preconditioner in ("scalar", "diagonal")
            and problem.condition_number >= 2.0 / ENOUGH * window
        ):
            ways.append(f"preconditioner='full' ({problem.condition(window)})")
        return f"{said}. Use {', or '.join(ways)}, or a smaller batch"


@dataclass(frozen=True, eq=False)
class _Problem:
    """What the choice of step and window is about: where, with which minibatches, with how much
    momentum.
    """

    curvature: Curvature
    minibatches: Minibatches
    damping: float

    @property
    def batch(self) -> float:
        """S/f."""
        return self.minibatches.effective

    @property
    def pass_length(self) -> int:
        """fN/S in whole steps: the window that needs no rescaling."""
        return max(2, round(self.curvature.n_data / self.batch))

    def shape(self, preconditioner: str) -> Array:
        """H at a step size of 1."""
        hessian = self.curvature.hessian
        if preconditioner == "scalar":
            return np.ones(())
        if preconditioner == "diagonal":
            return 1.0 / (hessian if hessian.ndim == 1 else np.diagonal(hessian))
        if hessian.ndim == 1:
            raise InputError(
                "the full preconditioner needs the full curvature; this one holds only diagonals."
                " Use 'diagonal'"
            )
        return self.curvature.n_data * self.curvature.posterior_covariance

    def rate(self, shape: Array, window: int, fastest: float) -> float:
        """The ε that makes a window 30 relaxation times long, if no direction then goes faster than
        `fastest`.
        """
        rates = theory.normal_modes(self.curvature.hessian, shape, self.damping).rates
        largest = float(np.max(rates))
        if self.curvature.hessian_product is not None:
            largest = max(largest, self.curvature.largest_rate(shape))
        # With momentum a rate e relaxes like e/μ and spreads like it.
        limit = fastest * self.damping / largest
        rate = min(1.01 * ENOUGH * self.damping / (window * float(np.min(rates))), limit)
        while not self._stable(0.99 * rate / PART_OF_BOUND * shape) and rate > 1e-9 * limit:
            rate /= 1.5
        return rate

    def _stable(self, step: Array) -> bool:
        """Whether the step is stable in mean square, where the noise depends on θ."""
        response = self.curvature.noise_response
        modes = theory.normal_modes(self.curvature.hessian, step, self.damping)
        if response is None or not modes.stable:
            return modes.stable
        noise, batch = self.curvature.noise / self.batch, self.batch
        solved = theory.solve_modes_responding(
            modes, noise, lambda spread: response(spread) / batch, tolerance=1e-2
        )
        return solved is not None

    @property
    def condition_number(self) -> float:
        values = (
            self.curvature.hessian
            if self.curvature.diagonal
            else np.linalg.eigvalsh(self.curvature.hessian)
        )
        return float(np.max(values) / np.min(values))

    def condition(self, window: int) -> str:
        """The paper's condition for a scalar step, (S/N) λ_max/λ_min < 2/30, in numbers for any
        window.
        """
        ratio = self.condition_number / window
        return (
            f"λ_max/λ_min/T = {ratio:.3g}, where less than 2/{ENOUGH:.0f} = {2 / ENOUGH:.3g} is"
            " needed to be stable at all"
        )
