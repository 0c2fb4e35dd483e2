"""More than one process: chains over workers, shards and their consensus, workers and schedulers that die.

The fast tests run Dask's workers as threads of this process; the slow ones on a LocalCluster of worker processes on the
loopback interface, some of which are killed.
"""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from helpers import logistic_data, regression_data

import ornstein as orn
from ornstein.cluster import Part, combined, whole_verdict
from ornstein.shards import Shards, _shard, with_prior_power

distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SHORT = {"draws": 400, "chains": 2, "progress": False, "seed": 3}
N, D = 8000, 3


def cluster(workers, processes=True):
    return distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=processes,
        dashboard_address=None,
        silence_logs=50,
    )


@pytest.fixture(scope="module")
def client():
    with cluster(2, processes=False) as local, distributed.Client(local) as connected:
        yield connected


@pytest.fixture(scope="module")
def data():
    return logistic_data(N, D, seed=2)


def test_the_consensus_of_gaussian_shards_is_the_posterior():
    """Exact: shards whose draws have exactly their own law combine to A⁻¹/N."""
    rng = np.random.default_rng(0)
    X, y = regression_data(900, 2)
    whole = orn.measure(orn.glm(X, y, noise_scale=1.0))
    parts = []
    for rows in (slice(0, 100), slice(100, 500), slice(500, 900)):
        n = rows.stop - rows.start
        local = orn.measure(with_prior_power(orn.glm(X[rows], y[rows], noise_scale=1.0), n / 900))
        draws = rng.multivariate_normal(local.mode, local.posterior_covariance, size=(2, 50))
        parts.append(
            Part(
                draws, draws.mean(axis=(0, 1)), local.posterior_covariance, local.hessian, n, {}, []
            )
        )
    draws, law = combined(whole, parts)
    np.testing.assert_allclose(law.covariance, whole.posterior_covariance, rtol=1e-9)
    np.testing.assert_allclose(draws.mean(axis=(0, 1)), whole.mode, atol=1e-12)
    assert whole_verdict(parts, law, whole).findings[-1].number < 1e-12
    equal = [
        Part(p.draws, p.mean, p.covariance, parts[1].hessian, 300, {}, []) for p in parts
    ]  # negative control: wrong weights
    assert orn.kl(combined(whole, equal)[1], whole.laplace) > 0.02


def test_the_prior_is_shared_out(data):
    X, y = data
    whole = orn.measure(orn.glm(X, y, family="bernoulli", prior_precision=50.0))
    summed = np.zeros((D + 1, D + 1))
    for rows in np.array_split(np.arange(N), 5):
        block = (X[rows], y[rows])
        build = lambda b: orn.glm(*b, family="bernoulli", prior_precision=50.0)  # noqa: E731
        summed += (
            len(rows) * orn.measure(_shard(build, len(rows) / N, block), mode=whole.mode).hessian
        )
    np.testing.assert_allclose(summed, N * whole.hessian, rtol=1e-10)


def chains_over_workers(client, data, draws):
    X, y = data
    model = orn.glm(X, y, family="bernoulli")
    options = {**SHORT, "draws": draws, "warmup": 200}
    spread, alone = orn.sample(model, client=client, **options), orn.sample(model, **options)
    np.testing.assert_array_equal(
        spread.draws, alone.draws
    )  # every chain has its streams wherever it runs
    np.testing.assert_allclose(spread.mean, alone.mean, atol=1e-6)
    np.testing.assert_allclose(spread.covariance, alone.covariance, rtol=0.02, atol=1e-6)


def shards_agree(client, data, block, shards):
    X, y = data
    sharded = orn.glm(
        da.from_array(X, chunks=(block, 2)), da.from_array(y, chunks=3000), family="bernoulli"
    )
    assert sharded.n_data == N and sharded.names == orn.glm(X, y, family="bernoulli").names
    post = orn.sample(sharded, client=client, **SHORT)
    whole = orn.measure(orn.glm(X, y, family="bernoulli"))
    np.testing.assert_allclose(
        post.curvature.mode, whole.mode, atol=1e-8
    )  # the map-reduce is exact
    np.testing.assert_allclose(post.curvature.hessian, whole.hessian, rtol=1e-8, atol=1e-12)
    assert post.draws.shape == (2, 400, D + 1) and post.settings["shards"] == shards
    assert orn.kl(orn.Gaussian(post.mean, post.covariance), whole.laplace) < 0.02
    verdict = post.check()
    assert verdict.level in ("trusted", "caution")
    assert any(f"worst of {shards} shards" in finding.sentence for finding in verdict.findings)
    with pytest.raises(orn.InputError, match="client="):
        orn.sample(sharded, **SHORT)


def test_chains_over_workers(client, data):
    chains_over_workers(client, data, 50)


def test_shards(client, data):
    shards_agree(client, data, 4000, 2)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 4])
def test_worker_processes(workers, data):
    with cluster(workers) as local, distributed.Client(local) as connected:
        assert len(connected.scheduler_info(n_workers=-1)["workers"]) == workers
        chains_over_workers(connected, data, 400)
        shards_agree(connected, data, 2000, 4)


def test_small_blocks_are_put_together(client, data):
    X, y = data
    blocks = (5, 3000, 12, 20, 4000, 963)
    sharded = orn.glm(
        da.from_array(X, chunks=(blocks, -1)),
        da.from_array(y, chunks=(blocks,)),
        family="bernoulli",
    )
    shards = Shards.on(sharded, client, 80)
    assert shards.rows == [3005, 4032, 963]
    assert shards.merged({0}).rows == [7037, 963]
    assert shards.merged({2}).rows == [3005, 4995]
    assert shards.merged({0, 1, 2}).rows == [8000]


def test_short_chains_are_no_reason_to_bring_rows_together(client, data):
    """20 draws of one chain: its own verdict speaks against every shard, and more rows would not help."""
    X, y = data
    sharded = orn.glm(
        da.from_array(X, chunks=(4000, -1)), da.from_array(y, chunks=4000), family="bernoulli"
    )
    posterior = orn.sample(sharded, client=client, draws=20, chains=1, progress=False)
    assert posterior.settings["shards"] == 2
    agreement = next(
        finding for finding in posterior.check().findings if finding.name == "R-hat, ESS"
    )
    assert agreement.level != "trusted" and np.isfinite(agreement.number)
    assert "of the one chain" in agreement.sentence


def test_data_frames_and_what_cannot_be_used(client, data, tmp_path):
    import pandas as pd

    dd = pytest.importorskip("dask.dataframe")
    X, y = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(bought=np.where(y, "yes", "no"))
    frame.iloc[:5000].to_parquet(tmp_path / "0.parquet")
    frame.iloc[5000:].to_parquet(tmp_path / "1.parquet")
    model = orn.glm(dd.read_parquet(tmp_path), "bought", family="bernoulli")
    assert model.names == ("a", "b", "c", "intercept") and model.block_rows == [5000, 3000]
    assert list(model.classes) == ["no", "yes"]
    with pytest.raises(orn.InputError, match="must name a column"):
        orn.glm(dd.read_parquet(tmp_path), "sold", family="bernoulli")
    with pytest.raises(orn.InputError, match="y must be one too"):
        orn.glm(da.from_array(X), y)
    with pytest.raises(orn.InputError, match="rows but y has"):
        orn.glm(da.from_array(X), da.from_array(y[:-1]))
    with pytest.raises(orn.InputError, match=r"must be a dask.distributed.Client"):
        orn.sample(orn.glm(X, y, family="bernoulli"), client="tcp://somewhere", **SHORT)


@pytest.mark.slow
def test_a_worker_killed_in_the_middle(data):
    X, y = data
    model = orn.glm(X, y, family="bernoulli")
    options = {**SHORT, "draws": 4000, "warmup": 200}
    alone = orn.sample(model, **options)
    with cluster(2) as local, distributed.Client(local) as client:
        victims = list(local.workers.values())
        client.run(lambda: __import__("ornstein").sample)  # loaded
        timer = threading.Timer(3.0, lambda: os.kill(victims[0].pid, signal.SIGKILL))
        timer.start()
        spread = orn.sample(model, client=client, **options)
        timer.cancel()
    np.testing.assert_array_equal(spread.draws, alone.draws)


@pytest.mark.slow
def test_a_lost_scheduler_and_the_run_that_goes_on(data, tmp_path):
    X, y = data
    model = orn.glm(X, y, family="bernoulli")
    options = {**SHORT, "draws": 20_000, "chains": 6, "warmup": 200, "checkpoint": tmp_path}
    local = cluster(2)
    client = distributed.Client(local)

    def pull_the_plug():
        while not list(tmp_path.glob("part-*.npz")):
            time.sleep(0.05)
        local.close(timeout=1)

    plug = threading.Thread(target=pull_the_plug)
    plug.start()
    with pytest.raises(orn.ClusterError, match=r"is gone.*call sample again"):
        orn.sample(model, client=client, **options)
    plug.join()
    client.close(timeout=1)
    kept = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("part-*.npz")}
    assert 0 < len(kept) < 6
    with cluster(2) as second, distributed.Client(second) as again:
        with pytest.raises(orn.InputError, match="other data or settings"):
            orn.sample(model, client=again, **{**options, "seed": 4})
        spread = orn.sample(model, client=again, **options)
    assert (
        kept.items()
        <= {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("part-*.npz")}.items()
    )
    np.testing.assert_array_equal(
        spread.draws, orn.sample(model, **{**options, "checkpoint": None}).draws
    )
