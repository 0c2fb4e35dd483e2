"""Checkpoints: the whole state of a run in one file, written atomically now and then, and the way back.

A file holds position, velocity, counters, generators and minibatch source of every chain, what has been drawn, the sampler as
tuned, and a fingerprint of the data and the loss. The last two files are kept; where the newest is damaged the other serves.
Going on gives the draws of a run that was never interrupted, to the bit.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ornstein.archive import read_archive, write_archive
from ornstein.curvature import Curvature, measure
from ornstein.derivatives import Autodiff
from ornstein.errors import CheckpointWarning, FileError, InputError
from ornstein.model import Model
from ornstein.portable import NotPortableError, describe, rebuild
from ornstein.posterior import provenance
from ornstein.session import Plan, Session, finished
from ornstein.warmup import Tuned

Array = np.ndarray
FORMAT = "ornstein-checkpoint-1"
KEPT_FILES = 2
_NAME = re.compile(r"checkpoint-(\d{8})\.npz")
_UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
_CURVATURE_ARRAYS = ("mode", "hessian", "noise", "prior_hessian")


def seconds(every: str | float) -> float:
    """How often, in seconds: "90", "60s", "5m", "1.5h", or a number.

    >>> seconds("5m"), seconds(2)
    (300.0, 2.0)
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", str(every))
    unit = None if match is None else _UNITS.get(match[2])
    if match is None or unit is None or not math.isfinite(float(match[1])):
        raise InputError(
            f"every must be a time such as '30s', '5m', '1h' or a number of seconds; got {every!r}"
        )
    return float(match[1]) * unit


@dataclass
class Checkpoint:
    """The files of one run; the engine asks whether one is due and lets it be taken while the chains rest."""

    folder: Path
    interval: float
    fixed: dict[str, Any]
    describe_session: Callable[[], tuple[dict[str, Any], dict[str, Array]]]
    number: int = 0
    written: float = field(default_factory=time.monotonic)

    @classmethod
    def begin(
        cls,
        folder: Path,
        every: str | float,
        fixed: dict[str, Any],
        describe_session: Callable[[], tuple[dict[str, Any], dict[str, Array]]],
    ) -> Checkpoint:
        """A new run's first checkpoint, written at once: a folder that cannot be written to is noticed before the work."""
        interval = seconds(every)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(
                f"cannot make the folder {folder}: {error.strerror or error}"
            ) from error
        if _files(folder):
            raise FileError(
                f"{folder} holds a checkpoint already: go on with orn.resume, or choose another folder"
            )
        checkpoint = cls(folder, interval, fixed, describe_session)
        checkpoint.write()
        return checkpoint

    @classmethod
    def of_session(
        cls, folder: Path, every: str | float, session: Session, measured: bool
    ) -> Checkpoint:
        """The checkpoints of a sampling run that begins."""
        fixed = {
            "fingerprint": fingerprint(session.model, session.tuned.curvature.mode),
            "measured": measured,
        }
        return cls.begin(folder, every, fixed, lambda: _described(session))

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
        write_archive(
            self.folder / f"checkpoint-{number:08d}.npz",
            {"format": FORMAT, **self.fixed, **meta},
            arrays,
        )
        self.number = number
        self.written = time.monotonic()
        for old in _files(self.folder)[:-KEPT_FILES]:
            old.unlink(missing_ok=True)


def resume(
    folder: str | Path,
    model: Model,
    *,
    sampler: Any = None,
    curvature: Curvature | None = None,
    draws: int | None = None,
    validation: Any = None,
    max_blocks: int | None = None,
    every: str | float = "60s",
    progress: bool = True,
) -> Any:
    """Go on with the run whose checkpoints are in `folder`, to the answer it would have had without the interruption.

    Returns the Posterior of `orn.sample`, or the EMFit of `orn.em`.

    Args:
        folder: what `orn.sample(..., checkpoint=folder)` or `orn.em` was given.
        model: the same model on the same data; another one is refused.
        sampler: needed only where the sampler holds a function of yours (a schedule) or a class of yours.
        curvature: needed only where one with a `noise_response` or `hessian_product` of yours was given to `sample`.
        draws: more draws per chain than first asked for; None keeps the number.
        validation: of `em`: the held-out rows again, where there were any.
        max_blocks: of `em`: another bound than first asked for.
        every, progress: as for `sample`.
    """
    started = time.perf_counter()
    folder, interval = Path(folder), seconds(every)
    path, meta, arrays = _newest(folder)
    try:
        if meta.get("kind") == "em":
            from ornstein.hyper.saved import resumed

            options = {
                "validation": validation,
                "draws": draws,
                "max_blocks": max_blocks,
                "progress": progress,
            }
            return resumed(path, interval, meta, arrays, model, **options)
        restored = _restored(meta, arrays, model, sampler, curvature, draws)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, InputError):
            raise
        raise FileError(
            f"{path} does not fit this version of ornstein ({type(error).__name__}: {error})"
        ) from error
    fixed = {name: meta[name] for name in ("fingerprint", "measured")}
    number = int(path.stem.split("-")[1])
    pause = Checkpoint(folder, interval, fixed, lambda: _described(restored), number)
    return finished(restored, progress, pause, started)


def fingerprint(model: Model, mode: Array) -> dict[str, Any]:
    """What tells one posterior from another: a hash of all rows, and the loss at the mode for the likelihood and prior."""
    return {
        "names": list(model.names),
        "rows": model.n_data,
        "data": _hash(model),
        "loss": _loss(model, mode),
    }


def _hash(model: Model) -> str:
    digest = hashlib.blake2b(digest_size=16)
    leaves, structure = jax.tree.flatten(model.data)
    digest.update(
        repr((structure, [(str(leaf.dtype), tuple(leaf.shape)) for leaf in leaves])).encode()
    )
    row_bytes = sum(leaf.dtype.itemsize * math.prod(leaf.shape[1:]) for leaf in leaves)
    step = max(1, 2**26 // max(1, row_bytes))
    for start in range(0, model.n_data, step):
        for leaf in jax.tree.leaves(model.rows(start, min(start + step, model.n_data))):
            digest.update(np.ascontiguousarray(leaf).data)
    return digest.hexdigest()


def _loss(model: Model, mode: Array) -> float:
    derivatives = model.closed_form() or Autodiff(model)
    return float(derivatives.value_and_gradient(mode)[0] + model.scaled_prior(mode)[0])


def _files(folder: Path) -> list[Path]:
    """Checkpoints in the folder, oldest first."""
    try:
        return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    except OSError as error:
        raise FileError(
            f"cannot look into the folder {folder}: {error.strerror or error}"
        ) from error


def _newest(folder: Path) -> tuple[Path, dict[str, Any], dict[str, Array]]:
    """The newest file that can be read."""
    files = _files(folder)
    if not files:
        raise FileError(f"there is no checkpoint in {folder}")
    refused = []
    for path in reversed(files):
        try:
            meta, arrays = read_archive(path, FORMAT)
        except FileError as error:
            refused.append(str(error))
            continue
        if refused:
            warnings.warn(
                f"{refused[0]}; going on from {path.name} instead", CheckpointWarning, stacklevel=3
            )
        return path, meta, arrays
    raise FileError("; ".join(refused))


def _described(session: Session) -> tuple[dict[str, Any], dict[str, Array]]:
    curvature, dynamics = session.tuned.curvature, session.tuned.dynamics
    arrays = flattened({**session.state(), "numbers": _numbers(dynamics)})
    arrays |= {
        f"curvature/{name}": value
        for name in _CURVATURE_ARRAYS
        if (value := getattr(curvature, name)) is not None
    }
    meta = {
        "plan": asdict(session.plan),
        "curvature": {
            "n_data": int(curvature.n_data),
            "approximate": curvature.approximate,
            "names": list(curvature.names),
            "functions": [
                name
                for name in ("noise_response", "hessian_product")
                if getattr(curvature, name) is not None
            ],
        },
        "dynamics": _portable(dynamics, arrays, "dynamics"),
        "minibatches": {"batch_size": dynamics.batch_size, "scheme": dynamics.scheme},
        "sampler": _portable(session.sampler, arrays, "sampler"),
        "retunes": session.sampler is not None,
        "block_steps": session.run.block_steps,
        "versions": provenance(),
    }
    return meta, arrays


def _portable(value: Any, arrays: dict[str, Array], key: str) -> Any:
    """As JSON, or the word "given" where it holds a function and must be given again."""
    own: dict[str, Array] = {}
    try:
        description = describe(value, own, key)
    except NotPortableError:
        return "given"
    arrays.update(own)
    return description


def _restored(
    meta: dict[str, Any],
    arrays: dict[str, Array],
    model: Model,
    sampler: Any,
    curvature: Curvature | None,
    draws: int | None,
) -> Session:
    plan = _extended(Plan(**meta["plan"]), draws)
    require_same(meta["fingerprint"], model, arrays["curvature/mode"])
    local = _curvature(meta, arrays, model, curvature)
    rule = sampler if meta["sampler"] == "given" else rebuild(meta["sampler"], arrays)
    dynamics = _dynamics(meta, arrays, local, sampler)
    if meta["retunes"] and rule is None:
        raise InputError(
            "this run tunes during warm-up with a sampler that the checkpoint cannot hold: give sampler=…"
        )
    tuned = Tuned(dynamics, local, dynamics.predict(local))
    session = Session(
        model, tuned, np.zeros((plan.chains, model.dim)), plan, rule if meta["retunes"] else None
    )
    if session.run.block_steps != meta["block_steps"]:
        raise FileError(
            "the checkpoint is of a version of ornstein that draws randomness in other blocks"
        )
    session.restore(nested(arrays))
    return session


def _extended(plan: Plan, draws: int | None) -> Plan:
    if draws is None:
        return plan
    if isinstance(draws, bool) or not isinstance(draws, int | np.integer) or draws < plan.draws:
        raise InputError(
            f"draws must be a whole number and at least {plan.draws}, what was first asked for; got {draws!r}"
        )
    return replace(plan, draws=int(draws))


def require_same(before: Mapping[str, Any], model: Model, mode: Array) -> None:
    """Refuse a model whose fingerprint is not the one saved."""
    names = before["names"]
    if names != list(model.names):
        raise InputError(
            f"the checkpoint is of another model, with {len(names)} parameters ({', '.join(names[:3])}, …); this one has "
            f"{model.dim} ({', '.join(model.names[:3])}, …)"
        )
    if (before["rows"], before["data"]) != (model.n_data, _hash(model)):
        raise InputError(
            f"the data are not those of the checkpoint: it had {before['rows']} rows, these have {model.n_data}"
        )
    loss = _loss(model, mode)
    if not math.isclose(before["loss"], loss, rel_tol=1e-9, abs_tol=1e-12):
        raise InputError(
            "the likelihood, prior or hyperparameters are not those of the checkpoint: the mean loss at the mode was "
            f"{before['loss']:.10g} and is {loss:.10g}"
        )


def _curvature(
    meta: dict[str, Any], arrays: dict[str, Array], model: Model, given: Curvature | None
) -> Curvature:
    """The saved numbers; functions of the data are taken again from the model, those of the user from what is given."""
    saved: dict[str, Any] = {name: arrays.get(f"curvature/{name}") for name in _CURVATURE_ARRAYS}
    plain = meta["curvature"]
    wanted = plain["functions"]
    if wanted and meta["measured"]:
        structure = "diagonal" if saved["hessian"].ndim == 1 else "full"
        given = measure(model, structure, mode=saved["mode"])
    if wanted and given is None:
        raise InputError(
            f"the curvature of this run has a {wanted[0]} that the checkpoint cannot hold: give curvature=…"
        )
    functions: dict[str, Any] = {name: getattr(given, name) for name in wanted}
    names = tuple(plain["names"])
    return Curvature(
        n_data=plain["n_data"], approximate=plain["approximate"], names=names, **saved, **functions
    )


def _dynamics(
    meta: dict[str, Any], arrays: dict[str, Array], curvature: Curvature, sampler: Any
) -> Any:
    if meta["dynamics"] != "given":
        return rebuild(meta["dynamics"], arrays)
    if sampler is None:
        raise InputError(
            "the sampler of this run holds a function that the checkpoint cannot hold: give sampler=…"
        )
    again = (
        sampler if hasattr(sampler, "kernel") else sampler.tune(curvature, **meta["minibatches"])
    )
    if not _same_arrays(_numbers(again), nested(arrays)["numbers"]):
        raise InputError(
            "the sampler is not that of the checkpoint: its step, noise or schedule differ"
        )
    return again


def _numbers(dynamics: Any) -> dict[str, Array]:
    """What tells one Dynamics from another where it cannot be written down: its arrays and a few values of its schedule."""
    steps = np.array([0.0, 1.0, 10.0, 1e3, 1e5, 1e7])
    return dynamics.arrays() | (
        {} if dynamics.schedule is None else {"schedule": np.asarray(dynamics.schedule(steps))}
    )


def _same_arrays(some: Mapping[str, Array], others: Mapping[str, Array]) -> bool:
    return some.keys() == others.keys() and all(
        np.allclose(some[name], others[name], rtol=1e-9, atol=0.0) for name in some
    )


def flattened(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Array]:
    """A tree of arrays as one dictionary with paths for names.

    >>> sorted(flattened({"a": {"b": np.zeros(1)}, "c": np.zeros(1)}))
    ['a/b', 'c']
    """
    flat: dict[str, Array] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{name}/")
        else:
            flat[f"{prefix}{name}"] = np.asarray(value)
    return flat


def nested(flat: Mapping[str, Array]) -> dict[str, Any]:
    """The tree that `flattened` was given."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, leaf = path.split("/")
        node = tree
        for name in parents:
            node = node.setdefault(name, {})
        node[leaf] = value
    return tree
