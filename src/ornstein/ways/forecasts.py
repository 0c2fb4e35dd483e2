"""Forecasts of ways, each made once and only where it matters: those of stochastic gradients tune
a sampler, which for many parameters takes longer than Laplace's approximation from start to end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ornstein.checks import FULL_LIMIT
from ornstein.errors import CurvatureError
from ornstein.sampling.request import SampleRequest
from ornstein.ways import REGISTRY, ways_of
from ornstein.ways.probe import GOOD
from ornstein.ways.situation import Situation
from ornstein.ways.stochastic import StochasticGradients
from ornstein.ways.way import Forecast, Way, impossible, restriction

FEW = f"for up to {FULL_LIMIT} parameters"


@dataclass(frozen=True, eq=False)
class Forecasts:
    """What the ways to the posterior of one model should deliver and cost, for one request."""

    situation: Situation
    request: SampleRequest
    _known: dict[Way, Forecast] = field(default_factory=dict, repr=False)

    def of(self, way: Way) -> Forecast:
        """The forecast of a way, made when it is first asked for."""
        if way not in self._known:
            self._known[way] = self._made(way)
        return self._known[way]

    def _made(self, way: Way) -> Forecast:
        reason = restriction(self.request)
        if reason and not way.stochastic:
            return impossible(way.name, reason)
        if way in REGISTRY:  # in the form that it has for this model
            if way.name not in self._able:
                return impossible(way.name, FEW)
            way = self._able[way.name]
        return way.forecast(self.situation, self.request)

    @cached_property
    def _able(self) -> dict[str, Way]:
        return {way.name: way for way in ways_of(self.situation)}

    def all(self) -> tuple[Forecast, ...]:
        """Those of every way in the registry."""
        return tuple(self.of(way) for way in REGISTRY)

    def chosen(self, work: float) -> str:
        """The way that `elected` would name if it saw them all. Samplers are not tuned where the
        bounds on what they can deliver and cost rule them out.
        """
        tuned = [
            way
            for way in REGISTRY
            if isinstance(way, StochasticGradients) and way.name in self._able
        ]
        rows = {way.name: self.of(way) for way in REGISTRY if way not in tuned}
        for way in sorted(tuned, key=lambda way: way.share):
            if self._may_win(way, rows, work):
                rows[way.name] = self.of(way)
        return elected(_in_order(rows), work, self.situation)

    def _may_win(self, way: StochasticGradients, rows: dict[str, Forecast], work: float) -> bool:
        """Whether its bounds leave it a chance against the rows known so far."""
        if not any(row.possible for row in rows.values()):
            return True
        best = rows[elected(_in_order(rows), work, self.situation)]
        kl, seconds = way.bounds(self.situation)
        if best.work > work:
            return True
        if best.kl <= GOOD:
            return not (kl > GOOD or seconds >= best.seconds)
        return not kl > best.kl


def _in_order(rows: dict[str, Forecast]) -> tuple[Forecast, ...]:
    return tuple(rows[way.name] for way in REGISTRY if way.name in rows)


def elected(rows: tuple[Forecast, ...], work: float, situation: Situation) -> str:
    """The cheapest way that should end trusted within so much work; where there is none, the
    nearest to the posterior.
    """
    able = [row for row in rows if row.possible]
    if not able:
        raise CurvatureError(situation.why or rows[0].words)
    within = [row for row in able if row.work <= work] or [min(able, key=lambda row: row.work)]
    good = [row for row in within if row.kl <= GOOD]
    if good:
        return min(good, key=lambda row: row.seconds).way
    return min(within, key=lambda row: (row.kl, row.seconds)).way
