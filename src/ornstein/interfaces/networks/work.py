"""The regression that a last layer is: features and outcomes checked, and the model at a precision
of its prior.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ornstein.checks import FULL_LIMIT, brief, require_finite
from ornstein.errors import InputError
from ornstein.model import tables
from ornstein.model.priors import InverseGamma, Normal, Prior
from ornstein.model.regression import GLM, glm
from ornstein.model.response import in_order
from ornstein.types import Array

TASKS = ("auto", "classification", "regression")
# Of a regression's y, in its standard deviations: how wide the prior of the bias is, and noise
# below which the prior of the noise scale falls.
BIAS, LEAST_NOISE = 2.5, 0.05


@dataclass(frozen=True, eq=False)
class Work:
    """Features and outcomes that were checked, and the trained layer where it is known.

    `unit` is the precision at which a feature of average size moves a predictor by 1, or by the
    spread of a regression's y. `names` are those of the features' columns, where they have some.
    """

    features: Array
    outcomes: Array
    family: str
    classes: Array | None
    head: tuple[Array, Array] | None
    unit: float
    names: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        features: Array,
        y: ArrayLike,
        task: str,
        head: tuple[Array, Array] | None,
        classes: ArrayLike | None,
        names: tuple[str, ...] = (),
    ) -> Work:
        outcomes = outcomes_of(y)
        if outcomes.dtype.kind == "f":
            require_finite("y", outcomes)
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
            return cls(features, outcomes, "gaussian", None, head, square / spread, names)
        known = in_order(outcomes)[0] if classes is None else np.asarray(classes)
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
        return cls(features, outcomes, family, known, head, square, names)

    def model(self, precision: float) -> GLM:
        """The regression at a prior precision."""
        table = tables.Named(self.features, self.names) if self.names else self.features
        if self.family != "gaussian":
            return glm(
                table,
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
        base = glm(table, self.outcomes, prior_precision=1.0, priors=priors)
        return at_precision(base, precision)

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
        values = np.unique(outcomes)
        if values.size == 2 and set(values) != {0, 1}:
            raise InputError(
                f"y holds two values, {brief(values[0].item())} and {brief(values[1].item())}, for"
                " a layer with one output: write them as 0 and 1 for a classification, or give"
                " task='regression'"
            )
        return "classification" if values.size == 2 else "regression"
    return "classification" if outputs > 1 or outcomes.dtype.kind != "f" else "regression"


def classes_of(y: ArrayLike, task: str, outputs: int) -> Array | None:
    """The classes that the outputs of a layer stand for, so that one that no row has is still a
    class; None for a regression.
    """
    outcomes = outcomes_of(y)
    if task_of(outcomes, task, outputs) == "regression":
        return None
    classes = np.arange(max(2, outputs))
    unknown = outcomes[~np.isin(outcomes, classes)]
    if unknown.size:
        raise InputError(
            f"y holds the label {brief(unknown.tolist()[0])}; the outputs of the layer stand for"
            f" the labels 0 to {classes[-1]}"
        )
    return classes


def outcomes_of(y: ArrayLike) -> Array:
    """y as one array of labels or numbers, a column of them laid flat."""
    values = np.asarray(tables.labels(y, "y"))
    if values.dtype.kind == "c":
        raise InputError(f"y must hold labels or real numbers, not values of dtype {values.dtype}")
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def at_precision(model: GLM, precision: float) -> GLM:
    """The same regression at another precision of its weights."""
    changed = model.with_hyperparameters(prior_precision=precision)
    assert isinstance(changed, GLM)
    return changed
