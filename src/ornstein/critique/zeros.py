"""Are there as many zeros as the model expects?"""

from __future__ import annotations

import numpy as np

from ornstein.critique.bounds import BAD_ZEROS, ERRORS, ZEROS
from ornstein.critique.evidence import Evidence
from ornstein.critique.finding import Finding, graded

NAME = "zeros"
COUNTS = "poisson", "negative-binomial"


def zeros(evidence: Evidence) -> Finding | None:
    """The share of zeros, observed less expected; for laws of counts."""
    if not any(evidence.family.endswith(name) for name in COUNTS):
        return None
    expected = np.clip(evidence.law.cdf(np.zeros(len(evidence.y)))[0], 0.0, 1.0)
    found, wanted = float(np.mean(evidence.y == 0)), float(np.mean(expected))
    error = float(np.sqrt(np.sum(expected * (1.0 - expected)))) / len(expected)
    number = found - wanted
    level = graded(abs(number), ZEROS, BAD_ZEROS, surely=abs(number) > ERRORS * error)
    sentence = f"{100 * found:.1f} % of the outcomes are zero, {100 * wanted:.1f} % expected"
    return Finding(NAME, level, number, ZEROS, sentence, _remedy(evidence, number, level))


def _remedy(evidence: Evidence, number: float, level: str) -> str:
    if level == "fits":
        return ""
    if evidence.family not in COUNTS:
        return 'a column that explains the zeros, or target="sandwich"'
    kind = "zero-inflated" if number > 0 else "hurdle"
    above = evidence.y > 0
    # counts that are not zero, which no inflation explains
    wide = np.mean(evidence.residuals[above] ** 2) > 2.0 and evidence.family == "poisson"
    first = 'family="negative-binomial" first, then ' if wide else ""
    return f'{first}family="{kind}-{evidence.family}"'
