"""Is the noise the same everywhere?"""

from __future__ import annotations

import numpy as np

from ornstein.checks import printable
from ornstein.critique.along import Along, looked_along
from ornstein.critique.bounds import BAD_SPREAD, CHANCE, SPREAD
from ornstein.critique.curves import explained, groups_of
from ornstein.critique.evidence import Evidence
from ornstein.critique.finding import Finding, graded
from ornstein.types import Array

NAME, PARTS, FEWEST = "spread", 5, 4


def spread(evidence: Evidence) -> Finding | None:
    """The largest ratio of the residuals' spread between parts of the rows, along the prediction or
    a column.
    """
    law = evidence.model.likelihood.law
    if law.labels:
        return None
    sizes = np.abs(evidence.scores)
    ways = [*looked_along(evidence), Along("the prediction", evidence.predictor, "")]
    worst, where, surely = 1.0, ways[-1], False
    for way in ways:
        codes = groups_of(way.values, PARTS)
        if np.min(np.bincount(codes)) < FEWEST:
            continue
        ratio = _ratio(evidence.scores, codes)
        sure = explained(sizes, way.values, PARTS, least=2)[1] < CHANCE / len(ways)
        if (sure, ratio) > (surely, worst):
            worst, where, surely = ratio, way, sure
    level = graded(worst, SPREAD, BAD_SPREAD, surely=surely)
    sentence = f"along {printable(where.name)} the residuals' spread differs by a factor"
    sentence = f"{sentence} {worst:.2f}"
    return Finding(NAME, level, worst, SPREAD, sentence, _remedy(evidence, where.column, level))


def _ratio(scores: Array, codes: Array) -> float:
    spreads = [np.std(scores[codes == code]) for code in range(codes.max() + 1)]
    return float(max(spreads) / max(min(spreads), 1e-12))


def _remedy(evidence: Evidence, column: str, level: str) -> str:
    if level == "fits":
        return ""
    advice = 'target="sandwich"'
    if column and evidence.family in ("gaussian", "student-t", "log-normal"):
        advice += f', or scale="{column}"'
    if evidence.family in ("gaussian", "student-t") and bool(np.all(evidence.y > 0)):
        advice += ', or family="gamma" or "log-normal"'
    return advice
