"""What a way to a posterior must say and do: a forecast before anything runs, and the run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from ornstein.posterior.posterior import Posterior
from ornstein.sampling.request import SampleRequest
from ornstein.ways.probe import GOOD
from ornstein.ways.situation import Situation


@dataclass(frozen=True)
class Forecast:
    """What a way is expected to deliver and to cost, curvature and probes not counted.

    Attributes:
        way: its name.
        kl: predicted KL to the posterior, in nats: the way's law against Laplace's approximation,
            by theory, and that against the posterior, as probed. NaN where nothing is known.
        relaxation_time: of its chain in steps; 0 for independent draws.
        passes_per_draw: over the data, per effective draw.
        work: row gradients / N.
        seconds: on the reference machine of the cost table.
        memory: bytes, beside the data.
        words: why, or why not.
        possible: whether it can run at all.
    """

    way: str
    kl: float
    relaxation_time: float
    passes_per_draw: float
    work: float
    seconds: float
    memory: float
    words: str
    possible: bool = True

    @property
    def good(self) -> bool:
        """Whether it should end trusted."""
        return self.possible and self.kl <= GOOD


def impossible(way: str, words: str) -> Forecast:
    """The forecast of a way that cannot be taken, and why."""
    nothing = float("nan")
    return Forecast(way, nothing, nothing, nothing, nothing, nothing, nothing, words, False)


def restriction(request: SampleRequest) -> str:
    """Why only stochastic gradients can do what was asked; empty where others can too."""
    usual = SampleRequest()
    asked = [
        name
        for name in ("batch_size", "scheme", "thin", "warmup", "extrapolate", "keep", "max_steps")
        if getattr(request, name) != getattr(usual, name)
    ]
    return f"{asked[0]} is for stochastic gradients" if asked else ""


class Way(Protocol):
    """One way to a posterior. Ways are frozen dataclasses; `ornstein.ways.REGISTRY` lists them."""

    @property
    def name(self) -> str: ...

    @property
    def stochastic(self) -> bool:
        """Whether it obeys what only stochastic gradients have: batch_size, thin, warmup, …"""

    def forecast(self, situation: Situation, request: SampleRequest) -> Forecast:
        """What it will deliver and cost; runs nothing, and never raises."""

    def run(
        self, situation: Situation, request: SampleRequest, work: float = math.inf
    ) -> Posterior:
        """Take it, within so much work (passes over the data). An OrnsteinError says that it cannot
        be taken after all.
        """

    def longer(self) -> Way | None:
        """The same at four times the length (never more draws); None where that changes nothing."""
