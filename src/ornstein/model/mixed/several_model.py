"""Mixed models with several factors, nested or crossed, as Models.

An example is a set of groups that share no row with others (model/mixed/several.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy.sparse
from scipy.sparse.csgraph import connected_components

from ornstein.checks import require_memory
from ornstein.errors import InputError
from ornstein.model.mixed.model import MixedModel, log_prior_of
from ornstein.model.mixed.predict import MixedPredict
from ornstein.model.mixed.priors import MixedPriors
from ornstein.model.mixed.several import Grouping, SeveralMarginal
from ornstein.model.mixed.start import first_guess, parameter_names
from ornstein.model.mixed.table import Rows, ragged_data
from ornstein.model.model import CHUNK_NUMBERS, Span, spans_of
from ornstein.types import Array

MOST_OTHERS = 2000  # effects of one example beside those of the factor with the most groups
MOST_TOGETHER = 4096  # examples; XLA factorises many more matrices at once in a way that may hang
NEWTON_STEPS = 6  # passes over the rows of an example for one value, about
REMEDY = "leave a factor out, or make it one of fixed effects"


@dataclass(frozen=True, eq=False)
class FactorGroups:
    """The groups of one factor.

    Attributes:
        labels: of all groups, in order. places: (examples, most groups of an example), which of
            them each is; −1 where an example has fewer.
    """

    labels: Array
    places: Array


class SeveralModel(MixedModel):
    """A mixed model whose rows several factors group; made by `regress`."""

    marginal: SeveralMarginal  # type: ignore[assignment]
    groups: tuple[FactorGroups, ...]

    @property
    def nodes(self) -> int:
        return 1 if self.family == "gaussian" else NEWTON_STEPS

    def spans(self, rows: int, block: int) -> Iterator[Span]:
        """Examples to be looked at together: their blocks of H are held at once, for all
        parameters.
        """
        grouping = self.marginal.grouping
        held = grouping.others * grouping.levels[grouping.inner] * self.dim
        most = min(CHUNK_NUMBERS // held, MOST_TOGETHER)
        for length, first, stop in zip(
            self.buckets.lengths, self.buckets.firsts, self.buckets.stops, strict=True
        ):
            work = max(1.0, length * self.nodes / self.dim)
            yield from spans_of(first, stop, max(1, min(int(rows / work), most)), block)


def several_model(
    rows: Rows,
    predict: MixedPredict,
    levels: tuple[Array, ...],
    priors: MixedPriors | str | None = None,
) -> SeveralModel:
    """The model of checked rows, whose `codes` have a column for each factor."""
    counts = [len(labels) for labels in levels]
    examples = _components(rows.codes, counts)
    local = [_within(belongs, examples.count) for belongs in examples.of_level]
    within = np.column_stack([local[f][rows.codes[:, f]] for f in range(len(levels))]).astype(
        np.int32
    )
    table, sizes, order = replace(rows, codes=examples.of_row, level=within).sorted_by_group()
    grouping = Grouping(
        tuple(count for _, count in predict.factors),
        tuple(int(np.bincount(belongs).max()) for belongs in examples.of_level),
        int(np.argmax(counts)),
    )
    params, spread = first_guess(table, predict.family, predict.link, predict.covariance)
    _require_small(grouping, predict, sum(np.size(value) for value in params.values()))
    marginal = SeveralMarginal(predict.density, predict.covariance, grouping)
    data = ragged_data(table, sizes, sizes)
    own = (predict.family, predict.covariance)
    prior, hyper = log_prior_of(table, *own, priors, spread, predict.columns)
    base = SeveralModel(
        marginal,
        {name: leaf[0:1] for name, leaf in data.items()},
        prior,
        params,
        predict,
        hyper,
        names=parameter_names(params, predict.columns, predict.covariance),
    )
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return base.replace(
        data=data,
        n_data=len(sizes),
        family=predict.family,
        covariance=predict.covariance,
        marginal=marginal,
        table=table,
        counts=sizes,
        levels=np.arange(len(sizes)),
        columns=predict.columns,
        first=base.init,
        quadrature_error=0.0,
        groups=tuple(
            FactorGroups(labels, _places(place[belongs], inside, len(sizes)))
            for labels, belongs, inside in zip(levels, examples.of_level, local, strict=True)
        ),
    )


@dataclass(frozen=True, eq=False)
class Examples:
    """Which example each row and each group of each factor belongs to."""

    count: int
    of_row: Array
    of_level: tuple[Array, ...]


def _components(codes: Array, counts: list[int]) -> Examples:
    """The examples: groups are in one where rows connect them."""
    starts = np.cumsum([0, *counts])
    first = np.concatenate([codes[:, 0]] * (len(counts) - 1))
    second = np.concatenate([codes[:, f] + starts[f] for f in range(1, len(counts))])
    size = int(starts[-1])
    graph = scipy.sparse.coo_matrix((np.ones(len(first)), (first, second)), (size, size))
    count, found = connected_components(graph, directed=False)
    of_level = tuple(found[a:b] for a, b in pairwise(starts))
    return Examples(int(count), of_level[0][codes[:, 0]], of_level)


def _within(belongs: Array, count: int) -> Array:
    """The number of each group within its example."""
    order = np.argsort(belongs, kind="stable")
    sizes = np.bincount(belongs, minlength=count)
    found = np.empty(len(belongs), dtype=np.int64)
    found[order] = np.arange(len(belongs)) - (np.cumsum(sizes) - sizes)[belongs[order]]
    return found


def _places(examples: Array, within: Array, count: int) -> Array:
    found = np.full((count, int(within.max()) + 1), -1, dtype=np.int64)
    found[examples, within] = np.arange(len(examples))
    return found


def _require_small(grouping: Grouping, predict: MixedPredict, dimension: int) -> None:
    """Refuse factors whose effects cannot be held in one matrix."""
    if grouping.others > MOST_OTHERS:
        inner = predict.factors[grouping.inner][0]
        names = " and ".join(repr(name) for name in predict.names)
        raise InputError(
            f"the groups of {names} are crossed: {grouping.others:,} effects beside those of"
            f" {inner!r} would have to be held in one matrix, more than {MOST_OTHERS:,}: {REMEDY}"
        )
    held = grouping.levels[grouping.inner]
    require_memory("the matrix of effects", dimension, held, grouping.others, remedy=REMEDY)
