"""The posterior of a network's last layer, from the features that enter it.

The rest of the network stays as it was trained. What is left is a regression on its features, with
one logit per class, a normal prior on weights and biases whose precision the evidence chooses, and
draws by the way that the plan finds.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

from ornstein.checks import as_numbers, brief, is_number, require_finite
from ornstein.curvature.measure import measure
from ornstein.entrances.running import sample
from ornstein.errors import HyperparameterWarning, InputError
from ornstein.interfaces.networks.calibrating import calibrated, known_outcomes
from ornstein.interfaces.networks.evidence import by_evidence, mode_of
from ornstein.interfaces.networks.work import Work, at_precision, outcomes_of
from ornstein.model import tables
from ornstein.model.regression import GLM
from ornstein.posterior.last_layer import LastLayerPosterior, Network
from ornstein.types import Array

EVIDENCE = "evidence"


class Options(TypedDict, total=False):
    """What `last_layer` takes by name, and `from_torch` and the like hand on."""

    prior_precision: float | str
    draws: int
    chains: int
    seed: int
    budget: float | None
    deadline: str | float | None
    progress: bool


def last_layer(
    features: ArrayLike,
    y: ArrayLike,
    held_out: tuple[ArrayLike, ArrayLike] | None = None,
    task: str = "auto",
    *,
    head: tuple[ArrayLike, ArrayLike] | None = None,
    prior_precision: float | str = EVIDENCE,
    draws: int = 250,
    chains: int = 4,
    seed: int = 0,
    budget: float | None = None,
    deadline: str | float | None = None,
    progress: bool = True,
) -> LastLayerPosterior:
    """The posterior of a network's last layer given the features that enter it, as arrays from any
    framework: predictive probabilities at a temperature chosen on held-out rows.

    Args:
        features: what enters the last layer for the training rows, (rows, features).
        y: labels, or numbers for a regression.
        held_out: features and y of rows that neither the network nor this posterior has seen. They
            choose one temperature, and `post.calibration` compares with plain temperature scaling
            of the trained network on the same rows. Without them calibration stays unchecked, and
            `post.calibration` says so.
        task: "classification", "regression", or "auto": a regression where y holds floats.
        head: weights (features, outputs) and biases (outputs,) of the trained layer, to compare
            with; without them the mode of the posterior stands in for the trained network.
        prior_precision: of the weights; "evidence" chooses it. The bias counts as one more feature
            of average size.
        draws, chains, seed, budget, deadline, progress: as for `orn.sample`.

    The draws are those of the posterior; only `post.predict` uses `post.temperature`.

    >>> rng = np.random.default_rng(0)
    >>> features, weights = rng.normal(size=(300, 3)), rng.normal(size=(3, 3))
    >>> y = np.argmax(features @ weights + rng.gumbel(size=(300, 3)), axis=1)
    >>> rows = slice(0, 200)
    >>> held_out = features[200:], y[200:]
    >>> post = last_layer(features[rows], y[rows], held_out, draws=100, progress=False)
    >>> post.predict(features[:2]).mean.shape, post.calibration.rows
    ((2, 3), 100)
    """
    options = Options(
        prior_precision=prior_precision,
        draws=draws,
        chains=chains,
        seed=seed,
        budget=budget,
        deadline=deadline,
        progress=progress,
    )
    known = None if head is None else _checked_head(head)
    return fitted(features, y, held_out, task, known, None, options)


def fitted(
    features: ArrayLike,
    y: ArrayLike,
    held_out: tuple[ArrayLike, ArrayLike] | None,
    task: str,
    head: tuple[Array, Array] | None,
    network: Network | None,
    options: Options,
    classes: ArrayLike | None = None,
) -> LastLayerPosterior:
    """As `last_layer`, for features that a network has made; `classes` are those of its outputs."""
    _require_known(options)
    tables.require_one_index((("features", features), ("y", y)))
    rows = _matrix(features, "features")
    names = tables.features(features)[1] if tables.is_frame(features) else ()
    work = Work.of(rows, y, task, head, classes, names)
    held = None if held_out is None else _held_out(held_out, work)
    model, found, warned = _chosen_prior(work, options.get("prior_precision", EVIDENCE))
    curvature = measure(model, mode=found)
    post = sample(
        model,
        curvature=curvature,
        draws=options.get("draws", 250),
        chains=options.get("chains", 4),
        seed=options.get("seed", 0),
        budget=options.get("budget"),
        deadline=options.get("deadline"),
        progress=options.get("progress", True),
    )
    known = {} if network is None else {"framework": network.framework, "layer": network.layer}
    weights, biases = (None, None) if head is None else head
    result = LastLayerPosterior.of(post, network=network, weights=weights, biases=biases, **known)
    precision = float(model.hyperparameters["prior_precision"])
    settings = {**post.settings, "prior_precision": precision, "prior_chosen": warned}
    result = replace(result, settings=settings)
    if held is not None:
        temperature, calibration = calibrated(result, work, model, found, held)
        result = replace(result, temperature=temperature, calibration=calibration)
    if options.get("progress", True):
        print(f"ornstein: {result.calibration}", file=sys.stderr)
    return result


def _matrix(features: ArrayLike, what: str) -> Array:
    found = tables.features(features)[0]
    if tables.is_sparse(found) or 0 in np.shape(found):
        raise InputError(
            f"{what} must be a dense matrix, one row per example; its shape is {np.shape(found)}"
        )
    require_finite(what, found)
    return np.asarray(found, dtype=float)


def _checked_head(head: tuple[ArrayLike, ArrayLike]) -> tuple[Array, Array]:
    if not isinstance(head, tuple) or len(head) != 2:
        raise InputError("head must be a pair: weights (features, outputs), biases (outputs,)")
    weights, biases = (as_numbers("head", part) for part in head)
    if not (np.all(np.isfinite(weights)) and np.all(np.isfinite(biases))):
        raise InputError("head holds a value that is not finite")
    if weights.ndim == 1:
        weights = weights[:, None]
    biases = np.atleast_1d(biases)
    if weights.ndim != 2 or biases.shape != weights.shape[1:]:
        raise InputError(
            "head must be weights (features, outputs) and biases (outputs,); the shapes are"
            f" {weights.shape} and {biases.shape}"
        )
    return weights, biases


def _require_known(options: Options) -> None:
    unknown = sorted(set(options) - set(Options.__annotations__))
    if unknown:
        known = ", ".join(Options.__annotations__)
        raise InputError(f"there is no option {brief(unknown[0])}; there are {known}")


def _held_out(held_out: tuple[ArrayLike, ArrayLike], work: Work) -> tuple[Array, Array]:
    """Features, and the codes or numbers that were to be predicted."""
    if not isinstance(held_out, tuple) or len(held_out) != 2:
        raise InputError("held_out must be a pair: features and y of rows kept aside")
    tables.require_one_index((("the features held out", held_out[0]), ("their y", held_out[1])))
    rows, outcomes = _matrix(held_out[0], "held_out"), outcomes_of(held_out[1])
    if tables.is_frame(held_out[0]) and work.names:
        rows = rows[:, tables.places_of(tables.features(held_out[0])[1], work.names)]
    width = work.features.shape[1]
    if rows.shape[1] != width:
        raise InputError(f"held_out has {rows.shape[1]} features; the training rows have {width}")
    if len(rows) != len(outcomes):
        raise InputError(f"held_out has {len(rows)} rows but {len(outcomes)} outcomes")
    return rows, known_outcomes(work, outcomes)


def _chosen_prior(work: Work, wanted: float | str) -> tuple[GLM, Array, str]:
    """The model at its prior precision, its mode, and how the precision was chosen."""
    if wanted != EVIDENCE:
        if not is_number(wanted) or float(wanted) <= 0:
            raise InputError(
                f"prior_precision must be a positive number or {EVIDENCE!r}; got {brief(wanted)}"
            )
        given = work.model(float(wanted))
        return given, mode_of(given), "given"
    base = work.model(work.unit)
    found = by_evidence(base, _along(base), work.unit)
    if found.at_the_end:
        warnings.warn(
            f"the evidence is still rising at a prior precision of {found.precision:.3g}, the end"
            " of the range that is searched: give prior_precision a number",
            HyperparameterWarning,
            stacklevel=4,
        )
    return found.model, found.mode, EVIDENCE


def _along(base: GLM) -> Callable[[float], GLM]:
    """The model at any precision; the bias of a classification keeps its share."""
    if "noise_scale" in base.hyperparameters or "log_scale" in base.layout.paths:
        return lambda precision: at_precision(base, precision)
    share = float(
        base.hyperparameters["intercept_precision"] / base.hyperparameters["prior_precision"]
    )

    def at(precision: float) -> GLM:
        changed = base.with_hyperparameters(
            prior_precision=precision, intercept_precision=share * precision
        )
        assert isinstance(changed, GLM)
        return changed

    return at
