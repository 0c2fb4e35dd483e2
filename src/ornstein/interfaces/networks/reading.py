"""Training rows as frameworks hand them over, and whether a layer is the last: its weights times
what enters it, plus its biases, must equal what the network returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import scipy.special

from ornstein.errors import InputError, OrnsteinError
from ornstein.model import tables
from ornstein.types import Array, PyTree

# Rows that a network is run on at a time.
ROWS = 1024
# Relative: networks compute in float32, and some of their products in less. Where all is in less,
# this many times its rounding.
TOLERANCE, ROUNDINGS = 2e-3, 4.0
AUTO = "auto"


def batches(loader: PyTree, what: str = "loader") -> Iterator[tuple[PyTree, PyTree]]:
    """(inputs, y) of some rows after the others: from a pair of arrays, or from a loader that
    yields such pairs.
    """
    if isinstance(loader, tuple) and len(loader) == 2:
        yield loader
        return
    if not isinstance(loader, Iterable):
        raise InputError(
            f"{what} must be a pair (inputs, y) or yield such pairs; got a {type(loader).__name__}"
        )
    empty = True
    for batch in loader:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise InputError(f"{what} must yield pairs (inputs, y); it yields {_kind(batch)}")
        empty = False
        yield batch[0], batch[1]
    if empty:
        raise InputError(f"{what} yields no rows")


@contextmanager
def running() -> Iterator[None]:
    """Turns whatever a network stumbles over in its inputs into an error that says so."""
    try:
        yield
    except OrnsteinError:
        raise
    except Exception as error:
        said = (str(error).strip() or "no message").splitlines()[0]
        raise InputError(
            f"the network cannot be run on these inputs: {type(error).__name__}: {said}"
        ) from error


def outcomes_in(y: PyTree) -> Array:
    """What a loader yields beside its inputs, unless a mask hides some of it."""
    return np.asarray(tables.plain(y, "y"))


def require_rows(leaves: Sequence[PyTree]) -> int:
    """How many rows the arrays that enter a network have; refused where they differ."""
    counts = {len(leaf) if np.ndim(leaf) else 0 for leaf in leaves}
    if len(counts) != 1 or 0 in counts:
        raise InputError(
            "inputs must be arrays with a leading axis of rows, equally many in each; they have"
            f" {', '.join(map(str, sorted(counts))) or 'no'} rows"
        )
    return counts.pop()


def rows_of(
    features: Callable[[PyTree], Array],
    numbers: Callable[[PyTree], Array],
    loader: PyTree,
    what: str = "loader",
) -> tuple[Array, Array]:
    """Features and outcomes of all rows that a loader yields."""
    found, outcomes = [], []
    for inputs, y in batches(loader, what):
        found.append(features(inputs))
        outcomes.append(numbers(y))
        if outcomes[-1].ndim == 0:
            raise InputError(f"{what} must yield one outcome per row; it yields a single one")
        if len(found[-1]) != len(outcomes[-1]):
            raise InputError(
                f"{what} yields {len(found[-1])} inputs with {len(outcomes[-1])} outcomes"
            )
    return np.concatenate(found), np.concatenate(outcomes)


def require_matrix(features: Array, layer: str) -> None:
    """Refuse what enters a layer in another shape than (rows, features)."""
    if features.ndim != 2:
        raise InputError(
            f"what enters the layer {layer!r} has shape {features.shape}: it must be"
            " two-dimensional, (rows, features). Flatten or pool before it"
        )
    if not np.all(np.isfinite(features)):
        raise InputError(
            f"what enters the layer {layer!r} holds values that are not finite: look at the inputs"
        )


def require_numbers(*made: Array) -> None:
    """Refuse features or outputs that are not finite."""
    if not all(np.all(np.isfinite(one)) for one in made):
        raise InputError(
            "the network makes numbers that are not finite: its weights, or these inputs, hold NaN"
            " or infinity"
        )


def is_last(
    features: Array, head: tuple[Array, Array], outputs: Array, rounding: float = 0.0
) -> bool:
    """Whether the network returns W·features + b, or its softmax, log softmax or sigmoid, which
    mean the same model; `rounding` is that of its numbers.
    """
    require_numbers(features, outputs)
    logits = features @ head[0] + head[1]
    if outputs.size != logits.size:
        return False
    given = outputs.reshape(logits.shape)
    meant = [logits, scipy.special.expit(logits)]
    if logits.shape[1] > 1:
        meant = [
            logits,
            scipy.special.log_softmax(logits, axis=1),
            scipy.special.softmax(logits, axis=1),
        ]
    tolerance = max(TOLERANCE, ROUNDINGS * rounding)
    return any(_close(given, one, tolerance) for one in meant)


def not_last(layer: str) -> InputError:
    """The refusal of a layer whose product is not what the network returns."""
    return InputError(
        f"the layer {layer!r} is not the last, or is used more than once: its weights times what"
        " enters it, plus its biases, do not equal what the network returns. Name the layer that"
        " makes the logits, and let the network return them"
    )


def no_such_layer(layer: str, known: list[str]) -> InputError:
    """The refusal of a name that no linear layer has."""
    if not known:
        return InputError("the network has no linear layer: give orn.last_layer the features")
    return InputError(f"the network has no linear layer {layer!r}; there are {', '.join(known)}")


def _close(found: Array, wanted: Array, tolerance: float) -> bool:
    if not np.all(np.isfinite(found)):
        return False
    bound = tolerance * max(float(np.max(np.abs(wanted))), 1e-3)
    return bool(np.max(np.abs(found - wanted)) <= bound)


def _kind(batch: object) -> str:
    many = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
    return f"a {type(batch).__name__}{many}"
