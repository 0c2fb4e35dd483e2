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
    remedy = "" if level == "fits" else f"look at model.priors[{name!r}]; give a wider one"
    return Finding(NAME, level, number, PRIOR, sentence, remedy)
