"""The rows of a mixed model as users give them: checked, or refused in a sentence."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ornstein.checks import brief, is_whole, printable, require_finite
from ornstein.errors import InputError
from ornstein.model import tables
from ornstein.model.families.table import family_of
from ornstein.model.mixed.covariance import Covariance
from ornstein.model.mixed.density import FAMILIES
from ornstein.model.mixed.model import MixedModel, mixed_model
from ornstein.model.mixed.predict import MixedPredict, later_link
from ornstein.model.mixed.priors import MixedPriors
from ornstein.model.mixed.several_model import several_model
from ornstein.model.mixed.table import Rows
from ornstein.model.response import checked_response
from ornstein.types import Array

MOST_EFFECTS = 12  # of a group, whose matrices are written out entry by entry
# Families in which one row tells nothing of how much its group differs.
UNDISPERSED = ("gaussian", "bernoulli", "ordinal")
MOST_POINTS = {1: 25, 2: 15}


def glmm(
    X: object,
    y: object,
    groups: object,
    Z: object = None,
    family: str = "gaussian",
    priors: MixedPriors | str | None = None,
    intercept: bool = True,
    offset: ArrayLike | None = None,
    points: int | str = "auto",
    correlated: bool = True,
    weights: ArrayLike | None = None,
    link: str | None = None,
) -> MixedModel:
    """A mixed model before its nodes are settled; `ornstein.glmm` explains the arguments."""
    require_family(family)
    per_row = (("offset", offset), ("weights", weights))
    tables.require_one_index((("X", X), ("y", y), ("groups", groups), ("Z", Z), *per_row))
    table, columns = tables.features(X)
    if tables.is_sparse(table):
        raise InputError("X must be dense for a mixed model: give X.toarray()")
    x = np.asarray(table, dtype=float)
    if not len(x):
        raise InputError(f"X must have rows; it has shape {x.shape}")
    require_finite("X", x, columns)
    if intercept:
        x, columns = np.column_stack([x, np.ones(len(x))]), (*columns, "intercept")
    z, effects = _effect_columns(Z, len(x))
    codes, levels = group_codes(groups, len(x))
    rows = Rows(
        x,
        z,
        response(y, family, len(x)),
        codes,
        _per_row(offset, "offset", len(x)),
        weight=checked_weights(weights, len(x)),
    )
    blocks = (len(effects),) if correlated else (1,) * len(effects)
    covariance = Covariance(effects, blocks)
    factors = (("group", len(effects)),)
    own_link = later_link(family, link)
    predict = MixedPredict(family, covariance, columns, intercept, factors, own_link)
    return joined(rows, predict, (levels,), priors, points)


def joined(
    rows: Rows,
    predict: MixedPredict,
    levels: tuple[Array, ...],
    priors: MixedPriors | str | None = None,
    points: int | str = "auto",
) -> MixedModel:
    """The model of a matrix of fixed effects, a response and the columns of the effects with the
    groups of each row: what both the array form and formulas come down to.

    Where there are several factors, `codes` of the rows have a column for each.
    `curvature.nodes.settled` makes the model ready.
    """
    covariance = predict.covariance
    if len(levels) == 1:
        require_groups(rows, predict.family, covariance, levels[0])
        number = _points(points, len(covariance.effects))
        return mixed_model(rows, predict, levels[0], priors, number)
    for place, labels in enumerate(levels):
        own = predict.part(place)
        _require_groups_of_factor(rows, predict, place, labels)
        assert rows.z is not None
        _require_different(rows.z[:, own], covariance.effects[own])
    return several_model(rows, predict, levels, priors)


def group_codes(groups: object, n_rows: int) -> tuple[Array, Array]:
    """The number of each row's group, and the groups' labels in order.

    >>> codes, levels = group_codes(["b", "a", "b"], 3)
    >>> codes.tolist(), levels.tolist()
    ([1, 0, 1], ['a', 'b'])
    """
    import pandas

    labels = np.asarray(groups if tables.is_frame(groups) else tables.plain(groups, "groups"))
    if labels.ndim != 1:
        raise InputError(
            f"groups must be one column of labels; it has shape {labels.shape}. Nested and crossed"
            " factors are for formulas: orn.regress('y ~ x + (1 | a/b) + (1 | c)', table)"
        )
    if len(labels) != n_rows:
        raise InputError(f"X has {n_rows} rows but groups has {len(labels)}")
    missing = np.asarray(pandas.isna(labels))
    if missing.any():
        raise InputError(
            f"groups holds {int(missing.sum())} missing labels, first in row"
            f" {int(np.argmax(missing))}: drop those rows, or give them a group of their own"
        )
    codes, levels = pandas.factorize(labels, sort=True)
    return np.asarray(codes), np.asarray(levels)


def require_groups(rows: Rows, family: str, covariance: Covariance, levels: Array) -> None:
    """Refuse groups and effects about which the rows say nothing."""
    require_family(family)
    if len(covariance.effects) > MOST_EFFECTS:
        raise InputError(
            f"a group may have at most {MOST_EFFECTS} effects; there are {len(covariance.effects)}"
        )
    if len(levels) < 2:
        raise InputError(
            f"there is one group only, {printable(levels[0])!r}: how much groups differ cannot be"
            " learned from it. Leave the effect out: orn.glm"
        )
    largest = int(np.bincount(rows.codes).max())
    constant = rows.z is None or (rows.z.shape[1] == 1 and not np.ptp(rows.z))
    if largest == 1 and constant and rows.weight is None and family in UNDISPERSED:
        raise InputError(
            f"each of the {len(levels)} groups has one row only: what varies between groups cannot"
            f" be told apart from what varies within them in the {family} family. Leave the"
            " effect out: orn.glm"
        )
    if rows.z is not None:
        _require_different(rows.z, covariance.effects)


def _require_groups_of_factor(rows: Rows, predict: MixedPredict, place: int, levels: Array) -> None:
    """Refuse one of several factors about whose effects the rows say nothing."""
    name, effects = predict.factors[place]
    codes = rows.codes[:, place]
    if len(levels) < 2:
        raise InputError(
            f"there is one group of {printable(name)!r} only, {printable(levels[0])!r}: how much"
            " groups differ cannot be learned from it. Leave the factor out"
        )
    alone = int(np.bincount(codes).max()) == 1 and rows.weight is None
    if alone and effects == 1 and predict.family in UNDISPERSED:
        raise InputError(
            f"each of the {len(levels)} groups of {printable(name)!r} has one row only: what varies"
            f" between them cannot be told apart from what varies within them in the"
            f" {predict.family} family. Leave the factor out"
        )
    for other in range(place):
        pairs = np.unique(rows.codes[:, [other, place]], axis=0)
        if len(pairs) == len(levels) == int(rows.codes[:, other].max()) + 1:
            raise InputError(
                f"{printable(predict.names[other])!r} and {printable(name)!r} put the rows into the"
                " same groups: leave one of them out"
            )


def _require_different(z: Array, effects: tuple[str, ...]) -> None:
    """Refuse effects that are zero everywhere, or a combination of others."""
    sizes = np.sqrt(np.mean(z**2, axis=0))
    for name, size in zip(effects, sizes, strict=True):
        if size == 0.0:
            raise InputError(f"the effect {printable(name)!r} is zero in every row: leave it out")
    gram = (z / sizes).T @ (z / sizes) / len(z)
    values, vectors = np.linalg.eigh(gram)
    if values[0] < 1e-10:
        strong = np.argsort(-np.abs(vectors[:, 0]))[:2]
        names = " and ".join(repr(printable(effects[place])) for place in sorted(strong))
        raise InputError(
            f"the columns of Z are collinear ({names}): a constant column is the intercept's."
            " Leave one of them out"
        )


def _effect_columns(Z: object, n_rows: int) -> tuple[Array | None, tuple[str, ...]]:
    if Z is None:
        return None, ("intercept",)
    table, names = tables.features(Z, "Z")
    z = np.asarray(table.toarray() if tables.is_sparse(table) else table, dtype=float)
    if not z.shape[1]:
        raise InputError(f"Z must have columns; its shape is {z.shape}")
    if len(z) != n_rows:
        raise InputError(f"X has {n_rows} rows but Z has {len(z)}")
    require_finite("Z", z, names)
    if not tables.is_frame(Z):
        names = tuple(f"z{i}" for i in range(z.shape[1]))
    return z, names


def require_family(family: object) -> None:
    """Refuse what is not the name of a family that mixed models have."""
    if not isinstance(family, str) or family not in FAMILIES:
        raise InputError(f"unknown family {brief(family)}; choose one of {', '.join(FAMILIES)}")


def response(y: object, family: str, n_rows: int) -> Array:
    """The response in numbers that the family can have; labels become their places in order."""
    require_family(family)
    values, _ = checked_response(y, family_of(family), n_rows)
    if family == "ordinal" and (levels := len(np.unique(values))) < 3:
        raise InputError(f"the ordinal family needs three or more levels; y holds {levels}")
    return values.astype(float)


def checked_weights(weights: ArrayLike | None, n_rows: int) -> Array | None:
    """How often each row counts, or None."""
    values = _per_row(weights, "weights", n_rows)
    if values is not None and (np.any(values < 0.0) or not np.any(values > 0.0)):
        raise InputError("weights must not be negative, and not all zero")
    return values


def _per_row(given: ArrayLike | None, what: str, n_rows: int) -> Array | None:
    if given is None:
        return None
    values = tables.numbers(given, what).astype(float)
    if len(values) != n_rows:
        raise InputError(f"X has {n_rows} rows but {what} has {len(values)}")
    require_finite(what, values)
    return values


def _points(points: int | str, effects: int) -> int | None:
    most = MOST_POINTS.get(effects, 1)
    if isinstance(points, str) and points == "auto":
        return None
    if not is_whole(points) or not 1 <= int(points) <= most:
        raise InputError(
            f"points must be 'auto' or a whole number from 1 to {most} where a group has"
            f" {effects} effects; got {points!r}"
        )
    return int(points)
