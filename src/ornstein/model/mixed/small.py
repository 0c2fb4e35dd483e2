"""Factors and solutions of small symmetric matrices, written out entry by entry.

A library call for every group costs more than the few products that a matrix of one to three
columns needs, and XLA's own batched factorisation can wait for itself forever on a CPU. Matrices
are lists of rows of scalars here, so that compiled code for many groups works on whole arrays.
"""

from __future__ import annotations

from typing import TypeAlias

import jax.numpy as jnp

from ornstein.types import Traced

Matrix: TypeAlias = list[list[Traced]]
Vector: TypeAlias = list[Traced]


def cholesky(matrix: Matrix) -> Matrix:
    """The lower triangle C with CCᵀ = matrix; what stands above its diagonal is not read.

    >>> factor = cholesky([[jnp.array(4.0), None], [jnp.array(2.0), jnp.array(2.0)]])
    >>> [[float(entry) for entry in row] for row in factor]
    [[2.0], [1.0, 1.0]]
    """
    factor: Matrix = []
    for i, row in enumerate(matrix):
        found: Vector = []
        for j in range(i):
            rest = row[j] - _dot(found, factor[j][:j])
            found.append(rest / factor[j][j])
        found.append(jnp.sqrt(row[i] - _dot(found, found)))
        factor.append(found)
    return factor


def forward(factor: Matrix, vector: Vector) -> Vector:
    """C⁻¹v."""
    found: Vector = []
    for i, row in enumerate(factor):
        found.append((vector[i] - _dot(row[:i], found)) / row[i])
    return found


def backward(factor: Matrix, vector: Vector) -> Vector:
    """C⁻ᵀv."""
    size = len(factor)
    found: Vector = [vector[0]] * size
    for i in reversed(range(size)):
        rest = vector[i]
        for j in range(i + 1, size):
            rest = rest - factor[j][i] * found[j]
        found[i] = rest / factor[i][i]
    return found


def solve(factor: Matrix, vector: Vector) -> Vector:
    """(CCᵀ)⁻¹v."""
    return backward(factor, forward(factor, vector))


def half_log_determinant(factor: Matrix) -> Traced:
    """½ log det(CCᵀ)."""
    total = jnp.log(factor[0][0])
    for i in range(1, len(factor)):
        total = total + jnp.log(factor[i][i])
    return total


def _dot(left: Vector, right: Vector) -> Traced | float:
    total: Traced | float = 0.0
    for a, b in zip(left, right, strict=True):
        total = total + a * b
    return total
