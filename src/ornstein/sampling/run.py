"""From a model to a Posterior in this process: measure, tune, predict, warm up, freeze, run."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from ornstein.compute.one_thread import one_thread
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.derivatives import Derivatives
from ornstein.curvature.measure import measure
from ornstein.dynamics.dynamics import Dynamics, Sampler
from ornstein.engine.run import Pause
from ornstein.errors import InputError
from ornstein.model.model import Model
from ornstein.model.required import require_model
from ornstein.posterior.posterior import Posterior
from ornstein.posterior.provenance import provenance
from ornstein.posterior.statistics import imported_meanwhile
from ornstein.posterior.working import in_working_coordinates
from ornstein.samplers.constant_sgd import ConstantSGD
from ornstein.sampling.checkpoint import Checkpoint
from ornstein.sampling.extrapolate import extrapolated, half_step
from ornstein.sampling.plan import planned, require_stable, solvable, starts, tuned
from ornstein.sampling.progress import progress_bar, remark
from ornstein.sampling.request import SampleRequest
from ornstein.sampling.session import Session
from ornstein.sampling.warmup import Tuned
from ornstein.sampling.width import reason_for_double
from ornstein.streams import Purpose, derived_seed
from ornstein.types import Array


@one_thread()
def run_here(
    model: Model,
    request: SampleRequest,
    derivatives: Derivatives | None = None,
    known: Curvature | None = None,
) -> Posterior:
    """Do what was asked for in this process; `derivatives` answer for the full data where the model
    itself should not; `known` is its curvature, where `measure` has been called already.
    """
    require_model(model)
    if derivatives is not None or known is not None or isinstance(request.sampler, Dynamics):
        return _run(model, request, derivatives, known)

    def run(worked: Model, curvature: Curvature | None, init: Array | None) -> Posterior:
        return _run(worked, replace(request, curvature=curvature, init=init), None)

    return in_working_coordinates(model, request.curvature, request.init, run)


def _run(
    model: Model,
    request: SampleRequest,
    derivatives: Derivatives | None,
    known: Curvature | None = None,
) -> Posterior:
    started = time.perf_counter()
    measured = request.curvature is None
    given = request.sampler
    scheme = given.scheme if isinstance(given, Dynamics) else request.scheme
    curvature = request.curvature
    if curvature is None:
        curvature = known
    if curvature is None:
        curvature = measure(model, derivatives=derivatives, scheme=scheme, seed=request.seed)
    if curvature.dim != model.dim:
        raise InputError(f"the curvature has {curvature.dim} parameters, the model {model.dim}")
    reason = reason_for_double(model, curvature) if request.dtype is None else ""
    if reason:
        request = replace(request, dtype="float64")
        remark(request.progress, f"computing in float64: {reason}")
    sampler = default_sampler(curvature) if request.sampler is None else request.sampler
    dynamics, prediction = tuned(sampler, curvature, request.batch_size, request.scheme)
    with solvable(dynamics.sampler):
        require_stable(dynamics, prediction)
    # Refuses now what would be refused after the run.
    half = half_step(dynamics, curvature) if request.extrapolate else None
    plan = planned(request, dynamics, prediction, model.dim)
    first = starts(request, model, curvature, prediction)
    retunes = measured and curvature.noise_response is None
    rule = sampler if retunes and isinstance(sampler, Sampler) else None
    law = Tuned(dynamics, curvature, prediction)
    session = Session(model, law, first, plan, rule)
    pause = None
    if request.checkpoint is not None:
        folder = Path(request.checkpoint)
        pause = Checkpoint.of_session(folder, request, session, measured)
    posterior = finished(session, request.progress, pause, started)
    if reason:
        posterior = replace(posterior, settings={**posterior.settings, "dtype_reason": reason})
    if half is None or not posterior.settings["complete"]:
        return posterior
    return _extrapolated(model, request, posterior, *half)


def default_sampler(curvature: Curvature) -> Sampler:
    """Constant SGD: full, or diagonal where only diagonals are known."""
    return ConstantSGD("diagonal" if curvature.diagonal else "full")


def _extrapolated(
    model: Model, request: SampleRequest, posterior: Posterior, half: Dynamics, ratio: float
) -> Posterior:
    """The posterior at the mean extrapolated from a second run, at about half the step."""
    again = replace(
        request,
        sampler=half,
        curvature=posterior.curvature,
        seed=derived_seed(request.seed, 0, Purpose.EXTRAPOLATION),
        extrapolate=False,
    )
    return extrapolated(posterior, _run(model, again, None), ratio)


def finished(session: Session, progress: bool, pause: Pause | None, started: float) -> Posterior:
    """Run a session from where it is to its end, or until the user interrupts it, and hand over
    what it has delivered.
    """
    plan, run = session.plan, session.run
    steps = plan.chains * (plan.warmup + plan.draws * session.thin)
    with progress_bar(progress, steps, session.tuned.dynamics.sampler) as report:
        report(session.steps)
        complete = session.warm_up(report, pause)
        warmup_seconds = time.perf_counter() - started
        with imported_meanwhile():
            complete = complete and session.collect(report, pause)
    if pause is not None:
        pause.take()
    collection, tuned = session.collection, session.tuned
    if collection is None:
        raise KeyboardInterrupt("interrupted during warm-up, before the first draw")
    if collection.states < 2:
        raise KeyboardInterrupt("interrupted before the first draw of every chain")
    settings = {
        "batch_size": tuned.dynamics.batch_size,
        "scheme": tuned.dynamics.scheme,
        "thin": session.thin,
        "warmup": session.warmup.taken,
        "steps": sum(chain.step for chain in run.chains),
        "complete": complete,
        "moment_spacing": collection.moments.spacing,
        "seconds": time.perf_counter() - started,
        "seconds_before_draws": warmup_seconds,
        "dtype": plan.dtype,
        "keep": plan.keep,
        "seed": plan.seed,
        **provenance(),
    }
    draws, moments = collection.delivered(plan.draws, plan.seed), collection.moments
    return Posterior.from_run(
        session.model, tuned.dynamics, tuned.curvature, tuned.prediction, draws, moments, settings
    )
