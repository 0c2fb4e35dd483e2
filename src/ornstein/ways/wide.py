"""Ways for regressions with more than 2000 parameters, from products with the rows."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from ornstein.baselines.gaussian_vi import by_rows
from ornstein.baselines.hmc import hmc
from ornstein.baselines.laplace import laplace
from ornstein.compute.one_thread import one_thread
from ornstein.posterior.posterior import Posterior
from ornstein.sampling.request import SampleRequest
from ornstein.ways.rows import Wide
from ornstein.ways.situation import Situation
from ornstein.ways.way import Forecast, impossible

WARM_UP = 60  # trajectories before the first draw, the pilot's included
STEP = 1.4  # of a kick, times D^(1/4): most trajectories are then accepted


def _of(situation: Situation) -> Wide:
    assert situation.wide is not None
    return situation.wide


@dataclass(frozen=True)
class WideVi:
    """Independent draws from the Gaussian that planning found."""

    name: str = "gaussian-vi"
    stochastic: bool = False

    def forecast(self, situation: Situation, request: SampleRequest) -> Forecast:
        wide, count = _of(situation), request.draws * request.chains
        work = 0.0 if wide.gaussian.factored else 8.0 * count
        seconds = work * wide.product_seconds + count * 1e-9 * situation.dim
        memory = 8.0 * count * situation.dim
        kl = 0.5 * wide.spread_of_weights
        return Forecast(self.name, kl, 0.0, work / count, work, seconds, memory, wide.sentence)

    @one_thread()
    def run(
        self, situation: Situation, request: SampleRequest, work: float = math.inf
    ) -> Posterior:
        wide, started = _of(situation), time.perf_counter()
        chains, draws = int(request.chains), int(request.draws)
        found = replace(wide.gaussian)  # its passes are counted by the plan
        found.passes = 0.0
        return by_rows(
            situation.model, found, wide.fitted, draws, chains, int(request.seed), started
        )

    def longer(self) -> None:
        return None


@dataclass(frozen=True)
class WideHmc:
    """Metropolis-corrected on all rows, all chains in lockstep, in coordinates of that Gaussian."""

    name: str = "hmc"
    times: int = 1
    stochastic: bool = False

    def forecast(self, situation: Situation, request: SampleRequest) -> Forecast:
        if request.init is not None:
            return impossible(self.name, "its chains start at draws of a Gaussian, not at init")
        wide = _of(situation)
        quarters, few = wide.pace
        if wide.gaussian.head.whole:
            # kicks that are accepted as often as wanted grow with what q leaves of the density
            left = math.sqrt(max(wide.spread_of_weights * situation.dim, 0.0))
            kicks = math.ceil(1.0 + 0.5 * math.sqrt(left))
        else:  # and with the parameters, where the metric is not q's
            angle = 0.5 * math.pi * quarters
            kicks = max(few, math.ceil(angle * situation.dim**0.25 / STEP))
        transitions = request.chains * (WARM_UP + self.times * request.draws)
        work = float(kicks * transitions)
        return Forecast(
            self.name,
            0.0,
            1.0,
            float(kicks),
            work,
            2.0 * work * wide.product_seconds,
            8.0 * request.draws * request.chains * situation.dim * self.times,
            "exact; trajectories of the Gaussian that is nearest to the posterior",
        )

    def run(
        self, situation: Situation, request: SampleRequest, work: float = math.inf
    ) -> Posterior:
        draws, chains = int(request.draws) * self.times, int(request.chains)
        found = hmc(
            situation.model,
            replace(_of(situation).gaussian, passes=0.0),
            draws=draws,
            chains=chains,
            seed=int(request.seed),
        )
        if self.times == 1:
            return found
        kept = np.ascontiguousarray(found.draws[:, self.times - 1 :: self.times])
        return replace(found, draws=kept, constrained=situation.model.constrained(kept))

    def longer(self) -> WideHmc:
        return replace(self, times=4 * self.times)


@dataclass(frozen=True)
class WideLaplace:
    """Independent draws from the Gaussian at the mode, which is found again for it."""

    name: str = "laplace"
    stochastic: bool = False

    def forecast(self, situation: Situation, request: SampleRequest) -> Forecast:
        wide, count = _of(situation), request.draws * request.chains
        low, high = (math.log(ratio) for ratio in wide.fitted.sd_ratio)
        # along the parameter that is farthest off, beside what no Gaussian follows
        kl = 0.5 * wide.fitted.shift**2 + max(low**2, high**2) + 0.5 * wide.spread_of_weights
        work = 8.0 * count + 200.0
        words = f"the mode is up to {wide.fitted.shift:.2g} sd from the mean"
        memory = 8.0 * count * situation.dim
        seconds = work * wide.product_seconds
        return Forecast(self.name, kl, 0.0, 8.0, work, seconds, memory, words)

    def run(
        self, situation: Situation, request: SampleRequest, work: float = math.inf
    ) -> Posterior:
        draws, chains = int(request.draws), int(request.chains)
        return laplace(situation.model, draws=draws, chains=chains, seed=int(request.seed))

    def longer(self) -> None:
        return None
