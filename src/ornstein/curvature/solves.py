"""Solving P x = b for a precision given by its products: conjugate gradients for many right-hand
sides, with the block of the heaviest parameters as preconditioner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.linalg

from ornstein.curvature.operator import Precision
from ornstein.errors import CurvatureError
from ornstein.types import Array

# Errors of solutions, relative to the right-hand side in the preconditioner's norm. Without a head
# the residual says less about the error: at 1e-2 a variance can be a fiftieth of what it should
# be while χ²/D is right to 1e-4.
TOLERANCE_WITH_HEAD, TOLERANCE_OF_DIAGONAL = 1e-3, 1e-4
MOST_PRODUCTS = 2000


@dataclass(frozen=True, eq=False)
class Head:
    """M: the block of P of the heaviest parameters, whole, and P's diagonal for the others.

    Where M is all of P, it is held in the precision of dense rows.
    """

    heavy: Array  # places of the heavy parameters
    factor: Array  # L with LLᵀ = their block, column by column in memory
    diagonal: Array  # (D,) of P

    @classmethod
    def of(cls, precision: Precision, size: int) -> Head:
        """That of the `size` parameters that the data say most about."""
        if not np.all(precision.diagonal > 0.0):
            raise CurvatureError(
                "neither the data nor the prior determine some parameter: give the prior a"
                " positive precision"
            )
        told = precision.diagonal - precision.prior
        heavy = np.sort(np.argsort(-told, kind="stable")[:size])
        all_of_it = precision.dense and size == told.size
        block = precision.whole() if all_of_it else precision.block(heavy)
        try:
            factor = scipy.linalg.cholesky(
                block.T, lower=True, overwrite_a=True, check_finite=False
            )
        except np.linalg.LinAlgError:
            raise CurvatureError(
                "the precision of the heaviest parameters is not positive definite: columns may be"
                " collinear. Give the prior a positive precision"
            ) from None
        return cls(heavy, np.asfortranarray(factor), precision.diagonal)

    @property
    def whole(self) -> bool:
        """Whether M is P."""
        return self.heavy.size == self.diagonal.size

    @property
    def tolerance(self) -> float:
        """How well systems are to be solved with it."""
        return TOLERANCE_WITH_HEAD if self.heavy.size else TOLERANCE_OF_DIAGONAL

    @cached_property
    def variances(self) -> Array:
        """The diagonal of M⁻¹."""
        found = 1.0 / self.diagonal
        if self.heavy.size:
            lapack = scipy.linalg.lapack
            invert = lapack.strtri if self.factor.dtype == np.float32 else lapack.dtrtri
            inverse, _ = invert(self.factor, lower=1)
            found[self.heavy] = np.einsum("ij,ij->j", inverse, inverse)
        return found

    def solve(self, vectors: Array) -> Array:
        """M⁻¹ times vectors (D, k)."""
        found = vectors / self.diagonal[:, None]
        if self.heavy.size:
            found[self.heavy] = scipy.linalg.cho_solve(
                (self.factor, True), self._block_of(vectors[self.heavy]), check_finite=False
            )
        return found

    def root(self, vectors: Array) -> Array:
        """R times vectors (k, D) laid out in rows, RRᵀ = M⁻¹."""
        found = vectors / np.sqrt(self.diagonal)
        if self.heavy.size:
            found[:, self.heavy] = self._divided(vectors, "T")
        return found

    def root_transposed(self, vectors: Array) -> Array:
        """Rᵀ times vectors (k, D) laid out in rows."""
        found = vectors / np.sqrt(self.diagonal)
        if self.heavy.size:
            found[:, self.heavy] = self._divided(vectors, "N")
        return found

    def inverse_root(self, vectors: Array) -> Array:
        """R⁻¹ times vectors (k, D) laid out in rows."""
        found = vectors * np.sqrt(self.diagonal)
        if self.heavy.size:
            found[:, self.heavy] = self._block_of(vectors[:, self.heavy]) @ self.factor
        return found

    def _block_of(self, vectors: Array) -> Array:
        return np.asarray(vectors, dtype=self.factor.dtype)

    def _divided(self, vectors: Array, how: Literal["T", "N"]) -> Array:
        """L⁻ᵀ ("T") or L⁻¹ ("N") times the heavy parts of rows."""
        heavy = self._block_of(vectors[:, self.heavy]).T
        return np.asarray(
            scipy.linalg.solve_triangular(
                self.factor, heavy, lower=True, trans=how, check_finite=False
            ).T
        )


def solved(
    product: Callable[[Array], Array],
    head: Head,
    right: Array,
    tolerance: float,
    start: Array | None = None,
) -> tuple[Array, int]:
    """P⁻¹ of right-hand sides (D, k), each to its tolerance, and the products with all rows that
    it took, one vector counted as one.
    """
    found = np.zeros_like(right) if start is None else start.copy()
    residual = right.copy() if start is None else right - product(found)
    spent = 0 if start is None else right.shape[1]
    bound = tolerance**2 * np.sum(right * head.solve(right), axis=0)
    conditioned = head.solve(residual)
    energy = np.sum(residual * conditioned, axis=0)
    active = np.flatnonzero(energy > bound)
    direction = conditioned[:, active]
    for _ in range(MOST_PRODUCTS):
        if not active.size:
            return found, spent
        image = product(direction)
        spent += active.size
        curved = np.sum(direction * image, axis=0)
        if not np.all(curved > 0.0):
            raise CurvatureError(
                "the precision is not positive definite: give the prior a positive precision"
            )
        length = energy[active] / curved
        found[:, active] += length * direction
        residual[:, active] -= length * image
        conditioned = head.solve(residual[:, active])
        before, energy[active] = energy[active], np.sum(residual[:, active] * conditioned, axis=0)
        still = energy[active] > bound[active]
        share = energy[active] / before
        direction = (conditioned + share * direction)[:, still]
        active = active[still]
    raise CurvatureError(
        f"linear systems with the precision were not solved in {MOST_PRODUCTS} rounds: columns may"
        " be nearly collinear. Raise head, or give the prior a larger precision"
    )
