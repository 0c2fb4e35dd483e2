"""Laplace, BBVI, NUTS and the low-rank Gaussian: exact optima and identities first, then laws
within Monte-Carlo error.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from helpers import kl_by_definition, regression_data

import ornstein as orn
from ornstein.baselines import bbvi as bbvi_module
from ornstein.baselines import elbo_ascent
from ornstein.baselines.laplace import CountedPasses
from ornstein.curvature import mode
from ornstein.curvature.closed_form import ClosedForm
from ornstein.curvature.derivatives import derivatives_of
from ornstein.posterior.low_rank import Sketch, rank_of
from ornstein.posterior.statistics import effective_sample_size
from ornstein.theory import Gaussian, kl

DIMENSION = 4


def gaussian_model(n_data=600, dimension=DIMENSION, seed=0, scale=1.0):
    """Known noise and a normal prior: the posterior is exactly Gaussian, so Laplace's approximation
    is exact.
    """
    features, target = regression_data(n_data, dimension, seed)
    return orn.glm(features * scale, target, noise_scale=1.0, intercept=False, prior_precision=1.0)


@pytest.fixture(scope="module")
def model():
    return gaussian_model()


@pytest.fixture(scope="module")
def exact(model):
    """The posterior in closed form, independent of the library's search for the mode."""
    features, target = regression_data(600, DIMENSION, 0)
    covariance = np.linalg.inv(features.T @ features + np.eye(DIMENSION))
    return Gaussian(covariance @ features.T @ target, covariance)


@pytest.fixture(scope="module")
def by_nuts(model):
    return orn.nuts(model, draws=1000, warmup=300, seed=1)


@pytest.fixture(scope="module")
def by_mean_field(model):
    return orn.bbvi(model, seed=1)


@pytest.fixture(scope="module")
def by_full_rank(model):
    return orn.bbvi(model, "full", seed=1)


@pytest.fixture(scope="module")
def by_low_rank(model):
    return orn.low_rank(model, rank=2, progress=False, seed=1)


@pytest.fixture(params=["by_nuts", "by_mean_field", "by_full_rank", "by_low_rank", "by_laplace"])
def baseline(request, model):
    return (
        orn.laplace(model, seed=1)
        if request.param == "by_laplace"
        else request.getfixturevalue(request.param)
    )


def whitened_sizes(draws, law):
    """Effective sizes of the law's independent coordinates and of their squares, at most the number
    of draws.
    """
    lower = np.linalg.cholesky(law.covariance)
    coordinates = np.linalg.solve(lower, (draws - law.mean).reshape(-1, law.mean.size).T).T.reshape(
        draws.shape
    )
    values = np.concatenate([coordinates, coordinates**2], axis=2)
    sizes = [effective_sample_size(values[:, :, k], "mean") for k in range(values.shape[2])]
    return np.minimum(sizes, draws.shape[0] * draws.shape[1])


def excess_kl(posterior, law):
    """KL of the draws' moments to `law` over its bound: 2n·KL is χ² with D(D+3)/2 degrees; one
    chance in 10⁴ to exceed 1.
    """
    size = law.mean.size
    flat = posterior.draws.reshape(-1, size)
    found = Gaussian(flat.mean(axis=0), np.cov(flat.T))
    draws = float(np.min(whitened_sizes(posterior.draws, law)))
    bound = scipy.stats.chi2.isf(1e-4, size * (size + 3) / 2) / (2.0 * draws)
    return kl(found, law) / bound, bound


# What every baseline hands over


def test_same_posterior(baseline, model, tmp_path):
    assert (
        baseline.draws.ndim == 3
        and baseline.draws.shape[2] == model.dim
        and baseline.draws.dtype == np.float64
    )
    assert baseline.names == model.names
    settings = baseline.settings
    assert settings["sampler"] in ("laplace", "bbvi", "nuts", "low_rank")
    assert settings["seconds"] > 0 and settings["passes"] > 1 and settings["seed"] == 1
    assert {"ornstein", "jax", "numpy", "scipy", "python"} <= set(settings)
    assert list(baseline.summary().index) == list(model.names)
    assert baseline.predict(np.zeros((3, model.dim))).mean == pytest.approx(np.zeros(3))
    assert baseline.to_arviz() is not None
    again = orn.load(baseline.save(tmp_path / "fit.orn"))
    np.testing.assert_array_equal(again.draws, baseline.draws)
    np.testing.assert_array_equal(again.covariance, baseline.covariance)
    assert (
        again.settings["sampler"] == settings["sampler"]
        and again.settings["passes"] == settings["passes"]
    )


def test_verdict_on_each(baseline):
    """On a correlated Gaussian posterior: Laplace and NUTS are right, a diagonal anything is not.
    The full family is near (0.02 nat): between what must be trusted and what must not be, so that
    the last digits of its ascent, which differ between processors, may decide.
    """
    level = baseline.check().level
    if baseline.settings.get("rank") == "full":
        assert level in ("trusted", "caution")
    else:
        right = baseline.settings["sampler"] in ("laplace", "nuts")
        assert level == ("trusted" if right else "not trusted")


def test_pytree_parameters():
    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=(80, 2)), "y": rng.normal(size=80)}

    def log_likelihood(params, example):
        return -0.5 * (example["y"] - example["x"] @ params["w"] - params["b"]) ** 2

    model = orn.Model(
        log_likelihood,
        data,
        lambda p: -0.5 * jnp.sum(p["w"] ** 2),
        init={"w": jnp.zeros(2), "b": jnp.zeros(())},
    )
    posterior = orn.laplace(model, draws=3, chains=2)
    assert posterior.params["w"].shape == (2, 3, 2) and posterior.params["b"].shape == (2, 3)


def test_same_seed_same_draws(model):
    for method in (
        lambda seed: orn.laplace(model, seed=seed),
        lambda seed: orn.nuts(model, draws=1000, warmup=300, chains=1, seed=seed),
        lambda seed: orn.bbvi(model, tolerance=10.0, seed=seed),
        lambda seed: orn.low_rank(model, rank=2, draws=5, warmup=20, progress=False, seed=seed),
    ):
        first, second, other = method(3), method(3), method(4)
        np.testing.assert_array_equal(first.draws, second.draws)
        assert not np.array_equal(first.draws, other.draws)


def test_refusals(model):
    with pytest.raises(orn.InputError, match="draws must be a whole number, 1 or more; got 0"):
        orn.laplace(model, draws=0)
    with pytest.raises(orn.InputError, match="seed must be a whole number, 0 or more"):
        orn.nuts(model, seed=-1)
    with pytest.raises(orn.InputError, match=r"target_accept must lie between 0 and 1; got 1\.0"):
        orn.nuts(model, target_accept=1.0)
    with pytest.raises(orn.InputError, match="rank must be one of"):
        orn.bbvi(model, "half")
    with pytest.raises(orn.InputError, match="tolerance must be positive; got 0"):
        orn.bbvi(model, tolerance=0)
    with pytest.raises(orn.InputError, match="batch_size must lie between 1 and"):
        orn.bbvi(model, batch_size=601)
    with pytest.raises(orn.InputError, match="rank must be a whole number, 1 or more; got 0"):
        orn.low_rank(model, rank=0)
    with pytest.raises(orn.InputError, match="the curvature has 5 parameters, the model 4"):
        orn.laplace(model, curvature=orn.measure(gaussian_model(dimension=5)))
    large = orn.Model(
        lambda theta, x: -jnp.sum((theta - x) ** 2), np.zeros((3, 2001)), init=np.zeros(2001)
    )
    with pytest.raises(orn.InputError, match=r"the full family has 2001² numbers"):
        orn.bbvi(large, "full")


# Laplace


def test_laplace_is_the_posterior(model, exact):
    posterior = orn.laplace(model, draws=2000)
    np.testing.assert_allclose(posterior.mean, exact.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(posterior.covariance, exact.covariance, rtol=1e-9)
    assert posterior.dynamics is None and posterior.prediction is None
    ratio, bound = excess_kl(posterior, exact)
    # With 8000 draws the bound is 0.0026 nats: variances off by 5 % would be seen.
    assert ratio < 1.0 and bound < 0.003
    wrong = Gaussian(exact.mean, 1.1 * exact.covariance)
    assert excess_kl(posterior, wrong)[0] > 1.0


def test_laplace_counts_passes(model):
    assert orn.laplace(model, curvature=orn.measure(model)).settings["passes"] == 0
    # A quadratic loss: value and Hessian at the start, a step, value and Hessian again, then three
    # measurements at the mode.
    assert 5 <= orn.laplace(model).settings["passes"] <= 12


def test_laplace_finds_the_mode_of_many_rows_as_fast_as_measure_does(monkeypatch):
    """By way of a part of the rows: as few second derivatives of all of them."""
    features, target = regression_data(8000, 3)
    many = orn.glm(features, target > 0, "bernoulli", prior_precision=1.0)
    monkeypatch.setattr(mode, "PART_ROWS", 400)
    monkeypatch.setattr(mode, "EXPENSIVE", 0)
    rows = []
    monkeypatch.setattr(
        ClosedForm,
        "hessian",
        lambda self, theta, hessian=ClosedForm.hessian: (
            rows.append(self.linear.n_rows),
            hessian(self, theta),
        )[1],
    )
    measured = orn.measure(many).mode
    wanted = rows.copy()
    rows.clear()
    assert np.array_equal(orn.laplace(many, draws=1, chains=1).mean, measured)
    assert rows == wanted and min(rows) < 1000


def test_laplace_of_many_parameters_is_diagonal():
    data = np.random.default_rng(0).normal(size=(50, 2001))
    many = orn.Model(
        lambda theta, x: -0.5 * jnp.sum((theta - x) ** 2),
        data,
        lambda t: -0.5 * jnp.sum(t**2),
        init=np.zeros(2001),
    )
    posterior = orn.laplace(many, draws=2, chains=1)
    assert posterior.covariance.shape == (2001,)
    assert "diagonals" in posterior.settings["approximate"]


# NUTS


def test_nuts_agrees_with_the_exact_posterior(by_nuts, exact):
    ratio, bound = excess_kl(by_nuts, exact)
    # About 2000 effective draws: the bound is near 0.01 nats, variances off by 10 % would be seen.
    assert ratio < 1.0 and bound < 0.02
    for factor in (0.8, 1.25):
        assert excess_kl(by_nuts, Gaussian(exact.mean, factor * exact.covariance))[0] > 1.0
    shifted = Gaussian(exact.mean + 0.3 * exact.standard_deviation, exact.covariance)
    assert excess_kl(by_nuts, shifted)[0] > 1.0
    assert by_nuts.settings["divergences"] == 0
    assert by_nuts.summary()["r_hat"].max() < 1.02


def test_nuts_where_laplace_is_wrong():
    """Sixty rows of a logistic regression: NUTS has the moments of a numerical integration, Laplace
    does not.
    """
    rng = np.random.default_rng(2)
    features = rng.normal(size=(60, 2))
    labels = (rng.random(60) < 1.0 / (1.0 + np.exp(-features @ [2.0, 0.5]))).astype(int)
    model = orn.glm(features, labels, family="bernoulli", intercept=False, prior_precision=1.0)
    centre, spread = orn.laplace(model).mean, orn.laplace(model).sd
    axes = [
        np.linspace(c - 8.0 * s, c + 10.0 * s, 400) for c, s in zip(centre, spread, strict=True)
    ]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    predictor = grid @ features.T
    logarithm = (
        predictor @ labels
        - np.logaddexp(0.0, predictor).sum(axis=1)
        - 0.5 * np.sum(grid**2, axis=1)
    )
    weight = np.exp(logarithm - logarithm.max())
    weight /= weight.sum()
    mean = weight @ grid
    second = weight @ (grid - mean) ** 2
    posterior = orn.nuts(model, draws=1500, warmup=300, dense_mass=True)
    for k in range(2):
        values = posterior.draws[:, :, k]
        error = np.sqrt(second[k] / effective_sample_size(values, "mean"))
        assert abs(values.mean() - mean[k]) < 4.0 * error
        squares = (values - mean[k]) ** 2
        assert abs(squares.mean() - second[k]) < 4.0 * squares.std() / np.sqrt(
            effective_sample_size(squares, "mean")
        )
    # The negative control: Laplace's mean is a quarter of a standard deviation off, which this test
    # can see.
    first = posterior.draws[:, :, 0]
    assert abs(centre[0] - first.mean()) > 6.0 * np.sqrt(
        second[0] / effective_sample_size(first, "mean")
    )


def test_nuts_reports_divergences():
    """A wall that a leapfrog step runs into: the energy jumps by far more than a thousand."""

    def log_prior(theta):
        return -0.5 * theta**2 - 1e10 * jnp.maximum(theta - 1.0, 0.0) ** 2

    model = orn.Model(lambda theta, row: 0.0 * row, np.zeros(1), log_prior, init=jnp.zeros(()))
    with pytest.warns(orn.ConvergenceWarning, match="of 400 NUTS transitions diverged"):
        posterior = orn.nuts(model, draws=400, warmup=100, chains=1)
    assert posterior.settings["divergences"] > 0


def test_nuts_passes_are_leapfrog_steps(by_nuts):
    transitions = 4 * 1300
    assert (
        transitions
        <= by_nuts.settings["passes"]
        <= transitions * by_nuts.settings["longest_trajectory"] * 4
    )


# BBVI


def mean_field_optimum(law):
    return Gaussian(law.mean, np.diag(1.0 / np.diagonal(np.linalg.inv(law.covariance))))


def test_mean_field_reaches_its_optimum(by_mean_field, exact):
    """On a Gaussian posterior the ELBO's deficit is KL(q ‖ p) − KL(q* ‖ p), and q* is known: the
    diagonal of the precision.
    """
    best = mean_field_optimum(exact)
    found = Gaussian(by_mean_field.mean, by_mean_field.covariance)
    deficit = kl(found, exact) - kl(best, exact)
    assert deficit == pytest.approx(by_mean_field.settings["shortfall"], rel=1e-6)
    assert 0.0 <= deficit <= 0.005 * DIMENSION
    assert by_mean_field.settings["converged"] and by_mean_field.settings["convergence"].startswith(
        "converged: the ELBO is"
    )
    # A deficit below 0.02 nats bounds each log sd: (x − log x − 1)/2 ≤ 0.02 with x = sd².
    assert np.all(np.abs(np.log(by_mean_field.sd / best.standard_deviation)) < 0.15)
    assert not np.any(by_mean_field.covariance - np.diag(np.diagonal(by_mean_field.covariance)))
    # The negative control: it is not the posterior, whose marginals are wider.
    assert np.all(best.standard_deviation < 0.97 * exact.standard_deviation)
    assert kl(found, exact) > 5.0 * 0.005 * DIMENSION


def test_full_rank_is_the_posterior(by_full_rank, by_mean_field, exact):
    found = Gaussian(by_full_rank.mean, by_full_rank.covariance)
    assert kl(found, exact) == pytest.approx(by_full_rank.settings["shortfall"], rel=1e-6)
    assert kl(found, exact) <= 0.005 * DIMENSION
    assert kl_by_definition(by_mean_field.covariance, exact.covariance) > 3.0 * kl(found, exact)


def test_elbo_trace(by_full_rank):
    elbo, steps = by_full_rank.settings["elbo"], by_full_rank.settings["elbo_steps"]
    assert (
        len(elbo) == len(steps)
        and steps == tuple(sorted(steps))
        and steps[-1] == by_full_rank.settings["steps"]
    )


@pytest.mark.parametrize("rank", ["mean-field", "full"])
def test_elbo_is_the_evidence(rank, model, exact):
    """At the exact posterior log p(y, θ) − log q(θ) is the log evidence for *every* θ: that of y ~
    N(0, I + XXᵀ).

    So one window at rate zero has no Monte-Carlo error for the full family; elsewhere ELBO =
    evidence − KL(q ‖ p).
    """
    features, target = regression_data(600, DIMENSION, 0)
    evidence = scipy.stats.multivariate_normal(
        np.zeros(600), np.eye(600) + features @ features.T
    ).logpdf(target)
    root = np.linalg.cholesky(exact.covariance)
    guide = elbo_ascent.Guide(
        exact.mean, root if rank == "full" else mean_field_optimum(exact).standard_deviation
    )
    coordinates = bbvi_module._coordinates(
        model, CountedPasses(derivatives_of(model)), exact.mean, rank
    )
    program, search = elbo_ascent.Program(model.loss, rank), elbo_ascent.Search(guide, 0.0, 2)
    batches = elbo_ascent.epochs(600, 600, 500, seed=0)
    average, last, elbo = elbo_ascent.window(
        program, model, guide, coordinates, search, batches, jax.random.key(0), "float64"
    )
    np.testing.assert_allclose(average.law().covariance, guide.law().covariance, rtol=1e-9)
    np.testing.assert_allclose(last.mean, exact.mean, rtol=1e-9)
    if rank == "full":
        assert elbo == pytest.approx([evidence, evidence], rel=1e-10)
    else:
        ratio = np.linalg.eigvals(np.linalg.inv(exact.covariance) @ guide.law().covariance).real
        error = np.sqrt(np.sum((ratio - 1.0) ** 2) / 2.0 / 500.0)
        assert np.all(np.abs(np.array(elbo) - (evidence - kl(guide.law(), exact))) < 4.0 * error)


@pytest.mark.parametrize("rank", ["mean-field", "full"])
def test_no_rate_to_choose(rank):
    """Columns over six orders of magnitude, minibatches, and a start a thousand standard deviations
    away: same tolerance.
    """
    scale = np.array([1e-3, 1.0, 1.0, 1e3])
    model = gaussian_model(scale=scale)
    truth = orn.laplace(model)
    start = truth.mean + 1000.0 * truth.sd
    found = orn.bbvi(model, rank, batch_size=150, init=start, tolerance=0.02)
    law = Gaussian(truth.mean, truth.covariance)
    best = law if rank == "full" else mean_field_optimum(law)
    assert found.settings["converged"]
    assert kl(Gaussian(found.mean, found.covariance), law) - kl(best, law) <= 0.02 * DIMENSION


def test_not_converged_is_said(model):
    with pytest.warns(
        orn.ConvergenceWarning,
        match="mean-field BBVI has not converged: the ELBO is .* nats from its optimum",
    ):
        posterior = orn.bbvi(model, max_steps=40)
    assert posterior.settings["converged"] is False
    assert posterior.settings["steps"] <= 40


def test_shortfall_by_movement(monkeypatch, model, exact):
    """Where the Hessian is out of reach, convergence is judged by how far the averaged guide
    moved.
    """
    monkeypatch.setattr(bbvi_module, "_hessian_in_reach", lambda model: False)
    posterior = orn.bbvi(model, tolerance=0.002)
    assert "moved between" in posterior.settings["convergence"] and posterior.settings["converged"]
    found = Gaussian(posterior.mean, posterior.covariance)
    # Both windows' errors are in the movement, so the last one's error is below it on average.
    assert kl(found, exact) - kl(mean_field_optimum(exact), exact) <= 0.002 * DIMENSION


def test_shortfall_measures_the_optimum(model, exact):
    derivatives = CountedPasses(derivatives_of(model))
    lower = np.linalg.cholesky(exact.covariance)
    guide = elbo_ascent.Guide(exact.mean, lower)
    assert bbvi_module._shortfall(model, derivatives, guide, guide, 0) == pytest.approx(
        0.0, abs=1e-12
    )
    off = elbo_ascent.Guide(exact.mean + 0.5 * lower[:, 0], 1.2 * lower)
    wanted = kl(off.law(), exact)
    assert bbvi_module._shortfall(model, derivatives, off, guide, 0) == pytest.approx(
        wanted, rel=1e-9
    )


# The low-rank Gaussian


def spiked(rng, dimension, variances, draws):
    """A correlation of a few strong directions on top of independence, with scales over four orders
    of magnitude.
    """
    basis, _ = np.linalg.qr(rng.normal(size=(dimension, len(variances))))
    scale = np.exp(rng.normal(size=dimension))
    root = scale[:, None] * np.hstack([basis * np.sqrt(variances), np.eye(dimension)])
    return rng.normal(size=(draws, root.shape[1])) @ root.T, root @ root.T


def sketched(states, rank, chains=2, piece=7):
    sketch = Sketch(chains, states.shape[1], rank, 1)
    for chain, part in enumerate(np.array_split(states, chains)):
        for start in range(0, len(part), piece):
            sketch.add(chain, part[start : start + piece])
    return sketch


def test_sketch_is_exact_where_the_rank_suffices():
    states, _ = spiked(np.random.default_rng(0), 8, [9.0, 4.0], 500)
    for rank in (8, 20):
        law = sketched(states, rank).law()
        np.testing.assert_allclose(law.covariance, np.cov(states.T), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(law.mean, states.mean(axis=0), rtol=1e-10)


def test_sketch_has_the_variances_of_the_states():
    states, _ = spiked(np.random.default_rng(1), 300, [50.0, 20.0], 150)
    for rank in (1, 5, 40):
        law = sketched(states, rank).law()
        np.testing.assert_allclose(law.variance, states.var(axis=0, ddof=1), rtol=1e-10)
        assert np.all(law.diagonal >= 0.0)


def test_sketch_does_not_depend_on_the_pieces():
    states, _ = spiked(np.random.default_rng(2), 50, [20.0], 400)
    one, other = sketched(states, 5, piece=400).law(), sketched(states, 5, piece=3).law()
    np.testing.assert_array_equal(one.covariance, other.covariance)
    half = Sketch(2, 50, 5, 1)
    half.add(0, states[:150])
    resumed = Sketch(2, 50, 5, 1)
    resumed.restore({name: array.copy() for name, array in half.state().items()})
    for sketch in (half, resumed):
        sketch.add(0, states[150:])
        sketch.add(1, states)
    np.testing.assert_array_equal(half.law().covariance, resumed.law().covariance)


def test_sketch_finds_strong_directions_and_no_others():
    rng = np.random.default_rng(3)
    states, truth = spiked(rng, 300, [50.0, 20.0], 400)
    law = sketched(states, 20).law()
    unit = np.sqrt(law.variance)
    sizes = np.sort(np.sum((law.factors / unit[:, None]) ** 2, axis=0))[::-1]
    # Chance alone gives 400 draws twenty components with 15 to 20 % of all variance; of those less
    # than 1 % remains.
    assert np.all(sizes[:2] > 10.0) and np.sum(sizes[2:]) < 0.01 * 300
    own, diagonal = (
        kl_by_definition(law.covariance, truth),
        kl_by_definition(np.diag(law.variance), truth),
    )
    # The convention of SWAG, from the last 20 deviations: half the covariances, and noise on all of
    # them.
    deviations = (states - states.mean(axis=0))[-20:]
    swag = 0.5 * np.diag(law.variance) + 0.5 * deviations.T @ deviations / 19.0
    assert own < diagonal / 4.0
    assert own < kl_by_definition(swag, truth) / 4.0
    # Along the strongest direction the variance is right within its Monte-Carlo error, √(2/400) = 7
    # %; SWAG's is half.
    direction = np.linalg.eigh(truth)[1][:, -1]
    found, wanted = direction @ law.covariance @ direction, direction @ truth @ direction
    assert abs(found / wanted - 1.0) < 4.0 * np.sqrt(2.0 / 400.0)
    many = states - states.mean(axis=0)
    halved = 0.5 * np.diag(law.variance) + 0.5 * many.T @ many / 399.0
    assert direction @ halved @ direction < 0.75 * wanted


def test_sketch_of_independent_parameters_is_diagonal():
    states = np.random.default_rng(4).normal(size=(200, 1000))
    law = sketched(states, 20).law()
    # Without shrinkage twenty components of variance up to (1 + √5)² = 10 would carry off 18 % of
    # all variance.
    assert np.sum(law.factors**2) < 0.01 * np.sum(law.variance)


def test_sketch_of_a_hundred_thousand_parameters():
    rng = np.random.default_rng(5)
    dimension, rank = 100_000, 4
    common = rng.normal(size=dimension) / np.sqrt(dimension)
    sketch = Sketch(1, dimension, rank, 1)
    states = 0.0
    for _ in range(40):
        states = rng.normal(size=(2, dimension)) + 300.0 * rng.normal(size=(2, 1)) * common
        sketch.add(0, states)
    held = sum(array.nbytes for array in sketch.state().values())
    assert held < 8 * dimension * (2 * (rank + 10) + 4)
    law = sketch.law()
    direction = law.factors[:, 0] / np.linalg.norm(law.factors[:, 0])
    assert abs(direction @ common) / np.linalg.norm(common) > 0.9
    draws = np.empty((1, 3, dimension))
    sketch.draw_into(draws, seed=0)
    # Three draws of 10⁵ nearly independent parameters: the mean square is right to 1 %.
    assert np.mean((draws[0] - law.mean) ** 2 / law.variance) == pytest.approx(1.0, abs=0.2)


def test_keep_names_a_rank():
    assert rank_of("low-rank") == 20 and rank_of("low-rank:3") == 3
    for wrong in ("low-rank:", "low-rank:0", "low-rank:x", "draws", "low"):
        assert rank_of(wrong) is None


def test_low_rank_describes_the_chain_that_ran(by_low_rank, model):
    """The same chain with all its moments kept: the variances agree to rounding, the covariances as
    far as rank 2 goes.
    """
    same = orn.sample(
        model, orn.ConstantSGD("diagonal"), draws=50, keep="moments", progress=False, seed=1
    )
    np.testing.assert_allclose(
        np.diagonal(by_low_rank.covariance), np.diagonal(same.covariance), rtol=1e-9
    )
    np.testing.assert_allclose(by_low_rank.mean, same.mean, rtol=1e-9)
    whole = orn.low_rank(model, rank=DIMENSION, progress=False, seed=1)
    np.testing.assert_allclose(whole.covariance, same.covariance, rtol=1e-8, atol=1e-12)
    assert (
        by_low_rank.prediction is not None
        and by_low_rank.dynamics.sampler == "ConstantSGD('diagonal')"
    )
    assert by_low_rank.draws.shape == (4, 50, DIMENSION)


def test_low_rank_draws_have_its_covariance():
    sketch = sketched(spiked(np.random.default_rng(6), 6, [30.0, 5.0], 300)[0], 2)
    law = Gaussian(*sketch.pooled())
    draws = np.empty((2, 3000, 6))
    sketch.draw_into(draws, seed=0)
    found = Gaussian(draws.mean(axis=(0, 1)), np.cov(draws.reshape(-1, 6).T))
    # 6000 independent draws, one chance in 10⁴: variances off by 6 % would be seen.
    bound = scipy.stats.chi2.isf(1e-4, 27) / (2.0 * 6000)
    assert kl(found, law) < bound
    assert kl(found, Gaussian(law.mean, 1.1 * law.covariance)) > bound


@pytest.mark.slow
def test_low_rank_at_a_hundred_thousand_parameters():
    """θ + noise seen 100 times in 10⁵ dimensions. The chain's law is known exactly, and is found
    within Monte-Carlo error.
    """
    dimension, n_data, batch_size = 100_000, 100, 10
    data = np.random.default_rng(0).normal(size=(n_data, dimension)).astype(np.float32)
    model = orn.Model(
        lambda theta, x: -0.5 * jnp.sum((x - theta) ** 2),
        data,
        lambda theta: -0.5 * jnp.sum(theta**2),
        init=np.zeros(dimension),
    )
    posterior = orn.low_rank(
        model, rank=10, draws=20, chains=2, batch_size=batch_size, warmup=100, progress=False
    )
    assert posterior.covariance.shape == (dimension,)
    step, hessian = posterior.dynamics.preconditioner, 1.0 + 1.0 / n_data
    exact = step * data.var(axis=0) / batch_size / (2.0 * hessian - step * hessian**2)
    mode = data.sum(axis=0) / (n_data + 1.0)
    r = (1.0 - step * hessian) ** posterior.settings["moment_spacing"]
    effective = posterior.settings["states"] * (1.0 - r) / (1.0 + r)
    # All 10⁵ parameters are moved by the same 100 rows, so a mean over them is worth 99 independent
    # ones, no more.
    assert float(np.mean((posterior.mean - mode) ** 2 / exact * effective)) == pytest.approx(
        1.0, abs=4.0 * np.sqrt(2.0 / 99.0)
    )
    squares = np.mean(posterior.settings["states"] * (1.0 - r**2) / (1.0 + r**2))
    ratio = float(np.mean(posterior.covariance / exact / (1.0 - 1.0 / effective)))
    assert ratio == pytest.approx(1.0, abs=4.0 * np.sqrt(2.0 / 99.0 / squares))  # 6 %
    # Of the draws' spread at most a fifth is common, from 10 factors and 40 draws; the rest is
    # independent.
    spread = np.mean((posterior.draws - posterior.mean) ** 2, axis=(0, 1))
    assert float(np.mean(spread / posterior.covariance)) == pytest.approx(
        1.0, abs=4.0 * np.sqrt(2.0 / 400.0) / 5.0
    )
