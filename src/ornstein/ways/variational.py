"""Gaussian VI: the Gaussian nearest to the posterior, where the one at the mode is not near
enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ornstein.baselines.gaussian_vi import gaussian_vi
from ornstein.errors import WayError
from ornstein.posterior.posterior import Posterior
from ornstein.sampling.request import SampleRequest
from ornstein.ways.costs import drawing_seconds
from ornstein.ways.situation import Situation
from ornstein.ways.way import Forecast, impossible


@dataclass(frozen=True)
class GaussianVi:
    """Independent draws from the Gaussian that planning found and probed."""

    name: str = "gaussian-vi"
    stochastic: bool = False

    def forecast(self, situation: Situation, request: SampleRequest) -> Forecast:
        if situation.fitted is None:
            words = situation.why or "not needed, or too expensive to find while planning"
            return impossible(self.name, words)
        count, size = request.draws * request.chains, situation.dim
        probe = situation.fitted.probe
        kl = probe.counted
        words = (
            "the density confirms the closest Gaussian"
            if Forecast(self.name, kl, 0.0, 0.0, 0.0, 0.0, 0.0, "").good
            else "no Gaussian is close to the posterior"
        )
        work = situation.fitted.passes
        seconds = drawing_seconds(count, size)
        return Forecast(self.name, kl, 0.0, 0.0, work, seconds, 8.0 * count * size, words)

    def run(
        self, situation: Situation, request: SampleRequest, work: float = math.inf
    ) -> Posterior:
        if situation.curvature is None:
            raise WayError(f"there is no mode to start from: {situation.why}")
        return gaussian_vi(
            situation.model,
            draws=request.draws,
            chains=request.chains,
            seed=request.seed,
            curvature=situation.curvature,
        )

    def longer(self) -> None:
        return None
