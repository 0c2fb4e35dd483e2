"""log p(y | x, θ) of one example, by family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    the numbers that it fixes. `elementary` is that of its `Traits`. `parts` are auxiliary
    parameters that have columns of their own, with the first of these and the one after the last:
    ("zero_logit", 3, 5). They are the last columns of the table, and the last entries of `coef`.
    """

    family: str
    predictors: int
    infer_scale: bool = False
    coef_reference: bool = False
    intercept_reference: bool = False
    elementary: bool = False
    link: str = ""
    settings: tuple[tuple[str, float], ...] = ()
    parts: tuple[tuple[str, int, int], ...] = ()

    def __post_init__(self) -> None:
        # files hold lists, and those of 0.1 no link
        settings = tuple((name, value) for name, value in self.settings)
        object.__setattr__(self, "settings", settings)
        parts = tuple((name, first, after) for name, first, after in self.parts)
        object.__setattr__(self, "parts", parts)
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
        value = self._density(self._place(params, example), example["y"], hyperparameters)
        return value * example["weight"] if "weight" in example else value

    def change(
        self, centre: PyTree, params: PyTree, example: PyTree, hyperparameters: PyTree
    ) -> Traced:
        """Its slope in the parameters is that of the log likelihood less what it is at the centre.

        Predictors are linear in the parameters, so that one product with the features does for both
        slopes. Those at the centre need none: its coefficients are zeros, because what they
        contribute is in the offset (`GLM._centred`).
        """
        place = self._place(params, example)
        offset = example["offset"] if "offset" in example else jnp.zeros(())
        level = jnp.broadcast_to(offset, place[0].shape).astype(place[0].dtype)
        still = level, self.shared(centre, example["x"])
        slope = jax.grad(self._density)(still, example["y"], hyperparameters)
        linear = jax.tree.map(lambda rise, at: jnp.sum(rise * at), slope, place)
        value = self._density(place, example["y"], hyperparameters) - sum(jax.tree.leaves(linear))
        return value * example["weight"] if "weight" in example else value

    def _place(self, params: PyTree, example: PyTree) -> tuple[Traced, dict[str, Any]]:
        """All that the density of an example needs of the parameters: its linear predictor, and the
        auxiliary parameters. These stay apart, so that functions of them alone, such as log Γ of a
        shape, are computed once for all rows of a minibatch.
        """
        predictor = self.predictor(params, example["x"])
        if "offset" in example:
            predictor = predictor + example["offset"]
        return predictor, self.shared(params, example["x"])

    def _density(
        self, place: tuple[Traced, dict[str, Any]], y: Traced, hyperparameters: PyTree
    ) -> Traced:
        predictor, shared = place
        return self.law.log_density(predictor, y, shared, hyperparameters)

    def predictor(self, params: PyTree, x: Traced) -> Traced:
        """The linear predictor: a scalar, or a vector with one entry per class."""
        coef = params["coef"]
        if self.parts:
            linear = _product(x, coef, 0, self.parts[0][1])
        elif isinstance(x, dict):
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
        """log p(y) for the linear predictor, with the auxiliary parameters after it where there are
        any.
        """
        law = self.law
        shared = {item.name: predictor[k + 1] for k, item in enumerate(law.auxiliaries)}
        u = predictor[0] if shared else predictor
        return law.log_density(u, y, shared, hyperparameters)

    def mean(self, predictor: Any, shared: Mapping[str, Traced]) -> Any:
        """E[y | u]: probabilities where y holds labels."""
        return self.law.mean(predictor, shared)

    def shared(self, params: PyTree, x: Traced) -> dict[str, Any]:
        """The auxiliary parameters of an example: those that have columns follow them."""
        found = {auxiliary.name: params[auxiliary.name] for auxiliary in self.auxiliaries}
        for name, first, after in self.parts:
            found[name] = found[name] + _product(x, params["coef"], first, after)
        return found


def _product(x: Traced, coef: Traced, first: int, after: int) -> Traced:
    """x·coef over some of the columns."""
    if not isinstance(x, dict):
        return x[..., first:after] @ coef[first:after]
    inside = (x["columns"] >= first) & (x["columns"] < after)
    return jnp.sum(jnp.where(inside, x["values"] * coef[x["columns"]], 0.0), axis=0)


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

    `columns` are the names of the columns, where the model was made from a table that has them;
    `offset` is whether its rows had one, so that new ones need theirs.
    """

    likelihood: Likelihood
    columns: tuple[str, ...] = ()
    offset: bool = field(default=False, kw_only=True)

    def __call__(self, params: PyTree, x: Traced) -> Traced:
        likelihood = self.likelihood
        return likelihood.mean(likelihood.predictor(params, x), likelihood.shared(params, x))

    def new_rows(self, inputs: object) -> NewRows | None:
        """The rows that a table's columns become, where the model was made by a formula."""
        return inputs if isinstance(inputs, NewRows) else None
