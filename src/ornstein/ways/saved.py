"""Checkpoints of a run whose way the library chooses: what was asked for and what has been tried,
in the folder; the state of stochastic gradients, in a folder of their own for each way.

To go on is to make the same choices again, which are a function of what was asked for: a way whose
state lies in its folder goes on from there, other ways run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ornstein.curvature.curvature import Curvature
from ornstein.errors import FileError, InputError
from ornstein.model.model import Model
from ornstein.posterior.history import Attempt, stored
from ornstein.posterior.posterior import Posterior
from ornstein.posterior.provenance import provenance
from ornstein.samplers import sampler_by_name
from ornstein.sampling.checkpoint import Checkpoint, files_in, seconds
from ornstein.sampling.fingerprint import OPTIONS, fingerprint
from ornstein.sampling.identity import identity
from ornstein.sampling.request import SampleRequest
from ornstein.sampling.resume import newest, readable, require_model, resumed_here
from ornstein.types import Array, Meta
from ornstein.ways.situation import Situation
from ornstein.ways.way import Way

KIND = "ways"
PLAIN = tuple(name for name in OPTIONS if name not in ("sampler", "curvature", "init"))
# What every way is asked for as the whole run is; thinning and width are its own.
OF_A_WAY = ("batch_size", "scheme", "chains", "warmup", "seed", "keep", "first_chain")


@dataclass(frozen=True)
class Limits:
    """How far the library may go: passes over the data, a time, and whether it goes on after a way
    that is not trusted.
    """

    budget: float | None = None
    deadline: str | float | None = None
    remedy: bool = True


@dataclass(frozen=True, eq=False)
class Folder:
    """The checkpoints of one run; `going_on` where they were there before."""

    checkpoint: Checkpoint
    going_on: bool = False

    def taken(
        self,
        way: Way,
        number: int,
        situation: Situation,
        request: SampleRequest,
        work: float,
    ) -> Posterior:
        """The way taken, from where its own checkpoint has come to, if there is one."""
        if not way.stochastic:
            return way.run(situation, replace(request, checkpoint=None), work)
        own = self.checkpoint.folder / f"way-{number}"
        if not (self.going_on and own.is_dir() and files_in(own)):
            return way.run(situation, replace(request, checkpoint=own), work)
        path, meta, arrays = newest(own)
        with readable(path):
            _require_way(path, meta["fingerprint"]["options"], way, request)
        given, draws, progress = request.curvature, int(request.draws), request.progress
        try:
            return resumed_here(
                path, request.every, meta, arrays, situation.model, None, given, draws, progress
            )
        except InputError as error:  # not of this run: another way would not be the answer
            raise FileError(str(error)) from error


def _require_way(path: Path, before: Meta, way: Way, request: SampleRequest) -> None:
    """Refuse the state of another way, or of this one under other options."""
    asked = {name: getattr(request, name) for name in OF_A_WAY}
    for name, value in {**asked, "sampler": sampler_by_name(way.name)}.items():
        if before[name] != identity(value):
            raise FileError(
                f"{path} is not of the way that this run takes next, {way.name!r}: the option"
                f" {name} differs. Begin a new run in another folder"
            )


def begun(
    model: Model, request: SampleRequest, limits: Limits, history: Sequence[Attempt]
) -> Folder | None:
    """The folder of a run that begins, written to at once; None where there is no checkpoint."""
    if request.checkpoint is None:
        return None
    fixed = {"kind": KIND, "fingerprint": fingerprint(model, request)}
    folder = Path(request.checkpoint)
    return Folder(
        Checkpoint.begin(folder, request.every, fixed, lambda: _described(request, limits, history))
    )


def asked_for(
    path: Path,
    every: str | float,
    meta: Meta,
    arrays: Mapping[str, Array],
    model: Model,
    curvature: Curvature | None,
    draws: int | None,
    history: Sequence[Attempt],
    progress: bool,
) -> tuple[SampleRequest, Limits, Folder]:
    """What a run was asked for, and its folder to go on in."""
    interval = seconds(every)
    with readable(path):
        before = meta["fingerprint"]
        require_model(path, before, model)
        if meta["given"] and curvature is None:
            raise InputError("this run was given a curvature: give curvature=…")
        plain = {name: meta["request"][name] for name in PLAIN}
        if plain != {name: before["options"][name] for name in PLAIN}:
            raise ValueError("options that are not those of the run")
        request = SampleRequest(
            curvature=curvature if meta["given"] else None,
            init=arrays.get("init"),
            checkpoint=path.parent,
            every=every,
            progress=progress,
            **plain,
        )
        limits = Limits(**meta["limits"])
    if draws is not None:
        if isinstance(draws, bool) or not isinstance(draws, int) or draws < request.draws:
            raise InputError(
                f"draws must be a whole number and at least {request.draws}, the number"
                f" first asked for; got {draws!r}"
            )
        request = replace(request, draws=draws)
    options = {**before["options"], "draws": request.draws}
    fixed = {"kind": KIND, "fingerprint": {**before, "options": options}}
    number = int(path.stem.split("-")[1])
    checkpoint = Checkpoint(
        path.parent, interval, fixed, lambda: _described(request, limits, history), number
    )
    return request, limits, Folder(checkpoint, going_on=True)


def _described(
    request: SampleRequest, limits: Limits, history: Sequence[Attempt]
) -> tuple[dict[str, object], dict[str, Array]]:
    plain = {name: _plain(getattr(request, name)) for name in PLAIN}
    meta: dict[str, object] = {
        "request": plain,
        "limits": {
            "budget": limits.budget,
            "deadline": limits.deadline,
            "remedy": bool(limits.remedy),
        },
        "given": request.curvature is not None,
        "history": stored(history),
        "versions": provenance(),
    }
    return meta, {} if request.init is None else {"init": np.asarray(request.init, dtype=float)}


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value
