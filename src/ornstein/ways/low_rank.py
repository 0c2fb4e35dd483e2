"""A Gaussian of low rank from constant SGD, for more parameters than a matrix can be held for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ornstein.baselines.low_rank import low_rank
from ornstein.checks import FULL_LIMIT
from ornstein.posterior.posterior import Posterior
from ornstein.sampling.request import SampleRequest
from ornstein.ways.situation import Situation
from ornstein.ways.way import Forecast, impossible


@dataclass(frozen=True)
class LowRank:
    """Independent draws from a diagonal plus a few factors."""

    name: str = "low-rank"
    stochastic: bool = False

    def forecast(self, situation: Situation, request: SampleRequest) -> Forecast:
        return impossible(
            self.name,
            f"for more than {FULL_LIMIT} parameters, where its law cannot be predicted",
        )

    def run(
        self, situation: Situation, request: SampleRequest, work: float = math.inf
    ) -> Posterior:
        return low_rank(
            situation.model,
            draws=request.draws,
            chains=request.chains,
            curvature=situation.curvature,
            seed=request.seed,
        )

    def longer(self) -> None:
        return None
