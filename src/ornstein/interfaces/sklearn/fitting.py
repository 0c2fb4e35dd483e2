"""How the scikit-learn estimators fit: rows in an order of their own, the regression they make, and
its draws.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_feature_names,
    _check_sample_weight,
    check_X_y,
    validate_data,
)

from ornstein.checks import brief
from ornstein.errors import InputError, PredictionWarning, TrustWarning
from ornstein.model import tables
from ornstein.model.mixed.checked import group_codes
from ornstein.model.mixed.model import MixedModel
from ornstein.model.mixed.priors import MixedPriors
from ornstein.regression.columns import require_column
from ornstein.regression.design import Design
from ornstein.regression.formula import Formula, quoted
from ornstein.regression.spec import Spec
from ornstein.regression.table import as_frame, complete
from ornstein.types import Array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from sklearn.base import BaseEstimator

    from ornstein.model.model import Model
    from ornstein.model.regression import GLM

# whole-number weights are spelled out as rows while that makes at most this many times more of them
MOST_REPETITIONS = 10


@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows in an order that does not depend on how they were given."""

    X: Array
    y: Array
    weights: Array | None
    groups: Array | None = None


def require_plain(
    X: object, y: object = None, sample_weight: object = None, labels: bool = False
) -> None:
    """Refuse what scikit-learn would take for numbers although it is none: masked values, text,
    dates and categories; and rows that are paired by position although their index has another
    order.
    """
    tables.require_one_index((("X", X), ("y", y), ("sample_weight", sample_weight)))
    tables.require_numeric(X, "X")
    tables.require_numeric(sample_weight, "sample_weight")
    if labels:
        tables.require_unmasked(y, "y")
    else:
        tables.require_numeric(y, "y")


def row_weights(sample_weight: ArrayLike | None, X: Array) -> Array | None:
    """Weights as numbers, or None; all zero is refused."""
    if sample_weight is None:
        return None
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not np.any(weights):
        raise InputError("sample_weight is 0 everywhere: every row would be left out")
    return weights


def ordered_rows(X: Array, y: Array, weights: Array | None, groups: object = None) -> Rows:
    """Rows without weight left out, whole-number weights spelled out, and all sorted by a hash of
    their content.
    """
    import pandas

    places = np.arange(len(X))
    codes, levels = (None, None) if groups is None else group_codes(groups, len(X))
    if weights is not None:
        places = np.flatnonzero(weights > 0)
        own = weights[places]
        if np.all(own == np.floor(own)) and own.sum() <= MOST_REPETITIONS * len(own):
            places, weights = places.repeat(own.astype(int)), None
    table = pandas.DataFrame(X[places]).assign(
        target=y[places], weight=1.0 if weights is None else weights[places]
    )
    if codes is not None:
        table = table.assign(group=codes[places])
    hashed = pandas.util.hash_pandas_object(table, index=False).to_numpy()
    order = places[np.argsort(hashed, kind="stable")]
    return Rows(
        X[order],
        y[order],
        None if weights is None else weights[order],
        None if codes is None or levels is None else levels[codes[order]],
    )


def whole_counts(rows: Rows) -> Rows:
    """A fraction f above a count k as k with weight 1−f and k+1 with weight f: the same log
    likelihood in the rate.
    """
    part = rows.y - np.floor(rows.y)
    split = part > 0
    if not np.any(split):
        return rows
    weights = np.ones(len(rows.y)) if rows.weights is None else rows.weights
    return Rows(
        np.concatenate([rows.X, rows.X[split]]),
        np.concatenate([np.floor(rows.y), np.floor(rows.y[split]) + 1.0]),
        np.concatenate([weights * (1.0 - part), weights[split] * part[split]]),
        None if rows.groups is None else np.concatenate([rows.groups, rows.groups[split]]),
    )


def deviation(values: Array, weights: Array | None) -> Array:
    """Standard deviation of each column under the weights; 0 where it is rounding alone."""
    mean = np.average(values, axis=0, weights=weights)
    spread = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))
    return np.where(spread > 1e-12 * np.abs(mean), spread, 0.0)


def regression(
    estimator: BaseEstimator, rows: Rows, family: str, target_scale: float = 1.0, **options: Any
) -> GLM | MixedModel:
    """The regression as a Model; a number for the precision is put on the scale of the data."""
    from ornstein.entrances.models import glm
    from ornstein.model.families.table import family_of

    precision = None
    if estimator.prior_precision is not None:
        precision = np.asarray(estimator.prior_precision, dtype=float)
        # a noise scale without a prior has no posterior where there are as many columns as rows
        if family == "gaussian" and options.get("noise_scale") == "infer":
            law = family_of(family)
            middle = law.middle(rows.y, rows.weights)
            options["priors"] = law.default_priors(target_scale, middle)
        if estimator.scale_prior:
            spread = deviation(rows.X, rows.weights)
            precision = precision * np.where(spread > 0, spread, 1.0) ** 2 / target_scale**2
    spec = getattr(estimator, "spec_", None)
    names = getattr(estimator, "feature_names_in_", None) if spec is None else spec.feature_names
    table = rows.X if names is None else tables.Named(rows.X, tuple(map(str, names)))
    if rows.groups is not None:
        return _mixed(estimator, rows, table, family, precision)
    return glm(
        table,
        rows.y,
        family,
        prior_precision=precision,
        intercept=has_intercept(estimator),
        weights=rows.weights,
        **options,
    )


def _mixed(
    estimator: BaseEstimator, rows: Rows, table: Any, family: str, precision: Array | None
) -> MixedModel:
    """The same with an intercept for each group."""
    from ornstein.entrances.models import glmm

    if family == "categorical":
        raise InputError(
            f"y holds {len(estimator.classes_)} classes; with groups there may be only two"
        )
    if family == "gaussian" and estimator.noise_scale != "infer":
        raise InputError("noise_scale must be 'infer' where there are groups")
    intercept, priors = has_intercept(estimator), None
    if precision is not None:
        every = np.append(np.broadcast_to(precision, rows.X.shape[1]), [0.0] * intercept)
        with np.errstate(divide="ignore"):
            priors = MixedPriors(coef_sd=1.0 / np.sqrt(every))
    settings = (rows.groups, None, family, priors)
    return glmm(table, rows.y, *settings, intercept=intercept, weights=rows.weights)


def coefficients(estimator: BaseEstimator) -> tuple[Array, float]:
    """Posterior means of the coefficients and of the intercept, 0 where there is none."""
    mean = estimator.posterior_.layout.unflatten(estimator.posterior_.mean)
    if not has_intercept(estimator):
        return mean["coef"], 0.0
    if estimator.groups_ is not None:  # the intercept is the last
        return mean["coef"][:-1], float(mean["coef"][-1])
    return mean["coef"], float(mean["intercept"])


def has_intercept(estimator: BaseEstimator) -> bool:
    """Whether the estimator and its formula ask for an intercept."""
    spec = getattr(estimator, "spec_", None)
    return bool(estimator.fit_intercept and (spec is None or spec.design.intercept))


def training(
    estimator: BaseEstimator, X: Any, y: Any, sample_weight: Any, labels: bool = False
) -> tuple[Array, Array]:
    """The design matrix and the target, checked; a formula makes the matrix from a table."""
    numeric = {"y_numeric": not labels, "ensure_min_samples": 2}
    if estimator.formula is None:
        vars(estimator).pop("spec_", None)
        require_plain(X, y, sample_weight, labels)
        table, target = validate_data(estimator, X, y, dtype=np.float64, **numeric)
        return table, target
    tables.require_one_index((("X", X), ("y", y), ("sample_weight", sample_weight)))
    frame = as_frame(X)
    formula = Formula.of(estimator.formula, [quoted(name) for name in frame.columns])
    if formula.response is not None or formula.offsets or formula.groups:
        raise InputError(
            f"formula {brief(estimator.formula)} must be a right side such as 'a + bs(b, df=5)',"
            " without an offset and without groups: y comes through fit(X, y)"
        )
    for name in formula.column_names:
        require_column(frame.columns, name, "the formula's")
    complete(frame, formula.column_names, (), "error")
    design = Design.learned(formula, frame)
    estimator.spec_ = Spec(formula.text, "y", "", "", (), design)
    matrix = _dense(design.build(frame, len(frame)))
    _check_feature_names(estimator, frame, reset=True)
    estimator.n_features_in_ = frame.shape[1]
    table, target = check_X_y(matrix, y, dtype=np.float64, estimator=estimator, **numeric)
    return table, target


def new_rows(estimator: BaseEstimator, X: Any) -> Array:
    """The design matrix of rows to predict; NaN where a formula's columns are missing or
    unknown, with a warning that counts them.
    """
    spec = getattr(estimator, "spec_", None)
    if spec is None:
        require_plain(X)
        return validate_data(estimator, X, dtype=np.float64, reset=False)
    new = spec.new_rows(X)
    if new.said:
        warnings.warn(new.said, PredictionWarning, stacklevel=3)
    return _dense(new.matrix)


def _dense(matrix: Any) -> Array:
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()


def set_posterior(estimator: BaseEstimator, model: Model) -> None:
    """Set `posterior_` and `verdict_`, and warn in one line where the verdict is bad."""
    from ornstein.entrances.running import sample

    options = {
        "batch_size": estimator.batch_size,
        "draws": estimator.draws,
        "chains": estimator.chains,
        "max_steps": estimator.max_steps,
        "seed": int(check_random_state(estimator.random_state).randint(2**31 - 1)),
        "progress": False,
    }
    estimator.groups_ = model.levels if isinstance(model, MixedModel) else None
    estimator.posterior_ = sample(model, _chosen(estimator), **options)
    estimator.verdict_ = estimator.posterior_.check()
    if estimator.verdict_.level == "not trusted":
        bad = [item.name for item in estimator.verdict_.findings if item.level == "not trusted"]
        said = f"not trusted: {', '.join(bad)}; print(estimator.verdict_) says why"
        warnings.warn(said, TrustWarning, stacklevel=3)  # where fit was called


def _chosen(estimator: BaseEstimator) -> Any:
    """The sampler that was asked for; None lets the library choose."""
    from ornstein.samplers.constant_sgd import ConstantSGD

    sampler = estimator.sampler
    auto = sampler is None or (isinstance(sampler, str) and sampler == "auto")
    if estimator.target not in ("posterior", "sandwich"):
        raise InputError(f"target must be 'posterior' or 'sandwich'; got {brief(estimator.target)}")
    if estimator.target == "posterior":
        return None if auto else sampler
    if not auto:
        raise InputError("target='sandwich' chooses the sampler itself: leave sampler alone")
    return ConstantSGD("full", target="sandwich")
