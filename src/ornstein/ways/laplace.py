"""Laplace's approximation: the Gaussian at the mode, taken where the density confirms it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ornstein.baselines.laplace import laplace
from ornstein.posterior.posterior import Posterior
from ornstein.sampling.request import SampleRequest
from ornstein.ways.costs import drawing_seconds
from ornstein.ways.situation import Situation
from ornstein.ways.way import Forecast, impossible


@dataclass(frozen=True)
class Laplace:
    """Independent draws from the Gaussian at the mode: no passes beyond the curvature's."""

    name: str = "laplace"
    stochastic: bool = False

    def forecast(self, situation: Situation, request: SampleRequest) -> Forecast:
        if situation.curvature is None or situation.probe is None:
            return impossible(self.name, situation.why or "only diagonals are known")
        kl = situation.laplace_kl
        confirmed = Forecast(self.name, kl, 0.0, 0.0, 0.0, 0.0, 0.0, "").good
        words = (
            "the density around the mode confirms it"
            if confirmed
            else f"the posterior is not Gaussian: its mean is {situation.probe.shift:.2g} sd from"
            " the mode"
        )
        count, size = request.draws * request.chains, situation.dim
        seconds = drawing_seconds(count, size)
        return Forecast(self.name, kl, 0.0, 0.0, 0.0, seconds, 8.0 * count * size, words)

    def run(
        self, situation: Situation, request: SampleRequest, work: float = math.inf
    ) -> Posterior:
        return laplace(
            situation.model,
            draws=request.draws,
            chains=request.chains,
            seed=request.seed,
            curvature=situation.curvature,
        )

    def longer(self) -> None:
        return None
