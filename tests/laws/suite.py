"""The suite: over a hundred problems of twelve kinds whose posterior can be drawn from exactly.

`PROBLEMS` is the table. `TUNING` is the half on which thresholds may be fixed, `REPORTING` the
half on which rates are reported. `fit_error.error_of_fit(posterior, problem.truth())` is how wrong
a fit is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import suite_densities as d
import suite_regressions as r


@dataclass(frozen=True)
class Problem:
    """`make()` gives the Model, `truth()` reference draws (n, D) of its posterior, independent and
    in the order of the model's parameters; `modes` is how many separate modes these have.
    """

    name: str
    kind: str
    make: Callable[[], Any]
    truth: Callable[[], np.ndarray]
    modes: int = 1


def each(kind, make, truth, rows, modes=1):
    """One problem per row (name, arguments), for the maker and its truth alike."""
    return [
        Problem(f"{kind}: {name}", kind, partial(make, **given), partial(truth, **given), modes)
        for name, given in rows
    ]


def orthogonal(kind, prior, rows):
    make, truth = partial(d.orthogonal, prior), partial(d.draws_of_orthogonal, prior)
    return each(kind, make, truth, rows)


def _grouped(kind, rows):
    return each(kind, r.grouped, r.draws_of_grouped, rows)


def _rare(kind, rows):
    return each(kind, r.rare, r.draws_of_rare, rows)


def _linear(kind, rows):
    return each(kind, r.linear, r.draws_of_linear, rows)


def _parts(kind, rows, modes=1):
    return each(kind, d.two_parts, d.draws_of_two_parts, rows, modes)


KINK = orthogonal(
    "kink",
    d.kinked,
    [
        ("lasso, D = 1", dict(size=1, left=0.5, right=0.5)),
        ("strong lasso, D = 1", dict(size=1, left=3.0, right=3.0, seed=1)),
        ("one side, D = 1", dict(size=1, left=4.0, right=0.0, seed=2)),
        ("very strong lasso, D = 1", dict(size=1, left=10.0, right=10.0, seed=4)),
        ("weak lasso, D = 5", dict(size=5, left=0.3, right=0.3, seed=3)),
        ("lasso, D = 5", dict(size=5, left=1.0, right=1.0, seed=4)),
        ("strong lasso, D = 5", dict(size=5, left=3.0, right=3.0, seed=5)),
        ("one side, D = 5", dict(size=5, left=3.0, right=0.5, seed=6)),
        ("lasso, D = 30", dict(size=30, left=1.0, right=1.0, seed=7)),
    ],
)
EDGE = orthogonal(
    "edge",
    d.ending,
    [
        ("3 sd, D = 1", dict(size=1, below=3.0)),
        ("2 sd, D = 1", dict(size=1, below=2.0, seed=1)),
        ("1 sd, D = 1", dict(size=1, below=1.0, seed=2)),
        ("half an sd, D = 1", dict(size=1, below=0.5, seed=3)),
        ("4 sd, D = 5", dict(size=5, below=4.0, seed=4)),
        ("2.5 sd, D = 5", dict(size=5, below=2.5, seed=5)),
        ("2 sd, D = 5", dict(size=5, below=2.0, seed=6)),
        ("1 sd, D = 5", dict(size=5, below=1.0, seed=7)),
        ("2 sd, D = 30", dict(size=30, below=2.0, seed=8)),
    ],
)
SKEW = _grouped(
    "skew",
    [
        ("Poisson, some events", dict(family="poisson", counts=(10, 15, 30))),
        ("Poisson, few events", dict(family="poisson", counts=(3, 5, 8))),
        ("Poisson, one event", dict(family="poisson", counts=(1, 2, 5))),
        ("Poisson, no event", dict(family="poisson", counts=(0, 2, 9))),
        ("Poisson, many events", dict(family="poisson", counts=(100, 200, 300))),
        ("Poisson, weak prior", dict(family="poisson", counts=(1, 3, 6), precision=0.01)),
        ("logistic, balanced", dict(family="bernoulli", counts=(4, 3, 5))),
        ("logistic, few", dict(family="bernoulli", counts=(1, 2, 7))),
        ("logistic, few of 100", dict(family="bernoulli", counts=(1, 3, 8), each=100)),
        ("logistic, 10 of 100", dict(family="bernoulli", counts=(10, 20, 95), each=100)),
    ],
)
SHOULDER = _parts(
    "shoulder",
    [
        ("a quarter, 5 times, D = 1", dict(size=1, share=0.25, width=5.0)),
        ("a quarter, 5 times, D = 5", dict(size=5, share=0.25, width=5.0, seed=1)),
        ("a quarter, 5 times, D = 20", dict(size=20, share=0.25, width=5.0, seed=2)),
        ("a quarter, 5 times, D = 100", dict(size=100, share=0.25, width=5.0, seed=3)),
        ("a tenth, 4 times, D = 1", dict(size=1, share=0.1, width=4.0, seed=4)),
        ("a tenth, 4 times, D = 5", dict(size=5, share=0.1, width=4.0, seed=5)),
        ("half, twice, D = 1", dict(size=1, share=0.5, width=2.0, seed=6)),
        ("half, twice, D = 5", dict(size=5, share=0.5, width=2.0, seed=7)),
        ("half, 1.3 times, D = 20", dict(size=20, share=0.5, width=1.3, seed=8)),
    ],
)
SECOND = _parts(
    "second mode",
    [
        ("half at 8 sd, D = 1", dict(size=1, share=0.5, distance=8.0)),
        ("half at 16 sd, D = 1", dict(size=1, share=0.5, distance=16.0, seed=1)),
        ("15 % at 4 sd, D = 1", dict(size=1, share=0.15, distance=4.0, seed=2)),
        ("30 % at 7 sd, D = 5", dict(size=5, share=0.3, distance=7.0, seed=3)),
        ("15 % at 4 sd, D = 5", dict(size=5, share=0.15, distance=4.0, seed=4)),
        ("half at 12 sd, D = 5", dict(size=5, share=0.5, distance=12.0, seed=5)),
        ("20 % at 10 sd, wider, D = 1", dict(size=1, share=0.2, distance=10.0, width=2.0, seed=6)),
        ("40 % at 6 sd, narrower, D = 1", dict(size=1, share=0.4, distance=6.0, width=0.5, seed=7)),
        ("half at 8 sd, D = 20", dict(size=20, share=0.5, distance=8.0, seed=8)),
    ],
    modes=2,
)


def _rare_rows(family, rows, cases):
    return [
        (
            f"{family}, {of_ones} of {ones} in {rows}",
            dict(
                family=family, rows=rows, ones=ones, events=events, events_of_ones=of_ones, **more
            ),
        )
        for ones, events, of_ones, more in cases
    ]


RARE = _rare(
    "rare column",
    _rare_rows(
        "bernoulli",
        500,
        [(1, 250, 1, {}), (2, 50, 2, {}), (3, 250, 1, {}), (5, 100, 0, {}), (10, 100, 5, {})],
    )
    + _rare_rows(
        "poisson",
        500,
        [(1, 100, 0, {}), (2, 250, 1, {}), (4, 50, 4, dict(precision=0.1)), (10, 300, 6, {})],
    ),
)
COLLINEAR = _linear(
    "collinear",
    [
        ("linear, a tenth of its own", dict(kind=0.1, rows=200, size=3)),
        ("linear, a hundredth", dict(kind=0.01, rows=200, size=3, seed=1)),
        ("linear, a thousandth", dict(kind=1e-3, rows=200, size=3, seed=2)),
        ("linear, a thousandth, weak prior", dict(kind=1e-3, rows=200, size=3, precision=1e-3)),
        ("linear, the same", dict(kind=0.0, rows=200, size=3, seed=4)),
        ("linear, a tenth, D = 30", dict(kind=0.1, rows=200, size=30, seed=5)),
    ],
) + each(
    "collinear",
    r.collinear_logistic,
    r.draws_of_collinear_logistic,
    [
        ("logistic, a tenth of its own", dict(gap=0.1, rows=200)),
        ("logistic, a hundredth", dict(gap=0.01, rows=200, seed=1)),
        ("logistic, the same", dict(gap=0.0, rows=200, seed=2)),
    ],
)
SEPARABLE = each(
    "separable",
    r.separated,
    r.draws_of_separated,
    [
        ("40 rows", dict(rows=40, precision=1.0)),
        ("40 rows, weaker prior", dict(rows=40, precision=0.1, seed=1)),
        ("40 rows, weak prior", dict(rows=40, precision=0.01, seed=2)),
        ("200 rows", dict(rows=200, precision=1.0, seed=3)),
        ("200 rows, weak prior", dict(rows=200, precision=0.01, seed=4)),
    ],
) + each(
    "separable",
    r.separated_with_heavy_prior,
    r.draws_of_separated,
    [
        ("t prior, 7 degrees", dict(rows=40, degrees=7.0, scale=2.5)),
        ("t prior, 4 degrees", dict(rows=40, degrees=4.0, scale=2.5, seed=1)),
        ("t prior, 4 degrees, narrow", dict(rows=40, degrees=4.0, scale=1.0, seed=2)),
        ("t prior, 7 degrees, wide", dict(rows=40, degrees=7.0, scale=10.0, seed=3)),
    ],
)
HIERARCHICAL = each(
    "hierarchical",
    d.hierarchy,
    d.draws_of_hierarchy,
    [
        ("4 groups of 50", dict(groups=4, each=50)),
        ("4 groups of 50, alike", dict(groups=4, each=50, between=0.2, middle=-1.0, seed=1)),
        ("4 groups of 10", dict(groups=4, each=10, seed=2)),
        ("12 groups of 25", dict(groups=12, each=25, seed=3)),
        ("40 groups of 5", dict(groups=40, each=5, width=0.2, seed=4)),
        ("4 groups of 50, free", dict(groups=4, each=50, centred=False, seed=5)),
        ("4 groups of 10, free", dict(groups=4, each=10, centred=False, seed=6)),
        ("4 groups of 10, alike, free", dict(groups=4, each=10, between=0.0, centred=False)),
        ("12 groups of 5, free", dict(groups=12, each=5, centred=False, seed=8)),
    ],
)
WRONG = [
    Problem(
        f"wrong gradient: {name}",
        "wrong gradient",
        partial(d.wrong_gradient, **given),
        partial(d.standard_draws, given["size"]),
    )
    for name, given in [
        ("twice, D = 1", dict(size=1, factor=2.0)),
        ("twice, D = 3", dict(size=3, factor=2.0)),
        ("twice, D = 20", dict(size=20, factor=2.0)),
        ("twice, D = 201", dict(size=201, factor=2.0)),
        ("half, D = 3", dict(size=3, factor=0.5)),
        ("1.6 times, D = 20", dict(size=20, factor=1.6)),
        ("three times for one, D = 3", dict(size=3, factor=(3.0, 1.0, 1.0))),
        ("shifted, D = 3", dict(size=3, factor=1.0, offset=(1.0, 0.0, 0.0))),
        ("shifted a little in all, D = 20", dict(size=20, factor=1.0, offset=0.5)),
    ]
]
MANY_ROWS = _linear(
    "N > 50,000",
    [
        ("linear, D = 3", dict(kind="white", rows=60_000, size=3)),
        ("linear, stretched, D = 3", dict(kind="stretched", rows=60_000, size=3, seed=1)),
        ("linear, heavy tails, D = 3", dict(kind="heavy", rows=60_000, size=3, seed=2)),
        ("linear, D = 20", dict(kind="white", rows=100_000, size=20, seed=3)),
    ],
) + _rare(
    "N > 50,000",
    _rare_rows(
        "bernoulli", 60_000, [(30_000, 9000, 12_000, {}), (5, 30_000, 5, {}), (600, 60, 3, {})]
    )
    + _rare_rows("poisson", 60_000, [(30_000, 300, 500, {}), (4, 30_000, 0, {})]),
)
WIDE = (
    _linear(
        "D > 200",
        [
            ("linear", dict(kind="white", rows=1000, size=210)),
            ("linear, stretched", dict(kind="stretched", rows=1000, size=210, seed=1)),
            ("linear, fewer rows", dict(kind="white", rows=150, size=210, seed=2)),
        ],
    )
    + _grouped(
        "D > 200",
        [
            ("Poisson", dict(family="poisson", counts=r.few_counts(210, 30.0), each=5)),
            (
                "Poisson, few events",
                dict(family="poisson", counts=r.few_counts(210, 4.0), each=5, precision=1.0),
            ),
        ],
    )
    + orthogonal("D > 200", d.kinked, [("lasso", dict(size=210, left=1.0, right=1.0, rows=500))])
    + orthogonal("D > 200", d.ending, [("edge at 3 sd", dict(size=210, below=3.0, rows=500))])
    + orthogonal("D > 200", d.heavy, [("t", dict(size=210, degrees=4.0, scale=1.0, rows=500))])
    + _parts("D > 200", [("shoulder", dict(size=210, share=0.25, width=5.0))])
)
# One more of each kind, at the end, so that the halves stay as they were.
MORE = (
    *orthogonal("kink", d.kinked, [("lasso, D = 12", dict(size=12, left=1.0, right=1.0, seed=8))]),
    *orthogonal("edge", d.ending, [("1.5 sd, D = 12", dict(size=12, below=1.5, seed=9))]),
    *_grouped(
        "skew", [("logistic, few of 30", dict(family="bernoulli", counts=(1, 2, 4, 15), each=30))]
    ),
    *_parts("shoulder", [("40 %, 3 times, D = 3", dict(size=3, share=0.4, width=3.0, seed=9))]),
    *_parts(
        "second mode", [("25 % at 9 sd, D = 3", dict(size=3, share=0.25, distance=9.0, seed=9))], 2
    ),
    *_rare("rare column", _rare_rows("bernoulli", 500, [(20, 100, 1, {})])),
    *_linear("collinear", [("linear, a twentieth, D = 10", dict(kind=0.05, rows=200, size=10))]),
    *each(
        "separable",
        r.separated,
        r.draws_of_separated,
        [("100 rows, weaker prior", dict(rows=100, precision=0.1, seed=5))],
    ),
    *each(
        "hierarchical",
        d.hierarchy,
        d.draws_of_hierarchy,
        [("6 groups of 20", dict(groups=6, each=20, seed=9))],
    ),
    Problem(
        "wrong gradient: 0.7 times, D = 5",
        "wrong gradient",
        partial(d.wrong_gradient, size=5, factor=0.7),
        partial(d.standard_draws, 5),
    ),
    *_rare("N > 50,000", _rare_rows("bernoulli", 200_000, [(40, 20_000, 10, {})])),
    *_linear("D > 200", [("linear, many rows", dict(kind="white", rows=4000, size=220, seed=3))]),
    # Modes so far apart, in enough dimensions, that all draws are as far apart.
    *_parts(
        "second mode",
        [
            ("30 % at 9 sd, D = 100", dict(size=100, share=0.3, distance=9.0, seed=11)),
            ("half at 8 sd, D = 60", dict(size=60, share=0.5, distance=8.0, seed=10)),
        ],
        2,
    ),
)
PROBLEMS = (
    *KINK,
    *EDGE,
    *SKEW,
    *SHOULDER,
    *SECOND,
    *RARE,
    *COLLINEAR,
    *SEPARABLE,
    *HIERARCHICAL,
    *WRONG,
    *MANY_ROWS,
    *WIDE,
    *MORE,
)
TUNING, REPORTING = PROBLEMS[0::2], PROBLEMS[1::2]
