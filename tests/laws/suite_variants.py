"""Eight more problems of each of eight kinds of `suite`, for the default call: other likelihoods,
priors, links and shapes of tables. Their posteriors can be drawn from exactly too.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import scipy.special
import suite_densities as d
import suite_regressions as r
from quadrature import on_a_line, on_a_plane
from suite import each, orthogonal

import ornstein as orn

DRAWS = 20_000

# One coefficient for each group of rows: as many laws of one parameter
# --------------------------------------------------------------------------------------------------


def _laws_of_one(log_densities, reach, seed):
    """Draws (n, D) of parameters that know nothing of each other, each within `reach` of zero."""
    rng = np.random.default_rng(seed)
    columns = []
    for log_density in log_densities:
        grid = np.linspace(-reach, reach, 20_001)
        logs = log_density(grid)
        inside = grid[logs > logs.max() - 40.0]
        step = grid[1] - grid[0]
        columns.append(on_a_line(log_density, inside[0] - step, inside[-1] + step, DRAWS, rng))
    return np.stack(columns, axis=1)


def _tossed(sizes, events):
    """Rows of one-hot columns for groups of these sizes, with given numbers of events in each."""
    x = np.repeat(np.eye(len(sizes)), sizes, axis=0)
    y = np.concatenate(
        [
            some // size + (np.arange(size) < some % size)
            for size, some in zip(sizes, events, strict=True)
        ]
    )
    order = np.random.default_rng(0).permutation(len(x))
    return x[order], y[order].astype(float)


def uneven(family, sizes, events, precision=1.0):
    x, y = _tossed(sizes, events)
    return orn.glm(x, y, family, prior_precision=precision, intercept=False)


def draws_of_uneven(family, sizes, events, precision=1.0):
    def law(size, some):
        return lambda t: r.log_likelihood(family, t, some, size) - 0.5 * precision * t**2

    laws = [law(size, some) for size, some in zip(sizes, events, strict=True)]
    return _laws_of_one(laws, 12.0 / np.sqrt(precision), len(sizes))


def _event_row(t, row, h):
    predictor = row["x"] @ t
    return row["y"] * predictor - jnp.exp(predictor)


def _lasso(t, h):
    return -h["rate"] * jnp.sum(jnp.abs(t))


def counted_lasso(sizes, events, rate):
    """Poisson counts, and a Laplace prior on the logarithms of rates."""
    x, y = _tossed(sizes, events)
    data, numbers = {"x": x, "y": y}, {"rate": rate}
    start = 0.1 * np.ones(len(sizes))
    return orn.Model(_event_row, data, _lasso, init=start, hyperparameters=numbers)


def draws_of_counted_lasso(sizes, events, rate):
    def law(size, some):
        return lambda t: r.log_likelihood("poisson", t, some, size) - rate * np.abs(t)

    laws = [law(size, some) for size, some in zip(sizes, events, strict=True)]
    return _laws_of_one(laws, 60.0 / rate, len(sizes))


# A kink in every row
# --------------------------------------------------------------------------------------------------


def _responses(groups, rows, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=groups)[:, None] + rng.laplace(size=(groups, rows))


def quantiles(groups, rows, tau=0.5, scale=0.5, seed=0):
    """Quantile regression on groups, `rows` in each."""
    y = _responses(groups, rows, seed)
    x, family = np.repeat(np.eye(groups), rows, axis=0), orn.families.Quantile(tau=tau, scale=scale)
    return orn.glm(x, y.ravel(), family, prior_precision=0.1, intercept=False)


def draws_of_quantiles(groups, rows, tau=0.5, scale=0.5, seed=0):
    def law(y):
        y = np.sort(y)
        below = np.concatenate([[0.0], np.cumsum(y)])

        def log_density(t):
            # Σ of y − t over the rows above t, and of t − y over those below
            count = np.searchsorted(y, t)
            under = count * t - below[count]
            over = below[-1] - below[count] - (rows - count) * t
            return -(tau * over + (1.0 - tau) * under) / scale - 0.05 * t**2

        return log_density

    return _laws_of_one([law(y) for y in _responses(groups, rows, seed)], 12.0, seed + 1)


# Edges on both sides, and a slope towards an edge
# --------------------------------------------------------------------------------------------------


def within(t, h):
    """A density between two edges only."""
    inside = (t > h["edge"]) & (t < h["edge"] + h["wide"])
    return jnp.sum(jnp.where(inside, 0.0, -jnp.inf))


# Regressions with a known noise scale
# --------------------------------------------------------------------------------------------------


def _powers(rng, rows, size):
    return np.linspace(0.0, 1.0, rows)[:, None] ** np.arange(size)


def _trap(rng, rows, size):
    """One column for each group, and one of ones, which they add up to."""
    return np.column_stack([np.eye(size - 1)[np.arange(rows) % (size - 1)], np.ones(rows)])


def _pooled(rng, rows, size):
    """Columns that are ten others, mixed, and next to nothing of their own."""
    mixed = rng.normal(size=(rows, 10)) @ rng.normal(size=(10, size)) / 3.0
    return mixed + 1e-3 * rng.normal(size=(rows, size))


def _few_ones(rng, rows, size):
    """Normal columns, and at the end one that is 1 in one row."""
    return np.column_stack([rng.normal(size=(rows, size - 1)), np.arange(rows) == rows // 2])


TABLES: dict[str, Callable[..., np.ndarray]] = {
    "powers": _powers,
    "trap": _trap,
    "pooled": _pooled,
    "few ones": _few_ones,
}


def _known(table, rows, size, seed):
    rng = np.random.default_rng(seed)
    x = TABLES[table](rng, rows, size)
    return x, x @ rng.normal(size=size) / np.sqrt(size) + rng.normal(size=rows)


def algebraic(table, rows, size, precision=1.0, seed=0):
    x, y = _known(table, rows, size, seed)
    return orn.glm(x, y, prior_precision=precision, noise_scale=1.0, intercept=False)


def draws_of_algebraic(table, rows, size, precision=1.0, seed=0):
    x, y = _known(table, rows, size, seed)
    hessian = x.T @ x + precision * np.eye(size)
    root = np.linalg.inv(np.linalg.cholesky(hessian))
    return (
        np.linalg.solve(hessian, x.T @ y)
        + np.random.default_rng(seed + 1).normal(size=(DRAWS, size)) @ root
    )


# Classes that a line or a plane separates
# --------------------------------------------------------------------------------------------------


def _log_chance(link, predictor):
    """log P(y = 1) and log P(y = 0)."""
    if link == "probit":
        return scipy.special.log_ndtr(predictor), scipy.special.log_ndtr(-predictor)
    if link == "cloglog":
        odds = np.exp(predictor)
        return np.log(-np.expm1(-odds)), -odds
    return -np.logaddexp(0.0, -predictor), -np.logaddexp(0.0, predictor)


def _apart(rows, columns, seed):
    x = np.random.default_rng(seed).normal(size=(rows, columns))
    y = (x @ [1.0, -0.5][:columns] > 0.0).astype(float)
    return x, y


def parted(rows, precision, columns=1, link="logit", seed=0):
    x, y = _apart(rows, columns, seed)
    return orn.glm(x, y, "bernoulli", prior_precision=precision, intercept=False, link=link)


def draws_of_parted(rows, precision, columns=1, link="logit", seed=0):
    x, y = _apart(rows, columns, seed)

    def of_some(t):
        with np.errstate(over="ignore", divide="ignore"):
            one, other = _log_chance(link, t @ x.T)
        fit = np.where(y > 0.0, one, other).sum(axis=1)
        return fit - 0.5 * precision * np.sum(t**2, axis=1)

    def log_density(t):
        parts = np.array_split(t, 1 + t.shape[0] * rows // 2_000_000)
        return np.concatenate([of_some(part) for part in parts])

    rng = np.random.default_rng(seed + 1)
    if columns == 2:
        return on_a_plane(log_density, np.array([1.0, -0.5]), DRAWS, rng)
    return _laws_of_one([lambda t: log_density(t[:, None])], 12.0 / np.sqrt(precision), seed + 1)


def _many(count, low, high, seed=0):
    """Numbers of events for many groups."""
    return tuple(int(n) for n in np.random.default_rng(seed).integers(low, high + 1, count))


KINK = each(
    "kink",
    quantiles,
    draws_of_quantiles,
    [
        ("medians, 20 rows", dict(groups=1, rows=20)),
        ("medians, 3 groups of 50", dict(groups=3, rows=50, seed=1)),
        ("90 % points, 2 groups of 100", dict(groups=2, rows=100, tau=0.9, seed=2)),
        ("medians, 5 groups of 400", dict(groups=5, rows=400, seed=3)),
        ("10 % points, 4 groups of 1,000", dict(groups=4, rows=1000, tau=0.1, seed=4)),
    ],
) + each(
    "kink",
    counted_lasso,
    draws_of_counted_lasso,
    [
        ("lasso, Poisson, 2 groups", dict(sizes=(20, 30), events=(19, 33), rate=5.0)),
        ("lasso, Poisson, no event", dict(sizes=(8, 8, 8), events=(0, 8, 9), rate=2.0)),
        ("lasso, Poisson, uneven", dict(sizes=(5, 50, 500), events=(5, 60, 510), rate=10.0)),
    ],
)
EDGE = [
    *orthogonal(
        "edge",
        d.ending,
        [
            ("at the mode, D = 1", dict(size=1, below=0.0, seed=10)),
            ("beyond the mode, D = 2", dict(size=2, below=-0.5, seed=11)),
            ("far beyond the mode, D = 1", dict(size=1, below=-2.0, seed=12)),
            ("3.5 sd, D = 3", dict(size=3, below=3.5, seed=13)),
        ],
    ),
    *orthogonal(
        "edge",
        within,
        [
            ("both sides, 2 sd, D = 1", dict(size=1, below=2.0, wide=4.0, seed=14)),
            ("both sides, 1 sd, D = 3", dict(size=3, below=1.0, wide=2.0, seed=15)),
            ("both sides, 3 sd and 1, D = 5", dict(size=5, below=3.0, wide=4.0, seed=16)),
            ("both sides, 2.5 sd, D = 10", dict(size=10, below=2.5, wide=5.0, seed=17)),
        ],
    ),
]
RARE = each(
    "rare column",
    uneven,
    draws_of_uneven,
    [
        ("logistic, 1 and 499 rows", dict(family="bernoulli", sizes=(1, 499), events=(1, 200))),
        (
            "logistic, 2, 3 and 995",
            dict(family="bernoulli", sizes=(2, 3, 995), events=(1, 0, 90)),
        ),
        (
            "logistic, 20 columns of 1",
            dict(family="bernoulli", sizes=(*[1] * 20, 980), events=(*[1, 0] * 10, 500)),
        ),
        (
            "Poisson, 1, 5 and 600",
            dict(family="poisson", sizes=(1, 5, 600), events=(1, 2, 100)),
        ),
        (
            "Poisson, 30 columns of 2, weak prior",
            dict(
                family="poisson",
                sizes=(*[2] * 30, 2000),
                events=(*[1, 2] * 15, 700),
                precision=0.25,
            ),
        ),
    ],
) + each(
    "rare column",
    algebraic,
    draws_of_algebraic,
    [
        ("linear, 1 of 500", dict(table="few ones", rows=500, size=1 + 1)),
        ("linear, 1 of 5,000 among 10", dict(table="few ones", rows=5000, size=11, seed=1)),
        (
            "linear, 1 of 800, weak prior",
            dict(table="few ones", rows=800, size=4, precision=0.01, seed=2),
        ),
    ],
)
COLLINEAR = each(
    "collinear",
    algebraic,
    draws_of_algebraic,
    [
        ("powers of x up to 5", dict(table="powers", rows=200, size=6)),
        ("powers of x up to 11", dict(table="powers", rows=1000, size=12, precision=0.01)),
        ("groups and a constant", dict(table="trap", rows=300, size=6, seed=1)),
        (
            "groups and a constant, weak prior",
            dict(table="trap", rows=2000, size=9, precision=1e-3),
        ),
        ("60 columns of 10", dict(table="pooled", rows=600, size=60, seed=2)),
    ],
) + each(
    "collinear",
    r.collinear_logistic,
    r.draws_of_collinear_logistic,
    [
        ("logistic, a thousandth", dict(gap=1e-3, rows=300, seed=3)),
        ("logistic, a hundredth, weak prior", dict(gap=0.01, rows=2000, precision=0.1, seed=4)),
        ("logistic, a tenth, 4,000 rows", dict(gap=0.1, rows=4000, seed=5)),
    ],
)
SEPARABLE = each(
    "separable",
    parted,
    draws_of_parted,
    [
        ("a plane, 50 rows", dict(rows=50, precision=1.0, columns=2)),
        ("a plane, 150 rows", dict(rows=150, precision=1.0, columns=2, seed=1)),
        ("a plane, 60 rows, weaker prior", dict(rows=60, precision=0.1, columns=2, seed=2)),
        ("probit, 40 rows", dict(rows=40, precision=1.0, link="probit", seed=3)),
        ("cloglog, 60 rows", dict(rows=60, precision=1.0, link="cloglog", seed=4)),
        ("800 rows, weaker prior", dict(rows=800, precision=0.1, seed=5)),
    ],
) + each(
    "separable",
    uneven,
    draws_of_uneven,
    [
        (
            "no event in a group",
            dict(family="bernoulli", sizes=(12, 40, 60), events=(0, 20, 60), precision=0.1),
        ),
        (
            "all events in a group of 700",
            dict(family="bernoulli", sizes=(20, 700), events=(9, 700), precision=0.04),
        ),
    ],
)
HIERARCHICAL = each(
    "hierarchical",
    d.hierarchy,
    d.draws_of_hierarchy,
    [
        ("8 groups of 1, free", dict(groups=8, each=1, centred=False, seed=10)),
        ("8 groups of 100", dict(groups=8, each=100, seed=11)),
        ("20 groups of 30", dict(groups=20, each=30, seed=12)),
        ("20 groups of 4, free", dict(groups=20, each=4, centred=False, seed=13)),
        ("3 groups of 200, wide", dict(groups=3, each=200, between=2.0, width=0.8, seed=14)),
        ("5 groups of 8, free", dict(groups=5, each=8, width=0.7, centred=False, seed=15)),
        ("60 groups of 10", dict(groups=60, each=10, width=0.3, seed=16)),
        ("15 groups of 2, alike, free", dict(groups=15, each=2, between=0.1, centred=False)),
    ],
)
MANY_ROWS = [
    *each(
        "N > 50,000",
        uneven,
        draws_of_uneven,
        [
            (
                "logistic, 3 groups",
                dict(family="bernoulli", sizes=(20_000, 30_000, 5000), events=(9000, 700, 40)),
            ),
            (
                "logistic, no event among 55,000",
                dict(family="bernoulli", sizes=(55_000, 3000), events=(0, 1500), precision=0.1),
            ),
            (
                "Poisson, 12 groups",
                dict(family="poisson", sizes=(5000,) * 12, events=_many(12, 2, 900)),
            ),
            (
                "Poisson, 1 row and 80,000",
                dict(family="poisson", sizes=(1, 80_000), events=(1, 9000)),
            ),
        ],
    ),
    *each(
        "N > 50,000",
        r.linear,
        r.draws_of_linear,
        [
            ("linear, 300,000 rows", dict(kind="white", rows=300_000, size=5, seed=10)),
            ("linear, a hundredth of its own", dict(kind=0.01, rows=60_000, size=4, seed=11)),
            ("linear, stretched, D = 50", dict(kind="stretched", rows=60_000, size=50, seed=12)),
        ],
    ),
    *each(
        "N > 50,000",
        quantiles,
        draws_of_quantiles,
        [("medians, 2 groups of 30,000", dict(groups=2, rows=30_000, seed=5))],
    ),
]
WIDE = [
    *each(
        "D > 200",
        r.linear,
        r.draws_of_linear,
        [
            ("linear, D = 400", dict(kind="white", rows=2000, size=400, seed=10)),
            ("linear, collinear", dict(kind=0.01, rows=1500, size=230, seed=11)),
            ("linear, 40 rows", dict(kind="white", rows=40, size=250, seed=12)),
        ],
    ),
    *each(
        "D > 200",
        r.grouped,
        r.draws_of_grouped,
        [
            (
                "Poisson, D = 300",
                dict(family="poisson", counts=_many(300, 20, 60), each=4, precision=1.0),
            ),
            (
                "logistic, 15 rows each",
                dict(family="bernoulli", counts=_many(220, 3, 12), each=15, precision=1.0),
            ),
            (
                "logistic, 4 rows each",
                dict(family="bernoulli", counts=_many(205, 0, 4), each=4, precision=1.0),
            ),
        ],
    ),
    *each(
        "D > 200",
        algebraic,
        draws_of_algebraic,
        [("linear, 250 columns of 10", dict(table="pooled", rows=1000, size=250, seed=3))],
    ),
    *each(
        "D > 200",
        d.hierarchy,
        d.draws_of_hierarchy,
        [("220 groups of 25", dict(groups=220, each=25, width=0.3, seed=17))],
    ),
]
VARIANTS = (
    *KINK,
    *EDGE,
    *RARE,
    *COLLINEAR,
    *SEPARABLE,
    *HIERARCHICAL,
    *MANY_ROWS,
    *WIDE,
)
