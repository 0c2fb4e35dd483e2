"""Links: from a linear predictor u to the number a family wants, in NumPy and in JAX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from ornstein.types import Traced

# exp of more is infinite in float32
LARGEST_EXPONENT = 88.0


@dataclass(frozen=True)
class Link:
    """A link by the inverse that predictions use.

    >>> float(LINKS["logit"].inverse(0.0))
    0.5
    """

    name: str
    in_numpy: Callable[[Traced], Traced]
    in_jax: Callable[[Traced], Traced]
    forward: Callable[[Traced], Traced]

    def log_slope(self, u: Traced) -> Traced:
        """log |d inverse / du| of a scalar, in JAX."""
        if self.name == "log":
            return u
        return jnp.log(jnp.abs(jax.grad(self.in_jax)(u)))

    def inverse(self, u: Traced) -> Traced:
        """The number that belongs to u; NumPy's for NumPy's numbers, else JAX's."""
        if isinstance(u, jax.Array):
            return self.in_jax(u)
        with np.errstate(over="ignore"):
            return self.in_numpy(u)


def _same(u: Traced) -> Traced:
    return u


def _cloglog(u: Traced) -> Traced:
    return -np.expm1(-np.exp(u))


def _cloglog_traced(u: Traced) -> Traced:
    return -jnp.expm1(-jnp.exp(jnp.minimum(u, LARGEST_EXPONENT)))


LINKS = {
    link.name: link
    for link in (
        Link("identity", _same, _same, _same),
        Link("log", np.exp, jnp.exp, np.log),
        Link("logit", scipy.special.expit, jax.nn.sigmoid, scipy.special.logit),
        Link("probit", scipy.special.ndtr, jax.scipy.special.ndtr, scipy.special.ndtri),
        Link("cloglog", _cloglog, _cloglog_traced, lambda p: np.log(-np.log1p(-p))),
        Link(
            "softmax",
            lambda u: scipy.special.softmax(u, axis=-1),
            lambda u: jax.nn.softmax(u, axis=-1),
            np.log,
        ),
    )
}
