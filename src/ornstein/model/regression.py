"""Generalised linear models: gaussian, bernoulli, categorical and poisson regression with Gaussian
priors.

Parameters: `coef`, (D,) or (D, K); `intercept`; and for the gaussian family with an unknown noise
scale `log_scale` = log σ. The categorical family has one logit per class (the prior settles their
common shift); a block with a flat prior, where nothing would settle it, takes the first class as
reference instead.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ornstein.checks import as_numbers, require_finite
from ornstein.errors import CurvatureError, InputError
from ornstein.model import tables
from ornstein.model.families.family import Family
from ornstein.model.families.gaussian import Gaussian
from ornstein.model.families.likelihood import Likelihood, Predict, PredictorLoss
from ornstein.model.families.prior import gaussian_prior
from ornstein.model.families.table import family_of
from ornstein.model.linear import LinearPredictor
from ornstein.model.model import Model
from ornstein.model.on_disk import is_table_on_disk, open_table
from ornstein.rows.choice import packs
from ornstein.rows.packed import side_by_side
from ornstein.types import PyTree

# A noise scale below so small a part of y's standard deviation is rounding: the posterior density
# grows without bound as it falls.
NO_NOISE = 1e-7


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

    def with_hyperparameters(self, **values: ArrayLike) -> Model:
        """The same regression at other hyperparameters, checked and spread over the classes as
        `glm` does.
        """
        if "prior_precision" in values:
            shape = self.layout.shapes[self.layout.paths.index("coef")]
            outputs = shape[1] if len(shape) == 2 else 1
            values["prior_precision"] = _precision(
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


def require_noise(model: Model, theta: np.ndarray) -> None:
    """Refuse a noise scale on its way to zero, where columns explain y exactly."""
    if "log_scale" not in model.layout.paths:
        return
    place = model.names.index("log_scale")
    scale, spread = math.exp(theta[place]), math.exp(model.init[place])
    if scale < NO_NOISE * spread:
        raise CurvatureError(
            f"the columns explain y exactly: the noise scale runs to {scale:.1g}, below"
            f" {NO_NOISE:.0e} of y's standard deviation, and the posterior has no maximum. Give"
            " noise_scale a number, raise prior_precision or use fewer columns"
        )


def glm(
    X: object,
    y: object,
    family: str | Family = "gaussian",
    prior_precision: ArrayLike = 1.0,
    noise_scale: float | str = "infer",
    intercept: bool = True,
    weights: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    intercept_precision: float = 0.0,
    classes: ArrayLike | None = None,
    link: str | None = None,
) -> GLM:
    """A regression on rows of this process; `ornstein.glm` explains the arguments."""
    law = _scaled(family_of(family, link), noise_scale)
    tables.require_one_index((("X", X), ("y", y), ("weights", weights), ("offset", offset)))
    named = tables.is_frame(X)
    if is_table_on_disk(X):
        opened = open_table(X, y if isinstance(y, str) else None)
        table, names = tables.features(opened.features)
        names, named = opened.names or names, bool(opened.names)
        y = y if opened.target is None else opened.target
    else:
        table, names = tables.features(X)
    n_data, columns = table.shape
    if n_data == 0 or columns == 0:
        raise InputError(f"X must have rows and columns; it has shape {table.shape}")
    require_finite("X", table.data if tables.is_sparse(table) else table, names)
    response, classes = _response(y, law, n_data, classes)
    outputs = len(classes) if classes is not None and law.classes else 1
    precision = _precision("prior_precision", prior_precision, columns, outputs)
    intercept_prior = _precision("intercept_precision", intercept_precision, None, 1)
    likelihood = Likelihood(
        law.name,
        outputs,
        infer_scale=isinstance(law, Gaussian) and law.infer_scale,
        coef_reference=law.classes and not np.any(precision),
        intercept_reference=law.classes and not np.any(intercept_prior),
        elementary=law.elementary and not tables.is_sparse(table),
        link=law.link,
        settings=law.settings,
    )
    model_offset = _optional(offset, "offset", n_data, outputs if law.classes else None)
    model_weights = _optional(weights, "weights", n_data, None)
    if model_weights is not None and (np.any(model_weights < 0) or not np.any(model_weights > 0)):
        raise InputError("weights must not be negative, and not all zero")
    hyper: dict[str, np.ndarray] = {
        "prior_precision": precision,
        "intercept_precision": intercept_prior,
    }
    if isinstance(law, Gaussian) and not law.infer_scale:
        hyper["noise_scale"] = _positive("noise_scale", noise_scale)
    params, parameter_names, feature_of, predictor_of = _parameters(
        likelihood, names, classes, intercept
    )
    linear = LinearPredictor(
        PredictorLoss(likelihood),
        table,
        response,
        model_weights,
        model_offset,
        feature_of,
        predictor_of,
        outputs + len(law.auxiliaries),
        hyper,
    )
    params |= {name: np.asarray(value) for name, value in law.start(response).items()}
    data: dict[str, PyTree] = {"x": _row_features(table), "y": response}
    if model_weights is not None:
        data["weight"] = model_weights
    if model_offset is not None:
        data["offset"] = model_offset
    predict = Predict(likelihood, names if named else ())
    model = GLM(likelihood, data, gaussian_prior, params, predict, hyper, names=parameter_names)
    return model.replace(
        loss=replace(model.loss, traits=likelihood.traits),
        likelihood=likelihood,
        features=table,
        response=response,
        classes=classes,
        feature_names=names,
        _linear=linear,
    )


def _parameters(
    likelihood: Likelihood, names: tuple[str, ...], classes: np.ndarray | None, intercept: bool
) -> tuple[dict[str, np.ndarray], tuple[str, ...], np.ndarray, np.ndarray]:
    """Zeros for the parameters, their names in flat order, and where each enters the predictors."""
    columns, outputs = len(names), likelihood.predictors
    entries: list[tuple[str, int, int]]  # name, feature, predictor
    params: dict[str, np.ndarray] = {}
    if likelihood.law.classes:
        assert classes is not None
        first = int(likelihood.coef_reference)
        params["coef"] = np.zeros((columns, outputs - first))
        entries = [
            (f"{name}[{classes[k]}]", i, k)
            for i, name in enumerate(names)
            for k in range(first, outputs)
        ]
        if intercept:
            first = int(likelihood.intercept_reference)
            params["intercept"] = np.zeros(outputs - first)
            entries += [(f"intercept[{classes[k]}]", columns, k) for k in range(first, outputs)]
    else:
        params["coef"] = np.zeros(columns)
        entries = [(name, i, 0) for i, name in enumerate(names)]
        if intercept:
            params["intercept"] = np.zeros(())
            entries.append(("intercept", columns, 0))
    for k, auxiliary in enumerate(likelihood.auxiliaries):
        params[auxiliary.name] = np.zeros(())
        entries.append((auxiliary.name, columns, outputs + k))
    labels, features, predictors = zip(*entries, strict=True)
    return params, labels, np.array(features), np.array(predictors)


def _scaled(family: Family, noise_scale: object) -> Family:
    """The gaussian family with its σ inferred or not."""
    infer = isinstance(noise_scale, str) and noise_scale == "infer"
    if isinstance(family, Gaussian):
        return replace(family, infer_scale=infer)
    return family


def _response(
    y: object, family: Family, n_data: int, known: ArrayLike | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    values = tables.labels(y, "y") if family.labels else tables.numbers(y, "y")
    if values.shape[0] != n_data:
        raise InputError(f"X has {n_data} rows but y has {values.shape[0]}")
    if family.labels:
        return (
            _labels(values, family.name)
            if known is None
            else _known_labels(values, family.name, np.asarray(known))
        )
    require_finite("y", values)
    values = family.checked(values)
    return (values if values.dtype.kind == "f" else values.astype(float)), None


def _known_labels(
    values: np.ndarray, family: str, classes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    if classes.ndim != 1 or classes.size < 2 or np.any(classes[1:] <= classes[:-1]):
        raise InputError("classes must be two or more different labels in ascending order")
    if family == "bernoulli" and classes.size > 2:
        raise InputError(
            f"the bernoulli family needs two labels; there are {classes.size}. Use"
            " family='categorical'"
        )
    try:
        codes = np.minimum(np.searchsorted(classes, values), classes.size - 1)
    except TypeError:
        raise InputError("y holds labels of another kind than classes") from None
    if np.any(classes[codes] != values):
        raise InputError("y holds a label that is not among classes")
    return codes.astype(np.float32 if family == "bernoulli" else np.int32), classes


def _labels(values: np.ndarray, family: str) -> tuple[np.ndarray, np.ndarray]:
    if values.dtype.kind == "f":
        require_finite("y", values)
    try:
        classes, codes = np.unique(values, return_inverse=True)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in values})
        raise InputError(
            f"y holds labels of kinds that cannot be put in order: {', '.join(kinds)}"
        ) from None
    if classes.size < 2:
        raise InputError(f"y holds one class only, {classes[0]!r}; there is nothing to separate")
    if family == "bernoulli":
        if classes.size > 2:
            raise InputError(
                f"the bernoulli family needs two labels; y holds {classes.size}. Use"
                " family='categorical'"
            )
        return codes.astype(np.float32), classes
    if classes.size > max(2, values.size // 2):
        raise InputError(
            f"y holds {classes.size} different labels in {values.size} rows; is it a regression"
            " target?"
        )
    return codes.astype(np.int32), classes


def _precision(what: str, value: ArrayLike, columns: int | None, outputs: int) -> np.ndarray:
    precision = as_numbers(what, value)
    if precision.ndim == 1 and precision.size == columns and outputs > 1:
        precision = np.repeat(precision[:, None], outputs, axis=1)
    shapes = {(), (columns,), (columns, outputs)} if outputs > 1 else {(), (columns,)}
    if precision.shape not in shapes:
        raise InputError(
            f"{what} must be one number or one per column ({columns}); it has shape"
            f" {precision.shape}"
        )
    if not np.all(np.isfinite(precision)) or np.any(precision < 0):
        raise InputError(f"{what} must be finite and not negative; got {np.min(precision)}")
    # one zero for all: the flat prior has no shape
    return precision if np.any(precision) else np.zeros(())


def _positive(what: str, value: ArrayLike) -> np.ndarray:
    if not isinstance(value, int | float | np.number) or not np.isfinite(value) or value <= 0:
        given = repr(value) if np.ndim(value) == 0 else f"an array of shape {np.shape(value)}"
        raise InputError(f"{what} must be a positive number or 'infer'; got {given}")
    return np.asarray(float(value))


def _optional(
    values: ArrayLike | None, what: str, n_data: int, outputs: int | None
) -> np.ndarray | None:
    if values is None:
        return None
    if outputs is None:
        array = tables.numbers(values, what).astype(float)
    else:
        array = np.asarray(tables.features(values)[0], dtype=float)
        if array.shape != (n_data, outputs):
            raise InputError(
                f"{what} must have shape {(n_data, outputs)}, one number per row and class; it has"
                f" {array.shape}"
            )
    if array.shape[0] != n_data:
        raise InputError(f"X has {n_data} rows but {what} has {array.shape[0]}")
    require_finite(what, array)
    return array


def _row_features(table: Any) -> PyTree:
    """Dense rows as they are; sparse rows as padded (column, value) pairs, so that a step costs
    what is not zero.
    """
    if not tables.is_sparse(table):
        return table
    counts = np.diff(table.indptr)
    longest = max(1, int(counts.max()))
    columns = np.zeros((table.shape[0], longest), dtype=np.int32)
    values = np.zeros((table.shape[0], longest), dtype=np.result_type(table.data, np.float32))
    filled = np.arange(longest) < counts[:, None]
    columns[filled], values[filled] = table.indices, table.data
    return {"columns": columns, "values": values}
