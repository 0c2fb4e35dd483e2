"""Do intervals hold the share of rows they promise, and labels occur as often as they should?"""

from __future__ import annotations

import numpy as np
import scipy.stats

from ornstein.critique.bounds import BAD_COVERAGE, CHANCE, COVERAGE, ERRORS
from ornstein.critique.dispersion import WIDER
from ornstein.critique.evidence import Evidence
from ornstein.critique.finding import Finding, graded
from ornstein.types import Array

NAME = "calibration"
PROMISED, PARTS = (0.5, 0.8, 0.95), 10


def calibration(evidence: Evidence) -> Finding:
    """Numbers by the coverage of central intervals, labels by groups of like probability."""
    return _labels(evidence) if evidence.model.likelihood.law.labels else _numbers(evidence)


def _numbers(evidence: Evidence) -> Finding:
    inside = np.abs(2.0 * evidence.transforms - 1.0)
    promised = np.array(PROMISED)
    held = np.array([np.mean(inside <= share) for share in promised])
    error = np.sqrt(promised * (1.0 - promised) / len(inside))
    gaps = np.where(np.abs(held - promised) > ERRORS * error, np.abs(held - promised), 0.0)
    worst = int(np.argmax(np.abs(held - promised) if not gaps.any() else gaps))
    number = float(held[worst] - promised[worst])
    level = graded(abs(number), COVERAGE, BAD_COVERAGE, surely=bool(gaps.any()))
    sentence = (
        f"{100 * promised[worst]:.0f} % intervals of single values hold {100 * held[worst]:.1f} %"
        " of the rows"
    )
    remedy = WIDER.get(evidence.family, "another family")
    if evidence.family == "gaussian" and evidence.model.likelihood.infer_scale:
        remedy = 'family="student-t", or log-normal or gamma where all outcomes are positive'
    return Finding(NAME, level, number, COVERAGE, sentence, "" if level == "fits" else remedy)


def _labels(evidence: Evidence) -> Finding:
    """The root mean square of the gaps in ten groups of each label, with the noise taken off; on
    average over single draws.
    """
    probabilities = evidence.probabilities
    count = probabilities.shape[2]
    labels = range(1, 2) if count == 2 else range(count)
    worst, worst_chance = 0.0, 1.0
    for label in labels:
        happened = evidence.y == label
        found = [_gaps(promised, happened) for promised in probabilities[:, :, label]]
        excess, chance = np.mean(found, axis=0).tolist()
        chance *= len(labels)
        size = float(np.sqrt(max(0.0, excess)))
        if (chance < CHANCE, size) > (worst_chance < CHANCE, worst):
            worst, worst_chance = size, chance
    level = graded(worst, COVERAGE, BAD_COVERAGE, surely=worst_chance < CHANCE)
    sentence = f"labels occur {100 * worst:.1f} points more or less often than their probabilities"
    remedy = "" if level == "fits" else "see trend and link; a spline of a column, or interactions"
    return Finding(NAME, level, worst, COVERAGE, sentence, remedy)


def _gaps(promised: Array, happened: Array) -> tuple[float, float]:
    """The mean square of the gaps in groups of like probability with the noise taken off, and the
    chance of such gaps.
    """
    groups = np.array_split(np.argsort(promised, kind="stable"), PARTS)
    groups = [group for group in groups if len(group)]
    sizes = np.array([len(group) for group in groups])
    gaps = np.array([happened[group].mean() - promised[group].mean() for group in groups])
    noise = np.array([np.sum(promised[g] * (1.0 - promised[g])) for g in groups])
    statistic = float(np.sum((sizes * gaps) ** 2 / np.maximum(noise, 1e-12)))
    chance = float(scipy.stats.chi2.sf(statistic, len(groups)))
    return float(np.average(gaps**2 - noise / sizes**2, weights=sizes)), chance
