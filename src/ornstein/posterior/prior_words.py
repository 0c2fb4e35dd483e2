"""What a summary says of priors: each in words, and which of them outweigh the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ornstein.checks import FULL_LIMIT, printable
from ornstein.model.regression import GLM
from ornstein.types import Array

HALF = 0.5  # of what is known about a parameter
NAMED = 3


def priors_of(names: Iterable[object], priors: Mapping[str, str]) -> list[str]:
    """The prior of each parameter: of `x[label]` that of x, of `log_scale` that of the scale.

    >>> priors_of(["x[b]", "log_scale", "z"], {"x": "Normal(0, 1)", "scale": "Gamma(2, 1)"})
    ['Normal(0, 1)', 'Gamma(2, 1)', '']
    """
    return [
        next((priors[key] for key in _keys(name) if key in priors), "") for name in map(str, names)
    ]


def _keys(name: str) -> tuple[str, ...]:
    of_class = name.rpartition("[")[0] if name.endswith("]") else name
    return name, of_class, of_class.removeprefix("log_"), of_class.removesuffix("_logit")


def shares_of_priors(model: object, mean: Array, covariance: Array) -> Array | None:
    """Of what is known about each parameter, the part that its prior says: the diagonal of ΣΛ, with
    Λ the Hessian of −log prior; None where it cannot be said.
    """
    if not isinstance(model, GLM) or covariance.ndim == 1 or model.dim > FULL_LIMIT:
        return None
    return np.einsum("ij,ji->i", covariance, model.prior_hessian(mean))


def outweighed(names: Sequence[str], shares: Array | None) -> tuple[str, ...]:
    """The parameters of which the prior says more than the data."""
    if shares is None or len(shares) != len(names):
        return ()
    return tuple(name for name, share in zip(names, shares, strict=True) if share > HALF)


def sentence(names: Sequence[str]) -> str:
    """What stands in the corner of a summary.

    >>> sentence(["x", "z"])
    'the prior outweighs the data: x, z'
    """
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    listed = ", ".join(printable(name, 30) for name in names[:NAMED])
    return f"the prior outweighs the data: {listed}{more}"
