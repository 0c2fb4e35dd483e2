"""Laplace with importance weights: points around the mode, weighted by the posterior's density
(PSIS), and draws resampled from many more of them.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from ornstein.baselines.common import delivered
from ornstein.compute.one_thread import one_thread
from ornstein.errors import WayError
from ornstein.posterior.posterior import Posterior
from ornstein.sampling.request import SampleRequest
from ornstein.streams import Purpose, derived_seed, stream
from ornstein.theory import Gaussian
from ornstein.types import Array
from ornstein.verdict.density import Density
from ornstein.verdict.importance import weigh
from ornstein.verdict.subject import LARGE
from ornstein.verdict.thresholds import EFFECTIVE_DRAWS, PARETO_K
from ornstein.ways.costs import point_seconds
from ornstein.ways.situation import Situation
from ornstein.ways.way import Forecast, impossible

# Points for each draw, and the fewest in all.
POINTS_PER_DRAW, FEWEST = 10, 10_000


@dataclass(frozen=True)
class WeightedLaplace:
    """Draws of the posterior itself, where the weights' tail is light (Pareto k at most 0.7)."""

    name: str = "laplace-weighted"
    stochastic: bool = False

    def forecast(self, situation: Situation, request: SampleRequest) -> Forecast:
        probe = situation.nearest
        if probe is None:
            return impossible(self.name, situation.why or "only diagonals are known")
        if situation.dim > LARGE:
            return impossible(self.name, f"importance weights support up to {LARGE} parameters")
        count = _points(request)
        seconds = count * point_seconds(situation.model.work, situation.dim)
        per_draw = count / max(1.0, probe.share * 0.58 * count)
        memory = 8.0 * count * (2 * situation.dim + 6)
        if not probe.weights_serve:
            words = (
                f"weights are too uneven: Pareto k {probe.pareto_k:.2g}, {probe.share:.0%} of the"
                " points left"
            )
            return Forecast(
                self.name, probe.kl, 0.0, per_draw, float(count), seconds, memory, words, False
            )
        words = f"weights are even enough: Pareto k {probe.pareto_k:.2g}"
        return Forecast(self.name, 0.0, 0.0, per_draw, float(count), seconds, memory, words)

    @one_thread()
    def run(
        self, situation: Situation, request: SampleRequest, work: float = math.inf
    ) -> Posterior:
        started = time.perf_counter()
        curvature, model = situation.curvature, situation.model
        if curvature is None:
            raise WayError(f"there is no mode to weigh points around: {situation.why}")
        if situation.dim > LARGE:
            raise WayError(
                f"importance weights support up to {LARGE} parameters; the model has"
                f" {situation.dim}: use orn.sample(model, 'nuts')"
            )
        count = _points(request)
        seed = derived_seed(request.seed, 2, Purpose.PLAN)
        with np.errstate(all="ignore"):
            weighted = weigh(Density(model), situation.gaussian, count, seed)
        weights, k = weighted.weights, float(weighted.pareto_k)
        size = 1.0 / float(np.sum(weights**2))
        if not k <= PARETO_K or not size >= EFFECTIVE_DRAWS:
            raise WayError(
                f"importance weights cannot be relied on: Pareto k {k:.2f} (wanted: at most"
                f" {PARETO_K}), worth {size:.0f} draws (wanted: {EFFECTIVE_DRAWS:.0f}). Use"
                " orn.sample(model, 'nuts')"
            )
        chains, draws = int(request.chains), int(request.draws)
        chosen = _resampled(weights, chains * draws, request.seed)
        return delivered(
            model,
            self.name,
            weighted.points[chosen].reshape(chains, draws, -1),
            started,
            float(len(weights)),
            curvature=curvature,
            # of all points: those that are resampled are fewer
            moments=Gaussian(weighted.mean, weighted.covariance),
            exact_moments=False,
            seed=int(request.seed),
            pareto_k=k,
            effective_draws=size,
        )

    def longer(self) -> None:
        return None


def _points(request: SampleRequest) -> int:
    return max(FEWEST, POINTS_PER_DRAW * request.draws * request.chains)


def _resampled(weights: Array, count: int, seed: int) -> Array:
    """Places of `count` points, each as often as its weight says up to one (systematic
    resampling), in an order of no meaning.
    """
    generator = stream(seed, Purpose.PLAN, 3)
    steps = (np.arange(count) + generator.random()) / count
    chosen = np.minimum(np.searchsorted(np.cumsum(weights), steps), len(weights) - 1)
    return generator.permutation(chosen)
