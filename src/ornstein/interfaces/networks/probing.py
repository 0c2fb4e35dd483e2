"""What enters the last layer of a network that is a function of its parameters: the network is run
with the identity in place of the layer's weights, and returns the features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.errors import InputError
from ornstein.interfaces.networks.reading import (
    ROWS,
    is_last,
    not_last,
    require_matrix,
    require_numbers,
    require_rows,
    running,
)
from ornstein.model import tables
from ornstein.types import Array, PyTree, Traced

# (weights (features, outputs), biases (outputs,), inputs) ↦ outputs of all rows
Run = Callable[[Traced, Traced, PyTree], Traced]


@dataclass(frozen=True, eq=False)
class FunctionalNetwork:
    """A network of JAX arrays; `run` takes the parameters of its last layer and inputs."""

    framework: str
    layer: str
    run: Run
    weights: Array
    biases: Array

    def head(self) -> tuple[Array, Array]:
        return np.asarray(self.weights, dtype=float), np.asarray(self.biases, dtype=float)

    def features(self, inputs: PyTree) -> Array:
        """What enters the layer; inputs are an array, or a tree of arrays, with a leading axis of
        rows.
        """
        leaves = jax.tree.leaves(inputs)
        for leaf in leaves:
            tables.require_unmasked(leaf, "inputs")
        count = require_rows(leaves)
        with running():
            parts = [
                self._some(jax.tree.map(lambda leaf, at=start: leaf[at : at + ROWS], inputs))
                for start in range(0, count, ROWS)
            ]
        return np.concatenate(parts)

    def _some(self, inputs: PyTree) -> Array:
        outputs, rounding = _as_outputs(self.run(self.weights, self.biases, inputs))
        require_numbers(outputs)
        if outputs.ndim == 1:
            features = self._by_slopes(inputs)
        else:
            size = self.weights.shape[0]
            identity = jnp.eye(size, dtype=self.weights.dtype)
            try:
                found = self.run(identity, jnp.zeros(size, self.biases.dtype), inputs)
            except (TypeError, ValueError) as error:
                # what follows the layer depends on the number of its outputs
                raise not_last(self.layer) from error
            features = np.asarray(found, dtype=float)
        require_matrix(features, self.layer)
        fits = features.shape[1] == self.weights.shape[0]
        if not fits or not is_last(features, self.head(), outputs, rounding):
            raise not_last(self.layer)
        return features

    def _by_slopes(self, inputs: PyTree) -> Array:
        """Where a network takes the one number out of its outputs: how that number changes with
        each weight.
        """
        if self.weights.shape[1] != 1:
            raise not_last(self.layer)

        def of_one(weights: Traced, row: PyTree) -> Traced:
            one = jax.tree.map(lambda leaf: leaf[None], row)
            return self.run(weights, self.biases, one)[0]

        rows = jax.tree.map(jnp.asarray, inputs)
        slopes = jax.vmap(jax.grad(of_one), (None, 0))(jnp.asarray(self.weights), rows)
        return np.asarray(slopes[..., 0], dtype=float)


def _as_outputs(found: PyTree) -> tuple[Array, float]:
    """What the network returns in double precision, and the rounding of its numbers."""
    if not isinstance(found, jax.Array | np.ndarray):
        raise InputError(
            f"the network returns a {type(found).__name__}; wrap it so that it returns the logits"
        )
    floats = jnp.issubdtype(found.dtype, jnp.floating)
    rounding = float(jnp.finfo(found.dtype).eps) if floats else 0.0
    return np.asarray(found, dtype=float), rounding


def first_that_is_last(
    candidates: list[str], network: Callable[[str], FunctionalNetwork], inputs: PyTree
) -> FunctionalNetwork:
    """The last of the linear layers that is the network's last, on a few rows."""
    require_rows(jax.tree.leaves(inputs))
    few = jax.tree.map(lambda leaf: leaf[:8], inputs)
    refusals = []
    for name in reversed(candidates):
        found = network(name)
        try:
            found.features(few)
        except InputError as error:
            refusals.append(error)
            continue
        return found
    raise refusals[0]
