"""Are there more rows far out than the family allows?"""

from __future__ import annotations

import numpy as np
import scipy.stats

from ornstein.critique.bounds import BAD_TAILS, CHANCE, TAILS
from ornstein.critique.dispersion import WIDER
from ornstein.critique.evidence import Evidence
from ornstein.critique.finding import Finding, graded

NAME, FAR = "tails", 3.0


def tails(evidence: Evidence) -> Finding | None:
    """The share of rows beyond three standard deviations of their predictive law."""
    if evidence.model.likelihood.law.labels:
        return None
    expected, count = 2.0 * scipy.stats.norm.sf(FAR), len(evidence.scores)
    beyond = int(np.sum(np.abs(evidence.scores) > FAR))
    chance = float(scipy.stats.binom.sf(beyond - 1, count, expected))
    level = graded(beyond / count, TAILS, BAD_TAILS, surely=chance < CHANCE)
    sentence = (
        f"{100 * beyond / count:.2f} % of the rows are beyond three standard deviations,"
        f" {100 * expected:.2f} % expected"
    )
    remedy = WIDER.get(evidence.family, 'target="sandwich"')
    if evidence.family == "gaussian":
        remedy = 'family="student-t"'
    return Finding(NAME, level, beyond / count, TAILS, sentence, "" if level == "fits" else remedy)
