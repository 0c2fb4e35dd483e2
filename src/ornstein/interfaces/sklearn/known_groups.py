"""Predictions of an estimator for rows of the groups it was fitted on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ornstein.checks import printable
from ornstein.errors import InputError
from ornstein.interfaces.sklearn.posterior_draws import is_outcome
from ornstein.types import Array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from sklearn.base import BaseEstimator


def known_groups(
    estimator: BaseEstimator, X: Array, groups: ArrayLike, return_std: bool | str
) -> Array | tuple[Array, Array]:
    """Predictive mean, with the groups' effects, and the standard deviation if asked for; of two
    classes the probabilities of both.
    """
    if estimator.groups_ is None:
        raise InputError("the fit has no groups: give groups to fit, or leave them out here")
    labels = np.asarray(groups)
    unknown = ~np.isin(labels, estimator.groups_)
    if np.any(unknown):
        raise InputError(
            f"the fit has no group {printable(labels[unknown][0])!r}: leave groups out, and rows"
            " are those of an average group"
        )
    found = estimator.posterior_.predict({"X": X, "groups": labels}, draws=None, groups="known")
    mean = np.asarray(found.mean)
    of_classes = len(getattr(estimator, "classes_", ())) == 2
    if of_classes:
        mean = np.column_stack([1.0 - mean, mean])
    if not return_std:
        return mean
    sd = np.asarray(found.outcome.sd if is_outcome(return_std) else found.sd)
    return mean, np.column_stack([sd, sd]) if of_classes else sd
