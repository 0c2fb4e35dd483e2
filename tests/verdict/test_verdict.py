"""The verdict as users meet it: three plain cases, the table it prints, and what happens to a
posterior read from a file.

Its judgement over many problems is tested in test_verdict_suite.py, each of its findings in files
of their own.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from helpers import wine
from verdict_problems import regression, sampled, short

import ornstein as orn
from ornstein.posterior.statistics import pareto_smoothed
from ornstein.verdict.finding import Finding, graded, skipped, worst
from ornstein.verdict.subject import Subject
from ornstein.verdict.verdict import Verdict

EVIDENCE = [
    "length",
    "stationary",
    "R-hat, ESS",
    "moved draws",
    "measured distance",
    "other modes",
    "gradient",
]
EXPLANATIONS = [
    "as predicted",
    "predicted distance",
    "gradient noise is Gaussian",
    "noise is constant",
    "steps are small",
    "loss is quadratic",
    "noise matches curvature",
]


@pytest.fixture(scope="module")
def regular():
    return sampled(orn.ConstantSGD("full"))(regression())


@pytest.fixture(scope="module")
def paper_wine():
    features, target = wine()
    return orn.glm(features, target, noise_scale=1.0, intercept=False, prior_precision=1.0)


# Three plain cases
# --------------------------------------------------------------------------------------------------


def test_white_wine_with_the_full_preconditioner_is_trusted(paper_wine):
    post = orn.sample(
        paper_wine, orn.ConstantSGD("full"), batch_size=100, draws=200, progress=False
    )
    verdict = post.check()
    assert verdict.level == "trusted", verdict.explain()
    assert verdict.trusted and verdict.remedies == ()
    # and rightly so: the posterior is this Gaussian
    assert max(post.kl_to(post.curvature.laplace)) < 0.05


def test_white_wine_with_the_scalar_rate_is_not(paper_wine):
    curvature = orn.measure(paper_wine)
    dynamics = orn.ConstantSGD("scalar").tune(curvature, 100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", orn.BudgetWarning)
        post = orn.sample(
            paper_wine, dynamics, curvature=curvature, draws=200, max_steps=400_000, progress=False
        )
    verdict = post.check()
    assert verdict.level == "not trusted"
    found = verdict["predicted distance"]
    assert found.level == "not trusted"
    assert post.prediction.kl_qp == pytest.approx(2.47, abs=0.01)
    assert "predicted KL(sampler ‖ posterior) 2.5," in found.sentence
    assert found.number == max(post.prediction.kl_qp, post.prediction.kl_pq)
    assert "full preconditioner, ConstantSGD('full'): predicted KL 0" in found.remedy
    assert "cannot be removed by any step of a scalar preconditioner" in found.detail
    assert found.remedy in verdict.remedies


def test_two_relaxation_times_are_not_enough():
    verdict = short(2.0)(regression()).check()
    assert verdict.level == "not trusted"
    assert verdict["length"].level == "not trusted"
    assert verdict["length"].number == pytest.approx(2.0, rel=0.1)
    assert "times longer" in verdict["length"].remedy


# The Verdict
# --------------------------------------------------------------------------------------------------


def test_every_finding_has_its_number_its_bound_and_a_sentence(regular):
    verdict = regular.check()
    assert [finding.name for finding in verdict] == EVIDENCE + EXPLANATIONS
    for finding in verdict.findings:
        assert finding.level == ("trusted" if finding.name in EVIDENCE else "note")
        assert np.isfinite(finding.number) and np.isfinite(finding.threshold)
        assert finding.sentence
    assert regular.check(stein=True)["Stein discrepancy"].level == "trusted"
    with pytest.raises(orn.InputError, match="there is no finding 'luck'; there are \\['length'"):
        verdict["luck"]


def test_the_same_seed_gives_the_same_verdict(regular):
    assert regular.check(seed=4) == regular.check(seed=4)
    assert (
        regular.check(seed=4)["measured distance"].number
        != regular.check(seed=5)["measured distance"].number
    )


def test_the_worst_finding_decides():
    good, doubtful = (
        Finding("a", "trusted", 1.0, 2.0, "fine"),
        Finding("b", "caution", 3.0, 2.0, "so-so", "wait"),
    )
    bad, absent = (
        Finding("c", "not trusted", 9.0, 2.0, "no", "stop"),
        skipped("d", "there is nothing to see"),
    )
    assert Verdict(()).level == Verdict((good, absent)).level == "trusted"
    assert Verdict((good, doubtful, absent)).level == "caution"
    verdict = Verdict((good, doubtful, bad))
    assert verdict.level == "not trusted"
    assert verdict.remedies == ("stop", "wait")
    assert worst("skipped") == "trusted"


def test_nan_is_never_trusted():
    assert [graded(value, 1.0, 2.0) for value in (0.5, 1.0, 1.5, 2.5, np.inf, np.nan)] == [
        "trusted",
        "trusted",
        "caution",
        "not trusted",
        "not trusted",
        "not trusted",
    ]
    assert graded(np.nan, 1.0) == "not trusted"


def test_it_prints_as_a_table(regular):
    lines = str(regular.check()).splitlines()
    assert (
        lines[0] == "Verdict: trusted. No problems found. You can use these draws as the posterior."
    )
    assert all(line.startswith(("  [ok] ", "  [  ] ", "     ")) for line in lines[1:])
    assert max(map(len, lines)) <= 120
    assert sum(line.startswith("  [ok]") for line in lines) == len(EVIDENCE)
    assert sum(line.startswith("  [  ]") for line in lines) == len(EXPLANATIONS)
    assert len(regular.check().explain().splitlines()) > len(lines)
    marks = Verdict(
        (Finding("b", "caution", 3.0, 2.0, "so-so", "wait", "why"), skipped("d", "nothing to see"))
    )
    assert repr(marks) == "Verdict(caution, 2 findings)"
    assert str(marks).splitlines()[1:] == [
        "  [??] b  so-so",
        "          why",
        "          → wait",
        "  [--] d  skipped: nothing to see",
    ]


def test_it_warns_by_a_typed_warning(regular):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regular.check().warn()
    with pytest.warns(orn.TrustWarning, match="not trusted: length: 2") as caught:
        short(2.0)(regression()).check().warn()
    assert issubclass(orn.TrustWarning, orn.OrnsteinWarning)
    assert caught[0].filename == __file__


def test_it_becomes_json(regular):
    skippy = replace(regular, model=None).check()
    plain = json.loads(json.dumps(skippy.as_dict(), allow_nan=False))
    assert plain["level"] == "caution"
    assert [row["name"] for row in plain["findings"]] == [*EVIDENCE, *EXPLANATIONS, "density"]
    assert plain["findings"][4]["level"] == "skipped" and plain["findings"][4]["number"] is None


# Without the model
# --------------------------------------------------------------------------------------------------


def test_a_loaded_file_is_checked_without_the_data_and_with_them(regular, tmp_path):
    loaded = orn.load(regular.save(tmp_path / "fit.orn"))
    assert loaded.model is None
    alone, whole = loaded.check(), loaded.check(model=regular.model)
    assert {finding.name for finding in alone if finding.level == "skipped"} == {
        *EVIDENCE[3:],
        "gradient noise is Gaussian",
        "noise is constant",
    }
    assert "check(model=…)" in alone["gradient noise is Gaussian"].sentence
    assert alone.level == "caution"
    assert [f.name for f in alone if f.level == "caution"] == ["density"]
    before = {finding.name: finding for finding in regular.check()}
    assert whole.level == "trusted"
    for finding in whole:
        assert finding.number == pytest.approx(before[finding.name].number, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    "sampler",
    [orn.SGFS("full"), orn.ConstantSGD("diagonal", damping=0.3), orn.SGLD(control_variates=True)],
)
def test_the_noise_met_follows_from_the_law(sampler):
    """What a saved file is read with: the same C + K[Σ] as from the data, to rounding."""
    post = sampled(sampler, draws=10, thin=1, warmup=0)(regression())
    law = Subject(post, None).law
    silent = replace(law, curvature=replace(law.curvature, noise_response=None))
    np.testing.assert_allclose(
        silent.noise_met, law.noise_met, rtol=1e-6, atol=1e-6 * np.abs(law.noise_met).max()
    )


def test_another_model_is_refused(regular):
    with pytest.raises(orn.InputError, match="the model has 1 parameters, the posterior 4"):
        regular.check(
            model=orn.glm(
                np.ones((5, 1)),
                np.arange(5.0),
                noise_scale=1.0,
                intercept=False,
                prior_precision=1.0,
            )
        )


def test_an_approximation_held_against_nothing_is_a_matter_of_caution(regular):
    post = orn.laplace(regular.model)
    assert post.check().level == "trusted"
    assert replace(post, model=None).check().level == "caution"


def test_moments_alone_are_judged_too():
    post = sampled(orn.ConstantSGD("full"), keep="moments")(regression())
    verdict = post.check()
    assert verdict.level == "trusted"
    assert {finding.name for finding in verdict if finding.level == "skipped"} == {
        "stationary",
        "R-hat, ESS",
    }


def test_the_remedy_works():
    """A step three times too large is not trusted; the remedy's own words, followed, lead to a
    trusted run.
    """
    model = regression()
    curvature = orn.measure(model)
    dynamics = orn.ConstantSGD("full").tune(curvature, 50)
    far = sampled(
        replace(dynamics, preconditioner=3.0 * dynamics.preconditioner),
        curvature=curvature,
        draws=200,
    )(model)
    verdict = far.check()
    assert verdict.level == "not trusted"
    assert verdict["predicted distance"].remedy.startswith(
        "use the full preconditioner, ConstantSGD('full'): predicted KL 0"
    )
    assert sampled(orn.ConstantSGD("full"), draws=200)(model).check().level == "trusted"


def test_smoothed_weights_keep_their_order():
    """ArviZ 1.x smooths the weights 1/x of leave-one-out; given ours as they are it would smooth
    the wrong tail.
    """
    logs = np.random.default_rng(0).standard_t(3.0, size=200)
    smoothed, k = pareto_smoothed(logs)
    assert np.array_equal(np.argsort(smoothed), np.argsort(logs))
    assert k > 0.5
    assert pareto_smoothed(-(logs**2))[1] < 0.5  # bounded from above: no tail


@pytest.mark.parametrize("sampler", [orn.ConstantSGD("full"), orn.IASG()], ids=["SGD", "IASG"])
def test_a_sampler_is_compared_with_what_it_aims_at(sampler):
    """Counts of twice the Poisson variance: the sandwich is twice as wide as the posterior, and
    right for a sampler that aims at it.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 2)) * 0.2
    y = rng.negative_binomial(3.0, 0.5, 5000)
    model = orn.glm(X, y, "poisson", prior_precision=0.0)
    post = orn.sample(model, replace(sampler, target="sandwich"), draws=500, progress=False)
    assert post.dynamics.target == "sandwich" and post.prediction.kl_qp > 0.2
    verdict = post.check()
    distance = next(f for f in verdict.findings if f.name == "predicted distance")
    assert distance.level == "trusted" and "sandwich" in distance.sentence
    measured = next(f for f in verdict.findings if f.name == "measured distance")
    assert measured.level == "skipped"
    # The negative control: the same draws, compared with the posterior.
    claimed = replace(post, dynamics=replace(post.dynamics, target="posterior"))
    assert claimed.check().level == "not trusted"
