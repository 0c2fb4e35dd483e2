"""What a random-intercept model takes at scale: seconds, processor seconds, memory and the verdict;
beside statsmodels and gpboost where these are installed.

    python -m benchmarks.mixed --groups 1000 10000 100000 --family bernoulli

Groups have 1 to 100 rows, so that 100,000 of them are a million rows. The figures of
docs/mixed-models.md come from here.
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

import ornstein as orn

MOST_GROUPS_OF_PEERS = 10_000  # statsmodels takes minutes for more


def data(groups: int, family: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two columns, a response, and labels: geometric sizes from 1 to 100, ten rows on average."""
    rng = np.random.default_rng(seed)
    counts = np.minimum(rng.geometric(0.0985, groups), 100)
    labels = np.repeat(np.arange(groups), counts)
    X = rng.normal(size=(len(labels), 2))
    u = X @ [0.5, -0.3] - 0.4 + 0.8 * rng.normal(size=groups)[labels]
    if family == "gaussian":
        return X, u + rng.normal(size=len(u)), labels
    return X, (rng.random(len(u)) < 1.0 / (1.0 + np.exp(-u))).astype(float), labels


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print seconds by the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    yield
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    print(f"  {what}: {clock:.1f} s, {processor:.1f} s of the processor", flush=True)


def by_ornstein(X: np.ndarray, y: np.ndarray, labels: np.ndarray, family: str) -> None:
    with timed("ornstein, in all"):
        with timed("model and mode"):
            model = orn.glmm(X, y, labels, family=family)
        with timed("draws and verdict"):
            post = orn.sample(model, progress=False)
    tried = ", ".join(f"{attempt.name}: {attempt.verdict}" for attempt in post.history)
    print(f"  {tried}; quadrature error {model.quadrature_error:.2g} nats")
    print(post.summary().iloc[:, :4].round(4).to_string())


def by_statsmodels(X: np.ndarray, y: np.ndarray, labels: np.ndarray, family: str) -> None:
    from statsmodels.regression.mixed_linear_model import MixedLM

    if family != "gaussian":
        return  # no maximum likelihood for other families
    with timed("statsmodels MixedLM"):
        MixedLM(y, np.column_stack([X, np.ones(len(X))]), labels).fit(reml=False)


def by_gpboost(X: np.ndarray, y: np.ndarray, labels: np.ndarray, family: str) -> None:
    import gpboost

    likelihood = "gaussian" if family == "gaussian" else "bernoulli_logit"
    with timed("gpboost"):
        model = gpboost.GPModel(group_data=labels, likelihood=likelihood)
        model.fit(y=y, X=np.column_stack([X, np.ones(len(X))]))


PEERS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, str], None]] = {
    "statsmodels": by_statsmodels,
    "gpboost": by_gpboost,
}


def main() -> None:
    """Run the sizes that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--family", choices=("gaussian", "bernoulli"), default="bernoulli")
    parser.add_argument("--peers", action="store_true")
    arguments = parser.parse_args()
    for groups in arguments.groups:
        X, y, labels = data(groups, arguments.family)
        print(f"{len(y):,} rows, {groups:,} groups, {arguments.family}", flush=True)
        by_ornstein(X, y, labels, arguments.family)
        for name, peer in PEERS.items():
            small = groups <= MOST_GROUPS_OF_PEERS
            if arguments.peers and small and importlib.util.find_spec(name):
                peer(X, y, labels, arguments.family)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"  memory at most {peak:.2f} GB", flush=True)


if __name__ == "__main__":
    main()
