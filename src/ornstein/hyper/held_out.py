"""The loss on rows that were kept aside: mean −log p(y|x,θ) per row, in nats."""

from __future__ import annotations

import jax
import numpy as np
import scipy.special

from ornstein.errors import InputError
from ornstein.hyper.full_batch import FullBatch
from ornstein.model import tables
from ornstein.model.model import Model
from ornstein.model.regression import GLM
from ornstein.types import Array, PyTree


class HeldOut:
    """Validation data in the shape of a model's own."""

    def __init__(self, model: Model, validation: PyTree) -> None:
        self._rows = FullBatch(_with_data(model, validation))

    def loss(self, model: Model, theta: Array) -> float:
        """Of one parameter vector, at the hyperparameters of `model`."""
        return float(-np.mean(self._rows.log_likelihoods(model, theta)))

    def predictive_loss(self, model: Model, draws: Array, most: int = 100) -> float:
        """Of the average prediction over draws (n, D): −mean log (1/n) Σ p(y|x,θ_i), for at most
        `most` of them.
        """
        chosen = draws[np.unique(np.linspace(0, len(draws) - 1, most).astype(int))]
        values = np.stack([self._rows.log_likelihoods(model, theta) for theta in chosen])
        return float(-np.mean(scipy.special.logsumexp(values, axis=0) - np.log(len(chosen))))


def _with_data(model: Model, validation: PyTree) -> Model:
    if isinstance(validation, Model):
        if validation.layout != model.layout:
            raise InputError("the validation model has other parameters than the model")
        return validation
    data = (
        _regression_rows(model, validation)
        if isinstance(model, GLM)
        else jax.tree.map(np.asarray, validation)
    )
    found: jax.tree_util.PyTreeDef = jax.tree.structure(data)
    wanted: jax.tree_util.PyTreeDef = jax.tree.structure(model.data)
    if found != wanted:
        raise InputError(f"validation must be a Model or have the structure of the data, {wanted}")
    shapes = [leaf.shape[1:] for leaf in jax.tree.leaves(model.data)]
    if [leaf.shape[1:] for leaf in jax.tree.leaves(data)] != shapes:
        raise InputError(
            f"the rows of the validation data must have the shapes of the model's, {shapes}"
        )
    return model.replace(data=data, n_data=int(jax.tree.leaves(data)[0].shape[0]))


def _regression_rows(model: GLM, validation: PyTree) -> dict[str, Array]:
    """(X, y) for a regression, labels as the model knows them."""
    if not isinstance(validation, tuple) or len(validation) != 2:
        raise InputError("validation must be a pair (X, y) or a Model")
    if "weight" in model.data or "offset" in model.data:
        raise InputError(
            "the model has weights or offsets: give the validation data as a Model, made by orn.glm"
            " with theirs"
        )
    table, _ = tables.features(validation[0])
    target = tables.column(validation[1], "y")
    if table.shape[1] != model.features.shape[1] or table.shape[0] != target.shape[0]:
        raise InputError(
            f"validation has {table.shape} features and {target.shape[0]} targets; the model has"
            f" {model.features.shape[1]} columns"
        )
    dense = table.toarray() if hasattr(table, "toarray") else np.asarray(table)
    if isinstance(model.data["x"], dict):
        raise InputError("validation for a sparse model must be a Model, made by orn.glm")
    if model.classes is None:
        return {"x": dense, "y": tables.numbers(target, "y").astype(float)}
    codes = np.searchsorted(model.classes, target)
    known = codes < model.classes.size
    if not np.all(known) or np.any(model.classes[codes] != target):
        raise InputError("validation holds a label that the model has never seen")
    return {"x": dense, "y": codes.astype(model.data["y"].dtype)}
