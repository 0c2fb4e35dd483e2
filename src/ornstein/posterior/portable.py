"""Samplers, dynamics and schedules as JSON with arrays on the side, and back. Only the classes
that are listed are ever built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np

from ornstein import samplers
from ornstein.errors import FileError
from ornstein.types import Array

_WHERE = {"Dynamics": "dynamics.dynamics", **samplers.STORED}


class NotPortableError(TypeError):
    """A value that cannot be written down, such as a function of the user's."""


def describe(value: Any, arrays: dict[str, Array], key: str) -> Any:
    """JSON for `value`; arrays in it go to `arrays` under names that begin with `key`.

    >>> from ornstein.samplers.constant_sgd import ConstantSGD
    >>> rebuild(describe(ConstantSGD("scalar", step_size=0.1), {}, "sampler"), {})
    ConstantSGD(preconditioner='scalar', step_size=0.1, damping=1.0, ...)
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        arrays[key] = np.asarray(value)
        return {"array": key}
    if isinstance(value, tuple | list):
        return [describe(item, arrays, f"{key}/{number}") for number, item in enumerate(value)]
    name = type(value).__name__
    if is_dataclass(value) and _is_listed(type(value)):
        return {
            "class": name,
            **{
                field.name: describe(getattr(value, field.name), arrays, f"{key}/{field.name}")
                for field in fields(value)
            },
        }
    raise NotPortableError(f"{value!r} cannot be written to a file")


def rebuild(description: Any, arrays: Mapping[str, Array]) -> Any:
    """The value that `describe` was given."""
    if isinstance(description, list):
        return tuple(rebuild(item, arrays) for item in description)
    if not isinstance(description, dict):
        return description
    if set(description) == {"array"}:
        return arrays[description["array"]]
    parts = dict(description)
    name = parts.pop("class", None)
    if name not in _WHERE:
        raise FileError(f"the file names {name!r}, which is not a class that a file may hold")
    if name == "Dynamics" and parts.get("sampler") == "IASG(target='sandwich')":
        parts.setdefault("target", "sandwich")  # files of 0.1 say it in the name alone
    kind = getattr(import_module(f"ornstein.{_WHERE[name]}"), name)
    return kind(**{field: rebuild(item, arrays) for field, item in parts.items()})


def _is_listed(kind: type) -> bool:
    return kind.__module__ == f"ornstein.{_WHERE.get(kind.__name__)}"
