"""Predictions: columns by name, refusals, float64, and sparse rows that stay sparse."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import scipy.special
from peak_memory import with_tests

import ornstein as orn

rng = np.random.default_rng(0)
N = 60
FRAME = pd.DataFrame(
    {"age": rng.normal(size=N), "size": rng.normal(size=N) * 3.0, "rooms": rng.normal(size=N) + 2.0}
)
Y = FRAME["age"].to_numpy() - 2.0 * FRAME["rooms"].to_numpy() + rng.normal(size=N)


def posterior(model, draws=None):
    """Draws that no chain was run for."""
    if draws is None:
        draws = np.random.default_rng(1).normal(size=(2, 5, model.dim))
    return orn.Posterior(draws, model.names, model.layout, {}, predict_function=model.predict)


def target(family):
    return {
        "gaussian": Y,
        "bernoulli": np.where(Y > 0, "yes", "no"),
        "categorical": np.digitize(Y, [-3.0, 0.0]),
        "poisson": np.arange(N) % 4,
    }[family]


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "categorical", "poisson"])
def test_columns_are_found_by_name(family, tmp_path):
    post = posterior(orn.glm(FRAME, target(family), family, prior_precision=1.0))
    loaded = orn.load(post.save(tmp_path / "fit.orn"))
    wanted = post.predict(FRAME.to_numpy()[:4]).draws
    for fitted in (post, loaded):
        for columns in (list(FRAME), ["rooms", "age", "size"]):
            assert np.array_equal(fitted.predict(FRAME[columns][:4]).draws, wanted)
        with pytest.raises(orn.InputError, match="lack column 'size'"):
            fitted.predict(FRAME[["rooms", "age"]])
        with pytest.raises(orn.InputError, match="have the unknown column 'y'"):
            fitted.predict(FRAME.assign(y=Y))
        with pytest.raises(orn.InputError, match="repeat the column 'age'"):
            fitted.predict(FRAME[["rooms", "age", "size", "age"]])
        with pytest.raises(orn.InputError, match="3 columns; these have 2"):
            fitted.predict(FRAME.to_numpy()[:, :2])
        with pytest.raises(orn.InputError, match="3 columns; these have 4"):
            fitted.predict(np.ones((2, 4)))


def test_columns_of_a_mixed_model_are_found_by_name(tmp_path):
    """Fixed effects, and columns whose coefficients vary among groups."""
    groups = np.arange(N) // (N // 5)
    model = orn.glmm(FRAME, Y, groups, Z=FRAME[["age", "size"]])
    post = posterior(model, 0.1 * np.random.default_rng(1).normal(size=(2, 5, model.dim)))
    loaded = orn.load(post.save(tmp_path / "fit.orn"))
    new, varying = FRAME[:4], FRAME[["age", "size"]][:4]
    turned = new[["rooms", "age", "size"]], varying[["size", "age"]]
    wanted = post.predict({"X": new, "Z": varying}).draws
    known = {"groups": "known", "model": model}
    for fitted in (post, loaded):
        for x, z in (turned, (new.to_numpy(), varying.to_numpy())):
            assert np.array_equal(fitted.predict({"X": x, "Z": z}).draws, wanted)
        found = [
            fitted.predict({"X": x, "Z": z, "groups": groups[:4]}, **known).draws
            for x, z in ((new, varying), turned)
        ]
        assert np.array_equal(*found)
        for rows, words in [
            (new[["rooms", "age"]], "lack column 'size'"),
            (new * np.nan, "X holds a value that is not finite in column"),
            (np.ma.masked_array(new, new > 0), "X has .* masked value"),
            ({"X": new, "Z": varying * np.nan}, "Z holds a value that is not finite in column"),
            (
                {"X": new, "Z": varying, "groups": np.ma.masked_array(groups[:4], [1, 0, 0, 0])},
                "groups has 1 masked value",
            ),
            ({"X": new, "Z": varying, "groups": [None, 0, 0, 0]}, "groups holds a missing label"),
            ({"X": new, "Z": varying[::-1]}, "has another order than that of"),
        ]:
            with pytest.raises(orn.InputError, match=words):
                fitted.predict(rows)


def test_a_model_made_from_an_array_takes_columns_in_their_order():
    post = posterior(orn.glm(FRAME.to_numpy(), Y, prior_precision=1.0))
    wanted = post.predict(FRAME.to_numpy()).draws
    assert np.array_equal(post.predict(FRAME).draws, wanted)
    for rows, found in (
        (scipy.sparse.coo_array(FRAME.to_numpy()), wanted),
        (FRAME.to_numpy()[3], wanted[:, 3]),
    ):
        np.testing.assert_allclose(post.predict(rows).draws, found, rtol=1e-12, atol=1e-14)
    assert post.predict(np.ones((0, 3))).draws.shape == (10, 0)


def test_a_file_that_does_not_list_its_columns_names_them_after_the_coefficients(tmp_path):
    """As files of 0.1 do."""
    post = posterior(orn.glm(FRAME, Y, prior_precision=1.0))
    path = post.save(tmp_path / "fit.orn")
    with np.load(path) as archive:
        arrays = dict(archive)
    meta = json.loads(str(arrays["meta"]))
    assert meta.pop("columns") == list(FRAME)
    np.savez(tmp_path / "old.npz", **{**arrays, "meta": np.array(json.dumps(meta))})
    old = orn.load(tmp_path / "old.npz")
    assert np.array_equal(
        old.predict(FRAME[["size", "rooms", "age"]]).draws, post.predict(FRAME).draws
    )
    meta["columns"] = ["age", "size"]
    np.savez(tmp_path / "forged.npz", **{**arrays, "meta": np.array(json.dumps(meta))})
    with pytest.raises(orn.FileError, match="2 names for 3 columns"):
        orn.load(tmp_path / "forged.npz")


REFUSED = {
    "NaN": (FRAME.assign(size=np.nan), "not finite in column 'size'"),
    "infinity": (np.full((2, 3), np.inf), "not finite"),
    "NaN in sparse rows": (scipy.sparse.csr_matrix(np.full((2, 3), np.nan)), "not finite"),
    "masked": (np.ma.array(np.ones((2, 3)), mask=np.eye(2, 3)), "2 masked values"),
    "text": (np.full((2, 3), "1.0"), "must be numeric"),
    "missing": (FRAME.astype({"age": "Float64"}).mask(FRAME["age"] > 0), "missing value"),
    "nothing": (None, "got None"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_number_is_refused(name):
    rows, words = REFUSED[name]
    with pytest.raises(orn.InputError, match=words):
        posterior(orn.glm(FRAME, Y, prior_precision=1.0)).predict(rows)


def test_functions_of_the_user_get_finite_numbers_in_double_precision():
    seen = []

    def predict(params, inputs):
        seen.append((params["a"].dtype, inputs["x"].dtype, inputs["k"].dtype))
        return params["a"] * inputs["x"] + inputs["k"]

    model = orn.Model(
        lambda p, x: -0.5 * (x - p["a"]) ** 2, jnp.arange(5.0), init={"a": 0.0}, predict=predict
    )
    post = posterior(model)
    x = 1.6e9 + np.arange(3.0)
    found = post.predict({"x": x.astype(object), "k": np.array([1, 2, 3])}).draws
    assert seen == [(np.float64, np.float64, np.int64)]
    wanted = post.draws.reshape(-1, 1) * x + [1, 2, 3]
    np.testing.assert_allclose(found, wanted, rtol=1e-15)
    with pytest.raises(orn.InputError, match="inputs holds a value that is not finite"):
        post.predict({"x": np.array([1.0, np.nan]), "k": np.array([1, 2])})
    with pytest.raises(orn.InputError, match="1 masked value"):
        post.predict({"x": np.ma.array([1.0, 2.0], mask=[True, False]), "k": np.array([1, 2])})
    for inputs in (None, {"x": x}, 3.0, {"x": "text", "k": np.array([1])}):
        with pytest.raises(orn.InputError, match=r"predict fails|numeric"):
            post.predict(inputs)


def test_features_far_from_zero_do_not_cancel():
    """A time stamp in seconds, 1.6e9 ± 1000: the slope's part is 3·10⁶ standard deviations of what
    is predicted, and float32 has seven digits.
    """
    stamp = 1.6e9 + 1000.0 * rng.normal(size=N)
    model = orn.glm(
        pd.DataFrame({"stamp": stamp, "b": FRAME["age"]}), Y, noise_scale=1.0, prior_precision=1.0
    )
    slopes = 0.002 + 1e-4 * rng.normal(size=(2, 200))
    others, level = rng.normal(size=(2, 2, 200))
    # the intercept as far back as a float64 can say
    draws = np.stack([slopes, others, level - 1.6e9 * slopes], axis=2)
    post = posterior(model, draws)
    found = post.predict(pd.DataFrame({"b": FRAME["age"], "stamp": stamp}))
    exact = draws.reshape(-1, 3).astype(np.longdouble)
    rows = np.column_stack([stamp, FRAME["age"], np.ones(N)]).astype(np.longdouble)
    wanted = exact @ rows.T
    # 1.6e9 times a slope is about 3·10⁶, of which a float64 has 5·10⁻¹⁰
    np.testing.assert_allclose(found.draws, wanted.astype(float), atol=2e-9, rtol=0.0)
    np.testing.assert_allclose(found.sd, wanted.std(axis=0, ddof=1).astype(float), rtol=1e-8)
    single = np.float32(stamp) * np.float32(slopes.reshape(-1, 1)) + np.float32(
        draws[..., 2].reshape(-1, 1)
    )  # negative control: what float32 makes of it
    assert np.max(np.abs(single + others.reshape(-1, 1) * rows[:, 1] - wanted)) > 0.1


@pytest.mark.parametrize(
    "probability", [-0.5, 0.0, 1.0, 1.5, 95, np.nan, np.inf, "wide", None, True, [0.5]]
)
def test_an_interval_holds_a_share_between_0_and_1(probability):
    predictive = posterior(orn.glm(FRAME, Y, prior_precision=1.0)).predict(FRAME[:2])
    with pytest.raises(orn.InputError, match="probability must lie between 0 and 1"):
        predictive.interval(probability)
    low, high = predictive.interval(0.5)
    assert np.all(low < high)


@pytest.mark.parametrize("family", ["bernoulli", "categorical"])
def test_blocks_of_draws_and_rows_are_the_whole(family, monkeypatch):
    post = posterior(orn.glm(FRAME, target(family), family, prior_precision=1.0))
    wanted = post.predict(FRAME).draws
    monkeypatch.setattr("ornstein.posterior.at_draws.AT_ONCE", 24)
    sparse = scipy.sparse.csr_array(FRAME.to_numpy())
    for rows in (FRAME, sparse):
        np.testing.assert_allclose(post.predict(rows).draws, wanted, rtol=1e-12)


SPARSE = """
    import sys
    import numpy as np, scipy.sparse
    import ornstein as orn
    from peak_memory import peak

    def rows(count, columns):
        places = np.random.default_rng(0).integers(0, columns, count * 20)
        stops = np.arange(count + 1) * 20
        return scipy.sparse.csr_matrix((np.ones(count * 20), places, stops), (count, columns))

    small = orn.glm(rows(20, 30), np.arange(20) % 2, "bernoulli")
    np.linalg.svd(np.ones((50, 50)))
    idle, columns = peak(), 131_072
    model = orn.glm(rows(100, columns), np.arange(100) % 2, "bernoulli")
    draws = np.random.default_rng(0).standard_normal((4, 50, model.dim))
    post = orn.Posterior(draws, model.names, model.layout, {}, predict_function=model.predict)
    found = post.predict(rows(5_000, columns))
    assert found.draws.shape == (200, 5_000)
    low, high = found.interval()
    assert np.all(low < high)
    print((peak() - idle) / 2**20)
"""


def test_sparse_rows_stay_sparse():
    """5,000 rows of 131,072 columns and 200 draws, which alone are 210 MB, within 500 MB."""
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SPARSE)],
        capture_output=True,
        text=True,
        check=False,
        env=with_tests(),
    )
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) < 500.0


@pytest.mark.parametrize("family", ["poisson", "categorical"])
def test_rows_of_a_model_with_an_offset_need_theirs(family, tmp_path):
    own = np.random.default_rng(3)
    X, y, new = own.normal(size=(30, 2)), np.arange(30) % 3, own.normal(size=(4, 2))
    lead = (3,) if family == "categorical" else ()
    model = orn.glm(X, y, family, offset=own.normal(size=(30, *lead)))
    post = orn.laplace(model, draws=20, seed=0)
    given = own.normal(size=(4, *lead))
    u = new @ post.params["coef"][0, 5] + post.params["intercept"][0, 5] + given
    wanted = np.exp(u) if family == "poisson" else scipy.special.softmax(u, axis=-1)
    for fit in (post, orn.load(post.save(tmp_path / "fit.orn"))):
        np.testing.assert_allclose(fit.predict(new, offset=given).draws[5], wanted, rtol=1e-9)
        none = fit.predict(new, offset=0.0).draws
        np.testing.assert_array_equal(none, fit.predict(new, offset=np.zeros((4, *lead))).draws)
        with pytest.raises(orn.InputError, match="does not know that of these rows"):
            fit.predict(new)
    with pytest.raises(orn.InputError, match="offset"):
        post.predict(new, offset=given[:3])
    table = {"x": X[:, 0], "y": y, "days": 1.0 + y}
    of_table = orn.regress("y ~ x + offset(log(days))", table, "poisson", progress=False)
    counted = orn.laplace(of_table, draws=20, seed=0)
    with pytest.raises(orn.InputError, match="does not know that of these rows"):
        counted.predict(X[:, :1])
    with pytest.raises(orn.InputError, match="leave offset= out"):
        counted.predict(table, offset=1.0)
