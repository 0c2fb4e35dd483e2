"""Posteriors that are no Gaussians, with laws that can be drawn from exactly; and sets of draws of
them, right ones and wrong ones whose error is known.

Each density stands for a kind: skew, heavy tails, a kink, an edge of the support, a wide shoulder,
a second mode. A model spreads it over a few rows that say nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import jax.numpy as jnp
import numpy as np
import scipy.stats
from jax.scipy.special import logsumexp

import ornstein as orn
from ornstein.posterior.posterior import Posterior

ROWS = np.zeros(16)
DRAWS = 4000


@dataclass(frozen=True)
class Density:
    """The log density (up to a constant) of D parameters and n exact draws of it."""

    log: Callable[[object], object]
    draws: Callable[[int, np.random.Generator], np.ndarray]


def gaussian(size):
    rng = np.random.default_rng(size)
    root = np.eye(size) + rng.normal(size=(size, size)) / np.sqrt(size)
    precision = np.linalg.inv(root @ root.T)
    return Density(
        lambda t: -0.5 * t @ precision @ t, lambda n, r: r.normal(size=(n, size)) @ root.T
    )


def shoulder(size):
    """A quarter of the mass five times as wide."""

    def log(t):
        square = t @ t
        wide = -0.5 * square / 25.0 - size * np.log(5.0)
        return logsumexp(jnp.stack([np.log(0.75) - 0.5 * square, np.log(0.25) + wide]))

    def draws(n, r):
        return r.normal(size=(n, size)) * np.where(r.random((n, 1)) < 0.25, 5.0, 1.0)

    return Density(log, draws)


def heavy(size):
    return Density(
        lambda t: -2.5 * jnp.sum(jnp.log1p(t**2 / 4.0)), lambda n, r: r.standard_t(4, (n, size))
    )


def skew(size):
    """The logarithm of an exponential."""
    return Density(
        lambda t: jnp.sum(t - jnp.exp(t)), lambda n, r: np.log(r.gamma(1.0, size=(n, size)))
    )


def kink(size):
    return Density(lambda t: -jnp.sum(jnp.abs(t)), lambda n, r: r.laplace(size=(n, size)))


def edge(size):
    """A normal that ends one sd below its mode."""
    law = scipy.stats.truncnorm(-1.0, np.inf)
    return Density(
        lambda t: jnp.sum(jnp.where(t > -1.0, -0.5 * t**2, -jnp.inf)),
        lambda n, r: law.rvs(size=(n, size), random_state=r),
    )


def second_mode(size, distance=8.0, share=0.5):
    """A share of the mass at a distance along the first parameter."""
    away = np.zeros(size)
    away[0] = distance

    def log(t):
        parts = [np.log1p(-share) - 0.5 * t @ t, np.log(share) - 0.5 * (t - away) @ (t - away)]
        return logsumexp(jnp.stack(parts))

    def draws(n, r):
        return r.normal(size=(n, size)) + np.where(r.random((n, 1)) < share, away, 0.0)

    return Density(log, draws)


KINDS = {
    "gaussian": gaussian,
    "shoulder": shoulder,
    "heavy": heavy,
    "skew": skew,
    "kink": kink,
    "edge": edge,
}


@lru_cache
def model_of(kind, size):
    density = KINDS[kind](size) if isinstance(kind, str) else kind(size)
    return orn.Model(
        lambda t, row: density.log(t) / len(ROWS) + 0.0 * row, ROWS, init=np.zeros(size)
    )


def posterior_of(model, draws, **settings):
    """Draws (n, D) as a result that could have come from anywhere."""
    chains = draws.reshape(4, -1, draws.shape[1])
    return Posterior(
        chains, model.names, model.layout, {"sampler": "exact", "thin": 1, **settings}, model=model
    )


# Ways to be wrong
# --------------------------------------------------------------------------------------------------


def _first(draws):
    unit = np.zeros(draws.shape[1])
    unit[0] = 1.0
    return unit


CHANGES = {
    "right": lambda x: x,
    "too wide": lambda x: x.mean(axis=0) + 1.5 * (x - x.mean(axis=0)),
    "too narrow": lambda x: x.mean(axis=0) + (x - x.mean(axis=0)) / 1.5,
    "shifted": lambda x: x + 0.7 * x.std(axis=0) * _first(x),
    "one too wide": lambda x: x + 0.8 * (x - x.mean(axis=0)) * _first(x),
    "slightly shifted": lambda x: x + 0.1 * x.std(axis=0) * _first(x),
}


def error_of(changed, exact):
    """The largest KL between moments along a parameter, both ways, and the largest move of a 5, 50
    or 95 % point in sds; both from large samples.
    """
    means, variances = changed.mean(axis=0) - exact.mean(axis=0), changed.var(axis=0)
    ratio, shift = variances / exact.var(axis=0), means**2 / exact.var(axis=0)
    there = 0.5 * (ratio - 1.0 - np.log(ratio) + shift)
    back = 0.5 * (1.0 / ratio - 1.0 + np.log(ratio) + shift / ratio)
    points = [0.05, 0.5, 0.95]
    moved = np.quantile(changed, points, axis=0) - np.quantile(exact, points, axis=0)
    return float(np.maximum(there, back).max()), float(np.abs(moved / exact.std(axis=0)).max())
