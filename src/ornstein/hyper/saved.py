"""Checkpoints of `orn.em`: the climb between two blocks, written into the same kind of files as a
sampling run's.
"""

from __future__ import annotations

from pathlib import Path

from ornstein.hyper.climb import Climb
from ornstein.hyper.request import Request
from ornstein.posterior.archive import flattened, nested
from ornstein.posterior.provenance import provenance
from ornstein.sampling.checkpoint import Checkpoint
from ornstein.sampling.fingerprint import fingerprint
from ornstein.sampling.identity import identity
from ornstein.types import Array

KIND = "em"


def saving(folder: Path, every: str | float, request: Request, climb: Climb) -> Checkpoint:
    """The checkpoints of a climb that begins; the first is written at once."""
    fixed = {"kind": KIND, "fingerprint": fingerprint(climb.model) | {"options": options(request)}}
    return Checkpoint.begin(folder, every, fixed, lambda: described(request, climb))


def options(request: Request) -> dict[str, object]:
    """What was asked for, as the fingerprint holds it."""
    words, arrays = request.written()
    return {name: identity(value) for name, value in (words | arrays).items()}


def described(request: Request, climb: Climb) -> tuple[dict[str, object], dict[str, Array]]:
    """The state of a climb between two blocks, as a file holds it."""
    asked, arrays = request.written()
    words, tree = climb.state()
    meta = {"request": asked, "climb": words, "versions": provenance()}
    return meta, flattened({"request": nested(arrays), "climb": tree})
