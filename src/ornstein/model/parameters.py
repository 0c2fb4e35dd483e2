"""Between the user's pytree of parameters and the flat vector that everything else works on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from ornstein.errors import InputError
from ornstein.types import Array, PyTree, Traced


@dataclass(frozen=True)
class Layout:
    """Tree structure and leaf shapes; hashable, so that equal layouts share compiled code."""

    tree: jax.tree_util.PyTreeDef
    shapes: tuple[tuple[int, ...], ...]
    paths: tuple[str, ...]

    @classmethod
    def of(cls, params: PyTree) -> Layout:
        leaves, tree = jax.tree_util.tree_flatten_with_path(params)
        if not leaves:
            raise InputError("init holds no parameters")
        for path, leaf in leaves:
            kind = np.asarray(leaf).dtype.kind
            if kind not in "fiu":
                raise InputError(
                    f"parameter {_path_name(path)!r} is not numeric (dtype"
                    f" {np.asarray(leaf).dtype})"
                )
        if not any(math.prod(np.shape(leaf)) for _, leaf in leaves):
            raise InputError("init holds no parameters: all its arrays are empty")
        return cls(
            tree,
            tuple(np.shape(leaf) for _, leaf in leaves),
            tuple(_path_name(path) for path, _ in leaves),
        )

    @property
    def dimension(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes)

    def flatten(self, params: PyTree) -> np.ndarray:
        """The parameters as one float64 vector."""
        leaves, tree = jax.tree_util.tree_flatten(params)
        shapes = tuple(np.shape(leaf) for leaf in leaves)
        if tree != self.tree or shapes != self.shapes:
            raise InputError(
                f"parameters of structure {tree} and shapes {shapes} do not fit the model's"
                f" {self.shapes}"
            )
        return np.concatenate([np.asarray(leaf, dtype=float).reshape(-1) for leaf in leaves])

    def unflatten(self, vector: Array | Traced) -> PyTree:
        """The pytree of a vector; leading axes of an array (..., D) are kept in front of each
        leaf's shape.
        """
        lead, leaves, start = vector.shape[:-1], [], 0
        for shape in self.shapes:
            size = math.prod(shape)
            leaves.append(vector[..., start : start + size].reshape(lead + shape))
            start += size
        return jax.tree_util.tree_unflatten(self.tree, leaves)

    def names(self) -> tuple[str, ...]:
        """One name per number: 'w[0,2]', 'bias'."""
        return tuple(
            name if shape == () else f"{name}[{','.join(map(str, index))}]"
            for name, shape in zip(self.paths, self.shapes, strict=True)
            for index in np.ndindex(*shape)
        )


def _path_name(path: Sequence[object]) -> str:
    parts = [
        str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path
    ]
    return ".".join(parts) or "theta"
