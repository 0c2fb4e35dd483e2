"""The suite itself: enough problems of each kind, and reference draws that are of the posterior."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from adversaries import posterior_of
from fit_error import Error, error_of_fit, wrong
from suite import PROBLEMS, REPORTING, TUNING
from suite_extremes import EXTREMES
from suite_variants import VARIANTS

from ornstein.verdict.density import Density

FAST = {
    "kink: one side, D = 5",
    "skew: Poisson, one event",
    "shoulder: a tenth, 4 times, D = 5",
    "rare column: poisson, 1 of 2 in 500",
    "separable: t prior, 7 degrees",
    "hierarchical: 4 groups of 10, free",
}
# A density that ends has a boundary term, and a wrong gradient is none.
ALL = (*PROBLEMS, *EXTREMES, *VARIANTS)
SMOOTH = [p for p in ALL if p.kind != "wrong gradient" and "edge" not in p.name]
DRAWS, ROWS_READ = 2000, 4e7


def test_there_are_enough_problems_of_each_kind():
    assert len(PROBLEMS) >= 120 and len({p.name for p in PROBLEMS}) == len(PROBLEMS)
    kinds = Counter(p.kind for p in PROBLEMS)
    assert len(kinds) == 12 and min(kinds.values()) >= 8
    for half in (TUNING, REPORTING):
        assert min(Counter(p.kind for p in half).values()) >= 4
    assert not {p.name for p in TUNING} & {p.name for p in REPORTING}
    assert len({p.name for p in ALL}) == len(ALL) >= len(PROBLEMS) + 80
    more = Counter(p.kind for p in (*EXTREMES, *VARIANTS))
    assert len(more) == 10 and min(more.values()) >= 8


@pytest.mark.parametrize(
    "problem",
    [p if p.name in FAST else pytest.param(p, marks=pytest.mark.slow) for p in SMOOTH],
    ids=lambda problem: problem.name,
)
def test_reference_draws_are_of_the_posterior(problem):
    """Of a law with density exp(−U), E[∂U] = 0 and E[(θ − Eθ)∂U] = 1 for each parameter."""
    model, reference = problem.make(), problem.truth()
    scores = stein_scores(model, reference)
    assert np.abs(scores).max() < 5.0, scores
    # The negative control: the same draws half as wide again.
    wide = reference.mean(axis=0) + 1.5 * (reference - reference.mean(axis=0))
    assert np.abs(stein_scores(model, wide)).max() > 5.0


def stein_scores(model, reference):
    """Along axes in which the reference has unit covariance, where errors show best."""
    count = int(np.clip(ROWS_READ / model.n_data, 400, DRAWS))
    chosen, root = reference[:count], np.linalg.cholesky(np.atleast_2d(np.cov(reference.T)))
    _, slopes = Density(model).values_and_gradients(chosen)
    slopes, units = slopes @ root, np.linalg.solve(root, (chosen - reference.mean(axis=0)).T).T
    identities = np.concatenate([slopes, units * slopes - 1.0], axis=1)
    error = identities.std(axis=0, ddof=1) / np.sqrt(len(chosen))
    return identities.mean(axis=0) / error


def test_the_error_of_a_fit():
    problem = next(p for p in PROBLEMS if p.name == "collinear: linear, a tenth of its own")
    model, reference = problem.make(), problem.truth()

    def error(draws):
        return error_of_fit(posterior_of(model, draws), reference)

    exact = error(reference)
    assert exact.distance < 1e-6 and exact.move < 1e-9 and exact.small
    rng = np.random.default_rng(5)
    again = reference[rng.permutation(len(reference))[:4000]]
    assert error(again).small
    shifted = error(reference + 0.5 * reference[:, 1].std(ddof=1) * np.eye(3)[1])
    # The least distance is the one along the parameter, ½·0.5²; correlations make others larger.
    assert shifted.distance >= 0.125 - 1e-4 and shifted.move >= 0.5 - 1e-4 and shifted.large
    assert error(reference * np.nan).large


def test_what_wrong_means():
    small, middle, large = Error(0.01, 0.05), Error(0.05, 0.2), Error(0.05, 0.4)
    assert wrong("trusted", large) and not wrong("trusted", middle) and not wrong("trusted", small)
    assert wrong("not trusted", small) and not wrong("not trusted", middle)
    assert not any(wrong("caution", error) for error in (small, middle, large))
    assert wrong("trusted", Error(np.nan, 0.0))
