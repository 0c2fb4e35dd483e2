"""The covariance of a group's effects, b ~ N(0, LLᵀ) with L = diag(τ)R, by the logarithms of the
standard deviations τ and, for each pair that may be correlated, a number w: row i of R is
(w_i, 1)/√(1 + |w_i|²).

Every value of these parameters is a covariance, and a standard deviation near zero leaves the other
numbers as free as they were. Effects of different terms, and those of a term that was declared
uncorrelated, lie in different blocks of L.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from ornstein.types import Array, Traced


@dataclass(frozen=True)
class Covariance:
    """Effects by name, and the sizes of the blocks within which they are correlated.

    >>> covariance = Covariance(("intercept", "days"), (2,))
    >>> covariance.size, covariance.parameters
    (3, ('log sd[intercept]', 'tan cor[days,intercept]', 'log sd[days]'))
    """

    effects: tuple[str, ...]
    blocks: tuple[int, ...]

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Row and column of each parameter in L, row by row."""
        found, start = [], 0
        for block in self.blocks:
            found += [(start + i, start + j) for i in range(block) for j in range(i + 1)]
            start += block
        return tuple(found)

    @property
    def size(self) -> int:
        return len(self.places)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters."""
        names = self.effects
        return tuple(
            f"log sd[{names[i]}]" if i == j else f"tan cor[{names[i]},{names[j]}]"
            for i, j in self.places
        )

    def factor(self, parameters: Traced) -> list[list[Traced]]:
        """L, row by row up to the diagonal."""
        zero = jnp.zeros((), parameters.dtype)
        rows = [[zero] * (i + 1) for i in range(len(self.effects))]
        for i, (deviation, others) in enumerate(self._rows()):
            length = jnp.exp(parameters[deviation])
            if others:
                squares = sum(parameters[place] ** 2 for place in others.values())
                length = length / jnp.sqrt(1.0 + squares)
            rows[i][i] = length
            for j, place in others.items():
                rows[i][j] = length * parameters[place]
        return rows

    def matrix(self, parameters: Array) -> Array:
        """L as matrices (..., q, q), in NumPy; `parameters` is (..., size)."""
        q = len(self.effects)
        found = np.zeros((*parameters.shape[:-1], q, q))
        for i, (deviation, others) in enumerate(self._rows()):
            squares = sum(parameters[..., place] ** 2 for place in others.values())
            found[..., i, i] = np.exp(parameters[..., deviation]) / np.sqrt(1.0 + squares)
            for j, place in others.items():
                found[..., i, j] = found[..., i, i] * parameters[..., place]
        return found

    def _rows(self) -> list[tuple[int, dict[int, int]]]:
        """Of each row of L, where its standard deviation is among the parameters, and by column its
        numbers w.
        """
        deviations = {i: place for place, (i, j) in enumerate(self.places) if i == j}
        others: dict[int, dict[int, int]] = {i: {} for i in deviations}
        for place, (i, j) in enumerate(self.places):
            if i != j:
                others[i][j] = place
        return [(deviations[i], others[i]) for i in range(len(self.effects))]

    def start(self, deviations: Array) -> Array:
        """The parameters of uncorrelated effects with these standard deviations."""
        return np.array([np.log(deviations[i]) if i == j else 0.0 for i, j in self.places])

    def named(self, parameters: Array) -> dict[str, Array]:
        """Standard deviations and correlations of draws (..., size), by name."""
        factor = self.matrix(parameters)
        covariance = factor @ np.swapaxes(factor, -1, -2)
        deviations = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
        found = {f"sd({name})": deviations[..., i] for i, name in enumerate(self.effects)}
        for i, j in self.places:
            if i != j:
                scale = np.maximum(deviations[..., i] * deviations[..., j], 1e-300)
                found[f"cor({self.effects[j]},{self.effects[i]})"] = covariance[..., i, j] / scale
        return found

    def log_prior(
        self, parameters: Traced, scales: Traced, freedom: Traced, concentration: Traced
    ) -> Traced:
        """Half-t priors on the standard deviations, LKJ on the correlations of each block.

        LKJ(η) has density ∝ Π R_ii^(q−1−i+2η−2) in the entries of R below the diagonal, rows
        counted from zero, and ∂R_i/∂w_i = R_ii^(i+2), where log R_ii = −½ log(1 + |w_i|²).
        """
        total, start, rows = jnp.zeros((), parameters.dtype), 0, self._rows()
        for block in self.blocks:
            total = total + _log_lkj_constant(block, concentration)
            for i in range(block):
                deviation, others = rows[start + i]
                log_sd = parameters[deviation]
                total = total + log_sd + _log_half_t(log_sd, scales[start + i], freedom)
                if others:
                    squares = sum(parameters[place] ** 2 for place in others.values())
                    power = (block - 1 - i) + 2.0 * (concentration - 1.0) + (i + 2.0)
                    total = total - 0.5 * power * jnp.log1p(squares)
            start += block
        return total


def _log_half_t(log_value: Traced, scale: Traced, freedom: Traced) -> Traced:
    ratio = jnp.exp(2.0 * log_value) / (freedom * scale**2)
    constant = (
        jnp.log(2.0)
        + gammaln((freedom + 1.0) / 2.0)
        - gammaln(freedom / 2.0)
        - 0.5 * jnp.log(freedom * jnp.pi)
        - jnp.log(scale)
    )
    return constant - 0.5 * (freedom + 1.0) * jnp.log1p(ratio)


def _log_lkj_constant(size: int, concentration: Traced) -> Traced:
    """−log of the integral of Π R_ii^(q−1−i+2η−2) over rows of length one."""
    total = jnp.zeros(())
    for i in range(1, size):
        # the last entry of a row on the unit sphere of i + 1 dimensions, to the power p
        power = (size - 1 - i) + 2.0 * (concentration - 1.0)
        half = 0.5 * power + 1.0
        total = total - (0.5 * i * jnp.log(jnp.pi) + gammaln(half) - gammaln(half + 0.5 * i))
    return total
