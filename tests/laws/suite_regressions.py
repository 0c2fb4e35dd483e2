"""Regressions whose posterior is known: by algebra, by one-dimensional quadrature where columns do
not overlap, or on a plane.
"""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import numpy as np
import scipy.special
from quadrature import on_a_line, on_a_plane

import ornstein as orn

DRAWS = 20_000


def log_likelihood(family, predictor, count, total):
    """Log likelihood of `count` successes or events in `total` rows of one linear predictor."""
    if family == "poisson":
        return count * predictor - total * np.exp(predictor)
    return count * predictor - total * np.logaddexp(0.0, predictor)


# Groups of their own: one coefficient each
# --------------------------------------------------------------------------------------------------


def _grouped(family, counts, each):
    """Rows of one-hot columns, and a response with the given number of events in each group."""
    groups = len(counts)
    x = np.repeat(np.eye(groups), each, axis=0)
    y = np.zeros((groups, each))
    for own, count in zip(y, counts, strict=True):
        for event in range(count):
            own[event % each] += 1.0
    return x, y.ravel()


def grouped(family, counts, each=8, precision=0.1):
    x, y = _grouped(family, counts, each)
    return orn.glm(x, y, family, prior_precision=precision, intercept=False)


def draws_of_grouped(family, counts, each=8, precision=0.1):
    rng = np.random.default_rng(len(counts))

    def log_density(t, count):
        return log_likelihood(family, t, count, each) - 0.5 * precision * t**2

    known = {}
    columns = []
    for count in counts:
        if count not in known:
            reach = min(10.0 / np.sqrt(precision), 60.0)
            grid = np.linspace(-reach, reach, 20_001)
            logs = log_density(grid, count)
            inside = grid[logs > logs.max() - 40.0]
            known[count] = partial(
                on_a_line, partial(log_density, count=count), inside[0], inside[-1]
            )
        columns.append(known[count](DRAWS, rng))
    return np.stack(columns, axis=1)


def few_counts(groups, mean, seed=0):
    return tuple(int(c) for c in np.random.default_rng(seed).poisson(mean, groups))


# A column of few ones
# --------------------------------------------------------------------------------------------------


def _rare(rows, ones, events, events_of_ones):
    x = np.zeros((rows, 1))
    x[:ones] = 1.0
    y = np.zeros(rows)
    y[:events_of_ones] = 1.0
    y[ones : ones + events] = 1.0
    order = np.random.default_rng(0).permutation(rows)
    return x[order], y[order]


def rare(family, rows, ones, events, events_of_ones, precision=1.0):
    """A column with `ones` ones, and an intercept."""
    x, y = _rare(rows, ones, events, events_of_ones)
    return orn.glm(x, y, family, prior_precision=precision)


def draws_of_rare(family, rows, ones, events, events_of_ones, precision=1.0):
    def log_density(t):
        slope, intercept = t[:, 0], t[:, 1]
        fit = log_likelihood(family, intercept, events, rows - ones)
        fit = fit + log_likelihood(family, intercept + slope, events_of_ones, ones)
        return fit - 0.5 * precision * slope**2

    share = events / (rows - ones)
    start = np.log(share) if family == "poisson" else scipy.special.logit(share)
    rng = np.random.default_rng(rows + ones)
    return on_a_plane(log_density, np.array([0.1, start]), DRAWS, rng, reach=12.0)


# Columns nearly the same, and Gaussian regressions with a known noise scale
# --------------------------------------------------------------------------------------------------


def _columns(kind, rows, size, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, size))
    if isinstance(kind, float):  # of the last column, what is its own
        x[:, -1] = x[:, 0] + kind * x[:, -1]
    if kind == "stretched":
        x = x * np.geomspace(1.0, 100.0, size) @ np.linalg.qr(rng.normal(size=(size, size)))[0]
    if kind == "heavy":
        x = rng.standard_t(3.0, size=(rows, size))
    y = x @ rng.normal(size=size) / np.sqrt(size) + rng.normal(size=rows)
    return x, y


def linear(kind, rows, size, precision=1.0, seed=0):
    x, y = _columns(kind, rows, size, seed)
    return orn.glm(x, y, prior_precision=precision, noise_scale=1.0, intercept=False)


def draws_of_linear(kind, rows, size, precision=1.0, seed=0):
    x, y = _columns(kind, rows, size, seed)
    hessian = x.T @ x + precision * np.eye(size)
    root = np.linalg.inv(np.linalg.cholesky(hessian))
    z = np.random.default_rng(seed + 1).normal(size=(DRAWS, size))
    return np.linalg.solve(hessian, x.T @ y) + z @ root


def _classified(kind, rows, size, seed):
    x, response = _columns(kind, rows, size, seed)
    return x, (response > 0.0).astype(float)


def collinear_logistic(gap, rows, precision=1.0, seed=0):
    x, y = _classified(gap, rows, 2, seed)
    return orn.glm(x, y, "bernoulli", prior_precision=precision, intercept=False)


def draws_of_collinear_logistic(gap, rows, precision=1.0, seed=0):
    x, y = _classified(gap, rows, 2, seed)
    sign = 2.0 * y - 1.0

    def log_density(t):
        fit = np.concatenate(
            [-np.logaddexp(0.0, -sign * (part @ x.T)).sum(axis=1) for part in np.array_split(t, 50)]
        )
        return fit - 0.5 * precision * np.sum(t**2, axis=1)

    return on_a_plane(log_density, np.zeros(2), DRAWS, np.random.default_rng(seed + 1), reach=7.0)


# Classes that a line separates
# --------------------------------------------------------------------------------------------------


def _separated(rows, seed):
    x = np.sort(np.random.default_rng(seed).normal(size=rows))
    y = (np.arange(rows) >= rows // 2).astype(float)
    return (x - 0.5 * (x[rows // 2 - 1] + x[rows // 2]))[:, None], y


def separated(rows, precision, seed=0):
    """One column, no intercept, a normal prior."""
    x, y = _separated(rows, seed)
    return orn.glm(x, y, "bernoulli", prior_precision=precision, intercept=False)


def _logistic_row(t, row, h):
    return -jnp.logaddexp(0.0, -row["sign"] * row["x"] @ t)


def _student(t, h):
    square = jnp.sum((t / h["scale"]) ** 2) / h["degrees"]
    return -0.5 * (h["degrees"] + 1.0) * jnp.log1p(square)


def separated_with_heavy_prior(rows, degrees, scale, seed=0):
    x, y = _separated(rows, seed)
    data = {"x": x, "sign": 2.0 * y - 1.0}
    numbers = {"degrees": degrees, "scale": scale}
    return orn.Model(_logistic_row, data, _student, init=np.ones(1), hyperparameters=numbers)


def draws_of_separated(rows, precision=None, degrees=None, scale=None, seed=0):
    x, y = _separated(rows, seed)
    sign = (2.0 * y - 1.0) * x[:, 0]

    def log_density(t):
        fit = -np.logaddexp(0.0, -np.outer(t, sign)).sum(axis=1)
        if degrees is None:
            return fit - 0.5 * precision * t**2
        return fit - 0.5 * (degrees + 1.0) * np.log1p((t / scale) ** 2 / degrees)

    high = 12.0 / np.sqrt(precision) if degrees is None else 2000.0
    rng = np.random.default_rng(seed + 1)
    return on_a_line(log_density, -5.0, high, DRAWS, rng)[:, None]
