"""Values as JSON that is equal where the values are, in this process and in any other.

A function is what it does: its code, and the values that the code reaches (closed over, defaults,
globals). Two runs whose schedules differ in one of them are two runs.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import json
import math
import sysconfig
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from types import CellType, CodeType, FunctionType, MethodType, ModuleType

import jax
import numpy as np

from ornstein.curvature.curvature import Curvature
from ornstein.types import PyTree

PLAIN = (bool, int, float, str, type(None))
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_OURS = __name__.partition(".")[0]


def identity(value: PyTree) -> object:
    """A value as JSON that is equal where the value is.

    >>> identity(np.eye(2)) == identity(np.eye(2)), identity(np.eye(2)) == identity(np.ones((2, 2)))
    (True, False)
    >>> identity((1, "auto")), identity(np.float64(0.5))
    ([1, 'auto'], 0.5)
    """
    return _identity(value, ())


def _identity(value: PyTree, inside: tuple[int, ...]) -> object:
    """`inside` are the ids of the values that hold this one: a value may hold itself."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if isinstance(value, PLAIN):
        return repr(value) if isinstance(value, float) and not math.isfinite(value) else value
    if isinstance(value, np.ndarray | jax.Array):
        array = np.ascontiguousarray(value)
        return {"shape": list(array.shape), "dtype": array.dtype.str, "hash": _hash(array.data)}
    if id(value) in inside:
        return {"again": inside.index(id(value))}
    return _of_parts(value, (*inside, id(value)))


def _of_parts(value: PyTree, inside: tuple[int, ...]) -> object:
    def of(part: PyTree) -> object:
        return _identity(part, inside)

    match value:
        case Mapping():
            return {str(key): of(value[key]) for key in sorted(value, key=str)}
        case Set():
            return sorted((of(item) for item in value), key=json.dumps)
        case Sequence():
            return [of(item) for item in value]
        case ModuleType():
            return {"module": value.__name__}
        case FunctionType():
            return _of_function(value, inside)
        case MethodType():
            return {"method": of(value.__func__), "of": of(value.__self__)}
        case functools.partial():
            return {"partial": [of(value.func), of(value.args), of(value.keywords)]}
        case type():
            return {"class": _name(value), "code": _of_class(value, inside)}
    return _of_object(value, inside)


def _of_object(value: object, inside: tuple[int, ...]) -> dict[str, object]:
    found: dict[str, object] = {"class": _name(type(value))}
    if isinstance(name := getattr(value, "__name__", None), str):  # a function not of Python
        found["name"] = name
    if code := _of_class(type(value), inside):
        found["code"] = code
    if is_dataclass(value):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
    else:
        parts = {**_slots(value), **getattr(value, "__dict__", {})}
    if isinstance(value, Curvature):
        # its functions follow from the data, and may hold all of them
        parts = {name: callable(part) or part for name, part in parts.items()}
    return found | {name: _identity(part, inside) for name, part in parts.items()}


def _of_class(kind: type, inside: tuple[int, ...]) -> dict[str, object]:
    """The methods of a class of the user's; libraries and this one are known by their names."""
    return {
        f"{owner.__qualname__}.{name}": _identity(method, inside)
        for owner in kind.__mro__
        for name, method in sorted(vars(owner).items())
        if isinstance(method, FunctionType) and not _is_known(method)
    }


def _of_function(function: FunctionType, inside: tuple[int, ...]) -> dict[str, object]:
    if _is_known(function):
        found: dict[str, object] = {"function": _name(function)}
        names: tuple[str, ...] = ()
    else:
        found = {"function": _code(function.__code__)}
        names = tuple(sorted(set(_globals_of(function.__code__)) & set(function.__globals__)))
    reached = {
        "closure": [_content(cell) for cell in function.__closure__ or ()],
        "defaults": function.__defaults__,
        "named": function.__kwdefaults__,
        "globals": {name: function.__globals__[name] for name in names},
    }
    return found | {name: _identity(part, inside) for name, part in reached.items() if part}


def _content(cell: CellType) -> PyTree:
    try:
        return cell.cell_contents
    except ValueError:  # nothing in it yet
        return None


def _is_known(function: FunctionType) -> bool:
    """Whether the function is of a library or of this one, and so known by its name."""
    ours = (function.__module__ or "").partition(".")[0] == _OURS
    return ours or function.__code__.co_filename.startswith((*_LIBRARIES, "<frozen"))


def _slots(value: object) -> dict[str, PyTree]:
    owned = (
        (slots,) if isinstance(slots := vars(owner).get("__slots__", ()), str) else tuple(slots)
        for owner in type(value).__mro__
    )
    names = [name for slots in owned for name in slots if name not in ("__dict__", "__weakref__")]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _globals_of(code: CodeType) -> Iterator[str]:
    """Names of the globals that the code, and code inside it, looks up."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(instruction.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _globals_of(inner)


def _code(code: CodeType) -> str:
    constants = [
        _code(value)
        if isinstance(value, CodeType)
        # the order of a set is another one in every process
        else repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)
        for value in code.co_consts
    ]
    return _hash(repr((code.co_code.hex(), code.co_names, constants)).encode())


def _name(value: type | FunctionType) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _hash(content: bytes | memoryview) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
