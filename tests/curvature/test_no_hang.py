"""Likelihoods that factorise a small matrix for each of many groups: XLA's CPU threads wait for
themselves forever on too many at once, without a message, so that passes must bound them. Each case
runs in a process of its own, which is ended after a time limit.
"""

from __future__ import annotations

import pytest
from limits import child, finished

pytestmark = pytest.mark.slow

MODEL = """
import jax.numpy as jnp, numpy as np
from jax.scipy.linalg import solve_triangular
import ornstein as orn

rng = np.random.default_rng(0)
groups = 60_000
y = rng.normal(size=(groups, 1)) + 0.5 * rng.normal(size=(groups, 2))

def log_likelihood(params, y):
    between, within = jnp.exp(2.0 * params["between"]), jnp.exp(2.0 * params["within"])
    covariance = between * jnp.ones((2, 2)) + within * jnp.eye(2)
    factor = jnp.linalg.cholesky(covariance + 0.0 * y[0])  # one for each group
    rest = solve_triangular(factor, y - params["mean"], lower=True)
    return -0.5 * rest @ rest - jnp.sum(jnp.log(jnp.diagonal(factor)))

init = {"mean": np.zeros(()), "between": np.zeros(()), "within": np.zeros(())}
model = orn.Model(log_likelihood, y, init=init)
curvature = orn.measure(model)
"""
LATER = {
    "measure": "",
    "sample": "orn.sample(model, orn.ConstantSGD(), curvature=curvature, draws=50, progress=False)",
    "nuts": "orn.nuts(model, draws=5, warmup=2, chains=2)",
    "loo": "orn.laplace(model, curvature=curvature, draws=25).loo()",
}


@pytest.mark.parametrize("what", list(LATER))
def test_many_small_factorisations_end(what):
    code = f"{MODEL}\n{LATER[what]}\nprint('done', curvature.n_data)"
    status, out, err = finished(child(code), timeout=300)
    assert status == 0, err[-2000:]
    assert out.strip() == "done 60000"
