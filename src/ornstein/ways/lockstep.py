"""HMC on all rows, all chains in lockstep, by trajectories that are exact for a Gaussian near the
posterior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ornstein.baselines.hmc import hmc
from ornstein.errors import WayError
from ornstein.posterior.posterior import Posterior
from ornstein.sampling.request import SampleRequest
from ornstein.ways.costs import KICK, point_seconds
from ornstein.ways.situation import Situation
from ornstein.ways.way import Forecast, impossible

PILOT = 60  # trajectories of warm-up and of the pilot
# KL of the best Gaussian up to which its trajectories serve: of few parameters, and for each of
# many, whose distances from it add up.
NEAR, NEAR_EACH = 0.5, 0.01


@dataclass(frozen=True)
class LockstepHmc:
    """Metropolis-corrected, so that the Gaussian sets speed and never the law."""

    name: str = "hmc"
    times: int = 1
    stochastic: bool = False

    def forecast(self, situation: Situation, request: SampleRequest) -> Forecast:
        if situation.probe is None:
            return impossible(self.name, situation.why or "only diagonals are known")
        if request.init is not None:
            return impossible(self.name, "its chains start at draws of a Gaussian, not at init")
        distance = situation.gaussian_kl
        if not distance <= max(NEAR, NEAR_EACH * situation.dim):
            return impossible(
                self.name, f"no Gaussian is close to the posterior: KL {distance:.2g}"
            )
        # kicks of a trajectory that are accepted as often as wanted
        kicks = 1.0 + math.ceil(4.0 * math.sqrt(distance))
        transitions = PILOT + self.times * request.draws
        work = kicks * transitions * request.chains
        each = KICK + max(4, request.chains) * 1.3 * point_seconds(
            situation.model.work, situation.dim
        )
        return Forecast(
            self.name,
            0.0,
            1.0,
            kicks,
            work,
            kicks * transitions * each,
            8.0 * request.draws * request.chains * situation.dim * self.times,
            "exact; trajectories of a Gaussian that is close",
        )

    def run(
        self, situation: Situation, request: SampleRequest, work: float = math.inf
    ) -> Posterior:
        if situation.curvature is None:
            raise WayError(f"there is no Gaussian near the posterior: {situation.why}")
        found = hmc(
            situation.model,
            situation.gaussian,
            draws=int(request.draws) * self.times,
            chains=int(request.chains),
            seed=int(request.seed),
        )
        found = replace(found, curvature=situation.curvature)
        if self.times == 1:
            return found
        kept = np.ascontiguousarray(found.draws[:, self.times - 1 :: self.times])
        return replace(found, draws=kept, constrained=situation.model.constrained(kept))

    def longer(self) -> LockstepHmc:
        return replace(self, times=4 * self.times)
