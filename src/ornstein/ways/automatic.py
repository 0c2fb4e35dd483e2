"""`orn.sample` without a sampler: plan, run, judge, and go on with what the findings call for."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ornstein.checks import FULL_LIMIT
from ornstein.compute.one_thread import one_thread
from ornstein.curvature.curvature import Curvature
from ornstein.errors import FileError, InputError, OrnsteinError, WayError
from ornstein.model.model import Model
from ornstein.posterior.history import Attempt
from ornstein.posterior.posterior import Posterior
from ornstein.posterior.working import in_working_coordinates
from ornstein.sampling.checkpoint import seconds as as_seconds
from ornstein.sampling.progress import waiting
from ornstein.sampling.request import SampleRequest
from ornstein.streams import Purpose, derived_seed
from ornstein.types import Array, Meta
from ornstein.verdict.finding import LEVELS
from ornstein.verdict.verdict import Judgement, judge
from ornstein.ways import ways_of
from ornstein.ways.costs import machine_factor
from ornstein.ways.plan import Plan, checked_budget, planned, sentence, surveyed
from ornstein.ways.remedies import MOST_WAYS, Tried, following, raised_by
from ornstein.ways.saved import Folder, Limits, asked_for, begun
from ornstein.ways.situation import Situation, survey
from ornstein.ways.way import Forecast, Way, restriction

INTERRUPTED = "interrupted"


@dataclass
class Course:
    """What has been tried so far, and what it took."""

    began: float = field(default_factory=time.perf_counter)
    work: float = 0.0
    folder: Folder | None = None
    tried: list[Tried] = field(default_factory=list)
    history: list[Attempt] = field(default_factory=list)
    answers: list[Posterior] = field(default_factory=list)
    caught: list[list[warnings.WarningMessage]] = field(default_factory=list)
    refusals: list[OrnsteinError] = field(default_factory=list)
    modes: tuple[Array, ...] | None = None
    stopped: str = ""
    complete: bool = True


def sample_automatically(model: Model, request: SampleRequest, limits: Limits) -> Posterior:
    """The cheapest way that should end trusted, or what its verdict calls for."""
    course = Course()

    def run(worked: Model, curvature: Curvature | None, init: Array | None) -> Posterior:
        asked = replace(
            request, curvature=curvature, init=None if init is None else worked.flat(init)
        )
        course.folder = begun(worked, asked, limits, course.history)
        return _pursued(course, worked, asked, limits)

    return in_working_coordinates(model, request.curvature, request.init, run)


def resumed(
    path: Path,
    every: str | float,
    meta: Meta,
    arrays: Mapping[str, Array],
    model: Model,
    curvature: Curvature | None,
    draws: int | None,
    progress: bool,
) -> Posterior:
    """Go on from the contents of one checkpoint of such a run."""
    course = Course()

    def run(worked: Model, curvature: Curvature | None, _: Array | None) -> Posterior:
        request, limits, course.folder = asked_for(
            path, every, meta, arrays, worked, curvature, draws, course.history, progress
        )
        return _pursued(course, worked, request, limits)

    return in_working_coordinates(model, curvature, None, run)


@one_thread()
def _pursued(course: Course, model: Model, request: SampleRequest, limits: Limits) -> Posterior:
    """Plan, run, judge, and go on until an answer is trusted or nothing is left to try."""
    allowed = math.inf if limits.deadline is not None else checked_budget(limits.budget, model)
    situation = surveyed(model, request.curvature, request.seed, request.scheme, allowed)
    plan = planned(situation, request, _budget(limits, situation))
    situation = plan.situation
    if request.progress and situation.wide is not None:
        print(f"ornstein: {situation.wide.sentence}", file=sys.stderr, flush=True)
    way = chosen_way(plan)
    course.work = situation.passes
    forecast = plan[plan.chosen]
    while True:
        if request.progress:
            said = f"after {course.history[-1]}: " if course.history else ""
            print(f"ornstein: {said}{sentence(forecast)}", file=sys.stderr, flush=True)
        attempt(course, way, situation, request, limits, plan, forecast)
        if course.history[-1].verdict in ("trusted", INTERRUPTED) or not limits.remedy:
            break
        if course.tried[-1].delivered and not course.tried[-1].raised:
            break  # nothing that another way could mend
        left = plan.budget - course.work
        found = following(course.tried, plan.forecasts, left)
        found = found or following(course.tried, plan.forecasts, math.inf)
        if found is None:
            break
        way, forecast = found
        if stopped := _stopped(course, plan, limits, forecast.work):
            course.stopped = f"before {way.name}: {stopped}"
            break
    return answer(course, plan)


def chosen_way(plan: Plan) -> Way:
    """The way that is taken first, in the form it has for the model."""
    return next(way for way in ways_of(plan.situation) if way.name == plan.chosen)


def chooses(model: object, request: SampleRequest) -> bool:
    """Whether the library chooses the way. Beyond 2000 parameters, what only stochastic gradients
    can do is theirs, and what comes with a curvature.
    """
    if not isinstance(model, Model):
        return False
    if model.undivided:
        return True
    if model.dim > FULL_LIMIT and (
        model.streams or restriction(request) or request.curvature is not None
    ):
        return False
    return request.curvature is None or not request.curvature.diagonal


@one_thread()
def taken(way: Way, model: Model, request: SampleRequest) -> Posterior:
    """One way, by its name: run and not judged."""
    if reason := restriction(request):
        raise InputError(f"{reason}, and {way.name!r} is not one of them: leave it out")

    def run(worked: Model, curvature: Curvature | None, init: Array | None) -> Posterior:
        asked = replace(request, curvature=curvature, init=init)
        situation = survey(worked, curvature, request.seed, request.scheme)
        able = (one for one in ways_of(situation) if one.name == way.name)
        return next(able, way).run(situation, asked)

    return in_working_coordinates(model, request.curvature, request.init, run)


def attempt(
    course: Course,
    way: Way,
    situation: Situation,
    request: SampleRequest,
    limits: Limits,
    plan: Plan,
    forecast: Forecast,
) -> None:
    """Take a way with randomness of its own, and judge it."""
    number, began, expected = len(course.history), time.perf_counter(), forecast.work
    left = max(expected, plan.budget - course.work)
    shown = request.progress and not way.stochastic  # those have a bar of their own
    asked = request
    if number:
        asked = replace(request, seed=derived_seed(request.seed, number, Purpose.PLAN))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with waiting(shown, way.name, forecast.seconds * machine_factor()):
                if course.folder is None:
                    posterior = way.run(situation, asked, left)
                else:
                    posterior = course.folder.taken(way, number, situation, asked, left)
        except KeyboardInterrupt:
            if not course.answers:
                raise
            _interrupted(course, way, None, time.perf_counter() - began)
            return
        except FileError:
            raise  # of the checkpoint, and not of this way
        except OrnsteinError as error:
            if isinstance(error, InputError) and restriction(request):
                raise  # what the user asked of stochastic gradients cannot be done
            _refused(course, way, error, expected, time.perf_counter() - began)
            return
        except (ArithmeticError, np.linalg.LinAlgError) as error:
            refusal = WayError(
                f"{way.name} failed numerically ({error}): bring the columns"
                " of the data to a common scale, or use orn.sample(model, 'nuts')"
            )
            _refused(course, way, refusal, expected, time.perf_counter() - began)
            return
        if not posterior.settings.get("complete", True):
            _interrupted(course, way, posterior, time.perf_counter() - began)
            return
        tries = MOST_WAYS if limits.remedy else 1
        seed = derived_seed(request.seed, number, Purpose.VERDICT)
        metric = None if situation.wide is None else situation.wide.gaussian
        try:
            rest = plan.budget - course.work - max(passes_of(posterior), expected)
            judgement = judge(posterior, seed, tries, course.modes, metric, max(rest, 0.0))
        except KeyboardInterrupt:
            _interrupted(course, way, posterior, time.perf_counter() - began)
            return
    course.caught.append(caught)
    _record(course, way, asked, posterior, judgement, time.perf_counter() - began, expected)
    if course.folder is not None:
        course.folder.checkpoint.take()


def _refused(
    course: Course, way: Way, error: OrnsteinError, expected: float, seconds: float
) -> None:
    """A way that delivered no draws; what was set aside for it counts as spent."""
    passes = max(expected, error.passes if isinstance(error, WayError) else 0.0)
    course.refusals.append(error)
    course.tried.append(Tried(way, (), False))
    course.history.append(Attempt(way.name, "refused", passes, seconds, str(error)))
    course.work += passes


def _interrupted(course: Course, way: Way, posterior: Posterior | None, seconds: float) -> None:
    """The user has stopped the run: the draws that there are, judged or not, are the answer; those
    of the ways before where this one has none.
    """
    passes = 0.0 if posterior is None else passes_of(posterior)
    course.tried.append(Tried(way, (), posterior is not None))
    course.history.append(Attempt(way.name, INTERRUPTED, passes, seconds))
    if posterior is not None:
        course.answers, course.caught = [posterior], [[]]
    course.complete = False


def _record(
    course: Course,
    way: Way,
    request: SampleRequest,
    posterior: Posterior,
    judgement: Judgement,
    seconds: float,
    expected: float,
) -> None:
    verdict = judgement.verdict
    taken = passes_of(posterior)
    raised = [finding for finding in verdict.findings if finding.level in LEVELS[1:]]
    reason = ", ".join(finding.name for finding in raised)
    course.modes = judgement.modes
    course.tried.append(Tried(way, raised_by(verdict, request), True))
    passes = taken + judgement.passes
    course.history.append(Attempt(way.name, verdict.level, passes, seconds, reason))
    course.answers.append(replace(posterior, verdict=verdict))
    # what was set aside for it counts, so that a budget of what was spent makes the same choices
    course.work += max(taken, expected) + judgement.set_aside


def answer(course: Course, plan: Plan) -> Posterior:
    """The first trusted answer, else the best of those judged; with the whole history."""
    if not course.answers:
        raise course.refusals[0]
    ranks = [LEVELS.index(one.verdict.level) if one.verdict else 0 for one in course.answers]
    # of equal verdicts the last: it knows what the others did not
    best = max(range(len(ranks)), key=lambda place: (-ranks[place], place))
    for warning in course.caught[best]:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    chosen = course.answers[best]
    settings = {
        **chosen.settings,
        "way": _name_of(course, best),
        "budget": plan.budget,
        "work": course.work,
        "seconds": time.perf_counter() - course.began,
    }
    if course.stopped:
        settings["stopped"] = course.stopped
    if not course.complete:
        settings["complete"] = False
    return replace(chosen, settings=settings, history=tuple(course.history), plan=plan)


def _name_of(course: Course, place: int) -> str:
    delivered = [one for one in course.tried if one.delivered]
    return delivered[place - len(course.answers)].way.name


def passes_of(posterior: Posterior) -> float:
    """Passes over the data that made these draws."""
    settings = posterior.settings
    if "passes" in settings:
        return float(settings["passes"])
    rows = settings.get("steps", 0) * settings.get("batch_size", 0)
    controlled = posterior.dynamics is not None and posterior.dynamics.control_variates
    assert posterior.model is not None
    return float(rows * (2 if controlled else 1) / posterior.model.n_data)


def _stopped(course: Course, plan: Plan, limits: Limits, expected: float) -> str:
    """Why not to go on; empty where nothing forbids it."""
    if course.work + expected > plan.budget:
        return f"{course.work + expected:,.0f} passes would be more than the budget"
    if limits.deadline is not None:
        left = as_seconds(limits.deadline, "deadline") - (time.perf_counter() - course.began)
        situation = plan.situation
        needed = expected * situation.pass_seconds * machine_factor()
        if left < needed:
            return (
                f"{max(left, 0.0):.0f} s are left; budget={course.work:.0f} reproduces these draws"
            )
    return ""


def _budget(limits: Limits, situation: Situation) -> float | None:
    """The budget; a deadline allows what the cost table says can be done until then."""
    if limits.deadline is None:
        return limits.budget
    if limits.budget is not None:
        raise InputError("give either a budget or a deadline, not both")
    per_pass = situation.pass_seconds * machine_factor()
    allowed = as_seconds(limits.deadline, "deadline") / per_pass
    return float(max(1.0, situation.passes + allowed))
