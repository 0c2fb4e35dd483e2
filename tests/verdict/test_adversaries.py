"""The verdict against posteriors that are no Gaussians: right draws are trusted, wrong ones are
not, whatever made them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from adversaries import (
    CHANGES,
    DRAWS,
    KINDS,
    error_of,
    model_of,
    posterior_of,
    second_mode,
)
from suite import PROBLEMS

import ornstein as orn
from ornstein.verdict import density, importance, modes, subject, surroundings, verdict
from ornstein.verdict.finding import skipped

SMALL, LARGE = (1, 5), (20, 60)
SIZES = [*SMALL, *(pytest.param(size, marks=pytest.mark.slow) for size in LARGE)]
SECOND = {
    "8 sd": (8.0, 0.5),
    "16 sd": (16.0, 0.5),
    "15 % at 4 sd": (4.0, 0.15),
    "30 % at 7 sd": (7.0, 0.3),
}


def judged(kind, size, change, seed):
    """The level, and the error of the law that the draws come from."""
    density, rng = KINDS[kind](size), np.random.default_rng(seed)
    many = density.draws(100_000, rng)
    error = error_of(CHANGES[change](many), many)
    draws = CHANGES[change](density.draws(DRAWS, rng))
    return posterior_of(model_of(kind, size), draws).check(seed=seed), error


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_right_is_trusted_and_wrong_is_not(kind, size):
    """The contract: "trusted" up to an error of 0.1 nat and 0.3 sd, "not trusted" from 0.02 nat or
    0.1 sd on; and of use: trusted below the one, not trusted above 0.2 nat.
    """
    for seed in (0, 1):
        for change in CHANGES:
            found, (distance, move) = judged(kind, size, change, seed)
            shown = f"{change}: error {distance:.3f} nat, {move:.2f} sd\n{found.explain()}"
            if found.level == "trusted":
                assert distance <= 0.1 and move <= 0.3, shown
            if found.level == "not trusted":
                assert distance >= 0.02 or move >= 0.1, shown
            if change == "right":
                assert found.level == "trusted", shown
            if distance > 0.2:
                assert found.level == "not trusted", shown


@pytest.mark.parametrize("size", [1, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SECOND)
def test_a_second_mode_is_found_unless_it_was_visited(name, size):
    kind = partial(second_mode, distance=SECOND[name][0], share=SECOND[name][1])
    rng, model = np.random.default_rng(2), model_of(kind, size)
    assert posterior_of(model, kind(size).draws(DRAWS, rng)).check().level == "trusted"
    missed = posterior_of(model, rng.normal(size=(DRAWS, size))).check()
    assert missed.level == "not trusted", missed.explain()


@pytest.mark.slow
@pytest.mark.parametrize("size", [60, 210])
def test_a_second_mode_is_found_where_all_draws_are_as_far_apart(size):
    """As far from it as they are from each other; importance weights are too few to see it."""
    kind = partial(second_mode, distance=8.0, share=0.3)
    rng, model = np.random.default_rng(3), model_of(kind, size)
    missed = posterior_of(model, rng.normal(size=(DRAWS, size))).check()
    assert missed["other modes"].level == "not trusted", missed.explain()
    assert missed["other modes"].number == pytest.approx(0.3, abs=0.2)
    assert posterior_of(model, kind(size).draws(DRAWS, rng)).check().level != "not trusted"


def test_the_mass_of_a_mode_is_named():
    kind = partial(second_mode, distance=16.0, share=0.3)
    rng = np.random.default_rng(0)
    found = posterior_of(model_of(kind, 2), rng.normal(size=(DRAWS, 2))).check()["other modes"]
    assert found.number == pytest.approx(0.3, abs=0.05)
    assert "theta[0] = 16" in found.sentence and found.remedy


def test_modes_equal_by_symmetry_are_a_note():
    """A product of two parameters: both signs at once change nothing."""
    rng = np.random.default_rng(0)
    data = 4.0 + rng.normal(size=200)

    def log_likelihood(t, x):
        return -0.5 * (x - t[0] * t[1]) ** 2

    def log_prior(t):
        return -0.5 * jnp.sum((t - jnp.array([0.0, 0.0])) ** 2)

    model = orn.Model(log_likelihood, data, log_prior, init=np.array([2.0, 2.0]))
    post = orn.nuts(model, draws=1000, chains=4, seed=1, init=np.array([2.0, 2.0]))
    post = replace(post, draws=np.abs(post.draws))
    found = post.check()["other modes"]
    assert found.level == "trusted" and "equal by symmetry" in found.sentence, found


def test_a_shoulder_is_seen_in_many_dimensions():
    for size in (1, 5, 20, 100):
        draws = np.random.default_rng(size).normal(size=(DRAWS, size))
        found = posterior_of(model_of("shoulder", size), draws).check()
        assert found.level == "not trusted", (size, found.explain())


def doubled(size):
    """A log density whose gradient is twice what it should be."""

    @jax.custom_jvp
    def log(t):
        return -0.5 * t @ t

    @log.defjvp
    def _(primals, tangents):
        (t,), (dt,) = primals, tangents
        return log(t), -2.0 * t @ dt

    return orn.Model(lambda t, x: log(t) / 16 + 0.0 * x, np.zeros(16), init=np.zeros(size))


@pytest.mark.parametrize("size", [3, 201])
def test_a_wrong_gradient_is_named(size):
    draws = np.random.default_rng(0).normal(size=(DRAWS, size)) / np.sqrt(2.0)
    found = posterior_of(doubled(size), draws).check()
    assert found["gradient"].level == "not trusted"
    assert "check_gradients" in found["gradient"].remedy and "2 times" in found["gradient"].sentence
    # Exact draws, as NUTS gives them with any gradient, are no worse for it.
    if size < 20:
        exact = posterior_of(doubled(size), np.sqrt(2.0) * draws).check()
        assert exact.level == exact["gradient"].level == "caution"


@pytest.mark.parametrize(
    "problem", [p for p in PROBLEMS if p.kind == "wrong gradient"], ids=lambda problem: problem.name
)
def test_the_remedy_finds_what_is_wrong_with_the_gradient(problem):
    with pytest.raises(orn.InputError, match="the gradient of log_likelihood with respect to"):
        orn.check_gradients(problem.make())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda draws: np.full_like(draws, np.nan),
        lambda draws: np.where(np.arange(len(draws))[:, None] == 7, np.inf, draws),
        lambda draws: np.ones_like(draws),
        lambda draws: draws * [1.0, 0.0],
        lambda draws: 1e200 * draws,
        lambda draws: 1e-200 * draws,
    ],
    ids=["NaN", "one infinite", "constant", "one constant", "huge", "tiny"],
)
def test_degenerate_draws_get_a_verdict(spoil):
    draws = spoil(np.random.default_rng(0).normal(size=(DRAWS, 2)))
    found = posterior_of(model_of("gaussian", 2), draws).check()
    assert found.level == "not trusted" and found.remedies


def test_a_density_that_is_not_a_number_gets_a_verdict():
    model = orn.Model(
        lambda t, x: jnp.where(t[0] > 0.0, -0.5 * t @ t, jnp.nan) + 0.0 * x,
        np.zeros(16),
        init=np.ones(2),
    )
    draws = np.random.default_rng(0).normal(size=(DRAWS, 2)) / 4.0
    found = posterior_of(model, draws).check()
    assert found.level == "not trusted"
    assert "no density" in found["moved draws"].sentence


@pytest.mark.parametrize(("share", "level"), [(0.03, "caution"), (0.25, "not trusted")])
def test_draws_just_outside_the_support_are_judged_by_their_share(share, level):
    """The edge is at −1."""
    draws = KINDS["edge"](1).draws(DRAWS, np.random.default_rng(0))
    draws[np.random.default_rng(1).random(DRAWS) < share] = -1.01
    found = posterior_of(model_of("edge", 1), draws).check()
    assert found.level == level, found.explain()


def test_a_prior_that_is_not_quadratic_is_taken_as_it_is():
    """A lasso: one probe point would not tell its slope from a quadratic's."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(60, 3))

    def log_prior(t):
        return -20.0 * jnp.sum(jnp.abs(t))

    model = orn.Model(lambda t, x: -0.5 * jnp.sum((x - t) ** 2), data, log_prior, init=np.ones(3))
    points = rng.normal(size=(7, 3))
    values, slopes = model.scaled_priors(points)
    assert np.allclose(60 * values, 20.0 * np.abs(points).sum(axis=1), rtol=1e-12)
    assert np.allclose(60 * slopes, 20.0 * np.sign(points), rtol=1e-12)


def test_without_the_density_nothing_is_trusted():
    draws = np.random.default_rng(0).normal(size=(DRAWS, 2))
    post = posterior_of(model_of("gaussian", 2), draws)
    alone = replace(post, model=None).check()
    assert alone.level == "caution"
    assert alone["density"].remedy == "give the model: check(model=…)"


def test_few_passes_are_not_exceeded(monkeypatch):
    """Where a pass takes long, and the run took few: 64 in all."""
    monkeypatch.setattr(subject.Subject, "budget", 64)
    monkeypatch.setattr(subject.Subject, "cheap_passes", 16)
    draws = KINDS["gaussian"](5).draws(DRAWS, np.random.default_rng(0))
    made, begin = [], density.Density.__post_init__

    def remembered(self):
        made.append(self)
        begin(self)

    monkeypatch.setattr(density.Density, "__post_init__", remembered)
    found = posterior_of(model_of("gaussian", 5), draws).check()
    assert found["gradient"].level == "trusted"
    assert 0 < sum(one.passes for one in made) <= 64


def test_a_look_that_fails_is_a_caution_and_does_not_stop_the_others(monkeypatch):
    def failing(subject, weighted):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(verdict, "measured_distance", failing)
    draws = KINDS["gaussian"](2).draws(DRAWS, np.random.default_rng(0))
    found = posterior_of(model_of("gaussian", 2), draws).check()
    assert found.level == "caution"
    assert found["measured distance"].sentence.startswith("could not be checked: ZeroDivision")
    assert found["gradient"].level == "trusted"


class TestEachLookEarnsItsPlace:
    """Negative controls: without the look a case goes wrong."""

    def test_moved_draws(self, monkeypatch):
        """The Gaussian with the moments of a skewed posterior: the moments are right."""
        rng = np.random.default_rng(0)
        model, exact = model_of("skew", 5), KINDS["skew"](5).draws(100_000, rng)
        mean, root = exact.mean(axis=0), np.linalg.cholesky(np.cov(exact.T))
        post = posterior_of(model, mean + rng.normal(size=(DRAWS, 5)) @ root.T)
        assert post.check().level == "not trusted"
        monkeypatch.setattr(verdict, "kept_law", lambda subject: None)
        assert post.check().level != "not trusted"

    def test_wide_probes(self, monkeypatch):
        post = posterior_of(
            model_of("shoulder", 20), np.random.default_rng(0).normal(size=(DRAWS, 20))
        )
        assert post.check().level == "not trusted"
        monkeypatch.setattr(importance, "SCALES", np.array([1.0, 1.05, 1.1, 1.15]))
        assert post.check().level != "not trusted"

    def test_modes(self, monkeypatch):
        kind = partial(second_mode, distance=16.0, share=0.5)
        post = posterior_of(model_of(kind, 2), np.random.default_rng(0).normal(size=(DRAWS, 2)))
        assert post.check().level == "not trusted"
        monkeypatch.setattr(modes, "DISTANCES", np.array([1.0]))
        assert post.check().level == "trusted"

    def test_agreement_of_chains(self, monkeypatch):
        """One chain of four is in the second mode of two equal ones, in more dimensions than
        weights are used for: each draw is where the posterior has mass, but their shares are wrong.
        """
        kind, rng = partial(second_mode, distance=16.0), np.random.default_rng(0)
        draws = rng.normal(size=(4, DRAWS // 4, 60))
        draws[0, :, 0] += 16.0
        post = posterior_of(model_of(kind, 60), draws.reshape(DRAWS, 60))
        assert post.check()["R-hat, ESS"].level == "not trusted"
        skip = skipped("R-hat, ESS", "")
        monkeypatch.setattr(verdict, "chains_agree", lambda subject: skip)
        assert post.check().level != "not trusted"

    def test_gradient(self, monkeypatch):
        """Where few passes are allowed and parameters are many, nothing else is quick enough."""
        draws = np.random.default_rng(0).normal(size=(DRAWS, 201)) / np.sqrt(2.0)
        post = posterior_of(doubled(201), draws)
        monkeypatch.setattr(subject.Subject, "budget", 64)
        monkeypatch.setattr(subject.Subject, "cheap_passes", 64)
        monkeypatch.setattr(surroundings, "draws_gaussian", lambda subject: None)
        assert post.check().level == "not trusted"
        monkeypatch.setattr(verdict, "gradient_of_density", lambda subject: skipped("gradient", ""))
        assert post.check().level != "not trusted"
