"""More than one process or machine, on Dask: chains over workers, or one tuned chain per shard of the rows.

A message per step would cost a thousand steps, so shards run alone and are combined at the end (consensus, Scott et al. 2016):
the draws of shard p, whose law is N(·, W_p⁻¹) with W_p = n_p A_p, enter as θ = θ̂ + (Σ_p W_p)⁻¹ Σ_p W_p δ_p, δ_p the deviation
from the shard's own mean and θ̂ the exact mode of all rows. That is N(θ̂, A⁻¹/N) where the sub-posteriors are Gaussian.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ornstein.archive import read_archive, write_archive
from ornstein.curvature import Curvature, measure
from ornstein.diagnostics.finding import LEVELS, SKIPPED, Finding
from ornstein.diagnostics.verdict import Verdict
from ornstein.errors import (
    ClusterError,
    CurvatureError,
    FileError,
    InputError,
    OrnsteinError,
    StabilityError,
)
from ornstein.model import Model
from ornstein.posterior import Posterior, provenance
from ornstein.shards import ShardedModel, Shards
from ornstein.theory import Gaussian, kl

Array = np.ndarray
FORMAT = "ornstein-cluster-1"
ROWS_PER_PARAMETER = 20
SMALL_KL, LARGE_KL = 0.05, 0.5
OF_LENGTH = (
    "length",
    "stationary",
    "R-hat, ESS",
)  # what the verdict says of a chain that is too short


@dataclass(frozen=True)
class Part:
    """What comes back from one worker: a chain, or the chains of a shard, with the shard's curvature and verdict."""

    draws: Array
    mean: Array
    covariance: Array
    hessian: Array
    rows: int
    settings: dict[str, Any]
    findings: list[dict[str, Any]]


def sample_on(
    client: Any,
    model: Model,
    sampler: Any,
    options: dict[str, Any],
    chains: int,
    seed: int,
    folder: Path | None,
) -> Posterior:
    """Run chains of a model, or shards of a sharded one, on the workers of a Dask client."""
    if not hasattr(client, "submit") or not hasattr(client, "gather"):
        raise InputError(f"client must be a dask.distributed.Client; got a {type(client).__name__}")
    started = time.perf_counter()
    store = (
        None
        if folder is None
        else Store.begin(folder, model, sampler, {**options, "chains": chains, "seed": seed})
    )
    with _scheduler_kept(client, folder):
        if isinstance(model, ShardedModel):
            return _over_shards(
                client, model, sampler, {**options, "chains": chains}, seed, store, started
            )
        return _over_chains(client, model, sampler, options, chains, seed, store, started)


def _over_chains(
    client: Any,
    model: Model,
    sampler: Any,
    options: dict[str, Any],
    chains: int,
    seed: int,
    store: Store | None,
    started: float,
) -> Posterior:
    """One task per chain, each with the streams that the chain has in a single process."""
    curvature = options.pop("curvature", None) or measure(model)
    shared = client.scatter(model, broadcast=True)
    jobs = {
        number: (
            lambda number=number: client.submit(
                _chain, shared, sampler, number, seed, options, pure=False, retries=3
            )
        )
        for number in range(chains)
    }
    parts = _gathered(client, jobs, store)
    first = parts[0].settings
    settings = {
        **first,
        "steps": sum(part.settings["steps"] for part in parts),
        "workers": len(client.scheduler_info()["workers"]),
    }
    settings["seconds"] = time.perf_counter() - started
    dynamics = _retuned(sampler, curvature, first)
    draws = np.concatenate([part.draws for part in parts])
    return Posterior(
        draws,
        tuple(model.names),
        model.layout,
        {**settings, "seed": seed, "states": sum(part.settings["states"] for part in parts)},
        dynamics,
        curvature,
        dynamics.predict(curvature),
        model.predict,
        _pooled(parts),
        model=model,
    )


def _chain(model: Model, sampler: Any, number: int, seed: int, options: dict[str, Any]) -> Part:
    from ornstein.sample import sample

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = sample(
            model, sampler, chains=1, first_chain=number, seed=seed, progress=False, **options
        )
    return _part(posterior, model.n_data, [])


def _retuned(sampler: Any, curvature: Curvature, settings: dict[str, Any]) -> Any:
    from ornstein.samplers.constant_sgd import ConstantSGD

    rule = sampler or ConstantSGD("diagonal" if curvature.diagonal else "full")
    if hasattr(rule, "kernel"):
        return rule
    return rule.tune(curvature, batch_size=settings["batch_size"], scheme=settings["scheme"])


def _over_shards(
    client: Any,
    model: ShardedModel,
    sampler: Any,
    options: dict[str, Any],
    seed: int,
    store: Store | None,
    started: float,
) -> Posterior:
    if options.pop("curvature", None) is not None:
        raise InputError("curvature cannot be given for data on a cluster: it is measured there")
    shards = Shards.on(model, client, ROWS_PER_PARAMETER * model.dim)
    curvature = measure(shards.measurable())
    curvature = replace(
        curvature, noise_response=None, noise=curvature.effective_noise, hessian_product=None
    )
    while True:
        parts, unfit = _shard_parts(client, shards, sampler, options, seed, store)
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
        "seed": seed,
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
    client: Any,
    shards: Shards,
    sampler: Any,
    options: dict[str, Any],
    seed: int,
    store: Store | None,
) -> tuple[list[Part], dict[int, OrnsteinError]]:
    """What the shards deliver, and the errors of those that are too small to stand alone."""
    seeds = [
        int(np.random.SeedSequence(seed, spawn_key=(len(shards.rows), p)).generate_state(1)[0])
        for p in range(len(shards.rows))
    ]
    jobs = {
        number: (
            lambda number=number: client.submit(
                _run_shard,
                shards.futures[number],
                sampler,
                seeds[number],
                options,
                pure=False,
                retries=3,
            )
        )
        for number in range(len(shards.rows))
    }
    answers = _gathered(client, jobs, store, prefix=f"{len(jobs)}-")
    unfit = {
        number: answer for number, answer in enumerate(answers) if isinstance(answer, OrnsteinError)
    }
    lonely = {
        number: CurvatureError("the shard's own verdict is that its draws are not to be trusted")
        for number, answer in enumerate(answers)
        if isinstance(answer, Part) and len(answers) > 1 and _too_few_rows(answer)
    }
    return answers, {**unfit, **lonely}


def _run_shard(
    model: Model, sampler: Any, seed: int, options: dict[str, Any]
) -> Part | OrnsteinError:
    from ornstein.sample import sample

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            posterior = sample(model, sampler, seed=seed, progress=False, **options)
            findings = [asdict(finding) for finding in posterior.check().findings]
        except (CurvatureError, StabilityError) as error:
            return type(error)(f"a shard of {model.n_data} rows: {error}")
    return _part(posterior, model.n_data, findings)


def _part(posterior: Posterior, rows: int, findings: list[dict[str, Any]]) -> Part:
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
    """Whether something speaks against a shard that more rows can mend: not that its chain was short."""
    return any(
        finding["level"] == "not trusted" and finding["name"] not in OF_LENGTH
        for finding in part.findings
    )


def combined(curvature: Curvature, parts: list[Part]) -> tuple[Array, Gaussian]:
    """The consensus of the shards' draws, and its first two moments from all states of the shards."""
    weights = [part.rows * _matrix(part.hessian) for part in parts]
    total = np.linalg.inv(sum(weights))
    shortest = min(part.draws.shape[1] for part in parts)
    draws = np.zeros((parts[0].draws.shape[0], shortest, curvature.dim))
    covariance = np.zeros((curvature.dim, curvature.dim))
    for part, weight in zip(parts, weights, strict=True):
        share = total @ weight
        draws += (part.draws[:, :shortest] - part.mean) @ share.T
        covariance += share @ _matrix(part.covariance) @ share.T
    return curvature.mode + draws, Gaussian(curvature.mode, (covariance + covariance.T) / 2.0)


def _matrix(values: Array) -> Array:
    return np.diag(values) if values.ndim == 1 else values


def _pooled(parts: list[Part]) -> Gaussian:
    """Mean and covariance of all chains' states together; every chain has as many."""
    means = np.stack([part.mean for part in parts])
    within = np.mean([part.covariance for part in parts], axis=0)
    shift = means - means.mean(axis=0)
    between = shift.T @ shift if within.ndim == 2 else np.sum(shift**2, axis=0)
    return Gaussian(means.mean(axis=0), within + between / max(1, len(parts)))


def whole_verdict(parts: list[Part], law: Gaussian, curvature: Curvature) -> Verdict:
    """For every question the worst answer of a shard, and how far the combined draws are from the Gaussian at the mode."""
    findings = []
    for name in dict.fromkeys(finding["name"] for part in parts for finding in part.findings):
        answers = [
            (number, f)
            for number, part in enumerate(parts)
            for f in part.findings
            if f["name"] == name
        ]
        looked = [answer for answer in answers if answer[1]["level"] != SKIPPED] or answers[:1]
        number, worst = max(
            looked,
            key=lambda answer: (
                LEVELS.index(answer[1]["level"]) if answer[1]["level"] in LEVELS else -1
            ),
        )
        sentence = f"worst of {len(parts)} shards (number {number}): {worst['sentence']}"
        findings.append(Finding(**{**worst, "sentence": sentence}))
    distance = kl(law, curvature.laplace)
    level = (
        "trusted" if distance <= SMALL_KL else "caution" if distance <= LARGE_KL else "not trusted"
    )
    said = f"KL(combined draws ‖ Gaussian at the mode of all rows) = {distance:.2g} (wanted: below {SMALL_KL})"
    findings.append(
        Finding(
            "consensus", level, distance, SMALL_KL, said, "use fewer, larger shards or more draws"
        )
    )
    return Verdict(tuple(findings))


@dataclass(frozen=True, eq=False)
class ConsensusPosterior(Posterior):
    """Draws combined from shards; its verdict was made where the rows are."""

    verdict: Verdict = field(default_factory=lambda: Verdict(()))

    def check(
        self, model: Model | None = None, *, stein: bool | int = False, seed: int = 0
    ) -> Verdict:
        """The verdicts of the shards and of their combination."""
        return self.verdict


@dataclass
class Store:
    """Finished parts of a cluster run in a folder, so that a run whose scheduler was lost need not begin again."""

    folder: Path
    key: str

    @classmethod
    def begin(cls, folder: Path, model: Model, sampler: Any, settings: dict[str, Any]) -> Store:
        rows = model.block_rows if isinstance(model, ShardedModel) else model.n_data
        said = json.dumps(
            [
                repr(sampler),
                sorted((name, repr(value)) for name, value in settings.items()),
                list(model.names),
                rows,
            ]
        )
        key = hashlib.blake2b(said.encode(), digest_size=16).hexdigest()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(
                f"cannot make the folder {folder}: {error.strerror or error}"
            ) from error
        for path in folder.glob("part-*.npz"):
            meta, _ = read_archive(path, FORMAT)
            if meta["key"] != key:
                raise InputError(
                    f"{folder} holds parts of a run with other data or settings: give those, or another folder"
                )
        return cls(folder, key)

    def read(self, name: str) -> Part | None:
        path = self.folder / f"part-{name}.npz"
        if not path.exists():
            return None
        meta, arrays = read_archive(path, FORMAT)
        content: dict[str, Any] = {**arrays, **meta["part"]}
        return Part(**content)

    def write(self, name: str, part: Part) -> None:
        arrays = {key: getattr(part, key) for key in ("draws", "mean", "covariance", "hessian")}
        plain = {key: getattr(part, key) for key in ("rows", "settings", "findings")}
        write_archive(
            self.folder / f"part-{name}.npz",
            {"format": FORMAT, "key": self.key, "part": plain},
            arrays,
        )


def _gathered(
    client: Any, jobs: dict[int, Any], store: Store | None, prefix: str = ""
) -> list[Any]:
    """The answers in order; each is written down as soon as it is there, and not asked for again where it already is."""
    answers: dict[int, Any] = {}
    running: dict[Any, int] = {}
    for number, submit in jobs.items():
        known = None if store is None else store.read(f"{prefix}{number}")
        if known is not None:
            answers[number] = known
        else:
            running[submit()] = number
    if running:
        from distributed import as_completed

        for future in as_completed(list(running)):
            number = running[future]
            answers[number] = future.result()
            if store is not None and isinstance(answers[number], Part):
                store.write(f"{prefix}{number}", answers[number])
    return [answers[number] for number in sorted(answers)]


@contextmanager
def _scheduler_kept(client: Any, folder: Path | None) -> Iterator[None]:
    """Turns Dask's many ways of saying that the scheduler is gone into one sentence."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    address = getattr(getattr(client, "scheduler", None), "address", "unknown")
    again = (
        "give checkpoint=… to keep what is finished"
        if folder is None
        else f"what was finished is in {folder}: call sample again with the same arguments and a new client"
    )
    try:
        yield
    except OrnsteinError:
        raise
    except KilledWorker as error:
        raise ClusterError(
            f"a task of the run was lost with its worker more often than it is tried again: {error}"
        ) from error
    except (CancelledError, CommClosedError, TimeoutError, OSError) as error:
        raise ClusterError(
            f"the Dask scheduler at {address} is gone ({type(error).__name__}); {again}"
        ) from error
