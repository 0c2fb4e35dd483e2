"""Files without pickle: one .npz archive of plain arrays, with a JSON text among them."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ornstein.curvature import Curvature
from ornstein.dynamics import Dynamics
from ornstein.errors import FileError
from ornstein.glm import Likelihood, Predict
from ornstein.layout import Layout
from ornstein.posterior import Posterior
from ornstein.theory import Gaussian

FORMAT = "ornstein-posterior-1"
_DYNAMICS_ARRAYS = ("preconditioner", "injected", "output_map")
_DYNAMICS_VALUES = ("batch_size", "scheme", "damping", "window", "gap", "control_variates", "sampler")
_CURVATURE_ARRAYS = ("mode", "hessian", "noise", "prior_hessian")


def save_posterior(posterior: Posterior, path: Path) -> Path:
    """Write atomically: a temporary file beside it, then a rename."""
    arrays: dict[str, np.ndarray] = {"draws": posterior.draws}
    meta: dict[str, Any] = {
        "format": FORMAT,
        "names": list(posterior.names),
        "layout": {"paths": list(posterior.layout.paths), "shapes": [list(shape) for shape in posterior.layout.shapes]},
        "settings": {key: value for key, value in posterior.settings.items() if _is_plain(value)},
    }
    if posterior.moments is not None:
        arrays["moments/mean"], arrays["moments/covariance"] = posterior.moments.mean, posterior.moments.covariance
    if posterior.dynamics is not None:
        meta["dynamics"] = {name: getattr(posterior.dynamics, name) for name in _DYNAMICS_VALUES}
        meta["dynamics"]["notes"] = list(posterior.dynamics.notes)
        _put(arrays, "dynamics", posterior.dynamics, _DYNAMICS_ARRAYS)
    if posterior.curvature is not None:
        meta["curvature"] = {"n_data": int(posterior.curvature.n_data), "approximate": posterior.curvature.approximate}
        if posterior.prediction is not None and posterior.prediction.process is not None:
            arrays["spread"] = posterior.prediction.process.modes.to_theta(posterior.prediction.process.stationary)
            arrays["effective_noise"] = posterior.curvature.noise_at(arrays["spread"])
        _put(arrays, "curvature", posterior.curvature, _CURVATURE_ARRAYS)
    if isinstance(posterior.predict_function, Predict):
        meta["glm"] = vars(posterior.predict_function.likelihood)
    temporary = path.with_name(path.name + ".part")
    try:
        with open(temporary, "wb") as file:
            contents: dict[str, Any] = {"meta": np.array(json.dumps(meta)), **arrays}
            np.savez(file, **contents)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def load(path: str | Path) -> Posterior:
    """Read what `Posterior.save` wrote. Nothing in the file is executed.

    How the noise answers to a spread is a function of the data and is not saved: the loaded curvature holds the noise met along
    the chain, so that its prediction is the one of the run.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        meta = json.loads(str(arrays.pop("meta")))
        if meta["format"] != FORMAT:
            raise FileError(f"{path} has format {meta['format']!r}, this version reads {FORMAT!r}")
        return _assemble(meta, arrays)
    except FileError:
        raise
    except FileNotFoundError as error:
        raise FileError(f"there is no file {path}") from error
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        zipfile.BadZipFile,
        EOFError,
    ) as error:
        raise FileError(f"{path} is not a file saved by ornstein, or it is damaged ({type(error).__name__})") from error


def _assemble(meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Posterior:
    layout = _layout(meta["layout"])
    dynamics = curvature = prediction = predict = moments = None
    if "curvature" in meta:
        known: dict[str, Any] = {name: arrays.get(f"curvature/{name}") for name in _CURVATURE_ARRAYS}
        curvature = Curvature(names=tuple(meta["names"]), **meta["curvature"], **known)
    if "dynamics" in meta:
        notes = tuple(meta["dynamics"].pop("notes"))
        parts: dict[str, Any] = {name: arrays.get(f"dynamics/{name}") for name in _DYNAMICS_ARRAYS}
        dynamics = Dynamics(**meta["dynamics"], **parts, notes=notes)
    if curvature is not None and dynamics is not None and "effective_noise" in arrays:
        along = Curvature(
            curvature.mode,
            curvature.hessian,
            arrays["effective_noise"],
            curvature.n_data,
            approximate=curvature.approximate,
        )
        prediction = dynamics.predict(along)
    if "glm" in meta:
        predict = Predict(Likelihood(**meta["glm"]))
    if "moments/mean" in arrays:
        moments = Gaussian(arrays["moments/mean"], arrays["moments/covariance"])
    return Posterior(
        np.asarray(arrays["draws"], dtype=float),
        tuple(meta["names"]),
        layout,
        meta["settings"],
        dynamics,
        curvature,
        prediction,
        predict,
        moments,
    )


def _layout(meta: dict[str, Any]) -> Layout:
    """Nested dictionaries by the parts of each path: what a pytree of dicts was; other containers come back as dicts."""
    tree: Any = {}
    for number, path in enumerate(meta["paths"]):
        *parents, leaf = path.split(".")
        node = tree
        for name in parents:
            node = node.setdefault(name, {})
        node[leaf] = number
    if meta["paths"] == ["theta"]:
        tree = 0
    order, structure = jax.tree_util.tree_flatten(tree)
    return Layout(
        structure,
        tuple(tuple(meta["shapes"][number]) for number in order),
        tuple(meta["paths"][number] for number in order),
    )


def _put(arrays: dict[str, np.ndarray], prefix: str, source: Any, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(source, name)
        if value is not None:
            arrays[f"{prefix}/{name}"] = value


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | type(None))
