"""log p(y | x, θ) of one example, by family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ornstein.model.families.family import Auxiliary, Family
from ornstein.model.families.table import rebuilt
from ornstein.model.tables import NewRows
from ornstein.rows.choice import Traits
from ornstein.types import PyTree, Traced


@dataclass(frozen=True)
class Likelihood:
    """log p(y | x, θ) of one example; equal settings compare equal, so that fits share compiled
    code.

    All fields are plain values, which saved files hold: the family by its name, and in `settings`
    the numbers that it fixes. `elementary` is that of its `Traits`.
    """

    family: str
    predictors: int
    infer_scale: bool = False
    coef_reference: bool = False
    intercept_reference: bool = False
    elementary: bool = False
    link: str = ""
    settings: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        # files hold lists, and those of 0.1 no link
        settings = tuple((name, value) for name, value in self.settings)
        object.__setattr__(self, "settings", settings)
        object.__setattr__(self, "link", self.law.link)

    @property
    def law(self) -> Family:
        """The family itself."""
        own = (("infer_scale", self.infer_scale),) if self.family == "gaussian" else ()
        return rebuilt(self.family, self.link, (*self.settings, *own))

    @property
    def outcomes(self) -> int:
        """How many probabilities an expectation consists of, 0 where it is one number."""
        return self.predictors if self.law.classes else self.law.outcomes

    @property
    def auxiliaries(self) -> tuple[Auxiliary, ...]:
        """The parameters beside coefficients and intercept, in the order of their predictors."""
        return self.law.auxiliaries

    @property
    def traits(self) -> Traits:
        """What allows faster steps; the scale of a gaussian family, once known, is one factor."""
        return Traits(self.elementary, self.elementary and self.law.polynomial, Likelihood.change)

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
        shape = () if self.auxiliaries else predictors.shape
        offset = example["offset"] if "offset" in example else jnp.zeros(shape)
        still = self._stacked(offset.astype(predictors.dtype), centre)
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
        return self._stacked(predictor, params)

    def _stacked(self, predictor: Traced, params: PyTree) -> Traced:
        """The linear predictor, with the auxiliary parameters after it where there are any."""
        shared = [params[auxiliary.name] for auxiliary in self.auxiliaries]
        return jnp.stack([predictor, *shared]) if shared else predictor

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
        """log p(y) for what `_stacked` returns."""
        law = self.law
        shared = {item.name: predictor[k + 1] for k, item in enumerate(law.auxiliaries)}
        u = predictor[0] if shared else predictor
        return law.log_density(u, y, shared, hyperparameters)

    def mean(self, predictor: Any, shared: Mapping[str, Traced]) -> Any:
        """E[y | u]: probabilities where y holds labels."""
        return self.law.mean(predictor, shared)

    def shared(self, params: PyTree) -> dict[str, Any]:
        """The auxiliary parameters among the parameters."""
        return {auxiliary.name: params[auxiliary.name] for auxiliary in self.auxiliaries}


@dataclass(frozen=True)
class PredictorLoss:
    """−log p(y | u), weighted, as a function of the vector of predictors u: what the closed forms
    differentiate.
    """

    likelihood: Likelihood

    def __call__(
        self, predictors: Traced, y: Traced, weight: Traced, hyperparameters: PyTree
    ) -> Traced:
        many = self.likelihood.law.classes or self.likelihood.auxiliaries
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
        likelihood = self.likelihood
        return likelihood.mean(likelihood.predictor(params, x), likelihood.shared(params))

    def new_rows(self, inputs: object) -> NewRows | None:
        """The rows that a table's columns become, where the model was made by a formula."""
        return inputs if isinstance(inputs, NewRows) else None
