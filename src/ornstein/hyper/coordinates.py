"""Between hyperparameters by name and the unconstrained vector φ that is moved.

A positive hyperparameter enters as its logarithm. Entries that share a group share one coordinate;
entries that are 0 (a flat prior) have none and stay 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from ornstein.errors import InputError
from ornstein.model.model import Model
from ornstein.types import Array, Traced


@dataclass(frozen=True)
class Scales:
    """Which hyperparameters move, and whether each is positive; hashable, so that equal cases share
    compiled code.
    """

    names: tuple[str, ...]
    positive: tuple[bool, ...]


class Places(NamedTuple):
    """Per name: the coordinate of every entry (−1: it stays), and the entries as they stand."""

    coordinate: dict[str, Traced]
    standing: dict[str, Traced]


def hyperparameters_at(scales: Scales, places: Places, phi: Traced) -> dict[str, Traced]:
    """All hyperparameters of the model at φ, as JAX arrays."""
    values = dict(places.standing)
    for name, positive in zip(scales.names, scales.positive, strict=True):
        where = places.coordinate[name]
        moved = phi[jnp.maximum(where, 0)]
        values[name] = jnp.where(
            where >= 0, jnp.exp(moved) if positive else moved, places.standing[name]
        )
    return values


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The free hyperparameters of one model.

    Attributes:
        scales, places: how φ becomes hyperparameters (`hyperparameters_at`).
        start: φ of the model as given.
        names: one per coordinate, with the group in brackets where there are several.
        groups: name ↦ label per coordinate of that name, () where there is one coordinate only.
        positive: whether each coordinate is a logarithm.
    """

    scales: Scales
    places: Places
    start: Array
    names: tuple[str, ...]
    groups: dict[str, tuple[object, ...]]
    positive: Array

    @classmethod
    def of(
        cls,
        model: Model,
        wanted: Sequence[str] | Mapping[str, ArrayLike | None],
        real: Sequence[str] = (),
    ) -> Coordinates:
        """The coordinates of the `wanted` names, a mapping giving the groups of a name's entries;
        `real` ones need not be positive.
        """
        asked = _asked(model, wanted, real)
        standing = dict(model.hyperparameters)
        coordinate: dict[str, Array] = {}
        groups: dict[str, tuple[object, ...]] = {}
        start: list[float] = []
        names: list[str] = []
        for name, labels in asked.items():
            if labels is not None:
                standing[name] = _spread_out(model, name, np.shape(labels))
            free = (
                np.ones(standing[name].shape, bool)
                if name in real
                else _positive_entries(name, standing[name])
            )
            places, found = _grouped(labels, free)
            coordinate[name] = np.where(free, places + len(start), -1).astype(np.int32)
            first = [
                _common(name, label, standing[name][free & (places == k)])
                for k, label in enumerate(found)
            ]
            start += first if name in real else list(np.log(first))
            names += (
                [name]
                if len(found) == 1 and standing[name].ndim == 0
                else [f"{name}[{label}]" for label in found]
            )
            groups[name] = tuple(found) if standing[name].ndim else ()
        order = tuple(asked)
        positive = tuple(name not in real for name in order)
        flags = np.concatenate(
            [
                np.full(max(1, len(groups[name])), flag)
                for name, flag in zip(order, positive, strict=True)
            ]
        )
        return cls(
            Scales(order, positive),
            Places(coordinate, standing),
            np.array(start, dtype=float),
            tuple(names),
            groups,
            flags,
        )

    def model_at(self, model: Model, phi: Array) -> Model:
        """The model with its hyperparameters at φ."""
        return model.with_hyperparameters(**self.entries(phi))

    def entries(self, phi: Array) -> dict[str, Array]:
        """Every moved hyperparameter in the model's own shape."""
        entries = {}
        for name, positive in zip(self.scales.names, self.scales.positive, strict=True):
            where = self.places.coordinate[name]
            moved = phi[np.maximum(where, 0)]
            entries[name] = np.where(
                where >= 0, np.exp(moved) if positive else moved, self.places.standing[name]
            )
        return entries

    def by_name(self, values: Array) -> dict[str, Array | float]:
        """One number per coordinate as a dictionary: a float for a single one, else an array in the
        order of `groups`.
        """
        result: dict[str, Array | float] = {}
        taken = 0
        for name in self.scales.names:
            count = max(1, len(self.groups[name]))
            part = np.asarray(values[taken : taken + count], dtype=float)
            result[name] = part.copy() if self.groups[name] else float(part[0])
            taken += count
        return result

    def natural(self, phi: Array) -> Array:
        """φ on the scale of the hyperparameters themselves; the last axis runs over coordinates."""
        return np.where(self.positive, np.exp(np.where(self.positive, phi, 0.0)), phi)


def _asked(
    model: Model, wanted: Sequence[str] | Mapping[str, ArrayLike | None], real: Sequence[str]
) -> dict[str, ArrayLike | None]:
    """The groups of each name's entries; None where each is its own."""
    wanted = (wanted,) if isinstance(wanted, str) else wanted
    asked = dict(wanted) if isinstance(wanted, Mapping) else dict.fromkeys(wanted)
    if not asked:
        raise InputError("hyperparameters is empty: name at least one")
    unknown = (set(asked) | set(real)) - set(model.hyperparameters)
    if unknown:
        raise InputError(
            f"unknown hyperparameters {sorted(unknown)}; the model has"
            f" {sorted(model.hyperparameters)}"
        )
    if set(real) - set(asked):
        raise InputError(
            f"real names {sorted(set(real) - set(asked))}, which are not among the"
            " hyperparameters to move"
        )
    return asked


def _positive_entries(name: str, values: Array) -> Array:
    if np.any(values < 0):
        raise InputError(
            f"{name} must be positive to be moved on the log scale; it holds {values.min():g}. Is"
            f" it real=({name!r},)?"
        )
    if not np.any(values > 0):
        raise InputError(
            f"{name} is 0, a flat prior, and there is no evidence to maximise: start from a"
            " positive value"
        )
    return values > 0


def _spread_out(model: Model, name: str, shape: tuple[int, ...]) -> Array:
    """The hyperparameter with one entry per label."""
    now = model.hyperparameters[name]
    try:
        spread = (
            np.broadcast_to(now, np.broadcast_shapes(now.shape, shape))
            if now.ndim <= len(shape)
            else now
        )
    except ValueError as error:
        raise InputError(
            f"the groups of {name} have shape {shape}, the hyperparameter {now.shape}"
        ) from error
    return model.with_hyperparameters(**{name: spread}).hyperparameters[name]


def _grouped(labels: ArrayLike | None, free: Array) -> tuple[Array, Sequence[object]]:
    """A number per entry and the label of every number; without labels each entry is its own
    group.
    """
    if labels is None:
        flat = np.cumsum(free.reshape(-1)) - 1
        indices = [",".join(map(str, index)) for index in np.argwhere(free)] if free.ndim else [""]
        return flat.reshape(free.shape), indices
    array = np.asarray(labels)
    while array.ndim < free.ndim:
        array = array[..., None]
    array = np.broadcast_to(array, free.shape)
    kept = array[free]
    found, inverse = np.unique(kept, return_inverse=True)
    places = np.full(free.shape, -1)
    places[free] = inverse
    return places, [label.item() if hasattr(label, "item") else label for label in found]


def _common(name: str, label: object, values: Array) -> float:
    if not np.allclose(values, values.flat[0]):
        raise InputError(
            f"group {label!r} of {name} holds different starting values, {values.min():g} to"
            f" {values.max():g}"
        )
    return float(values.flat[0])
