"""NUTS on all rows: with the metric that the curvature already knows, or finding its own."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, replace

import numpy as np

from ornstein.baselines.common import delivered
from ornstein.baselines.nuts import MOST_LEAPFROGS, Program, dispersed, run_chains
from ornstein.checks import require_memory
from ornstein.compute.one_thread import one_thread
from ornstein.errors import ConvergenceWarning, WayError
from ornstein.posterior.posterior import Posterior
from ornstein.sampling.request import SampleRequest
from ornstein.streams import Purpose, derived_seed, stream
from ornstein.types import Array
from ornstein.ways.costs import COMPILING_NUTS, LEAPFROG, LEAPFROG_SQUARE, gradient_seconds
from ornstein.ways.situation import Situation
from ornstein.ways.way import Forecast, impossible

# Sds from the mode at which two of the chains start; the others start within the posterior.
FAR = 3.0
# Draws of a chain below which a run that was cut short is none.
FEWEST_DRAWS = 50
ON_DISK = "it needs all rows in memory"
# Of NUTS that finds its own metric: fewer steps know too little of it.
LEAST_WARMUP = 300
# Parameters up to which a mass matrix is adapted whole.
DENSE = 100


@dataclass(frozen=True)
class MetricNuts:
    """NUTS in coordinates in which Laplace's approximation is round: only the step is adapted."""

    name: str = "nuts-metric"
    times: int = 1
    target_accept: float = 0.8
    warmup: int = 150
    stochastic: bool = False

    def forecast(self, situation: Situation, request: SampleRequest) -> Forecast:
        if situation.model.streams:
            return impossible(self.name, ON_DISK)
        if situation.curvature is None or situation.probe is None:
            return impossible(self.name, situation.why or "only diagonals are known")
        # a trajectory of about π/2 with steps of 0.9 D^(-1/4), rounded up to a tree
        size = situation.dim
        leapfrogs = 2.0 ** np.ceil(np.log2(1.7 * size**0.25 + 2.0)) - 1.0
        far = situation.laplace_kl > 0.5
        words = (
            "the posterior is far from Laplace's approximation: its metric may not fit"
            if far
            else "exact; the curvature is its metric, so that warm-up is short"
        )
        # far from a Gaussian trees grow and steps shrink
        return _forecast(self, situation, request, leapfrogs * (4.0 if far else 1.0), words)

    @one_thread()
    def run(
        self, situation: Situation, request: SampleRequest, work: float = math.inf
    ) -> Posterior:
        if situation.curvature is None:
            raise WayError(f"there is no metric: {situation.why}")
        generators = [
            stream(request.seed, Purpose.STARTS, chain) for chain in request.chain_numbers
        ]
        starts = np.stack([each.standard_normal(situation.dim) for each in generators])
        starts[:2] *= _far(situation, starts[:2])
        centre = situation.curvature.mode
        return _drawn(self, situation, request, centre, starts, situation.root, False, work)

    def longer(self) -> MetricNuts:
        return replace(self, times=4 * self.times)


@dataclass(frozen=True)
class Nuts:
    """NUTS as it is, its mass matrix found in warm-up, with short steps."""

    name: str = "nuts"
    times: int = 1
    target_accept: float = 0.9
    warmup: int = 1000
    stochastic: bool = False

    def forecast(self, situation: Situation, request: SampleRequest) -> Forecast:
        if situation.model.streams:
            return impossible(self.name, ON_DISK)
        leapfrogs = 15.0 if situation.probe is not None else 31.0
        words = "exact; finds its own metric"
        way = self._warmed(request)
        if situation.curvature is None:
            words = situation.model.undivided or f"needs no curvature. {situation.why}"
        return _forecast(way, situation, request, leapfrogs, words)

    @one_thread()
    def run(
        self, situation: Situation, request: SampleRequest, work: float = math.inf
    ) -> Posterior:
        model = situation.model
        centre = model.init if request.init is None else model.flat(request.init)
        if situation.curvature is not None and request.init is None:
            centre = situation.curvature.mode
        starts = _apart(situation, request, centre)
        root = None if situation.probe is None else situation.root
        if root is not None:
            starts = np.linalg.solve(root, starts.T).T
        way = self._warmed(request)
        return _drawn(way, situation, request, centre, starts, root, True, work)

    def _warmed(self, request: SampleRequest) -> Nuts:
        """With a warm-up that is no longer than the draws where few are asked for."""
        return replace(self, warmup=min(self.warmup, max(LEAST_WARMUP, int(request.draws))))

    def longer(self) -> Nuts:
        accept = min(0.99, 1.0 - (1.0 - self.target_accept) / 5.0)
        return replace(self, times=4 * self.times, target_accept=accept)


def _apart(situation: Situation, request: SampleRequest, centre: Array) -> Array:
    """Displacements of the chains' starts from the centre: the model's own, or two apart and the
    others near the centre.
    """
    chains = int(request.chains)
    known = situation.curvature is not None or request.init is not None
    own = None if known else situation.model.starts(chains, request.seed)
    if own is not None:
        return own - centre
    starts, _ = dispersed(situation.model, centre, chains, request.seed)
    starts[2:] *= 0.25
    return _with_density(situation, centre, starts)


def _forecast(
    way: MetricNuts | Nuts,
    situation: Situation,
    request: SampleRequest,
    leapfrogs: float,
    words: str,
) -> Forecast:
    per_step = gradient_seconds(situation.model.work, situation.dim) + LEAPFROG
    per_step += LEAPFROG_SQUARE * situation.dim**2
    transitions = request.chains * (way.warmup + way.times * request.draws)
    work = transitions * leapfrogs
    memory = 8.0 * request.draws * request.chains * situation.dim
    return Forecast(
        way.name,
        0.0,
        1.0,
        leapfrogs,
        work,
        COMPILING_NUTS + work * per_step,
        memory,
        words,
    )


def _far(situation: Situation, starts: Array) -> Array:
    """Factors on two starts: as far out as the posterior has a density."""
    from ornstein.verdict.density import Density

    assert situation.curvature is not None
    factors = np.ones((len(starts), 1))
    factor = FAR
    while factor > 1.0:
        theta = situation.curvature.mode + (factor * starts) @ situation.root.T
        finite = np.isfinite(Density(situation.model).values(theta))
        factors = np.where((factors == 1.0) & finite[:, None], factor, factors)
        factor /= 1.3
    return factors


def _with_density(situation: Situation, centre: Array, starts: Array) -> Array:
    """Starts moved towards the centre until each has a density."""
    from ornstein.verdict.density import Density

    density = Density(situation.model)
    for _ in range(20):
        outside = ~np.isfinite(density.values(centre + starts))
        if not outside.any():
            break
        starts = np.where(outside[:, None], starts / 2.0, starts)
    return starts


def _drawn(
    way: MetricNuts | Nuts,
    situation: Situation,
    request: SampleRequest,
    centre: Array,
    starts: Array,
    root: Array | None,
    adapts: bool,
    work: float,
) -> Posterior:
    started = time.perf_counter()
    model, dtype = situation.model, request.dtype or "float64"
    require_memory("an array of draws", len(starts), request.draws, model.dim)
    program = Program(
        model.loss,
        way.warmup,
        int(request.draws),
        dense_mass=adapts and model.dim <= DENSE,
        target_accept=way.target_accept,
        thin=way.times,
        adapts=adapts,
    )
    seed = derived_seed(request.seed, 4, Purpose.PLAN)
    most = int(min(MOST_LEAPFROGS, max(1.0, work / len(starts))))
    found = run_chains(model, program, centre, starts, seed, dtype, root, most)
    if found.displacements.shape[1] < FEWEST_DRAWS and not found.complete:
        raise WayError(
            f"NUTS took {found.leapfrogs:,} passes over the data, all that its budget"
            f" allows, before it had {FEWEST_DRAWS} draws a chain: raise budget, or give the model"
            " a prior that holds its parameters",
            float(found.leapfrogs),
        )
    if found.divergences:
        warnings.warn(
            f"{found.divergences} of {request.draws * request.chains * way.times} NUTS transitions"
            " diverged: the draws may miss a part of the posterior. Reparameterise the model",
            ConvergenceWarning,
            stacklevel=3,
        )
    return delivered(
        model,
        way.name,
        centre + found.displacements,
        started,
        float(found.leapfrogs),
        curvature=situation.curvature,
        seed=int(request.seed),
        dtype=dtype,
        warmup=way.warmup,
        thin=way.times,
        target_accept=way.target_accept,
        divergences=found.divergences,
        longest_trajectory=found.longest,
        cut_short=not found.complete,
    )
