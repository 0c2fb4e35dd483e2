"""Densities that are no Gaussians, spread over rows whose gradients are noisy and add up to it.

Each row adds a linear term, and these sum to zero: they make gradient noise of the size that a
well-specified model has, and change no posterior. Numbers come in as hyperparameters, so that
densities of one kind and size share compiled code.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from quadrature import on_a_line

import ornstein as orn

ROWS, DRAWS = 200, 20_000


def spread(log_density, size, seed, init=None, **numbers):
    """A model whose posterior is exp(log_density(t, numbers)), about one sd wide per parameter."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(ROWS, size)) / np.sqrt(ROWS)
    noise -= noise.mean(axis=0)
    init = np.zeros(size) if init is None else init
    return orn.Model(log_density, noise, init=init, hyperparameters=numbers)


def rooted(size, seed):
    """A matrix that mixes the parameters: sds between a half and two, and correlations."""
    rng = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(rng.normal(size=(size, size)))
    return rotation * np.geomspace(0.5, 2.0, size) if size > 1 else np.ones((1, 1))


# Shoulder and second mode
# --------------------------------------------------------------------------------------------------


def _two_parts(t, row, h):
    """A standard normal and one about `away` that is `width` times as wide."""
    z, away = h["whiten"] @ t, h["whiten"] @ t - h["away"]
    first = jnp.log1p(-h["share"]) - 0.5 * z @ z
    second = jnp.log(h["share"]) - 0.5 * away @ away / h["width"] ** 2
    second = second - len(t) * jnp.log(h["width"])
    return logsumexp(jnp.stack([first, second])) / ROWS + row @ t


def two_parts(size, share, distance=0.0, width=1.0, seed=0):
    away = np.zeros(size)
    away[0] = distance
    whiten = np.linalg.inv(rooted(size, seed))
    return spread(_two_parts, size, seed, whiten=whiten, away=away, share=share, width=width)


def draws_of_two_parts(size, share, distance=0.0, width=1.0, seed=0):
    rng = np.random.default_rng(seed + 1)
    second = rng.random((DRAWS, 1)) < share
    z = rng.normal(size=(DRAWS, size)) * np.where(second, width, 1.0)
    z[:, 0] += distance * second[:, 0]
    return z @ rooted(size, seed).T


# Kinks, edges and heavy tails of the prior in a regression of orthogonal columns
# --------------------------------------------------------------------------------------------------


def _row(t, row, h):
    return -0.5 * (row["y"] - row["x"] @ t) ** 2


def kinked(t, h):
    """A slope to the left of zero and another to its right."""
    return -jnp.sum(jnp.where(t > 0, h["right"] * t, -h["left"] * t))


def ending(t, h):
    """No density below an edge."""
    return jnp.sum(jnp.where(t > h["edge"], 0.0, -jnp.inf))


def heavy(t, h):
    """Student's t."""
    square = jnp.square(t / h["scale"]) / h["degrees"]
    return -0.5 * (h["degrees"] + 1.0) * jnp.sum(jnp.log1p(square))


def _orthogonal(size, seed, rows):
    """Columns of length √rows and a response: least squares puts each parameter at `best`, in sds,
    known to one sd = 1/√rows.
    """
    rng = np.random.default_rng(seed)
    best = rng.normal(size=size)
    columns, _ = np.linalg.qr(rng.normal(size=(rows, size)))
    noise = rng.normal(size=rows)
    noise -= columns @ (columns.T @ noise)
    x = np.sqrt(rows) * columns
    return x, x @ best / np.sqrt(rows) + noise, best


def orthogonal(prior, size, seed=0, rows=ROWS, **numbers):
    """A regression with this prior; `numbers` of it are in sds of the likelihood."""
    x, y, best = _orthogonal(size, seed, rows)
    sd = 1.0 / np.sqrt(rows)
    scaled = {k: v if k == "degrees" else v * sd for k, v in _numbers(numbers, best).items()}
    for slope in {"left", "right"} & scaled.keys():
        scaled[slope] = scaled[slope] / sd**2
    init = np.maximum(best * sd, scaled["edge"] + sd) if "edge" in scaled else best * sd
    return orn.Model(_row, {"x": x, "y": y}, prior, init=init, hyperparameters=scaled)


def draws_of_orthogonal(prior, size, seed=0, rows=ROWS, **numbers):
    """Each parameter has a posterior of its own."""
    _, _, best = _orthogonal(size, seed, rows)
    numbers, rng = _numbers(numbers, best), np.random.default_rng(seed + 1)
    sd = 1.0 / np.sqrt(rows)
    columns = []
    for place in range(size):
        own = {k: v[place] if np.ndim(v) else v for k, v in numbers.items()}

        def log_density(u, own=own, place=place):
            with jax.enable_x64(True):
                prior_log = np.asarray(jax.vmap(lambda one: prior(one[None], own))(u))
            return prior_log - 0.5 * (u - best[place]) ** 2

        low, high = best[place] - 12.0, best[place] + 12.0
        columns.append(sd * on_a_line(log_density, low, high, DRAWS, rng))
    return np.stack(columns, axis=1)


def _numbers(numbers, best):
    """An edge is given in sds below least squares."""
    others = {name: number for name, number in numbers.items() if name != "below"}
    return {**others, "edge": best - numbers["below"]} if "below" in numbers else others


# Wrong gradients
# --------------------------------------------------------------------------------------------------


@jax.custom_jvp
def _misread(t, factor, offset):
    return -0.5 * t @ t


@_misread.defjvp
def _(primals, tangents):
    t, factor, offset = primals
    return _misread(*primals), -(factor * t + offset) @ tangents[0]


def _wrong(t, row, h):
    return _misread(t, h["factor"], h["offset"]) / ROWS + row @ t


def wrong_gradient(size, factor, offset=0.0, seed=0):
    """A standard normal whose gradient is that of another."""
    factor, offset = (np.broadcast_to(np.asarray(v, float), (size,)) for v in (factor, offset))
    return spread(_wrong, size, seed, factor=factor.copy(), offset=offset.copy())


def standard_draws(size, seed=1):
    return np.random.default_rng(seed).normal(size=(DRAWS, size))


# Hierarchies
# --------------------------------------------------------------------------------------------------


def _groups(groups, each, between, seed):
    rng = np.random.default_rng(seed)
    means = between * rng.normal(size=groups)
    group = np.repeat(np.arange(groups, dtype=np.int32), each)
    return {"group": group, "y": means[group] + rng.normal(size=len(group))}


def _centred_row(t, row, h):
    return -0.5 * (row["y"] - t[2:][row["group"]]) ** 2


def _free_row(t, row, h):
    return -0.5 * (row["y"] - t[0] - jnp.exp(t[1]) * t[2:][row["group"]]) ** 2


def _top(t, h):
    return -0.5 * t[0] ** 2 - 0.5 * ((t[1] - h["middle"]) / h["width"]) ** 2


def _centred_prior(t, h):
    inside = (t[2:] - t[0]) * jnp.exp(-t[1])
    return _top(t, h) - 0.5 * inside @ inside - (len(t) - 2) * t[1]


def _free_prior(t, h):
    return _top(t, h) - 0.5 * t[2:] @ t[2:]


def hierarchy(groups, each, between=1.0, middle=0.0, width=0.5, centred=True, seed=0):
    """Normal groups: their common mean μ ~ N(0, 1), log τ ~ N(middle, width²), and the groups'
    means, or those less μ in units of τ.
    """
    data = _groups(groups, each, between, seed)
    row, prior = (_centred_row, _centred_prior) if centred else (_free_row, _free_prior)
    numbers = {"middle": middle, "width": width}
    return orn.Model(row, data, prior, init=np.zeros(groups + 2), hyperparameters=numbers)


def draws_of_hierarchy(groups, each, between=1.0, middle=0.0, width=0.5, centred=True, seed=0):
    """log τ by quadrature, then μ, then the groups."""
    data, rng = _groups(groups, each, between, seed), np.random.default_rng(seed + 1)
    means = np.array([data["y"][data["group"] == g].mean() for g in range(groups)])

    def given(log_tau):
        """Of the means, with the groups integrated out: their variance; of μ: mean and variance."""
        variance = np.exp(2.0 * log_tau) + 1.0 / each
        own = 1.0 / (groups / variance + 1.0)
        return variance, own * means.sum() / variance, own

    def log_density(log_tau):
        variance, mean, own = given(log_tau)
        fit = -0.5 * groups * np.log(variance) - 0.5 * (means**2).sum() / variance
        fit += 0.5 * np.log(own) + 0.5 * mean**2 / own
        return fit - 0.5 * ((log_tau - middle) / width) ** 2

    log_tau = on_a_line(log_density, middle - 10 * width, middle + 10 * width, DRAWS, rng)
    _, mean, own = given(log_tau)
    mu = mean + np.sqrt(own) * rng.normal(size=DRAWS)
    precision = (each + np.exp(-2.0 * log_tau))[:, None]
    centre = (each * means + (mu * np.exp(-2.0 * log_tau))[:, None]) / precision
    theta = centre + rng.normal(size=(DRAWS, groups)) / np.sqrt(precision)
    if not centred:
        theta = (theta - mu[:, None]) * np.exp(-log_tau)[:, None]
    return np.column_stack([mu, log_tau, theta])
