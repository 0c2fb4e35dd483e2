"""The posterior of a network's last layer, from the features that enter it.

The rest of the network stays as it was trained. What is left is a regression on its features, with
one logit per class, a normal prior on weights and biases whose precision the evidence chooses, and
draws by the way that the plan finds.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

from ornstein.checks import FULL_LIMIT, brief, is_number, require_finite
from ornstein.curvature.measure import measure
from ornstein.entrances.running import sample
from ornstein.errors import HyperparameterWarning, InputError
from ornstein.interfaces.networks.evidence import by_evidence, mode_of
from ornstein.interfaces.networks.temperature import (
    Classes,
    Forecasts,
    Numbers,
    best_temperature,
    score,
    some,
)
from ornstein.model import tables
from ornstein.model.priors import InverseGamma, Normal, Prior
from ornstein.model.regression import GLM, glm
from ornstein.posterior.at_draws import RowsAtDraws
from ornstein.posterior.last_layer import Calibration, LastLayerPosterior, Network
from ornstein.types import Array

TASKS = ("auto", "classification", "regression")
EVIDENCE = "evidence"
# Of a regression's y, in its standard deviations: how wide the prior of the bias is, and noise
# below which the prior of the noise scale falls.
BIAS, LEAST_NOISE = 2.5, 0.05


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
    rows = _matrix(features, "features")
    work = _Work.of(rows, y, task, head, classes)
    held = None if held_out is None else _held_out(held_out, rows.shape[1])
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
        temperature, calibration = _calibrated(result, work, model, found, held)
        result = replace(result, temperature=temperature, calibration=calibration)
    if options.get("progress", True):
        print(f"ornstein: {result.calibration}", file=sys.stderr)
    return result


@dataclass(frozen=True, eq=False)
class _Work:
    """Features and outcomes that were checked, and the trained layer where it is known.

    `unit` is the precision at which a feature of average size moves a predictor by 1, or by the
    spread of a regression's y.
    """

    features: Array
    outcomes: Array
    family: str
    classes: Array | None
    head: tuple[Array, Array] | None
    unit: float

    @classmethod
    def of(
        cls,
        features: Array,
        y: ArrayLike,
        task: str,
        head: tuple[Array, Array] | None,
        classes: ArrayLike | None,
    ) -> _Work:
        outcomes = outcomes_of(y)
        if len(outcomes) != len(features):
            raise InputError(f"features has {len(features)} rows but y has {len(outcomes)}")
        outputs = 0 if head is None else head[1].size
        if head is not None and head[0].shape[0] != features.shape[1]:
            raise InputError(
                f"the layer takes {head[0].shape[0]} features; there are {features.shape[1]}"
            )
        square = float(np.mean(features**2))
        if not square > 0:
            raise InputError("all features are zero: there is nothing to predict from")
        if task_of(outcomes, task, outputs) == "regression":
            outcomes = tables.numbers(outcomes, "y").astype(float)
            if outputs > 1:
                raise InputError(
                    f"the layer has {outputs} outputs; a regression has one here: call"
                    " orn.last_layer(features, y[:, k]) for each of them"
                )
            spread = float(np.var(outcomes))
            if not spread > 0:
                raise InputError("y is constant: there is nothing to predict")
            return cls(features, outcomes, "gaussian", None, head, square / spread)
        known = np.unique(outcomes) if classes is None else np.asarray(classes)
        if known.size < 2:
            raise InputError("y holds one class only: there is nothing to separate")
        family = "bernoulli" if outputs == 1 else "categorical"
        expected = 2 if outputs == 1 else outputs
        if outputs and known.size != expected:
            raise InputError(
                f"the layer has {outputs} outputs and y {known.size} labels: they do not fit"
            )
        wide = (features.shape[1] + 1) * (1 if outputs == 1 else known.size)
        if wide > FULL_LIMIT:
            most = FULL_LIMIT // known.size - 1
            raise InputError(
                f"{features.shape[1]} features and {known.size} classes make {wide:,} weights,"
                f" above the limit of {FULL_LIMIT:,} up to which the evidence is computed: train a"
                f" narrower last hidden layer, or give orn.last_layer the first {most} principal"
                " components of the features"
            )
        return cls(features, outcomes, family, known, head, square)

    def model(self, precision: float) -> GLM:
        """The regression at a prior precision."""
        if self.family != "gaussian":
            return glm(
                self.features,
                self.outcomes,
                self.family,
                prior_precision=precision,
                intercept_precision=precision / float(np.mean(self.features**2)),
                classes=self.classes,
            )
        spread = float(np.std(self.outcomes))
        priors: dict[str, Prior] = {
            "intercept": Normal(float(np.mean(self.outcomes)), BIAS * spread),
            "scale": InverseGamma(1.0, LEAST_NOISE * spread),
        }
        base = glm(self.features, self.outcomes, prior_precision=1.0, priors=priors)
        return _at(base, precision)

    def logits(self, features: Array, weights: Array, biases: Array) -> Array:
        """Of one layer at rows, (1, rows, classes) or (1, rows) for a regression."""
        found = (features @ weights + biases)[None]
        if self.family == "categorical":
            return found
        return found[..., 0] if self.family == "gaussian" else with_zero(found[..., 0])


def with_zero(logit: Array) -> Array:
    """The logits of two classes from the one of the second."""
    return np.stack([np.zeros_like(logit), logit], axis=-1)


def task_of(outcomes: Array, task: str, outputs: int = 0) -> str:
    """What y asks for; `outputs` are those of the layer, 0 where they are not known.

    >>> task_of(np.array([0.5, 1.0]), "auto"), task_of(np.array(["a", "b"]), "auto")
    ('regression', 'classification')
    """
    if task not in TASKS:
        raise InputError(f"task must be one of {', '.join(TASKS)}; got {brief(task)}")
    if task != "auto":
        return task
    if outputs == 1 and outcomes.dtype.kind in "biuf":
        return "classification" if set(np.unique(outcomes)) == {0, 1} else "regression"
    return "classification" if outputs > 1 or outcomes.dtype.kind != "f" else "regression"


def outcomes_of(y: ArrayLike) -> Array:
    """y as one array of labels or numbers, a column of them laid flat."""
    values = np.asarray(tables.labels(y, "y"))
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


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
    weights, biases = np.asarray(head[0], dtype=float), np.asarray(head[1], dtype=float)
    if weights.ndim == 1:
        weights = weights[:, None]
    biases = np.atleast_1d(biases)
    if weights.ndim != 2 or biases.shape != weights.shape[1:]:
        raise InputError(
            "head must be weights (features, outputs) and biases (outputs,); the shapes are"
            f" {weights.shape} and {biases.shape}"
        )
    return weights, biases


def _held_out(held_out: tuple[ArrayLike, ArrayLike], width: int) -> tuple[Array, Array]:
    if not isinstance(held_out, tuple) or len(held_out) != 2:
        raise InputError("held_out must be a pair: features and y of rows kept aside")
    rows, outcomes = _matrix(held_out[0], "held_out"), outcomes_of(held_out[1])
    if rows.shape[1] != width:
        raise InputError(f"held_out has {rows.shape[1]} features; the training rows have {width}")
    if len(rows) != len(outcomes):
        raise InputError(f"held_out has {len(rows)} rows but {len(outcomes)} outcomes")
    return rows, outcomes


def _at(model: GLM, precision: float) -> GLM:
    changed = model.with_hyperparameters(prior_precision=precision)
    assert isinstance(changed, GLM)
    return changed


def _chosen_prior(work: _Work, wanted: float | str) -> tuple[GLM, Array, str]:
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
        return lambda precision: _at(base, precision)
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


def _calibrated(
    post: LastLayerPosterior,
    work: _Work,
    model: GLM,
    mode: Array,
    held: tuple[Array, Array],
) -> tuple[float, Calibration]:
    """The temperature that held-out rows choose, and the scores there; plain temperature scaling of
    the trained layer beside it.
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


def _codes(work: _Work, outcomes: Array) -> Array:
    assert work.classes is not None
    codes = np.minimum(np.searchsorted(work.classes, outcomes), work.classes.size - 1)
    unknown = work.classes[codes] != outcomes
    if np.any(unknown):
        label = brief(outcomes[unknown].tolist()[0])
        raise InputError(f"held_out holds the label {label}, which the training rows lack")
    return np.asarray(codes)


def _forecasts(work: _Work, model: GLM, draws: Array, held: tuple[Array, Array]) -> Forecasts:
    rows = RowsAtDraws(model.likelihood, model.layout, draws, draws.mean(axis=0), held[0])
    predictors = rows.predictors(slice(None))
    if work.family == "gaussian":
        scales = np.exp(rows.shared()["log_scale"])
        return Numbers(predictors, scales, tables.numbers(held[1], "held_out").astype(float))
    logits = with_zero(predictors) if work.family == "bernoulli" else predictors
    return Classes(logits, _codes(work, held[1]))


def _of_head(work: _Work, head: tuple[Array, Array], held: tuple[Array, Array]) -> Forecasts:
    """Of the layer as it was trained; a regression's noise is that of its residuals."""
    found = work.logits(held[0], *head)
    if work.family != "gaussian":
        return Classes(found, _codes(work, held[1]))
    residuals = work.outcomes - work.logits(work.features, *head)[0]
    scale = np.maximum(np.sqrt(np.mean(residuals**2)), 1e-6 * np.std(work.outcomes))
    return Numbers(found, np.array([scale]), np.asarray(held[1], dtype=float))
