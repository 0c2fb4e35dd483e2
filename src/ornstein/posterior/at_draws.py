"""Linear predictors of rows at draws of the parameters, some rows at a time, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ornstein.model import tables
from ornstein.model.families.expected import linear_part, mean_of, shared_part
from ornstein.model.families.family import Law
from ornstein.model.families.likelihood import Likelihood
from ornstein.model.families.outcome import outcome_law
from ornstein.model.parameters import Layout
from ornstein.types import Array

# Numbers of parameters, of rows and of predictors that are worked on at a time: 32 MB each.
AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class RowsAtDraws:
    """Rows and draws of the parameters of a regression.

    Displacements from `centre` are multiplied with the rows, so that what the draws have in common
    is rounded once. Sparse rows are never filled up.

    Attributes:
        draws: (draws, D). centre: (D,).
        matrix: (rows, columns). offset: one number per row (and class), added to the predictors.
        noise_scale: σ where it is known and not among the parameters.
    """

    likelihood: Likelihood
    layout: Layout
    draws: Array
    centre: Array
    matrix: Any
    offset: Array | None = None
    noise_scale: float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """That of all expectations: (draws, rows), with the classes as a third axis."""
        outcomes = self.likelihood.outcomes
        return (len(self.draws), self.matrix.shape[0], *([outcomes] if outcomes else []))

    def shared(self, rows: slice | Array) -> dict[str, Array]:
        """The auxiliary parameters of all draws: (draws,), or (draws, rows) where they follow
        columns.
        """
        params = self.layout.unflatten(self.draws)
        block = _block(self.matrix[rows]) if self.likelihood.parts else None
        found = shared_part(self.likelihood, params, block)
        if self.noise_scale is not None:
            found["log_scale"] = np.full(len(self.draws), np.log(self.noise_scale))
        return found

    def spans(self) -> Iterator[slice]:
        """The rows that are worked on together; one span at least."""
        columns = 1 if tables.is_sparse(self.matrix) else self.matrix.shape[1]
        numbers = len(self.draws) * max(1, self.likelihood.outcomes)
        some, rows = max(1, AT_ONCE // max(columns, numbers)), self.matrix.shape[0]
        for start in range(0, max(1, rows), some):
            yield slice(start, min(start + some, rows))

    def predictors(self, rows: slice | Array) -> Array:
        """u of some rows: (draws, rows), or with the classes as a third axis."""
        block = _block(self.matrix[rows])
        middle = linear_part(self.likelihood, self.layout.unflatten(self.centre[None]), block)
        if self.offset is not None:
            offset = self.offset[rows]
            middle = middle + (offset if offset.ndim == middle.ndim - 1 else offset[:, None])
        found = np.empty((len(self.draws), *middle.shape[1:]))
        some = max(1, AT_ONCE // self.draws.shape[1])
        for start in range(0, len(self.draws), some):
            part = self.layout.unflatten(self.draws[start : start + some] - self.centre)
            found[start : start + some] = middle + linear_part(self.likelihood, part, block)
        return found

    def blocks(self) -> Iterator[Array]:
        """E[y | x, θ] of some rows after the others: (draws, rows, …)."""
        for rows in self.spans():
            yield mean_of(self.likelihood, self.predictors(rows), self.shared(rows))

    def laws(self) -> Iterator[Law]:
        """The laws of outcomes of some rows after the others, of shape (draws, rows)."""
        for rows in self.spans():
            yield outcome_law(self.likelihood, self.predictors(rows), self.shared(rows))


def _block(rows: Any) -> Any:
    """Some rows in float64, always laid out alike: then equal numbers give equal sums."""
    return rows.astype(float) if tables.is_sparse(rows) else np.ascontiguousarray(rows, float)
