"""How far Laplace's approximation is from the posterior: the density is looked at around the mode.

Theory says how far a sampler's law is from Laplace's Gaussian. This says how far that Gaussian is
from the posterior, which no theory of the local picture can know.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ornstein.model.model import Model
from ornstein.streams import Purpose, derived_seed
from ornstein.theory import Gaussian
from ornstein.theory.modes import as_matrix
from ornstein.types import Array
from ornstein.verdict.coordinates import Coordinates
from ornstein.verdict.density import Density
from ornstein.verdict.importance import Weighted, weigh
from ornstein.ways.costs import point_seconds

# Points, as many as take about a fifth of a second, but no fewer and no more.
SECONDS, FEWEST, MOST = 0.2, 48, 1000
MOST_PAIRS = 32  # at which slopes are looked at
# Beyond this number of parameters weights say little about single directions: gradients do.
FEW = 50


# Predicted KL, in nats, up to which a way should end trusted: less than the verdict's 0.05, because
# a prediction may be wrong.
GOOD = 0.02
# Sds by which a mean may be off: half of the verdict's bound on the median.
SHIFT = 0.08


@dataclass(frozen=True)
class Probe:
    """A Gaussian, Laplace's or another, against the posterior.

    Attributes:
        kl: the larger KL between them, both ways where the weights allow it, in nats.
        shift: how far the posterior's mean is from the mode, in sds, along the parameter where it
            is farthest.
        pareto_k: shape of the tail of the importance weights.
        share: effective share of equally weighted points.
        passes: over the data.
    """

    kl: float
    shift: float
    pareto_k: float
    share: float
    passes: float

    @property
    def counted(self) -> float:
        """The KL that counts: a mean that is off by more than SHIFT along one parameter is more
        than good, whatever the KL of all of them.
        """
        return max(self.kl, GOOD * (self.shift / SHIFT) ** 2)

    @property
    def weights_serve(self) -> bool:
        """Whether importance weights on Laplace's Gaussian should serve, with a margin."""
        return bool(self.pareto_k <= 0.5 and self.share >= 0.2)


def probed(model: Model, law: Gaussian, seed: int, allowed: float = math.inf) -> Probe:
    """Look at the density around the middle of a Gaussian, within `allowed` passes where these
    suffice for FEWEST points.
    """
    wanted = np.clip(SECONDS / point_seconds(model.work, model.dim), FEWEST, MOST)
    most = allowed - 2 * MOST_PAIRS  # what the slopes may take
    count = int(wanted if wanted <= most else max(FEWEST, most))
    density = Density(model)
    with np.errstate(all="ignore"):
        weighted = weigh(density, law, count, derived_seed(seed, 0, Purpose.PLAN))
        shift = _shift(density, weighted, seed, max(8, count // 8))
        kl = _distance(weighted)
    return Probe(
        kl, shift, float(weighted.pareto_k), weighted.effective_share, float(density.passes)
    )


def _distance(weighted: Weighted) -> float:
    """KL between Laplace's Gaussian and the posterior, what is not Gaussian in it included."""
    known = [weighted.kl_qp]
    if weighted.reliable:
        known.append(weighted.kl_pq)
    worst = max(known)
    return float(worst) if np.isfinite(worst) else float("inf")


def _shift(density: Density, weighted: Weighted, seed: int, pairs: int) -> float:
    """The posterior's mean less the mode, in sds: by weights where they serve, else by the mean
    slope under Laplace's Gaussian, which is the shift to first order.
    """
    law = weighted.gaussian
    sd = np.sqrt(np.diagonal(as_matrix(law.covariance, law.mean.size)))
    if law.mean.size <= FEW and weighted.reliable:
        return float(np.max(np.abs(weighted.mean - law.mean) / sd))
    return float(np.max(np.abs(_mean_slope(density, law, seed, pairs)) / sd))


def _mean_slope(density: Density, law: Gaussian, seed: int, pairs: int) -> Array:
    """−Σ E[∇U] over pairs of points on either side of the mode: what is odd cancels."""
    coordinates = Coordinates.of(law.mean, as_matrix(law.covariance, law.mean.size))
    generator = np.random.default_rng(derived_seed(seed, 1, Purpose.PLAN))
    half = generator.standard_normal((min(pairs, MOST_PAIRS), law.mean.size))
    theta = coordinates.theta(np.concatenate([half, -half]))
    _, slopes = density.values_and_gradients(theta)
    shift: Array = -as_matrix(law.covariance, law.mean.size) @ slopes.mean(axis=0)
    return np.where(np.isfinite(shift), shift, np.inf)
