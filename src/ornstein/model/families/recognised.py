"""What `family="auto"` takes a response for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ornstein.model import tables
from ornstein.types import Array

FEWEST_COUNTS = 3  # different whole numbers from 0 on, before they are called counts


@dataclass(frozen=True)
class Recognised:
    """A family by name, why it was chosen, and a hint ("" for none) on another that may be meant.

    >>> recognised(np.array([0.0, 1.0, 1.0])).family
    'bernoulli'
    >>> recognised(np.array([0.0, 2.0, 1.0, 7.0])).hint
    'its whole numbers from 0 look like counts: if they are, ask for poisson or negative-binomial'
    """

    family: str
    reason: str
    hint: str = ""


def recognised(y: object) -> Recognised:
    """The family for a response without missing values: two values are bernoulli, labels
    categorical, numbers strictly between 0 and 1 beta, other numbers gaussian, with a hint where
    they look like counts or like proportions of which some are 0 or 1.
    """
    values = tables.labels(y, "y")
    if values.dtype.kind in "OUSb":
        found = len(set(values.tolist()))
        if found == 2 or values.dtype.kind == "b":
            return Recognised("bernoulli", "it has two different values")
        return Recognised("categorical", f"it has {found} different labels")
    if len(np.unique(values)) == 2:
        return Recognised("bernoulli", "it has two different values")
    if np.all((values > 0) & (values < 1)):
        return Recognised("beta", "it holds proportions between 0 and 1")
    return Recognised("gaussian", "it is numeric", _hint(values.astype(float)))


def _hint(values: Array) -> str:
    if np.any(values < 0):
        return ""
    if np.all(values == np.floor(values)) and len(np.unique(values)) >= FEWEST_COUNTS:
        return (
            "its whole numbers from 0 look like counts: if they are, ask for poisson or"
            " negative-binomial"
        )
    return (
        "its values look like proportions, but the beta family takes none of 0 or 1"
        if np.all(values <= 1.0)
        else ""
    )
