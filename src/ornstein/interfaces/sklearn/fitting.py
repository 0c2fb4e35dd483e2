"""How the scikit-learn estimators fit: rows in an order of their own, the regression they make, and
its draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight

from ornstein.errors import InputError
from ornstein.model import tables
from ornstein.types import Array, PyTree, Traced

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


def ordered_rows(X: Array, y: Array, weights: Array | None) -> Rows:
    """Rows without weight left out, whole-number weights spelled out, and all sorted by a hash of
    their content.
    """
    import pandas

    if weights is not None:
        kept = weights > 0
        X, y, weights = X[kept], y[kept], weights[kept]
        if np.all(weights == np.floor(weights)) and weights.sum() <= MOST_REPETITIONS * len(
            weights
        ):
            count = weights.astype(int)
            X, y, weights = X.repeat(count, axis=0), y.repeat(count), None
    table = pandas.DataFrame(X).assign(target=y, weight=1.0 if weights is None else weights)
    order = np.argsort(pandas.util.hash_pandas_object(table, index=False).to_numpy(), kind="stable")
    return Rows(X[order], y[order], None if weights is None else weights[order])


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
    )


def deviation(values: Array, weights: Array | None) -> Array:
    """Standard deviation of each column under the weights; 0 where it is rounding alone."""
    mean = np.average(values, axis=0, weights=weights)
    spread = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))
    return np.where(spread > 1e-12 * np.abs(mean), spread, 0.0)


def regression(
    estimator: BaseEstimator,
    rows: Rows,
    family: str,
    target_scale: Array | float = 1.0,
    **options: Any,
) -> GLM:
    """The regression as a Model, its prior put on the scale of the data."""
    import pandas

    from ornstein.entrances import glm

    precision = np.asarray(estimator.prior_precision, dtype=float)
    if estimator.scale_prior:
        spread = deviation(rows.X, rows.weights)
        precision = precision * np.where(spread > 0, spread, 1.0) ** 2 / target_scale**2
    names = getattr(estimator, "feature_names_in_", None)
    table = rows.X if names is None else pandas.DataFrame(rows.X, columns=names)
    return glm(
        table,
        rows.y,
        family,
        prior_precision=precision,
        intercept=estimator.fit_intercept,
        weights=rows.weights,
        **options,
    )


def regression_prior(params: PyTree, hyperparameters: PyTree) -> Traced:
    """Normal slopes, and on log σ the density σ⁻¹ exp(−s²/2σ²): one observation of size s."""
    import jax.numpy as jnp

    from ornstein.model.families.prior import gaussian_prior

    log_scale = params["log_scale"]
    ratio = hyperparameters["noise_guess"] * jnp.exp(-log_scale)
    return gaussian_prior(params, hyperparameters) - log_scale - 0.5 * ratio**2


def set_posterior(estimator: BaseEstimator, model: Model) -> None:
    """Set `posterior_` and `verdict_`, and warn where the verdict is bad."""
    from ornstein.entrances import sample

    options = {
        "batch_size": estimator.batch_size,
        "draws": estimator.draws,
        "chains": estimator.chains,
        "max_steps": estimator.max_steps,
        "seed": int(check_random_state(estimator.random_state).randint(2**31 - 1)),
        "progress": False,
    }
    sampler = (
        None
        if isinstance(estimator.sampler, str) and estimator.sampler == "auto"
        else (estimator.sampler)
    )
    estimator.posterior_ = sample(model, sampler, **options)
    estimator.verdict_ = estimator.posterior_.check()
    if estimator.verdict_.level == "not trusted":
        estimator.verdict_.warn(stacklevel=4)  # where fit was called
