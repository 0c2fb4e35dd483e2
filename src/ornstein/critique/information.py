"""Do noise and curvature of the likelihood agree? White's information matrix, in the units of
standard deviations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ornstein.checks import printable
from ornstein.critique.bounds import BAD_WIDTH, ERRORS, WIDTH
from ornstein.critique.finding import Finding, graded, skipped

if TYPE_CHECKING:
    from ornstein.posterior.posterior import Posterior

NAME = "information"


def information(posterior: Posterior) -> Finding:
    """The root of A⁻¹CA⁻¹ over A⁻¹ on their diagonals: standard deviations that hold whatever the
    noise is, over those of the model. Parameters of the scale itself are left aside.
    """
    curvature = posterior.curvature
    if curvature is None or curvature.diagonal:
        return skipped(NAME, "it needs the whole A and C of a measured Curvature")
    if curvature.probabilities is not None:
        return skipped(NAME, "C is that of minibatches drawn by leverage")
    if curvature.n_data <= curvature.dim:
        return skipped(NAME, "there are no more examples than parameters")
    covariance = curvature.n_data * curvature.posterior_covariance  # A⁻¹
    robust = np.diagonal(covariance @ curvature.noise @ covariance)
    ratios = np.sqrt(robust / np.diagonal(covariance))
    counted = [
        k for k, name in enumerate(posterior.names) if not name.startswith(("log_", "zero_"))
    ]
    place = max(counted, key=lambda k: ratios[k])
    number, name = float(ratios[place]), printable(posterior.names[place])
    error = np.sqrt(2.0 / curvature.n_data)
    level = graded(number, WIDTH, BAD_WIDTH, surely=number - 1.0 > ERRORS * error)
    sentence = f"the data ask for {number:.2f} times the standard deviation of {name}"
    remedy = "" if level == "fits" else 'target="sandwich", or another family: see dispersion'
    return Finding(NAME, level, number, WIDTH, sentence, remedy)
