"""Two kinds of problems that only the default call has to answer: far from the origin, and with
very few rows. Their posteriors can be drawn from exactly, as those of `suite`.
"""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import numpy as np
import scipy.special
import suite_regressions as r
from quadrature import on_a_line, on_a_plane
from suite import Problem

import ornstein as orn

DRAWS = 20_000

# Columns far from zero, or of sizes far apart: z standard, x = place + size·z
# --------------------------------------------------------------------------------------------------


def _columns(rows, place, size, seed):
    rng = np.random.default_rng(seed)
    place, size = (np.asarray(part, dtype=float) for part in (place, size))
    return place + size * np.round(rng.normal(size=(rows, len(place))), 3), rng


def _known(family, x, rng, size):
    """A response whose predictor moves by about one over the rows, whatever the columns' sizes."""
    predictor = 0.3 + ((x - x.mean(axis=0)) / size) @ (rng.normal(size=x.shape[1]) / 2.0)
    if family == "gaussian":
        return predictor + rng.normal(size=len(x))
    if family == "poisson":
        return rng.poisson(np.exp(predictor)).astype(float)
    return (rng.random(len(x)) < scipy.special.expit(predictor)).astype(float)


def far(family, rows, place, size, precision=0.0, seed=0):
    """An intercept and columns; a flat prior unless `precision` is given."""
    x, rng = _columns(rows, place, size, seed)
    noise = {"noise_scale": 1.0} if family == "gaussian" else {}
    y = _known(family, x, rng, np.asarray(size))
    return orn.glm(x, y, family, prior_precision=precision, **noise)


def draws_of_far(family, rows, place, size, precision=0.0, seed=0):
    """Drawn with centred, scaled columns, and taken back to the columns as they are."""
    x, rng = _columns(rows, place, size, seed)
    y = _known(family, x, rng, np.asarray(size))
    middle, size = x.mean(axis=0), np.asarray(size, dtype=float)
    z = (x - middle) / size
    prior = precision / size**2
    if family == "gaussian":
        root = np.linalg.inv(np.linalg.cholesky(z.T @ z + np.diag(prior)))
        normal = np.random.default_rng(seed + 1).normal(size=(DRAWS, len(size) + 1))
        slopes = np.linalg.solve(z.T @ z + np.diag(prior), z.T @ y) + normal[:, 1:] @ root
        intercept = y.mean() + normal[:, 0] / np.sqrt(rows)
    else:
        sums = np.array([y @ z[:, 0], y.sum()])

        def log_density(t):
            predictors = t[:, :1] * z[:, 0] + t[:, 1:]
            cumulant = np.exp if family == "poisson" else partial(np.logaddexp, 0.0)
            fit = t @ sums - cumulant(predictors).sum(axis=1)
            return fit - 0.5 * prior[0] * t[:, 0] ** 2

        def in_parts(t):
            return np.concatenate(
                [log_density(part) for part in np.array_split(t, 1 + len(t) // 5000)]
            )

        start = np.array([0.0, 0.1])
        found = on_a_plane(in_parts, start, DRAWS, np.random.default_rng(seed + 1))
        slopes, intercept = found[:, :1], found[:, 1]
    slopes = slopes / size
    return np.column_stack([slopes, intercept - slopes @ middle])


def apart(rows, gap, seed=0):
    """Two columns that differ by `gap`, and an intercept; a prior for all that they cannot tell."""
    x, y = _apart(rows, gap, seed)
    return orn.glm(x, y, prior_precision=1.0, noise_scale=1.0, intercept=False)


def _apart(rows, gap, seed):
    rng = np.random.default_rng(seed)
    first = rng.normal(size=rows)
    x = np.column_stack([first, first + gap * rng.normal(size=rows)])
    return x, first + rng.normal(size=rows)


def draws_of_apart(rows, gap, seed=0):
    """In sum and difference, where the columns are one and a small one."""
    x, y = _apart(rows, gap, seed)
    turned = np.column_stack([x.sum(axis=1), x[:, 1] - x[:, 0]]) / np.sqrt(2.0)
    hessian = turned.T @ turned + np.eye(2)
    root = np.linalg.inv(np.linalg.cholesky(hessian))
    normal = np.random.default_rng(seed + 1).normal(size=(DRAWS, 2))
    both = np.linalg.solve(hessian, turned.T @ y) + normal @ root
    return np.column_stack([both[:, 0] - both[:, 1], both[:, 0] + both[:, 1]]) / np.sqrt(2.0)


def _location_row(t, row, h):
    return -0.5 * (h["degrees"] + 1.0) * jnp.log1p((row - t[0]) ** 2 / h["degrees"])


def _responses(rows, place, seed):
    return place + np.random.default_rng(seed).standard_t(5.0, size=rows)


def location(rows, place, degrees=5.0, seed=0):
    """The middle of Student's t, far from the origin; the prior is flat."""
    data = _responses(rows, place, seed)
    init = np.array([np.median(data)])
    return orn.Model(_location_row, data, init=init, hyperparameters={"degrees": degrees})


def draws_of_location(rows, place, degrees=5.0, seed=0):
    data = _responses(rows, place, seed) - place

    def log_density(t):
        square = (data - t[:, None]) ** 2 / degrees
        return -0.5 * (degrees + 1.0) * np.log1p(square).sum(axis=1)

    middle, reach = np.median(data), 40.0 / np.sqrt(rows)
    generator = np.random.default_rng(seed + 1)
    drawn = on_a_line(log_density, middle - reach, middle + reach, DRAWS, generator)
    return place + drawn[:, None]


# Very few rows
# --------------------------------------------------------------------------------------------------


def _waiting_row(t, row, h):
    """The logarithm of a rate, and a time waited."""
    return t[0] - row * jnp.exp(t[0])


def waiting(times):
    return orn.Model(_waiting_row, np.asarray(times, dtype=float), init=np.zeros(1))


def draws_of_waiting(times):
    rates = np.random.default_rng(len(times)).gamma(len(times), size=DRAWS) / np.sum(times)
    return np.log(rates)[:, None]


def _problems(kind, make, truth, rows):
    return [
        Problem(f"{kind}: {name}", kind, partial(make, **given), partial(truth, **given))
        for name, given in rows
    ]


STAMP = {"place": (1.6e9,), "size": (1000.0,)}
FAR = (
    *_problems(
        "far from the origin",
        far,
        draws_of_far,
        [
            ("timestamp, linear", dict(family="gaussian", rows=400, **STAMP)),
            ("timestamp, logistic", dict(family="bernoulli", rows=400, **STAMP, seed=1)),
            ("timestamp, Poisson", dict(family="poisson", rows=400, **STAMP, seed=2)),
            (
                "1e8, 1 and 1e-8, linear",
                dict(family="gaussian", rows=1000, place=(0.0,) * 3, size=(1e8, 1.0, 1e-8), seed=3),
            ),
            (
                "timestamp among others, linear",
                dict(
                    family="gaussian",
                    rows=5000,
                    place=(1.6e9, 0.0, 5.0),
                    size=(1e3, 1.0, 0.1),
                    seed=4,
                ),
            ),
            (
                "years, logistic",
                dict(family="bernoulli", rows=300, place=(2015.0,), size=(5.0,), seed=5),
            ),
            (
                "1e-8, Poisson, a prior",
                dict(
                    family="poisson", rows=300, place=(0.0,), size=(1e-8,), precision=1e-16, seed=6
                ),
            ),
        ],
    ),
    *_problems(
        "far from the origin",
        apart,
        draws_of_apart,
        [("columns 1e-6 apart", dict(rows=500, gap=1e-6))],
    ),
    *_problems(
        "far from the origin",
        location,
        draws_of_location,
        [
            ("a location of 1e6", dict(rows=2000, place=1e6)),
            ("a location of -3e7", dict(rows=500, place=-3e7, seed=1)),
        ],
    ),
)
TINY = (
    *_problems(
        "tiny N",
        r.grouped,
        r.draws_of_grouped,
        [
            ("one row, Poisson", dict(family="poisson", counts=(3,), each=1)),
            ("two rows, Poisson, no event", dict(family="poisson", counts=(0,), each=2)),
            ("four rows, logistic", dict(family="bernoulli", counts=(2,), each=4)),
            ("six rows, logistic, one side", dict(family="bernoulli", counts=(0, 3), each=3)),
        ],
    ),
    *_problems(
        "tiny N",
        r.linear,
        r.draws_of_linear,
        [
            ("one row, linear", dict(kind="white", rows=1, size=1)),
            ("three rows, ten columns, linear", dict(kind="white", rows=3, size=10, seed=1)),
            ("five rows, collinear, linear", dict(kind=1e-3, rows=5, size=3, seed=2)),
        ],
    ),
    *_problems(
        "tiny N",
        waiting,
        draws_of_waiting,
        [
            ("one waiting time", dict(times=(2.0,))),
            ("three waiting times", dict(times=(0.1, 1, 3))),
        ],
    ),
    *_problems(
        "tiny N",
        location,
        draws_of_location,
        [("five rows, Student's t", dict(rows=5, place=0.0, seed=3))],
    ),
)
EXTREMES = (*FAR, *TINY)
