"""A stand-in for a data frame, some of whose rows can be traced: its columns are arrays of JAX.

It knows what models usually ask of a frame. What it does not know is an AttributeError, and the
model is then run on all its data.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.types import PyTree, Traced

if TYPE_CHECKING:
    import pandas

# Asked of a column, these are about all rows, however many are run.
OF_ALL_ROWS = ("nunique", "unique", "max", "min", "mean", "std", "var", "median", "sum")


@dataclass(frozen=True, eq=False)
class Column:
    """A column: numbers of some rows, and the original for what is asked about all rows."""

    values: Traced
    original: pandas.Series

    def __getattr__(self, name: str) -> object:
        if name in OF_ALL_ROWS:
            return getattr(self.original, name)
        raise AttributeError(name)

    def to_numpy(self, dtype: str | type | None = None) -> Traced:
        return self.values if dtype is None else self.values.astype(dtype)

    def astype(self, dtype: PyTree) -> Column:
        return Column(self.values.astype(dtype), self.original.astype(dtype))

    @property
    def cat(self) -> Column:
        """For `column.cat.codes`."""
        _ = self.original.cat
        return self

    @property
    def codes(self) -> Column:
        return Column(self.values, self.original.cat.codes)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(np.shape(self.values))

    def __len__(self) -> int:
        return self.shape[0]

    def __jax_array__(self) -> Traced:
        return jnp.asarray(self.values)


def _operator(
    function: Callable[[PyTree, PyTree], PyTree], turned: bool
) -> Callable[[Column, PyTree], PyTree]:
    def applied(column: Column, other: PyTree) -> PyTree:
        mine, theirs = column.values, other.values if isinstance(other, Column) else other
        return function(theirs, mine) if turned else function(mine, theirs)

    return applied


for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(Column, f"__{_name}__", _operator(getattr(operator, _name), False))
    setattr(Column, f"__r{_name}__", _operator(getattr(operator, _name), True))


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, eq=False)
class Frame:
    """The columns that are numbers or labels with codes."""

    columns: dict[str, Traced]
    original: pandas.DataFrame

    @classmethod
    def of(cls, frame: pandas.DataFrame) -> Frame:
        columns = {}
        for name in frame.columns:
            column = frame[name]
            codes = getattr(getattr(column, "cat", None), "codes", column)
            if getattr(codes.dtype, "kind", "O") in "fiub":
                columns[str(name)] = np.asarray(codes)
        return cls(columns, frame)

    def __getitem__(self, name: str) -> Column:
        return Column(self.columns[name], self.original[name])

    def __getattr__(self, name: str) -> Column:
        if name.startswith("__") or name not in self.columns:
            raise AttributeError(name)
        return self[name]

    def __len__(self) -> int:
        return int(np.shape(next(iter(self.columns.values())))[0])

    def tree_flatten_with_keys(self) -> tuple[PyTree, PyTree]:
        names = tuple(self.columns)
        keyed = [(jax.tree_util.DictKey(name), self.columns[name]) for name in names]
        return keyed, (names, _Same(self.original))

    @classmethod
    def tree_unflatten(cls, known: PyTree, values: PyTree) -> Frame:
        names, same = known
        return cls(dict(zip(names, values, strict=True)), same.frame)


@dataclass(frozen=True, eq=False)
class _Same:
    """A frame that equals itself only."""

    frame: pandas.DataFrame

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.frame is other.frame

    def __hash__(self) -> int:
        return id(self.frame)
