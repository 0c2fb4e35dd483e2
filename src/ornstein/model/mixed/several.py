"""The marginal likelihood of rows that several factors group: nested, crossed or both.

An example is a set of groups that share no row with others: a group of the outermost factor where
factors are nested, all rows where they are crossed. With b = Lz for the groups of all factors,
h(z) = Σ log p(y_i | u_i) + log φ(z) and H = −∇²h at its mode ẑ, Laplace's approximation is

    log p(y) ≈ Σ log p(y_i | u_i(ẑ)) − ½|ẑ|² − ½ log det H,

which is exact for a gaussian response. No row belongs to two groups of a factor, so that the block
of H for the factor with the most groups (the *inner* one) consists of small blocks D_g. They are
eliminated one by one, and what is left for all others, S = E − Σ_g B_gᵀ D_g⁻¹ B_g, is factorised
whole.

The search for ẑ is not differentiated. Two Newton steps after it are, as in quadrature.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from ornstein.model.mixed.covariance import Covariance
from ornstein.model.mixed.density import RowDensity
from ornstein.model.mixed.predictor import (
    effect_columns,
    fixed_part,
    row_weights,
    rows_that_count,
)
from ornstein.model.mixed.small import backward, cholesky, forward
from ornstein.types import PyTree, Traced

LONGEST_MOVE = 2.0  # of a linear predictor in one Newton step
NEAR = 1e-3  # a step so short is followed by two that square it twice
MOST_STEPS = 100
# Other effects of an example up to which their matrix is factorised entry by entry: XLA's batched
# factorisation of many small matrices can wait for itself forever on a CPU.
BY_HAND = 2

Effects: TypeAlias = tuple[list[Traced], Traced]  # of the inner groups, (groups,) each; all others


@dataclass(frozen=True)
class Grouping:
    """How rows of one example are grouped.

    Attributes:
        sizes: effects of a group, by factor. levels: most groups of an example, by factor.
        inner: the place of the factor that is eliminated.

    >>> Grouping((1, 2), (300, 20), 0).others
    40
    """

    sizes: tuple[int, ...]
    levels: tuple[int, ...]
    inner: int

    @property
    def others(self) -> int:
        """Effects of all other factors together."""
        every = zip(self.sizes, self.levels, strict=True)
        return sum(q * n for place, (q, n) in enumerate(every) if place != self.inner)

    def part(self, factor: int) -> range:
        """Which of the effects by name are a factor's."""
        start = sum(self.sizes[:factor])
        return range(start, start + self.sizes[factor])

    def start(self, factor: int) -> int:
        """Where the effects of a factor begin among all others'."""
        every = zip(self.sizes[:factor], self.levels[:factor], strict=True)
        return sum(q * n for place, (q, n) in enumerate(every) if place != self.inner)


@dataclass(frozen=True)
class SeveralMarginal:
    """log p(y | θ) of one example."""

    density: RowDensity
    covariance: Covariance
    grouping: Grouping

    def __call__(self, params: PyTree, example: PyTree, hyperparameters: PyTree) -> Traced:
        joint = Joint.of(self, params, example)
        mode, factor = joint.mode()
        return joint.value(mode) - factor.half_log_determinant

    def effects(self, params: PyTree, example: PyTree, normals: Traced) -> tuple[Traced, Traced]:
        """A draw of z from the Gaussian at its mode: (groups, effects) of the inner factor, and
        those of the others; `normals` are as many.
        """
        joint = Joint.of(self, params, example)
        mode, factor = joint.mode()
        count = joint.inner_groups * len(mode[0])
        inner = list(normals[:count].reshape(len(mode[0]), -1))
        moved, others = factor.spread((inner, normals[count:]))
        drawn = [entry + move for entry, move in zip(mode[0], moved, strict=True)]
        return jnp.stack(drawn, axis=-1), mode[1] + others

    def inner_groups(self, rows: int) -> int:
        """Most groups of the inner factor in an example with this number of rows."""
        return min(rows, self.grouping.levels[self.grouping.inner])


@dataclass(frozen=True)
class Factor:
    """The Cholesky factor of H in blocks: C of each D_g, G = C⁻¹B, and that of S."""

    inner: list[list[Traced]]
    between: list[Traced]
    others: Traced

    @property
    def half_log_determinant(self) -> Traced:
        inner = sum(jnp.sum(jnp.log(row[-1])) for row in self.inner)
        return inner + jnp.sum(jnp.log(jnp.diagonal(self.others)))

    def solve(self, right: Effects) -> Effects:
        """H⁻¹r."""
        first = forward(self.inner, right[0])
        rest = right[1] - sum(
            block.T @ entry for block, entry in zip(self.between, first, strict=True)
        )
        return self.spread((first, _lower_solve(self.others, rest)))

    def spread(self, normals: Effects) -> Effects:
        """H^(-½)ᵀε: a draw from N(0, H⁻¹) where ε are standard normals."""
        others = _upper_solve(self.others, normals[1])
        inner = [
            entry - block @ others for block, entry in zip(self.between, normals[0], strict=True)
        ]
        return backward(self.inner, inner), others


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["params", "fixed", "columns", "levels", "y", "weights", "counts"],
    meta_fields=["marginal"],
)
@dataclass(frozen=True)
class Joint:
    """h of one example: its rows, the columns of ZL and the group of each row by factor."""

    marginal: SeveralMarginal
    params: PyTree
    fixed: Traced
    columns: list[Traced]
    levels: Traced
    y: Traced
    weights: Traced | float
    counts: Traced

    @classmethod
    def of(cls, marginal: SeveralMarginal, params: PyTree, example: PyTree) -> Joint:
        counts = rows_that_count(example)
        columns = effect_columns(marginal.covariance, params, example)
        return cls(
            marginal,
            params,
            fixed_part(params, example),
            [jnp.where(counts, column, 0.0) for column in columns],
            example["level"],
            example["y"],
            row_weights(example),
            counts,
        )

    @property
    def inner_groups(self) -> int:
        return self.marginal.inner_groups(self.fixed.shape[0])

    @cached_property
    def own(self) -> tuple[list[Traced], Traced]:
        """The columns of the inner factor's effects, and the group of each row."""
        grouping = self.marginal.grouping
        columns = [self.columns[j] for j in grouping.part(grouping.inner)]
        return columns, self.levels[:, grouping.inner]

    @cached_property
    def rest(self) -> list[tuple[Traced, Traced]]:
        """Columns of all other effects, and which of these each row has."""
        grouping, found = self.marginal.grouping, []
        for factor, size in enumerate(grouping.sizes):
            if factor != grouping.inner:
                first = grouping.start(factor) + size * self.levels[:, factor]
                found += [
                    (self.columns[j], first + place)
                    for place, j in enumerate(grouping.part(factor))
                ]
        return found

    def value(self, z: Effects) -> Traced:
        """h(z), without the constant of log φ."""
        rows = jax.vmap(self.marginal.density, (0, 0, None))(
            self._predictor(z), self.y, self.params
        )
        prior = sum(jnp.sum(entry**2) for entry in (*z[0], z[1]))
        return jnp.sum(jnp.where(self.counts, self.weights * rows, 0.0)) - 0.5 * prior

    def mode(self) -> tuple[Effects, Factor]:
        """ẑ, and the factor of H there."""
        zero = jnp.zeros_like(self.fixed, shape=(self.inner_groups,))
        z: Effects = (
            [zero] * len(self.own[0]),
            jnp.zeros_like(self.fixed, shape=(self.marginal.grouping.others,)),
        )
        if self.marginal.density.family == "gaussian":  # h is quadratic
            factor, slope = self._factor_and_slope(z)
            return factor.solve(slope), factor
        still = jax.tree.map(lax.stop_gradient, self)

        def step(state: tuple[Effects, Traced, Traced]) -> tuple[Effects, Traced, Traced]:
            after, longest = still._newton_step(state[0])
            return after, longest, state[2] + 1

        def goes_on(state: tuple[Effects, Traced, Traced]) -> Traced:
            return (state[1] > NEAR) & (state[2] < MOST_STEPS)

        far = jnp.full_like(self.fixed, jnp.inf, shape=())
        z = jax.tree.map(lax.stop_gradient, lax.while_loop(goes_on, step, (z, far, 0))[0])
        z = self._newton_step(self._newton_step(z)[0])[0]
        return z, self._factor_and_slope(z)[0]

    def _newton_step(self, z: Effects) -> tuple[Effects, Traced]:
        factor, slope = self._factor_and_slope(z)
        inner, others = factor.solve(slope)
        longest = jnp.max(jnp.where(self.counts, jnp.abs(self._moved((inner, others))), 0.0))
        shorter = LONGEST_MOVE / jnp.maximum(longest, LONGEST_MOVE)
        after = [entry + shorter * move for entry, move in zip(z[0], inner, strict=True)]
        return (after, z[1] + shorter * others), longest

    def _predictor(self, z: Effects) -> Traced:
        return self.fixed + self._moved(z)

    def _moved(self, z: Effects) -> Traced:
        """ZLz."""
        columns, groups = self.own
        moved = sum(column * entry[groups] for column, entry in zip(columns, z[0], strict=True))
        return moved + sum(column * z[1][places] for column, places in self.rest)

    def _factor_and_slope(self, z: Effects) -> tuple[Factor, Effects]:
        """The factor of H at z, and ∇h there."""
        slope, curved = jax.vmap(self.marginal.density.slopes, (0, 0, None))(
            self._predictor(z), self.y, self.params
        )
        slope, curved = (
            jnp.where(self.counts, self.weights * part, 0.0) for part in (slope, curved)
        )
        own, groups = self.own
        per_group = _summed((self.inner_groups,), groups)
        per_other = partial(_summed, (self.marginal.grouping.others,))
        gradient = [
            per_group(column * slope) - entry for column, entry in zip(own, z[0], strict=True)
        ]
        of_others = sum(per_other(places)(column * slope) for column, places in self.rest) - z[1]
        blocks = [
            [per_group(own[i] * own[j] * curved) + float(i == j) for j in range(i + 1)]
            for i in range(len(own))
        ]
        return self._factorised(blocks, curved), (gradient, of_others)

    def _factorised(self, blocks: list[list[Traced]], curved: Traced) -> Factor:
        own, groups = self.own
        others = self.marginal.grouping.others
        pairs = [
            sum(
                _summed((self.inner_groups, others), groups, places)(left * column * curved)
                for column, places in self.rest
            )
            for left in own
        ]
        corner = jnp.eye(others, dtype=curved.dtype)
        for left, rows in self.rest:
            for right, columns in self.rest:
                corner = corner + _summed((others, others), rows, columns)(left * right * curved)
        factor = cholesky(blocks)
        between = forward([[entry[:, None] for entry in row] for row in factor], pairs)
        rest = corner - sum(block.T @ block for block in between)
        return Factor(factor, between, _lower_factor(rest))


def _summed(shape: tuple[int, ...], *places: Traced) -> Callable[[Traced], Traced]:
    """Numbers of rows added up in an array, each at its place."""
    return lambda rows: jnp.zeros_like(rows, shape=shape).at[places].add(rows)


def _lower_factor(matrix: Traced) -> Traced:
    size = matrix.shape[0]
    if size > BY_HAND:
        return jnp.linalg.cholesky(matrix)
    rows = cholesky([[matrix[i, j] for j in range(i + 1)] for i in range(size)])
    zero = jnp.zeros_like(rows[0][0])
    return jnp.stack([jnp.stack([*row, *[zero] * (size - len(row))]) for row in rows])


def _lower_solve(factor: Traced, vector: Traced) -> Traced:
    if factor.shape[0] > BY_HAND:
        return jax.scipy.linalg.solve_triangular(factor, vector, lower=True)
    return jnp.stack(forward(_rows(factor), list(vector)))


def _upper_solve(factor: Traced, vector: Traced) -> Traced:
    """The transposed factor's inverse times a vector."""
    if factor.shape[0] > BY_HAND:
        return jax.scipy.linalg.solve_triangular(factor, vector, lower=True, trans=1)
    return jnp.stack(backward(_rows(factor), list(vector)))


def _rows(factor: Traced) -> list[list[Traced]]:
    return [[factor[i, j] for j in range(i + 1)] for i in range(factor.shape[0])]
