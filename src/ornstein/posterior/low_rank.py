"""A covariance of many parameters as a diagonal plus a few factors, gathered while a chain runs, in
memory O(rank · D).

The states' deviations from their mean are kept as a short stack of rows B, compressed whenever it
is full to its leading principal components in units of the standard deviations (incremental
principal components, as in Ross et al. 2008). Compression only ever drops variance, so BᵀB never
exceeds the scatter of the states, whose diagonal is added up exactly beside it.

At the end the covariance is LLᵀ + diag(d), with d = variance − diag(LLᵀ): the variances are exactly
those of the states, and nothing is counted twice. (SWAG by Maddox et al. 2019 takes half the
diagonal plus half a low-rank part instead, which has the right variances on average but half the
covariances.) In D dimensions n draws of independent parameters have principal components too, with
variances up to (1 + √(D/n))². What stands out of that is kept, shrunk to the variance that its
direction has by the spiked model (Donoho, Gavish and Johnstone 2018); what does not is left to the
diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ornstein.checks import FULL_LIMIT
from ornstein.posterior.moments import Batched
from ornstein.streams import Purpose, stream
from ornstein.types import Array

SPARE = 10  # rows beyond the rank, so that what is dropped too early does not matter


@dataclass(frozen=True, eq=False)
class LowRank:
    """N(mean, LLᵀ + diag(d)): `factors` is L, (D, rank), `diagonal` is d."""

    mean: Array
    diagonal: Array
    factors: Array

    @property
    def variance(self) -> Array:
        return self.diagonal + np.sum(self.factors**2, axis=1)

    @property
    def covariance(self) -> Array:
        """The whole matrix; above 2000 parameters its diagonal."""
        if self.mean.size > FULL_LIMIT:
            return self.variance
        return self.factors @ self.factors.T + np.diag(self.diagonal)

    def draw(self, generator: np.random.Generator) -> Array:
        """One draw."""
        alone, together = (generator.standard_normal(size) for size in self.factors.shape)
        return self.mean + np.sqrt(self.diagonal) * alone + self.factors @ together


def rank_of(keep: str) -> int | None:
    """The rank that "low-rank" or "low-rank:K" asks for; None for anything else.

    >>> rank_of("low-rank"), rank_of("low-rank:50"), rank_of("moments")
    (20, 50, None)
    """
    name, _, rank = str(keep).partition(":")
    if keep == "low-rank":
        return 20
    return int(rank) if name == "low-rank" and rank.isdecimal() and int(rank) > 0 else None


class Sketch(Batched):
    """Takes in the states of several chains, as Moments does, and keeps what stands out of them."""

    arrays = ("count", "mean", "scatter", "jumps", "pairs", "rows", "batch", "waiting")

    def __init__(self, chains: int, dimension: int, rank: int, spacing: int) -> None:
        self.rank = min(rank, dimension)
        kept = min(rank + SPARE, dimension)
        self.begin(chains, dimension, max(kept, 2), spacing)
        self.mean = np.zeros((chains, dimension))
        self.scatter = np.zeros((chains, dimension))
        self.jumps = np.zeros((chains, dimension))
        self.pairs = np.zeros(chains, dtype=int)
        self.rows = np.zeros((chains, kept, dimension))

    def pooled(self) -> tuple[Array, Array]:
        """Mean and covariance of all chains together."""
        law = self.law()
        return law.mean, law.covariance

    def law(self) -> LowRank:
        """The Gaussian of all states taken in so far."""
        whole = self.settled()
        total = int(whole.count.sum())
        mean = whole.count @ whole.mean / total
        shift = whole.mean - mean
        variance = (whole.scatter.sum(axis=0) + whole.count @ shift**2) / (total - 1)
        between = np.sqrt(whole.count)[:, None] * shift
        stack = np.concatenate([whole.rows.reshape(-1, mean.size), between]) / np.sqrt(total - 1)
        sizes, directions = _components(stack, np.sqrt(variance), self.rank)
        jumps = whole.jumps.sum(axis=0) / max(1, int(whole.pairs.sum()))
        excess = _standing_out(sizes, mean.size, total / _correlation_time(jumps, variance))
        factors = np.sqrt(variance)[:, None] * (directions.T * np.sqrt(excess))
        return LowRank(mean, np.maximum(variance - np.sum(factors**2, axis=1), 0.0), factors)

    def draw_into(self, stores: Array, seed: int) -> None:
        """Fill an array (chains, draws, D) with independent draws from the Gaussian."""
        law = self.law()
        for chain, store in enumerate(stores):
            generator = stream(seed, Purpose.LOW_RANK, chain)
            for row in store:
                row[:] = law.draw(generator)

    def absorb(self, chain: int) -> None:
        rows = self.batch[chain, : self.waiting[chain]]
        mean = rows.mean(axis=0)
        centred = rows - mean
        shift = mean - self.mean[chain]
        before, after = self.count[chain], self.count[chain] + len(rows)
        joint = np.sqrt(before * len(rows) / after) * shift
        self.scatter[chain] += np.sum(centred**2, axis=0) + joint**2
        self.jumps[chain] += np.sum(np.diff(rows, axis=0) ** 2, axis=0)
        self.pairs[chain] += len(rows) - 1
        self.mean[chain] += shift * len(rows) / after
        self.count[chain], self.waiting[chain] = after, 0
        stack = np.concatenate([self.rows[chain], centred, joint[None]])
        unit = np.sqrt(self.scatter[chain] / after)
        sizes, directions = _components(stack, unit, self.rows.shape[1])
        self.rows[chain] = np.sqrt(sizes)[:, None] * directions * unit


def _components(stack: Array, unit: Array, count: int) -> tuple[Array, Array]:
    """The `count` leading eigenvalues and eigenvectors (as rows) of XᵀX, X the stack in units of
    `unit`; cost rows² · D.
    """
    scaled = np.divide(stack, unit, out=np.zeros_like(stack), where=unit > 0)
    values, vectors = np.linalg.eigh(scaled @ scaled.T)
    values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
    usable = values > 1e-14 * max(float(values[0]), np.finfo(float).tiny)
    roots = np.sqrt(np.where(usable, values, 1.0))
    directions = np.where(usable, 1.0 / roots, 0.0)[:, None] * (vectors.T @ scaled)
    short = count - len(values)
    return np.pad(np.where(usable, values, 0.0), (0, short)), np.pad(
        directions, ((0, short), (0, 0))
    )


def _correlation_time(jumps: Array, variance: Array) -> float:
    """(1+r)/(1−r) with r the mean correlation of neighbouring states, from E[(x'−x)²] = 2(1−r)
    variance.
    """
    moving = variance > 0
    share = float(np.mean(jumps[moving] / (2.0 * variance[moving]))) if moving.any() else 1.0
    return (2.0 - share) / share if 0.0 < share < 1.0 else 1.0


def _standing_out(sizes: Array, dimension: int, draws: float) -> Array:
    """Variance of each direction beyond the common level, by the spiked model: zero where chance
    explains the component.

    A population variance ℓ (in units of the level) appears as λ = ℓ(1 + γ/(ℓ−1)), γ = D/n, along a
    direction whose squared cosine to the true one is (1 − γ/(ℓ−1)²)/(1 + γ/(ℓ−1)); the variance
    along the direction found is 1 + (ℓ−1)cos².
    """
    if dimension <= len(sizes):
        return sizes
    level = max(dimension - float(sizes.sum()), 0.0) / (dimension - len(sizes))
    if level <= 0.0:
        return sizes
    ratio, noise = sizes / level, dimension / draws
    stands = ratio > (1.0 + np.sqrt(noise)) ** 2
    middle = np.where(stands, ratio, (1.0 + np.sqrt(noise)) ** 2 + 1.0) + 1.0 - noise
    spike = (
        middle + np.sqrt(np.maximum(middle**2 - 4.0 * (middle - 1.0 + noise), 0.0))
    ) / 2.0 - 1.0
    cosine = (1.0 - noise / spike**2) / (1.0 + noise / spike)
    return np.where(stands, level * spike * np.maximum(cosine, 0.0), 0.0)
