"""Softmax regression on MNIST and covertype at full size: prior precision by both recipes of orn.em, BBVI and a grid of MAP fits.

    python examples/hyperparameters.py mnist covertype

The data are looked for as described in ornstein.paper.data (ORNSTEIN_DATA names a folder). A picture is written per data set.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import ornstein as orn
from ornstein.hyper.recipes import both_recipes, table
from ornstein.paper import data

GRIDS = {"mnist": np.geomspace(1.0, 316.0, 6), "covertype": np.geomspace(1e-3, 1e2, 6)}


def main(names: list[str]) -> None:
    for name in names:
        split = getattr(data, name)()
        model = orn.glm(split.X, split.y, family="categorical", prior_precision=1.0, intercept=False)
        began = time.perf_counter(), time.process_time()
        fits = both_recipes(model, (split.X_test, split.y_test), GRIDS[name], chains=2, draws=50)
        wall, processor = time.perf_counter() - began[0], time.process_time() - began[1]
        print(f"{name}: {model.n_data:,} rows, {model.dim} parameters; {wall:.0f} s, of two cores {processor:.0f} s")
        print(table(fits).to_string())
        fits["corrected"].plot(f"{name}-em.png", {"paper's recipe": fits["paper"]})


if __name__ == "__main__":
    main(sys.argv[1:] or list(GRIDS))
