"""A NumPyro model run at given unconstrained values: on all of its data, or on some rows of them.

Rows are the leaves of the arguments whose leading axis is the data plate's; to run some of them
these leaves are replaced and the plate is made that long, and everything else stays as it was
given.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.checks import require_finite
from ornstein.compute.precision import double
from ornstein.errors import InputError
from ornstein.model import tables
from ornstein.types import PyTree, Traced

Site = dict[str, Any]  # what NumPyro records of one statement
Sites = dict[str, Site]

KINDS = {"f": float, "i": int, "u": int, "b": bool}
# NumPyro's stack of handlers is one list for all threads, and chains are compiled on threads of
# their own.
_ONE_AT_A_TIME = threading.RLock()


@dataclass(frozen=True, eq=False)
class Fixed:
    """An argument that is not sliced; equal values compare equal, so that fits share compiled
    code.
    """

    value: object

    def _key(self) -> tuple[object, ...]:
        if isinstance(self.value, np.ndarray):
            return self.value.shape, str(self.value.dtype), self.value.tobytes()
        return type(self.value), self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and (
            self.value is other.value or self._key() == other._key()
        )

    def __hash__(self) -> int:
        try:
            return hash(self._key())
        except TypeError:
            return id(self.value)


@dataclass(frozen=True)
class Evaluation:
    """How the model is run on some rows: what is called, which leaves of its arguments are rows,
    and which plates hold them.

    `rows` are the names of the sliced leaves, `shapes` and `kinds` those of one row, `responses`
    the leaves that are observed values; `observed` are the sites of the likelihood.
    """

    model_fn: Callable[..., object]
    tree: jax.tree_util.PyTreeDef
    leaves: tuple[Fixed | str, ...]
    rows: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]
    responses: tuple[str, ...]
    plates: tuple[str, ...]
    observed: tuple[str, ...]

    def sites(
        self, params: Mapping[str, Traced], rows: Mapping[str, Traced], count: int
    ) -> tuple[Sites, Traced]:
        """The model's sites at unconstrained `params`, and the log determinant of the constraining
        transforms.
        """
        leaves = [
            rows[leaf] if isinstance(leaf, str) else _as_jax(leaf.value) for leaf in self.leaves
        ]
        arguments = jax.tree_util.tree_unflatten(self.tree, leaves)
        return _run(self.model_fn, arguments, params, dict.fromkeys(self.plates, count))

    def blank_rows(self, count: int) -> dict[str, Traced]:
        """Ones for rows, where no value of theirs is asked for: a valid weight, count and label
        alike.
        """
        return {
            name: jnp.ones((count, *shape), KINDS[kind])
            for name, shape, kind in zip(self.rows, self.shapes, self.kinds, strict=True)
        }

    @property
    def inputs(self) -> tuple[str, ...]:
        """The sliced leaves that are not observed values."""
        return tuple(name for name in self.rows if name not in self.responses)

    @property
    def predictable(self) -> bool:
        return len(self.observed) == 1 and bool(self.responses) and bool(self.inputs)


@dataclass(frozen=True, eq=False)
class WholeDensity:
    """The model on all its data, as NumPyro sees it."""

    model_fn: Callable[..., object]
    arguments: dict[str, PyTree]

    def __call__(self, params: Mapping[str, Traced]) -> tuple[float, bool]:
        """Log density of the unconstrained values in float64, and whether the model kept that
        precision.
        """
        from numpyro.infer.util import potential_energy

        with _ONE_AT_A_TIME, double():
            call = _call(self.model_fn, _in_double(self.arguments))
            values = {name: jnp.asarray(value) for name, value in params.items()}
            energy = potential_energy(
                _with_every_row(self.model_fn), call.args, call.kwargs, values
            )
        return -float(energy), energy.dtype == np.float64

    def sites(self, params: Mapping[str, Traced]) -> Sites:
        """Its sites at unconstrained values."""
        with double():
            values = {name: jnp.asarray(value) for name, value in params.items()}
            return _run(self.model_fn, _in_double(self.arguments), values, {})[0]


def whole_trace(model_fn: Callable[..., object], arguments: dict[str, PyTree]) -> Sites:
    """The sites of one run on all data, latents drawn from the prior."""
    from numpyro import handlers

    with _ONE_AT_A_TIME, double():
        call = _call(model_fn, _in_double(arguments))
        try:
            return dict(
                handlers.trace(handlers.seed(_with_every_row(model_fn), 0)).get_trace(
                    *call.args, **call.kwargs
                )
            )
        except Exception as error:
            _require_numbers("the model fails on its data", arguments)
            raise InputError(
                f"the model fails on its data: {type(error).__name__}: {_first_line(error)}"
            ) from error


def _run(
    model_fn: Callable[..., object],
    arguments: dict[str, PyTree],
    params: Mapping[str, Traced],
    counts: Mapping[str, int],
) -> tuple[Sites, Traced]:
    """Sites and log determinant of the transforms at unconstrained `params`; plates in `counts` are
    cut to that many rows.
    """
    from numpyro import handlers
    from numpyro.distributions.transforms import biject_to

    log_determinant = jnp.zeros(())

    def value_of(site: Site) -> Traced | None:
        nonlocal log_determinant
        if site["type"] == "plate":
            return _indices(site, counts.get(site["name"]))
        if site["type"] != "sample" or site["name"] not in params:
            return None
        transform = biject_to(site["fn"].support)
        value = transform(params[site["name"]])
        log_determinant = log_determinant + jnp.sum(
            transform.log_abs_det_jacobian(params[site["name"]], value)
        )
        return value

    call = _call(model_fn, arguments)
    with _ONE_AT_A_TIME:
        sites = handlers.trace(handlers.substitute(model_fn, substitute_fn=value_of)).get_trace(
            *call.args, **call.kwargs
        )
    return dict(sites), log_determinant


def _indices(plate: Site, count: int | None) -> Traced:
    """All rows of a plate, or the first `count`; a subsample that the model asked for is
    overruled.
    """
    size = plate["args"][0]
    rows = size if count is None else count
    plate["args"] = (size, rows)
    return jnp.arange(rows)


def _with_every_row(model_fn: Callable[..., object]) -> Callable[..., object]:
    from numpyro import handlers

    return handlers.substitute(
        model_fn,
        substitute_fn=lambda site: _indices(site, None) if site["type"] == "plate" else None,
    )


def bound(
    model_fn: Callable[..., object], args: tuple[PyTree, ...], kwargs: dict[str, PyTree]
) -> dict[str, PyTree]:
    """The arguments by the names of the model's parameters."""
    try:
        return dict(inspect.signature(model_fn).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError) as error:
        raise InputError(f"the model cannot be called with these arguments: {error}") from error


def _call(model_fn: Callable[..., object], arguments: dict[str, PyTree]) -> inspect.BoundArguments:
    return inspect.BoundArguments(inspect.signature(model_fn), arguments)


def _require_numbers(said: str, arguments: dict[str, PyTree]) -> None:
    """Refuse arrays that hold no finite numbers, with the argument and the row."""
    for name, argument in arguments.items():
        for leaf in jax.tree.leaves(argument):
            array = as_numpy(leaf)
            if not isinstance(array, np.ndarray) or not array.ndim:
                continue
            if array.dtype.kind not in "fiub":
                raise InputError(f"{said}: {name} must be numeric, not of dtype {array.dtype}")
            require_finite(f"{said}: {name}", array)


def _in_double(arguments: dict[str, PyTree]) -> dict[str, PyTree]:
    return jax.tree.map(lambda leaf: _as_jax(as_numpy(leaf), widen=True), arguments)


def as_numpy(leaf: object) -> object:
    """Arrays, frames and series as NumPy arrays; anything else as it is."""
    if hasattr(leaf, "to_numpy") or isinstance(leaf, np.ma.MaskedArray):
        return tables.plain(leaf, "an argument")
    if isinstance(leaf, jax.Array) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(leaf)
    return leaf


def _as_jax(leaf: object, widen: bool = False) -> object:
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in KINDS:
        return leaf
    if leaf.dtype.kind == "f":
        # A copy each time: JAX remembers a NumPy array in the width it was first used in.
        leaf = leaf.astype(np.float64 if widen else jax.dtypes.canonicalize_dtype(leaf.dtype))
    return jnp.asarray(leaf)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or "no message").splitlines()[0]
