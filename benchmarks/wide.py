"""Wide models against references of their own: a sparse logistic regression with 20,000 columns,
softmax on MNIST's pixels, and a million rows of a million columns.

    python -m benchmarks.wide reference sparse --draws 100 --seed 1   # adds a run of HMC
    python -m benchmarks.wide sparse gaussian-vi      # orn.sample(model, draws=250), then compared
    python -m benchmarks.wide growth --rows 1000000

References are moments of 50 parameters and 200 probabilities from HMC in many chains, pooled over
the runs in benchmarks/results/wide-*.json. The figures of docs/wide-models.md come from here.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse
import scipy.special

import ornstein as orn
from ornstein.posterior.statistics import effective_sample_size

RESULTS = Path(__file__).parent / "results"
PARAMETERS, PROBABILITIES, WARM_UP = 50, 200, 20


def zipf(rows: int, columns: int, per_row: int = 40, seed: int = 0) -> orn.Model:
    """Columns drawn with probability ∝ 1/rank, values 1, weights and prior N(0, 1)."""
    rng = np.random.default_rng(seed)
    totals = np.cumsum(1.0 / np.arange(1, columns + 1))
    chosen = np.searchsorted(totals, totals[-1] * rng.random(rows * per_row)).astype(np.int32)
    pointers = np.arange(0, rows * per_row + 1, per_row)
    features = scipy.sparse.csr_matrix((np.ones(chosen.size), chosen, pointers), (rows, columns))
    features.sum_duplicates()
    features.data[:] = 1.0
    chance = scipy.special.expit(features @ rng.normal(size=columns))
    return orn.glm(features, rng.random(rows) < chance, "bernoulli", 1.0, intercept=False)


def mnist(directory: Path) -> orn.Model:
    """Softmax on pixels/255, prior N(0, 1)."""
    pixels, labels = (
        np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8)
        for path in (
            directory / f"train-{name}-ubyte.gz" for name in ("images-idx3", "labels-idx1")
        )
    )
    X = pixels[16:].reshape(-1, 784).astype(np.float32) / 255.0
    return orn.glm(X, labels[8:].astype(int), "categorical", 1.0, intercept=False)


def case(name: str) -> orn.Model:
    """The model of this name."""
    if name == "sparse":
        return zipf(50_000, 20_000)
    return mnist(Path(os.environ.get("ORNSTEIN_DATA", "../shared/data")))


def looked_at(model: orn.Model) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Places of the parameters, and the probabilities of rows at points (K, D)."""
    places = np.unique(np.linspace(0, model.dim - 1, PARAMETERS).astype(int))
    if model.linear.predictors == 1:
        places = np.unique(np.concatenate([np.arange(PARAMETERS // 2), places[1::2]]))
    else:
        seen = np.flatnonzero(np.asarray(model.features).any(axis=0))
        some = seen[np.linspace(0, len(seen) - 1, PARAMETERS).astype(int)]
        places = some * model.linear.predictors + np.arange(PARAMETERS) % model.linear.predictors
    rows = np.linspace(0, model.n_data - 1, PROBABILITIES).astype(int)
    part = model.linear.part(rows)

    def probabilities(points: np.ndarray) -> np.ndarray:
        found = np.stack([part.linear_part(point) for point in points])
        if part.predictors == 1:
            return scipy.special.expit(found[:, :, 0])
        return scipy.special.softmax(found, axis=2)[:, np.arange(len(rows)), part.response]

    return places, probabilities


def reference(name: str, draws: int, chains: int, seed: int) -> None:
    """Add a run of HMC to the stored moments; runs with other seeds make them more precise."""
    path = RESULTS / f"wide-{name}.json"
    stored = json.loads(path.read_text()) if path.exists() else {"case": name, "runs": []}
    if any(run["seed"] == seed for run in stored["runs"]):
        raise SystemExit(f"{path.name} holds a run with seed {seed} already: give another --seed")
    model, began = case(name), time.process_time()
    post = orn.hmc(model, draws=draws, chains=chains, seed=seed, warmup=WARM_UP)
    places, probabilities = looked_at(model)
    flat = post.draws.reshape(-1, model.dim)
    chances = np.concatenate([probabilities(part) for part in np.array_split(flat, 50)])
    series = np.concatenate([flat[:, places], chances], axis=1).reshape(chains, draws, -1)
    sizes = [effective_sample_size(series[:, :, k], "bulk") for k in range(series.shape[2])]
    run = {
        "seed": seed,
        "draws": draws,
        "chains": chains,
        "kicks": post.settings["kicks"],
        "accepted": round(post.settings["accepted"], 3),
        "processor seconds": round(time.process_time() - began),
        "effective sizes": [int(size) for size in sizes],
        "mean": _rounded(series.mean(axis=(0, 1))),
        "sd": _rounded(series.std(axis=(0, 1))),
    }
    stored = {**stored, "places": places.tolist(), "runs": [*stored["runs"], run]}
    path.write_text(json.dumps(stored) + "\n")
    print({key: run[key] for key in list(run)[:6]}, f"{_peak():.2f} GB")
    print(f"worst effective size of {len(stored['runs'])} runs: {pooled(name)[2]}")


def _rounded(numbers: np.ndarray) -> list[float]:
    return [float(f"{number:.6g}") for number in numbers]


def pooled(name: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Means and sds of all stored runs together, and the worst effective size."""
    path = RESULTS / f"wide-{name}.json"
    if not path.exists():
        raise SystemExit(f"no reference yet: python -m benchmarks.wide reference {name}")
    runs = json.loads(path.read_text())["runs"]
    sizes = np.array([run["effective sizes"] for run in runs], dtype=float)
    means, sds = (np.array([run[key] for run in runs]) for key in ("mean", "sd"))
    mean = np.average(means, axis=0, weights=sizes)
    squares = np.average(sds**2 + (means - mean) ** 2, axis=0, weights=sizes)
    return mean, np.sqrt(squares), int(sizes.sum(axis=0).min())


def compared(name: str, way: str, draws: int, seed: int) -> None:
    """One run of the library and its distance from the reference."""
    model, idle = case(name), _peak()
    began = time.process_time()
    asked = () if way == "auto" else (way,)
    post = orn.sample(model, *asked, draws=draws, seed=seed)
    spent, peak = time.process_time() - began, _peak()
    began = time.process_time()
    verdict = post.check()
    checked = time.process_time() - began
    if post.plan is not None:
        print(post.plan)
    print(verdict)
    print({k: v for k, v in post.settings.items() if isinstance(v, int | float | str)})
    print(f"processor time {spent:.0f} s, check {checked:.0f} s, {peak - idle:.2f} GB above idle")
    places, probabilities = looked_at(model)
    flat = post.draws.reshape(-1, model.dim)
    sizes = [effective_sample_size(post.draws[:, :, k], "bulk") for k in places]
    print(f"worst effective size of {len(places)} parameters {min(sizes):.0f}")
    mean, sd, _ = pooled(name)
    chances = np.concatenate([probabilities(part) for part in np.array_split(flat, 10)])
    for what, own_mean, own_sd, part in (
        ("parameters", post.mean[places], post.sd[places], slice(0, len(places))),
        ("probabilities", chances.mean(0), chances.std(0), slice(len(places), None)),
    ):
        _print(what, (own_mean - mean[part]) / sd[part], own_sd / sd[part])


def _print(what: str, shift: np.ndarray, ratio: np.ndarray) -> None:
    print(
        f"{what}: shift rms {np.sqrt(np.mean(shift**2)):.3f}, largest {np.abs(shift).max():.2f} sd;"
        f" sds {ratio.mean():.3f} ({ratio.min():.2f} to {ratio.max():.2f}) times the reference's"
    )


def growth(rows: int) -> None:
    """Mode, 20 draws and predictions, with as many columns as rows."""
    model = zipf(rows, rows)
    numbers, began = model.features.nnz, time.process_time()
    post = orn.laplace(model, draws=10, chains=2)
    drawn = time.process_time() - began
    predictive = post.predict(model.features[:1000])
    _ = predictive.mean, predictive.interval()
    seconds = time.process_time() - began
    print(
        f"{rows:,} rows and columns, {numbers:,} numbers: mode and draws {drawn:.1f} s, with"
        f" predictions {seconds:.1f} s of processor time ({1e9 * seconds / numbers:.0f} ns for"
        f" each number), {post.settings['passes']:.0f} passes, peak {_peak():.2f} GB"
    )


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    """Choose by the first word."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("reference", "sparse", "mnist", "growth"))
    parser.add_argument("name", nargs="?", default="auto")
    parser.add_argument("--draws", type=int, default=250)
    parser.add_argument("--chains", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=100_000)
    given = parser.parse_args()
    if given.what == "reference":
        reference(given.name, given.draws, given.chains, given.seed)
    elif given.what == "growth":
        growth(given.rows)
    else:
        compared(given.what, given.name, given.draws, given.seed)


if __name__ == "__main__":
    main()
