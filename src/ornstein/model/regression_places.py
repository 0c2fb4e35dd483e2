"""The parameters of a regression: their names, and where each enters the predictors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ornstein.model.families.likelihood import Likelihood
from ornstein.types import Array

Entry = tuple[str, int, int]  # of a parameter: its name, feature and predictor


@dataclass(frozen=True, eq=False)
class Places:
    """Where every parameter enters; arrays and names in flat order.

    Attributes:
        zeros: parameters of the right shapes.
        names: one per parameter.
        feature_of, predictor_of: as `LinearPredictor` takes them.
    """

    zeros: dict[str, Array]
    names: tuple[str, ...]
    feature_of: Array
    predictor_of: Array

    @classmethod
    def of(
        cls,
        likelihood: Likelihood,
        columns: tuple[str, ...],
        classes: Array | None,
        intercept: bool,
    ) -> Places:
        """The places for these columns of X, with or without an intercept."""
        if likelihood.law.classes:
            assert classes is not None
            zeros, entries = _of_classes(likelihood, columns, classes, intercept)
        else:
            zeros, entries = _of_one_predictor(likelihood, columns, intercept)
        for k, auxiliary in enumerate(likelihood.auxiliaries):
            zeros[auxiliary.name] = np.zeros(())
            entries[auxiliary.name] = [(auxiliary.name, len(columns), likelihood.predictors + k)]
        in_order = [entry for leaf in sorted(entries) for entry in entries[leaf]]  # as JAX sorts
        names, features, predictors = zip(*in_order, strict=True)
        return cls(zeros, names, np.array(features), np.array(predictors))


def _of_classes(
    likelihood: Likelihood, columns: tuple[str, ...], classes: Array, intercept: bool
) -> tuple[dict[str, Array], dict[str, list[Entry]]]:
    """Coefficients for every class, without those of a class of reference."""
    outputs, first = likelihood.predictors, int(likelihood.coef_reference)
    zeros: dict[str, Array] = {"coef": np.zeros((len(columns), outputs - first))}
    entries = {
        "coef": [
            (f"{name}[{classes[k]}]", i, k)
            for i, name in enumerate(columns)
            for k in range(first, outputs)
        ]
    }
    if intercept:
        first = int(likelihood.intercept_reference)
        zeros["intercept"] = np.zeros(outputs - first)
        entries["intercept"] = [
            (f"intercept[{classes[k]}]", len(columns), k) for k in range(first, outputs)
        ]
    return zeros, entries


def _of_one_predictor(
    likelihood: Likelihood, columns: tuple[str, ...], intercept: bool
) -> tuple[dict[str, Array], dict[str, list[Entry]]]:
    """A coefficient for each column; columns of their own enter an auxiliary parameter."""
    auxiliaries = [auxiliary.name for auxiliary in likelihood.auxiliaries]
    predictor = np.zeros(len(columns), dtype=int)
    for part, first, after in likelihood.parts:
        predictor[first:after] = likelihood.predictors + auxiliaries.index(part)
    zeros: dict[str, Array] = {"coef": np.zeros(len(columns))}
    entries = {"coef": [(name, i, int(predictor[i])) for i, name in enumerate(columns)]}
    if intercept:
        zeros["intercept"] = np.zeros(())
        entries["intercept"] = [("intercept", len(columns), 0)]
    return zeros, entries
