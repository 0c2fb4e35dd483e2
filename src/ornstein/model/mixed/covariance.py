"""The covariance of a group's effects, b ~ N(0, LLᵀ), by the logarithms of L's diagonal and the
entries below it.

Every value of these parameters is a covariance. Effects of different terms, and those of a term
that was declared uncorrelated, lie in different blocks of L.
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
    (3, ('log L[intercept]', 'L[days,intercept]', 'log L[days]'))
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
            f"log L[{names[i]}]" if i == j else f"L[{names[i]},{names[j]}]" for i, j in self.places
        )

    def factor(self, parameters: Traced) -> list[list[Traced]]:
        """L, row by row up to the diagonal."""
        zero = jnp.zeros((), parameters.dtype)
        rows = [[zero] * (i + 1) for i in range(len(self.effects))]
        for place, (i, j) in enumerate(self.places):
            rows[i][j] = jnp.exp(parameters[place]) if i == j else parameters[place]
        return rows

    def matrix(self, parameters: Array) -> Array:
        """L as matrices (..., q, q), in NumPy; `parameters` is (..., size)."""
        q = len(self.effects)
        found = np.zeros((*parameters.shape[:-1], q, q))
        for place, (i, j) in enumerate(self.places):
            value = parameters[..., place]
            found[..., i, j] = np.exp(value) if i == j else value
        return found

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

        With L = diag(τ)R, rows of R of length one, the volume element of row i (counted from
        zero) is ∂L/∂(τ, R) = τ_iⁱ/R_ii, and LKJ(η) has density ∝ Π R_ii^(q−1−i+2η−2) in R.
        """
        factor = self.factor(parameters)
        total, start = jnp.zeros((), parameters.dtype), 0
        for block in self.blocks:
            total = total + _log_lkj_constant(block, concentration)
            for i in range(block):
                row = factor[start + i][start : start + i + 1]
                squares = sum(entry**2 for entry in row)
                log_length, log_last = 0.5 * jnp.log(squares), jnp.log(row[-1])
                total = total + _log_half_t(0.5 * jnp.log(squares), scales[start + i], freedom)
                total = total + log_last - i * log_length
                if i > 0:
                    power = (block - 1 - i) + 2.0 * (concentration - 1.0) + 1.0
                    total = total + power * (log_last - log_length)
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
