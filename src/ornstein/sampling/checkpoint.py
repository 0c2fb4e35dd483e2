"""Checkpoints: the whole state of a run in one file, written atomically now and then, and the way
back.

A file holds position, velocity, counters, generators and minibatch source of every chain, what has
been drawn, the sampler as tuned, and a fingerprint of the data and the loss. The last two files are
kept; where the newest is damaged the other serves. Going on gives the draws of a run that was never
interrupted, to the bit.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from ornstein.dynamics.dynamics import Dynamics
from ornstein.errors import CheckpointWarning, FileError, InputError
from ornstein.posterior.archive import flattened, read_archive, write_archive
from ornstein.posterior.portable import NotPortableError, describe
from ornstein.posterior.provenance import provenance
from ornstein.sampling.fingerprint import fingerprint
from ornstein.sampling.request import SampleRequest
from ornstein.sampling.session import Session
from ornstein.types import Array, Meta

FORMAT = "ornstein-checkpoint-1"
KEPT_FILES = 2
PART = "part-"  # how files of finished parts begin, which a run on a cluster keeps
_NAME = re.compile(r"checkpoint-(\d{8})\.npz")
_UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
CURVATURE_ARRAYS = ("mode", "hessian", "noise", "prior_hessian", "probabilities", "strata")
FUNCTIONS = ("noise_response", "hessian_product")  # of a curvature


def seconds(every: str | float, what: str = "every") -> float:
    """A time in seconds: "90", "60s", "5m", "1.5h", or a number.

    >>> seconds("5m"), seconds(2)
    (300.0, 2.0)
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", str(every))
    unit = None if match is None else _UNITS.get(match[2])
    if match is None or unit is None or not math.isfinite(float(match[1])):
        raise InputError(
            f"{what} must be a time such as '30s', '5m', '1h' or a number of seconds; got {every!r}"
        )
    return float(match[1]) * unit


def make_folder(folder: Path) -> None:
    """Make a folder for the files of a run, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make the folder {folder}: {error.strerror or error}") from error


@dataclass
class Checkpoint:
    """The files of one run; the engine asks whether one is due and lets it be taken while the
    chains rest.
    """

    folder: Path
    interval: float
    fixed: Mapping[str, object]
    describe_session: Callable[[], tuple[dict[str, object], dict[str, Array]]]
    number: int = 0
    written: float = field(default_factory=time.monotonic)

    @classmethod
    def begin(
        cls,
        folder: Path,
        every: str | float,
        fixed: Mapping[str, object],
        describe_session: Callable[[], tuple[dict[str, object], dict[str, Array]]],
    ) -> Checkpoint:
        """A new run's first checkpoint, written at once: a folder that cannot be written to is
        noticed before the work.
        """
        interval = seconds(every)
        make_folder(folder)
        if files_in(folder):
            raise FileError(
                f"{folder} already holds a checkpoint: continue with orn.resume, or choose another"
                " folder"
            )
        if any(folder.glob(f"{PART}*.npz")):
            raise FileError(
                f"{folder} holds finished parts of a run on a cluster: go on there, or choose"
                " another folder"
            )
        checkpoint = cls(folder, interval, fixed, describe_session)
        checkpoint.write()
        return checkpoint

    @classmethod
    def of_session(
        cls, folder: Path, request: SampleRequest, session: Session, measured: bool
    ) -> Checkpoint:
        """The checkpoints of a sampling run that begins."""
        fixed = {"fingerprint": fingerprint(session.model, request), "measured": measured}
        return cls.begin(folder, request.every, fixed, lambda: described(session))

    def due(self) -> bool:
        return time.monotonic() - self.written >= self.interval

    def take(self) -> None:
        """Write; a failure is a warning, because the run in memory is worth more than its copy."""
        try:
            self.write()
        except FileError as error:
            self.written = time.monotonic()
            warnings.warn(
                f"no checkpoint was written and the run goes on; the one before is intact: {error}",
                CheckpointWarning,
                stacklevel=2,
            )

    def write(self) -> None:
        """Write the state beside the earlier files, then drop all but the newest two."""
        meta, arrays = self.describe_session()
        number = self.number + 1
        path = self.folder / f"checkpoint-{number:08d}.npz"
        write_sealed(path, {"format": FORMAT, **self.fixed, **meta}, arrays)
        self.number = number
        self.written = time.monotonic()
        for old in files_in(self.folder)[:-KEPT_FILES]:
            old.unlink(missing_ok=True)


def write_sealed(path: Path, meta: Mapping[str, object], arrays: Mapping[str, Array]) -> None:
    """Write an archive that names a hash of all that is in it."""
    write_archive(path, {**meta, "seal": _seal(meta, arrays)}, arrays)


def read_sealed(path: Path, format_name: str) -> tuple[Meta, dict[str, Array]]:
    """What `write_sealed` was given; a file whose content is not what its hash says is refused."""
    meta, arrays = read_archive(path, format_name)
    if meta.pop("seal", None) != _seal(meta, arrays):
        raise FileError(f"{path} is damaged: its content has changed since it was written")
    return meta, arrays


def _seal(meta: Mapping[str, object], arrays: Mapping[str, Array]) -> str:
    digest = hashlib.blake2b(json.dumps(meta, sort_keys=True).encode(), digest_size=16)
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def files_in(folder: Path) -> list[Path]:
    """Checkpoints in the folder, oldest first."""
    try:
        found = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
        return [path for path in found if path.is_file()]
    except OSError as error:
        raise FileError(f"cannot read the folder {folder}: {error.strerror or error}") from error


def described(session: Session) -> tuple[dict[str, object], dict[str, Array]]:
    """What a checkpoint of a sampling run holds: a text and arrays."""
    curvature, dynamics = session.tuned.curvature, session.tuned.dynamics
    arrays = flattened({**session.state(), "numbers": numbers_of(dynamics)})
    arrays |= {
        f"curvature/{name}": value
        for name in CURVATURE_ARRAYS
        if (value := getattr(curvature, name)) is not None
    }
    meta = {
        "plan": asdict(session.plan),
        "curvature": {
            "n_data": int(curvature.n_data),
            "approximate": curvature.approximate,
            "names": list(curvature.names),
            "functions": [name for name in FUNCTIONS if getattr(curvature, name) is not None],
        },
        "dynamics": _portable(dynamics, arrays, "dynamics"),
        "minibatches": {"batch_size": dynamics.batch_size, "scheme": dynamics.scheme},
        "sampler": _portable(session.sampler, arrays, "sampler"),
        "retunes": session.sampler is not None,
        "block_steps": session.run.block_steps,
        "versions": provenance(),
    }
    return meta, arrays


def _portable(value: object, arrays: dict[str, Array], key: str) -> object:
    """As JSON, or the word "given" where it holds a function and must be given again."""
    own: dict[str, Array] = {}
    try:
        description = describe(value, own, key)
    except NotPortableError:
        return "given"
    arrays.update(own)
    return description


def numbers_of(dynamics: Dynamics) -> dict[str, Array]:
    """What tells one Dynamics from another where it cannot be written down: its arrays and a few
    values of its schedule.
    """
    steps = np.array([0.0, 1.0, 10.0, 1e3, 1e5, 1e7])
    return dynamics.arrays() | (
        {} if dynamics.schedule is None else {"schedule": np.asarray(dynamics.schedule(steps))}
    )
