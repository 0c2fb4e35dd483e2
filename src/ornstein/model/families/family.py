"""What a family of laws says about itself: the columns of the table of families.

A family is a frozen dataclass, one page each, with the link and the numbers that are fixed as its
fields. u is an example's linear predictor: a scalar, or one entry per class. `auxiliary` are the
parameters that all examples share beside the coefficients, unconstrained, by the name that the
sampler gives them ("log_scale").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol

import numpy as np

from ornstein.checks import brief
from ornstein.errors import InputError
from ornstein.model.families.links import LINKS, Link
from ornstein.model.priors import Prior
from ornstein.types import Array, PyTree, Traced

# What `Family.outcome` takes for the auxiliary parameters: arrays that broadcast against u.
Shared = Mapping[str, Traced]


class Law(Protocol):
    """A law of outcomes, one for each entry of an array: SciPy's frozen distributions are such."""

    def mean(self) -> Traced: ...

    def std(self) -> Traced: ...

    def cdf(self, y: Traced) -> Traced: ...

    def ppf(self, p: Traced) -> Traced: ...

    @property
    def rvs(self) -> Callable[..., Any]: ...


@dataclass(frozen=True)
class Auxiliary:
    """A parameter that all examples share beside the coefficients.

    Attributes:
        name: what the sampler calls it, "log_scale".
        word: what users call it on its own scale, in `priors=` and in summaries: "scale".
        link: from the sampler's number to the user's.
        level: whether it is a place on the predictor's scale; its prior, like the intercept's, is
            that for a row of averages.
    """

    name: str
    word: str
    link: str = "log"
    level: bool = False

    def natural(self, value: Traced) -> Traced:
        """The number on the scale that users know."""
        return LINKS[self.link].inverse(value)

    def log_slope(self, value: Traced) -> Traced:
        """The logarithm of d natural / d value, in JAX."""
        return LINKS[self.link].log_slope(value)


@dataclass(frozen=True)
class Family:
    """The columns of the table and what most families share; pages override what differs.

    Class attributes:
        name: hyphenated.
        links: the first is the default.
        elementary: a step is sums, products and functions of one number (`rows.choice.Traits`).
        polynomial: the slope of a row is sums and products alone.
        labels: y holds labels, which become codes 0, 1, …
        classes: the linear predictor has one entry per label.
        ordered: the labels have an order.
        intercepts: there may be an intercept.
        columns: names of the columns of y where it has several.
        discrete: outcomes are whole numbers.
        follows_response: the linear predictor has the unit of y, and so have the coefficients.
        replaces: the call in statsmodels or R.
    """

    link: str = ""

    name: ClassVar[str]
    links: ClassVar[tuple[str, ...]]
    elementary: ClassVar[bool] = True
    polynomial: ClassVar[bool] = False
    labels: ClassVar[bool] = False
    classes: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    intercepts: ClassVar[bool] = True
    columns: ClassVar[tuple[str, ...]] = ()
    discrete: ClassVar[bool] = False
    follows_response: ClassVar[bool] = False
    replaces: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not self.link:
            object.__setattr__(self, "link", self.links[0])
        if self.link not in self.links:
            raise InputError(
                f"the {self.name} family has no link {brief(self.link)}; choose one of {self.links}"
            )

    @property
    def settings(self) -> tuple[tuple[str, float], ...]:
        """The numbers that are fixed, by name."""
        return tuple(
            (field.name, getattr(self, field.name))
            for field in fields(self)
            if field.name != "link" and getattr(self, field.name) is not None
        )

    @property
    def inverse_link(self) -> Link:
        return LINKS[self.link]

    @property
    def outcomes(self) -> int:
        """How many probabilities `mean` returns for an example, 0 where it is one number."""
        return 0

    def of_classes(self, count: int) -> Family:
        """The family for as many labels."""
        return self

    @property
    def auxiliaries(self) -> tuple[Auxiliary, ...]:
        """The parameters that all examples share beside the coefficients."""
        return ()

    def checked(self, y: Array) -> Array:
        """The response as the density takes it, or a sentence on what is wrong with it."""
        return y

    def start(self, y: Array) -> dict[str, float]:
        """Where the search for the mode starts, by the names of the auxiliary parameters."""
        return {}

    def unit(self, y: Array, weights: Array | None) -> float:
        """What counts as one unit of the linear predictor: sd(y) if it has y's unit, else 1."""
        if not self.follows_response:
            return 1.0
        mean = np.average(y, weights=weights)
        spread = float(np.sqrt(np.average((y - mean) ** 2, weights=weights)))
        return spread if spread > 1e-12 * abs(mean) else 1.0

    def default_priors(self, unit: float, middle: Array) -> dict[str, Prior]:
        """Proper priors of the auxiliary parameters by their `word`, on the user's scale."""
        return {}

    def log_density(
        self, u: Traced, y: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        """log p(y | u) of one example, in JAX."""
        raise NotImplementedError

    def mean(self, u: Traced, auxiliary: Shared) -> Traced:
        """E[y | u], for NumPy's numbers or JAX's; probabilities where y holds labels."""
        return self.inverse_link.inverse(u)

    def outcome(self, u: Array, auxiliary: Shared) -> Law:
        """The law of y given u (draws, rows), in NumPy."""
        raise NotImplementedError

    def slope_variance(self, auxiliary: Shared) -> float | None:
        """The variance of ∂ log p/∂u where it does not depend on the law of the data; None where
        only the rows tell.
        """
        return None

    def middle(self, y: Array, weights: Array | None) -> Array:
        """The linear predictor of the average response: where the intercept's prior is centred."""
        return np.asarray(self.inverse_link.forward(np.average(y, axis=0, weights=weights)))

    def without(self, y: Array, offset: Array) -> Array:
        """The response with what the offset explains taken off, where that has its unit."""
        return y - offset if self.follows_response else y


def require_spread(y: Array, what: str, advice: str = "") -> None:
    """A sentence where y is constant, so that nothing says how widely it is spread."""
    if np.ptp(y) == 0.0:
        raise InputError(f"y is constant: the {what} cannot be inferred. {advice}".rstrip(". "))
