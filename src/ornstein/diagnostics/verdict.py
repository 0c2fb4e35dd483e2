"""The verdict: a few findings, each with its number, its threshold and what to do, and one word for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.stats

from ornstein.diagnostics.stationarity import stationarity_test
from ornstein.theory import Gaussian, covariance_standard_error, kl, monte_carlo_floor
from ornstein.theory.modes import as_matrix

if TYPE_CHECKING:
    from ornstein.posterior import Posterior

LEVELS = ("trusted", "caution", "not trusted")
ENOUGH_RELAXATION_TIMES, TOO_FEW_RELAXATION_TIMES = 100.0, 20.0
SMALL_KL, LARGE_KL = 0.05, 0.5


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    level: str
    number: float
    threshold: float
    sentence: str
    remedy: str = ""


@dataclass(frozen=True)
class Verdict:
    """Whether the answer can be trusted; prints as a table."""

    findings: tuple[Finding, ...]

    @property
    def level(self) -> str:
        """The worst level of any finding."""
        return max((finding.level for finding in self.findings), key=LEVELS.index, default="trusted")

    def __str__(self) -> str:
        marks = {"trusted": "ok", "caution": "??", "not trusted": "NO"}
        width = max(len(finding.name) for finding in self.findings)
        lines = [f"Verdict: {self.level}"]
        for finding in self.findings:
            lines.append(f"  [{marks[finding.level]}] {finding.name:<{width}}  {finding.sentence}")
            if finding.remedy and finding.level != "trusted":
                lines.append(f"       {'':<{width}}  → {finding.remedy}")
        return "\n".join(lines)

    __repr__ = __str__


def check(posterior: Posterior) -> Verdict:
    """Look at a Posterior made by a sampler whose law theory predicts."""
    findings = [_length(posterior), _stationary(posterior), _as_predicted(posterior), _distance(posterior)]
    return Verdict(tuple(finding for finding in findings if finding is not None))


def _length(posterior: Posterior) -> Finding:
    steps = posterior.settings["thin"] * posterior.draws.shape[1]
    times = steps / max(posterior.prediction.relaxation_time, 1e-12)
    level = _graded(-times, -ENOUGH_RELAXATION_TIMES, -TOO_FEW_RELAXATION_TIMES)
    sentence = f"each chain is {times:.3g} relaxation times long (wanted: {ENOUGH_RELAXATION_TIMES:.0f})"
    wanted = int(np.ceil(posterior.draws.shape[1] * ENOUGH_RELAXATION_TIMES / max(times, 1e-12)))
    remedy = f"run longer: draws={wanted}, or raise max_steps so that thinning is not cut"
    return Finding("length", level, times, ENOUGH_RELAXATION_TIMES, sentence, remedy)


def _stationary(posterior: Posterior) -> Finding | None:
    process = posterior.prediction.process
    if posterior.draws.shape[1] < 20:
        return None
    modes = process.modes
    spacing = posterior.settings["thin"] / max(posterior.prediction.relaxation_time, 1e-12)
    test = stationarity_test(posterior.draws - posterior.curvature.mode, modes.inverse, modes.slowest, spacing)
    level = "trusted" if test.passed(0.01) else "caution" if test.passed(1e-4) else "not trusted"
    sentence = f"early against late draws: z = {test.z:.2f} ({test.series}), p = {test.p_value:.2g} (wanted: above 0.01)"
    return Finding("stationary", level, test.p_value, 0.01, sentence, "warm up longer (warmup=…) or start nearer the mode")


def _as_predicted(posterior: Posterior) -> Finding:
    prediction, total = posterior.prediction, posterior.settings["states"]
    process = posterior.moment_process()
    floor = monte_carlo_floor(process, total)
    law = Gaussian(posterior.curvature.mode, prediction.covariance)
    found = Gaussian(posterior.mean, posterior.covariance)
    distance = kl(found, law) if total > 2 * posterior.mean.size else float("nan")
    dimension = posterior.mean.size
    level = _graded(distance, 2.0 * floor + 0.02, 2.0 * floor + 0.1)
    sentence = f"KL(draws ‖ prediction) = {distance:.3g}, of which {floor:.3g} is Monte-Carlo error"
    if dimension <= 200:
        error = covariance_standard_error(process, total)
        scores = (as_matrix(posterior.covariance, dimension) - as_matrix(prediction.covariance, dimension)) / error
        row, column = np.unravel_index(int(np.argmax(np.abs(scores))), scores.shape)
        bound = scipy.stats.norm.isf(0.005 / (dimension * (dimension + 1)))
        names = posterior.names
        where = names[row] if row == column else f"{names[row]}, {names[column]}"
        sentence += f"; largest z of an entry {abs(scores[row, column]):.1f} ({where}; {bound:.1f} by chance)"
    remedy = (
        "the linear theory does not describe this chain: use a smaller step (larger N/S), check the scheme and the likelihood"
    )
    return Finding("as predicted", level, distance, 2.0 * floor + 0.02, sentence, remedy)


def _distance(posterior: Posterior) -> Finding:
    prediction = posterior.prediction
    worst = max(prediction.kl_qp, prediction.kl_pq)
    level = _graded(worst, SMALL_KL, LARGE_KL)
    sentence = (
        f"predicted KL(sampler ‖ posterior) = {prediction.kl_qp:.3g}, KL(posterior ‖ sampler) = {prediction.kl_pq:.3g} "
        f"(wanted: below {SMALL_KL})"
    )
    if prediction.approximate:
        sentence += f"; approximate: {prediction.approximate}"
        level = max(level, "caution", key=LEVELS.index)
    remedy = (
        ""
        if "'full'" in posterior.dynamics.sampler
        else "use the full preconditioner, ConstantSGD('full'): its predicted KL is 0"
    )
    return Finding("distance", level, worst, SMALL_KL, sentence, remedy or "use a smaller batch or a smaller step")


def _graded(number: float, good: float, bad: float) -> str:
    """Small is good; NaN is not trusted."""
    if not np.isfinite(number):
        return "not trusted"
    return "trusted" if number <= good else "caution" if number <= bad else "not trusted"
