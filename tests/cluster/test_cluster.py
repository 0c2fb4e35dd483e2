"""More than one process: chains over workers, shards and their consensus, workers and schedulers
that die.

The fast tests run Dask's workers as threads of this process; the slow ones on a LocalCluster of
worker processes on the loopback interface, some of which are killed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import CancelledError
from contextlib import suppress

import numpy as np
import pytest
from helpers import logistic_data, regression_data

import ornstein as orn
from ornstein.cluster import run as cluster_run
from ornstein.cluster.consensus import combined, whole_verdict
from ornstein.cluster.shards import Shards, _shard, with_prior_power
from ornstein.cluster.store import FORMAT, Part
from ornstein.curvature.derivatives import derivatives_of
from ornstein.posterior.archive import write_archive
from ornstein.sampling.checkpoint import read_sealed, write_sealed

distributed = pytest.importorskip("distributed")
SubprocessCluster = pytest.importorskip("distributed.deploy.subprocess").SubprocessCluster
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


def test_many_parameters_reach_the_shards(client):
    """A vector of more than 100 kB, which Dask treats in a way of its own."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 15_000)), np.arange(40) % 2
    model = orn.glm(
        da.from_array(X, (20, -1)), da.from_array(y, 20), "bernoulli", prior_precision=1.0
    )
    theta = 0.01 * rng.normal(size=model.dim)
    value, slope = Shards.on(model, client, 20).mean("value_and_gradient", theta)
    wanted, wanted_slope = derivatives_of(
        orn.glm(X, y, "bernoulli", prior_precision=1.0)
    ).value_and_gradient(theta)
    assert value == pytest.approx(wanted, rel=1e-12)
    np.testing.assert_allclose(slope, wanted_slope, rtol=1e-9, atol=1e-12)


def test_the_consensus_of_diagonals_is_that_of_their_matrices():
    rng = np.random.default_rng(0)
    whole = orn.Curvature(np.zeros(3), np.ones(3), np.ones(3), 900)
    parts = [
        Part(rng.normal(size=(2, 5, 3)), rng.normal(size=3), *rng.uniform(1, 2, (2, 3)), n, {}, [])
        for n in (100, 800)
    ]
    matrices = [
        Part(p.draws, p.mean, np.diag(p.covariance), np.diag(p.hessian), p.rows, {}, [])
        for p in parts
    ]
    (draws, law), (wanted, wanted_law) = combined(whole, parts), combined(whole, matrices)
    np.testing.assert_allclose(draws, wanted, rtol=1e-12)
    np.testing.assert_allclose(law.covariance, np.diagonal(wanted_law.covariance), rtol=1e-12)


def test_the_consensus_of_gaussian_shards_is_the_posterior():
    """Exact: shards whose draws have exactly their own law combine to A⁻¹/N."""
    rng = np.random.default_rng(0)
    X, y = regression_data(900, 2)
    whole = orn.measure(orn.glm(X, y, noise_scale=1.0, prior_precision=1.0))
    parts = []
    for rows in (slice(0, 100), slice(100, 500), slice(500, 900)):
        n = rows.stop - rows.start
        local = orn.measure(
            with_prior_power(
                orn.glm(X[rows], y[rows], noise_scale=1.0, prior_precision=1.0), n / 900
            )
        )
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
    model = orn.glm(X, y, family="bernoulli", prior_precision=1.0)
    options = {**SHORT, "draws": draws, "warmup": 200}
    spread, alone = (
        orn.sample(model, orn.ConstantSGD("full"), client=client, **options),
        orn.sample(model, orn.ConstantSGD("full"), **options),
    )
    # every chain has its streams wherever it runs
    np.testing.assert_array_equal(spread.draws, alone.draws)
    np.testing.assert_allclose(spread.mean, alone.mean, atol=1e-6)
    np.testing.assert_allclose(spread.covariance, alone.covariance, rtol=0.02, atol=1e-6)


def shards_agree(client, data, block, shards):
    X, y = data
    sharded = orn.glm(
        da.from_array(X, chunks=(block, 2)),
        da.from_array(y, chunks=3000),
        family="bernoulli",
        prior_precision=1.0,
    )
    assert (
        sharded.n_data == N
        and sharded.names == orn.glm(X, y, family="bernoulli", prior_precision=1.0).names
    )
    post = orn.sample(sharded, orn.ConstantSGD("full"), client=client, **SHORT)
    whole = orn.measure(orn.glm(X, y, family="bernoulli", prior_precision=1.0))
    # the map-reduce is exact
    np.testing.assert_allclose(post.curvature.mode, whole.mode, atol=1e-8)
    np.testing.assert_allclose(post.curvature.hessian, whole.hessian, rtol=1e-8, atol=1e-12)
    assert post.draws.shape == (2, 400, D + 1) and post.settings["shards"] == shards
    assert orn.kl(orn.Gaussian(post.mean, post.covariance), whole.laplace) < 0.02
    verdict = post.check()
    assert verdict.level in ("trusted", "caution")
    assert any(f"worst of {shards} shards" in finding.sentence for finding in verdict.findings)
    with pytest.raises(orn.InputError, match="client="):
        orn.sample(sharded, orn.ConstantSGD("full"), **SHORT)


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
        prior_precision=1.0,
    )
    shards = Shards.on(sharded, client, 80)
    assert shards.rows == [3005, 4032, 963]
    assert shards.merged({0}).rows == [7037, 963]
    assert shards.merged({2}).rows == [3005, 4995]
    assert shards.merged({0, 1, 2}).rows == [8000]


def test_short_chains_are_no_reason_to_bring_rows_together(client, data):
    """20 draws of one chain: its own verdict trusts no shard, and more rows would not help."""
    X, y = data
    sharded = orn.glm(
        da.from_array(X, chunks=(4000, -1)),
        da.from_array(y, chunks=4000),
        family="bernoulli",
        prior_precision=1.0,
    )
    posterior = orn.sample(
        sharded, orn.ConstantSGD("full"), client=client, draws=20, chains=1, progress=False
    )
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
    model = orn.glm(dd.read_parquet(tmp_path), "bought", family="bernoulli", prior_precision=1.0)
    assert model.names == ("a", "b", "c", "intercept") and model.block_rows == [5000, 3000]
    assert list(model.classes) == ["no", "yes"]
    with pytest.raises(orn.InputError, match="must name a column"):
        orn.glm(dd.read_parquet(tmp_path), "sold", family="bernoulli", prior_precision=1.0)
    with pytest.raises(orn.InputError, match="y must be one too"):
        orn.glm(da.from_array(X), y, prior_precision=1.0)
    with pytest.raises(orn.InputError, match="rows but y has"):
        orn.glm(da.from_array(X), da.from_array(y[:-1]), prior_precision=1.0)
    with pytest.raises(orn.InputError, match=r"must be a dask.distributed.Client"):
        orn.sample(
            orn.glm(X, y, family="bernoulli", prior_precision=1.0),
            orn.ConstantSGD("full"),
            client="tcp://somewhere",
            **SHORT,
        )


def test_another_run_in_the_same_folder_is_refused(client, data, tmp_path):
    """Data of the same shape, another prior, another family, other options: never the old draws."""
    X, y = data
    X, y = X[:400], y[:400].astype(float)
    options = {"draws": 20, "chains": 2, "warmup": 50, "progress": False, "client": client}
    first = orn.glm(X, y, noise_scale=1.0, prior_precision=1.0)
    before = orn.sample(first, orn.ConstantSGD("full"), checkpoint=tmp_path, **options)
    others = {
        "400 rows as before, with other values": orn.glm(
            X, 1.0 - y, noise_scale=1.0, prior_precision=1.0
        ),
        "prior_precision was 1.0 and is 5.0": orn.glm(X, y, noise_scale=1.0, prior_precision=5.0),
        "family was 'gaussian' and is 'poisson'": orn.glm(
            X, y, family="poisson", prior_precision=1.0
        ),
    }
    for words, model in others.items():
        with pytest.raises(orn.InputError, match=rf"{words}.*or choose another folder"):
            orn.sample(model, orn.ConstantSGD("full"), checkpoint=tmp_path, **options)
    with pytest.raises(orn.InputError, match="the option seed was 0 and is 1"):
        orn.sample(first, orn.ConstantSGD("full"), checkpoint=tmp_path, seed=1, **options)
    again = orn.sample(first, orn.ConstantSGD("full"), checkpoint=tmp_path, **options)
    np.testing.assert_array_equal(again.draws, before.draws)
    with pytest.raises(orn.FileError, match="finished parts of a run on a cluster"):
        orn.sample(
            first, orn.ConstantSGD("full"), checkpoint=tmp_path, **{**options, "client": None}
        )
    alone = {**options, "client": None}
    orn.sample(first, orn.ConstantSGD("full"), checkpoint=tmp_path / "alone", **alone)
    with pytest.raises(orn.FileError, match="a run without a cluster"):
        orn.sample(first, orn.ConstantSGD("full"), checkpoint=tmp_path / "alone", **options)


def test_other_shards_in_the_same_folder_are_refused(client, data, tmp_path):
    X, y = data
    options = {"draws": 100, "chains": 1, "progress": False, "client": client}

    def sharded(X, y, block=4000, **more):
        blocks = da.from_array(X, chunks=(block, -1)), da.from_array(y, chunks=block)
        return orn.glm(*blocks, family="bernoulli", **{"prior_precision": 1.0, **more})

    before = orn.sample(sharded(X, y), orn.ConstantSGD("full"), checkpoint=tmp_path, **options)
    others = {
        "8000 rows as before, with other values": sharded(X[::-1].copy(), y),
        "prior_precision was 1.0 and is 5.0": sharded(X, y, prior_precision=5.0),
        "the rows lie in other blocks": sharded(X, y, block=2000),
    }
    for words, model in others.items():
        with pytest.raises(orn.InputError, match=words):
            orn.sample(model, orn.ConstantSGD("full"), checkpoint=tmp_path, **options)
    again = orn.sample(sharded(X, y), orn.ConstantSGD("full"), checkpoint=tmp_path, **options)
    np.testing.assert_array_equal(again.draws, before.draws)


LIES = {
    "is damaged": lambda meta, arrays: None,  # the seal is that of other content
    "draws of shape": lambda meta, arrays: arrays.update(draws=np.zeros((1, 20, 9))),
    "not finite": lambda meta, arrays: arrays.update(draws=np.full((1, 20, 4), np.nan)),
    "a mean of shape": lambda meta, arrays: arrays.update(mean=np.zeros(1)),
    "steps='many'": lambda meta, arrays: meta["part"]["settings"].update(steps="many"),
    "rows": lambda meta, arrays: meta["part"].update(rows=None),
    "TypeError": lambda meta, arrays: meta["part"].update(shell="true"),
    "version None of the state": lambda meta, arrays: meta.update(fingerprint="mine"),
}


def test_forged_parts_are_refused(client, data, tmp_path):
    X, y = data
    model = orn.glm(X[:400], y[:400], family="bernoulli", prior_precision=1.0)
    options = {"draws": 20, "chains": 2, "warmup": 50, "progress": False, "client": client}
    orn.sample(model, orn.ConstantSGD("full"), checkpoint=tmp_path, **options)
    path = tmp_path / "part-1.npz"
    for words, lie in LIES.items():
        meta, arrays = read_sealed(path, FORMAT)
        content = path.read_bytes()
        lie(meta, arrays)
        if words == "is damaged":
            write_archive(path, {**meta, "seal": "0" * 32}, arrays)
        else:
            write_sealed(path, meta, arrays)
        with pytest.raises(orn.FileError, match=words):
            orn.sample(model, orn.ConstantSGD("full"), checkpoint=tmp_path, **options)
        path.write_bytes(content)


def killing_all_workers_once(client, begun, delay=0.0):
    """SIGKILL to every worker process, once, some seconds after `begun()`."""
    victims = list(client.run(os.getpid).values())

    def kill():
        while not begun():
            time.sleep(0.02)
        time.sleep(delay)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def running_chains(client):
    return lambda: any(
        key.startswith(("_chain", "_run_shard"))
        for keys in client.processing().values()
        for key in keys
    )


def test_all_workers_killed_once(data, tmp_path, monkeypatch):
    """The client sends the model again and the run goes on, to the same draws."""
    X, y = data
    model, losses = orn.glm(X, y, family="bernoulli", prior_precision=1.0), []
    options = {**SHORT, "draws": 20_000, "warmup": 200}

    def counted(client, number, *rest):
        losses.append(number)
        another_try(client, number, *rest)

    another_try = cluster_run._require_another_try
    monkeypatch.setattr(cluster_run, "_require_another_try", counted)
    alone = orn.sample(model, orn.ConstantSGD("full"), **options)
    with cluster(2) as local, distributed.Client(local) as client:
        client.run(lambda: __import__("ornstein").sample)  # loaded
        killer = killing_all_workers_once(client, running_chains(client), 0.3)
        spread = orn.sample(
            model, orn.ConstantSGD("full"), client=client, checkpoint=tmp_path, **options
        )
        killer.join()
    assert losses, "the run was over before the workers were killed"
    np.testing.assert_array_equal(spread.draws, alone.draws)
    assert len(list(tmp_path.glob("part-*.npz"))) == 2


@pytest.mark.slow
def test_all_workers_killed_at_twenty_moments(data, tmp_path):
    X, y = data
    model = orn.glm(X, y, family="bernoulli", prior_precision=1.0)
    options = {**SHORT, "draws": 4000, "warmup": 200}
    rng, alone = np.random.default_rng(0), orn.sample(model, orn.ConstantSGD("full"), **options)
    in_time = 0
    for number in range(20):
        with cluster(2) as local, distributed.Client(local) as client:
            client.run(lambda: __import__("ornstein").sample)
            begun = running_chains(client) if number % 2 else lambda: True
            killer = killing_all_workers_once(client, begun, rng.uniform(0.0, 1.5))
            folder = tmp_path / str(number) if number % 3 else None
            spread = orn.sample(
                model, orn.ConstantSGD("full"), client=client, checkpoint=folder, **options
            )
            in_time += not killer.is_alive()
            killer.join()
        np.testing.assert_array_equal(spread.draws, alone.draws)
    assert in_time >= 5, "nearly all runs were over before the workers were killed"


@pytest.mark.slow
def test_all_workers_of_shards_killed_once(data):
    X, y = data
    blocks = da.from_array(X, chunks=(4000, -1)), da.from_array(y, chunks=4000)
    model, found = orn.glm(*blocks, family="bernoulli", prior_precision=1.0), []
    for delay in (None, 0.0, 0.5, 2.0):
        with cluster(2) as local, distributed.Client(local) as client:
            if delay is not None:
                killer = killing_all_workers_once(client, lambda: True, delay)
            found.append(orn.sample(model, orn.ConstantSGD("full"), client=client, **SHORT).draws)
            if delay is not None:
                killer.join()
        np.testing.assert_array_equal(found[-1], found[0])


def test_workers_that_never_finish_a_part(client, data, monkeypatch):
    """The message blames the workers, which are lost, and not the scheduler, which answers."""

    def lost(running):
        raise CancelledError("lost dependencies")
        yield

    monkeypatch.setattr("ornstein.cluster.run._finished", lost)
    X, y = data
    with pytest.raises(orn.ClusterError, match="the workers were lost 3 times in a row") as caught:
        orn.sample(
            orn.glm(X[:400], y[:400], family="bernoulli", prior_precision=1.0),
            orn.ConstantSGD("full"),
            client=client,
            **SHORT,
        )
    assert "scheduler" not in str(caught.value)


@pytest.mark.slow
def test_a_worker_killed_in_the_middle(data):
    X, y = data
    model = orn.glm(X, y, family="bernoulli", prior_precision=1.0)
    options = {**SHORT, "draws": 4000, "warmup": 200}
    alone = orn.sample(model, orn.ConstantSGD("full"), **options)
    with cluster(2) as local, distributed.Client(local) as client:
        victims = list(local.workers.values())
        client.run(lambda: __import__("ornstein").sample)  # loaded
        timer = threading.Timer(3.0, lambda: os.kill(victims[0].pid, signal.SIGKILL))
        timer.start()
        spread = orn.sample(model, orn.ConstantSGD("full"), client=client, **options)
        timer.cancel()
    np.testing.assert_array_equal(spread.draws, alone.draws)


@pytest.mark.slow
def test_a_lost_scheduler_and_the_run_that_goes_on(data, tmp_path):
    X, y = data
    model = orn.glm(X, y, family="bernoulli", prior_precision=1.0)
    options = {**SHORT, "draws": 20_000, "chains": 6, "warmup": 200, "checkpoint": tmp_path}
    local = SubprocessCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    client = distributed.Client(local)

    def pull_the_plug():
        while not list(tmp_path.glob("part-*.npz")):
            time.sleep(0.05)
        local.scheduler.process.kill()

    plug = threading.Thread(target=pull_the_plug)
    plug.start()
    with pytest.raises(orn.ClusterError, match=r"is gone.*call sample again"):
        orn.sample(model, orn.ConstantSGD("full"), client=client, **options)
    plug.join()
    with suppress(Exception):  # what is dead does not say goodbye
        client.close(timeout=1)
    for worker in local.workers.values():
        with suppress(ProcessLookupError):
            worker.process.kill()
    local.status = distributed.Status.closed
    kept = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("part-*.npz")}
    assert 0 < len(kept) < 6
    with cluster(2) as second, distributed.Client(second) as again:
        with pytest.raises(orn.InputError, match="the option seed was 3 and is 4"):
            orn.sample(model, orn.ConstantSGD("full"), client=again, **{**options, "seed": 4})
        spread = orn.sample(model, orn.ConstantSGD("full"), client=again, **options)
    assert (
        kept.items()
        <= {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("part-*.npz")}.items()
    )
    np.testing.assert_array_equal(
        spread.draws,
        orn.sample(model, orn.ConstantSGD("full"), **{**options, "checkpoint": None}).draws,
    )
