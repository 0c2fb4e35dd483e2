"""Predictions for the rows of a new table.

Numbers: mean, sd and interval of a *new observation*: the posterior's spread and the noise of one
value together. Classes: mean, sd and interval of the *probability* of a class, over the posterior.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.errors import FileError, InputError, PredictionWarning
from ornstein.model.families.expected import linear_part, mean_of
from ornstein.model.families.outcome import (
    mixture_mean,
    mixture_quantile,
    mixture_sd,
    outcome_law,
)
from ornstein.model.tables import NewRows
from ornstein.posterior.files import replacing
from ornstein.regression.mixed import MixedTablePredict
from ornstein.regression.reading import PARQUET, TEXT, read_table
from ornstein.regression.regress import TablePredict
from ornstein.types import Array

if TYPE_CHECKING:
    import pandas

    from ornstein.posterior.posterior import Posterior

NUMBERS_AT_ONCE = 2**22


def predict_table(
    posterior: Posterior,
    frame: pandas.DataFrame,
    probability: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
    groups: str = "average",
) -> pandas.DataFrame:
    """The table with columns added: target_mean, target_sd, target_low and target_high, and for
    classes target_label.

    With more than two classes there is one set of columns for each: target_mean[label], and so on.
    Rows that cannot be predicted stay empty, with a warning that counts them. `groups` says which
    effects of groups enter where the model is a mixed one.
    """
    if not 0.0 < probability < 1.0:
        raise InputError(
            f"the probability of the interval must lie between 0 and 1; got {probability}"
        )
    predict = posterior.predict_function
    if isinstance(predict, MixedTablePredict):
        added = _of_groups(posterior, predict, frame, probability, draws, seed, groups)
        return _beside(frame, added)
    assert isinstance(predict, TablePredict)
    new = predict.spec.new_rows(frame)
    if new.said:
        warnings.warn(new.said, PredictionWarning, stacklevel=2)
    assert new.complete is not None
    params = thinned_draws(posterior, draws, seed).params
    params = {name: values[0] for name, values in params.items()}
    rows = np.flatnonzero(new.complete)
    count = len(next(iter(params.values())))
    size = max(1, NUMBERS_AT_ONCE // (count * max(1, predict.likelihood.predictors)))
    blocks = [
        _described(predict, params, _part(new, rows[start : start + size]), probability)
        for start in range(0, max(1, len(rows)), size)
    ]
    added = {
        name: _spread([block[name] for block in blocks], rows, len(frame)) for name in blocks[0]
    }
    return _beside(frame, added)


def _beside(frame: pandas.DataFrame, added: dict[str, Array]) -> pandas.DataFrame:
    import pandas

    taken = [name for name in added if name in frame.columns]
    if taken:
        raise InputError(f"the table already has a column {taken[0]!r}; rename it")
    return pandas.concat([frame, pandas.DataFrame(added, index=frame.index)], axis=1)


def _of_groups(
    posterior: Posterior,
    predict: MixedTablePredict,
    frame: pandas.DataFrame,
    probability: float,
    draws: int,
    seed: int,
    groups: str,
) -> dict[str, Array]:
    """The columns that a mixed model adds: of the probabilities of labels, else of a new
    observation.
    """
    found = posterior.predict(frame, draws=draws, seed=seed, groups=groups)
    spec = predict.spec
    if not spec.classes:
        low, high = found.outcome.interval(probability)
        parts = {"mean": found.mean, "sd": found.outcome.sd, "low": low, "high": high}
        return {f"{spec.target}_{name}": values for name, values in parts.items()}
    low, high = found.interval(probability)
    parts = {"mean": found.mean, "sd": found.sd, "low": low, "high": high}
    labels = np.array(spec.classes, dtype=object)
    empty = np.isnan(found.mean if found.mean.ndim == 1 else found.mean[:, 0])
    if found.mean.ndim == 1:
        label = labels[(found.mean > 0.5).astype(int)]
        added = {f"{spec.target}_{name}": values for name, values in parts.items()}
    else:
        label = labels[np.nan_to_num(found.mean).argmax(axis=1)]
        added = {
            f"{spec.target}_{name}[{text}]": values[:, place]
            for place, text in enumerate(spec.classes)
            for name, values in parts.items()
        }
    return {f"{spec.target}_label": np.asarray(np.where(empty, None, label)), **added}


def thinned_draws(posterior: Posterior, draws: int, seed: int) -> Posterior:
    """The same posterior as one chain of at most `draws` of its draws."""
    flat = posterior.draws.reshape(-1, posterior.draws.shape[-1])
    if not len(flat):
        raise InputError("the posterior holds moments only, no draws to predict with")
    if draws < len(flat):
        flat = flat[np.random.default_rng(seed).choice(len(flat), draws, replace=False)]
    return replace(posterior, draws=flat[None])


def _part(new: NewRows, rows: Array) -> NewRows:
    return NewRows(new.matrix[rows], None if new.offset is None else new.offset[rows])


def _spread(parts: list[Array], rows: Array, total: int) -> Array:
    """Values of some rows among empty ones."""
    values = np.concatenate(parts)
    if len(rows) == total:
        return values
    empty: Any = np.nan if values.dtype.kind == "f" else None
    found = np.full(total, empty, dtype=values.dtype if values.dtype.kind == "f" else object)
    found[rows] = values
    return found


def _described(
    predict: TablePredict, params: dict[str, Array], new: NewRows, probability: float
) -> dict[str, Array]:
    """The columns that are added, for some complete rows."""
    likelihood, target = predict.likelihood, predict.spec.target
    linear = linear_part(likelihood, params, new.matrix)
    if new.offset is not None:
        linear = linear + (new.offset if linear.ndim == 2 else new.offset[:, None])
    shared = likelihood.shared(params)
    if likelihood.law.labels:
        return _classes(predict, mean_of(likelihood, linear, shared), probability)
    law = outcome_law(likelihood, linear, shared)
    tail = (1.0 - probability) / 2.0
    low, high = (
        mixture_quantile(law, level, likelihood.law.discrete) for level in (tail, 1.0 - tail)
    )
    found = {"mean": mixture_mean(law), "sd": mixture_sd(law), "low": low, "high": high}
    return {f"{target}_{name}": values for name, values in found.items()}


def _classes(predict: TablePredict, expected: Array, probability: float) -> dict[str, Array]:
    target, labels = predict.spec.target, np.array(predict.spec.classes, dtype=object)
    if expected.ndim == 2:
        described = _probability(expected, probability)
        label = labels[(described["mean"] > 0.5).astype(int)]
        found = {f"{target}_{name}": values for name, values in described.items()}
        return {f"{target}_label": label, **found}
    columns: dict[str, Array] = {f"{target}_label": labels[expected.mean(axis=0).argmax(axis=1)]}
    for position, label in enumerate(labels):
        described = _probability(expected[:, :, position], probability)
        columns |= {f"{target}_{name}[{label}]": values for name, values in described.items()}
    return columns


def _probability(expected: Array, probability: float) -> dict[str, Array]:
    """Mean, sd and central interval over the draws."""
    tail = (1.0 - probability) / 2.0
    low, high = np.quantile(expected, [tail, 1.0 - tail], axis=0)
    spread = expected.std(axis=0, ddof=1) if len(expected) > 1 else 0.0 * expected[0]
    return {"mean": expected.mean(axis=0), "sd": spread, "low": low, "high": high}


def has_columns(path: Path, names: list[str]) -> bool:
    """Whether a table has just these columns, in this order."""
    try:
        return list(read_table(path).columns) == names
    except FileError:
        return False


def write_table(frame: pandas.DataFrame, path: Path) -> Path:
    """Write a .csv, .tsv or .parquet file, by its name."""
    suffix = path.suffix.lower()
    if suffix not in (*TEXT, *PARQUET):
        raise FileError(
            f"{path.name} is of no kind that can be written: give a name that ends in .csv, .tsv or"
            " .parquet"
        )
    try:
        with replacing(path) as temporary:
            if suffix in PARQUET:
                frame.to_parquet(temporary, index=False)
            else:
                frame.to_csv(temporary, index=False, sep="\t" if suffix == ".tsv" else ",")
    except ImportError as error:
        raise FileError(
            f"{path.name} needs pyarrow to be written: pip install 'ornstein[tables]'"
        ) from error
    return path
