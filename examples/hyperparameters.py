"""Softmax regression on MNIST and covertype at full size: prior precision by both recipes of
orn.em, BBVI and a grid of MAP fits.

    python examples/hyperparameters.py mnist covertype

What `ornstein reproduce fig6` does, with the trajectories. The data are looked for as described in
ornstein.paper.data (ORNSTEIN_DATA names a folder). A picture is written per data set.
"""

from __future__ import annotations

import sys
import time

from ornstein.hyper.recipes import drift, table
from ornstein.paper import data
from ornstein.paper.hyperparameters import GRIDS, recipes_on


def main(names: list[str]) -> None:
    for name in names:
        split = getattr(data, name)()
        began = time.perf_counter(), time.process_time()
        fits = recipes_on(split, name)
        wall, processor = time.perf_counter() - began[0], time.process_time() - began[1]
        print(
            f"{name}: {len(split.y):,} rows, {fits['corrected'].model.dim} parameters; {wall:.0f}"
            f" s, of two cores {processor:.0f} s"
        )
        print(table(fits).to_string())
        print(f"the paper's recipe moved by {drift(fits['paper']):.2%} per block at the end")
        fits["corrected"].plot(f"{name}-em.png", {"paper's recipe": fits["paper"]})


if __name__ == "__main__":
    main(sys.argv[1:] or list(GRIDS))
