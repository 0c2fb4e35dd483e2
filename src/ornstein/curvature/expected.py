"""−log posterior, its gradient and its Hessian averaged over a Gaussian, in float64.

For models with linear predictors the likelihood's part takes one pass: every row's predictors are
normal variables, and a rule of few points averages over them. For other models it takes a pass for
each of a fixed set of points of the Gaussian; their second moments are exact, and by Stein's
identity E[∇²U] = Σ⁻¹ E[(θ−m) ∇Uᵀ] gradients are enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg

from ornstein.curvature.closed_form import ClosedForm
from ornstein.curvature.derivatives import BatchedDerivatives, derivatives_of
from ornstein.curvature.quadrature import GRID_AXES, Points, grid, paired_points
from ornstein.model.model import Model
from ornstein.theory import Gaussian
from ornstein.types import Array

GRID_POINTS = 21  # per axis, for a model of one or two parameters
FEWEST_PAIRS, PAIRS_PER_PARAMETER = 128, 2
PROBES = 3  # places where a prior must be curved alike to be taken as quadratic


@dataclass(frozen=True, eq=False)
class Expected:
    """E_q[U], E_q[∇U] and E_q[∇²U] of U = −log posterior, up to U's constant."""

    value: float
    slope: Array
    hessian: Array

    @property
    def finite(self) -> bool:
        """Whether q reaches only where U and its derivatives are finite."""
        whole = np.all(np.isfinite(self.slope)) and np.all(np.isfinite(self.hessian))
        return bool(np.isfinite(self.value) and whole)


@dataclass(eq=False)
class Expectation:
    """Averages over Gaussians of one model; `passes` counts how often all rows were read.

    >>> import jax.numpy as jnp
    >>> model = Model(lambda theta, x: -0.5 * (x - theta) ** 2, jnp.arange(3.0), init=jnp.zeros(()))
    >>> found = Expectation(model).over(Gaussian([0.0], [[0.5]]))
    >>> found.slope.round(9), found.hessian.round(9)
    (array([-3.]), array([[3.]]))
    """

    model: Model
    seed: int = 0
    passes: int = 0
    _derivatives: BatchedDerivatives = field(init=False, repr=False)
    _points: Points = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._derivatives, size = derivatives_of(self.model), self.model.dim
        few = size <= GRID_AXES
        pairs = max(FEWEST_PAIRS, PAIRS_PER_PARAMETER * size)
        self._points = grid(size, GRID_POINTS) if few else paired_points(size, pairs, self.seed)

    def over(self, law: Gaussian) -> Expected:
        """Averages over a Gaussian with a whole covariance."""
        prior, rest, count = self._prior(law), self._likelihood(law), self.model.n_data
        return Expected(
            count * (prior[0] + rest[0]), count * (prior[1] + rest[1]), count * (prior[2] + rest[2])
        )

    def _likelihood(self, law: Gaussian) -> tuple[float, Array, Array]:
        if isinstance(self._derivatives, ClosedForm):
            self.passes += 1
            return self._derivatives.expected(law.mean, law.covariance)
        self.passes += len(self._points.weights)
        return self._averaged(law, self._derivatives.values_and_gradients)

    def _prior(self, law: Gaussian) -> tuple[float, Array, Array]:
        """−log prior / N: exactly where it is quadratic, as that of most regressions is."""
        here = self.model.scaled_prior_hessian(law.mean)
        spread = np.random.default_rng(self.seed).standard_normal((PROBES, law.mean.size))
        probes = law.mean + spread * law.standard_deviation
        others = (self.model.scaled_prior_hessian(probe) for probe in probes)
        if all(np.allclose(here, other, rtol=1e-12, atol=0.0) for other in others):
            value, slope = self.model.scaled_prior(law.mean)
            return value + 0.5 * float(np.sum(here * law.covariance)), slope, here
        return self._averaged(law, self.model.scaled_priors)

    def _averaged(
        self, law: Gaussian, values_and_slopes: Callable[[Array], tuple[Array, Array]]
    ) -> tuple[float, Array, Array]:
        """Averages over the points, the Hessian from slopes: R⁻ᵀ E[z (Rᵀ∇)ᵀ] R⁻¹ with θ = m + Rz,
        made symmetric.
        """
        root, weights, places = (
            np.linalg.cholesky(law.covariance),
            self._points.weights,
            self._points.places,
        )
        values, slopes = values_and_slopes(law.mean + places @ root.T)
        inside = (weights[:, None] * places).T @ (slopes @ root)
        half = scipy.linalg.solve_triangular(root, inside, lower=True, trans="T")
        hessian = scipy.linalg.solve_triangular(root, half.T, lower=True, trans="T")
        return float(weights @ values), weights @ slopes, (hessian + hessian.T) / 2.0
