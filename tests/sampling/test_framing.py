"""Steps in the frame of the preconditioner are the steps outside it, up to rounding."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
import scipy.sparse
from sampler_checks import assert_law

import ornstein as orn
from ornstein.model import frame
from ornstein.sampling import session

SIZE = 101


@lru_cache
def data(n_data=1500):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n_data, SIZE)) / np.sqrt(SIZE) + 0.05
    return X, X @ rng.normal(size=SIZE), rng


@lru_cache
def regression(kind):
    X, predictor, _ = data()
    rng = np.random.default_rng(4)
    if kind == "gaussian":
        return orn.glm(X, predictor + rng.normal(size=len(X)))
    if kind == "gaussian, numbers":
        return orn.glm(X, predictor + rng.normal(size=len(X)), noise_scale=1.0, prior_precision=0.5)
    y = (predictor + rng.logistic(size=len(X)) > 0).astype(int)
    return orn.glm(X, y, "bernoulli", weights=rng.uniform(0.5, 2.0, len(X)))


@lru_cache
def curvature(kind):
    return orn.measure(regression(kind))


def outside(monkeypatch):
    monkeypatch.setattr(frame, "FEWEST", 10**9)


def sampled(kind, sampler, **options):
    settings = {"draws": 10, "chains": 2, "thin": 4, "warmup": 20, "dtype": "float64", **options}
    return orn.sample(
        regression(kind), sampler, curvature=curvature(kind), progress=False, **settings
    )


@pytest.mark.parametrize("kind", ["gaussian", "gaussian, numbers", "bernoulli"])
def test_the_same_draws_as_outside_the_frame(kind, monkeypatch):
    sampler = orn.ConstantSGD("full", damping=0.5 if kind == "bernoulli" else 1.0)
    assert frame.fits(regression(kind))
    inside = sampled(kind, sampler)
    outside(monkeypatch)
    assert not frame.fits(regression(kind))
    assert inside.draws == pytest.approx(sampled(kind, sampler).draws, rel=1e-9, abs=1e-11)
    assert inside.dynamics.preconditioner.shape == (regression(kind).dim,) * 2


def test_it_is_taken_and_the_numbers_of_a_step_are_few(monkeypatch):
    """With a control: the test above would pass if no run ever took it."""
    seen = []
    usual = session.in_frame
    monkeypatch.setattr(session, "in_frame", lambda *given: seen.append(usual(*given)) or seen[-1])
    sgld = orn.SGLD(exact=True, control_variates=True, preconditioner="full")
    for sampler in (orn.ConstantSGD("full"), sgld):
        sampled("bernoulli", sampler)
    constant, langevin = seen
    assert constant.dynamics.preconditioner.shape == () and constant.dynamics.injected is None
    assert langevin.dynamics.injected.shape == ()
    sampled("bernoulli", orn.ConstantSGD("diagonal"))
    assert seen[-1] is None


def test_injected_noise_has_its_law(monkeypatch):
    sampler = orn.SGLD(exact=True, control_variates=True, preconditioner="full")
    posterior = sampled("gaussian, numbers", sampler, draws=700, thin="auto", warmup="auto")
    assert_law(posterior, resolution=0.4)


def test_where_it_does_not_fit():
    X, predictor, _ = data()
    y = predictor + np.random.default_rng(0).normal(size=len(X))
    heavy = orn.glm(X, y, priors={"x0": orn.priors.StudentT(4, 0, 1)})
    cases = {
        "few parameters": orn.glm(X[:, :5], y),
        "sparse rows": orn.glm(scipy.sparse.csr_matrix(X), y),
        "classes": orn.glm(X, np.digitize(y, [-1.0, 1.0]), "categorical"),
        "a prior that is not normal": heavy,
        "a model of one's own": orn.Model(lambda t, x: -0.5 * x @ t, X, init=np.zeros(SIZE)),
    }
    assert {name for name, model in cases.items() if frame.fits(model)} == set()


def test_a_run_that_was_stopped_goes_on(tmp_path):
    sampler = orn.ConstantSGD("full")
    whole = sampled("bernoulli", sampler, draws=30)
    sampled("bernoulli", sampler, checkpoint=tmp_path / "run")
    again = orn.resume(
        tmp_path / "run",
        regression("bernoulli"),
        curvature=curvature("bernoulli"),
        draws=30,
        progress=False,
    )
    assert np.array_equal(again.draws, whole.draws)


def test_the_last_finite_state_is_in_the_parameters():
    dynamics = orn.ConstantSGD("full").tune(curvature("gaussian, numbers"), 64)
    far = orn.Dynamics(300.0 * dynamics.preconditioner, 64)
    with pytest.raises(orn.StabilityError):
        sampled("gaussian, numbers", far)
    flat = orn.Curvature(
        curvature("gaussian, numbers").mode,
        1e-3 * curvature("gaussian, numbers").hessian,
        1e-6 * curvature("gaussian, numbers").noise,
        1500,
    )
    with pytest.raises(orn.DivergenceError) as caught:
        orn.sample(
            regression("gaussian, numbers"),
            far,
            curvature=flat,
            progress=False,
            thin=1,
            warmup=0,
            draws=2000,
            init=curvature("gaussian, numbers").mode,
        )
    last = caught.value.last_finite
    assert last.shape == (SIZE + 1,) and np.all(np.isfinite(last))
