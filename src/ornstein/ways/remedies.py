"""Which way to take after one that was not trusted: what its findings call for."""

from __future__ import annotations

from dataclasses import dataclass

from ornstein.sampling.request import SampleRequest
from ornstein.verdict.finding import LEVELS, Finding
from ornstein.verdict.slopes import NAME as GRADIENT
from ornstein.verdict.thresholds import EFFECTIVE_DRAWS, LARGEST_R_HAT
from ornstein.verdict.verdict import Verdict
from ornstein.ways import ways_of
from ornstein.ways.forecasts import Forecasts
from ornstein.ways.stochastic import StochasticGradients
from ornstein.ways.trajectories import MetricNuts, Nuts
from ornstein.ways.way import Forecast, Way

MOST_WAYS = 4
# Findings that a longer chain mends.
SLOW = ("length", "stationary", "R-hat, ESS")
# Findings that every way would meet: modes that none has visited, those of a network, and passes
# over the data that are too expensive for any draws to be compared with the density.
OF_ALL_WAYS = {"other modes", "whole network", "density"}
# What is wrong with the model, whatever else was found: no way can end trusted, and those that
# follow the gradient would take long to say so.
OF_THE_MODEL = {GRADIENT}


@dataclass(frozen=True)
class Tried:
    """A way that has run: what was found, empty where it delivered no draws."""

    way: Way
    raised: tuple[Finding, ...]
    delivered: bool


def raised_by(verdict: Verdict, request: SampleRequest) -> tuple[Finding, ...]:
    """Findings that another way might mend. So few draws that no way could make them enough are no
    reason to go on.
    """
    few = request.draws * request.chains < 2 * EFFECTIVE_DRAWS
    found = []
    for finding in verdict.findings:
        if finding.level not in LEVELS[1:]:
            continue
        if few and finding.name in SLOW and not finding.number > LARGEST_R_HAT:
            continue
        found.append(finding)
    return tuple(found)


def following(tried: list[Tried], forecasts: Forecasts, work: float) -> tuple[Way, Forecast] | None:
    """The next way within so much work; None where nothing is left that could help."""
    if len(tried) >= MOST_WAYS:
        return None
    for way in _called_for(tried, forecasts):
        forecast = forecasts.of(way)
        if forecast.possible and forecast.work <= work and way not in [one.way for one in tried]:
            return way, forecast
    return None


def _called_for(tried: list[Tried], forecasts: Forecasts) -> list[Way]:
    """Ways in the order in which the findings call for them."""
    last = tried[-1]
    names = {finding.name for finding in last.raised}
    if last.delivered and names and (names <= OF_ALL_WAYS or names & OF_THE_MODEL):
        return []
    longer = last.way.longer()
    slow = last.delivered and bool(names) and names <= set(SLOW)
    ways: list[Way] = [longer] if slow and longer is not None else []
    ways += _nearer(tried, forecasts)
    # the last resort: shorter steps, and more of them between draws
    ways += [one for one in (_careful(last.way),) if one is not None]
    return ways


def _nearer(tried: list[Tried], forecasts: Forecasts) -> list[Way]:
    """Ways whose law should be nearer the posterior than that of those tried: those that
    should end trusted first, and of them the cheapest.
    """
    names = {one.way.name for one in tried}
    rows: list[tuple[Forecast, Way]] = []
    nearest = min(_kl(one.way, forecasts) for one in tried)
    for way in ways_of(forecasts.situation):
        if way.name in names or _farther(way, forecasts, nearest):
            continue
        forecast = forecasts.of(way)
        if forecast.possible and (forecast.kl < nearest or forecast.kl == 0.0):
            rows.append((forecast, way))
    rows.sort(key=lambda row: (not row[0].good, row[0].seconds))
    return [way for _, way in rows]


def _farther(way: Way, forecasts: Forecasts, nearest: float) -> bool:
    """Whether a sampler is no nearer for sure, so that it need not be tuned."""
    if not isinstance(way, StochasticGradients):
        return False
    least, _ = way.bounds(forecasts.situation)
    return least > 0.0 and least >= nearest


def _kl(way: Way, forecasts: Forecasts) -> float:
    forecast = forecasts.of(way)
    return forecast.kl if forecast.kl >= 0.0 else float("inf")


def _careful(way: Way) -> Way | None:
    """NUTS with shorter steps."""
    if isinstance(way, MetricNuts):
        return Nuts()
    return way.longer() if isinstance(way, Nuts) else None
