"""Predictions by a function of the user's, draw by draw."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ornstein.checks import require_finite, require_memory
from ornstein.compute.precision import double
from ornstein.errors import InputError, OrnsteinError
from ornstein.model import tables
from ornstein.model.parameters import Layout
from ornstein.posterior.predictive import Simulated
from ornstein.types import Array, PyTree, Traced


class OwnPredictive(ABC):
    """A predict function that knows the law of outcomes too, such as a NumPyro model's."""

    @abstractmethod
    def simulated(self, layout: Layout, draws: Array, inputs: PyTree, seed: int) -> Simulated:
        """Expectations and outcomes for new rows at draws (n, D)."""

    def __call__(self, params: PyTree, inputs: PyTree) -> Traced:
        raise InputError("this model predicts from draws: call predict on its posterior")


class OwnGroups(ABC):
    """A model that brings its own groups for ArviZ, by the names of its sites."""

    @abstractmethod
    def arviz_group(self, name: str, draws: Array, seed: int) -> dict[str, Array]:
        """The variables of a group for draws (chains, draws, D)."""


def of_function(
    function: Callable[..., Traced], layout: Layout, draws: Array, inputs: PyTree
) -> Array:
    """What a model's own predict function returns for draws (n, D), in float64."""
    values = jax.tree.map(_checked_leaf, inputs)
    one = jax.jit(lambda theta, rows: function(layout.unflatten(theta), rows))
    try:
        with double():
            placed = jax.device_put(values)
            shape = jax.eval_shape(one, draws[0], placed).shape
            require_memory("an array of predictions", len(draws), *shape)
            return np.stack([np.asarray(one(draw, placed)) for draw in draws]).astype(float)
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
