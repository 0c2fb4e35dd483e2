"""Formulas with group terms: what they become, what is refused, and new rows by name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

import ornstein as orn
from ornstein.errors import InputError, PredictionWarning
from ornstein.model.mixed.priors import MixedPriors
from ornstein.model.mixed.several_model import SeveralModel
from ornstein.posterior.posterior import Posterior
from ornstein.regression.mixed import from_formula
from ornstein.regression.regress import Request


def table(rows: int = 48) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    places = np.arange(rows)
    frame = pd.DataFrame({"x": rng.normal(size=rows), "dose": rng.normal(size=rows)})
    frame["school"] = np.array(["n", "s", "w", "e"])[places % 4]
    frame["class"] = np.arange(rows) % 12 // 4 + 1
    frame["town"] = places % 5
    frame["kind"] = np.array(["a", "b"])[(places // 3) % 2]
    frame["score"] = frame["x"] + (places % 4) + rng.normal(size=rows)
    frame["passed"] = frame["score"] > 2.0
    frame["count"] = rng.poisson(2.0, rows)
    return frame


TABLE = table()


def model_of(formula, data=TABLE, **settings):
    return from_formula(Request(formula, **settings), data)


@pytest.mark.parametrize(
    ("term", "effects", "blocks"),
    [
        ("(1 | school)", ["intercept|school"], (1,)),
        ("(x | school)", ["intercept|school", "x|school"], (2,)),
        ("(0 + x | school)", ["x|school"], (1,)),
        ("(1 + x || school)", ["intercept|school", "x|school"], (1, 1)),
        ("(1 | school) + (0 + x | school)", ["intercept|school", "x|school"], (1, 1)),
        ("(kind | school)", ["intercept|school", "kind=b|school"], (2,)),
        ("(1 | school:class)", ["intercept|school:class"], (1,)),
        ("(1 | school/class)", ["intercept|school", "intercept|school:class"], (1, 1)),
        ("(1 | town) + (1 | school)", ["intercept|town", "intercept|school"], (1, 1)),
    ],
)
def test_a_term_names_its_effects(term, effects, blocks):
    model = model_of(f"score ~ x + {term}")
    assert list(model.covariance.effects) == effects
    assert model.covariance.blocks == blocks
    assert model.names[:2] == ("x", "intercept")
    assert isinstance(model, SeveralModel) == (len(model.factors) > 1)


def test_a_formula_is_the_array_form():
    """The same rows, columns and groups, so that likelihoods agree away from the mode too."""
    model = model_of("score ~ x + dose + (1 + x | school:class)")
    Z = np.column_stack([np.ones(len(TABLE)), TABLE["x"]])
    labels = TABLE["school"] + ":" + TABLE["class"].astype(str)
    other = orn.glmm(TABLE[["x", "dose"]], TABLE["score"], labels, Z)
    assert sorted(model.levels) == sorted(other.levels)
    for name, leaf in other.data.items():
        if name in ("x", "y", "z"):
            mine = model.data[name]
            order = np.argsort(model.levels.astype(str)), np.argsort(other.levels.astype(str))
            assert np.allclose(mine[order[0]], leaf[order[1]])
    for name, values in other.hyperparameters.items():
        assert np.allclose(model.hyperparameters[name], values)


def test_the_family_and_the_notes_are_those_of_the_table():
    model = model_of("passed ~ x + (1 | school)")
    assert model.family == "bernoulli"
    assert model.predict.spec.classes == ("False", "True")
    assert "4 groups of school" in model.predict.spec.notes
    assert model.predict.spec.formula == "passed ~ x + (1 | school)"
    assert model_of("count ~ x + (1 | school)", family="poisson").family == "poisson"
    dotted = model_of("score ~ . + (1 | school)", TABLE[["score", "x", "dose", "school"]])
    assert dotted.columns == ("x", "dose", "intercept")


def test_rows_without_a_group_are_left_out_and_counted():
    gone = TABLE.assign(school=TABLE["school"].where(TABLE.index > 2))
    model = model_of("score ~ x + (1 | school)", gone)
    assert model.counts.sum() == len(TABLE) - 3
    assert any("3 of 48 rows left out" in note for note in model.predict.spec.notes)
    with pytest.raises(InputError, match=r"missing in 'school' \(3\)"):
        model_of("score ~ x + (1 | school)", gone, missing="error")


@pytest.mark.parametrize(
    ("formula", "sentence"),
    [
        ("score ~ x + (1 | shool)", "did you mean 'school'"),
        ("score ~ x + (1 | log(x))", "does not name groups"),
        ("score ~ x + (1 + x | school) + (0 + x | school)", "'x' of 'school' is in two terms"),
        ("score ~ x + (0 | school)", "has no columns"),
        ("score ~ x + (offset(x) | school)", "before a bar must be columns"),
        ("kind ~ x + (1 | school) + (1 | one)", "one group of 'one' only"),
        ("score ~ x + (1 | school) + (1 | same)", "the same groups"),
        ("score ~ x + (1 | school) + (1 | row)", "'row' has one row only"),
        ("school ~ x + (1 | town)", "mixed models support the families"),
    ],
)
def test_what_is_refused_is_a_sentence(formula, sentence):
    data = TABLE.assign(
        one="u", same=TABLE["school"].str.upper(), row=np.arange(len(TABLE)).astype(str)
    )
    with pytest.raises(InputError, match=sentence):
        model_of(formula, data)


def test_unknown_weights_and_links_and_other_priors_are_refused():
    with pytest.raises(InputError, match="weights must not be negative"):
        model_of("score ~ x + (1 | school)", weights="dose")
    with pytest.raises(InputError, match="did you mean 'dose'"):
        model_of("score ~ x + (1 | school)", weights="doze")
    with pytest.raises(InputError, match="has no link 'loglog'"):
        model_of("passed ~ x + (1 | school)", link="loglog")
    with pytest.raises(InputError, match=r"Normal\(0, sd\) or Flat"):
        model_of("score ~ x + (1 | school)", priors={"x": orn.priors.Normal(1, 1)})
    with pytest.raises(InputError, match="no coefficient"):
        model_of("score ~ x + (1 | school)", priors={"z": orn.priors.Normal(0, 1)})
    with pytest.raises(InputError, match="is for mixed models"):
        orn.regress("score ~ x", TABLE, priors=MixedPriors(), progress=False)


def test_priors_by_column_are_those_of_the_coefficients():
    usual = model_of("score ~ x + dose + (1 | school)").hyperparameters["coef_precision"]
    priors = {"x": orn.priors.Normal(0, 0.5), "dose": orn.priors.Flat()}
    found = model_of("score ~ x + dose + (1 | school)", priors=priors).hyperparameters
    assert found["coef_precision"].tolist() == [4.0, 0.0, usual[2]]
    number = model_of("score ~ x + dose + (1 | school)", prior_precision=1.0)
    units = TABLE[["x", "dose"]].std(ddof=0) / TABLE["score"].std(ddof=0)
    assert number.hyperparameters["coef_precision"][:2] == pytest.approx(units**2)
    scales = model_of("score ~ x + (1 | school)", priors=MixedPriors(effect_scale=0.3))
    assert scales.hyperparameters["effect_scale"].tolist() == [0.3]


def at_one_point(model, count):
    draws = np.tile(model.init, (1, count, 1))
    return Posterior(
        draws,
        model.names,
        model.layout,
        {},
        predict_function=model.predict,
        constrained=model.constrained(draws),
        model=model,
    )


def test_new_rows_by_name_before_and_after_the_file(tmp_path):
    model = model_of("score ~ x + kind + offset(dose) + (1 + x | school)")
    post = at_one_point(model, 400)
    new = pd.DataFrame(
        {
            "x": [0.5, 0.5, 1.0, np.nan],
            "kind": ["b", "b", "a", "a"],
            "dose": [0.0, 2.0, 0.0, 0.0],
            "school": ["n", "n", "w", "w"],
        }
    )
    params = model.layout.unflatten(model.init)
    fixed = params["coef"] @ np.array([[0.5, 1.0, 1.0], [0.5, 1.0, 1.0], [1.0, 0.0, 1.0]]).T
    with pytest.warns(PredictionWarning, match="1 with no value in 'x'"):
        average = post.predict(new)
    assert average.mean[:3] == pytest.approx(fixed + np.array([0.0, 2.0, 0.0]))
    assert np.isnan(average.mean[3])
    assert average.outcome.sd[:3] == pytest.approx(np.exp(params["log_scale"]))
    loaded = orn.load(post.save(tmp_path / "fit.orn"))
    assert loaded.predict(new[:3]).mean == pytest.approx(average.mean[:3])
    known = post.predict(new[:3], groups="known", draws=None)
    effects = post.group_effects("school", draws=400)
    assert effects.effects == ("intercept", "x")
    place = list(effects.levels).index("n")
    expected = fixed[0] + effects.mean[place] @ [1.0, 0.5]
    assert known.mean[0] == pytest.approx(expected, abs=0.1)
    assert known.mean[1] - known.mean[0] == pytest.approx(2.0)
    spread = loaded.predict(new[:3].drop(columns="school"), groups="new", draws=None)
    factor = model.covariance.matrix(params["factor"])
    sds = [np.linalg.norm(factor.T @ [1.0, x]) for x in (0.5, 0.5, 1.0)]
    assert spread.sd == pytest.approx(sds, rel=4.5 / np.sqrt(800))
    with pytest.raises(InputError, match="lack those of 'school'"):
        post.predict(new[:3].drop(columns="school"), groups="known")
    with pytest.raises(InputError, match="a saved file does not hold"):
        loaded.predict(new[:3], groups="known")
    again = loaded.predict(new[:3], groups="known", draws=None, model=model)
    assert again.mean == pytest.approx(known.mean)
    with pytest.raises(InputError, match="lacks the column 'kind'"):
        loaded.predict(new.drop(columns="kind"))


@pytest.mark.parametrize("family", ["bernoulli", "ordinal"])
def test_another_link_is_that_of_predictions_too(family, tmp_path):
    levels = pd.Categorical(np.digitize(TABLE["score"], [0, 2]).astype(str), ordered=True)
    response = "passed" if family == "bernoulli" else "level"
    table = TABLE.assign(level=levels)
    model = model_of(f"{response} ~ x + (1 | town)", table, family=family, link="probit")
    post = at_one_point(model, 5)
    params = model.layout.unflatten(model.init)
    if family == "bernoulli":
        chances = ndtr(params["coef"] @ [0.3, 1.0])
    else:
        cuts = params["cutpoints"][0] + np.array([0.0, np.exp(params["cutpoints"][1])])
        chances = np.diff(ndtr(cuts - 0.3 * params["coef"][0]), prepend=0.0, append=1.0)
    loaded = orn.load(post.save(tmp_path / "fit.orn"))
    for one in (post, loaded):
        assert one.predict(pd.DataFrame({"x": [0.3]})).mean[0] == pytest.approx(chances)


def test_effects_average_over_the_rows_of_the_formula():
    post = at_one_point(model_of("count ~ x + (1 | town)", family="poisson"), 5)
    params = post.model.layout.unflatten(post.model.init)
    slope, middle = params["coef"]
    found = np.mean(slope * np.exp(middle + slope * TABLE["x"]))
    assert post.effects("x").mean[0] == pytest.approx(found, rel=1e-3)


def test_labels_that_are_numbers_are_found_as_numbers_and_as_texts():
    model = model_of("score ~ x + (1 | town)")
    post = at_one_point(model, 20)
    assert post.group_effects("town", draws=5).levels.tolist() == ["0", "1", "2", "3", "4"]
    one = post.group_effects("town", groups=[3], draws=5).draws
    assert np.array_equal(one, post.group_effects("town", groups=["3"], draws=5).draws)
    with pytest.raises(InputError, match="hold no group '7'"):
        post.group_effects("town", groups=[7])
    with pytest.raises(InputError, match="groups of this model are 'town': not 'school'"):
        post.group_effects("school")


def test_outcomes_of_other_families_have_the_law_of_their_family():
    model = model_of("count ~ x + (1 | town)", family="negative-binomial")
    post = at_one_point(model, 50)
    params = model.layout.unflatten(model.init)
    mean = np.exp(params["coef"] @ [0.3, 1.0])
    found = post.predict(pd.DataFrame({"x": [0.3]}))
    assert found.mean[0] == pytest.approx(mean)
    variance = mean + mean**2 / np.exp(params["log_size"])
    assert found.outcome.sd[0] == pytest.approx(np.sqrt(variance))
    levels = pd.Categorical(np.digitize(TABLE["score"], [0, 2]).astype(str), ordered=True)
    ordinal = model_of("level ~ x + (1 | town)", TABLE.assign(level=levels))
    chances = at_one_point(ordinal, 50).predict(pd.DataFrame({"x": [0.3, -1.0]})).mean
    assert chances.shape == (2, 3)
    assert chances.sum(axis=1) == pytest.approx(1.0)
