"""Products inside compiled loops."""

from __future__ import annotations

import jax.numpy as jnp

from ornstein.types import Traced

# For so few parameters a product and sum fuses into the loop, where a library call would cost more
# than the arithmetic.
FEW = 32


def applied(matrix: Traced, vector: Traced) -> Traced:
    """A symmetric matrix, given as a number, its diagonal or whole, times a vector.

    >>> applied(jnp.array([2.0, 3.0]), jnp.ones(2)).tolist()
    [2.0, 3.0]
    >>> applied(jnp.array([[2.0, 1.0], [1.0, 3.0]]), jnp.ones(2)).tolist()
    [3.0, 4.0]
    """
    if matrix.ndim < 2:
        return matrix * vector
    return jnp.sum(matrix.T * vector[:, None], axis=0) if vector.size <= FEW else matrix @ vector
