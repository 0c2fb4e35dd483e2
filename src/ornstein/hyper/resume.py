"""The way back from a checkpoint of `orn.em` to the climb."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ornstein.hyper.em import begun, finished
from ornstein.hyper.expected import require_climb, require_request
from ornstein.hyper.fit import EMFit
from ornstein.hyper.request import Request
from ornstein.hyper.saved import KIND, described, options
from ornstein.model.model import Model
from ornstein.posterior.archive import flattened, nested
from ornstein.sampling.checkpoint import Checkpoint, seconds
from ornstein.sampling.resume import readable, require_model
from ornstein.types import Array, PyTree


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
    interval = seconds(every)
    with readable(path):
        require_model(path, meta["fingerprint"], model)
        tree = nested(arrays)
        request = Request.read(meta["request"], flattened(tree.get("request", {})))
        if options(request) != meta["fingerprint"]["options"]:
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
        "fingerprint": meta["fingerprint"] | {"options": options(request)},
    }
    number = int(path.stem.split("-")[1])
    pause = Checkpoint(path.parent, interval, fixed, lambda: described(request, climb), number)
    return finished(climb, held_out, request, progress, pause)
