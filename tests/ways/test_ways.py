"""Plan, run, judge, remedy: what is chosen, what follows what, and that it is the same again."""

from __future__ import annotations

from dataclasses import replace

import adversaries
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import logistic_data

import ornstein as orn
from ornstein.posterior.history import Attempt
from ornstein.sampling.request import SampleRequest
from ornstein.verdict.finding import Finding
from ornstein.ways import REGISTRY, way_by_name
from ornstein.ways import automatic as loop
from ornstein.ways.forecasts import Forecasts, elected
from ornstein.ways.plan import planned, restriction
from ornstein.ways.probe import GOOD
from ornstein.ways.remedies import Tried, following
from ornstein.ways.situation import Situation, survey
from ornstein.ways.stochastic import StochasticGradients
from ornstein.ways.way import Forecast
from ornstein.ways.weighted import _resampled

QUIET = {"progress": False}


@pytest.fixture(scope="module")
def gaussian():
    X = np.random.default_rng(0).normal(size=(600, 3))
    y = X @ [1.0, -1.0, 0.5] + np.random.default_rng(1).normal(size=600)
    return orn.glm(X, y, noise_scale=1.0, prior_precision=1.0)


@pytest.fixture(scope="module")
def skewed():
    return adversaries.model_of("skew", 2)


@pytest.fixture(scope="module")
def kinked():
    return adversaries.model_of("kink", 2)


@pytest.fixture(scope="module")
def of_skewed(skewed):
    return survey(skewed)


@pytest.fixture(scope="module")
def answer(skewed):
    return orn.sample(skewed, **QUIET)


def row(way, kl, seconds, work=1.0, possible=True):
    return Forecast(way, kl, 1.0, 1.0, work, seconds, 0.0, "", possible)


class TestProbe:
    def test_a_gaussian_is_confirmed(self, gaussian):
        probe = survey(gaussian).probe
        assert probe.kl < 1e-6 and probe.shift < 1e-4

    def test_skew_is_seen(self, of_skewed):
        """log of an exponential: the mean is 0.58 from the mode, the sd at the mode is 1."""
        assert of_skewed.probe.kl > 0.1
        assert of_skewed.probe.shift == pytest.approx(np.euler_gamma, abs=0.1)

    def test_it_stays_within_a_budget(self, skewed, of_skewed):
        small = survey(skewed, allowed=150.0)
        assert small.passes < 150.0 < of_skewed.passes and small.fitted is None
        enough = survey(skewed, allowed=of_skewed.passes + 100.0)
        assert enough.passes == of_skewed.passes and enough.probe == of_skewed.probe

    def test_the_shift_counts_whatever_the_kl(self, of_skewed):
        little = replace(of_skewed, probe=replace(of_skewed.probe, kl=0.0, shift=0.2))
        assert little.laplace_kl > GOOD
        assert replace(little, probe=replace(little.probe, shift=0.01)).laplace_kl < GOOD


class TestPlan:
    def test_laplace_where_the_density_confirms_it(self, gaussian):
        plan = orn.plan(gaussian)
        assert plan.chosen == "laplace" and plan["laplace"].good
        assert len(plan.rows) == len(REGISTRY)
        text = str(plan)
        assert "→  laplace" in text and "600 rows and 4 parameters" in text

    def test_every_way_is_in_the_table_and_the_picture(self, gaussian, tmp_path):
        plan = orn.plan(gaussian)
        assert list(plan.frame().index) == [way.name for way in REGISTRY]
        plan.plot(tmp_path / "plan.png")
        assert (tmp_path / "plan.png").stat().st_size > 1000

    def test_not_laplace_where_it_is_wrong(self, of_skewed):
        plan = planned(of_skewed, SampleRequest())
        assert not plan["laplace"].good and plan[plan.chosen].good

    def test_a_kink_is_no_dead_end(self, kinked):
        plan = orn.plan(kinked)
        assert plan[plan.chosen].good and plan.chosen not in ("laplace", "laplace-weighted")
        if plan.situation.curvature is None:
            assert plan.situation.why in plan["nuts"].words

    def test_options_of_stochastic_gradients_restrict_it(self, gaussian):
        plan = orn.plan(gaussian, batch_size=20)
        assert plan["laplace"].words == "batch_size is for stochastic gradients"
        assert way_by_name(plan.chosen).stochastic
        assert restriction(SampleRequest(thin=3)) and not restriction(SampleRequest(draws=3))

    def test_the_cheapest_of_the_good_ones(self, of_skewed):
        rows = (row("a", 0.5, 1.0), row("b", 0.01, 3.0), row("c", 0.0, 9.0))
        assert elected(rows, 10.0, of_skewed) == "b"
        assert elected((rows[0], rows[2]), 10.0, of_skewed) == "c"

    def test_no_more_samplers_are_tuned_than_the_choice_needs(self, gaussian, monkeypatch):
        """And the choice is that among all of them, whatever the distances and the budget."""
        situation, tuned = survey(gaussian), []
        forecast = StochasticGradients.forecast

        def counted(way, *given):
            tuned.append(way.name)
            return forecast(way, *given)

        monkeypatch.setattr(StochasticGradients, "forecast", counted)
        assert planned(situation, SampleRequest()).chosen == "laplace" and not tuned
        for kl, share in ((0.05, 1.0), (0.1, 0.05), (0.5, 0.05), (5.0, 0.05)):
            probe = replace(situation.probe, kl=kl, share=share)
            there = replace(situation, probe=probe)
            for work in (1e2, 2e3, 1e5, 1e8):
                tuned.clear()
                chosen = Forecasts(there, SampleRequest()).chosen(work)
                assert set(tuned) <= {"sgld-cv"} or kl > 0.5 or work < 1e8
                assert chosen == elected(Forecasts(there, SampleRequest()).all(), work, there)

    def test_the_nearest_where_none_is_good_or_within_the_budget(self, of_skewed):
        rows = (row("a", 0.5, 1.0), row("b", 0.3, 3.0), row("c", 0.0, 9.0, work=100.0))
        assert elected(rows, 10.0, of_skewed) == "b"
        assert elected(rows[2:], 10.0, of_skewed) == "c"  # the least work, if nothing else

    def test_a_budget_that_is_none_is_refused(self, gaussian):
        with pytest.raises(orn.InputError, match="budget must be a positive number"):
            orn.plan(gaussian, budget=0)
        with pytest.raises(orn.InputError, match="there is no way 'sideways'"):
            orn.plan(gaussian)["sideways"]


def finding(name, level="caution", number=0.0):
    return Finding(name, level, number, 0.0, "")


def test_data_on_disk_have_a_plan_and_a_verdict(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    rows = {"x": X, "y": X @ [1.0, -1.0, 0.5] + rng.normal(size=3000)}
    for name, values in rows.items():
        np.save(tmp_path / f"{name}.npy", values)
    x, y = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("x", "y"))
    model = orn.glm(x, y, noise_scale=1.0)
    assert model.streams
    plan = orn.plan(model)
    assert plan["nuts"].words == plan["nuts-metric"].words == "it needs all rows in memory"
    answer = orn.sample(model, draws=200, **QUIET)
    assert answer.check().trusted and answer.history[0].way == plan.chosen
    held = orn.measure(orn.glm(rows["x"], rows["y"], noise_scale=1.0)).laplace
    assert max(answer.kl_to(held)) < 0.05


class TestRemedies:
    def next_after(self, situation, name, *raised):
        way = way_by_name(name)
        found = following([Tried(way, raised, True)], Forecasts(situation, SampleRequest()), 1e9)
        return None if found is None else found[0]

    def test_a_chain_that_is_too_short_runs_longer(self, gaussian):
        way = self.next_after(survey(gaussian), "sgld-cv", finding("length"))
        assert way.name == "sgld-cv" and way.times == 4

    def test_a_law_that_is_wrong_calls_for_a_nearer_one(self, of_skewed):
        way = self.next_after(of_skewed, "laplace", finding("moved draws", "not trusted"))
        assert way.forecast(of_skewed, SampleRequest()).kl == 0.0

    @pytest.mark.parametrize("name", ["other modes", "density"])
    def test_what_binds_all_ways(self, of_skewed, name):
        assert self.next_after(of_skewed, "laplace", finding(name)) is None
        assert self.next_after(of_skewed, "laplace", finding(name), finding("moved draws"))

    def test_no_way_mends_a_wrong_gradient(self, of_skewed):
        found = finding("moved draws", "not trusted"), finding("gradient")
        assert self.next_after(of_skewed, "laplace", *found) is None

    def test_at_most_four_ways_and_none_beyond_the_budget(self, of_skewed):
        tried = [Tried(way_by_name("laplace"), (finding("moved draws"),), True)]
        forecasts = Forecasts(of_skewed, SampleRequest())
        assert following(tried * 4, forecasts, 1e9) is None
        assert following(tried, forecasts, 1.0) is None

    def test_nuts_takes_shorter_steps_and_more_of_them(self, of_skewed):
        way = self.next_after(of_skewed, "nuts", finding("R-hat, ESS"))
        assert way.name == "nuts" and way.times == 4 and way.target_accept > 0.9


class TestSample:
    def test_it_ends_trusted_and_says_how(self, answer):
        assert answer.check().trusted
        assert answer.history[-1].verdict == "trusted"
        assert answer.settings["way"] == answer.history[-1].way
        assert answer.settings["work"] <= answer.settings["budget"]
        assert answer.plan.chosen == answer.history[0].way

    def test_it_is_right(self, answer):
        """log of an exponential: mean −γ, variance π²/6."""
        error = 5.0 * np.pi / np.sqrt(6.0 * 3000.0)
        np.testing.assert_allclose(answer.mean, -np.euler_gamma, atol=error)
        np.testing.assert_allclose(np.diagonal(answer.covariance), np.pi**2 / 6.0, rtol=0.2)

    def test_the_same_again(self, skewed, answer):
        again = orn.sample(skewed, **QUIET)
        np.testing.assert_array_equal(again.draws, answer.draws)
        assert [replace(one, seconds=0.0) for one in again.history] == [
            replace(one, seconds=0.0) for one in answer.history
        ]

    def test_the_verdict_is_remembered(self, answer):
        assert answer.check() is answer.check()
        assert answer.check(seed=1) is not answer.check()

    def test_history_is_saved_and_shown(self, answer, tmp_path):
        loaded = orn.load(answer.save(tmp_path / "fit.orn"))
        assert loaded.history == answer.history
        assert answer.summary().attrs["history"] == [str(one) for one in answer.history]
        page = answer.report(tmp_path / "page.html").read_text(encoding="utf-8")
        assert "Ways tried" in page and answer.history[0].way in page

    def test_one_line_before_the_work(self, gaussian, capsys):
        orn.sample(gaussian, draws=100, chains=2)
        assert "ornstein: laplace: the density around the mode" in capsys.readouterr().err

    def test_a_way_by_name_is_not_judged(self, gaussian):
        answer = orn.sample(gaussian, "laplace", draws=100, **QUIET)
        assert answer.history == () and answer.verdict is None
        with pytest.raises(orn.InputError, match="unknown sampler 'sideways'"):
            orn.sample(gaussian, "sideways")
        with pytest.raises(orn.InputError, match="thin is for stochastic gradients"):
            orn.sample(gaussian, "laplace", thin=3)


class Wrong:
    """A way whose draws are too narrow."""

    name, stochastic = "wrong", False

    def forecast(self, situation, request):
        return row("wrong", 0.0, 0.0)

    def run(self, situation, request, work=1.0):
        right = orn.laplace(situation.model, curvature=situation.curvature, seed=request.seed)
        narrow = right.mean + 0.5 * (right.draws - right.mean)
        return replace(right, draws=narrow, moments=None)

    def longer(self):
        return None


class Singular(Wrong):
    """A way that meets a matrix without an inverse."""

    def run(self, situation, request, work=1.0):
        raise np.linalg.LinAlgError("Singular matrix")


class TestLoop:
    """The loop with a first way that is wrong."""

    @pytest.fixture
    def first_wrong(self, monkeypatch):
        monkeypatch.setattr(loop, "chosen_way", lambda plan: Wrong())

    def test_a_line_before_each_way(self, gaussian, first_wrong, capsys):
        orn.sample(gaussian, draws=100, chains=2)
        first, second = capsys.readouterr().err.splitlines()[:2]
        assert first.startswith("ornstein: laplace: ") and "about" in first
        assert (
            second.startswith("ornstein: after wrong: not trusted, ") and "; predicted KL" in second
        )

    def test_numbers_that_cannot_be_computed_with_end_one_way_alone(self, gaussian, monkeypatch):
        monkeypatch.setattr(loop, "chosen_way", lambda plan: Singular())
        answer = orn.sample(gaussian, draws=200, **QUIET)
        assert [one.verdict for one in answer.history] == ["refused", "trusted"]
        with pytest.raises(orn.OrnsteinError, match="bring the columns of the data to a common"):
            orn.sample(gaussian, remedy=False, **QUIET)

    def test_a_wrong_way_is_followed_by_a_right_one(self, gaussian, first_wrong):
        answer = orn.sample(gaussian, **QUIET)
        assert [one.way for one in answer.history] == ["wrong", "hmc"]
        assert [one.verdict for one in answer.history] == ["not trusted", "trusted"]
        assert answer.draws.shape == (4, 1000, 4)  # nothing of the first
        np.testing.assert_allclose(answer.sd, np.sqrt(np.diagonal(answer.covariance)))

    def test_no_remedy_where_none_is_wanted(self, gaussian, first_wrong):
        answer = orn.sample(gaussian, remedy=False, **QUIET)
        assert [one.way for one in answer.history] == ["wrong"]
        assert answer.check().level == "not trusted"

    def test_a_budget_stops_it_and_says_where(self, skewed, first_wrong):
        answer = orn.sample(skewed, budget=5000.0, **QUIET)
        assert len(answer.history) == 1
        assert "would be more than the budget" in answer.settings["stopped"]

    @pytest.mark.parametrize("budget", [7e3, 3e4, 2e5])
    def test_a_budget_is_obeyed_checks_included(self, skewed, first_wrong, budget):
        answer = orn.sample(skewed, budget=budget, **QUIET)
        spent = answer.plan.situation.passes + sum(one.passes for one in answer.history)
        assert spent <= answer.settings["work"] <= budget

    def test_a_deadline_stops_it_and_its_budget_repeats_it(self, skewed, first_wrong):
        answer = orn.sample(skewed, deadline="0.001s", **QUIET)
        assert len(answer.history) == 1 and answer.settings["stopped"]
        again = orn.sample(skewed, budget=answer.settings["work"], **QUIET)
        np.testing.assert_array_equal(again.draws, answer.draws)
        with pytest.raises(orn.InputError, match="either a budget or a deadline"):
            orn.sample(skewed, deadline="1s", budget=3.0, **QUIET)


def test_a_checkpoint_goes_on_through_the_ways(gaussian, tmp_path):
    options = {"batch_size": 20, "draws": 300, "chains": 2, "remedy": False, **QUIET}
    whole = orn.sample(gaussian, **options)
    orn.sample(gaussian, checkpoint=tmp_path / "run", **options)
    resumed = orn.resume(tmp_path / "run", gaussian, progress=False)
    np.testing.assert_array_equal(resumed.draws, whole.draws)
    assert resumed.history[0].way == whole.history[0].way
    with pytest.raises(orn.InputError, match="belongs to another run"):
        orn.resume(tmp_path / "run", gaussian.with_hyperparameters(prior_precision=2.0))


def test_weights_that_are_too_uneven_are_refused():
    model = orn.Model(
        lambda t, x: -0.05 * jnp.log1p(t @ t) * 1.5 + 0.0 * x, np.zeros(16), init=np.zeros(2)
    )
    with pytest.raises(orn.WayError, match="cannot be relied on: Pareto k"):
        way_by_name("laplace-weighted").run(replace(survey(model), fitted=None), SampleRequest())


def test_moments_are_those_of_all_weighted_points(skewed):
    """log of an exponential: mean −γ, variance π²/6; 10,000 points tell more than 400 draws."""
    answer = orn.sample(skewed, "laplace-weighted", draws=100, **QUIET)
    assert not answer.settings["exact_moments"]
    many = answer.settings["effective_draws"]
    assert many > 4000 and answer.summary()["ess_bulk"].max() <= 400 * 1.5
    error = 5.0 * np.pi / np.sqrt(6.0 * many)
    np.testing.assert_allclose(answer.mean, -np.euler_gamma, atol=error)
    np.testing.assert_allclose(np.diagonal(answer.covariance), np.pi**2 / 6.0, rtol=0.15)


def test_resampling_keeps_shares():
    weights = np.array([0.5, 0.25, 0.25, 0.0])
    counts = np.bincount(_resampled(weights, 1000, 0), minlength=4)
    np.testing.assert_allclose(counts, [500, 250, 250, 0], atol=1)


def test_two_chains_of_nuts_start_apart_and_it_is_right():
    X, y = logistic_data(40, 2)
    model = orn.glm(X, y, family="bernoulli", prior_precision=1.0)
    own = orn.sample(model, "nuts-metric", **QUIET)
    assert own.settings["divergences"] == 0 and own.check().trusted


def test_an_attempt_in_words():
    said = str(Attempt("laplace", "caution", 1234.0, 0.25, "moved draws"))
    assert said == "laplace: caution, 1,234 passes, 0.2 s (moved draws)"


def test_a_situation_without_curvature_says_why(gaussian):
    bare = Situation(gaussian, None, "there is no maximum", None, 0.0)
    plan = planned(bare, SampleRequest())
    assert plan.chosen == "nuts" and "there is no maximum" in plan["laplace"].words
