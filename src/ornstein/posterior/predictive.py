"""What is predicted for new rows, over the posterior: their expectation, and their outcome with the
noise of a single value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ornstein import markup
from ornstein.checks import require_memory
from ornstein.errors import InputError
from ornstein.model.families.outcome import mixture_mean, mixture_quantile, mixture_sd
from ornstein.posterior.at_draws import RowsAtDraws
from ornstein.posterior.curve import ends
from ornstein.posterior.groups_at_draws import GroupsAtDraws
from ornstein.streams import generator, require_seed
from ornstein.types import Array

SHOWN = 10  # rows in a notebook
IN_CHUNKS = "use .mean, .sd and .interval(), which need some rows at a time, or fewer draws or rows"


@dataclass(frozen=True, eq=False)
class Given:
    """Expectations that are there already, (draws, rows, …): those of a user's own function."""

    values: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def blocks(self) -> Iterator[Array]:
        """All at once."""
        yield self.values


@dataclass(frozen=True, eq=False)
class Simulated:
    """Expectations and outcomes that a model computes by itself, when they are asked for.

    Attributes:
        shape: of all outcomes, (draws, rows, …).
        expectation: makes E[y | x, θ] of all rows. outcome: draws y from a seed.
    """

    shape: tuple[int, ...]
    expectation: Callable[[], Array]
    outcome: Callable[[int], Array]

    def blocks(self) -> Iterator[Array]:
        """All at once."""
        require_memory("an array of predictions", *self.shape)
        yield self.expectation()


@dataclass(frozen=True, eq=False)
class Placed:
    """Where numbers for the complete rows belong among all rows, and whether it is one row."""

    complete: Array | None = None
    single: bool = False

    def among_all(self, found: Array) -> Array:
        """Arrays (k, rows, …) with NaN in the rows that are not complete."""
        if self.complete is not None:
            whole = np.full((len(found), len(self.complete), *found.shape[2:]), np.nan)
            whole[:, self.complete] = found
            found = whole
        return found[:, 0] if self.single else found


@dataclass(frozen=True, eq=False)
class Predictive:
    """The expectation E[y | x, θ] of rows over the posterior, and in `outcome` what a single new
    value will be, noise included. Nothing is computed before it is asked for.

    Classes have one probability each, as the last axis. Rows that were not complete are NaN.

    Attributes:
        classes: the labels of the outcome in their order, where they are known; of two, the
            expectation is the probability of the second.

    >>> import ornstein as orn
    >>> model = orn.glm(np.arange(6.0)[:, None], [1.0, 0.0, 2.0, 1.0, 3.0, 6.0], "poisson")
    >>> new = orn.laplace(model, seed=0).predict(np.array([[2.0], [4.0]]))
    >>> new.mean.shape, bool(np.all(new.sd < new.outcome.sd)), new.outcome.interval(0.5)[0].shape
    ((2,), True, (2,))
    """

    source: Given | Simulated | RowsAtDraws | GroupsAtDraws
    placed: Placed = Placed()
    classes: tuple[str, ...] = ()

    @cached_property
    def draws(self) -> Array:
        """Expectations (draws, rows, …), refused above 2 GB."""
        require_memory("an array of predictions", *self.source.shape, remedy=IN_CHUNKS)
        return self.placed.among_all(_joined(list(self.source.blocks())))

    @property
    def mean(self) -> Array:
        """The mean over the posterior, which is the mean of the outcome too."""
        return self._moments[0]

    @property
    def sd(self) -> Array:
        """The standard deviation of the expectation over the posterior; `outcome.sd` is that of a
        single value.
        """
        return self._moments[1]

    def interval(self, probability: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper ends of the central interval of the expectation.

        >>> Predictive(Given(np.arange(5.0)[:, None])).interval(0.5)
        (array([1.]), array([3.]))
        """
        levels = ends(probability)
        low, high = self._over(lambda block: np.quantile(block, levels, axis=0))
        return low, high

    @property
    def outcome(self) -> Outcome | DrawnOutcome:
        """What a single new value will be, noise included."""
        if isinstance(self.source, Simulated):
            return DrawnOutcome(self.source)
        if isinstance(self.source, Given):
            raise InputError(
                "outcomes need a regression (orn.glm, orn.regress): what a function of your own"
                " predicts says nothing about the noise"
            )
        likelihood = self.source.likelihood
        known_scale = likelihood.family == "gaussian" and not likelihood.infer_scale
        if known_scale and self.source.noise_scale is None:
            raise InputError(
                "outcomes need the noise scale, which was given to the model and is not in a file:"
                " predict(…, model=model)"
            )
        return Outcome(self.source, self.placed)

    @cached_property
    def _moments(self) -> Array:
        return self._over(lambda block: np.stack([block.mean(axis=0), block.std(axis=0, ddof=1)]))

    def _over(self, reduced: Callable[[Array], Array]) -> Array:
        """Numbers (k, rows, …) from the draws, some rows at a time."""
        return self.placed.among_all(_joined([reduced(block) for block in self.source.blocks()]))

    def __repr__(self) -> str:
        draws, rows, *classes = self.source.shape
        kinds = f" of {classes[0]} classes" if classes else ""
        return f"Predictive({rows:,} rows{kinds}, {draws:,} draws)"

    def _repr_html_(self) -> str:
        """The expectation of the first rows."""
        first = self._first()
        if first.mean.ndim == 1:
            mean = f"P({self.classes[1]})" if len(self.classes) == 2 else "mean"
            header = ["row", mean, "sd", "2.5%", "97.5%"]
            columns = [first.mean, first.sd, *first.interval()]
        else:
            labels = self.classes or range(first.mean.shape[-1])
            header = ["row", *(f"P({label})" for label in labels)]
            columns = list(first.mean.T)
        rows = [
            [str(place), *map(float, row)]
            for place, row in enumerate(np.column_stack(columns).tolist())
        ]
        return markup.sentence(repr(self)) + markup.table(header, rows)

    def _first(self) -> Predictive:
        """The first rows alone: a notebook shows no more."""
        source = self.source
        if isinstance(source, Simulated):
            source = Given(source.expectation())
        if isinstance(source, Given):
            return Predictive(Given(source.values.reshape(len(source.values), -1)[:, :SHOWN]))
        if isinstance(source, GroupsAtDraws):
            return Predictive(source.first(SHOWN))
        offset = None if source.offset is None else source.offset[:SHOWN]
        return Predictive(replace(source, matrix=source.matrix[:SHOWN], offset=offset))


@dataclass(frozen=True, eq=False)
class Outcome:
    """The law of a single new value of each row: the mixture of its laws at the draws.

    Labels count as 0, 1, … in their order; of a binomial family it is that of one trial.
    """

    source: RowsAtDraws | GroupsAtDraws
    placed: Placed

    @cached_property
    def _moments(self) -> Array:
        self._require_order()
        parts = [np.stack([mixture_mean(law), mixture_sd(law)]) for law in self.source.laws()]
        return self.placed.among_all(_joined(parts))

    @property
    def mean(self) -> Array:
        return self._moments[0]

    @property
    def sd(self) -> Array:
        """The standard deviation of a single value: the noise and the posterior together."""
        return self._moments[1]

    def interval(self, probability: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper quantiles of the mixture; no random numbers are drawn for them."""
        self._require_order()
        levels, discrete = ends(probability), self.source.likelihood.law.discrete
        parts = [
            np.stack([mixture_quantile(law, level, discrete) for level in levels])
            for law in self.source.laws()
        ]
        low, high = self.placed.among_all(_joined(parts))
        return low, high

    def draws(self, seed: int = 0) -> Array:
        """One value of each row at each draw, (draws, rows), refused above 2 GB."""
        shape = self.source.shape[:2]
        require_memory("an array of outcomes", *shape, remedy=IN_CHUNKS)
        rng = generator(seed)
        parts = []
        for law in self.source.laws():
            size = np.shape(law.mean())
            parts.append(np.asarray(law.rvs(size=size, random_state=rng), dtype=float))
        return self.placed.among_all(_joined(parts))

    def _require_order(self) -> None:
        law = self.source.likelihood.law
        if law.classes:
            raise InputError(
                f"labels of the {law.name} family have no order, so no mean or interval: look at"
                " the probabilities in .mean and .interval(), or at .outcome.draws()"
            )


@dataclass(frozen=True, eq=False)
class DrawnOutcome:
    """The law of a single new value of each row, by one value at each draw."""

    source: Simulated

    @cached_property
    def _values(self) -> Array:
        return np.asarray(self.draws(), dtype=float)

    @property
    def mean(self) -> Array:
        return self._values.mean(axis=0)

    @property
    def sd(self) -> Array:
        """The standard deviation of a single value: the noise and the posterior together."""
        return self._values.std(axis=0, ddof=1)

    def interval(self, probability: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper ends of the central interval."""
        low, high = np.quantile(self._values, ends(probability), axis=0)
        return low, high

    def draws(self, seed: int = 0) -> Array:
        """One value of each row at each draw, (draws, rows, …), refused above 2 GB."""
        require_seed(seed)
        require_memory("an array of outcomes", *self.source.shape)
        return self.source.outcome(seed)


def _joined(parts: list[Array]) -> Array:
    """Arrays (k, rows, …) one after the other."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
