"""log p(y | x, θ) of one example, by family."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ornstein.errors import InputError
from ornstein.model.tables import NewRows
from ornstein.rows.choice import Traits
from ornstein.types import PyTree, Traced

FAMILIES = ("gaussian", "bernoulli", "categorical", "poisson")


def checked_family(family: str) -> str:
    """The name of a family, or a sentence on which there are."""
    if family not in FAMILIES:
        raise InputError(f"unknown family {family!r}; choose one of {FAMILIES}")
    return family


@dataclass(frozen=True)
class Likelihood:
    """log p(y | x, θ) of one example; equal settings compare equal, so that fits share compiled
    code.

    `elementary` is that of its `Traits`.
    """

    family: str
    predictors: int
    infer_scale: bool = False
    coef_reference: bool = False
    intercept_reference: bool = False
    elementary: bool = False

    @property
    def traits(self) -> Traits:
        """What allows faster steps; the scale of a gaussian family, once known, is one factor."""
        polynomial = self.elementary and self.family == "gaussian"
        return Traits(self.elementary, polynomial, Likelihood.change)

    def __call__(self, params: PyTree, example: PyTree, hyperparameters: PyTree) -> Traced:
        value = self.of_predictor(self._predictors(params, example), example["y"], hyperparameters)
        return value * example["weight"] if "weight" in example else value

    def change(
        self, centre: PyTree, params: PyTree, example: PyTree, hyperparameters: PyTree
    ) -> Traced:
        """Its slope in the parameters is that of the log likelihood less what it is at the centre.

        Predictors are linear in the parameters, so that one product with the features does for both
        slopes. Those at the centre need none: its coefficients are zeros, because what they
        contribute is in the offset (`GLM._centred`).
        """
        predictors = self._predictors(params, example)
        offset = (
            example["offset"]
            if "offset" in example
            else jnp.zeros(predictors.shape[int(self.infer_scale) :])
        )
        still = self._with_scale(offset.astype(predictors.dtype), centre)
        slope = jax.grad(self.of_predictor)(still, example["y"], hyperparameters)
        value = self.of_predictor(predictors, example["y"], hyperparameters) - jnp.sum(
            slope * predictors
        )
        return value * example["weight"] if "weight" in example else value

    def _predictors(self, params: PyTree, example: PyTree) -> Traced:
        """All that `of_predictor` needs of the parameters."""
        predictor = self.predictor(params, example["x"])
        if "offset" in example:
            predictor = predictor + example["offset"]
        return self._with_scale(predictor, params)

    def _with_scale(self, predictor: Traced, params: PyTree) -> Traced:
        return jnp.stack([predictor, params["log_scale"]]) if self.infer_scale else predictor

    def predictor(self, params: PyTree, x: Traced) -> Traced:
        """The linear predictor: a scalar, or a vector with one entry per class."""
        coef = params["coef"]
        if isinstance(x, dict):
            values = x["values"] if coef.ndim == 1 else x["values"][:, None]
            linear = jnp.sum(values * coef[x["columns"]], axis=0)
        elif coef.ndim == 1:
            linear = x @ coef
        else:
            # Rows of classes, not columns: the products with few of them take half the time, if XLA
            # is kept from undoing it.
            linear = (lax.optimization_barrier(coef.T) @ x.T).T
        if self.coef_reference:
            linear = jnp.concatenate([jnp.zeros_like(linear[..., :1]), linear], axis=-1)
        if "intercept" not in params:
            return linear
        intercept = params["intercept"]
        if self.intercept_reference:
            intercept = jnp.concatenate([jnp.zeros_like(intercept[:1]), intercept])
        return linear + intercept

    def of_predictor(self, predictor: Traced, y: Traced, hyperparameters: PyTree) -> Traced:
        if self.family == "gaussian":
            if self.infer_scale:
                mean, log_scale = predictor[0], predictor[1]
                fit = ((y - mean) * jnp.exp(-log_scale)) ** 2
            else:
                # The scale's part comes as one number: no exponential and no division for every
                # row.
                mean, log_scale = predictor, jnp.log(hyperparameters["noise_scale"])
                fit = (y - mean) ** 2 * (1.0 / hyperparameters["noise_scale"]) ** 2
            return -0.5 * fit - log_scale - 0.5 * np.log(2.0 * np.pi)
        if self.family == "bernoulli":
            # Not yu − softplus(u), whose slope is lost to rounding at large u.
            return -_softplus((1.0 - 2.0 * y) * predictor)
        if self.family == "categorical":
            # Not predictor[y], whose slope is a scatter.
            chosen = jnp.where(jnp.arange(predictor.shape[-1]) == y, predictor, 0.0)
            return jnp.sum(chosen) - jax.nn.logsumexp(predictor)
        return y * predictor - jnp.exp(predictor) - jax.scipy.special.gammaln(y + 1.0)

    def mean(self, predictor: Traced) -> Traced:
        """E[y | x, θ]: probabilities for the two discrete families."""
        if self.family == "bernoulli":
            return jax.nn.sigmoid(predictor)
        if self.family == "categorical":
            return jax.nn.softmax(predictor, axis=-1)
        return jnp.exp(predictor) if self.family == "poisson" else predictor


@jax.custom_jvp
def _softplus(u: Traced) -> Traced:
    """log(1 + exp u), whose slope needs one exponential; JAX's own takes two and a logarithm, half
    the time of a step.
    """
    return jax.nn.softplus(u)


@_softplus.defjvp
def _softplus_slope(primals: tuple[Traced], tangents: tuple[Traced]) -> tuple[Traced, Traced]:
    return _softplus(primals[0]), _sigmoid(primals[0]) * tangents[0]


@jax.custom_jvp
def _sigmoid(u: Traced) -> Traced:
    return jax.nn.sigmoid(u)


@_sigmoid.defjvp
def _sigmoid_slope(primals: tuple[Traced], tangents: tuple[Traced]) -> tuple[Traced, Traced]:
    """s(u)s(−u) and not s(1−s), which is zero from u = 37 on."""
    return _sigmoid(primals[0]), _sigmoid(primals[0]) * _sigmoid(-primals[0]) * tangents[0]


@dataclass(frozen=True)
class PredictorLoss:
    """−log p(y | u), weighted, as a function of the vector of predictors u: what the closed forms
    differentiate.
    """

    likelihood: Likelihood

    def __call__(
        self, predictors: Traced, y: Traced, weight: Traced, hyperparameters: PyTree
    ) -> Traced:
        many = self.likelihood.family == "categorical" or self.likelihood.infer_scale
        return -weight * self.likelihood.of_predictor(
            predictors if many else predictors[0], y, hyperparameters
        )


@dataclass(frozen=True)
class Predict:
    """E[y | x, θ] for new rows; what `Posterior.predict` calls.

    `columns` are the names of the columns, where the model was made from a table that has them.
    """

    likelihood: Likelihood
    columns: tuple[str, ...] = ()

    def __call__(self, params: PyTree, x: Traced) -> Traced:
        return self.likelihood.mean(self.likelihood.predictor(params, x))

    def new_rows(self, inputs: object) -> NewRows | None:
        """The rows that a table's columns become, where the model was made by a formula."""
        return inputs if isinstance(inputs, NewRows) else None
