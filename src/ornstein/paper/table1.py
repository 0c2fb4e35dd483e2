"""Table 1: KL divergences between the posterior and what each method samples, beside the paper's numbers.

The set-up is the `paper` reading of the errata. For every cell: the exact stationary prediction in discrete time with noise
that answers to the spread of θ (and the paper's continuous-time one), the simulated value with its spread over seeds, the
chain's length in relaxation times, and the Monte-Carlo floor that an ideal chain of that length would show.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ornstein.curvature import Curvature, measure
from ornstein.errors import BudgetWarning
from ornstein.glm import GLM
from ornstein.paper import published
from ornstein.paper.data import paper_model
from ornstein.sample import sample
from ornstein.samplers.constant_sgd import ConstantSGD
from ornstein.samplers.iasg import IASG
from ornstein.samplers.sgfs import SGFS
from ornstein.samplers.sgld import SGLD
from ornstein.theory import Gaussian, kl, kl_covariance, monte_carlo_floor

PAPER_METHODS = tuple(published.TABLE_1)
# At most so many steps a seed: bounded by patience (protein with a scalar rate relaxes in 1.5e5 steps).
STEPS = {"wine": 4_000_000, "protein": 20_000_000, "skin": 60_000}
RELAXATION_TIMES = 4000


@dataclass(frozen=True)
class Cell:
    """One method on one data set. KL in nats: fq is KL(posterior ‖ sampler), qf the other way round."""

    dataset: str
    method: str
    paper_kl: float
    exact_kl_fq: float
    exact_kl_qf: float
    continuous_kl_fq: float
    sim_kl_fq: float
    sim_sd: float
    sim_kl_qf: float
    floor: float
    relaxation_times: float
    steps: int
    seeds: str
    note: str


def samplers(dataset: str) -> dict[str, Any]:
    """The paper's methods as it tunes them, and the rows it could not have."""
    return {
        "sgd": ConstantSGD("scalar", tuning="continuous"),
        "sgd-d": ConstantSGD("diagonal", tuning="continuous"),
        "sgd-f": ConstantSGD("full", tuning="continuous"),
        "sgld": SGLD(step_size=published.SGLD_RATES[dataset]),
        "sgfs-d": SGFS("diagonal", tuning="continuous"),
        "sgfs-f": SGFS("full", tuning="continuous"),
        "sgd-f exact": ConstantSGD("full"),
        "sgld exact": SGLD(exact=True),
        "sgd for KL(f‖q)": ConstantSGD("scalar", objective="kl_pq"),
        "sgd-d for KL(f‖q)": ConstantSGD("diagonal", objective="kl_pq"),
        "iasg rescaled": IASG(),
    }


def table_1(
    directory: str | Path | None = None, quick: bool = False, report: Callable[[str], None] = print, seeds: int = 5
) -> list[Cell]:
    """All cells that the data at hand allow, in the order of the paper's table."""
    return list(_cells(directory, quick, report, seeds))


def _cells(directory: str | Path | None, quick: bool, report: Callable[[str], None], seeds: int) -> Iterator[Cell]:
    for dataset in published.DATASETS:
        model = paper_model(dataset, directory)
        curvature = measure(model)
        for method, sampler in samplers(dataset).items():
            cell = sampler_cell(dataset, method, sampler, model, curvature, quick, seeds)
            report(f"{dataset} {method}: exact {cell.exact_kl_fq:.3g}, simulated {cell.sim_kl_fq:.3g}")
            yield cell
        for method, draw in (("bbvi", _bbvi), ("nuts", _nuts)):
            cell = baseline_cell(dataset, method, draw, model, curvature, quick, seeds)
            report(f"{dataset} {method}: exact {cell.exact_kl_fq:.3g}, simulated {cell.sim_kl_fq:.3g}")
            yield cell


def sampler_cell(dataset: str, method: str, sampler: Any, model: GLM, curvature: Curvature, quick: bool, seeds: int) -> Cell:
    """Predict, then simulate with `seeds` seeds."""
    batch_size = published.BATCH_SIZES[dataset]
    dynamics, note = sampler.tune(curvature, batch_size), ""
    if not dynamics.predict(curvature).stable:
        bound = SGLD().tune(curvature, batch_size)
        note = (
            f"the paper's rate {published.SGLD_RATES[dataset]:g} diverges under this reading: run at the automatic rate "
            f"{2.0 * float(bound.preconditioner) / curvature.n_data:.2g} instead"
        )
        dynamics = bound
    prediction = dynamics.predict(curvature)
    continuous = dynamics.predict(curvature, time="continuous")
    assert prediction.process is not None
    spacing = dynamics.window + dynamics.gap if dynamics.window > 1 else max(1, math.ceil(prediction.relaxation_time / 4.0))
    limit = STEPS[dataset] // (20 if quick else 1)
    steps = max(50 * spacing, min(limit, math.ceil(RELAXATION_TIMES * prediction.relaxation_time)))
    draws = max(50, steps // spacing)
    found = []
    for seed in range(2 if quick else seeds):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BudgetWarning)
            thin = "auto" if dynamics.window > 1 else spacing
            posterior = sample(
                model, dynamics, draws=draws, chains=1, thin=thin, seed=seed, curvature=curvature, progress=False,
                keep="moments", max_steps=10**10,
            )  # fmt: skip
        found.append(posterior.kl_to(curvature.laplace))
    floor = monte_carlo_floor(posterior.moment_process(), posterior.settings["states"])
    return _cell(
        dataset,
        method,
        (prediction.kl_pq, prediction.kl_qp, continuous.kl_pq),
        np.array(found),
        floor,
        draws * spacing / max(prediction.relaxation_time, 1e-12),
        draws * spacing,
        note,
    )


def baseline_cell(
    dataset: str, method: str, draw: Callable[..., Any], model: GLM, curvature: Curvature, quick: bool, seeds: int
) -> Cell:
    """BBVI and NUTS; mean-field BBVI's optimum on a Gaussian is known: the diagonal of the precision."""
    exact = (math.nan, math.nan, math.nan)
    if method == "bbvi":
        optimum = 1.0 / (curvature.n_data * np.diagonal(curvature.hessian))
        posterior_covariance = curvature.posterior_covariance
        forward, backward = kl_covariance(posterior_covariance, optimum), kl_covariance(optimum, posterior_covariance)
        exact = (forward, backward, forward)
    found, passes = [], 0.0
    for seed in range(2 if quick else (seeds if method == "bbvi" else 1)):
        posterior = draw(model, seed, quick)
        law = Gaussian(posterior.mean, posterior.covariance)
        found.append((kl(law, curvature.laplace), kl(curvature.laplace, law)))
        passes = float(posterior.settings.get("passes", math.nan))
    note = f"{passes:.3g} passes over the data"
    return _cell(dataset, method, exact, np.array(found), math.nan, math.nan, 0, note)


def _bbvi(model: GLM, seed: int, quick: bool) -> Any:
    from ornstein.baselines.bbvi import bbvi

    return bbvi(model, seed=seed)


def _nuts(model: GLM, seed: int, quick: bool) -> Any:
    from ornstein.baselines.nuts import nuts

    return nuts(model, seed=seed, draws=100 if quick else 500, chains=2)


def _cell(
    dataset: str,
    method: str,
    exact: tuple[float, float, float],
    found: np.ndarray,
    floor: float,
    times: float,
    steps: int,
    note: str,
) -> Cell:
    paper = published.TABLE_1.get(method, {}).get(dataset, math.nan)
    spread = float(found[:, 1].std(ddof=1)) if len(found) > 1 else math.nan
    simulated = float(found[:, 1].mean())
    remark = "; ".join(part for part in (note, _disagreement(paper, exact[0], simulated)) if part)
    seeds = " ".join(str(seed) for seed in range(len(found)))
    return Cell(
        dataset, method, paper, *exact, simulated, spread, float(found[:, 0].mean()), floor, times, steps, seeds, remark
    )


def _disagreement(paper: float, exact: float, simulated: float) -> str:
    """What to say where the paper's number and the exact one differ by more than a factor of two."""
    if math.isnan(paper) or math.isnan(exact) or 0.5 <= paper / max(exact, 1e-300) <= 2.0:
        return ""
    if exact < 0.05 and paper < 2.0:
        return "the paper's number is that of a short chain's Monte-Carlo error and of the continuous-time tuning"
    if paper > exact:
        return "a chain too short for its slowest direction inflates KL(f‖q); the paper does not give its length"
    return "no reading of the set-up was found that explains the paper's number"


def rows(cells: list[Cell]) -> list[dict[str, Any]]:
    """Plain rows for a CSV file, columns in the order of `Cell`."""
    return [asdict(cell) for cell in cells]


def columns() -> list[str]:
    """The columns of table1.csv."""
    return [field.name for field in fields(Cell)]
