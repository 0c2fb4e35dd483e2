"""Quantile regression: its mode, its law and its sandwich."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm

import ornstein as orn
from ornstein.posterior.sandwich import sandwich

FOOD = sm.datasets.engel.load_pandas().data
X, Y = FOOD[["income"]].to_numpy() / 1000.0, FOOD["foodexp"].to_numpy() / 1000.0
Z = np.column_stack([X, np.ones(len(X))])


def log_likelihood(model, theta):
    u = Z @ theta
    law = model.likelihood.law
    return sum(float(law.log_density(mean, y, {}, {})) for mean, y in zip(u, Y, strict=True))


@pytest.mark.parametrize("tau", [0.5, 0.9])
def test_the_mode_is_that_of_statsmodels(tau):
    """Of a concave likelihood: no small step from statsmodels' estimate goes up."""
    model = orn.glm(X, Y, orn.families.Quantile(tau=tau, scale=0.03), prior_precision=0.0)
    reference = np.asarray(sm.QuantReg(Y, Z).fit(q=tau, p_tol=1e-10).params)
    there = log_likelihood(model, reference)
    angles = np.linspace(0.0, 2.0 * np.pi, 24, endpoint=False)
    steps = np.column_stack([np.cos(angles), np.sin(angles)])
    around = [log_likelihood(model, reference + 3e-3 * step) for step in steps]
    assert max(around) < there + 1e-3
    # negative control: from elsewhere some steps do
    elsewhere = [log_likelihood(model, reference + 0.02 + 3e-3 * step) for step in steps]
    assert max(elsewhere) > log_likelihood(model, reference + 0.02) + 1e-3


def test_the_sandwich_is_that_of_the_formula():
    tau, scale = 0.75, 0.03
    model = orn.glm(X, Y, orn.families.Quantile(tau=tau, scale=scale), prior_precision=0.0)
    covariance = np.array([[3e-4, -2e-4], [-2e-4, 2e-4]])
    found = sandwich(model, np.array([0.64, 0.06]), covariance)
    expected = tau * (1.0 - tau) / scale**2 * covariance @ (Z.T @ Z) @ covariance
    assert np.allclose(found, expected, rtol=1e-12)
    post = orn.Posterior(
        np.random.default_rng(0).multivariate_normal([0.64, 0.06], covariance, (4, 500)),
        model.names,
        model.layout,
        {},
        model=model,
    )
    own = post.covariance
    expected = tau * (1.0 - tau) / scale**2 * own @ (Z.T @ Z) @ own
    assert np.allclose(post.sandwich(), expected, rtol=1e-10)


def test_of_a_gaussian_family_the_sandwich_is_robust():
    """White's HC0 for least squares, where V is σ²(XᵀX)⁻¹ and G the squares of the rows."""
    model = orn.glm(X, Y, noise_scale=0.1, prior_precision=0.0)
    curvature = orn.measure(model)
    covariance = np.linalg.inv(curvature.hessian * model.n_data)
    reference = sm.OLS(Y, Z).fit(cov_type="HC0")
    assert np.allclose(sandwich(model, curvature.mode, covariance), reference.cov_params())


@pytest.mark.parametrize("tau", [0.0, 1.0, "half", True])
def test_tau_lies_between_0_and_1(tau):
    with pytest.raises(orn.OrnsteinError, match="tau must lie between 0 and 1"):
        orn.families.Quantile(tau=tau)


@pytest.mark.slow
def test_the_default_call_ends_trusted():
    post = orn.fit("foodexp ~ income", FOOD, family=orn.families.Quantile(tau=0.5), progress=False)
    assert post.check().level == "trusted"
    reference = sm.QuantReg.from_formula("foodexp ~ income", FOOD).fit(q=0.5)
    robust = np.sqrt(np.diag(post.sandwich()))[:2]
    assert np.all(np.abs(post.mean[:2] - reference.params[["income", "Intercept"]]) < robust)
