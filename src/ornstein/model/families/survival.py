"""Exponential and Weibull: times until an event, right censored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from ornstein.errors import InputError
from ornstein.model.families.family import Auxiliary, Family, Law, Shared, require_spread
from ornstein.model.priors import Gamma, Prior
from ornstein.types import Array, PyTree, Traced

SHAPE = Auxiliary("log_shape", "shape")


def checked_times(y: Array, family: str) -> Array:
    """Times above 0 and events 0 or 1, not all censored, or a sentence."""
    times, events = y[:, 0], y[:, 1]
    if np.any(times <= 0):
        raise InputError(
            f"the {family} family needs times above 0; the smallest is {np.min(times):g}"
        )
    others = events[(events != 0) & (events != 1)]
    if len(others):
        raise InputError(
            "the second column of y says whether the event was seen, 1, or the time is censored, 0;"
            f" it holds {others[0]:g}. In a formula, censored(time, event == {others[0]:g}) says"
            " which number marks the events"
        )
    if not np.any(events):
        raise InputError(
            "every time in y is censored: no event was seen, and the rate cannot be inferred"
        )
    return y


def log_time_per_event(y: Array, weights: Array | None) -> Array:
    """log of the time under observation for each event."""
    times, events = np.average(y, axis=0, weights=weights)
    return np.asarray(np.log(times / events))


@dataclass(frozen=True)
class Exponential(Family):
    """Times with mean exp(u) at a constant rate; y has two columns, time and event.

    >>> Exponential().outcome(np.log([3.0]), {}).mean()
    array([3.])
    """

    name: ClassVar[str] = "exponential"
    links: ClassVar[tuple[str, ...]] = ("log",)
    columns: ClassVar[tuple[str, ...]] = ("time", "event")
    replaces: ClassVar[str] = "R survreg(dist = 'exponential')"

    def checked(self, y: Array) -> Array:
        return checked_times(y, self.name)

    def log_density(
        self, u: Traced, y: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        return -y[1] * u - y[0] * jnp.exp(-u)

    def outcome(self, u: Array, auxiliary: Shared) -> Law:
        from scipy.stats import expon

        return expon(scale=self.mean(u, auxiliary))

    def middle(self, y: Array, weights: Array | None) -> Array:
        return log_time_per_event(y, weights)


@dataclass(frozen=True)
class Weibull(Family):
    """Times t with P(T > t) = exp(−(t/exp u)^k), the shape k inferred; y has two columns, time and
    event.

    >>> Weibull().outcome(np.log([3.0]), {"log_shape": 0.0}).mean()
    array([3.])
    """

    name: ClassVar[str] = "weibull"
    links: ClassVar[tuple[str, ...]] = ("log",)
    columns: ClassVar[tuple[str, ...]] = ("time", "event")
    replaces: ClassVar[str] = "R survreg(dist = 'weibull')"

    @property
    def auxiliaries(self) -> tuple[Auxiliary, ...]:
        return (SHAPE,)

    def checked(self, y: Array) -> Array:
        return checked_times(y, self.name)

    def start(self, y: Array) -> dict[str, float]:
        if np.all(y[:, 1] == 1):
            require_spread(y[:, 0], "shape")
        return {"log_shape": 0.0}

    def default_priors(self, unit: float, middle: Array) -> dict[str, Prior]:
        return {"shape": Gamma(1.5, 0.5)}

    def log_density(
        self, u: Traced, y: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        log_time, log_shape = jnp.log(y[0]), auxiliary["log_shape"]
        power = jnp.exp(log_shape) * (log_time - u)
        return y[1] * (log_shape + power - log_time) - jnp.exp(power)

    def mean(self, u: Traced, auxiliary: Shared) -> Traced:
        scale, less = self.inverse_link.inverse(u), -auxiliary["log_shape"]
        if isinstance(u, jax.Array):
            return scale * jnp.exp(jax.scipy.special.gammaln(1.0 + jnp.exp(less)))
        return scale * scipy.special.gamma(1.0 + np.exp(less))

    def outcome(self, u: Array, auxiliary: Shared) -> Law:
        from scipy.stats import weibull_min

        return weibull_min(np.exp(auxiliary["log_shape"]), scale=np.exp(u))

    def middle(self, y: Array, weights: Array | None) -> Array:
        return log_time_per_event(y, weights)
