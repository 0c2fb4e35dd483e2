"""Stochastic gradient Fisher scoring: preconditioned SGD with injected noise that the
preconditioner shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from ornstein import theory
from ornstein.checks import as_numbers, brief, is_number
from ornstein.curvature.curvature import Curvature
from ornstein.dynamics.dynamics import Dynamics
from ornstein.dynamics.minibatches import Minibatches
from ornstein.errors import InputError
from ornstein.samplers.constant_sgd import ConstantSGD
from ornstein.samplers.sgld import checked_step_size
from ornstein.theory.matrices import Array
from ornstein.theory.modes import as_matrix, congruence

PRECONDITIONERS = ("scalar", "diagonal", "full")


@dataclass(frozen=True)
class SGFS:
    """θ' = θ − εH ĝ(θ) + √ε H E W, W ~ N(0, I) (Ahn, Korattikara and Welling 2012; Mandt, Hoffman
    and Blei 2017, section 5.2).

    To its law it is constant SGD whose gradients carry the noise C/S + EEᵀ/ε, so it is tuned as
    that: with the full preconditioner H = 2 (εA + (εN/S) C + N EEᵀ)⁻¹ the law *is* the posterior,
    with "diagonal" and "scalar" it is as near as they can be. `tuning="continuous"` is the paper's
    formula, H = (2/N) ((ε/S) C + EEᵀ)⁻¹ and its diagonal and scalar forms.

    Args:
        preconditioner: "full", "diagonal" or "scalar".
        step_size: ε of the mean loss. "auto" is Theorem 1's 2SD/(N tr C).
        injected: E, of shape (), (D,) or (D, k). None takes EEᵀ = (ε/S) C: as much noise again as
            the gradients have.
        max_step: h_max, an upper bound on H (not on the step εH). EEᵀ is then what is missing to
            it, (2/(h_max N) − (ε/S) C) where positive: per parameter, or per eigenvector of C for
            the full preconditioner. `notes` say where it is not.
        tuning: "discrete" (exact) or "continuous" (the paper's).
        damping: μ in (0, 1]; below 1 the chain has momentum.

    >>> from ornstein.curvature.curvature import Curvature
    >>> cur = Curvature(
    ...     mode=[0.0, 0.0],
    ...     hessian=[[2.0, 1.0], [1.0, 2.0]],
    ...     noise=[[1.0, 0.0], [0.0, 3.0]],
    ...     n_data=1000,
    ... )
    >>> round(SGFS(injected=0.1).tune(cur, batch_size=10).predict(cur).kl_qp, 12)
    0.0
    """

    preconditioner: str = "full"
    step_size: float | str = "auto"
    injected: ArrayLike | None = None
    max_step: float | None = None
    tuning: str = "discrete"
    damping: float = 1.0

    def __post_init__(self) -> None:
        if self.preconditioner not in PRECONDITIONERS:
            raise InputError(
                f"preconditioner must be one of {PRECONDITIONERS}, not {self.preconditioner!r}"
            )
        checked_step_size(self.step_size)
        if self.max_step is not None and not (is_number(self.max_step) and self.max_step > 0):
            raise InputError(f"max_step must be positive; got {brief(self.max_step)}")
        if self.max_step is not None and self.injected is not None:
            raise InputError(
                "max_step decides the injected noise: give one of max_step and injected, not both"
            )
        if self.injected is not None:
            as_numbers("injected", self.injected)
        self._as_constant_sgd()  # checks tuning and damping

    @property
    def name(self) -> str:
        return f"SGFS({self.preconditioner!r})"

    def tune(self, curvature: Curvature, batch_size: int, scheme: str = "replacement") -> Dynamics:
        """The Dynamics for this Curvature. Never raises on instability: its prediction says
        `stable=False`.
        """
        batch = Minibatches.of(curvature, batch_size, scheme).effective
        noise = curvature.effective_noise if self.tuning == "discrete" else curvature.noise
        if isinstance(self.step_size, str):
            step_size = theory.theorem_1_rate(noise, curvature.n_data, batch)
        else:
            step_size = float(self.step_size)
        extra, notes = self._extra_noise(curvature, noise, step_size, batch)
        noisier = replace(curvature, noise=_sum(curvature.noise, batch / step_size * extra))
        tuned = self._as_constant_sgd().tune(noisier, batch_size, scheme)
        step, more = self._bounded(tuned.preconditioner, step_size)
        scaled = step if step.ndim else np.full(curvature.dim, float(step))
        added = congruence(scaled, extra) / step_size
        prior_noise = tuned.injected
        return replace(
            tuned,
            preconditioner=step,
            injected=added if prior_noise is None else _sum(added, prior_noise),
            sampler=self.name,
            notes=(f"step size ε = {step_size:.6g}", *tuned.notes, *notes, *more),
        )

    def _as_constant_sgd(self) -> ConstantSGD:
        return ConstantSGD(self.preconditioner, damping=self.damping, tuning=self.tuning)

    def _extra_noise(
        self, curvature: Curvature, noise: Array, step_size: float, batch: float
    ) -> tuple[Array, tuple[str, ...]]:
        """EEᵀ, and what there is to say about it."""
        if self.max_step is not None:
            return self._missing_noise(curvature, noise, step_size, batch)
        if self.injected is None:
            return step_size / batch * noise, ()
        factor = np.asarray(self.injected, dtype=float)
        if factor.shape not in ((), (curvature.dim,)) and factor.shape[:1] != (curvature.dim,):
            raise InputError(
                f"injected must have shape (), (D,) or (D, k) with D = {curvature.dim}; it has"
                f" {factor.shape}"
            )
        if not np.all(np.isfinite(factor)):
            raise InputError("injected holds a value that is not finite")
        return (
            factor @ factor.T if factor.ndim == 2 else np.broadcast_to(factor**2, (curvature.dim,))
        ), ()

    def _missing_noise(
        self, curvature: Curvature, noise: Array, step_size: float, batch: float
    ) -> tuple[Array, tuple[str, ...]]:
        """(2/(h_max N) − (ε/S) C) where positive, in C's eigenbasis or on its diagonal; notes where
        it is not.
        """
        assert self.max_step is not None
        wanted = 2.0 / (self.max_step * curvature.n_data)
        if self.preconditioner == "full" and noise.ndim == 2:
            values, vectors = np.linalg.eigh(noise)
            missing = wanted - step_size / batch * values
            extra = (vectors * np.maximum(missing, 0.0)) @ vectors.T
            which = f"{np.sum(missing < 0)} of {curvature.dim} eigenvectors of C"
        else:
            missing = wanted - step_size / batch * (
                noise if noise.ndim == 1 else np.diagonal(noise)
            )
            extra = np.maximum(missing, 0.0)
            named = [curvature.names[position] for position in np.flatnonzero(missing < 0)]
            which = ", ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "")
        if not np.any(missing < 0):
            return extra, ()
        note = (
            f"max_step: gradient noise alone keeps H below {self.max_step:.4g}, and none is"
            f" injected, for {which}"
        )
        return extra, (note,)

    def _bounded(self, step: Array, step_size: float) -> tuple[Array, tuple[str, ...]]:
        """Hold a searched diagonal or scalar step to max_step where the search went beyond it."""
        if (
            self.max_step is None
            or step.ndim == 2
            or not np.any(step > self.max_step * step_size * (1.0 + 1e-12))
        ):
            return step, ()
        lowered = int(np.sum(step > self.max_step * step_size))
        return np.minimum(step, self.max_step * step_size), (
            f"max_step: {lowered} entries of H were lowered to it",
        )


def _sum(left: Array, right: Array) -> Array:
    if left.ndim == right.ndim:
        return left + right
    return as_matrix(left, left.shape[0]) + as_matrix(right, left.shape[0])
