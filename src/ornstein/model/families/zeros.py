"""Counts with more zeros (or fewer) than their law has: zero-inflated and hurdle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.errors import InputError
from ornstein.model.families.bernoulli import softplus
from ornstein.model.families.counts import NegativeBinomial, Poisson, checked_counts, log_average
from ornstein.model.families.family import Auxiliary, Family, Law, Shared
from ornstein.model.families.links import LINKS
from ornstein.model.priors import Beta, Prior
from ornstein.types import Array, PyTree, Traced

ZERO = Auxiliary("zero_logit", "zero", "logit")


@dataclass(frozen=True)
class _WithZeros(Family):
    """What the four families share: a law of counts and the probability of a zero."""

    base: ClassVar[Family]

    links: ClassVar[tuple[str, ...]] = ("log",)
    discrete: ClassVar[bool] = True

    @property
    def auxiliaries(self) -> tuple[Auxiliary, ...]:
        return (*self.base.auxiliaries, ZERO)

    def checked(self, y: Array) -> Array:
        counts = checked_counts(y, self.name)
        if not np.any(counts):
            raise InputError(f"y holds zeros only; the {self.name} family has nothing to explain")
        return counts

    def start(self, y: Array) -> dict[str, float]:
        share = np.clip(0.5 * np.mean(y == 0), 0.02, 0.9)
        return {**self.base.start(y[y > 0]), "zero_logit": float(np.log(share / (1.0 - share)))}

    def default_priors(self, unit: float, middle: Array) -> dict[str, Prior]:
        return {**self.base.default_priors(unit, middle), "zero": Beta(1.0, 1.0)}

    def middle(self, y: Array, weights: Array | None) -> Array:
        above = y > 0
        return log_average(y[above], None if weights is None else weights[above])

    def log_zero(
        self, u: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        """log of the probability that the law of counts has at zero."""
        return self.base.log_density(u, jnp.zeros_like(u), auxiliary, hyperparameters)


@dataclass(frozen=True)
class _Inflated(_WithZeros):
    def log_density(
        self, u: Traced, y: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        logit = auxiliary["zero_logit"]
        counted = -softplus(logit)  # log(1 − π)
        none = jnp.logaddexp(-softplus(-logit), counted + self.log_zero(u, auxiliary, {}))
        some = counted + self.base.log_density(u, y, auxiliary, hyperparameters)
        return jnp.where(y == 0, none, some)

    def mean(self, u: Traced, auxiliary: Shared) -> Traced:
        counted = LINKS["logit"].inverse(-auxiliary["zero_logit"])
        return counted * self.base.mean(u, auxiliary)

    def outcome(self, u: Array, auxiliary: Shared) -> Law:
        share = LINKS["logit"].inverse(np.asarray(auxiliary["zero_logit"]))
        return Zeros(share, self.base.outcome(u, auxiliary), hurdle=False)


@dataclass(frozen=True)
class _Hurdle(_WithZeros):
    def log_density(
        self, u: Traced, y: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        logit = auxiliary["zero_logit"]
        some = (
            self.base.log_density(u, y, auxiliary, hyperparameters)
            - log_one_less(self.log_zero(u, auxiliary, {}))
            - softplus(logit)
        )
        return jnp.where(y == 0, -softplus(-logit), some)

    def mean(self, u: Traced, auxiliary: Shared) -> Traced:
        above, mean = LINKS["logit"].inverse(-auxiliary["zero_logit"]), self.base.mean(u, auxiliary)
        if isinstance(u, jax.Array):
            return above * mean / -jnp.expm1(self.log_zero(u, auxiliary, {}))
        return above * mean / -np.expm1(np.log(self.base.outcome(u, auxiliary).cdf(0)))

    def outcome(self, u: Array, auxiliary: Shared) -> Law:
        share = LINKS["logit"].inverse(np.asarray(auxiliary["zero_logit"]))
        return Zeros(share, self.base.outcome(u, auxiliary), hurdle=True)


@dataclass(frozen=True)
class ZeroInflatedPoisson(_Inflated):
    """Poisson counts, and with probability π a zero without counting.

    >>> ZeroInflatedPoisson().mean(np.log([4.0]), {"zero_logit": 0.0})
    array([2.])
    """

    name: ClassVar[str] = "zero-inflated-poisson"
    base: ClassVar[Family] = Poisson()
    replaces: ClassVar[str] = "statsmodels ZeroInflatedPoisson, R pscl::zeroinfl"


@dataclass(frozen=True)
class ZeroInflatedNegativeBinomial(_Inflated):
    """Negative-binomial counts, and with probability π a zero without counting."""

    name: ClassVar[str] = "zero-inflated-negative-binomial"
    base: ClassVar[Family] = NegativeBinomial()
    replaces: ClassVar[str] = "statsmodels ZeroInflatedNegativeBinomialP, R pscl::zeroinfl"


@dataclass(frozen=True)
class HurdlePoisson(_Hurdle):
    """A zero with probability π, else a Poisson count that is not zero."""

    name: ClassVar[str] = "hurdle-poisson"
    base: ClassVar[Family] = Poisson()
    replaces: ClassVar[str] = "statsmodels HurdleCountModel, R pscl::hurdle"


@dataclass(frozen=True)
class HurdleNegativeBinomial(_Hurdle):
    """A zero with probability π, else a negative-binomial count that is not zero."""

    name: ClassVar[str] = "hurdle-negative-binomial"
    base: ClassVar[Family] = NegativeBinomial()
    replaces: ClassVar[str] = "statsmodels HurdleCountModel, R pscl::hurdle"


def log_one_less(log_zero: Traced) -> Traced:
    """log(1 − exp(log_zero)) for log_zero < 0, by the form that keeps its digits."""
    near = log_zero > -0.5
    close = jnp.log(-jnp.expm1(jnp.where(near, log_zero, -1.0)))
    far = jnp.log1p(-jnp.exp(jnp.where(near, -1.0, log_zero)))
    return jnp.where(near, close, far)


@dataclass(frozen=True, eq=False)
class Zeros:
    """Zero with probability `share`, else what `counts` gives (not zero, if a hurdle)."""

    share: Array
    counts: Law
    hurdle: bool

    @property
    def _lost(self) -> Array:
        """The probability that the law of counts gives up: that of its zero, behind a hurdle."""
        return self.counts.cdf(0) if self.hurdle else np.zeros(())

    @property
    def _kept(self) -> Array:
        return (1.0 - self.share) / (1.0 - self._lost)

    def mean(self) -> Array:
        return self._kept * self.counts.mean()

    def std(self) -> Array:
        squares = np.square(self.counts.std()) + np.square(self.counts.mean())
        return np.sqrt(self._kept * squares - self.mean() ** 2)

    def cdf(self, y: Traced) -> Array:
        rising = self.share + self._kept * (self.counts.cdf(y) - self._lost)
        return np.where(np.asarray(y) < 0, 0.0, rising)

    def ppf(self, p: Traced) -> Array:
        p = np.asarray(p, dtype=float)
        above = np.clip((p - self.share) / self._kept + self._lost, 0.0, 1.0)
        return np.where(p <= self.share, 0.0, np.maximum(self.counts.ppf(above), self.hurdle))

    def rvs(self, size: Any = None, random_state: Any = None) -> Array:
        rng = np.random.default_rng(random_state)
        return self.ppf(rng.random(np.shape(self.mean()) if size is None else size))
