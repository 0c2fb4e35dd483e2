"""What is known before a way is chosen: curvature, or why there is none, and how far Laplace's
approximation is from the posterior. Measured once; the run and its remedies use it again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ornstein.baselines.laplace import CountedPasses
from ornstein.checks import FULL_LIMIT
from ornstein.compute.one_thread import one_thread
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.derivatives import derivatives_of
from ornstein.curvature.measure import measure
from ornstein.errors import CurvatureError, InputError
from ornstein.model.model import Model
from ornstein.types import Array
from ornstein.ways.probe import Probe, probed

# Predicted KL, in nats, up to which a way should end trusted: less than the verdict's 0.05, because
# a prediction may be wrong.
GOOD = 0.02
# Sds by which a mean may be off: half of the verdict's bound on the median.
SHIFT = 0.08


@dataclass(frozen=True, eq=False)
class Situation:
    """A model and what was found about it.

    Attributes:
        curvature: at the mode; None where there is none, and `why` says why.
        probe: Laplace's approximation against the posterior; None without a curvature.
        passes: over the data, for both.
    """

    model: Model
    curvature: Curvature | None
    why: str
    probe: Probe | None
    passes: float

    @property
    def n_data(self) -> int:
        return self.model.n_data

    @property
    def dim(self) -> int:
        return self.model.dim

    @property
    def laplace_kl(self) -> float:
        """Predicted KL between Laplace's approximation and the posterior. A mean that is off by
        more than SHIFT along one parameter counts as more than good, whatever the KL.
        """
        if self.probe is None:
            return float("nan")
        return max(self.probe.kl, GOOD * (self.probe.shift / SHIFT) ** 2)

    @property
    def root(self) -> Array:
        """R with RRᵀ = A⁻¹/N, the coordinates in which Laplace's approximation is round."""
        assert self.curvature is not None
        return np.linalg.cholesky(self.curvature.posterior_covariance)


@one_thread()
def survey(model: Model, curvature: Curvature | None = None, seed: int = 0) -> Situation:
    """Measure curvature (unless given) and probe the density."""
    if curvature is not None and curvature.dim != model.dim:
        raise InputError(f"the curvature has {curvature.dim} parameters, the model {model.dim}")
    counted = CountedPasses(derivatives_of(model))
    if curvature is None:
        try:
            curvature = measure(model, derivatives=counted)
        except CurvatureError as error:
            return Situation(model, None, str(error), None, float(counted.passes))
    if curvature.diagonal or model.dim > FULL_LIMIT:
        return Situation(model, curvature, "", None, float(counted.passes))
    try:
        probe = probed(model, curvature, seed)
    except np.linalg.LinAlgError:
        why = "the covariance at the mode cannot be factorised: columns may be collinear"
        return Situation(model, None, why, None, float(counted.passes))
    return Situation(model, curvature, "", probe, counted.passes + probe.passes)
