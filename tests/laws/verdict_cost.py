"""What does a check cost? Processor time and passes over the data, of fits and of their checks.

    python tests/laws/verdict_cost.py --cases small wide tall

Wanted: at most 15 % of the run, or 2 s, or 64 passes over the data, whichever is most. The seconds
of a pass are those of a gradient at 64 points, divided by 64.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

import ornstein as orn  # noqa: E402
from ornstein.verdict import verdict  # noqa: E402
from ornstein.verdict.density import Density  # noqa: E402

# Rows, parameters and sampler; `None` is the plan's choice.
CASES = {
    "small": (10_000, 10, orn.ConstantSGD("full")),
    "middle": (10_000, 200, orn.ConstantSGD("full")),
    "wide": (10_000, 2000, orn.ConstantSGD("diagonal")),
    "tall": (1_000_000, 10, orn.ConstantSGD("full")),
    "tall-planned": (1_000_000, 10, None),
    "tall-wide": (1_000_000, 100, orn.ConstantSGD("full")),
}
POINTS = 64


def logistic(rows, size):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, size))
    chance = 1.0 / (1.0 + np.exp(-X @ rng.normal(size=size) / np.sqrt(size)))
    return orn.glm(X, rng.random(rows) < chance, "bernoulli", prior_precision=1.0, intercept=False)


def timed(work):
    began = time.process_time()
    return work(), time.process_time() - began


def cost(name):
    """Seconds of the run, of two checks and of 64 passes; the passes; and the verdict."""
    rows, size, sampler = CASES[name]
    model = logistic(rows, size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        post, run = timed(lambda: orn.sample(model, sampler, progress=False))
        found, first = timed(lambda: verdict.judge(post, 0, 1))
        again, second = timed(lambda: verdict.judge(post, 1, 1))
    points = np.repeat(post.mean[None], POINTS, axis=0)
    density = Density(model)
    density.values_and_gradients(points)
    _, passes = timed(lambda: density.values_and_gradients(points))
    return run, first, second, passes, again.passes, found.verdict.level


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    for name in parser.parse_args().cases:
        run, first, second, passes, taken, level = cost(name)
        bound = max(0.15 * run, 2.0, passes)
        print(
            f"{name} {CASES[name][:2]}: run {run:.1f} s, check {first:.1f} s, again {second:.1f} s"
            f" ({taken:.0f} passes), 64 passes {passes:.1f} s, allowed {bound:.1f} s; {level}",
            flush=True,
        )


if __name__ == "__main__":
    main()
