"""What a log likelihood, a log prior, data and hyperparameters must be, checked by tracing them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import numpy as np
from numpy.typing import ArrayLike

from ornstein.checks import as_numbers, require_finite
from ornstein.errors import InputError
from ornstein.model.closed_over import numpy_constants
from ornstein.types import PyTree, Traced

# Compiled code finds rows by indices of 32 bits. Rows of a memory map are found on the host, by
# indices of 64.
MOST_IN_MEMORY = 2**31


@dataclass(frozen=True)
class WithoutHyper:
    """Lets a function that takes no hyperparameters stand where one that does is called."""

    function: Callable[..., Traced]

    def __call__(self, *arguments: PyTree) -> Traced:
        return self.function(*arguments[:-1])


@dataclass(frozen=True, eq=False)
class ByIdentity:
    """A function that cannot be compared with others, such as an object that holds arrays: equal to
    itself alone.
    """

    function: Callable[..., Traced]

    def __call__(self, *arguments: PyTree) -> Traced:
        return self.function(*arguments)


def taking(function: Callable[..., Traced], count: int, what: str) -> Callable[..., Traced]:
    """The function as one of `count` arguments, the last of which are the hyperparameters."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be a function, not {function!r}") from error
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if any(p.kind == p.VAR_POSITIONAL for p in parameters) or len(required) == count - 1:
        return WithoutHyper(_comparable(function))
    if len(required) == count:
        return _comparable(function)
    raise InputError(
        f"{what} must take {count - 1} arguments, or {count} with the hyperparameters; it takes"
        f" {len(required)}"
    )


def _comparable(function: Callable[..., Traced]) -> Callable[..., Traced]:
    try:
        hash(function)
    except TypeError:
        return ByIdentity(function)
    return function


def require_scalar(
    what: str, function: Callable[..., Traced], dtype: str, *arguments: PyTree
) -> object:
    """Trace the function in one width; the caller keeps what is returned until the other width has
    been tried.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program, result = jax.make_jaxpr(function, return_shape=True)(*arguments)
    except Exception as error:
        raise InputError(
            f"{what} fails on an example of the data: {type(error).__name__}: {_first_line(error)}"
        ) from error
    shape = getattr(result, "shape", None)
    if shape != ():
        raise InputError(
            f"{what} must return a scalar for one example; it returned {_describe(result)}"
        )
    if not np.issubdtype(result.dtype, np.floating):
        raise InputError(
            f"{what} must return a real number; it returned one of dtype {result.dtype}"
        )
    for constant in numpy_constants(program):
        # An array that closed_over.py did not find: JAX remembers it in the first width it was used
        # in, and fails once the other one is asked for.
        if dtype == "float32" and constant.ndim > 0 and constant.dtype.itemsize == 8:
            raise InputError(
                f"{what} uses a NumPy array of dtype {constant.dtype} and shape {constant.shape}"
                " from outside: make it a JAX array first (array = jnp.asarray(array)), or pass"
                " it in data or hyperparameters"
            )
    _require_derivatives(what, function, *arguments)
    return program


def _require_derivatives(
    what: str, function: Callable[..., Traced], params: PyTree, *rest: PyTree
) -> None:
    """Trace the second derivatives, which a call to the host or a hand-made gradient may not
    have.
    """

    def twice(point: PyTree, *given: PyTree) -> PyTree:
        return jax.jvp(lambda moved: jax.grad(function)(moved, *given), (point,), (point,))

    try:
        jax.eval_shape(twice, params, *rest)
    except Exception as error:
        raise InputError(
            f"{what} cannot be differentiated twice: {type(error).__name__}: {_first_line(error)}"
        ) from error


def checked_hyperparameters(values: Mapping[str, ArrayLike] | None) -> dict[str, np.ndarray]:
    """Hyperparameters as finite float64 arrays by name."""
    if values is not None and not isinstance(values, Mapping):
        raise InputError(
            f"hyperparameters must be a dict of numbers by name; got a {type(values).__name__}"
        )
    checked = {
        name: as_numbers(f"hyperparameter {name!r}", value)
        for name, value in (values or {}).items()
    }
    for name, value in checked.items():
        if not np.all(np.isfinite(value)):
            raise InputError(f"hyperparameter {name!r} holds a value that is not finite")
    return checked


def _describe(result: object) -> str:
    shape = getattr(result, "shape", None)
    return f"an array of shape {shape}" if shape is not None else f"a {type(result).__name__}"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or "no message").splitlines()[0]


def checked_rows(data: PyTree) -> int:
    """N, the length of the leading axis that all arrays in the data share."""
    leaves = jax.tree.leaves(data)
    if not leaves:
        raise InputError("data holds no arrays")
    if any(leaf.ndim == 0 for leaf in leaves):
        raise InputError(
            "every array in data needs a leading axis over the examples; one is a scalar"
        )
    lengths = {int(leaf.shape[0]) for leaf in leaves}
    if len(lengths) != 1:
        raise InputError(f"arrays in data have different lengths: {sorted(lengths)}")
    (n_data,) = lengths
    if n_data == 0:
        raise InputError("data holds no rows")
    if n_data > MOST_IN_MEMORY and not any(isinstance(leaf, np.memmap) for leaf in leaves):
        raise InputError(
            f"data hold {n_data} rows in memory; at most {MOST_IN_MEMORY} are supported there."
            " Give them as a memory map, or split them into shards (Dask)"
        )
    for leaf in leaves:
        if leaf.dtype.kind not in "fiub":
            raise InputError(f"data must be numeric; an array has dtype {leaf.dtype}")
        if leaf.dtype.kind == "f":
            require_finite("data", leaf)
    return n_data
