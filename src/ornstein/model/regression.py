"""Regressions: models of any family whose rows see the parameters through linear predictors.

Parameters: `coef`, (D,) or (D, K); `intercept`; and what the family adds, as `log_scale` = log σ
for the gaussian one with an unknown noise scale. The categorical family has one logit per class
(the prior settles their common shift); a block with a flat prior, where nothing would settle it,
takes the first class as reference instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ornstein import markup
from ornstein.errors import CurvatureError, InputError
from ornstein.model import tables
from ornstein.model.coordinates import Worked, worked
from ornstein.model.families.family import Family
from ornstein.model.families.gaussian import Gaussian
from ornstein.model.families.likelihood import Likelihood, Predict, PredictorLoss
from ornstein.model.families.table import family_of
from ornstein.model.linear import LinearPredictor
from ornstein.model.model import Model
from ornstein.model.priors import Prior
from ornstein.model.regression_places import Places
from ornstein.model.regression_prior import (
    Chosen,
    Facts,
    Wanted,
    checked_precision,
    chosen,
    described,
)
from ornstein.model.regression_rows import RegressionRows
from ornstein.model.spread import Spread
from ornstein.rows.choice import packs
from ornstein.rows.packed import side_by_side
from ornstein.types import PyTree

# A noise scale below so small a part of y's standard deviation is rounding: the posterior density
# grows without bound as it falls.
NO_NOISE = 1e-7
MOST_PRIORS = 60  # in a notebook


class GLM(Model):
    """A model with a linear predictor; made by `glm`."""

    likelihood: Likelihood
    features: Any
    response: np.ndarray
    classes: np.ndarray | None
    feature_names: tuple[str, ...]

    @property
    def linear(self) -> LinearPredictor:
        return replace(self._linear, hyperparameters=self.hyperparameters)

    @property
    def table(self) -> Any:
        """The rows as they were given, with the names of their columns."""
        return tables.Named(self.features, self.feature_names)

    @property
    def one_valley(self) -> bool:
        return True

    @property
    def worked(self) -> Worked | None:
        """The same regression with its columns centred, scaled and mixed, where rounding would
        decide otherwise.
        """
        if self.likelihood.parts:
            return None
        return worked(self, self.linear, self._outputs, _row_curvature(self))

    def with_hyperparameters(self, **values: ArrayLike) -> Model:
        """The same regression at other hyperparameters, checked and spread over the classes as
        `glm` does.
        """
        if "prior_precision" in values:
            shape = self.layout.shapes[self.layout.paths.index("coef")]
            outputs = shape[1] if len(shape) == 2 else 1
            values["prior_precision"] = checked_precision(
                "prior_precision", values["prior_precision"], shape[0], outputs
            )
        return super().with_hyperparameters(**values)

    def reweighted(self, factors: np.ndarray) -> GLM:
        """The same rows, the log likelihood of each multiplied by its factor."""
        weights = np.asarray(factors, dtype=float)
        if self._linear.weights is not None:
            weights = weights * self._linear.weights
        return self.replace(
            data={**self.data, "weight": weights}, _linear=replace(self._linear, weights=weights)
        )

    @property
    def priors(self) -> dict[str, str]:
        """The prior of every column, of the intercept and of what the family adds, in words.

        >>> glm(np.array([[0.0], [1.0], [2.0]]), [1.0, 2.0, 4.0], noise_scale=1.0).priors
        {'x0': 'Normal(0, 3.819)', 'intercept': 'Normal(2.333, 3.118) where columns are average'}
        """
        return described(
            self.loss.log_prior,
            self.hyperparameters,
            self.feature_names,
            "intercept" in self.layout.paths,
            self.likelihood.auxiliaries,
        )

    def __repr__(self) -> str:
        size = f"{self.n_data:,} rows, {self.dim:,} parameters"
        return f"{type(self).__name__}({self.likelihood.family}, {size})"

    def _repr_html_(self) -> str:
        rows = list(self.priors.items())[:MOST_PRIORS]
        return markup.sentence(repr(self)) + markup.table(["", "prior"], rows)

    def require_mode(self, theta: np.ndarray) -> None:
        require_noise(self, theta)

    def _centred(self, centre: np.ndarray) -> tuple[PyTree, np.ndarray]:
        """Put the linear predictor at the centre into the offset (gaussian: into y), in float64
        before any rounding.
        """
        if not np.any(centre):
            return self.data, centre
        return self._shifted(self.data, self._linear.linear_part(centre)), self._likelihood_centre(
            centre
        )

    def _laid_out(self, data: PyTree, dtype: str, batch_size: int) -> PyTree:
        if packs(data, dtype, batch_size * self.dim):
            return side_by_side(data, dtype, coefficients="coef")
        return super()._laid_out(data, dtype, batch_size)

    def _centred_rows(self, rows: PyTree, centre: np.ndarray) -> PyTree:
        return self._shifted(rows, self._linear.linear_part_of(rows["x"], centre))

    def _likelihood_centre(self, centre: np.ndarray) -> np.ndarray:
        remaining = centre.copy()
        remaining[self._linear.predictor_of < self._outputs] = 0.0
        return remaining

    def _shifted(self, rows: PyTree, linear_part: np.ndarray) -> PyTree:
        offset = linear_part[:, : self._outputs]
        offset = offset[:, 0] if self.likelihood.family != "categorical" else offset
        if "offset" in rows:
            offset = offset + rows["offset"]
        if self.likelihood.family == "gaussian":
            rest = {key: leaf for key, leaf in rows.items() if key != "offset"}
            return {**rest, "y": np.asarray(rows["y"], dtype=float) - offset}
        return {**rows, "offset": offset}

    @property
    def _outputs(self) -> int:
        return self.likelihood.predictors

    _linear: LinearPredictor


def _row_curvature(model: GLM) -> float:
    """About what a row adds to the second derivative in its predictor."""
    if model.likelihood.family == "gaussian":
        known = model.hyperparameters.get("noise_scale")
        return 1.0 / max(float(np.var(model.response) if known is None else known**2), 1e-300)
    if model.likelihood.family == "poisson":
        return max(float(np.mean(model.response)), 1e-300)
    return 0.25


def require_noise(model: Model, theta: np.ndarray) -> None:
    """Refuse a noise scale on its way to zero, where columns explain y exactly."""
    if "log_scale" not in model.layout.paths:
        return
    place = model.names.index("log_scale")
    scale, spread = math.exp(theta[place]), math.exp(model.init[place])
    if scale < NO_NOISE * spread:
        raise CurvatureError(
            f"the columns explain y exactly: the noise scale tends to {scale:.1g}, below"
            f" {NO_NOISE:.0e} of y's standard deviation, and the posterior has no maximum. Give"
            " noise_scale a number, raise prior_precision or use fewer columns"
        )


def glm(
    X: object,
    y: object,
    family: str | Family = "gaussian",
    prior_precision: ArrayLike | None = None,
    noise_scale: float | str = "infer",
    intercept: bool = True,
    weights: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    intercept_precision: float | None = None,
    classes: ArrayLike | None = None,
    link: str | None = None,
    priors: Mapping[str, Prior] | None = None,
    facts: Facts | None = None,
    parts: Mapping[str, int] | None = None,
) -> GLM:
    """A regression on rows of this process; `ornstein.glm` explains the arguments.

    `facts` are those of all rows where these are only some of them. `parts` says of auxiliary
    parameters, by the user's word, how many of X's last columns are their own.
    """
    law = _scaled(family_of(family, link), noise_scale)
    rows = RegressionRows.of(X, y, law, weights, offset, classes)
    law, own = rows.law, _own_columns(rows.law, rows.table.shape[1], parts or {})
    wanted = Wanted(prior_precision, intercept_precision, priors)
    prior = chosen(law, rows.names, rows.outputs, wanted, lambda: facts or facts_of(rows), own)
    likelihood = _likelihood(rows, prior, own)
    hyper = dict(prior.hyperparameters)
    if isinstance(law, Gaussian) and not law.infer_scale:
        hyper["noise_scale"] = _positive("noise_scale", noise_scale)
    places = Places.of(likelihood, rows.names, rows.classes, intercept and law.intercepts)
    linear = LinearPredictor(
        PredictorLoss(likelihood),
        rows.table,
        rows.response,
        rows.weights,
        rows.offset,
        places.feature_of,
        places.predictor_of,
        rows.outputs + len(law.auxiliaries),
        hyper,
    )
    start = {name: np.asarray(value) for name, value in law.start(rows.response).items()}
    model = GLM(
        likelihood,
        rows.data(),
        prior.log_prior,
        places.zeros | start,
        Predict(likelihood, rows.names if rows.named else (), offset=rows.offset is not None),
        hyper,
        names=places.names,
    )
    return model.replace(
        loss=replace(model.loss, traits=likelihood.traits),
        likelihood=likelihood,
        features=rows.table,
        response=rows.response,
        classes=rows.classes,
        feature_names=rows.names,
        _linear=linear,
    )


def _likelihood(
    rows: RegressionRows, prior: Chosen, parts: tuple[tuple[str, int, int], ...]
) -> Likelihood:
    law = rows.law
    return Likelihood(
        law.name,
        rows.outputs,
        infer_scale=isinstance(law, Gaussian) and law.infer_scale,
        coef_reference=law.classes and prior.coef_flat,
        intercept_reference=law.classes and prior.intercept_flat,
        elementary=law.elementary and not tables.is_sparse(rows.table) and not parts,
        link=law.link,
        settings=law.settings,
        parts=parts,
    )


def _own_columns(
    law: Family, columns: int, parts: Mapping[str, int]
) -> tuple[tuple[str, int, int], ...]:
    """Where in the table the columns of the auxiliary parameters lie, by their names."""
    by_word = {auxiliary.word: auxiliary.name for auxiliary in law.auxiliaries}
    found, first = [], columns - sum(parts.values())
    for word, count in parts.items():
        if word not in by_word:
            raise InputError(
                f"the {law.name} family has no parameter {word!r} that columns can explain;"
                f" it has {', '.join(by_word) or 'none'}"
            )
        found.append((by_word[word], first, first + count))
        first += count
    return tuple(found)


def _scaled(family: Family, noise_scale: object) -> Family:
    """The gaussian family with its σ inferred or not."""
    infer = isinstance(noise_scale, str) and noise_scale == "infer"
    if isinstance(family, Gaussian):
        return replace(family, infer_scale=infer)
    return family


def facts_of(rows: RegressionRows) -> Facts:
    """What default priors ask of the data, each row counting by its weight."""
    law, response, weights = rows.law, rows.response, rows.weights
    middle = law.middle(response, weights)
    if rows.offset is not None:
        middle = middle - np.average(rows.offset, axis=0, weights=weights)
        response = law.without(response, rows.offset)
    return Facts(Spread.of(rows.table, weights), law.unit(response, weights), middle)


def _positive(what: str, value: ArrayLike) -> np.ndarray:
    if not isinstance(value, int | float | np.number) or not np.isfinite(value) or value <= 0:
        given = repr(value) if np.ndim(value) == 0 else f"an array of shape {np.shape(value)}"
        raise InputError(f"{what} must be a positive number or 'infer'; got {given}")
    return np.asarray(float(value))
