"""NumPy arrays that a function takes from outside: a set of their own for each width.

JAX makes one constant of a NumPy array and finds it again by the array's identity, without asking
which width it was made in, for as long as any program holds it. An array that a function closes
over is therefore seen in the width of its first use: in the other one the types do not fit, or the
numbers have been rounded. A function that is called in both widths is rebuilt here, once for each,
around views of the arrays: the same numbers, but other objects.

Arrays are looked for where a function can name them: in what it closes over, in globals, default
values, containers, attributes of objects, and the functions and modules of the user that it calls.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import inspect
import sysconfig
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np

from ornstein.compute.precision import double

Function = Callable[..., Any]

COPIED = 2**26  # bytes of one function's arrays; what is beyond is known by its identity alone
_ATOMS = (bool, int, float, complex, str, bytes, type(None), type, np.generic)
_JITTED = type(jax.jit(lambda: None))
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


@dataclass(frozen=True)
class OwnArrays:
    """A function with arrays of its own in each width; equal where function and numbers are, so
    that equal models share compiled code.
    """

    function: Function
    numbers: tuple[object, ...]
    wide: Function = field(compare=False, repr=False)
    narrow: Function = field(compare=False, repr=False)

    def __call__(self, *arguments: object, **named: object) -> object:
        is_wide = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
        return (self.wide if is_wide else self.narrow)(*arguments, **named)

    @property
    def __wrapped__(self) -> Function:
        """For `inspect.signature`."""
        return self.function

    def __reduce__(self) -> tuple[object, ...]:
        return with_own_arrays, (self.function,)


def with_own_arrays(function: Function) -> Function:
    """The function with arrays of its own in each width; itself where it reaches none whose width
    could change.

    >>> scale = np.array([1.0, 2.0])
    >>> outside = with_own_arrays(lambda theta: theta / scale)
    >>> outside(np.ones(2)).tolist(), type(outside).__name__
    ([1.0, 0.5], 'OwnArrays')
    >>> with_own_arrays(abs) is abs
    True
    """
    return _separated(function)[0]


def where_constant(function: Function, *arguments: object) -> Function:
    """As `with_own_arrays`, for a function one of whose arrays becomes a constant of the program
    for these arguments; itself otherwise.
    """
    own, arrays = _separated(function)
    if own is function:
        return function
    try:
        with double(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # not `own` itself, by which JAX would keep the program
            program = jax.make_jaxpr(lambda *given: own(*given))(*arguments)
    except Exception:
        return function  # which fails as well, in the words of the contract
    shared = (np.may_share_memory(c, a) for c in numpy_constants(program) for a in arrays)
    return own if any(shared) else function


def numpy_constants(program: object) -> Iterator[np.ndarray]:
    """NumPy arrays among the constants of a traced program and of the programs inside it."""
    for value in (*getattr(program, "consts", ()), *_inside(program)):
        if isinstance(value, np.ndarray):
            yield value
        else:
            yield from numpy_constants(value)


def _inside(program: object) -> Iterator[object]:
    """Programs inside a program, and numbers that are written out in it."""
    for equation in getattr(getattr(program, "jaxpr", program), "eqns", ()):
        yield from (atom.val for atom in equation.invars if hasattr(atom, "val"))
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                    yield inner


def _separated(function: Function) -> tuple[Function, list[np.ndarray]]:
    """The function with arrays of its own, and the arrays."""
    if isinstance(function, OwnArrays):
        return function, []
    kept: dict[int, _Kept] = {}
    wide, narrow = Rebuilding(kept).of(function), Rebuilding(kept).of(function)
    if wide is function:
        return function, []
    numbers = tuple(each.identity for each in kept.values())
    return OwnArrays(function, numbers, wide, narrow), [each.array for each in kept.values()]


@dataclass(frozen=True)
class _Kept:
    """An array from outside as it was when it was found."""

    original: np.ndarray  # held, for its identity is that of no other array while it lives
    array: np.ndarray
    identity: object

    @classmethod
    def of(cls, array: np.ndarray, copied: bool) -> _Kept:
        if not copied:
            return cls(array, array, id(array))
        own = array.copy()
        digest = hashlib.blake2b(own.tobytes(), digest_size=16).hexdigest()
        return cls(array, own, (own.shape, own.dtype.str, digest))


class Rebuilding:
    """Copies of whatever reaches an array, with another array in its place; all else stays the same
    object. This one puts a new view in place of NumPy's arrays of 8 bytes per number.
    """

    def __init__(self, kept: dict[int, _Kept]) -> None:
        self._kept = kept
        self._made: dict[int, tuple[object, object]] = {}  # with the original, so that it lives

    def of(self, value: object) -> Any:
        """What takes the place of a value."""
        if isinstance(value, jax.Array):
            return self.array_of_jax(value)
        if isinstance(value, _ATOMS):
            return value
        if id(value) not in self._made:
            self._made[id(value)] = value, value  # until it is known, for what holds itself
            with contextlib.suppress(Exception):  # what cannot be copied stays as it is
                self._made[id(value)] = value, self._rebuilt(value)
        return self._made[id(value)][1]

    def _rebuilt(self, value: object) -> object:
        match value:
            case np.ndarray():
                return self.array(value)
            case types.FunctionType():
                return self._function(value)
            case types.MethodType():
                return self._from_parts(value, (value.__func__, value.__self__), types.MethodType)
            case partial():
                parts = value.func, value.args, value.keywords
                return self._from_parts(value, parts, lambda f, args, kw: partial(f, *args, **kw))
            case _JITTED():
                return self._from_parts(value, (inspect.unwrap(value),), lambda function: function)
            case tuple() | list():
                make = getattr(type(value), "_make", type(value))
                return self._from_parts(value, tuple(value), lambda *items: make(items))
            case dict():
                return self._dict(value)
            case OwnArrays() | types.ModuleType():
                return value
        return self._object(value)

    def array_of_jax(self, array: jax.Array) -> object:
        """What takes the place of an array of JAX: itself."""
        return array

    def array(self, array: np.ndarray) -> object:
        """What takes the place of an array of NumPy."""
        if array.dtype.kind not in "fiuc" or array.dtype.itemsize < 8:
            return array
        if id(array) not in self._kept:
            held = sum(each.array.nbytes for each in self._kept.values())
            self._kept[id(array)] = _Kept.of(array, copied=held + array.nbytes <= COPIED)
        return self._kept[id(array)].array.view()

    def _from_parts(self, whole: object, parts: tuple[object, ...], make: Function) -> object:
        new = tuple(map(self.of, parts))
        return whole if _same(new, parts) else make(*new)

    def _dict(self, value: dict[str, Any]) -> object:
        changed = self._changed(value)
        if not changed:
            return value
        new = copy.copy(value)
        new.update(changed)
        return new

    def _object(self, value: object) -> object:
        changed = self._changed(getattr(value, "__dict__", {}))
        if not changed:
            return value
        new = copy.copy(value)
        vars(new).update(changed)
        return new

    def _function(self, function: types.FunctionType) -> object:
        code, names = function.__code__, _names(function.__code__)
        old = function.__closure__ or (), function.__defaults__, function.__kwdefaults__
        cells = tuple(self._cell(cell, names) for cell in old[0])
        defaults, named = self.of(old[1]), self.of(old[2])
        changed: dict[str, object] = {}
        if not _of_a_library(code.co_filename):
            used = {n: function.__globals__[n] for n in names if n in function.__globals__}
            changed = self._changed(used, names)
        if not changed and _same((*cells, defaults, named), (*old[0], *old[1:])):
            return function
        scope = {**function.__globals__, **changed} if changed else function.__globals__
        new = types.FunctionType(code, scope, function.__name__, defaults, cells)
        new.__kwdefaults__, new.__qualname__ = named, function.__qualname__
        vars(new).update(vars(function))
        return new

    def _cell(self, cell: types.CellType, names: frozenset[str]) -> types.CellType:
        try:
            content = cell.cell_contents
        except ValueError:  # nothing in it yet
            return cell
        new = self._named(content, names)
        return cell if new is content else types.CellType(new)

    def _changed(
        self, values: dict[str, Any], names: frozenset[str] = frozenset()
    ) -> dict[str, Any]:
        new = {key: self._named(value, names) for key, value in list(values.items())}
        return {key: value for key, value in new.items() if value is not values[key]}

    def _named(self, value: object, names: frozenset[str]) -> object:
        """As `of`; of a module, what has one of the names that the code uses."""
        if not isinstance(value, types.ModuleType):
            return self.of(value)
        if _of_a_library(getattr(value, "__file__", None) or sysconfig.get_path("stdlib")):
            return value
        inside = {name: vars(value)[name] for name in names & vars(value).keys()}
        # modules inside modules stay: they may hold each other
        changed = self._changed(inside)
        if not changed:
            return value
        new = types.ModuleType(value.__name__)
        vars(new).update(vars(value), **changed)
        return new


def _same(left: tuple[object, ...], right: tuple[object, ...]) -> bool:
    return all(one is other for one, other in zip(left, right, strict=True))


def _names(code: types.CodeType) -> frozenset[str]:
    """Names that the code, and code inside it, looks up."""
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return frozenset(code.co_names).union(*map(_names, inner))


def _of_a_library(path: str) -> bool:
    return path.startswith(_LIBRARIES)
