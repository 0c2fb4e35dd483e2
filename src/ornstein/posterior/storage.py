"""Files without pickle: one .npz archive of plain arrays, with a JSON text among them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ornstein.curvature.curvature import Curvature
from ornstein.dynamics.dynamics import Dynamics
from ornstein.dynamics.prediction import Prediction
from ornstein.errors import FileError
from ornstein.model.coordinates import Coordinates
from ornstein.model.families.likelihood import Likelihood, Predict
from ornstein.model.mixed.predict import MixedPredict
from ornstein.model.parameters import Layout
from ornstein.model.tables import numbered
from ornstein.posterior.archive import read_archive, write_archive
from ornstein.posterior.history import restored, stored
from ornstein.posterior.last_layer import Calibration, LastLayerPosterior
from ornstein.posterior.portable import NotPortableError, describe, rebuild
from ornstein.posterior.posterior import Posterior
from ornstein.posterior.working import original
from ornstein.regression.mixed import MixedTablePredict
from ornstein.regression.regress import TablePredict
from ornstein.regression.spec import Spec
from ornstein.theory import Gaussian
from ornstein.types import Meta, PyTree

FORMAT = "ornstein-posterior-1"
MAPS = ("to_original", "to_working")  # of the coordinates of a run
_CURVATURE_ARRAYS = ("mode", "hessian", "noise", "prior_hessian")
# Settings that are computed with.
COUNTED = ("thin", "steps", "states", "passes", "batch_size", "moment_spacing", "effective_draws")


def save_posterior(posterior: Posterior, path: Path) -> Path:
    """Write atomically, numbers and JSON only."""
    arrays: dict[str, np.ndarray] = {}
    network = _network(posterior, arrays)
    if posterior.ran is not None and posterior.coordinates is not None:
        arrays.update(
            {f"coordinates/{name}": getattr(posterior.coordinates, name) for name in MAPS}
        )
        posterior = replace(posterior.ran, constrained=posterior.constrained)
    arrays["draws"] = posterior.draws
    meta: dict[str, object] = {
        "format": FORMAT,
        "names": list(posterior.names),
        "layout": {
            "paths": list(posterior.layout.paths),
            "shapes": [list(shape) for shape in posterior.layout.shapes],
            "bare": jax.tree_util.treedef_is_leaf(posterior.layout.tree),
        },
        "settings": {key: value for key, value in posterior.settings.items() if _is_plain(value)},
    }
    if network:
        meta["last_layer"] = network
    if posterior.history:
        meta["history"] = stored(posterior.history)
    if posterior.moments is not None:
        arrays["moments/mean"], arrays["moments/covariance"] = (
            posterior.moments.mean,
            posterior.moments.covariance,
        )
    if posterior.dynamics is not None:
        meta["dynamics"] = _dynamics(posterior.dynamics, arrays)
    if posterior.curvature is not None:
        meta["curvature"] = _curvature(posterior, posterior.curvature, arrays)
    arrays.update(
        {f"constrained/{name}": values for name, values in (posterior.constrained or {}).items()}
    )
    write_archive(path, meta | _predict(posterior.predict_function), arrays)
    return path


def _curvature(
    posterior: Posterior, curvature: Curvature, arrays: dict[str, np.ndarray]
) -> dict[str, object]:
    """Numbers of the curvature, with the noise met along the chain where that was predicted."""
    if posterior.prediction is not None and posterior.prediction.process is not None:
        process = posterior.prediction.process
        arrays["spread"] = process.modes.to_theta(process.stationary)
        met = curvature.noise_at(arrays["spread"])
        controlled = _controlled(posterior.dynamics)
        arrays["effective_noise"] = met - curvature.noise if controlled else met
    for name in _CURVATURE_ARRAYS:
        if (value := getattr(curvature, name)) is not None:
            arrays[f"curvature/{name}"] = value
    return {"n_data": int(curvature.n_data), "approximate": curvature.approximate}


def _predict(function: object) -> dict[str, object]:
    """What new rows are predicted with; `_predicting` reads it."""
    meta: dict[str, object] = {}
    if isinstance(function, Predict):
        meta["glm"] = vars(function.likelihood)
        meta["columns"] = list(function.columns)
        meta["offset"] = function.offset
    if isinstance(function, MixedPredict):
        meta["mixed"] = function.to_json()
    if isinstance(function, TablePredict | MixedTablePredict):
        meta["table"] = function.spec.to_json()
    if isinstance(function, MixedTablePredict):
        meta["groups"] = function.table_json()
    return meta


def load(path: str | Path) -> Posterior:
    """Read what `Posterior.save` wrote. Nothing in the file is executed.

    How the noise depends on θ is a function of the data and is not saved: the loaded
    curvature holds the noise met along the chain, so that its prediction is the one of the run.
    """
    meta, arrays = read_archive(path, FORMAT)
    try:
        found = _require_consistent(_assemble(meta, arrays))
        return _with_network(found, meta, arrays) if "last_layer" in meta else found
    # A forged file may hold any nonsense; whatever stumbles over it, the reason is the file.
    except Exception as error:
        raise FileError(
            f"{path} is not a file saved by ornstein, or it is damaged ({type(error).__name__}:"
            f" {error})"
        ) from error


def _network(posterior: Posterior, arrays: dict[str, np.ndarray]) -> dict[str, object]:
    """What is known of the network of a last layer; the network itself stays behind."""
    if not isinstance(posterior, LastLayerPosterior):
        return {}
    for name in ("weights", "biases"):
        if (value := getattr(posterior, name)) is not None:
            arrays[f"last_layer/{name}"] = value
    return {
        "temperature": posterior.temperature,
        "calibration": posterior.calibration.to_json(),
        "framework": posterior.framework,
        "layer": posterior.layer,
    }


def _with_network(
    posterior: Posterior, meta: dict[str, Any], arrays: dict[str, np.ndarray]
) -> LastLayerPosterior:
    known = meta["last_layer"]
    temperature = float(known["temperature"])
    if not 0.0 < temperature < np.inf:
        raise ValueError(f"a temperature of {temperature}")
    return LastLayerPosterior.of(
        posterior,
        temperature=temperature,
        calibration=Calibration.from_json(known["calibration"]),
        framework=str(known["framework"]),
        layer=str(known["layer"]),
        weights=arrays.get("last_layer/weights"),
        biases=arrays.get("last_layer/biases"),
    )


def _require_consistent(posterior: Posterior) -> Posterior:
    size = posterior.layout.dimension
    if (
        posterior.draws.ndim != 3
        or posterior.draws.shape[2] != size
        or len(posterior.names) != size
    ):
        raise ValueError(
            f"{len(posterior.names)} names and draws of shape {posterior.draws.shape} for {size}"
            " parameters"
        )
    if not np.all(np.isfinite(posterior.draws)) or not isinstance(posterior.settings, dict):
        raise ValueError("draws that are not finite, or settings that are not a table")
    for name in COUNTED:
        if isinstance(posterior.settings.get(name), dict | list | str):
            raise ValueError(f"{name!r} is not a number")
    if posterior.dynamics is not None and "thin" not in posterior.settings:
        raise ValueError("a chain without its thinning")
    if not all(isinstance(name, str) for name in posterior.names):
        raise ValueError("names that are no text")
    for name, values in (posterior.constrained or {}).items():
        if values.shape[:2] != posterior.draws.shape[:2] or values.dtype.kind not in "biuf":
            raise ValueError(f"{name!r} of shape {values.shape} beside the draws")
    return posterior


def _assemble(meta: Meta, arrays: dict[str, np.ndarray]) -> Posterior:
    layout = _layout(meta["layout"])
    dynamics = curvature = prediction = moments = None
    if "curvature" in meta:
        known: dict[str, Any] = {
            name: arrays.get(f"curvature/{name}") for name in _CURVATURE_ARRAYS
        }
        curvature = Curvature(names=tuple(meta["names"]), **meta["curvature"], **known)
    if "dynamics" in meta:
        dynamics = rebuild(meta["dynamics"], arrays)
    if curvature is not None and dynamics is not None and "effective_noise" in arrays:
        prediction = _predicted(dynamics, curvature, arrays["effective_noise"])
    if "moments/mean" in arrays:
        moments = Gaussian(arrays["moments/mean"], arrays["moments/covariance"])
    found = Posterior(
        np.asarray(arrays["draws"], dtype=float),
        tuple(meta["names"]),
        layout,
        meta["settings"],
        dynamics,
        curvature,
        prediction,
        _predicting(meta, layout),
        moments,
        {
            name.removeprefix("constrained/"): arrays[name]
            for name in arrays
            if name.startswith("constrained/")
        }
        or None,
        history=restored(meta.get("history", [])),
    )
    if "coordinates/to_original" not in arrays:
        return found
    coordinates = Coordinates(*(_square(arrays[f"coordinates/{name}"], layout) for name in MAPS))
    return replace(original(found, coordinates), constrained=found.constrained)


def _predicted(dynamics: Dynamics, curvature: Curvature, met: np.ndarray) -> Prediction:
    """What was predicted of the run, from the noise that it met."""
    along = replace(curvature, noise=met)
    controlled = _controlled(dynamics)
    return (replace(dynamics, control_variates=False) if controlled else dynamics).predict(along)


def _predicting(meta: Meta, layout: Layout) -> Predict | MixedPredict | None:
    """What `_predict` wrote."""
    if "mixed" in meta:
        mixed = MixedPredict.from_json(meta["mixed"], layout)
        if "groups" not in meta:
            return mixed
        return MixedTablePredict.of_table(mixed, Spec.from_json(meta["table"]), meta["groups"])
    if "glm" not in meta:
        return None
    offset = meta.get("offset") is True  # files of 0.1 do not say
    predict = Predict(Likelihood(**meta["glm"]), _columns(meta, layout), offset=offset)
    if "table" not in meta:
        return predict
    spec = _matching(Spec.from_json(meta["table"]), layout)
    return TablePredict.of(predict.likelihood, spec)


def _square(matrix: np.ndarray, layout: Layout) -> np.ndarray:
    size = layout.dimension
    if matrix.shape != (size, size) or matrix.dtype != np.float64:
        raise ValueError(f"coordinates of shape {matrix.shape} for {size} parameters")
    return matrix


def _matching(spec: Spec, layout: Layout) -> Spec:
    (width, *_) = layout.shapes[layout.paths.index("coef")]
    if not len(spec.feature_names) == len(spec.means) == len(spec.scales) == width:
        raise ValueError(f"a table of {len(spec.feature_names)} features for {width} columns")
    return spec


def _columns(meta: Meta, layout: Layout) -> tuple[str, ...]:
    """The names of a regression's columns, () where it was made from an array.

    Files of 0.1 do not list them, but name the coefficients after them.
    """
    shape = layout.shapes[layout.paths.index("coef")]
    if "columns" in meta:
        found = meta["columns"]
        if not all(isinstance(name, str) for name in found) or len(found) not in (0, shape[0]):
            raise ValueError(f"{len(found)} names for {shape[0]} columns")
        return tuple(found)
    named = tuple(meta["names"][: shape[0]])
    return () if len(shape) > 1 or named == numbered(shape[0]) else named


def _layout(meta: Meta) -> Layout:
    """Nested dictionaries by the parts of each path: what a pytree of dicts was; other containers
    come back as dicts.

    JAX sorts the keys of a dict. Where the leaves were in another order (a list of eleven, a named
    tuple), dictionaries that keep their order stand in, so that every leaf gets its own numbers
    back.
    """
    order, structure = jax.tree_util.tree_flatten(
        0 if meta["bare"] else _nested(meta["paths"], dict)
    )
    if order != sorted(order):
        structure = jax.tree_util.tree_structure(_nested(meta["paths"], OrderedDict))
    return Layout(structure, tuple(tuple(shape) for shape in meta["shapes"]), tuple(meta["paths"]))


def _nested(paths: list[str], kind: type) -> PyTree:
    """The number of every leaf at its place."""
    tree = kind()
    for number, path in enumerate(paths):
        *parents, leaf = path.split(".")
        node = tree
        for name in parents:
            node = node.setdefault(name, kind())
        node[leaf] = number
    return tree


def _dynamics(dynamics: Dynamics, arrays: dict[str, np.ndarray]) -> object:
    """As it is; a schedule that is a function of the user's stays behind."""
    try:
        return describe(dynamics, arrays, "dynamics")
    except NotPortableError:
        return describe(replace(dynamics, schedule=None), arrays, "dynamics")


def _controlled(dynamics: Dynamics | None) -> bool:
    """Whether the noise at the mode cancels, so that only the noise that depends on the spread is
    met along the chain.
    """
    return dynamics is not None and dynamics.control_variates


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool | type(None))
