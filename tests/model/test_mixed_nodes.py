"""How many nodes of quadrature a mixed model takes, and that they stay what they are."""

from __future__ import annotations

import numpy as np
import pytest

import ornstein as orn
from ornstein.curvature.nodes import EXACT, TOLERATED
from ornstein.errors import ApproximationWarning

pytestmark = pytest.mark.slow


def counts(deviation, groups=60):
    """Poisson counts of two rows a group, most of them zero, with labels and no columns."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(groups), 2)
    y = rng.poisson(np.exp(deviation * rng.normal(size=groups)[labels] - 1.0))
    return np.zeros((len(y), 0)), y, labels


def test_wide_effects_take_more_nodes_until_the_error_is_small():
    narrow = orn.glmm(*counts(1.0), family="poisson")
    wide = orn.glmm(*counts(2.0), family="poisson")
    assert narrow.marginal.points == 9 and 0.0 < narrow.quadrature_error < TOLERATED
    assert wide.marginal.points > 9 and wide.quadrature_error < TOLERATED


def test_an_error_that_stays_is_a_sentence():
    with pytest.warns(ApproximationWarning, match=r"off by 0\.\d+ nats .* Take more points"):
        given = orn.glmm(*counts(2.0), family="poisson", points=9)
    assert given.quadrature_error > TOLERATED and given.marginal.points == 9
    with pytest.warns(ApproximationWarning, match="Narrower priors on the effects"):
        widest = orn.glmm(*counts(3.0), family="poisson")
    assert widest.marginal.points == 25 < EXACT[1]


def test_the_nodes_are_frozen_before_sampling():
    model = orn.glmm(*counts(2.0), family="poisson")
    post = orn.sample(model, "laplace", draws=50, chains=2, progress=False)
    assert post.model.marginal == model.marginal
    assert post.model.loss.log_likelihood == model.marginal
