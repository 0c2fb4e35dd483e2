"""Rows per second of the exact passes against workers, best of five, how many of them a fit takes,
and what a shard's chain costs.

    python -m benchmarks.scaling --rows 2000000 --columns 20 --workers 1 2 4

The figures of docs/scaling.md come from here.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from unittest import mock

import numpy as np

import ornstein as orn
from ornstein.cluster.shards import Shards
from ornstein.curvature.derivatives import derivatives_of

QUESTIONS = ("value_and_gradient", "hessian", "gradient_moments")
ROUNDS = 5


def one_process(rows: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns), dtype=np.float32)
    model = orn.glm(
        X, X[:, 0] + rng.logistic(size=rows) > 0, family="bernoulli", prior_precision=1.0
    )
    derivatives, theta = derivatives_of(model), np.zeros(model.dim)
    for name in QUESTIONS:
        getattr(derivatives, name)(theta)
        seconds = min(_seconds(lambda: getattr(derivatives, name)(theta)) for _ in range(ROUNDS))  # noqa: B023
        print(f"one process, {name}: {rows / seconds:.3g} rows/s")
    cpu = time.process_time()
    post = orn.sample(model, draws=500, chains=1, progress=False)
    cpu = time.process_time() - cpu
    steps, batch = post.settings["steps"], post.settings["batch_size"]
    print(
        f"one process, a fit of 500 draws: {steps} steps of {batch} rows,"
        f" {steps * batch / rows:.0f} passes over the data, {steps * batch / cpu:.3g} rows/s,"
        f" {cpu:.3g} CPU seconds, measuring and compiling included"
    )


def on_workers(rows: int, columns: int, workers: int) -> None:
    import dask.array as da
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        random = da.random.default_rng(0)
        X = random.standard_normal(
            (rows, columns), chunks=(rows // (2 * workers), columns), dtype=np.float32
        )
        X, y = client.persist([X, (X[:, 0] > 0).astype(int)])
        shards = Shards.on(orn.glm(X, y, family="bernoulli", prior_precision=1.0), client, 1000)
        theta = np.zeros(columns + 1)
        for name in QUESTIONS:
            shards.mean(name, theta)
            seconds = min(_seconds(lambda: shards.mean(name, theta)) for _ in range(ROUNDS))  # noqa: B023
            print(f"{workers} workers, {name}: {rows / seconds:.3g} rows/s")


def questions(rows: int, columns: int) -> None:
    """How many passes over all rows mode, A and C take, and how many over its own a shard's
    chain.
    """
    import dask.array as da
    from distributed import Client, LocalCluster

    asked: Counter[str] = Counter()

    def counted(shards: Shards, question: str, *arguments: object) -> object:
        asked[question] += 1
        return mean(shards, question, *arguments)

    mean = Shards.mean
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns), dtype=np.float32)
    y = (0.5 * X[:, 0] + rng.logistic(size=rows) > 0).astype(int)
    size = rows // 4
    with (
        LocalCluster(n_workers=2, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
        mock.patch.object(Shards, "mean", counted),
    ):
        model = orn.glm(
            da.from_array(X, chunks=(size, -1)),
            da.from_array(y, chunks=size),
            family="bernoulli",
            prior_precision=1.0,
        )
        settings = orn.sample(model, client=client, draws=500, chains=1, progress=False).settings
    passes = settings["steps"] * settings["batch_size"] / rows
    print(f"{settings['shards']} shards: {dict(asked)}, {passes:.0f} passes for 500 draws")


def _seconds(program: Callable[[], object]) -> float:
    started = time.perf_counter()
    program()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    arguments = parser.parse_args()
    questions(arguments.rows // 10, arguments.columns)
    one_process(arguments.rows, arguments.columns)
    for workers in arguments.workers:
        on_workers(arguments.rows, arguments.columns, workers)


if __name__ == "__main__":
    main()
