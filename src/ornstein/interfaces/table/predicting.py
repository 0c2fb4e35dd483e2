"""Predictions for the rows of a new table.

Numbers: mean, sd and interval of a *new outcome*: the posterior's spread and the noise of one value
together; on request also sd and interval of its expectation. Classes: mean, sd and interval of the
*probability* of a class, over the posterior.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ornstein.errors import FileError, InputError
from ornstein.posterior.files import replacing
from ornstein.regression.mixed import MixedTablePredict
from ornstein.regression.reading import PARQUET, TEXT, read_table
from ornstein.regression.regress import TablePredict
from ornstein.types import Array

if TYPE_CHECKING:
    import pandas

    from ornstein.posterior.posterior import Posterior
    from ornstein.posterior.predictive import DrawnOutcome, Outcome, Predictive


def predict_table(
    posterior: Posterior,
    frame: pandas.DataFrame,
    probability: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
    expectation: bool = False,
    groups: str = "average",
) -> pandas.DataFrame:
    """The table with columns added: target_mean, target_sd, target_low and target_high, for
    classes target_label, and where asked for target_expectation_sd and so on.

    With more than two classes there is one set of columns for each: target_mean[label], and so on.
    Rows that cannot be predicted stay empty, with a warning that counts them. `groups` says which
    effects of groups enter where the model is a mixed one.
    """
    import pandas

    if not 0.0 < probability < 1.0:
        raise InputError(
            f"the probability of the interval must lie between 0 and 1; got {probability}"
        )
    predict = posterior.predict_function
    assert isinstance(predict, TablePredict | MixedTablePredict)
    asked = groups if isinstance(predict, MixedTablePredict) else None
    new, target = posterior.predict(frame, draws, seed, asked), predict.spec.target
    if predict.spec.classes:
        added = _classes(new, target, predict.spec.classes, probability)
    else:
        added = _described(new.outcome, target, probability)
        if expectation:
            of_expectation = _described(new, f"{target}_expectation", probability)
            added |= {name: of for name, of in of_expectation.items() if not name.endswith("_mean")}
    taken = [name for name in added if name in frame.columns]
    if taken:
        raise InputError(f"the table already has a column {taken[0]!r}; rename it")
    return pandas.concat([frame, pandas.DataFrame(added, index=frame.index)], axis=1)


def _described(
    of: Predictive | Outcome | DrawnOutcome, name: str, probability: float
) -> dict[str, Array]:
    low, high = of.interval(probability)
    found = {"mean": of.mean, "sd": of.sd, "low": low, "high": high}
    return {f"{name}_{what}": values for what, values in found.items()}


def _classes(
    new: Predictive, target: str, classes: tuple[str, ...], probability: float
) -> dict[str, Array]:
    labels, described = np.array(classes, dtype=object), _described(new, target, probability)
    mean = new.mean
    several = mean.ndim == 2
    empty = np.isnan(mean).any(axis=1) if several else np.isnan(mean)
    best = mean.argmax(axis=1) if several else (mean > 0.5).astype(int)
    label = np.asarray(labels[best])
    label[empty] = None
    found: dict[str, Array] = {f"{target}_label": label}
    if not several:
        return found | described
    for place, one in enumerate(classes):
        found |= {f"{name}[{one}]": values[:, place] for name, values in described.items()}
    return found


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
            f"{path.name} is not in a format that can be written: give a name that ends in"
            " .csv, .tsv or"
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
