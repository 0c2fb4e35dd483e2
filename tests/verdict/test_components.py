"""Standard deviations of groups' effects at the edge are said in words."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import ornstein as orn
from ornstein.model.mixed.checked import glmm
from ornstein.posterior.posterior import Posterior
from ornstein.verdict.components import effects_near_zero


def alike(groups, size, seed=0):
    """Rows whose groups do not differ."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(groups), size)
    x = rng.normal(size=(labels.size, 1))
    return x, x[:, 0] + rng.normal(size=labels.size), labels


def test_a_component_whose_draws_reach_zero_is_named():
    model = glmm(*alike(10, 4))
    rng = np.random.default_rng(1)
    draws = np.tile(model.init, (1, 4000, 1))
    place = model.component_places()[0]
    found = {}
    for name, deviations in (
        ("edge", np.abs(rng.normal(size=4000))),
        ("inside", np.exp(0.5 * rng.normal(size=4000))),
    ):
        draws[0, :, place] = np.log(deviations)
        post = Posterior(
            draws,
            model.names,
            model.layout,
            {},
            predict_function=model.predict,
            constrained=model.constrained(draws),
            model=model,
        )
        found[name] = effects_near_zero(SimpleNamespace(posterior=post))
    assert found["edge"].level == "note"
    assert found["edge"].sentence.startswith("sd(intercept) may be zero (95 % interval 0.0")
    assert found["inside"] is None
    plain = replace(post, predict_function=None)
    assert effects_near_zero(SimpleNamespace(posterior=plain)) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", ["gaussian", pytest.param("bernoulli", marks=pytest.mark.nightly)]
)
def test_groups_that_do_not_differ_are_fitted_and_said(family):
    x, y, labels = alike(150, 5)
    y = y if family == "gaussian" else (y > 0.0).astype(float)
    post = orn.sample(orn.glmm(x, y, labels, family=family), progress=False)
    verdict = post.check()
    assert verdict.trusted, verdict
    assert "sd(intercept) may be zero" in verdict["effects near zero"].sentence
    assert np.all(np.isfinite(post.summary().to_numpy(float)))
    assert post.constrained["sd(intercept)"].mean() < 0.3
