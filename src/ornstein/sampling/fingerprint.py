"""What identifies a run: the content of its data, its model, its options and the version of its
state. Checkpoints in this process and finished parts on a cluster hold the same fingerprint.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import numpy as np

from ornstein.checks import brief
from ornstein.curvature.derivatives import derivatives_of
from ornstein.errors import FileError, InputError
from ornstein.model.families.likelihood import Likelihood
from ornstein.model.model import Model
from ornstein.sampling.identity import PLAIN, identity
from ornstein.sampling.request import SampleRequest
from ornstein.types import Array, Meta

# Counts up whenever the meaning of saved numbers changes: a run goes on only in its own version.
STATE_VERSION = 2
# What a run is told, but for the things that do not change its draws.
OPTIONS = (
    "sampler",
    "batch_size",
    "scheme",
    "draws",
    "chains",
    "thin",
    "warmup",
    "max_steps",
    "curvature",
    "init",
    "seed",
    "dtype",
    "keep",
    "first_chain",
)
# Rounding depends on the machine; another prior or likelihood is off by far more.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Content:
    """The rows of a model: how many there are, block by block, and a hash of each block."""

    rows: list[int]
    digests: list[str]
    # θ ↦ the mean over all rows of −log likelihood
    mean_loss: Callable[[Array], float]

    @classmethod
    def of(cls, model: Model) -> Content:
        """The rows in this process, as one block."""
        derivatives = derivatives_of(model)
        return cls(
            [model.n_data],
            [data_digest(model)],
            lambda theta: derivatives.value_and_gradient(theta)[0],
        )


def fingerprint(
    model: Model, request: SampleRequest | None = None, content: Content | None = None
) -> dict[str, object]:
    """What tells one run from another, as JSON.

    The likelihood and the prior are functions, which cannot be compared: their values at the start
    of the search for the mode, and beside it, stand for them. `content` answers for data that are
    not in this process.
    """
    content = Content.of(model) if content is None else content
    places = _places(model.init)
    likelihood = model.loss.log_likelihood
    return {
        "version": STATE_VERSION,
        "names": list(model.names),
        "rows": content.rows,
        "data": content.digests,
        "family": likelihood.family if isinstance(likelihood, Likelihood) else None,
        "hyperparameters": {
            name: identity(value) for name, value in sorted(model.hyperparameters.items())
        },
        "init": float(model.init @ _weights(model.dim)),
        "likelihood": [content.mean_loss(place) for place in places],
        "prior": [model.n_data * model.scaled_prior(place)[0] for place in places],
        "options": {}
        if request is None
        else {name: identity(getattr(request, name)) for name in OPTIONS},
    }


def require_same(before: Meta, now: Meta, where: str, way: str) -> None:
    """Refuse a run whose fingerprint is not the one that was saved `where`, naming what differs and
    the `way` out. Options that were not given now are those of the run.
    """
    found = _difference(before, now)
    if found is not None:
        raise InputError(f"{where} belongs to another run: {found}. {way}")


def require_version(before: object, where: str) -> None:
    """Refuse the state of another version of ornstein, whose numbers mean something else."""
    version = before.get("version") if isinstance(before, Mapping) else None
    if version != STATE_VERSION:
        raise FileError(
            f"{where} has version {brief(version)} of the state, but this ornstein reads version"
            f" {STATE_VERSION}: continue with the ornstein that wrote it, or start again"
            " in another folder"
        )


def _difference(before: Meta, now: Meta) -> str | None:
    """What differs, in words; None where nothing does."""
    if before["names"] != now["names"]:
        old, new = before["names"], now["names"]
        return (
            f"its model has {len(old)} parameters ({', '.join(map(str, old[:3]))}, …), this one has"
            f" {len(new)} ({', '.join(new[:3])}, …)"
        )
    if before["family"] != now["family"]:
        return f"the family was {before['family']!r} and is {now['family']!r}"
    if before["rows"] != now["rows"]:
        if sum(before["rows"]) == sum(now["rows"]):
            return f"the rows lie in other blocks: {before['rows']} before, {now['rows']} now"
        return (
            f"the data are not those of the run: {sum(before['rows'])} rows before,"
            f" {sum(now['rows'])} now"
        )
    if before["data"] != now["data"]:
        return (
            f"the data are not those of the run: {sum(now['rows'])} rows as before, with other"
            " values"
        )
    for name in {**before["hyperparameters"], **now["hyperparameters"]}:
        old, new = (side["hyperparameters"].get(name) for side in (before, now))
        if old != new:
            return f"the hyperparameter {name} {_changed(old, new)}"
    for part, said in (
        ("init", "the start of the search for the mode (init of the model) differs"),
        ("likelihood", "the likelihood differs"),
        ("prior", "the prior differs"),
    ):
        old, new = np.ravel(before[part]), np.ravel(now[part])
        if not np.allclose(old, new, rtol=TOLERANCE, atol=1e-12, equal_nan=True):
            return f"{said} ({old[-1]:.10g} before, {new[-1]:.10g} now)"
    for name, new in now["options"].items():
        old = before["options"].get(name)
        if old != new:
            return f"the option {name} {_changed(old, new)}"
    return None


def _changed(old: object, new: object) -> str:
    if isinstance(old, PLAIN) and isinstance(new, PLAIN):
        return f"was {old!r} and is {new!r}"
    return "differs"


def _places(init: Array) -> tuple[Array, Array]:
    """Where functions of the parameters are compared: at the start, and a little beside it in
    every direction.
    """
    return init, init + 0.01 * (1.0 + np.abs(init)) * _weights(init.size)


def _weights(size: int) -> Array:
    return np.cos(np.arange(1.0, size + 1.0))


def data_digest(model: Model) -> str:
    """A hash of all rows."""
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
