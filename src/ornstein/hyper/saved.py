"""Checkpoints of `orn.em`: the climb between two blocks, written into the same kind of files as a
sampling run's, and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ornstein.hyper.climb import Climb
from ornstein.hyper.expected import require_climb, require_request
from ornstein.hyper.fit import EMFit
from ornstein.hyper.request import Request
from ornstein.model.model import Model
from ornstein.posterior.archive import flattened, nested
from ornstein.posterior.provenance import provenance
from ornstein.sampling.checkpoint import Checkpoint, seconds
from ornstein.sampling.fingerprint import fingerprint
from ornstein.sampling.identity import identity
from ornstein.sampling.resume import readable, require_model
from ornstein.types import Array, PyTree

KIND = "em"


def saving(folder: Path, every: str | float, request: Request, climb: Climb) -> Checkpoint:
    """The checkpoints of a climb that begins; the first is written at once."""
    fixed = {"kind": KIND, "fingerprint": fingerprint(climb.model) | {"options": _options(request)}}
    return Checkpoint.begin(folder, every, fixed, lambda: _described(request, climb))


def resumed(
    path: Path,
    every: str | float,
    meta: Mapping[str, Any],
    arrays: Mapping[str, Array],
    model: Model,
    *,
    validation: PyTree,
    draws: int | None,
    max_blocks: int | None,
    progress: bool,
) -> EMFit:
    """Go on from one file, with more blocks or draws where they are given."""
    from ornstein.hyper.em import begun, finished  # em.py writes checkpoints

    interval = seconds(every)
    with readable(path):
        require_model(path, meta["fingerprint"], model)
        tree = nested(arrays)
        request = Request.read(meta["request"], flattened(tree.get("request", {})))
        if _options(request) != meta["fingerprint"]["options"]:
            raise ValueError("the request is not that of the run")
        require_request(request, model)
        request = replace(
            request,
            draws=request.draws if draws is None else draws,
            max_blocks=request.max_blocks if max_blocks is None else max_blocks,
        )
        climb, held_out = begun(model, request, validation)
        require_climb(climb, request.chains, meta["climb"], tree["climb"])
        climb.restore(meta["climb"], tree["climb"])
    fixed = {
        "kind": KIND,
        "fingerprint": meta["fingerprint"] | {"options": _options(request)},
    }
    number = int(path.stem.split("-")[1])
    pause = Checkpoint(path.parent, interval, fixed, lambda: _described(request, climb), number)
    return finished(climb, held_out, request, progress, pause)


def _options(request: Request) -> dict[str, object]:
    """What was asked for, as the fingerprint holds it."""
    words, arrays = request.written()
    return {name: identity(value) for name, value in (words | arrays).items()}


def _described(request: Request, climb: Climb) -> tuple[dict[str, object], dict[str, Array]]:
    asked, arrays = request.written()
    words, tree = climb.state()
    meta = {"request": asked, "climb": words, "versions": provenance()}
    return meta, flattened({"request": nested(arrays), "climb": tree})
