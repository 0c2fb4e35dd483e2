"""How long a step of each family takes beside one of bernoulli of the same shape.

python -m benchmarks.families --rows 10000 --columns 10 --batch 100
"""

from __future__ import annotations

import argparse

import numpy as np

import ornstein as orn
from benchmarks.steps import engine_steps, interleaved
from ornstein.model.families.table import TABLE

REFERENCE = "bernoulli"


def response(name: str, rng: np.random.Generator, rows: int) -> np.ndarray:
    """Any response that the family takes."""
    counts = rng.poisson(1.5, rows)
    if name in ("exponential", "weibull"):
        return np.column_stack([rng.exponential(size=rows), rng.random(rows) < 0.8])
    if name == "binomial":
        return np.column_stack([rng.binomial(5, 0.4, rows), np.full(rows, 5)])
    if name in ("categorical", "ordinal"):
        return rng.integers(0, 4, rows)
    if name == "bernoulli":
        return rng.random(rows) < 0.5
    if name == "beta":
        return rng.beta(2.0, 3.0, rows)
    if name in ("gamma", "log-normal"):
        return rng.gamma(2.0, size=rows)
    return rng.normal(size=rows) if name in ("gaussian", "student-t", "quantile") else counts


def ratios(rows: int, columns: int, batch: int) -> dict[str, float]:
    """Times of a step over that of the reference, by family."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns))
    labels = {"ordinal": range(4)}
    models = {
        name: orn.glm(X, response(name, rng, rows), name, classes=labels.get(name))
        for name in TABLE
    }
    found = interleaved(
        {name: engine_steps(model, "scalar", batch) for name, model in models.items()}
    )
    print(f"a step of {REFERENCE}: {found[REFERENCE]:.2f} µs")
    return {name: taken / found[REFERENCE] for name, taken in found.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--batch", type=int, default=100)
    given = parser.parse_args()
    for name, ratio in ratios(given.rows, given.columns, given.batch).items():
        print(f"{name:32} {ratio:.2f}")


if __name__ == "__main__":
    main()
