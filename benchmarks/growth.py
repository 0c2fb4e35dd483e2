"""Time and memory against rows N, parameters D and batch size S, and the exact curvature pass
beside BLAS.

    python -m benchmarks.growth --quick

Every size runs in processes of its own, one after the other and three times over, and the least of
each number stands: neighbours on the machine only ever add to it. Memory is the peak less what the
imported libraries take. `measure` is the mode and the exact passes, `tune` the rates and the
predicted law, `step` one step of one chain. Slopes are those of a straight line through the
logarithms of the last three sizes: 1 is proportional growth.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

QUANTITIES = {"measure": "s", "tune": "s", "step": "µs", "memory": "MB"}
AXES: dict[str, dict[str, Any]] = {
    "N": {
        "sizes": [10**4, 10**5, 10**6, 10**7],
        "quick": [2000, 10**4],
        "said": "rows; logistic, D = 10, S = 256, full",
    },
    "D full": {
        "sizes": [10, 30, 100, 300, 1000, 2000],
        "quick": [5, 20],
        "said": "columns; linear, N = 20000, S = 16, full",
    },
    "D diagonal": {
        "sizes": [10**3, 10**4, 10**5, 10**6],
        "quick": [2500, 5000],
        "said": "columns; linear, N = 2000 sparse rows of 20 numbers, S = 16, diagonal",
    },
    "S": {
        "sizes": [1, 10, 100, 1000, 10**4],
        "quick": [1, 100],
        "said": "rows in a batch; logistic, N = 100000, D = 10, full",
    },
}
BLAS_SIZES = {
    False: [(10**6, 20), (2 * 10**5, 100), (4 * 10**4, 500), (2 * 10**4, 2000)],
    True: [(20000, 20), (5000, 100)],
}
ROUNDS = {False: 3, True: 1}
ROOT = Path(__file__).parents[1]


def growth_section(console: Console, quick: bool = False, limit: float = 600.0) -> dict[str, Any]:
    """All axes, then the curvature pass."""
    axes: dict[str, Any] = {}
    for axis, plan in AXES.items():
        points = least_of_rounds(axis, plan["quick" if quick else "sizes"], ROUNDS[quick], limit)
        axes[axis] = {
            "said": plan["said"],
            "points": points,
            "slopes": {name: slope(points, name) for name in QUANTITIES},
        }
        console.print(table_of(axis, axes[axis]))
    blas = [
        curvature_beside_blas(rows, columns, rounds=3 if quick else 10)
        for rows, columns in BLAS_SIZES[quick]
    ]
    for row in blas:
        console.print(
            f"Hessian of N={row['rows']} D={row['columns']}: {row['hessian']:.3g} GFLOP/s,"
            f" {row['share']:.0%} of gemm ({row['gemm']:.3g}), syrk {row['syrk']:.3g}"
        )
    return {"limit": limit, "axes": axes, "blas": blas}


def least_of_rounds(axis: str, sizes: list[int], rounds: int, limit: float) -> list[dict[str, Any]]:
    """Every size, `rounds` times over; one that has not ended is not tried again."""
    best: dict[int, dict[str, Any]] = {}
    for _ in range(rounds):
        for size in sizes:
            if "ended" not in best.get(size, {}):
                found = point_in_process(axis, size, limit)
                before = best.get(size, found)
                best[size] = (
                    found
                    if "ended" in found
                    else {name: min(found[name], before[name]) for name in found}
                )
    return [best[size] for size in sizes]


def point_in_process(axis: str, size: int, limit: float) -> dict[str, Any]:
    """One size in a fresh process; a reason instead of numbers where it does not end."""
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    command = [sys.executable, "-m", "benchmarks.growth", "--axis", axis, "--size", str(size)]
    try:
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=limit,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
    except subprocess.TimeoutExpired:
        return {"size": size, "ended": f"did not end within {limit:g} s"}
    if run.returncode:
        return {
            "size": size,
            "ended": (run.stderr.strip().splitlines() or ["stopped without a word"])[-1][:300],
        }
    return {"size": size, **json.loads(run.stdout.splitlines()[-1])}


def slope(points: list[dict[str, Any]], quantity: str) -> float | None:
    """Of log(quantity) against log(size), through the last three sizes that were measured."""
    known = [
        (point["size"], point[quantity])
        for point in points
        if quantity in point and point[quantity] > 0
    ][-3:]
    if len(known) < 2:
        return None
    sizes, values = np.log(np.array(known, dtype=float)).T
    return float(np.polyfit(sizes, values, 1)[0])


def point(axis: str, size: int) -> dict[str, float]:
    """What the fresh process measures."""
    import jax.numpy as jnp

    import ornstein as orn
    from benchmarks.steps import engine_steps, interleaved

    jnp.zeros(1).block_until_ready()
    libraries = peak_megabytes()
    model, batch_size, form = _case(axis, size)
    before = time.perf_counter()
    curvature = orn.measure(model, structure="full" if form == "full" else "diagonal")
    measured = time.perf_counter()
    dynamics = orn.ConstantSGD(form).tune(curvature, batch_size=batch_size)
    dynamics.predict(curvature).covariance  # noqa: B018  # a cached property: it is the work
    tuned = time.perf_counter()
    step = interleaved({"step": engine_steps(model, form, batch_size)}, seconds=0.1, rounds=10)[
        "step"
    ]
    memory = peak_megabytes() - libraries
    return {"measure": measured - before, "tune": tuned - measured, "step": step, "memory": memory}


def _case(axis: str, size: int) -> tuple[Any, int, str]:
    """Model, batch size and form of the preconditioner."""
    from benchmarks.steps import model_of
    from benchmarks.tasks import Task

    if axis == "N":
        return model_of(Task("", "bernoulli", size, 10, 256)), 256, "full"
    if axis == "S":
        return model_of(Task("", "bernoulli", 10**5, 10, size)), size, "full"
    if axis == "D full":
        return model_of(Task("", "gaussian", 20_000, size, 16)), 16, "full"
    return _sparse_model(size), 16, "diagonal"


def _sparse_model(columns: int, rows: int = 2000, filled: int = 20) -> Any:
    import scipy.sparse

    import ornstein as orn

    rng = np.random.default_rng(0)
    where = rng.integers(0, columns, rows * filled)
    values = rng.standard_normal(rows * filled).astype(np.float32)
    table = scipy.sparse.csr_matrix(
        (values, where, np.arange(0, rows * filled + 1, filled)), shape=(rows, columns)
    )
    return orn.glm(
        table, rng.standard_normal(rows), noise_scale=1.0, intercept=False, prior_precision=1.0
    )


def peak_megabytes() -> float:
    """The most memory this process has held; `ru_maxrss` would remember the parent's from before
    the exec.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(
            line
            for line in status.read_text(encoding="utf-8").splitlines()
            if line.startswith("VmHWM")
        )
        return int(line.split()[1]) / 1024.0
    import resource

    unit = 2.0**20 if sys.platform == "darwin" else 2.0**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def curvature_beside_blas(rows: int, columns: int, rounds: int = 5) -> dict[str, float]:
    """GFLOP/s of the exact Hessian pass and of float64 products of the same shape, in turn, best of
    `rounds`.

    All are counted as 2ND², the work of a plain product XᵀY; XᵀX may be done with half of it
    (syrk).
    """
    from benchmarks.steps import model_of
    from benchmarks.tasks import Task
    from ornstein.curvature.derivatives import derivatives_of

    model = model_of(Task("", "bernoulli", rows, columns, 1))
    derivatives, theta = derivatives_of(model), np.zeros(model.dim)
    X = np.asarray(model.features, dtype=float)
    Y = X.copy()
    programs: dict[str, Callable[[], Any]] = {
        "hessian": lambda: derivatives.hessian(theta),
        "gemm": lambda: X.T @ Y,
        "syrk": lambda: X.T @ X,
    }
    best = dict.fromkeys(programs, np.inf)
    for number in range(rounds + 1):
        for name, program in programs.items():
            started = time.perf_counter()
            program()
            if number:  # the first round compiles
                best[name] = min(best[name], time.perf_counter() - started)
    speed = {name: 2.0 * rows * columns**2 / seconds / 1e9 for name, seconds in best.items()}
    return {"rows": rows, "columns": columns, **speed, "share": speed["hessian"] / speed["gemm"]}


def table_of(axis: str, found: dict[str, Any]) -> Table:
    table = Table(title=f"{axis}: {found['said']}", title_justify="left")
    table.add_column(axis.split()[0], justify="right")
    for name, unit in QUANTITIES.items():
        table.add_column(f"{name}, {unit}", justify="right")
    for row in found["points"]:
        table.add_row(
            f"{row['size']:,}",
            *(f"{row[name]:.3g}" if name in row else row["ended"] for name in QUANTITIES),
        )
    table.add_row(
        "slope", *("" if value is None else f"{value:.2f}" for value in found["slopes"].values())
    )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for one size")
    parser.add_argument(
        "--axis", choices=tuple(AXES), help="with --size: this one size here, as JSON"
    )
    parser.add_argument("--size", type=int)
    given = parser.parse_args()
    if given.axis is not None and given.size is not None:
        print(json.dumps(point(given.axis, given.size)))
    else:
        growth_section(Console(width=120), given.quick, given.limit)


if __name__ == "__main__":
    main()
