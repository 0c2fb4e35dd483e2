"""What is known before a way is chosen: curvature, or why there is none, and how far Laplace's
approximation is from the posterior. Measured once; the run and its remedies use it again.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np

from ornstein.baselines.gaussian_vi import gaussian_vi
from ornstein.baselines.laplace import CountedPasses
from ornstein.checks import FULL_LIMIT
from ornstein.compute.one_thread import one_thread
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.derivatives import derivatives_of
from ornstein.curvature.measure import measure
from ornstein.curvature.wide import from_rows
from ornstein.errors import CurvatureError, InputError, OrnsteinError
from ornstein.model.model import Model
from ornstein.theory import Gaussian
from ornstein.types import Array
from ornstein.ways.costs import gradient_seconds
from ornstein.ways.probe import FEWEST, GOOD, Probe, probed
from ornstein.ways.rows import Wide

# Rounds of Gaussian VI while planning, and seconds of the reference machine that they may take.
ROUNDS, MOST_SECONDS = 8, 2.0


@dataclass(frozen=True, eq=False)
class Fitted:
    """A Gaussian with how far it is from the posterior, and the passes that took."""

    law: Gaussian
    probe: Probe
    passes: float


@dataclass(frozen=True, eq=False)
class Situation:
    """A model and what was found about it.

    Attributes:
        curvature: at the mode; None where there is none, and `why` says why.
        probe: Laplace's approximation against the posterior; None without a curvature.
        passes: over the data, for all of it.
        fitted: the Gaussian nearest to the posterior, where Laplace's is not near enough and
            finding it is cheap.
        wide: what is known instead of a curvature of a regression with more than 2000 parameters.
    """

    model: Model
    curvature: Curvature | None
    why: str
    probe: Probe | None
    passes: float
    fitted: Fitted | None = None
    wide: Wide | None = None

    @property
    def pass_seconds(self) -> float:
        """A gradient of all rows, on the reference machine."""
        if self.wide is not None:
            return self.wide.product_seconds
        return gradient_seconds(self.model.work, self.dim)

    @property
    def needs_nuts(self) -> bool:
        """Whether NUTS on all data is the only way, however many parameters there are."""
        network = self.curvature is None and self.model.network_by_nuts
        return network or bool(self.model.undivided)

    @property
    def n_data(self) -> int:
        return self.model.n_data

    @property
    def dim(self) -> int:
        return self.model.dim

    @property
    def gaussian(self) -> Gaussian:
        """The Gaussian that is known to be nearest to the posterior."""
        assert self.curvature is not None
        return self.curvature.laplace if self.fitted is None else self.fitted.law

    @property
    def nearest(self) -> Probe | None:
        """How far that Gaussian is."""
        return self.probe if self.fitted is None else self.fitted.probe

    @property
    def gaussian_kl(self) -> float:
        return float("nan") if self.nearest is None else self.nearest.counted

    @property
    def laplace_kl(self) -> float:
        """Predicted KL between Laplace's approximation and the posterior."""
        return float("nan") if self.probe is None else self.probe.counted

    @property
    def root(self) -> Array:
        """R with RRᵀ = A⁻¹/N, the coordinates in which Laplace's approximation is round."""
        assert self.curvature is not None
        return np.linalg.cholesky(self.curvature.posterior_covariance)


@one_thread()
def survey(
    model: Model,
    curvature: Curvature | None = None,
    seed: int = 0,
    scheme: str = "replacement",
    allowed: float = math.inf,
) -> Situation:
    """Measure curvature (unless given) and probe the density, within `allowed` passes where these
    suffice for the curvature and the fewest probes.
    """
    if curvature is not None and curvature.dim != model.dim:
        raise InputError(f"the curvature has {curvature.dim} parameters, the model {model.dim}")
    if model.undivided:
        return Situation(model, None, model.undivided, None, 0.0)
    if curvature is None and from_rows(model):
        return Situation(model, None, "", None, 0.0, wide=Wide(model))
    counted = CountedPasses(derivatives_of(model))
    if curvature is None:
        try:
            curvature = measure(model, derivatives=counted, scheme=scheme, seed=seed)
        except CurvatureError as error:
            return Situation(model, None, str(error), None, float(counted.passes))
    if curvature.diagonal or model.dim > FULL_LIMIT:
        return Situation(model, curvature, "", None, float(counted.passes))
    try:
        probe = probed(model, curvature.laplace, seed, allowed - counted.passes)
    except np.linalg.LinAlgError:
        why = "the covariance at the mode cannot be factorised: columns may be collinear"
        return Situation(model, None, why, None, float(counted.passes))
    passes = counted.passes + probe.passes
    fitted = None
    if probe.counted > GOOD and passes + _fewest_passes(model) <= allowed:
        fitted = _fitted(model, curvature, seed)
        passes += 0.0 if fitted is None else fitted.passes
    return Situation(model, curvature, "", probe, passes, fitted)


def _fitted(model: Model, curvature: Curvature, seed: int) -> Fitted | None:
    """The Gaussian nearest to the posterior and its probe; None where that takes long or fails."""
    seconds = ROUNDS * _fewest_passes(model) * gradient_seconds(model.work, model.dim)
    if not _one_predictor(model) and seconds > MOST_SECONDS:
        return None
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = gaussian_vi(model, draws=1, chains=2, curvature=curvature, rounds=ROUNDS)
        assert found.moments is not None
        probe = probed(model, found.moments, seed)
    except (OrnsteinError, np.linalg.LinAlgError):
        return None
    return Fitted(found.moments, probe, float(found.settings["passes"]) + probe.passes)


def _one_predictor(model: Model) -> bool:
    return model.linear is not None and model.linear.predictors == 1


def _fewest_passes(model: Model) -> int:
    """Of Gaussian VI: those of one round, and of a probe."""
    return FEWEST if _one_predictor(model) else 2 * max(128, 2 * model.dim)
