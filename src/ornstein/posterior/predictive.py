"""What is expected of new rows, over the posterior."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ornstein.checks import brief, is_number, require_finite, require_memory
from ornstein.compute.precision import double
from ornstein.errors import InputError, OrnsteinError, PredictionWarning
from ornstein.model import tables
from ornstein.model.families.expected import linear_part, mean_of
from ornstein.model.families.likelihood import Predict
from ornstein.model.parameters import Layout
from ornstein.model.tables import NewRows
from ornstein.types import Array, PyTree, Traced

# Numbers of parameters, of rows and of predictors that are worked on at a time: 32 MB each.
AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class Predictive:
    """Draws of E[y | x, θ] for new rows, shape (draws, rows, …), with their mean and standard
    deviation over the posterior.
    """

    draws: Array

    @property
    def mean(self) -> Array:
        return self.draws.mean(axis=0)

    @property
    def sd(self) -> Array:
        return self.draws.std(axis=0, ddof=1)

    def interval(self, probability: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper ends of the central interval.

        >>> Predictive(np.arange(5.0)[:, None]).interval(0.5)
        (array([1.]), array([3.]))
        """
        if not is_number(probability) or not 0.0 < probability < 1.0:
            raise InputError(f"probability must lie between 0 and 1; got {brief(probability)}")
        tail = (1.0 - probability) / 2.0
        low, high = np.quantile(self.draws, [tail, 1.0 - tail], axis=0)
        return low, high


def of_regression(
    predict: Predict, layout: Layout, draws: Array, chosen: Array, centre: Array, inputs: object
) -> Array:
    """E[y | x, θ] of the chosen draws (n, D) of a regression, some of them and some rows at a time.

    Displacements from `centre` are multiplied with the rows, so that what the draws have in common
    is rounded once.
    """
    width = layout.shapes[layout.paths.index("coef")][0]
    new = predict.new_rows(inputs)
    if new is not None:
        return _of_new_rows(predict, layout, draws, chosen, centre, new)
    rows, single = _regression_rows(inputs, width, predict.columns)
    found = _expected(predict, layout, draws, chosen, centre, rows, None)
    return found[:, 0] if single else found


def _of_new_rows(
    predict: Predict, layout: Layout, draws: Array, chosen: Array, centre: Array, new: NewRows
) -> Array:
    """NaN in the rows that are not complete, with one warning for all of them."""
    complete = np.ones(new.matrix.shape[0], bool) if new.complete is None else new.complete
    if np.all(complete):
        return _expected(predict, layout, draws, chosen, centre, new.matrix, new.offset)
    warnings.warn(new.said, PredictionWarning, stacklevel=4)
    offset = None if new.offset is None else new.offset[complete]
    some = _expected(predict, layout, draws, chosen, centre, new.matrix[complete], offset)
    found = np.full((len(chosen), len(complete), *some.shape[2:]), np.nan)
    found[:, complete] = some
    return found


def _expected(
    predict: Predict,
    layout: Layout,
    draws: Array,
    chosen: Array,
    centre: Array,
    rows: Any,
    offset: Array | None,
) -> Array:
    """For rows that are a matrix with the model's columns."""
    width = rows.shape[1]
    classes = predict.likelihood.outcomes
    shape = (len(chosen), rows.shape[0], *([classes] if classes else []))
    require_memory("an array of predictions", *shape)
    found = np.empty(shape)
    some = max(1, AT_ONCE // draws.shape[1])
    wide = width if not tables.is_sparse(rows) else 1
    some_rows = max(1, AT_ONCE // max(wide, min(some, len(chosen)) * max(1, classes)))
    middle = layout.unflatten(centre[None])
    for start in range(0, len(chosen), some):
        part = chosen[start : start + some]
        moved = layout.unflatten(draws[part] - centre)
        shared = predict.likelihood.shared(layout.unflatten(draws[part]))
        for row in range(0, rows.shape[0], some_rows):
            block = _block(rows[row : row + some_rows])
            linear = linear_part(predict.likelihood, middle, block) + linear_part(
                predict.likelihood, moved, block
            )
            if offset is not None:
                part_offset = offset[row : row + some_rows]
                linear += part_offset if linear.ndim == 2 else part_offset[:, None]
            found[start : start + some, row : row + some_rows] = mean_of(
                predict.likelihood, linear, shared
            )
    return found


def _block(rows: Any) -> Any:
    """Some rows in float64, always laid out alike: then equal numbers give equal sums."""
    return rows.astype(float) if tables.is_sparse(rows) else np.ascontiguousarray(rows, float)


def _regression_rows(inputs: Any, width: int, names: tuple[str, ...]) -> tuple[Any, bool]:
    """New rows with the model's columns, and whether they were given as one row without an axis."""
    if inputs is None:
        raise InputError("predict needs rows; got None")
    rows, given = tables.features(inputs)
    single = np.ndim(inputs) == 1 and not tables.is_frame(inputs) and width > 1
    if single:
        rows = rows.T
    if tables.is_frame(inputs) and names and given != names:
        rows, given = rows[:, _places(given, names)], names
    if rows.shape[1] != width:
        raise InputError(f"predict needs rows of {width} columns; these have {rows.shape[1]}")
    known = names or given if not single else None
    require_finite("X", rows.data if tables.is_sparse(rows) else rows, known)
    return rows if tables.is_sparse(rows) else np.asarray(rows), single


def _places(given: tuple[str, ...], names: tuple[str, ...]) -> list[int]:
    """Where in the table that was given the columns of the model are."""
    places = {name: place for place, name in enumerate(given)}
    known = set(names)
    troubles = [
        ("lack", [name for name in names if name not in places]),
        ("have the unknown", [name for name in given if name not in known]),
        ("repeat the", [name for place, name in enumerate(given) if places[name] != place]),
    ]
    for trouble, found in troubles:
        if found:
            raise InputError(
                f"the rows to predict {trouble} column{'s' if len(found) > 1 else ''}"
                f" {_listed(found)}; the model was made from {_listed(list(names))}"
            )
    return [places[name] for name in names]


def _listed(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(brief(name) for name in names[:most]) + more


def of_function(
    function: Callable[..., Traced], layout: Layout, draws: Array, chosen: Array, inputs: PyTree
) -> Array:
    """What a model's own predict function returns for the chosen draws (n, D), in float64."""
    values = jax.tree.map(_checked_leaf, inputs)
    one = jax.jit(lambda theta, rows: function(layout.unflatten(theta), rows))
    try:
        with double():
            placed = jax.device_put(values)
            return np.stack([np.asarray(one(draws[place], placed)) for place in chosen]).astype(
                float
            )
    except OrnsteinError:
        raise
    # whatever a function of the user's stumbles over
    except Exception as error:
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"predict fails on these inputs: {said}") from error


def _checked_leaf(leaf: Any) -> Array:
    """One input as finite numbers, floats in double precision."""
    dense = leaf.toarray() if hasattr(leaf, "toarray") else leaf
    array = np.asarray(tables.numeric(tables.plain(dense, "inputs"), "inputs"))
    if array.dtype.kind != "f":
        return array
    require_finite("inputs", np.atleast_1d(array))
    return array.astype(float)
