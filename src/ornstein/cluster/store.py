"""Finished parts of a cluster run, kept in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ornstein.errors import FileError
from ornstein.sampling.checkpoint import PART, files_in, make_folder, read_sealed, write_sealed
from ornstein.sampling.fingerprint import require_same, require_version
from ornstein.types import Array, Meta

FORMAT = "ornstein-cluster-1"
ARRAYS = ("draws", "mean", "covariance", "hessian")


@dataclass(frozen=True)
class Part:
    """What comes back from one worker: a chain, or the chains of a shard, with the shard's
    curvature and verdict.
    """

    draws: Array
    mean: Array
    covariance: Array
    hessian: Array
    rows: int
    settings: dict[str, Any]
    findings: list[dict[str, Any]]


@dataclass
class Store:
    """Finished parts of a cluster run in a folder, so that a run whose scheduler was lost need not
    begin again.
    """

    folder: Path
    fingerprint: Meta

    @classmethod
    def begin(cls, folder: Path, fingerprint: Meta) -> Store:
        """The folder of the run with this fingerprint; parts of another run are refused."""
        make_folder(folder)
        if files_in(folder):
            raise FileError(
                f"{folder} holds a checkpoint of a run without a cluster: continue with"
                " orn.resume, or"
                " choose another folder"
            )
        store = cls(folder, fingerprint)
        for path in sorted(folder.glob(f"{PART}*.npz")):
            store._contents(path)
        return store

    def read(self, name: str) -> Part | None:
        """The part with this name, None where it is not finished."""
        path = self.folder / f"{PART}{name}.npz"
        if not path.exists():
            return None
        meta, arrays = self._contents(path)
        try:
            content: dict[str, Any] = {**arrays, **meta["part"]}
            part = Part(**content)
            _require_part(part, len(self.fingerprint["names"]))
        # A forged file may hold any nonsense; whatever stumbles over it, the reason is the file.
        except Exception as error:
            said = str(error).partition("\n")[0]
            raise FileError(
                f"{path} is not a part of this run, or it is damaged"
                f" ({type(error).__name__}: {said}): remove it, and the part is computed again"
            ) from error
        return part

    def _contents(self, path: Path) -> tuple[Meta, dict[str, Array]]:
        meta, arrays = read_sealed(path, FORMAT)
        before = meta.get("fingerprint", {})
        require_version(before, str(path))
        way = "Give its data, model and options again, or choose another folder"
        require_same(before, self.fingerprint, f"what is kept in {self.folder}", way)
        return meta, arrays

    def write(self, name: str, part: Part) -> None:
        """Keep a finished part."""
        arrays = {key: getattr(part, key) for key in ARRAYS}
        plain = {key: getattr(part, key) for key in ("rows", "settings", "findings")}
        write_sealed(
            self.folder / f"{PART}{name}.npz",
            {"format": FORMAT, "fingerprint": self.fingerprint, "part": plain},
            arrays,
        )


def _require_part(part: Part, dimension: int) -> None:
    """Refuse shapes and types that no part of a model with this number of parameters has."""
    matrices = {(dimension,), (dimension, dimension)}
    if part.draws.ndim != 3 or part.draws.shape[2] != dimension or part.draws.size == 0:
        raise ValueError(f"draws of shape {part.draws.shape} for {dimension} parameters")
    if (
        part.mean.shape != (dimension,)
        or not {part.covariance.shape, part.hessian.shape} <= matrices
    ):
        raise ValueError(f"a mean of shape {part.mean.shape} for {dimension} parameters")
    if not all(
        array.dtype == float and np.all(np.isfinite(array))
        for array in (getattr(part, name) for name in ARRAYS)
    ):
        raise ValueError("numbers that are not finite")
    if not isinstance(part.rows, int) or part.rows < 1 or not isinstance(part.settings, dict):
        raise ValueError(f"{part.rows!r} rows")
    for name in ("steps", "states", "batch_size"):
        if not isinstance(part.settings[name], int):
            raise ValueError(f"{name}={part.settings[name]!r}")
    for finding in part.findings:
        if not isinstance(finding["name"], str) or not isinstance(finding["level"], str):
            raise ValueError("a finding without a name")
