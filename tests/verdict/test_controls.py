"""Negative controls: without the finding, or the statistic, a verdict goes wrong. Those of looks at
the density that take the place of others are in test_adversaries.py.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from adversaries import DRAWS, model_of, posterior_of, second_mode
from verdict_problems import PROBLEMS, regression

import ornstein as orn
from ornstein.verdict import change, moved
from ornstein.verdict.verdict import Verdict


@cache
def run(name):
    problem = next(one for one in PROBLEMS if one.name == name)
    return problem.run(problem.model(), 3)


def without(found, name):
    return Verdict(tuple(finding for finding in found if finding.name != name)).level


@pytest.mark.parametrize(
    ("name", "finding"),
    [("regression, scalar", "predicted distance"), ("reshuffled epochs", "as predicted")],
)
def test_where_the_density_is_not_at_hand_theory_decides(name, finding):
    found = replace(run(name), model=None).check()
    assert found.level == "not trusted" and without(found, finding) == "caution"


def test_where_only_moments_were_kept_length_decides():
    post = run("2 relaxation times")
    moments = orn.Gaussian(post.mean, post.covariance)
    found = replace(post, draws=post.draws[:, :0], moments=moments, model=None).check()
    assert found.level == "not trusted" and without(found, "length") == "caution"


def test_importance_weights_know_the_shares_of_modes():
    """Draws of both modes, mixed, but one of them four times as often as it should be."""
    kind, rng = partial(second_mode, distance=16.0), np.random.default_rng(0)
    draws = rng.normal(size=(DRAWS, 2))
    draws[rng.random(DRAWS) < 0.2, 0] += 16.0
    found = posterior_of(model_of(kind, 2), draws).check()
    assert found.level == "caution" and without(found, "measured distance") == "trusted"


def test_signed_ranks_see_past_a_few_draws_far_out(monkeypatch):
    """Near its stability bound a chain makes draws far too wide, with tails so heavy that no change
    of a mean is significant.
    """
    post = run("near the stability bound")
    assert post.sd[0] > 10.0 * np.sqrt(post.curvature.posterior_covariance[0, 0])
    assert post.check().level == "not trusted"

    for module in (change, moved):
        monkeypatch.setattr(module, "signed_ranks", lambda changes: np.zeros(changes.shape[1:]))
    assert post.check()["moved draws"].level == "trusted"


def test_a_few_draws_are_too_few():
    """Of Laplace's approximation, whose moments are right however few draws there are."""
    found = orn.laplace(regression(), draws=5).check()
    assert found["R-hat, ESS"].level == "not trusted"
    assert found["R-hat, ESS"].command == "--draws 150"
    assert without(found, "R-hat, ESS") == "trusted"
