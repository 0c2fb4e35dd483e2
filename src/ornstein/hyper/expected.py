"""What a checkpoint of `orn.em` must hold for the climb to go on from it: the request that the run
was begun with, arrays of the shapes that the model makes, finite numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ornstein.dynamics.dynamics import Dynamics
from ornstein.hyper.climb import Climb
from ornstein.hyper.paper_tuning import PaperTuning
from ornstein.hyper.request import Request
from ornstein.hyper.stage import LONGEST_STRIDE
from ornstein.model.model import Model
from ornstein.posterior.archive import flattened
from ornstein.posterior.portable import rebuild
from ornstein.rows.sources import IndexSource
from ornstein.sampling.expected import require_finite, require_source, require_whole
from ornstein.sampling.request import SampleRequest
from ornstein.types import Array, PyTree

MANY = 10**9
RUNAWAYS = ("infinity", "zero")
VECTORS = ("mode", "steepest", "warm/mode", "warm/measured_at", "noise/mean")
MATRICES = ("warm/hessian", "warm/noise", "warm/prior_hessian")
NUMBERS = ("batch_size", "n_data", "largest", "noise/count", "noise/noise")
# of numbers, where they are not floats
KINDS = {"held": "b"} | dict.fromkeys(("blocks_steps", "batch_size", "n_data", "noise/count"), "iu")


def require_request(request: Request, model: Model) -> None:
    """Refuse values that `em` would stumble over only later."""
    for name in ("max_blocks", "bbvi_steps"):
        require_whole(name, getattr(request, name), MANY)
    if not isinstance(request.batch_size, str):
        require_whole("batch_size", request.batch_size, model.n_data)
    draws = 1 if request.draws is None else request.draws
    SampleRequest(draws=draws, chains=request.chains, max_steps=10**19, seed=request.seed)
    if isinstance(request.tolerance, bool) or not isinstance(request.tolerance, int | float):
        raise ValueError(f"tolerance={request.tolerance!r}")


def require_climb(
    climb: Climb, chains: int, words: Mapping[str, Any], tree: Mapping[str, PyTree]
) -> None:
    """Refuse a state that a climb of this number of chains cannot have been in."""
    size, dimension = climb.coordinates.start.size, climb.model.dim
    require_whole("stages", words["stages"], MANY)
    for index, where in words["runaway"].items():
        if not 0 <= int(index) < size or where not in RUNAWAYS:
            raise ValueError(f"coordinate {index} on its way to {where!r}")
    if not all(isinstance(said, str) for pair in words["notes"].items() for said in pair):
        raise ValueError("notes that are not text")
    _require_ascent(tree["ascent"], size, chains)
    _require_tuning(climb, tree.get("tuning", {}))
    staged = {"stage", "chains"} & set(tree)
    if ("stage" in words) != bool(staged):
        raise ValueError(f"a stage in words, and {sorted(staged)} in numbers")
    if not staged:
        if tree["ascent"].keys() & {"blocks_phi"}:
            raise ValueError("blocks that no chain has run")
        return
    shapes = {
        "centre": (dimension,),
        "starts": (chains, dimension),
        "positions": (chains, dimension),
        "phi": (size,),
    }
    saved = {name: tree["stage"][name] for name in shapes}
    _require_shapes(saved, shapes)
    require_whole("stride", words["stage"]["stride"], LONGEST_STRIDE)
    if words["stage"]["stride"] < 1:
        raise ValueError("a stride of 0")
    arrays = flattened(tree["stage"].get("arrays", {}))
    _require_dynamics(rebuild(words["stage"]["dynamics"], arrays), climb.model)


def _require_dynamics(dynamics: object, model: Model) -> None:
    """Refuse what is no Dynamics for the model of the climb."""
    if not isinstance(dynamics, Dynamics) or dynamics.window > 1:
        raise ValueError(f"a {type(dynamics).__name__} in place of a Dynamics of iterates")
    require_whole("batch_size", dynamics.batch_size, model.n_data)
    for name, array in dynamics.arrays().items():
        require_finite(name, array)
        if array.ndim and set(array.shape) != {model.dim}:
            raise ValueError(f"{name} of shape {array.shape}")


def _require_ascent(saved: Mapping[str, Array], size: int, chains: int) -> None:
    blocks = len(np.atleast_1d(saved.get("blocks_steps", np.zeros(0))))
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("phi", "held", "turns", "sign"), (size,))
    if blocks:
        shapes |= {
            "blocks_phi": (blocks, size),
            "blocks_slopes": (blocks, chains, size),
            "blocks_covariance": (blocks, size, size),
            "blocks_complete": (blocks, size, size),
            "blocks_steps": (blocks,),
        }
    _require_shapes(saved, shapes)


def _require_tuning(climb: Climb, saved: Mapping[str, PyTree]) -> None:
    dimension = climb.model.dim
    flat = flattened({name: part for name, part in saved.items() if name != "source"})
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(VECTORS, (dimension,))
    shapes |= dict.fromkeys(MATRICES, (dimension, dimension))
    shapes |= dict.fromkeys(NUMBERS, ())
    _require_shapes(flat, {name: shapes[name] for name in flat})
    if "batch_size" not in flat:
        return
    # the paper's recipe draws minibatches of its own
    if int(flat["n_data"]) != climb.model.n_data:
        raise ValueError(f"minibatches of {flat['n_data']} rows")
    require_whole("batch_size", flat["batch_size"].item(), climb.model.n_data)
    require_whole("count", flat["noise/count"].item(), 10**18)
    if not isinstance(climb.tuning, PaperTuning):
        raise ValueError("minibatches that the recipe has no use for")
    scheme, batch_size = climb.tuning.scheme, int(flat["batch_size"])
    source = IndexSource(
        scheme, climb.model.n_data, batch_size, np.random.Generator(np.random.SFC64(0))
    )
    require_source(source, saved["source"])


def _require_shapes(saved: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Finite numbers of these shapes, and no others."""
    if saved.keys() != shapes.keys():
        raise ValueError(f"arrays {sorted(saved)} in place of {sorted(shapes)}")
    for name, array in saved.items():
        require_finite(name, array)
        if array.shape != shapes[name] or array.dtype.kind not in KINDS.get(name, "f"):
            raise ValueError(f"{name} of shape {array.shape} and type {array.dtype}")
