"""log p(y | u) of one row as a function of its linear predictor u, by family, and its slopes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from ornstein.model.families.likelihood import Likelihood
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
    """log p(y | u, parameters) of one row.

    >>> density = RowDensity("poisson")
    >>> round(float(density(jnp.log(2.0), jnp.array(1.0), {})), 6)  # log 2 − 2
    -1.306853
    """

    family: str

    def __call__(self, predictor: Traced, y: Traced, params: PyTree) -> Traced:
        return _DENSITIES[self.family](predictor, y, params)

    def slopes(self, predictor: Traced, y: Traced, params: PyTree) -> tuple[Traced, Traced]:
        """First and minus second derivative in u, the second at least zero."""
        first = jax.grad(self.__call__)
        slope, curved = jax.jvp(
            lambda u: first(u, y, params), (predictor,), (jnp.ones_like(predictor),)
        )
        return slope, jnp.maximum(-curved, 0.0)

    def mean(self, predictor: Traced, params: PyTree) -> Traced:
        """E[y | u]; of an ordinal response the probabilities of its levels."""
        if self.family in ("bernoulli", "binomial"):
            return jax.nn.sigmoid(predictor)
        if self.family == "gaussian":
            return predictor
        if self.family == "ordinal":
            below = jax.nn.sigmoid(cut_points(params["cutpoints"]) - predictor[..., None])
            return jnp.diff(below, axis=-1, prepend=0.0, append=1.0)
        return jnp.exp(predictor)


def cut_points(parameters: Traced) -> Traced:
    """The first cut point, then the logarithms of the steps to the next ones, as cut points."""
    return parameters[0] + jnp.concatenate(
        [jnp.zeros_like(parameters[:1]), jnp.cumsum(jnp.exp(parameters[1:]))]
    )


def _poisson_or_bernoulli(family: str) -> Callable[[Traced, Traced, PyTree], Traced]:
    likelihood = Likelihood(family, 1)
    return lambda u, y, params: likelihood.of_predictor(u, y, {})


def _binomial(u: Traced, y: Traced, params: PyTree) -> Traced:
    successes, trials = y[0], y[1]
    ways = gammaln(trials + 1.0) - gammaln(successes + 1.0) - gammaln(trials - successes + 1.0)
    return ways - successes * jax.nn.softplus(-u) - (trials - successes) * jax.nn.softplus(u)


def _negative_binomial(u: Traced, y: Traced, params: PyTree) -> Traced:
    log_size = params["log_size"]
    size = jnp.exp(log_size)
    ways = gammaln(y + size) - gammaln(size) - gammaln(y + 1.0)
    return ways - y * jax.nn.softplus(log_size - u) - size * jax.nn.softplus(u - log_size)


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
    return -jax.nn.softplus(-upper) - jax.nn.softplus(lower) + jnp.log(-jnp.expm1(lower - upper))


_DENSITIES: dict[str, Callable[[Traced, Traced, PyTree], Traced]] = {
    "bernoulli": _poisson_or_bernoulli("bernoulli"),
    "poisson": _poisson_or_bernoulli("poisson"),
    "binomial": _binomial,
    "negative-binomial": _negative_binomial,
    "gamma": _gamma,
    "ordinal": _ordinal,
}
