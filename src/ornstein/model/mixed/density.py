"""log p(y | u) of one row as a function of its linear predictor u, by family, and its slopes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from ornstein.model.families.family import Family
from ornstein.model.families.table import rebuilt
from ornstein.types import PyTree, Traced

# What a family has besides the linear predictor, as a parameter on the whole real line.
SHAPES = {
    "gaussian": "log_scale",
    "negative-binomial": "log_size",
    "gamma": "log_shape",
    "ordinal": "cutpoints",
}
FAMILIES = ("gaussian", "bernoulli", "binomial", "poisson", *list(SHAPES)[1:])
FAR = 40.0  # a cut point so far away leaves no probability beyond it


@dataclass(frozen=True)
class RowDensity:
    """log p(y | u, parameters) of one row; `link` is empty for the family's first.

    >>> density = RowDensity("poisson")
    >>> round(float(density(jnp.log(2.0), jnp.array(1.0), {})), 6)  # log 2 − 2
    -1.306853
    """

    family: str
    link: str = ""

    def __call__(self, predictor: Traced, y: Traced, params: PyTree) -> Traced:
        if self.link:
            page, shared = self._page(params)
            return page.log_density(predictor, y, shared, None)
        return _DENSITIES[self.family](predictor, y, params)

    def slopes(self, predictor: Traced, y: Traced, params: PyTree) -> tuple[Traced, Traced]:
        """First and minus second derivative in u, the second at least zero."""
        if self.family in _SLOPES and not self.link:
            return _SLOPES[self.family](predictor, y)
        first = jax.grad(self.__call__)
        slope, curved = jax.jvp(
            lambda u: first(u, y, params), (predictor,), (jnp.ones_like(predictor),)
        )
        return slope, jnp.maximum(-curved, 0.0)

    def mean(self, predictor: Traced, params: PyTree) -> Traced:
        """E[y | u]; of an ordinal response the probabilities of its levels."""
        if self.link:
            page, shared = self._page(params)
            return page.mean(predictor, shared)
        if self.family in ("bernoulli", "binomial"):
            return jax.nn.sigmoid(predictor)
        if self.family == "gaussian":
            return predictor
        if self.family == "ordinal":
            below = jax.nn.sigmoid(cut_points(params["cutpoints"]) - predictor[..., None])
            return jnp.diff(below, axis=-1, prepend=0.0, append=1.0)
        return jnp.exp(predictor)

    def _page(self, params: PyTree) -> tuple[Family, dict[str, Traced]]:
        """The family with this link, and its auxiliary parameters."""
        if self.family != "ordinal":
            return rebuilt(self.family, self.link, ()), {}
        cuts = params["cutpoints"]
        gaps = {f"log_gap{k}": cuts[k] for k in range(1, len(cuts))}
        return rebuilt(self.family, self.link, (("gaps", len(gaps)),)), {"cut": cuts[0], **gaps}


def cut_points(parameters: Traced) -> Traced:
    """The first cut point, then the logarithms of the steps to the next ones, as cut points."""
    return parameters[0] + jnp.concatenate(
        [jnp.zeros_like(parameters[:1]), jnp.cumsum(jnp.exp(parameters[1:]))]
    )


@jax.custom_jvp
def _softplus(u: Traced) -> Traced:
    """log(1 + exp u), whose derivatives of all orders are those of one function; JAX's own grow
    with each order, and compiling them takes longer than to use them.
    """
    return jax.nn.softplus(u)


@_softplus.defjvp
def _softplus_slope(primals: tuple[Traced], tangents: tuple[Traced]) -> tuple[Traced, Traced]:
    return _softplus(primals[0]), jax.nn.sigmoid(primals[0]) * tangents[0]


def _bernoulli(u: Traced, y: Traced, params: PyTree) -> Traced:
    # not yu − softplus(u), whose slope is lost to rounding at large u
    return -_softplus((1.0 - 2.0 * y) * u)


def _gaussian(u: Traced, y: Traced, params: PyTree) -> Traced:
    log_scale = params["log_scale"]
    fit = ((y - u) * jnp.exp(-log_scale)) ** 2
    return -0.5 * fit - log_scale - 0.5 * np.log(2.0 * np.pi)


def _poisson(u: Traced, y: Traced, params: PyTree) -> Traced:
    return y * u - jnp.exp(u) - gammaln(y + 1.0)


def _binomial(u: Traced, y: Traced, params: PyTree) -> Traced:
    successes, trials = y[0], y[1]
    ways = gammaln(trials + 1.0) - gammaln(successes + 1.0) - gammaln(trials - successes + 1.0)
    return ways - successes * _softplus(-u) - (trials - successes) * _softplus(u)


def _negative_binomial(u: Traced, y: Traced, params: PyTree) -> Traced:
    log_size = params["log_size"]
    size = jnp.exp(log_size)
    ways = gammaln(y + size) - gammaln(size) - gammaln(y + 1.0)
    return ways - y * _softplus(log_size - u) - size * _softplus(u - log_size)


def _gamma(u: Traced, y: Traced, params: PyTree) -> Traced:
    log_shape = params["log_shape"]
    shape = jnp.exp(log_shape)
    constant = shape * log_shape - gammaln(shape) + (shape - 1.0) * jnp.log(y)
    return constant - shape * (u + y * jnp.exp(-u))


def _ordinal(u: Traced, y: Traced, params: PyTree) -> Traced:
    """log(s(upper − u) − s(lower − u)), with lower < upper, written without a difference."""
    cuts = cut_points(params["cutpoints"])
    level = jnp.arange(cuts.shape[0])
    upper = jnp.sum(jnp.where(level == y, cuts, 0.0)) - u
    lower = jnp.sum(jnp.where(level == y - 1, cuts, 0.0)) - u
    upper, lower = jnp.where(y < cuts.shape[0], upper, FAR), jnp.where(y > 0, lower, -FAR)
    return -_softplus(-upper) - _softplus(lower) + jnp.log(-jnp.expm1(lower - upper))


_DENSITIES: dict[str, Callable[[Traced, Traced, PyTree], Traced]] = {
    "gaussian": _gaussian,
    "bernoulli": _bernoulli,
    "poisson": _poisson,
    "binomial": _binomial,
    "negative-binomial": _negative_binomial,
    "gamma": _gamma,
    "ordinal": _ordinal,
}


def _logistic_slopes(successes: Traced, trials: Traced | float, u: Traced) -> tuple[Traced, Traced]:
    probability = jax.nn.sigmoid(u)
    return successes - trials * probability, trials * probability * (1.0 - probability)


def _poisson_slopes(u: Traced, y: Traced) -> tuple[Traced, Traced]:
    mean = jnp.exp(u)
    return y - mean, mean


# Derivatives by hand where they are short: they are differentiated twice more.
_SLOPES: dict[str, Callable[[Traced, Traced], tuple[Traced, Traced]]] = {
    "bernoulli": lambda u, y: _logistic_slopes(y, 1.0, u),
    "binomial": lambda u, y: _logistic_slopes(y[0], y[1], u),
    "poisson": _poisson_slopes,
}
