"""Table 1: KL divergences between the posterior and what each method samples, beside the paper's
numbers.

The set-up is the `paper` reading of the errata. For every cell: the exact stationary prediction in
discrete time with noise that depends on the spread of θ (and the paper's continuous-time one), the
simulated value with its spread over seeds, what an ideal chain of that length shows, the chain's
length in relaxation times, and the Monte-Carlo floor.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ornstein.curvature.curvature import Curvature
from ornstein.curvature.measure import measure
from ornstein.dynamics.dynamics import Sampler
from ornstein.dynamics.prediction import Prediction
from ornstein.entrances.running import sample
from ornstein.errors import BudgetWarning
from ornstein.model.regression import GLM
from ornstein.paper import published
from ornstein.paper.data import paper_model
from ornstein.paper.ideal_chain import ideal_divergences, length_that_shows
from ornstein.paper.table_chains import (
    FEWEST_RELAXATION_TIMES,
    RELAXATION_TIMES,
    lengths,
    samplers,
    tuned,
)
from ornstein.posterior.posterior import Posterior
from ornstein.theory import Gaussian, kl, kl_covariance, monte_carlo_floor

Report = Callable[[str], None]

# a draw on skin takes 0.1 s
NUTS_DRAWS, QUICK_NUTS_DRAWS = {"wine": 250, "protein": 250, "skin": 100}, 25
BBVI_TOLERANCE, QUICK_BBVI_TOLERANCE = 2e-3, 2e-2
THREADS = 2
REPLICATES = 300  # ideal chains per cell


@dataclass(frozen=True)
class Cell:
    """One method on one data set. KL in nats: fq is KL(posterior ‖ sampler), qf the other way
    round.

    `sim_*` are means over the seeds, `sim_sd` the standard deviation over them. `ideal_kl_fq` is
    what an ideal chain of the same length shows on average, and `agreement_z` how many standard
    errors of it the simulation is away. `matching_steps` is the length at which an ideal chain
    shows the paper's number.
    """

    dataset: str
    method: str
    paper_kl: float
    exact_kl_fq: float
    exact_kl_qf: float
    continuous_kl_fq: float
    sim_kl_fq: float
    sim_sd: float
    sim_kl_qf: float
    ideal_kl_fq: float
    agreement_z: float
    floor: float
    relaxation_times: float
    steps: int
    matching_steps: float
    seeds: str
    note: str


def table_1(
    directory: str | Path | None = None, quick: bool = False, report: Report = print, seeds: int = 5
) -> list[Cell]:
    """All cells, in the order of the paper's table; then the rows it could not have."""
    found = [
        cell
        for dataset in published.DATASETS
        for cell in _cells(dataset, directory, quick, report, 2 if quick else seeds)
    ]
    order = [*published.TABLE_1, *(cell.method for cell in found)]
    return sorted(
        found, key=lambda cell: (published.DATASETS.index(cell.dataset), order.index(cell.method))
    )


def _cells(
    dataset: str, directory: str | Path | None, quick: bool, report: Report, seeds: int
) -> Iterator[Cell]:
    model = paper_model(dataset, directory)
    curvature = measure(model)
    for method, sampler in samplers(dataset).items():
        yield _said(sampler_cell(dataset, method, sampler, model, curvature, quick, seeds), report)
    yield _said(bbvi_cell(dataset, model, curvature, quick, 1 if quick else seeds), report)
    yield _said(nuts_cell(dataset, model, curvature, quick, 1 if quick else seeds), report)


def _said(cell: Cell, report: Report) -> Cell:
    report(
        f"table 1: {cell.dataset}, {cell.method}: exact {cell.exact_kl_fq:.3g}, simulated"
        f" {cell.sim_kl_fq:.3g} nats"
    )
    return cell


def sampler_cell(
    dataset: str,
    method: str,
    sampler: Sampler,
    model: GLM,
    curvature: Curvature,
    quick: bool,
    seeds: int,
) -> Cell:
    """Predict, then simulate with `seeds` seeds, each a chain of its own from a draw of the
    predicted law.
    """
    dynamics, note = tuned(dataset, method, sampler, curvature)
    prediction, continuous = (
        dynamics.predict(curvature),
        dynamics.predict(curvature, time="continuous"),
    )
    assert prediction.process is not None
    draws, spacing = lengths(dataset, method, dynamics, prediction, quick)
    options: dict[str, Any] = {
        "draws": draws,
        "thin": "auto" if dynamics.window > 1 else spacing,
        "keep": "moments",
    }
    options["warmup"] = min(math.ceil(5.0 * prediction.relaxation_time), draws * spacing // 4)

    def run(seed: int) -> Posterior:
        return sample(
            model,
            dynamics,
            chains=1,
            seed=seed,
            curvature=curvature,
            progress=False,
            max_steps=10**10,
            **options,
        )

    with warnings.catch_warnings(), ThreadPoolExecutor(THREADS) as pool:
        warnings.simplefilter("ignore", BudgetWarning)
        posteriors = list(pool.map(run, range(seeds)))
    found = np.array([posterior.kl_to(curvature.laplace) for posterior in posteriors])
    process, states = posteriors[0].moment_process(), posteriors[0].settings["states"]
    ideal = ideal_divergences(
        process, states, curvature.posterior_covariance, REPLICATES // (6 if quick else 1)
    )
    steps = draws * spacing
    paper = published.TABLE_1.get(method, {}).get(dataset, math.nan)
    matching = math.nan
    if paper > prediction.kl_pq:
        matching = prediction.relaxation_time * length_that_shows(
            process, curvature.posterior_covariance, paper
        )
    return Cell(
        dataset,
        method,
        paper,
        prediction.kl_pq,
        prediction.kl_qp,
        continuous.kl_pq,
        float(found[:, 1].mean()),
        float(found[:, 1].std(ddof=1)),
        float(found[:, 0].mean()),
        float(ideal.mean()),
        float(
            (found[:, 1].mean() - ideal.mean())
            / (ideal.std(ddof=1) * math.sqrt(1.0 / len(found) + 1.0 / len(ideal)))
        ),
        monte_carlo_floor(process, states),
        steps / max(prediction.relaxation_time, 1e-12),
        steps,
        matching,
        " ".join(str(seed) for seed in range(seeds)),
        "; ".join(
            part for part in (note, *_remarks(paper, prediction, matching, steps, note)) if part
        ),
    )


def _remarks(
    paper: float, prediction: Prediction, matching: float, steps: int, note: str
) -> tuple[str, str]:
    """On the paper's number, and on a chain that is too short to be compared with a prediction."""
    relaxation = max(prediction.relaxation_time, 1e-12)
    needed = f"{float(f'{RELAXATION_TIMES * relaxation:.2g}'):,.0f}"
    short = (
        f"only {steps / relaxation:.2g} relaxation times long: {RELAXATION_TIMES:g} would take"
        f" {needed} steps a seed"
    )
    return (
        disagreement(paper, prediction.kl_pq, matching, note),
        short if steps / relaxation < FEWEST_RELAXATION_TIMES else "",
    )


def bbvi_cell(dataset: str, model: GLM, curvature: Curvature, quick: bool, seeds: int) -> Cell:
    """Mean-field BBVI; its optimum on a Gaussian posterior is known: the diagonal of the
    precision.
    """
    from ornstein.baselines.bbvi import bbvi

    posterior = curvature.posterior_covariance
    optimum = np.diag(1.0 / (curvature.n_data * np.diagonal(curvature.hessian)))
    exact = kl_covariance(posterior, optimum), kl_covariance(optimum, posterior)
    tolerance = QUICK_BBVI_TOLERANCE if quick else BBVI_TOLERANCE
    # One after the other, as with NUTS: NumPyro's stack of handlers is one for all threads.
    runs = [bbvi(model, seed=seed, tolerance=tolerance) for seed in range(seeds)]
    paper = published.TABLE_1["bbvi"][dataset]
    note = f"{np.mean([run.settings['passes'] for run in runs]):.3g} passes over the data"
    remark = disagreement(paper, exact[0], math.nan, "")
    return _baseline_cell(
        dataset,
        "bbvi",
        paper,
        exact,
        runs,
        curvature,
        "; ".join(part for part in (note, remark) if part),
    )


def nuts_cell(dataset: str, model: GLM, curvature: Curvature, quick: bool, seeds: int) -> Cell:
    """NUTS on all data: the posterior itself, up to Monte-Carlo error and to the Laplace
    approximation that it is compared with.
    """
    from ornstein.baselines.nuts import nuts

    draws = QUICK_NUTS_DRAWS if quick else NUTS_DRAWS[dataset]
    options: dict[str, Any] = {
        "draws": draws,
        "warmup": draws,
        "chains": 1,
        "dense_mass": True,
        "init": curvature.mode,
    }
    runs = [nuts(model, seed=seed, **options) for seed in range(seeds)]
    note = (
        f"{draws} draws a seed, {np.mean([run.settings['passes'] for run in runs]):.3g} passes over"
        " the data"
    )
    cell = _baseline_cell(dataset, "nuts", math.nan, (0.0, 0.0), runs, curvature, note)
    return replace(cell, floor=curvature.dim * (curvature.dim + 3) / (4.0 * draws))


def _baseline_cell(
    dataset: str,
    method: str,
    paper: float,
    exact: tuple[float, float],
    runs: list[Posterior],
    curvature: Curvature,
    note: str,
) -> Cell:
    laws = [Gaussian(run.mean, run.covariance) for run in runs]
    found = np.array([(kl(law, curvature.laplace), kl(curvature.laplace, law)) for law in laws])
    spread = float(found[:, 1].std(ddof=1)) if len(found) > 1 else math.nan
    simulated, backward = float(found[:, 1].mean()), float(found[:, 0].mean())
    nothing = math.nan
    seeds = " ".join(str(seed) for seed in range(len(runs)))
    return Cell(
        dataset,
        method,
        paper,
        *exact,
        nothing,
        simulated,
        spread,
        backward,
        nothing,
        nothing,
        nothing,
        nothing,
        0,
        nothing,
        seeds,
        note,
    )


def disagreement(paper: float, exact: float, matching_steps: float, note: str) -> str:
    """What to say where the paper's number and the exact one differ by more than a factor of two.

    >>> disagreement(1.0, 0.9, float("nan"), "")
    ''
    >>> disagreement(0.7, 0.004, 6300.0, "")
    "the paper's number is 175 times the exact one; ... a chain of about 6,300 steps, ..."
    """
    if math.isnan(paper) or math.isnan(exact) or 0.5 <= paper / max(exact, 1e-300) <= 2.0:
        return ""
    ratio = paper / max(exact, 1e-300)
    said = f"the paper's number is {ratio:.3g} times the exact one"
    if note:
        return f"{said}, which is for another rate"
    if math.isnan(matching_steps):
        return f"{said}: no reading of the set-up was found that explains it"
    about = f"{float(f'{matching_steps:.2g}'):,.0f}"
    return f"{said}; it would be that of a chain of about {about} steps, by Monte-Carlo error alone"


def rows(cells: list[Cell]) -> list[dict[str, object]]:
    """Plain rows for a CSV file, columns in the order of `Cell`."""
    return [asdict(cell) for cell in cells]
