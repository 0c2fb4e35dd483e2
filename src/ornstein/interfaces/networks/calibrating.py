"""Predictions of a last layer on held-out rows: the temperature that they choose, and the scores of
plain temperature scaling beside it.
"""

from __future__ import annotations

import numpy as np

from ornstein.checks import brief, require_finite
from ornstein.errors import InputError
from ornstein.interfaces.networks.temperature import (
    Classes,
    Forecasts,
    Numbers,
    best_temperature,
    score,
    some,
)
from ornstein.interfaces.networks.work import Work, with_zero
from ornstein.model import tables
from ornstein.model.regression import GLM
from ornstein.posterior.at_draws import RowsAtDraws
from ornstein.posterior.last_layer import Calibration, LastLayerPosterior
from ornstein.types import Array


def calibrated(
    post: LastLayerPosterior,
    work: Work,
    model: GLM,
    mode: Array,
    held: tuple[Array, Array],
) -> tuple[float, Calibration]:
    """The temperature that held-out rows choose, and the scores there; plain temperature scaling of
    the trained layer beside it. `held` are features and what `known_outcomes` made of outcomes.
    """
    flat = post.draws.reshape(-1, model.dim)
    chosen = flat[some(len(flat), len(held[0]) * model.likelihood.predictors)]
    ours = _forecasts(work, model, chosen, held)
    if work.head is None:
        name, plain = "mode", _forecasts(work, model, mode[None], held)
    else:
        name, plain = "trained network", _of_head(work, work.head, held)
    temperature, scaling = best_temperature(ours), best_temperature(plain)
    scores = (
        (name, score(plain, 1.0)),
        ("temperature scaling", score(plain, scaling)),
        ("last layer", score(ours, 1.0)),
        ("last layer at its temperature", score(ours, temperature)),
    )
    return temperature, Calibration(len(held[0]), scores)


def known_outcomes(work: Work, outcomes: Array) -> Array:
    """Held-out outcomes as numbers, or as the places of their labels among the classes."""
    if work.classes is None:
        numbers = tables.numbers(outcomes, "held_out").astype(float)
        require_finite("held_out", numbers)
        return numbers
    try:
        codes = np.minimum(np.searchsorted(work.classes, outcomes), work.classes.size - 1)
    except TypeError:
        raise InputError("held_out holds labels of another kind than y") from None
    unknown = work.classes[codes] != outcomes
    if np.any(unknown):
        label = brief(outcomes[unknown].tolist()[0])
        raise InputError(f"held_out holds the label {label}, which is not in the training rows")
    return np.asarray(codes)


def _forecasts(work: Work, model: GLM, draws: Array, held: tuple[Array, Array]) -> Forecasts:
    rows = RowsAtDraws(model.likelihood, model.layout, draws, draws.mean(axis=0), held[0])
    predictors = rows.predictors(slice(None))
    if work.family == "gaussian":
        scales = np.exp(rows.shared(slice(None))["log_scale"])
        return Numbers(predictors, scales, held[1])
    logits = with_zero(predictors) if work.family == "bernoulli" else predictors
    return Classes(logits, held[1])


def _of_head(work: Work, head: tuple[Array, Array], held: tuple[Array, Array]) -> Forecasts:
    """Of the layer as it was trained; a regression's noise is that of its residuals."""
    found = work.logits(held[0], *head)
    if work.family != "gaussian":
        return Classes(found, held[1])
    residuals = work.outcomes - work.logits(work.features, *head)[0]
    scale = np.maximum(np.sqrt(np.mean(residuals**2)), 1e-6 * np.std(work.outcomes))
    return Numbers(found, np.array([scale]), held[1])
