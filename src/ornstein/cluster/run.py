"""More than one process or machine, on Dask: chains over workers, or one tuned chain per shard of
the rows.

A message per step would cost a thousand steps, so shards run alone and are combined at the end
(consensus, Scott et al. 2016): the draws of shard p, whose law is N(·, W_p⁻¹) with W_p = n_p A_p,
enter as θ = θ̂ + (Σ_p W_p)⁻¹ Σ_p W_p δ_p, δ_p the deviation from the shard's own mean and θ̂ the
exact mode of all rows. That is N(θ̂, A⁻¹/N) where the sub-posteriors are Gaussian.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.cluster.consensus import ConsensusPosterior, combined, pooled, whole_verdict
from ornstein.cluster.shards import ShardedDerivatives, ShardedModel, Shards
from ornstein.cluster.store import Part, Store
from ornstein.compute.one_thread import one_thread
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.measure import measure
from ornstein.dynamics.dynamics import Dynamics, Sampler
from ornstein.errors import ClusterError, CurvatureError, InputError, OrnsteinError, StabilityError
from ornstein.model.model import Model
from ornstein.posterior.posterior import Posterior
from ornstein.posterior.provenance import provenance
from ornstein.rows.scheme import LEVERAGE, STRATIFIED, checked_scheme
from ornstein.sampling.fingerprint import fingerprint
from ornstein.sampling.request import SampleRequest
from ornstein.sampling.run import default_sampler, run_here
from ornstein.streams import derived_seed

if TYPE_CHECKING:
    from distributed import Client, Future

ROWS_PER_PARAMETER = 20
# what the verdict says of a chain that is too short
OF_LENGTH = ("length", "stationary", "R-hat, ESS")


# How often in a row all that runs may be lost with its workers before the run is given up, and for
# how long new workers are waited for.
LOSSES, PATIENCE = 3, 120.0


@one_thread()
def sample_on(client: object, model: Model, request: SampleRequest) -> Posterior:
    """Run chains of a model, or shards of a sharded one, on the workers of a Dask client."""
    from distributed import Client

    if not isinstance(client, Client):
        raise InputError(f"client must be a dask.distributed.Client; got a {type(client).__name__}")
    if request.extrapolate:
        raise InputError("extrapolate=True is not supported on a cluster: leave client out")
    if request.first_chain:
        raise InputError("first_chain is not supported on a cluster: it numbers the chains itself")
    folder = None if request.checkpoint is None else Path(request.checkpoint)
    started = time.perf_counter()
    with _scheduler_kept(client, folder):
        if isinstance(model, ShardedModel):
            return _over_shards(client, model, request, folder, started)
        return _over_chains(client, model, request, folder, started)


def _over_chains(
    client: Client, model: Model, request: SampleRequest, folder: Path | None, started: float
) -> Posterior:
    """One task per chain, each with the streams that the chain has in a single process."""
    store = None if folder is None else Store.begin(folder, fingerprint(model, request))
    curvature = request.curvature or measure(model, scheme=request.scheme)
    one = _on_worker(replace(request, chains=1))

    held: list[Future] = []

    def begin(numbers: list[int]) -> dict[Future, int]:
        # sent again where the workers that had it are gone; held, for a chain may be begun again
        try:
            held[:] = [client.scatter(model, broadcast=True)]
        except ValueError as error:  # the last worker was lost meanwhile
            raise CancelledError(str(error)) from error
        return {
            client.submit(
                _chain, held[0], replace(one, first_chain=number), pure=False, retries=3
            ): number
            for number in numbers
        }

    parts = _gathered(client, request.chains, begin, store)
    first = parts[0].settings
    settings = {
        **first,
        "steps": sum(part.settings["steps"] for part in parts),
        "workers": len(client.scheduler_info()["workers"]),
        "seconds": time.perf_counter() - started,
        "seed": request.seed,
        "states": sum(part.settings["states"] for part in parts),
    }
    dynamics = _retuned(request.sampler, curvature, first)
    draws = np.concatenate([part.draws for part in parts])
    return Posterior(
        draws,
        tuple(model.names),
        model.layout,
        settings,
        dynamics,
        curvature,
        dynamics.predict(curvature),
        model.predict,
        pooled(parts),
        model=model,
    )


def _on_worker(request: SampleRequest) -> SampleRequest:
    """What a worker is asked: it measures for itself, keeps silent and writes nothing."""
    return replace(request, curvature=None, checkpoint=None, progress=False)


def _chain(model: Model, request: SampleRequest) -> Part:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = run_here(model, request)
    return _part(posterior, model.n_data, [])


def _retuned(
    sampler: Sampler | Dynamics | None, curvature: Curvature, settings: dict[str, Any]
) -> Dynamics:
    rule = default_sampler(curvature) if sampler is None else sampler
    if isinstance(rule, Dynamics):
        return rule
    return rule.tune(curvature, batch_size=settings["batch_size"], scheme=settings["scheme"])


def _over_shards(
    client: Client, model: ShardedModel, request: SampleRequest, folder: Path | None, started: float
) -> Posterior:
    if request.curvature is not None:
        raise InputError("curvature cannot be given for data on a cluster: it is measured there")
    if checked_scheme(request.scheme) in (LEVERAGE, STRATIFIED):
        raise InputError(
            f"scheme={request.scheme!r} is not supported for data on a cluster: use 'replacement'"
        )
    shards = Shards.on(model, client, ROWS_PER_PARAMETER * model.dim)
    store = None
    if folder is not None:
        store = Store.begin(folder, fingerprint(model, request, shards.content()))
    curvature = measure(model, derivatives=ShardedDerivatives(shards))
    curvature = replace(
        curvature, noise_response=None, noise=curvature.effective_noise, hessian_product=None
    )
    while True:
        parts, unfit = _shard_parts(client, shards, request, store)
        if not unfit:
            break
        if len(shards.rows) == 1:
            raise unfit[0]
        shards = shards.merged(set(unfit))
    draws, law = combined(curvature, parts)
    settings = {
        **{
            name: parts[0].settings[name]
            for name in ("batch_size", "scheme", "thin", "warmup", "dtype", "keep")
        },
        "steps": sum(part.settings["steps"] for part in parts),
        "seconds": time.perf_counter() - started,
        "shards": len(parts),
        "workers": len(client.scheduler_info()["workers"]),
        "seed": request.seed,
        "states": draws.shape[0] * draws.shape[1],
        **provenance(),
    }
    findings = whole_verdict(parts, law, curvature)
    return ConsensusPosterior(
        draws,
        tuple(model.names),
        model.layout,
        settings,
        None,
        curvature,
        None,
        model.predict,
        law,
        verdict=findings,
    )


def _shard_parts(
    client: Client, shards: Shards, request: SampleRequest, store: Store | None
) -> tuple[list[Part], dict[int, OrnsteinError]]:
    """What the shards deliver, and the errors of those that are too small to stand alone."""
    count, asked = len(shards.rows), _on_worker(request)

    def begin(numbers: list[int]) -> dict[Future, int]:
        shards.send()
        return {
            client.submit(
                _run_shard,
                shards.futures[number],
                replace(asked, seed=derived_seed(request.seed, count, number)),
                pure=False,
                retries=3,
            ): number
            for number in numbers
        }

    answers = _gathered(client, count, begin, store, prefix=f"{count}-")
    unfit = {
        number: answer for number, answer in enumerate(answers) if isinstance(answer, OrnsteinError)
    }
    lonely = {
        number: CurvatureError("the shard's own verdict is that its draws are not to be trusted")
        for number, answer in enumerate(answers)
        if isinstance(answer, Part) and len(answers) > 1 and _too_few_rows(answer)
    }
    return answers, {**unfit, **lonely}


def _run_shard(model: Model, request: SampleRequest) -> Part | OrnsteinError:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            posterior = run_here(model, request)
            findings = [asdict(finding) for finding in posterior.check().findings]
        except (CurvatureError, StabilityError) as error:
            return type(error)(f"a shard of {model.n_data} rows: {error}")
    return _part(posterior, model.n_data, findings)


def _part(posterior: Posterior, rows: int, findings: list[dict[str, object]]) -> Part:
    assert posterior.curvature is not None
    plain = {
        name: value
        for name, value in posterior.settings.items()
        if isinstance(value, str | int | float | bool)
    }
    return Part(
        posterior.draws,
        posterior.mean,
        posterior.covariance,
        posterior.curvature.hessian,
        rows,
        plain,
        findings,
    )


def _too_few_rows(part: Part) -> bool:
    """Whether a shard has a fault that more rows can mend; a short chain is none."""
    return any(
        finding["level"] == "not trusted" and finding["name"] not in OF_LENGTH
        for finding in part.findings
    )


def _gathered(
    client: Client,
    count: int,
    begin: Callable[[list[int]], dict[Future, int]],
    store: Store | None,
    prefix: str = "",
) -> list[Any]:
    """The answers in order; each is written down as soon as it is there, and not asked for again
    where it already is. What was lost with all workers is begun again on new ones.
    """
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    answers: dict[int, Any] = {}
    for number in range(count):
        known = None if store is None else store.read(f"{prefix}{number}")
        if known is not None:
            answers[number] = known
    losses = 0
    while missing := [number for number in range(count) if number not in answers]:
        had = len(answers)
        try:
            for number, answer in _finished(begin(missing)):
                answers[number] = answer
                if store is not None and isinstance(answer, Part):
                    store.write(f"{prefix}{number}", answer)
        except (CancelledError, CommClosedError, KilledWorker, TimeoutError) as error:
            losses = 1 if len(answers) > had else losses + 1
            _require_another_try(client, losses, len(missing), error)
    return [answers[number] for number in range(count)]


def _finished(running: dict[Future, int]) -> Iterator[tuple[int, Any]]:
    """Answers as they come."""
    from distributed import as_completed

    for future in as_completed(list(running)):
        yield running[future], future.result()


def _require_another_try(client: Client, losses: int, missing: int, error: BaseException) -> None:
    """Wait for new workers. Gives up where the scheduler is gone, no worker comes, or too much was
    lost in a row.
    """
    if losses >= LOSSES and _scheduler_of(client) is not None:
        raise ClusterError(
            f"the workers were lost {losses} times in a row before one of {missing} parts of the"
            " run was finished: use workers that live longer, or fewer draws"
        ) from error
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        seen = _scheduler_of(client)
        if seen is None:
            raise error
        if seen["workers"]:
            return
        time.sleep(0.5)
    raise ClusterError(
        f"all workers were lost and none came back within {PATIENCE:.0f} s: start some, and call"
        " sample again"
    ) from error


def _scheduler_of(client: Client) -> dict[str, Any] | None:
    """What the scheduler says of itself, None where it no longer answers."""
    try:
        scheduler: Any = client.scheduler
        seen = client.sync(scheduler.identity, callback_timeout=10.0)
    except Exception:
        return None
    return seen if client.status == "running" else None


@contextmanager
def _scheduler_kept(client: Client, folder: Path | None) -> Iterator[None]:
    """Turns Dask's many ways of saying that something is gone into a sentence that says what."""
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    address = getattr(getattr(client, "scheduler", None), "address", "unknown")
    again = (
        "give checkpoint=… to keep what is finished"
        if folder is None
        else (
            f"what was finished is in {folder}: call sample again with the same arguments and a new"
            " client"
        )
    )
    try:
        yield
    except OrnsteinError:
        raise
    except KilledWorker as error:
        raise ClusterError(
            f"a task of the run was lost with its worker more often than it may be retried: {error}"
        ) from error
    except (CancelledError, CommClosedError, TimeoutError, OSError) as error:
        if _scheduler_of(client) is not None:
            raise ClusterError(
                "workers were lost, and with them data that no other had"
                f" ({type(error).__name__}): make the model again and call sample again"
            ) from error
        raise ClusterError(
            f"the Dask scheduler at {address} is gone ({type(error).__name__}); {again}"
        ) from error
