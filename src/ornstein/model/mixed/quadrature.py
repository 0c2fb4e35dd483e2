"""The marginal likelihood of a group by adaptive Gauss–Hermite quadrature.

With b = Lz the likelihood of a group is ∫ exp h(z) dz, h(z) = Σ log p(y_i | u_i) + log φ(z),
u = Xβ + ZLz. The nodes of the rule are laid around the mode ẑ of h and scaled by its curvature
there, CCᵀ = −∇²h(ẑ):

    log p(y) = log Σ_k w_k exp(|x_k|² + h(ẑ + √2 C⁻ᵀx_k)) + (q/2) log 2 − log det C.

One node is Laplace's approximation. The search for ẑ is not differentiated. Two Newton steps that
follow it are: they leave ẑ where it is and give it the derivatives that the implicit function
theorem asks for, to second order, so that those of the likelihood are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ornstein.model.mixed.covariance import Covariance
from ornstein.model.mixed.density import RowDensity
from ornstein.model.mixed.predictor import (
    effect_columns,
    fixed_part,
    row_weights,
    rows_that_count,
)
from ornstein.model.mixed.small import backward, cholesky, half_log_determinant, solve
from ornstein.types import PyTree, Traced

LONGEST_MOVE = 2.0  # of a linear predictor in one Newton step
NEAR = 1e-3  # a step so short is followed by two that square it twice
MOST_STEPS = 100


@dataclass(frozen=True)
class QuadratureMarginal:
    """log p(y_g | θ) of one group.

    Attributes:
        density: of a row.
        covariance: of the effects.
        points: nodes in each dimension.
    """

    density: RowDensity
    covariance: Covariance
    points: int

    def __call__(self, params: PyTree, group: PyTree, hyperparameters: PyTree) -> Traced:
        joint = Joint.of(self, params, group)
        mode = joint.mode()
        factor = cholesky(joint.slopes(mode)[1])
        effects = len(mode)
        nodes, log_weights = rule(self.points, effects)
        values = jax.vmap(partial(_at_node, joint, mode, factor))(
            jnp.asarray(nodes, joint.fixed.dtype)
        )
        total = jax.nn.logsumexp(values + jnp.asarray(log_weights, values.dtype))
        return total + 0.5 * effects * np.log(2.0) - half_log_determinant(factor)

    def with_points(self, points: int) -> QuadratureMarginal:
        """The same with another rule."""
        return replace(self, points=points)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["params", "fixed", "columns", "y", "weights", "counts"],
    meta_fields=["density"],
)
@dataclass(frozen=True)
class Joint:
    """h of one group: its rows with the columns of ZL."""

    density: RowDensity
    params: PyTree
    fixed: Traced
    columns: list[Traced]
    y: Traced
    weights: Traced | float
    counts: Traced

    @classmethod
    def of(cls, marginal: QuadratureMarginal, params: PyTree, group: PyTree) -> Joint:
        columns = effect_columns(marginal.covariance, params, group)
        return cls(
            marginal.density,
            params,
            fixed_part(params, group),
            columns,
            group["y"],
            row_weights(group),
            rows_that_count(group),
        )

    def value(self, z: list[Traced]) -> Traced:
        """h(z)."""
        rows = jax.vmap(self.density, (0, 0, None))(self._predictor(z), self.y, self.params)
        prior = sum(-0.5 * entry**2 - 0.5 * np.log(2.0 * np.pi) for entry in z)
        return jnp.sum(jnp.where(self.counts, self.weights * rows, 0.0)) + prior

    def slopes(self, z: list[Traced]) -> tuple[list[Traced], list[list[Traced]]]:
        """∇h and −∇²h at z."""
        slope, curved = jax.vmap(self.density.slopes, (0, 0, None))(
            self._predictor(z), self.y, self.params
        )
        slope, curved = (
            jnp.where(self.counts, self.weights * part, 0.0) for part in (slope, curved)
        )
        gradient = [
            jnp.sum(column * slope) - entry for column, entry in zip(self.columns, z, strict=True)
        ]
        precision = [
            [
                jnp.sum(self.columns[i] * self.columns[j] * curved) + float(i == j)
                for j in range(i + 1)
            ]
            for i in range(len(z))
        ]
        return gradient, precision

    def mode(self) -> list[Traced]:
        """ẑ, by Newton steps that move no linear predictor by more than a bound."""
        still = jax.tree.map(lax.stop_gradient, self)

        def step(state: tuple[list[Traced], Traced, Traced]) -> tuple[PyTree, Traced, Traced]:
            before, _, count = state
            after = still._newton_step(before)
            moves = [jnp.abs(a - b) for a, b in zip(after, before, strict=True)]
            return after, jnp.max(jnp.stack(moves)), count + 1

        def goes_on(state: tuple[list[Traced], Traced, Traced]) -> Traced:
            return (state[1] > NEAR) & (state[2] < MOST_STEPS)

        zero = jnp.zeros((), self.fixed.dtype)
        begin = ([zero] * len(self.columns), zero + jnp.inf, 0)
        z = lax.while_loop(goes_on, step, begin)[0]
        z = [lax.stop_gradient(entry) for entry in z]
        return self._newton_step(self._newton_step(z))

    def _newton_step(self, z: list[Traced]) -> list[Traced]:
        gradient, precision = self.slopes(z)
        step = solve(cholesky(precision), gradient)
        moved = sum(column * entry for column, entry in zip(self.columns, step, strict=True))
        longest = jnp.max(jnp.where(self.counts, jnp.abs(moved), 0.0))
        shorter = LONGEST_MOVE / jnp.maximum(longest, LONGEST_MOVE)
        return [entry + shorter * change for entry, change in zip(z, step, strict=True)]

    def _predictor(self, z: list[Traced]) -> Traced:
        predictor = self.fixed
        for column, entry in zip(self.columns, z, strict=True):
            predictor = predictor + column * entry
        return predictor


def _at_node(joint: Joint, mode: list[Traced], factor: list[list[Traced]], node: Traced) -> Traced:
    moved = backward(factor, [node[i] for i in range(len(mode))])
    return joint.value(
        [entry + np.sqrt(2.0) * move for entry, move in zip(mode, moved, strict=True)]
    )


def rule(points: int, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (count, dimension) and log(w e^{|x|²}) of the product rule.

    >>> nodes, log_weights = rule(1, 2)
    >>> nodes.tolist(), float(np.exp(log_weights[0]).round(12)) == float(np.pi.__round__(12))
    ([[0.0, 0.0]], True)
    """
    nodes, weights = np.polynomial.hermite.hermgauss(points)
    grid = np.array(list(product(nodes, repeat=dimension)))
    logs = np.array(list(product(np.log(weights) + nodes**2, repeat=dimension)))
    return grid, logs.sum(axis=1)
