"""Checkpoints of `orn.em`: the climb between two blocks, written into the same kind of files as a sampling run's, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ornstein.checkpoint import Checkpoint, fingerprint, flattened, nested, require_same
from ornstein.hyper.climb import Climb
from ornstein.hyper.fit import EMFit
from ornstein.hyper.request import Request
from ornstein.model import Model
from ornstein.posterior import provenance

Array = np.ndarray
KIND = "em"


def saving(folder: Path, every: str | float, request: Request, climb: Climb) -> Checkpoint:
    """The checkpoints of a climb that begins; the first is written at once."""
    fixed = {"kind": KIND, "fingerprint": fingerprint(climb.model, climb.model.init)}
    return Checkpoint.begin(folder, every, fixed, lambda: _described(request, climb))


def resumed(
    path: Path,
    interval: float,
    meta: Mapping[str, Any],
    arrays: Mapping[str, Array],
    model: Model,
    *,
    validation: Any,
    draws: int | None,
    max_blocks: int | None,
    progress: bool,
) -> EMFit:
    """Go on from one file, with more blocks or draws where they are given."""
    from ornstein.hyper.em import begun, finished  # em.py writes checkpoints

    require_same(meta["fingerprint"], model, model.init)
    tree = nested(arrays)
    request = Request.read(meta["request"], flattened(tree.get("request", {})))
    request = replace(
        request,
        draws=request.draws if draws is None else draws,
        max_blocks=request.max_blocks if max_blocks is None else max_blocks,
    )
    climb, held_out = begun(model, request, validation)
    climb.restore(meta["climb"], tree["climb"])
    fixed = {name: meta[name] for name in ("kind", "fingerprint")}
    pause = Checkpoint(
        path.parent,
        interval,
        fixed,
        lambda: _described(request, climb),
        int(path.stem.split("-")[1]),
    )
    return finished(climb, held_out, request, progress, pause)


def _described(request: Request, climb: Climb) -> tuple[dict[str, Any], dict[str, Array]]:
    asked, arrays = request.written()
    words, tree = climb.state()
    meta = {"request": asked, "climb": words, "versions": provenance()}
    return meta, flattened({"request": nested(arrays), "climb": tree})
