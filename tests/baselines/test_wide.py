"""Wide regressions: without a matrix of all parameters the answers are the same."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import ornstein as orn
from ornstein.baselines.hmc import hmc
from ornstein.curvature import wide
from ornstein.curvature.row_averages import Spread
from ornstein.posterior.statistics import effective_sample_size


def zipf(n_data, columns, per_row, seed=0, family="bernoulli", **options):
    """Columns drawn with probability ∝ 1/rank, values 1, weights and prior N(0, 1)."""
    rng = np.random.default_rng(seed)
    chance = 1.0 / np.arange(1, columns + 1)
    chosen = rng.choice(columns, size=(n_data, per_row), p=chance / chance.sum())
    rows = np.repeat(np.arange(n_data), per_row)
    features = scipy.sparse.csr_matrix(
        (np.ones(rows.size), (rows, chosen.ravel())), (n_data, columns)
    )
    features.sum_duplicates()
    features.data[:] = 1.0
    linear = features @ rng.normal(size=columns)
    if family == "gaussian":
        target = linear + rng.normal(size=n_data)
    else:
        target = (rng.random(n_data) < 1.0 / (1.0 + np.exp(-linear))).astype(int)
    return orn.glm(features, target, family, 1.0, intercept=False, **options)


@pytest.fixture(scope="module")
def small():
    return zipf(500, 120, 8)


@pytest.fixture(scope="module")
def dense(small):
    return orn.gaussian_vi(small, tolerance=1e-4)


def test_by_rows_as_by_matrices(small, dense):
    """Up to the Monte Carlo error of 128 draws, which enters predictor variances and sds."""
    rows = orn.gaussian_vi(small, dense_limit=0, head=40, draws=100, tolerance=1e-3)
    assert rows.settings["head"] == 40 and rows.settings["converged"]
    assert np.max(np.abs(rows.mean - dense.mean) / dense.sd) < 0.1
    assert np.max(np.abs(rows.sd / dense.sd - 1.0)) < 0.1
    assert np.mean(rows.sd / dense.sd) == pytest.approx(1.0, abs=0.01)
    assert rows.settings["shift"] == pytest.approx(dense.settings["shift"], abs=0.1)


def test_tight_solves_give_laplace_and_its_covariance_exactly(small):
    """At 1e-9 the operator is the matrix: mode and every column of the inverse to 1e-6."""
    found, laplace = wide.at_the_mode(small, 40, 1e-9), orn.laplace(small)
    sd = laplace.sd
    assert np.max(np.abs(found.mean - laplace.mean) / sd) < 1e-6
    unit = np.eye(small.dim)
    whole = found.precision.product(unit)
    inverse, _ = wide.solved(found.precision.product, found.head, unit, 1e-9)
    scale = np.multiply.outer(sd, sd)
    assert np.max(np.abs(inverse - np.linalg.inv(whole)) / scale) < 1e-6
    assert np.max(np.abs(inverse - laplace.covariance) / scale) < 1e-6


@pytest.mark.slow
def test_1500_parameters_by_matrices_and_by_rows():
    model = zipf(3000, 1500, 20)
    laplace, some = orn.laplace(model, draws=1), np.random.default_rng(0).permutation(1500)[:100]
    unit, exact = np.eye(1500)[:, some], laplace.covariance[:, some]
    scale = np.multiply.outer(laplace.sd, laplace.sd[some])
    for head in (0, 300):
        tight, usual = wide.at_the_mode(model, head, 1e-9), wide.at_the_mode(model, head)
        assert np.max(np.abs(tight.mean - laplace.mean) / laplace.sd) < 1e-6
        inverse, _ = wide.solved(tight.precision.product, tight.head, unit, 1e-9)
        assert np.max(np.abs(inverse - exact) / scale) < 1e-6
        inverse, _ = wide.solved(usual.precision.product, usual.head, unit, usual.accuracy)
        assert np.max(np.abs(np.sum(unit * inverse, axis=0) / laplace.sd[some] ** 2 - 1.0)) < 0.01


@pytest.mark.slow
def test_1500_parameters_by_gaussian_vi_and_by_long_hmc():
    """The mean of q is far from the mode and near that of 4800 draws by HMC, whose own error is
    0.02 sd in a mean and 1.5 % in an sd, and three to four times that in the worst of 1500.
    """
    model = zipf(3000, 1500, 20)
    vi = orn.gaussian_vi(model, dense_limit=0, draws=25)
    truth = hmc(model, vi, draws=100, chains=48)
    sizes = [effective_sample_size(truth.draws[:, :, k], "bulk") for k in range(0, 1500, 50)]
    assert min(sizes) > 1500 and vi.settings["shift"] > 3.0
    shift, ratio = (vi.mean - truth.mean) / truth.sd, vi.sd / truth.sd
    assert np.sqrt(np.mean(shift**2)) < 0.05 and np.abs(shift).max() < 0.13
    assert abs(np.mean(ratio) - 1.0) < 0.02 and np.abs(ratio - 1.0).max() < 0.1


def test_draws_have_the_whole_covariance_at_the_default_tolerance(small):
    found = wide.at_the_mode(small, 40)
    exact = np.linalg.inv(found.precision.product(np.eye(small.dim)))
    root = np.linalg.cholesky(exact)
    deviations, variances = found.deviations(2000, np.random.default_rng(1))
    z = np.linalg.solve(root, deviations)
    assert np.max(np.abs(z @ z.T / 2000 - np.eye(small.dim))) < 5.5 * np.sqrt(2.0 / 2000)
    # what is known given the others is exact: a tenth of the error of 2000 plain squares
    assert np.max(np.abs(variances / np.diagonal(exact) - 1.0)) < 0.02


def test_the_trap_of_loose_solves_is_seen(small):
    """Loose solves with the diagonal alone leave widths far from theirs."""
    loose = wide.at_the_mode(small, 0, 0.5)
    _, variances = loose.deviations(500, np.random.default_rng(1))
    exact = np.diagonal(np.linalg.inv(loose.precision.product(np.eye(small.dim))))
    assert np.max(np.abs(variances / exact - 1.0)) > 0.03
    assert wide.at_the_mode(small, 0).accuracy < wide.at_the_mode(small, 40).accuracy


@pytest.mark.parametrize(
    "way", [orn.gaussian_vi, pytest.param(orn.laplace, marks=pytest.mark.slow)]
)
def test_a_conjugate_regression_is_exact(way):
    model = zipf(600, 2100, 6, family="gaussian", noise_scale=1.0)
    features = model.features
    whole = (features.T @ features).toarray() + np.eye(model.dim)
    inverse = np.linalg.inv(whole)
    mean, sd = inverse @ (features.T @ model.response), np.sqrt(np.diagonal(inverse))
    post = way(model, draws=20, **({"head": 200} if way is orn.gaussian_vi else {}))
    assert np.max(np.abs(post.mean - mean) / sd) < 1e-3
    assert np.max(np.abs(post.sd / sd - 1.0)) < 0.15 and not post.settings["exact_moments"]
    assert np.mean(post.sd / sd) == pytest.approx(1.0, abs=0.002)
    z = (post.draws.reshape(-1, model.dim) - mean) / sd
    assert np.mean(z**2) == pytest.approx(1.0, abs=0.02)
    assert post.draws.shape == (4, 20, 2100) and post.covariance.ndim == 1


@pytest.mark.slow
def test_softmax_by_rows():
    rng = np.random.default_rng(2)
    features = scipy.sparse.random(300, 20, 0.3, random_state=rng, format="csr")
    model = orn.glm(features, rng.integers(0, 3, 300), "categorical", 1.0)
    dense = orn.gaussian_vi(model)
    rows = orn.gaussian_vi(model, dense_limit=0, head=20, draws=10)
    assert np.max(np.abs(rows.mean - dense.mean) / dense.sd) < 0.1
    assert np.max(np.abs(rows.sd / dense.sd - 1.0)) < 0.1


def test_hmc_with_the_metric_of_the_head(small, dense, monkeypatch):
    """The same law as with the whole metric, in coordinates that correlate."""
    monkeypatch.setattr("ornstein.baselines.hmc.from_rows", lambda model: True)
    monkeypatch.setattr(wide, "HEAD", 30)
    found = wide.around(small, dense.mean, dense.draws.reshape(-1, small.dim), head=30)
    monkeypatch.setattr("ornstein.baselines.hmc.around", lambda *_: found)
    post = hmc(small, dense, draws=40, chains=40)
    truth = orn.hmc(small, orn.Gaussian(dense.mean, dense.covariance), draws=40, chains=40, seed=1)
    assert post.settings["quarters"] > 1.0
    size = min(effective_sample_size(post.draws[:, :, k], "bulk") for k in (0, 40, 119))
    assert size > 300
    assert np.max(np.abs(post.mean - truth.mean) / truth.sd) < 0.15
    assert np.max(np.abs(post.sd / truth.sd - 1.0)) < 0.12


def test_draws_repeat_and_do_not_depend_on_the_number_of_chains(small):
    options = {"dense_limit": 0, "head": 30, "draws": 5}
    post = orn.gaussian_vi(small, chains=3, seed=4, **options)
    again = orn.gaussian_vi(small, chains=2, seed=4, **options)
    np.testing.assert_array_equal(post.draws[:2], again.draws)
    other = orn.gaussian_vi(small, chains=2, seed=5, **options)
    np.testing.assert_array_equal(other.mean, again.mean)
    assert not np.array_equal(other.draws, again.draws)


def test_dense_rows_take_a_whole_matrix_within_the_memory_allowed():
    rng = np.random.default_rng(3)
    model = orn.glm(rng.normal(size=(60, 30)), rng.integers(0, 2, 60), "bernoulli", 1.0)
    with pytest.raises(orn.InputError, match="a matrix of all of them takes"):
        orn.gaussian_vi(model, dense_limit=0, head=10)
    with pytest.raises(orn.InputError, match="Give memory="):
        orn.gaussian_vi(model, dense_limit=0, memory=1000.0)
    post = orn.gaussian_vi(model, dense_limit=0, draws=5)
    dense = orn.gaussian_vi(model)
    assert post.settings["head"] == 31
    assert np.max(np.abs(post.mean - dense.mean) / dense.sd) < 0.1


def test_what_only_matrices_can_do_is_refused():
    model = orn.Model(lambda theta, x: -0.5 * (x - theta) ** 2, np.arange(3.0), init=np.zeros(()))
    with pytest.raises(orn.InputError, match="only regressions"):
        orn.gaussian_vi(model, dense_limit=0)
    with pytest.raises(orn.InputError, match="dense_limit must be at most 2000"):
        orn.gaussian_vi(model, dense_limit=5000)


def test_spread_counts_rows_not_parameters(small):
    found = wide.at_the_mode(small, 40)
    deviations, _ = found.deviations(3, np.random.default_rng(0))
    spread = Spread.of(found.averages.rows, deviations)
    np.testing.assert_allclose(
        spread.variances, np.mean((small.features @ deviations) ** 2, axis=1)
    )
