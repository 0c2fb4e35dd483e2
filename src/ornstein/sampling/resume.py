"""The way back from a checkpoint to the run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ornstein.compute.one_thread import one_thread
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.leverage import by_leverage
from ornstein.curvature.measure import measure
from ornstein.curvature.strata import by_strata
from ornstein.dynamics.dynamics import Dynamics, Sampler
from ornstein.errors import CheckpointWarning, FileError, InputError, OrnsteinError
from ornstein.model.model import Model
from ornstein.posterior.archive import nested
from ornstein.posterior.portable import rebuild
from ornstein.posterior.posterior import Posterior
from ornstein.posterior.working import in_working_coordinates
from ornstein.sampling.checkpoint import (
    CURVATURE_ARRAYS,
    FORMAT,
    FUNCTIONS,
    Checkpoint,
    described,
    files_in,
    numbers_of,
    read_sealed,
    seconds,
)
from ornstein.sampling.expected import checked_plan, require_dynamics, require_state
from ornstein.sampling.fingerprint import fingerprint, require_same, require_version
from ornstein.sampling.identity import identity
from ornstein.sampling.plan import Schedule, require_stable
from ornstein.sampling.run import finished
from ornstein.sampling.session import Session
from ornstein.sampling.warmup import Tuned
from ornstein.types import Array, Meta


@one_thread()
def resumed_here(
    path: Path,
    every: str | float,
    meta: Meta,
    arrays: dict[str, Array],
    model: Model,
    sampler: Sampler | Dynamics | None,
    curvature: Curvature | None,
    draws: int | None,
    progress: bool,
) -> Posterior:
    """Go on with a sampling run from the contents of one checkpoint."""

    def run(worked: Model, known: Curvature | None, init: Array | None) -> Posterior:
        return _resumed(path, every, meta, arrays, worked, sampler, known, draws, progress)

    if isinstance(sampler, Dynamics):
        return run(model, curvature, None)
    return in_working_coordinates(model, curvature, None, run)


def _resumed(
    path: Path,
    every: str | float,
    meta: Meta,
    arrays: dict[str, Array],
    model: Model,
    sampler: Sampler | Dynamics | None,
    curvature: Curvature | None,
    draws: int | None,
    progress: bool,
) -> Posterior:
    started, interval = time.perf_counter(), seconds(every)
    with readable(path):
        session = _restored(path, meta, arrays, model, sampler, curvature, draws)
    fixed = {
        "fingerprint": _with_draws(meta["fingerprint"], session.plan),
        "measured": meta["measured"],
    }
    number = int(path.stem.split("-")[1])
    pause = Checkpoint(path.parent, interval, fixed, lambda: described(session), number)
    return finished(session, progress, pause, started)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turns whatever the code stumbles over in the contents of a file into an error of the file."""
    try:
        yield
    except OrnsteinError:
        raise
    # A forged file may hold any nonsense; whatever stumbles over it, the reason is the file.
    except Exception as error:
        said = str(error).partition("\n")[0]
        raise FileError(
            f"{path} is not a checkpoint of this run, or it is damaged"
            f" ({type(error).__name__}: {said})"
        ) from error


def require_model(path: Path, before: Meta, model: Model) -> None:
    """Refuse a model that is not the one of the checkpoint."""
    require_version(before, str(path))
    way = "Give its model and data again, or begin a new run in another folder"
    require_same(before, fingerprint(model), f"the checkpoint {path}", way)


def newest(folder: Path) -> tuple[Path, Meta, dict[str, Array]]:
    """The newest file that can be read."""
    files = files_in(folder)
    if not files:
        raise FileError(f"there is no checkpoint in {folder}")
    refused = []
    for path in reversed(files):
        try:
            meta, arrays = read_sealed(path, FORMAT)
        except FileError as error:
            refused.append(str(error))
            continue
        if refused:
            warnings.warn(
                f"{refused[0]}; continuing from {path.name} instead",
                CheckpointWarning,
                stacklevel=3,
            )
        return path, meta, arrays
    raise FileError("; ".join(refused))


def _restored(
    path: Path,
    meta: Meta,
    arrays: dict[str, Array],
    model: Model,
    sampler: Sampler | Dynamics | None,
    curvature: Curvature | None,
    draws: int | None,
) -> Session:
    require_model(path, meta["fingerprint"], model)
    state = nested(arrays)
    asked = meta["fingerprint"]["options"]
    _require_same_sampler(meta, sampler)
    plan = _extended(checked_plan(meta["plan"], state["chains"], asked), draws)
    local = _curvature(meta, arrays, model, curvature)
    rule: Any = sampler if meta["sampler"] == "given" else rebuild(meta["sampler"], arrays)
    dynamics = _dynamics(meta, arrays, local, sampler)
    require_dynamics(dynamics, local, model, plan)
    if meta["retunes"] and rule is None:
        raise InputError(
            "this run tunes during warm-up with a sampler that the checkpoint cannot hold: give"
            " sampler=…"
        )
    if rule is not None and not isinstance(rule, Sampler):
        raise FileError(f"{path} holds a {type(rule).__name__} in place of a sampler")
    tuned = Tuned(dynamics, local, dynamics.predict(local))
    require_stable(dynamics, tuned.prediction)
    session = Session(
        model, tuned, np.zeros((plan.chains, model.dim)), plan, rule if meta["retunes"] else None
    )
    if session.run.block_steps != meta["block_steps"]:
        raise FileError(
            "the checkpoint is of a version of ornstein that draws randomness in other blocks"
        )
    require_state(session, state)
    session.restore(state)
    return session


def _require_same_sampler(meta: Meta, sampler: Sampler | Dynamics | None) -> None:
    """Refuse another sampler than the run's, where the checkpoint holds that one."""
    held = "given" not in (meta["sampler"], meta["dynamics"])
    if sampler is None or not held:
        return
    if identity(sampler) != meta["fingerprint"]["options"]["sampler"]:
        raise InputError(
            "the sampler is not that of the checkpoint, which holds its own: leave sampler out"
        )


def _with_draws(before: Meta, plan: Schedule) -> dict[str, object]:
    """The fingerprint of a run that has been asked for as many draws as the plan now has."""
    options = before["options"]
    most = max(options["max_steps"], plan.draws * plan.chains * plan.thin)
    return {**before, "options": {**options, "draws": plan.draws, "max_steps": most}}


def _extended(plan: Schedule, draws: int | None) -> Schedule:
    if draws is None:
        return plan
    if isinstance(draws, bool) or not isinstance(draws, int | np.integer) or draws < plan.draws:
        raise InputError(
            f"draws must be a whole number and at least {plan.draws}, the number first asked"
            " for; got"
            f" {draws!r}"
        )
    return replace(plan, draws=int(draws))


def _curvature(
    meta: Meta, arrays: dict[str, Array], model: Model, given: Curvature | None
) -> Curvature:
    """The saved numbers; functions of the data are taken again from the model, those of the user
    from what is given.
    """
    saved: dict[str, Any] = {name: arrays.get(f"curvature/{name}") for name in CURVATURE_ARRAYS}
    plain = meta["curvature"]
    wanted = plain["functions"]
    if saved["mode"].shape != (model.dim,) or plain["n_data"] != model.n_data:
        raise ValueError(
            f"a curvature of {saved['mode'].size} parameters on {plain['n_data']} rows"
        )
    if not set(wanted) <= set(FUNCTIONS) or len(plain["names"]) != model.dim:
        raise ValueError(f"a curvature with {len(plain['names'])} names and functions {wanted}")
    if wanted and meta["measured"]:
        structure = "diagonal" if saved["hessian"].ndim == 1 else "full"
        given = measure(model, structure, mode=saved["mode"])
        if saved["strata"] is not None:
            given = by_strata(model, given, saved["strata"])
        elif saved["probabilities"] is not None:
            given = by_leverage(model, given, saved["probabilities"])
    if wanted and given is None:
        raise InputError(
            f"the curvature of this run has a {wanted[0]} that the checkpoint cannot hold: give"
            " curvature=…"
        )
    functions: dict[str, Any] = {name: getattr(given, name) for name in wanted}
    names = tuple(plain["names"])
    return Curvature(
        n_data=plain["n_data"], approximate=plain["approximate"], names=names, **saved, **functions
    )


def _dynamics(
    meta: Meta,
    arrays: dict[str, Array],
    curvature: Curvature,
    sampler: Sampler | Dynamics | None,
) -> Dynamics:
    if meta["dynamics"] != "given":
        return rebuild(meta["dynamics"], arrays)
    if sampler is None:
        raise InputError(
            "the sampler of this run holds a function that the checkpoint cannot hold: give"
            " sampler=…"
        )
    again = (
        sampler if isinstance(sampler, Dynamics) else sampler.tune(curvature, **meta["minibatches"])
    )
    if not _same_arrays(numbers_of(again), nested(arrays)["numbers"]):
        raise InputError(
            "the sampler is not that of the checkpoint: its step, noise or schedule differ"
        )
    return again


def _same_arrays(some: Mapping[str, Array], others: Mapping[str, Array]) -> bool:
    return some.keys() == others.keys() and all(
        np.allclose(some[name], others[name], rtol=1e-9, atol=0.0) for name in some
    )
