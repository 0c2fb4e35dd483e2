"""A response checked and coded for its family."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ornstein.checks import brief, require_finite
from ornstein.errors import InputError
from ornstein.model import tables
from ornstein.model.families.family import Family


def checked_response(
    y: object, family: Family, n_data: int, known: ArrayLike | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """The response as the family's density takes it, and its classes in order where it holds
    labels, those `known` or those found.
    """
    if family.columns:
        values = _columns_of(y, family)
    else:
        values = tables.labels(y, "y") if family.labels else tables.numbers(y, "y")
    if values.shape[0] != n_data:
        raise InputError(f"X has {n_data} rows but y has {values.shape[0]}")
    if family.ordered:
        return _ordered(y, values, known)
    if family.labels:
        return (
            _labels(values, family.name)
            if known is None
            else _known_labels(values, family.name, np.asarray(known))
        )
    require_finite("y", values)
    values = family.checked(values)
    return (values if values.dtype.kind == "f" else values.astype(float)), None


def _columns_of(y: object, family: Family) -> np.ndarray:
    """A response of several columns, as finite numbers."""
    values, wanted = tables.features(y)[0], len(family.columns)
    if tables.is_sparse(values) or values.ndim != 2 or values.shape[1] != wanted:
        raise InputError(
            f"the {family.name} family needs a y of {wanted} columns,"
            f" {' and '.join(family.columns)}; it has shape {np.shape(values)}"
        )
    return np.asarray(values, dtype=float)


def _ordered(
    y: object, values: np.ndarray, known: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """Places in the order of the labels: that of `known`, of an ordered pandas column or Arrow
    dictionary, or of numbers. Text has no order of its own.
    """
    levels = getattr(getattr(y, "dtype", None), "categories", None) if known is None else known
    if levels is None and values.dtype.kind not in "iuf":
        raise InputError(
            "the ordinal family needs to know the order of the labels in y: give classes=[...] from"
            " the lowest to the highest, or an ordered pandas column"
        )
    if levels is None:
        return _labels(values, "ordinal")
    classes = np.asarray(levels)
    places = {label: place for place, label in enumerate(classes.tolist())}
    if len(places) < max(2, len(classes)):
        raise InputError("classes must be two or more different labels")
    strangers = [label for label in values.tolist() if label not in places]
    if strangers:
        raise InputError(f"y holds the label {strangers[0]!r}, which is not among classes")
    codes = np.array([places[label] for label in values.tolist()], dtype=np.int32)
    if codes.min() == codes.max():
        raise InputError(
            f"y holds one class only, {brief(values[0])}; there is nothing to separate"
        )
    return codes, classes


def _known_labels(
    values: np.ndarray, family: str, classes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    if classes.ndim != 1 or classes.size < 2 or np.any(classes[1:] <= classes[:-1]):
        raise InputError("classes must be two or more different labels in ascending order")
    if family == "bernoulli" and classes.size > 2:
        raise InputError(
            f"the bernoulli family needs two labels; there are {classes.size}. Use"
            " family='categorical'"
        )
    try:
        codes = np.minimum(np.searchsorted(classes, values), classes.size - 1)
    except TypeError:
        raise InputError("the labels in y and in classes have different types") from None
    if np.any(classes[codes] != values):
        raise InputError("y holds a label that is not among classes")
    return codes.astype(np.float32 if family == "bernoulli" else np.int32), classes


def in_order(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different labels in ascending order, and the place of each row's among them."""
    if values.dtype.kind == "f":
        require_finite("y", values)
    try:
        return np.unique(values, return_inverse=True)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in values})
        raise InputError(
            f"y holds labels of kinds that cannot be put in order: {', '.join(kinds)}"
        ) from None


def _labels(values: np.ndarray, family: str) -> tuple[np.ndarray, np.ndarray]:
    classes, codes = in_order(values)
    if classes.size < 2:
        raise InputError(
            f"y holds one class only, {brief(classes[0])}; there is nothing to separate"
        )
    if family == "bernoulli":
        if classes.size > 2:
            raise InputError(
                f"the bernoulli family needs two labels; y holds {classes.size}. Use"
                " family='categorical'"
            )
        return codes.astype(np.float32), classes
    if classes.size > max(2, values.size // 2):
        raise InputError(
            f"y holds {classes.size} different labels in {values.size} rows; is it a regression"
            " target?"
        )
    return codes.astype(np.int32), classes
