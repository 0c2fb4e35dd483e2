"""Is the noise the same everywhere?"""

from __future__ import annotations

import numpy as np

from ornstein.checks import printable
from ornstein.critique.bounds import BAD_SPREAD, CHANCE, SPREAD
from ornstein.critique.curves import explained, groups_of
from ornstein.critique.evidence import Evidence
from ornstein.critique.finding import Finding, graded
from ornstein.critique.trend import MOST_COLUMNS

NAME, PARTS = "spread", 5


def spread(evidence: Evidence) -> Finding | None:
    """The largest ratio of the residuals' spread between parts of the rows, along the prediction or
    a column.
    """
    law = evidence.model.likelihood.law
    if law.labels:
        return None
    along = [("the prediction", evidence.predictor)]
    if evidence.columns.shape[1] <= MOST_COLUMNS:
        along += list(zip(evidence.model.feature_names, evidence.columns.T, strict=True))
    sizes = np.abs(evidence.scores)
    worst, where, surely = 1.0, "the prediction", False
    for name, values in along:
        ratio = _ratio(evidence.scores, values)
        sure = explained(sizes, values, PARTS)[1] < CHANCE / len(along)
        if (sure, ratio) > (surely, worst):
            worst, where, surely = ratio, name, sure
    level = graded(worst, SPREAD, BAD_SPREAD, surely=surely)
    sentence = f"along {printable(where)} the residuals' spread differs by a factor {worst:.2f}"
    return Finding(NAME, level, worst, SPREAD, sentence, _remedy(evidence, level))


def _ratio(scores: np.ndarray, values: np.ndarray) -> float:
    codes = groups_of(values, PARTS)
    spreads = [np.std(scores[codes == code]) for code in range(codes.max() + 1)]
    return float(max(spreads) / max(min(spreads), 1e-12))


def _remedy(evidence: Evidence, level: str) -> str:
    if level == "fits":
        return ""
    positive = evidence.family in ("gaussian", "student-t") and bool(np.all(evidence.y > 0))
    other = ', or family="gamma" or "log-normal"' if positive else ""
    return f'target="sandwich"{other}'
