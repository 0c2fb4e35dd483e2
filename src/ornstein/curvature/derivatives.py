"""What the curvature asks of a model: full-data derivatives of the likelihood part of the mean
loss, in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from ornstein.curvature.autodiff import Autodiff
from ornstein.curvature.closed_form import ClosedForm
from ornstein.curvature.grouped import MOST_PARAMETERS, GroupDerivatives
from ornstein.model.mixed.model import MixedModel
from ornstein.model.model import Model
from ornstein.types import Array


class Derivatives(Protocol):
    """What the curvature asks of a model: means over all rows of the per-example loss ℓ_n = −log
    p(x_n|θ).
    """

    def value(self, theta: Array) -> float: ...

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]: ...

    def hessian(self, theta: Array) -> Array: ...

    def gradient_moments(self, theta: Array) -> tuple[Array, Array]:
        """Mean and second moment E[gᵢgⱼ] of the per-example gradients."""

    def diagonal_moments(self, theta: Array) -> tuple[Array, Array]:
        """Mean and second moment E[gᵢ²]."""

    def example_gradients(self, theta: Array) -> Iterator[Array]:
        """Gradients of single examples, (rows, D), chunk by chunk in the order of the rows."""

    def hessian_product(self, theta: Array, vector: Array) -> Array: ...

    def squared_hessian(self, theta: Array) -> Callable[[Array], Array] | None:
        """Σ ↦ E[A_nΣA_n], or None where that is out of reach."""

    def part(self, rows: Array) -> Derivatives | None:
        """The same for some of the rows, or None where that is out of reach."""


class BatchedDerivatives(Derivatives, Protocol):
    """The same, and values at many points for the price of fewer passes."""

    def values(self, points: Array) -> Array:
        """`value` at points (M, D), all at once."""

    def values_and_gradients(self, points: Array) -> tuple[Array, Array]:
        """`value_and_gradient` at points (M, D), all at once: shapes (M,) and (M, D)."""


def derivatives_of(model: Model) -> BatchedDerivatives:
    """Closed forms where the model has linear predictors, derivatives of each group for a mixed
    model, automatic differentiation elsewhere.
    """
    if isinstance(model, MixedModel) and model.dim <= MOST_PARAMETERS:
        return GroupDerivatives(model)
    return Autodiff(model) if model.linear is None else ClosedForm(model.linear)
