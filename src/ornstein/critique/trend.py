"""Is there a curve in the residuals along a column, or along the prediction?"""

from __future__ import annotations

import numpy as np

from ornstein.checks import printable
from ornstein.critique.along import MOST, looked_along
from ornstein.critique.bounds import BAD_TREND, CHANCE, TREND
from ornstein.critique.curves import explained
from ornstein.critique.evidence import Evidence
from ornstein.critique.finding import Finding, graded, skipped

TREND_NAME, LINK_NAME = "trend", "link"


def trend(evidence: Evidence) -> Finding | None:
    """The column along which the residuals curve most; None where all hold labels."""
    if evidence.model.likelihood.law.classes:
        return skipped(TREND_NAME, "labels without an order have no single residual")
    if (count := len(evidence.model.feature_names)) > MOST:
        return skipped(TREND_NAME, f"{count} columns are more than {MOST}")
    ways = [way for way in looked_along(evidence) if way.remedy]
    if not ways:
        return None
    found = [explained(evidence.trending, way.values) for way in ways]
    sure = [share if chance < CHANCE / len(found) else 0.0 for share, chance in found]
    place = int(np.argmax(sure if any(sure) else [share for share, _ in found]))
    level = graded(found[place][0], TREND, BAD_TREND, surely=sure[place] > 0.0)
    name = printable(ways[place].name)
    sentence = f"{name} explains {100 * found[place][0]:.1f} % of the residuals by a curve"
    if level == "fits":
        return Finding(TREND_NAME, level, found[place][0], TREND, f"at most: {sentence}")
    return Finding(TREND_NAME, level, found[place][0], TREND, sentence, ways[place].remedy)


def link(evidence: Evidence) -> Finding:
    """A curve along the linear predictor."""
    law = evidence.model.likelihood.law
    if law.classes:
        return skipped(LINK_NAME, "labels without an order have no single residual")
    found = [explained(values, places) for values, places in evidence.along_prediction]
    share, chance = np.mean(found, axis=0).tolist()
    level = graded(share, TREND, BAD_TREND, surely=chance < CHANCE)
    sentence = f"the prediction itself explains {100 * share:.1f} % of the residuals by a curve"
    others = [f'link="{name}"' for name in law.links if name != law.link]
    remedy = "" if level == "fits" else " or ".join([*others, "a spline of a column, see trend"])
    return Finding(LINK_NAME, level, share, TREND, sentence, remedy)
