"""Auxiliary parameters with columns of their own: `zero="x + z"` and `scale="x"`."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.sparse
import scipy.stats
import statsmodels.api as sm

import ornstein as orn
from ornstein.model import tables
from ornstein.model.regression import glm

RNG = np.random.default_rng(0)
ROWS = 600
TABLE = pd.DataFrame({"x": RNG.normal(size=ROWS), "z": RNG.normal(size=ROWS)})
TABLE["group"] = RNG.choice(["a", "b"], ROWS)
ABSENT = 1.0 / (1.0 + np.exp(0.5 - 0.8 * TABLE["z"]))
COUNTS = RNG.poisson(np.exp(0.5 + 0.6 * TABLE["x"]))
TABLE["count"] = np.where(RNG.random(ROWS) < ABSENT, 0, COUNTS)
TABLE["size"] = 1.0 + 2.0 * TABLE["x"] + np.exp(0.3 + 0.5 * TABLE["z"]) * RNG.normal(size=ROWS)


def flat(formula, family, **parts):
    priors = dict.fromkeys(["x", "zero:z", "zero:group", "scale:z"], orn.priors.Flat())
    priors |= {"intercept": orn.priors.Flat(), next(iter(parts)): orn.priors.Flat()}
    words = {"x", "intercept", *parts}
    model = orn.regress(formula, TABLE, family, progress=False, **parts)
    named = {
        name: prior
        for name, prior in priors.items()
        if name in words or any(column.startswith(name) for column in model.names)
    }
    return orn.regress(formula, TABLE, family, priors=named, progress=False, **parts)


def test_zero_inflation_is_that_of_statsmodels():
    model = flat("count ~ x", "zero-inflated-poisson", zero="z + group")
    curvature = orn.measure(model)
    inflation = sm.add_constant(np.column_stack([TABLE["z"], TABLE["group"] == "b"]).astype(float))
    reference = sm.ZeroInflatedPoisson(
        TABLE["count"].to_numpy(), sm.add_constant(TABLE[["x"]]), exog_infl=inflation
    ).fit(disp=0, maxiter=500, method="bfgs", gtol=1e-7)
    level, *own, intercept, slope = np.asarray(reference.params)
    sds = np.sqrt(np.diag(np.linalg.inv(curvature.hessian * ROWS)))
    assert model.names == ("x", "zero:z", "zero:group=b", "intercept", "zero_logit")
    assert np.max(np.abs(curvature.mode - [slope, *own, intercept, level]) / sds) < 1e-4


def test_a_scale_with_columns_is_an_optimum_of_scipy():
    model = flat("size ~ x", "gaussian", scale="z")
    x, z, y = (TABLE[name].to_numpy() for name in ("x", "z", "size"))

    def loss(theta):
        scale = np.exp(theta[3] + theta[1] * z)
        return -scipy.stats.norm.logpdf(y, theta[2] + theta[0] * x, scale).sum()

    curvature = orn.measure(model)
    assert model.names == ("x", "scale:z", "intercept", "log_scale")
    found = scipy.optimize.minimize(loss, curvature.mode + 0.01, method="BFGS", tol=1e-9)
    sds = np.sqrt(np.diag(np.linalg.inv(curvature.hessian * ROWS)))
    assert np.max(np.abs(curvature.mode - found.x) / sds) < 1e-4
    # negative control: at any other place the loss is higher
    assert loss(curvature.mode + 0.1 * sds) > loss(curvature.mode) + 1e-3


def test_predictions_follow_the_columns_of_both(tmp_path):
    model = orn.regress("size ~ x", TABLE, "gaussian", scale="z + group", progress=False)
    post = orn.laplace(model, draws=50, seed=1)
    new = TABLE.head(3)
    draws = post.draws.reshape(-1, model.dim)
    place = {name: number for number, name in enumerate(model.names)}
    logs = (
        draws[:, place["log_scale"], None]
        + draws[:, place["scale:z"], None] * new["z"].to_numpy()
        + draws[:, place["scale:group=b"], None] * (new["group"] == "b").to_numpy()
    )
    found = post.predict(new, draws=None)
    within, between = np.mean(np.exp(2.0 * logs), axis=0), np.var(found.draws, axis=0)
    assert np.allclose(found.outcome.sd, np.sqrt(within + between), rtol=1e-10)
    means = draws[:, [place["intercept"]]] + draws[:, [place["x"]]] * new["x"].to_numpy()
    assert np.allclose(found.draws, means, rtol=1e-12)
    again = orn.load(post.save(tmp_path / "fit.orn")).predict(new, draws=None)
    assert np.array_equal(again.outcome.sd, found.outcome.sd)
    rows = post.loo()
    assert np.isfinite(rows.elpd)
    assert post.critique().level in ("fits", "doubtful")


def test_sparse_rows_give_the_same_gradients():
    X = np.column_stack([TABLE["x"], TABLE["z"] * (TABLE["group"] == "b")])
    y = TABLE["count"].to_numpy(float)
    gradients = []
    for features in (X, scipy.sparse.csr_matrix(X)):
        named = tables.Named(features, ("x", "zero:z"))
        model = glm(named, y, "hurdle-poisson", parts={"zero": 1})
        params = model.layout.unflatten(np.array([0.2, -0.4, 0.3, 0.1]))
        rows = jax.tree.map(lambda leaf: leaf[:50], model.data)
        likelihood = model.loss.log_likelihood
        slope = jax.vmap(jax.grad(likelihood), (None, 0, None))(params, rows, {})
        gradients.append(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(slope)]))
    assert np.allclose(*gradients, rtol=1e-5, atol=1e-6)


def test_the_priors_know_no_origin():
    def mode(shift):
        table = TABLE.assign(z=TABLE["z"] + shift)
        model = orn.regress("size ~ x", table, "gaussian", scale="z", progress=False)
        return model.names, orn.measure(model).mode

    names, here = mode(0.0)
    _, there = mode(5.0)
    back = there.copy()
    back[names.index("log_scale")] += 5.0 * there[names.index("scale:z")]
    assert np.allclose(back, here, atol=1e-7)


@pytest.mark.parametrize(
    ("family", "parts", "sentence"),
    [
        ("poisson", {"zero": "z"}, "the poisson family has no parameter 'zero'"),
        ("hurdle-poisson", {"zero": "count ~ z"}, "has a left side"),
        ("hurdle-poisson", {"zero": "0 + z"}, "has no intercept"),
        ("hurdle-poisson", {"zero": "zz"}, "'zz'"),
        ("hurdle-poisson", {"zero": "z + (1 | group)"}, "has groups"),
    ],
)
def test_what_cannot_be_meant_is_refused(family, parts, sentence):
    with pytest.raises(orn.OrnsteinError) as caught:
        orn.regress("count ~ x", TABLE, family, progress=False, **parts)
    assert sentence in str(caught.value)
