"""Means over windows of T steps: what iterate averaging delivers, exactly and in the limit of long
windows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ornstein.theory.matrices import Array
from ornstein.theory.modes import as_matrix, normal_modes
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
    return Process(
        modes, solve_modes(modes, noise, injected), spacing=window, window=window
    ).covariance()


def sandwich_covariance(hessian: ArrayLike, noise: ArrayLike, n_data: float) -> Array:
    """A⁻¹CA⁻¹/n: the law of the long-window mean for every preconditioner, the posterior only when
    C = A.
    """
    a, c = np.asarray(hessian, dtype=float), np.asarray(noise, dtype=float)
    if a.ndim == 1 and c.ndim == 1:
        return np.asarray(c / a**2 / n_data)
    dimension = a.shape[0]
    left = np.linalg.solve(as_matrix(a, dimension), as_matrix(c, dimension))
    return np.linalg.solve(as_matrix(a, dimension), left.T) / n_data


def transport_map(source: ArrayLike, target: ArrayLike) -> Array:
    """G = V^-½ (V^½ P V^½)^½ V^-½: the symmetric linear map with GVG = P, of all maps from V to P
    the one that moves least.

    Directions in which V has no spread are mapped to zero.

    >>> transport_map([4.0, 1.0], [1.0, 1.0])
    array([0.5, 1. ])
    """
    v, p = np.asarray(source, dtype=float), np.asarray(target, dtype=float)
    if v.ndim == 1 and p.ndim == 1:
        return np.asarray(np.sqrt(np.divide(p, v, out=np.zeros_like(p), where=v > 0)), dtype=float)
    root, inverse = _root_and_inverse(as_matrix(v, v.shape[0]))
    middle, _ = _root_and_inverse(root @ as_matrix(p, v.shape[0]) @ root)
    product = inverse @ middle @ inverse
    return np.asarray((product + product.T) / 2.0, dtype=float)


def _root_and_inverse(matrix: Array) -> tuple[Array, Array]:
    """Symmetric square root of a positive semidefinite matrix, and the (pseudo-)inverse of that
    root.
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    root = np.sqrt(np.maximum(values, 0.0))
    usable = values > values[-1] * values.size * np.finfo(float).eps
    inverse = np.divide(1.0, root, out=np.zeros_like(root), where=usable)
    return (vectors * root) @ vectors.T, (vectors * inverse) @ vectors.T
