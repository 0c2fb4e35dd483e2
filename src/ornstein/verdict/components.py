"""Standard deviations of groups' effects that may be zero, said in words."""

from __future__ import annotations

import numpy as np

from ornstein.checks import printable
from ornstein.model.mixed.predict import MixedPredict
from ornstein.verdict.finding import NOTE, Finding
from ornstein.verdict.subject import Subject

NAME = "effects near zero"
# The 2.5 % quantile of a standard deviation over its median: 0.05 where the density is highest at
# zero (half-normal), and above 0.3 for one whose relative error is below a half.
NEAR = 0.1


def effects_near_zero(subject: Subject) -> Finding | None:
    """A note on the components whose draws reach down to zero; None where there are none."""
    posterior = subject.posterior
    predict, known = posterior.predict_function, posterior.constrained
    if not isinstance(predict, MixedPredict) or known is None:
        return None
    shares, said = [], []
    for name in (f"sd({effect})" for effect in predict.covariance.effects):
        low, middle, high = np.quantile(known[name], [0.025, 0.5, 0.975])
        if low < NEAR * middle:
            shares.append(low / middle)
            said.append(f"{printable(name)} may be zero (95 % interval {low:.2g} to {high:.2g})")
    if not said:
        return None
    sentence = f"{', '.join(said)}: the groups need not differ in it"
    return Finding(NAME, NOTE, float(min(shares)), NEAR, sentence)
