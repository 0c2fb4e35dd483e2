"""Do outcomes scatter as the family says?"""

from __future__ import annotations

import numpy as np

from ornstein.critique.bounds import BAD_DISPERSION, DISPERSION, ERRORS
from ornstein.critique.evidence import Evidence
from ornstein.critique.finding import Finding, graded

NAME = "dispersion"
# The family with one more parameter for the scatter.
WIDER = {
    "poisson": 'family="negative-binomial"',
    "zero-inflated-poisson": 'family="zero-inflated-negative-binomial"',
    "hurdle-poisson": 'family="hurdle-negative-binomial"',
    "negative-binomial": 'family="zero-inflated-negative-binomial"',
    "gaussian": 'noise_scale="infer"',
    "exponential": 'family="weibull"',
}


def dispersion(evidence: Evidence) -> Finding | None:
    """The mean square of Pearson residuals; only for families that fix the variance by the mean."""
    family = evidence.family
    free = family == "gaussian" and evidence.model.likelihood.infer_scale
    if evidence.censored is not None and np.any(evidence.censored):
        return None  # how far those times would have gone is not known
    if free or not (evidence.discrete or family in WIDER) or family == "bernoulli":
        return None
    squares = evidence.residuals**2
    count = len(squares)
    number = float(squares.sum() / max(1, count - evidence.model.dim))
    error = float(squares.std() / np.sqrt(count))
    surely = abs(number - 1.0) > ERRORS * error
    level = graded(
        max(number, 1.0 / max(number, 1e-300)), DISPERSION, BAD_DISPERSION, surely=surely
    )
    word = "more" if number > 1.0 else "less"
    sentence = f"outcomes vary {number:.2f} times as much as the {family} family says"
    if level == "fits":
        return Finding(NAME, level, number, DISPERSION, sentence)
    remedy = WIDER.get(family, 'target="sandwich"') if word == "more" else 'target="sandwich"'
    return Finding(NAME, level, number, DISPERSION, sentence, remedy)
