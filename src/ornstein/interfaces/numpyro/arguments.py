"""What a NumPyro model is called with, as NumPyro would see it and as rows can be taken from it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.checks import require_finite
from ornstein.errors import InputError
from ornstein.interfaces.numpyro.handled import Function
from ornstein.model import tables
from ornstein.types import PyTree

KINDS = {"f": float, "i": int, "u": int, "b": bool}


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


def bound(
    model_fn: Function, args: tuple[PyTree, ...], kwargs: Mapping[str, PyTree]
) -> dict[str, PyTree]:
    """The arguments by the names of the model's parameters."""
    try:
        return dict(inspect.signature(model_fn).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError) as error:
        raise InputError(f"the model cannot be called with these arguments: {error}") from error


def call_of(model_fn: Function, arguments: dict[str, PyTree]) -> inspect.BoundArguments:
    """Positions and keywords to call the model with."""
    return inspect.BoundArguments(inspect.signature(model_fn), arguments)


def as_given(arguments: dict[str, PyTree]) -> dict[str, PyTree]:
    """Copies of the arguments in double precision, as NumPyro would see them: NumPy's stay NumPy's,
    because models look at them with NumPy, and frames stay frames.
    """
    return jax.tree.map(_own, arguments)


def in_jax(arguments: dict[str, PyTree]) -> dict[str, PyTree]:
    """The arguments with arrays, frames and series as arrays of JAX, in double precision."""
    return jax.tree.map(lambda leaf: as_jax(as_numpy(leaf), widen=True), arguments)


def _own(leaf: object) -> object:
    if tables.is_frame(leaf):
        return leaf
    value = as_numpy(leaf)
    if not isinstance(value, np.ndarray):
        return value
    if isinstance(leaf, jax.Array):
        return as_jax(value, widen=True)
    return value.astype(float) if value.dtype.kind == "f" else value.copy()


def as_numpy(leaf: object) -> object:
    """Arrays, frames and series as NumPy arrays; anything else as it is."""
    if hasattr(leaf, "to_numpy") or isinstance(leaf, np.ma.MaskedArray):
        return tables.plain(leaf, "an argument")
    if isinstance(leaf, jax.Array) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(leaf)
    return leaf


def as_jax(leaf: object, widen: bool = False) -> object:
    """NumPy's arrays of numbers as JAX's, floats in the width of now, or in the wider one."""
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in KINDS:
        return leaf
    if leaf.dtype.kind == "f":
        # A copy each time: JAX remembers a NumPy array in the width it was first used in.
        leaf = leaf.astype(np.float64 if widen else jax.dtypes.canonicalize_dtype(leaf.dtype))
    return jnp.asarray(leaf)


def require_numbers(said: str, arguments: Mapping[str, PyTree]) -> None:
    """Refuse arrays that hold no finite numbers, with the argument and the row."""
    for name, argument in arguments.items():
        for leaf in jax.tree.leaves(argument):
            array: Any = as_numpy(leaf)
            if not isinstance(array, np.ndarray) or not array.ndim:
                continue
            if array.dtype.kind not in KINDS:
                raise InputError(f"{said}: {name} must be numeric, not of dtype {array.dtype}")
            require_finite(f"{said}: {name}", array)


def first_line(error: Exception) -> str:
    """What an error says, in one line."""
    return (str(error).strip() or "no message").splitlines()[0]
