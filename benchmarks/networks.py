"""`python -m benchmarks.networks`: the table of docs/networks.md. A network is trained as usual;
then its own softmax, temperature scaling, an ensemble of five and its last layer are compared on
rows that none of them has seen, and on the same images turned by a quarter.

Everything that could be tuned is fixed below: networks, splits, rotation, score (the entropy of the
predictive probabilities) and calibration error (15 bins).

python -m benchmarks.networks                  both data sets, three seeds, kept, and the page
python -m benchmarks.networks --only digits    one of them, kept beside what is there
python -m benchmarks.networks --continue       what is not kept yet: every seed is kept at once
python -m benchmarks.networks --seeds 0 1      other seeds, printed only
python -m benchmarks.networks --page           the page from the results kept
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from scipy.special import softmax
from scipy.stats import rankdata

import ornstein as orn
from ornstein.interfaces.networks.temperature import Classes, best_temperature, calibration_error

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "networks.json"
PAGE = ROOT / "docs" / "networks.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->"

SEEDS = (10, 11, 12)
MEMBERS = 5  # of the ensemble
BATCH = 50  # of Adam, in training
METRICS = ("accuracy", "NLL", "ECE", "AUROC")
NETWORK, SCALING, ENSEMBLE = "trained network", "temperature scaling", "ensemble of five"
LAYER, TEMPERED = "last layer", "last layer at its temperature"
METHODS = (NETWORK, SCALING, ENSEMBLE, LAYER, TEMPERED)


@dataclass(frozen=True)
class Task:
    """A data set, how its rows are split, and the network."""

    name: str
    training: int
    held_out: int
    test: int
    side: int
    hidden: tuple[int, ...]
    rate: float
    epochs: int


TASKS = {
    "digits": Task("digits", 600, 300, 897, 8, (32,), 1e-2, 200),
    "mnist": Task("mnist", 5000, 1000, 10_000, 28, (128, 32), 1e-3, 30),
}


class Network(nnx.Module):
    """A perceptron with hidden layers of tanh."""

    def __init__(self, inputs: int, hidden: tuple[int, ...], rngs: nnx.Rngs) -> None:
        sizes = (inputs, *hidden)
        self.hidden = nnx.List([nnx.Linear(a, b, rngs=rngs) for a, b in pairwise(sizes)])
        self.last = nnx.Linear(sizes[-1], 10, rngs=rngs)

    def __call__(self, pixels: jax.Array) -> jax.Array:
        for layer in self.hidden:
            pixels = jnp.tanh(layer(pixels))
        return self.last(pixels)


@dataclass(frozen=True)
class Rows:
    """Images (rows, pixels) between 0 and 1, and labels."""

    images: np.ndarray
    labels: np.ndarray

    def some(self, places: np.ndarray) -> Rows:
        return Rows(self.images[places], self.labels[places])


def digits(seed: int, task: Task, _: Path) -> tuple[Rows, Rows, Rows]:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    rows = Rows((images / 16.0).astype(np.float32), labels)
    cuts = np.split(order, [task.training, task.training + task.held_out])
    return rows.some(cuts[0]), rows.some(cuts[1]), rows.some(cuts[2])


def mnist(seed: int, task: Task, folder: Path) -> tuple[Rows, Rows, Rows]:
    order = np.random.default_rng(seed).permutation(60_000)
    training, test = _idx(folder, "train"), _idx(folder, "t10k")
    cuts = np.split(order[: task.training + task.held_out], [task.training])
    return training.some(cuts[0]), training.some(cuts[1]), test


def _idx(folder: Path, part: str) -> Rows:
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return Rows((images / 255.0).astype(np.float32), labels.astype(int))


DATA: dict[str, Callable[[int, Task, Path], tuple[Rows, Rows, Rows]]] = {
    "digits": digits,
    "mnist": mnist,
}


def turned(rows: Rows, side: int) -> np.ndarray:
    """The images, turned by a quarter."""
    return np.rot90(rows.images.reshape(-1, side, side), axes=(1, 2)).reshape(len(rows.labels), -1)


def trained(task: Task, rows: Rows, seed: int) -> Network:
    """Adam on the cross entropy, without a penalty, for a fixed number of epochs."""
    network = Network(task.side**2, task.hidden, nnx.Rngs(seed))
    graph, weights, rest = nnx.split(network, nnx.Param, ...)
    optimizer = optax.adam(task.rate)
    rng = np.random.default_rng([seed, 1])
    steps = len(rows.labels) // BATCH
    batches = np.concatenate(
        [rng.permutation(len(rows.labels))[: steps * BATCH] for _ in range(task.epochs)]
    ).reshape(-1, BATCH)
    images, labels = jnp.asarray(rows.images), jnp.asarray(rows.labels)

    def loss(weights: Any, batch: jax.Array) -> jax.Array:
        logits = nnx.merge(graph, weights, rest)(images[batch])
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels[batch]).mean()

    def step(carry: Any, batch: jax.Array) -> tuple[Any, None]:
        weights, state = carry
        updates, state = optimizer.update(jax.grad(loss)(weights, batch), state)
        return (optax.apply_updates(weights, updates), state), None

    start = (weights, optimizer.init(weights))
    (weights, _), _ = jax.jit(lambda start: jax.lax.scan(step, start, jnp.asarray(batches)))(start)
    return nnx.merge(graph, weights, rest)


def logits_of(network: Network, images: np.ndarray) -> np.ndarray:
    return np.asarray(network(jnp.asarray(images)), dtype=float)


def auroc(usual: np.ndarray, strange: np.ndarray) -> float:
    """How often a strange image has the larger score; ties count half."""
    ranks = rankdata(np.concatenate([usual, strange]))
    above = ranks[len(usual) :].sum() - len(strange) * (len(strange) + 1) / 2
    return float(above / (len(usual) * len(strange)))


def entropy(probabilities: np.ndarray) -> np.ndarray:
    return -np.sum(probabilities * np.log(np.maximum(probabilities, 1e-300)), axis=1)


def measured(usual: np.ndarray, strange: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Of probabilities for test images and for the same images turned."""
    chosen = np.maximum(usual[np.arange(len(labels)), labels], 1e-300)
    return {
        "accuracy": float(np.mean(usual.argmax(axis=1) == labels)),
        "NLL": float(-np.mean(np.log(chosen))),
        "ECE": calibration_error(usual, labels),
        "AUROC": auroc(entropy(usual), entropy(strange)),
    }


def compared(task: Task, seed: int, folder: Path) -> dict[str, Any]:
    """Every method's measures at one seed, with the verdict and what the last layer took."""
    training, held_out, test = DATA[task.name](seed, task, folder)
    members = [trained(task, training, 1000 * seed + number) for number in range(MEMBERS)]
    network, strange = members[0], turned(test, task.side)
    logits, far = logits_of(network, test.images), logits_of(network, strange)
    at = best_temperature(Classes(logits_of(network, held_out.images)[None], held_out.labels))
    votes = [
        np.mean([softmax(logits_of(one, images), axis=1) for one in members], axis=0)
        for images in (test.images, strange)
    ]
    began = time.perf_counter()
    post = orn.from_flax(
        network,
        (training.images, training.labels),
        layer="last",
        held_out=(held_out.images, held_out.labels),
        seed=seed,
        progress=False,
    )
    seconds = time.perf_counter() - began
    plain = orn.LastLayerPosterior.of(post, network=post.network)  # at temperature 1
    probabilities = {
        NETWORK: (softmax(logits, axis=1), softmax(far, axis=1)),
        SCALING: (softmax(logits / at, axis=1), softmax(far / at, axis=1)),
        ENSEMBLE: tuple(votes),
        LAYER: (plain.predict(test.images).mean, plain.predict(strange).mean),
        TEMPERED: (post.predict(test.images).mean, post.predict(strange).mean),
    }
    return {
        "measures": {
            name: measured(usual, odd, test.labels) for name, (usual, odd) in probabilities.items()
        },
        "temperature": post.temperature,
        "scaling": at,
        "prior precision": post.settings["prior_precision"],
        "way": post.settings["way"],
        "verdict": post.check().level,
        "seconds": seconds,
    }


def shown(task: Task, seed: int, found: dict[str, Any]) -> None:
    print(
        f"{task.name}, seed {seed}: {found['way']}, {found['verdict']}, {found['seconds']:.0f} s,"
        f" T {found['temperature']:.2f}, prior precision {found['prior precision']:.3g}"
    )
    for name, measures in found["measures"].items():
        numbers = "  ".join(f"{what} {measures[what]:.3f}" for what in METRICS)
        print(f"  {name:30s} {numbers}", flush=True)


def page(results: dict[str, dict[str, Any]]) -> str:
    """The table in Markdown: one column for each data set and measure, the seeds one by one."""
    columns = [(task, what) for task in results for what in METRICS[1:]]
    heading = " | ".join(f"{_title(task)}, {what}" for task, what in columns)
    lines = [f"| | {heading} |", "|---|" + "---|" * len(columns)]
    for name in METHODS:
        cells = []
        for task, what in columns:
            seeds = results[task].values()
            numbers = [f"{found['measures'][name][what]:.3f}" for found in seeds]
            cells.append(" / ".join(number.removeprefix("0") for number in numbers))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for task, seeds in results.items():
        ways = sorted({f"{found['way']}, {found['verdict']}" for found in seeds.values()})
        slowest = max(found["seconds"] for found in seeds.values())
        lines += ["", f"{_title(task)}: {'; '.join(ways)}; at most {slowest:.0f} s for the layer."]
    return "\n".join(lines) + "\n"


def _title(task: str) -> str:
    return {"digits": "digits", "mnist": "MNIST"}[task]


def kept() -> dict[str, dict[str, Any]]:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def keep(task: str, seed: int, found: dict[str, Any]) -> None:
    known = kept()
    known.setdefault(task, {})[str(seed)] = found
    ordered = {name: known[name] for name in TASKS if name in known}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def write_page(results: dict[str, dict[str, Any]]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(text[:before] + page(results) + text[after:], encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=TASKS)
    parser.add_argument("--seeds", type=int, nargs="*")
    parser.add_argument("--continue", action="store_true", dest="missing")
    parser.add_argument("--page", action="store_true")
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path(os.environ.get("ORNSTEIN_DATA", ROOT.parent / "shared" / "data")),
    )
    given = parser.parse_args()
    if given.page:
        write_page(kept())
        return
    for name in [given.only] if given.only else TASKS:
        for seed in given.seeds or SEEDS:
            if given.missing and str(seed) in kept().get(name, {}):
                continue
            found = compared(TASKS[name], seed, given.data_dir)
            shown(TASKS[name], seed, found)
            if not given.seeds:
                keep(name, seed, found)
    if not given.seeds:
        write_page(kept())


if __name__ == "__main__":
    main()
