"""The linear recursion every sampler is, as plain frozen data.

    v' = (1−μ) v − H ĝ(θ) + ξ,   ξ ~ N(0, R),   θ' = θ + v'

A sampler is a rule that picks H, μ, R and, for averages, a window T; theory/ says what results,
engine/ runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from ornstein.checks import brief, checked_damping, is_whole
from ornstein.compute.kernel import Kernel
from ornstein.curvature.curvature import Curvature
from ornstein.dynamics.kernel import LinearKernel
from ornstein.dynamics.prediction import Prediction, predict
from ornstein.errors import InputError
from ornstein.rows.scheme import checked_scheme
from ornstein.theory.matrices import Array, matrix_root

TARGETS = ("posterior", "sandwich")


@dataclass(frozen=True, eq=False)
class Dynamics:
    """Everything that fixes a sampler's law, besides the model.

    Attributes:
        preconditioner: H, the whole step on the gradient of the mean loss, step size included;
            shape (), (D,) or (D, D).
        batch_size, scheme: how minibatches are drawn.
        damping: μ in (0, 1]; 1 is plain SGD.
        injected: R, covariance of the noise added per step, same shapes; None for none.
        window, gap: draws are means over `window` steps with `gap` steps thrown away in between;
            window 1 delivers iterates.
        output_map: linear map applied to the deviations of the draws from their mean, (), (D,) or
            (D, D); None for none.
        schedule: step count (array) ↦ factor on H and R, for decreasing rates; None is constant.
        control_variates: take ĝ(θ) − ĝ(θ̂) for the gradient, θ̂ the mode.
        sampler: the name of the rule that made it; notes: what the rule has to say about the
            result.
        target: what its law is meant to be: the "posterior" A⁻¹/N or the "sandwich" A⁻¹CA⁻¹/N.
    """

    preconditioner: Array
    batch_size: int
    scheme: str = "replacement"
    damping: float = 1.0
    injected: Array | None = None
    window: int = 1
    gap: int = 0
    output_map: Array | None = None
    schedule: Callable[[Array], Array] | None = None
    control_variates: bool = False
    sampler: str = "custom"
    notes: tuple[str, ...] = ()
    target: str = "posterior"

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "preconditioner", _symmetric("preconditioner", self.preconditioner)
        )
        if self.injected is not None:
            object.__setattr__(self, "injected", _symmetric("injected", self.injected))
        if self.output_map is not None:
            object.__setattr__(self, "output_map", np.asarray(self.output_map, dtype=float))
        object.__setattr__(self, "scheme", checked_scheme(self.scheme))
        if self.target not in TARGETS:
            raise InputError(f"target must be one of {TARGETS}, not {self.target!r}")
        if not is_whole(self.batch_size) or self.batch_size < 1:
            raise InputError(
                f"batch_size must be a whole number, 1 or more; got {self.batch_size!r}"
            )
        checked_damping(self.damping)
        for name, least in (("window", 1), ("gap", 0)):
            value = getattr(self, name)
            if not is_whole(value) or value < least:
                raise InputError(
                    f"{name} must be a whole number, {least} or more; got {brief(value)}"
                )
        positive = (
            self.preconditioner
            if self.preconditioner.ndim < 2
            else np.linalg.eigvalsh(self.preconditioner)
        )
        if np.any(positive <= 0):
            raise InputError(
                f"the preconditioner must be positive definite; its smallest eigenvalue is"
                f" {np.min(positive):.3g}, its largest {np.max(positive):.3g}. Where it was tuned,"
                " features far from zero or nearly collinear are the reason: centre and scale them"
            )

    def predict(self, curvature: Curvature, time: str = "discrete") -> Prediction:
        """What theory says it will do there."""
        if time not in ("discrete", "continuous"):
            raise InputError(f"time must be 'discrete' or 'continuous', not {time!r}")
        return predict(self, curvature, time)

    def kernel(self) -> Kernel:
        """The step as a hashable function for the engine."""
        return LinearKernel(
            self.preconditioner.ndim,
            None if self.injected is None else self.injected.ndim,
            self.damping != 1.0,
            self.control_variates,
        )

    def arrays(self) -> dict[str, Array]:
        """The numbers that `kernel` needs."""
        arrays: dict[str, Array] = {"preconditioner": self.preconditioner}
        if self.damping != 1.0:
            arrays["memory"] = np.asarray(1.0 - self.damping)
        if self._gradient_noise is not None:
            arrays["gradient_root"] = np.sqrt(self._gradient_noise)
        elif self.injected is not None:
            arrays["injected_root"] = matrix_root(self.injected)
        return arrays

    @cached_property
    def _gradient_noise(self) -> Array | None:
        """The diagonal G with R = HGH where there is one, as for prior noise: then one product with
        H does for both.
        """
        if self.injected is None or self.injected.ndim < 2 or self.preconditioner.ndim < 2:
            return None
        factor = scipy.linalg.cho_factor(self.preconditioner)
        inner = scipy.linalg.cho_solve(factor, scipy.linalg.cho_solve(factor, self.injected).T)
        entered = np.maximum(np.diagonal(inner), 0.0)
        error = np.abs((self.preconditioner * entered) @ self.preconditioner - self.injected)
        deviations = np.sqrt(np.maximum(np.diagonal(self.injected), 0.0))
        return entered if np.all(error <= 1e-6 * np.outer(deviations, deviations)) else None


def _symmetric(what: str, value: ArrayLike) -> Array:
    array = np.asarray(value, dtype=float)
    if array.ndim > 2 or (array.ndim == 2 and array.shape[0] != array.shape[1]):
        raise InputError(f"{what} must have shape (), (D,) or (D, D); it has {array.shape}")
    if not np.all(np.isfinite(array)):
        raise InputError(f"{what} holds a value that is not finite")
    if array.ndim == 2:
        if not np.allclose(array, array.T, rtol=1e-6, atol=1e-12 * np.abs(array).max()):
            raise InputError(f"{what} must be symmetric")
        array = (array + array.T) / 2.0
    if what == "injected" and np.any(
        (array if array.ndim < 2 else np.linalg.eigvalsh(array)) < -1e-9 * np.abs(array).max()
    ):
        raise InputError("injected must be a covariance: it has a negative eigenvalue")
    return array


@runtime_checkable
class Sampler(Protocol):
    """A rule that turns a Curvature into a Dynamics; it carries no loop."""

    def tune(self, curvature: Curvature, batch_size: int, scheme: str = "replacement") -> Dynamics:
        """The Dynamics for this Curvature; never raises where the chain would be unstable."""
