"""Does the prior pull against the data?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ornstein.checks import printable
from ornstein.critique.bounds import PRIOR
from ornstein.critique.finding import Finding, graded

if TYPE_CHECKING:
    from ornstein.model.model import Model
    from ornstein.posterior.posterior import Posterior

NAME = "prior"


def prior(posterior: Posterior, model: Model) -> Finding:
    """How far the prior moves each parameter, in posterior standard deviations: Σ∇log p(θ), the
    slope of the mean in the prior's power.
    """
    slope = -model.n_data * model.scaled_prior(posterior.mean)[1]
    covariance = posterior.covariance
    moved = covariance @ slope if covariance.ndim == 2 else covariance * slope
    moved = np.abs(moved) / posterior.sd
    place = int(np.argmax(moved))
    number, name = float(moved[place]), printable(posterior.names[place])
    level = graded(number, PRIOR)
    sentence = f"the prior moves {name} by {number:.2f} sd, other parameters by less"
    if level == "fits":
        return Finding(NAME, level, number, PRIOR, sentence)
    most = int(np.argmax(np.abs(covariance[place] * slope))) if covariance.ndim == 2 else place
    source = printable(posterior.names[most])
    sentence = f"{sentence}; most of it is the prior of {source}"
    remedy = f"look at the prior of {source} in model.priors; give a wider one"
    return Finding(NAME, level, number, PRIOR, sentence, remedy)
