"""Linear predictors of the rows of a mixed model at draws of the parameters and of the groups'
effects, some rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ornstein.model.families.expected import mean_of
from ornstein.model.families.family import Law
from ornstein.model.families.likelihood import Likelihood
from ornstein.model.families.outcome import outcome_law
from ornstein.model.mixed.density import SHAPES
from ornstein.model.mixed.predict import MixedPredict, NewGroupRows
from ornstein.model.parameters import Layout
from ornstein.types import Array, PyTree

AT_ONCE = 2**22  # numbers of predictors that are worked on at a time


@dataclass(frozen=True, eq=False)
class Drawn:
    """Effects of some groups of one factor, (draws, groups, effects), and the group of each row."""

    effects: Array
    codes: Array


@dataclass(frozen=True, eq=False)
class GroupsAtDraws:
    """Rows, draws of the parameters, (draws, D), and of the effects by factor; none for the average
    group.
    """

    predict: MixedPredict
    layout: Layout
    draws: Array
    rows: NewGroupRows
    drawn: tuple[Drawn, ...] = ()

    @property
    def likelihood(self) -> Likelihood:
        """The family of single values."""
        family, link = self.predict.family, self.predict.link
        if family != "ordinal":
            return Likelihood(family, 1, infer_scale=family == "gaussian", link=link)
        (cuts,) = self.layout.shapes[self.layout.paths.index(SHAPES[family])]
        return Likelihood(family, 1, link=link, settings=(("gaps", cuts - 1),))

    @property
    def noise_scale(self) -> None:
        """σ is always among the parameters."""

    @property
    def shape(self) -> tuple[int, ...]:
        outcomes = self.likelihood.outcomes
        return (len(self.draws), len(self.rows.x), *([outcomes] if outcomes else []))

    def first(self, count: int) -> GroupsAtDraws:
        """The same of the first rows alone."""
        rows, own = self.rows, slice(0, count)
        offset = None if rows.offset is None else rows.offset[own]
        some = replace(rows, x=rows.x[own], z=rows.z[own], offset=offset, complete=None)
        drawn = tuple(replace(part, codes=part.codes[own]) for part in self.drawn)
        return replace(self, rows=some, drawn=drawn)

    def blocks(self) -> Iterator[Array]:
        """E[y | x, b, θ] of some rows after the others: (draws, rows, …)."""
        shared = self._shared()
        for rows in self._spans():
            yield mean_of(self.likelihood, self._predictors(rows), shared)

    def laws(self) -> Iterator[Law]:
        """The laws of outcomes of some rows after the others."""
        shared = self._shared()
        for rows in self._spans():
            yield outcome_law(self.likelihood, self._predictors(rows), shared)

    def _spans(self) -> Iterator[slice]:
        count = len(self.rows.x)
        some = max(1, AT_ONCE // max(1, len(self.draws) * max(1, self.likelihood.outcomes)))
        for start in range(0, max(1, count), some):
            yield slice(start, min(start + some, count))

    def _predictors(self, rows: slice) -> Array:
        coef = self.layout.unflatten(self.draws)["coef"]
        x = self.rows.x[rows]
        if self.predict.intercept:
            x = np.column_stack([x, np.ones(len(x))])
        found = coef @ x.T
        if self.rows.offset is not None:
            found = found + self.rows.offset[rows]
        for place, drawn in enumerate(self.drawn):
            z = self.rows.z[rows, self.predict.part(place)]
            for effect in range(z.shape[1]):
                found = found + drawn.effects[:, drawn.codes[rows], effect] * z[:, effect]
        return found

    def _shared(self) -> dict[str, Array]:
        """The other parameters, as the table of families has them."""
        params: PyTree = self.layout.unflatten(self.draws)
        family = self.predict.family
        if family not in SHAPES:
            return {}
        values = params[SHAPES[family]]
        if family == "ordinal":
            gaps = {f"log_gap{k}": values[:, k] for k in range(1, values.shape[1])}
            return {"cut": values[:, 0], **gaps}
        return {"log_scale": values} if family == "gaussian" else {"log_dispersion": -values}
