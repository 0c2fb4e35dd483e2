"""Matrices that may be given whole, as a diagonal or as one number."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def matrix_root(covariance: Array) -> Array:
    """L with LLᵀ = R for a positive semidefinite R, singular ones included."""
    if covariance.ndim < 2:
        return np.asarray(np.sqrt(covariance))
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
