"""Means over windows of T steps: what iterate averaging delivers, exactly and in the limit of long windows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ornstein.theory.modes import Array, as_matrix, normal_modes
from ornstein.theory.stationary import Process, solve_modes


def window_covariance(
    hessian: ArrayLike,
    noise: ArrayLike,
    preconditioner: ArrayLike,
    window: int,
    *,
    damping: float = 1.0,
    injected: ArrayLike | None = None,
) -> Array:
    """Covariance of the mean of `window` successive stationary iterates, exact in discrete time.

    `noise` is the covariance of one minibatch gradient, f·C/S.

    >>> one = window_covariance([[1.0]], [[1.0]], 0.5, window=1)
    >>> float(one[0, 0])
    0.33333333333333...
    """
    modes = normal_modes(hessian, preconditioner, damping)
    return Process(modes, solve_modes(modes, noise, injected), spacing=window, window=window).covariance()


def sandwich_covariance(hessian: ArrayLike, noise: ArrayLike, n_data: float) -> Array:
    """A⁻¹CA⁻¹/n: the law of the long-window mean for every preconditioner, the posterior only when C = A."""
    a, c = np.asarray(hessian, dtype=float), np.asarray(noise, dtype=float)
    if a.ndim == 1 and c.ndim == 1:
        return np.asarray(c / a**2 / n_data)
    dimension = a.shape[0]
    left = np.linalg.solve(as_matrix(a, dimension), as_matrix(c, dimension))
    return np.linalg.solve(as_matrix(a, dimension), left.T) / n_data
