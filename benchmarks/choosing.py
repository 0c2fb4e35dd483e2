"""`python -m benchmarks.choosing`: the table of docs/choosing-a-sampler.md, every sampler and
baseline on one correlated posterior.

What is printed depends on seeds alone, not on the machine: distances and passes over the data, no
times.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console

import ornstein as orn

ROWS, COLUMNS, BATCH = 5000, 10, 64
BUDGET = {"draws": 500, "chains": 2}
SPREAD = 1 / 32  # of the columns' narrowest direction against their widest


@dataclass(frozen=True)
class Found:
    """One run: distances in nats from the Gaussian at the mode, and what an effective draw cost."""

    predicted: float | None
    kl: float
    chance: float
    relaxation: float | None
    passes: float
    verdict: str


def problem() -> orn.GLM:
    """A logistic regression whose columns are strongly correlated."""
    rng = np.random.default_rng(0)
    rotation, _ = np.linalg.qr(rng.normal(size=(COLUMNS, COLUMNS)))
    mixing = rotation * np.geomspace(1.0, SPREAD, COLUMNS) @ rotation.T
    features = 2.0 * rng.normal(size=(ROWS, COLUMNS)) @ mixing
    chance = 1.0 / (1.0 + np.exp(-features @ rng.normal(size=COLUMNS)))
    return orn.glm(features, rng.random(ROWS) < chance, family="bernoulli", prior_precision=1.0)


def sampled(sampler: Any) -> Callable[..., orn.Posterior]:
    def run(model: orn.GLM, curvature: orn.Curvature, seed: int) -> orn.Posterior:
        options = {"batch_size": BATCH, "max_steps": 2_000_000, "progress": False}
        return orn.sample(model, sampler, curvature=curvature, seed=seed, **BUDGET, **options)

    return run


METHODS: dict[str, Callable[..., orn.Posterior]] = {
    '`ConstantSGD("full")`': sampled(orn.ConstantSGD("full")),
    '`SGLD(exact=True, control_variates=True, preconditioner="full")`': sampled(
        orn.SGLD(exact=True, control_variates=True, preconditioner="full")
    ),
    '`SGFS("full")`': sampled(orn.SGFS("full")),
    "`IASG()`": sampled(orn.IASG()),
    '`ConstantSGD("diagonal")`': sampled(orn.ConstantSGD("diagonal")),
    '`ConstantSGD("sqrt")`': sampled(orn.ConstantSGD("sqrt")),
    '`ConstantSGD("scalar")`': sampled(orn.ConstantSGD("scalar")),
    "`SGHMC()`": sampled(orn.SGHMC()),
    "`SGLD(exact=True)`": sampled(orn.SGLD(exact=True)),
    "`SGLD()`": sampled(orn.SGLD()),
    "`orn.nuts`": lambda model, curvature, seed: orn.nuts(model, seed=seed, warmup=500, **BUDGET),
    "`orn.nuts`, dense mass": lambda model, curvature, seed: orn.nuts(
        model, seed=seed, warmup=500, dense_mass=True, **BUDGET
    ),
    "`orn.low_rank`": lambda model, curvature, seed: orn.low_rank(
        model, curvature=curvature, batch_size=BATCH, max_steps=2_000_000, seed=seed, progress=False
    ),
    "`orn.bbvi`, mean-field": lambda model, curvature, seed: orn.bbvi(model, seed=seed, **BUDGET),
}


def measured(
    run: Callable[..., orn.Posterior], model: orn.GLM, curvature: orn.Curvature, seed: int
) -> Found:
    posterior = run(model, curvature, seed)
    (row,) = (
        row
        for row in orn.compare({"it": posterior}, reference=curvature.laplace).rows
        if row.name == "it"
    )
    prediction = posterior.prediction
    return Found(
        predicted=None if prediction is None else max(prediction.kl_qp, 0.0),
        kl=row.kl_qp,
        chance=row.kl_floor,
        relaxation=None if prediction is None else prediction.relaxation_time,
        passes=row.passes / row.ess,
        verdict=posterior.check().level,
    )


def line(name: str, runs: list[Found]) -> str:
    """One row of the page's table, medians over the seeds."""

    def median(field: str, digits: int = 2) -> str:
        values = [getattr(run, field) for run in runs]
        if any(value is None or not np.isfinite(value) for value in values):
            return ""
        number = float(np.median(values))
        return "0" if abs(number) < 1e-6 else f"{float(f'{number:.{digits}g}'):,.6g}"

    verdicts = " / ".join(sorted({run.verdict for run in runs}))
    cells = [
        name,
        *(median(field) for field in ("predicted", "kl", "chance", "relaxation", "passes")),
        verdicts,
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seeds", type=int, default=3, help="runs of each method; the table shows medians"
    )
    parser.add_argument("--only", default="", help="methods whose name holds this")
    given = parser.parse_args()
    console = Console(width=160, highlight=False, markup=False)
    model = problem()
    curvature = orn.measure(model)
    values = np.linalg.eigvalsh(curvature.hessian)
    console.print(
        f"N = {model.n_data}, D = {model.dim}, condition number of A {values[-1] / values[0]:.0f},"
        f" batches of {BATCH}\n"
    )
    console.print(
        "| method | KL predicted | KL found | of it Monte Carlo error | relaxation time, steps |"
        " passes per effective draw | verdict |"
    )
    console.print("|---|---|---|---|---|---|---|")
    for name, run in METHODS.items():
        if given.only in name:
            with warnings.catch_warnings():
                # too short a chain: the verdict says it
                warnings.simplefilter("ignore", orn.OrnsteinWarning)
                console.print(
                    line(
                        name, [measured(run, model, curvature, seed) for seed in range(given.seeds)]
                    )
                )


if __name__ == "__main__":
    main()
