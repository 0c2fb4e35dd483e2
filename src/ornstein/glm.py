"""Generalised linear models: gaussian, bernoulli, categorical and poisson regression with Gaussian priors.

Parameters: `coef`, (D,) or (D, K); `intercept`; and for the gaussian family with an unknown noise scale `log_scale` = log σ.
The categorical family has one logit per class (the prior settles their common shift); a block with a flat prior, where
nothing would settle it, takes the first class as reference instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ornstein import row_table, tables
from ornstein.errors import InputError
from ornstein.linear_predictor import LinearPredictor
from ornstein.model import Model, require_finite
from ornstein.shards import is_dask, sharded_glm
from ornstein.streaming import is_table_on_disk, open_table

FAMILIES = ("gaussian", "bernoulli", "categorical", "poisson")
Array = Any


@dataclass(frozen=True)
class Likelihood:
    """log p(y | x, θ) of one example; equal settings compare equal, so that fits share compiled code.

    `elementary` is what `Loss.elementary` says of it.
    """

    family: str
    predictors: int
    infer_scale: bool = False
    coef_reference: bool = False
    intercept_reference: bool = False
    elementary: bool = False

    @property
    def polynomial(self) -> bool:
        """Whether the slope of a row is a matter of sums and products, once the scale is known."""
        return self.elementary and self.family == "gaussian"

    def __call__(self, params: Any, example: Any, hyperparameters: Any) -> Array:
        value = self.of_predictor(self._predictors(params, example), example["y"], hyperparameters)
        return value * example["weight"] if "weight" in example else value

    def change(self, centre: Any, params: Any, example: Any, hyperparameters: Any) -> Array:
        """Its slope in the parameters is that of the log likelihood less what it is at the centre.

        Predictors are linear in the parameters, so that one product with the features does for both slopes. Those at the centre
        need none: its coefficients are zeros, because what they contribute is in the offset (`GLM._centred`).
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

    def _predictors(self, params: Any, example: Any) -> Array:
        """All that `of_predictor` needs of the parameters."""
        if isinstance(example, row_table.RowTable):
            params = {**params, "coef": _with_zeros(params["coef"], example["x"].shape[-1])}
        predictor = self.predictor(params, example["x"])
        if "offset" in example:
            predictor = predictor + example["offset"]
        return self._with_scale(predictor, params)

    def _with_scale(self, predictor: Array, params: Any) -> Array:
        return jnp.stack([predictor, params["log_scale"]]) if self.infer_scale else predictor

    def predictor(self, params: Any, x: Any) -> Array:
        """The linear predictor: a scalar, or a vector with one entry per class."""
        coef = params["coef"]
        if isinstance(x, dict):
            values = x["values"] if coef.ndim == 1 else x["values"][:, None]
            linear = jnp.sum(values * coef[x["columns"]], axis=0)
        elif coef.ndim == 1:
            linear = x @ coef
        else:
            # Rows of classes, not columns: the products with few of them take half the time, if XLA is kept from undoing it.
            linear = (lax.optimization_barrier(coef.T) @ x.T).T
        if self.coef_reference:
            linear = jnp.concatenate([jnp.zeros_like(linear[..., :1]), linear], axis=-1)
        if "intercept" not in params:
            return linear
        intercept = params["intercept"]
        if self.intercept_reference:
            intercept = jnp.concatenate([jnp.zeros_like(intercept[:1]), intercept])
        return linear + intercept

    def of_predictor(self, predictor: Array, y: Array, hyperparameters: Any) -> Array:
        if self.family == "gaussian":
            if self.infer_scale:
                mean, log_scale = predictor[0], predictor[1]
                fit = ((y - mean) * jnp.exp(-log_scale)) ** 2
            else:
                # The scale's part comes as one number: no exponential and no division for every row.
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

    def mean(self, predictor: Array) -> Array:
        """E[y | x, θ]: probabilities for the two discrete families."""
        if self.family == "bernoulli":
            return jax.nn.sigmoid(predictor)
        if self.family == "categorical":
            return jax.nn.softmax(predictor, axis=-1)
        return jnp.exp(predictor) if self.family == "poisson" else predictor


def _with_zeros(coef: Array, width: int) -> Array:
    """Coefficients for rows of `width` numbers: zeros for those that lie behind the features (row_table.py)."""
    return jnp.concatenate([coef, jnp.zeros((width - len(coef), *coef.shape[1:]), coef.dtype)])


@jax.custom_jvp
def _softplus(u: Array) -> Array:
    """log(1 + exp u), whose slope needs one exponential; JAX's own takes two and a logarithm, half the time of a step."""
    return jax.nn.softplus(u)


@_softplus.defjvp
def _softplus_slope(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return _softplus(primals[0]), _sigmoid(primals[0]) * tangents[0]


@jax.custom_jvp
def _sigmoid(u: Array) -> Array:
    return jax.nn.sigmoid(u)


@_sigmoid.defjvp
def _sigmoid_slope(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """s(u)s(−u) and not s(1−s), which is zero from u = 37 on."""
    return _sigmoid(primals[0]), _sigmoid(primals[0]) * _sigmoid(-primals[0]) * tangents[0]


@dataclass(frozen=True)
class PredictorLoss:
    """−log p(y | u), weighted, as a function of the vector of predictors u: what the closed forms differentiate."""

    likelihood: Likelihood

    def __call__(self, predictors: Array, y: Array, weight: Array, hyperparameters: Any) -> Array:
        many = self.likelihood.family == "categorical" or self.likelihood.infer_scale
        return -weight * self.likelihood.of_predictor(
            predictors if many else predictors[0], y, hyperparameters
        )


@dataclass(frozen=True)
class Predict:
    """E[y | x, θ] for new rows; what `Posterior.predict` calls."""

    likelihood: Likelihood

    def __call__(self, params: Any, x: Any) -> Array:
        return self.likelihood.mean(self.likelihood.predictor(params, x))


def gaussian_prior(params: Any, hyperparameters: Any) -> Array:
    """Independent normals on the coefficients and intercepts; precision 0 is flat. log σ is flat."""
    total = _normal_log_density(params["coef"], hyperparameters["prior_precision"])
    if "intercept" in params:
        total += _normal_log_density(params["intercept"], hyperparameters["intercept_precision"])
    return total


def _normal_log_density(values: Array, precision: Array) -> Array:
    precision = jnp.broadcast_to(precision, values.shape)
    proper = precision > 0
    constant = jnp.where(
        proper, 0.5 * jnp.log(jnp.where(proper, precision, 1.0) / (2.0 * np.pi)), 0.0
    )
    return jnp.sum(constant - 0.5 * precision * values**2)


class GLM(Model):
    """A model with a linear predictor; made by `glm`."""

    likelihood: Likelihood
    features: Any
    response: np.ndarray
    classes: np.ndarray | None
    feature_names: tuple[str, ...]

    def closed_form(self) -> LinearPredictor:
        return replace(self._linear, hyperparameters=self.hyperparameters)

    def with_hyperparameters(self, **values: Any) -> Model:
        """The same regression at other hyperparameters, checked and spread over the classes as `glm` does."""
        if "prior_precision" in values:
            shape = self.layout.shapes[self.layout.paths.index("coef")]
            outputs = shape[1] if len(shape) == 2 else 1
            values["prior_precision"] = _precision(
                "prior_precision", values["prior_precision"], shape[0], outputs
            )
        return super().with_hyperparameters(**values)

    def _centred(self, centre: np.ndarray) -> tuple[Any, np.ndarray]:
        """Put the linear predictor at the centre into the offset (gaussian: into y), in float64 before any rounding."""
        if not np.any(centre):
            return self.data, centre
        return self._shifted(self.data, self._linear.linear_part(centre)), self._likelihood_centre(
            centre
        )

    def _laid_out(self, data: Any, dtype: str, batch_size: int) -> Any:
        if row_table.pays(data, dtype, batch_size * self.dim):
            return row_table.side_by_side(data, dtype)
        return super()._laid_out(data, dtype, batch_size)

    def _centred_rows(self, rows: Any, centre: np.ndarray) -> Any:
        return self._shifted(rows, self._linear.linear_part_of(rows["x"], centre))

    def _likelihood_centre(self, centre: np.ndarray) -> np.ndarray:
        remaining = centre.copy()
        remaining[self._linear.predictor_of < self._outputs] = 0.0
        return remaining

    def _shifted(self, rows: Any, linear_part: np.ndarray) -> Any:
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


def glm(
    X: Any,
    y: Any,
    family: str = "gaussian",
    prior_precision: Any = 1.0,
    noise_scale: float | str = "infer",
    intercept: bool = True,
    weights: Any = None,
    offset: Any = None,
    intercept_precision: float = 0.0,
    classes: Any = None,
) -> GLM:
    """A regression as a Model.

    Args:
        X: rows × columns; NumPy, JAX, pandas, polars, scipy.sparse or a memory map. Column names become parameter names. Beyond
            memory: a path to an .npy file, a Zarr array, or a Parquet or Arrow file or folder (see `open_table`).
        y: one value per row; labels of any kind for the two discrete families; the column's name where X is a table on disk.
        family: gaussian, bernoulli, categorical or poisson.
        prior_precision: 1/variance of the normal prior on the coefficients: one number, or one per column; 0 is flat.
        noise_scale: gaussian family: a number fixes σ, "infer" adds log σ as a parameter with a flat prior.
        intercept: whether to add an intercept, with a normal prior of precision `intercept_precision`.
        weights: multiply the rows' log likelihoods.
        classes: the labels of the two discrete families in order, where not all of them need be in y.
        offset: added to the linear predictor, one number per row (categorical: one per row and class).

    >>> import numpy as np
    >>> model = glm(np.eye(3), [0, 1, 1], family="bernoulli")
    >>> model.dim, model.names
    (4, ('x0', 'x1', 'x2', 'intercept'))
    """
    if family not in FAMILIES:
        raise InputError(f"unknown family {family!r}; choose one of {FAMILIES}")
    if is_dask(X):
        settings = {
            "family": family,
            "prior_precision": prior_precision,
            "noise_scale": noise_scale,
            "intercept": intercept,
        }
        settings |= {
            "weights": weights,
            "offset": offset,
            "intercept_precision": intercept_precision,
        }
        return sharded_glm(X, y, settings)  # type: ignore[return-value]
    if is_table_on_disk(X):
        opened = open_table(X, y if isinstance(y, str) else None)
        table, names = opened.features, opened.names or tables.features(opened.features)[1]
        y = y if opened.target is None else opened.target
    else:
        table, names = tables.features(X)
    n_data, columns = table.shape
    if n_data == 0 or columns == 0:
        raise InputError(f"X must have rows and columns; it has shape {table.shape}")
    require_finite("X", table.data if tables.is_sparse(table) else table, names)
    response, classes = _response(y, family, n_data, classes)
    outputs = 1 if classes is None or family == "bernoulli" else len(classes)
    precision = _precision("prior_precision", prior_precision, columns, outputs)
    intercept_prior = _precision("intercept_precision", intercept_precision, None, 1)
    categorical = family == "categorical"
    likelihood = Likelihood(
        family,
        outputs,
        infer_scale=family == "gaussian"
        and isinstance(noise_scale, str)
        and noise_scale == "infer",
        coef_reference=categorical and not np.any(precision),
        intercept_reference=categorical and not np.any(intercept_prior),
        elementary=not categorical and not tables.is_sparse(table),
    )
    model_offset = _optional(offset, "offset", n_data, outputs if categorical else None)
    model_weights = _optional(weights, "weights", n_data, None)
    if model_weights is not None and (np.any(model_weights < 0) or not np.any(model_weights > 0)):
        raise InputError("weights must not be negative, and not all zero")
    hyper: dict[str, np.ndarray] = {
        "prior_precision": precision,
        "intercept_precision": intercept_prior,
    }
    if family == "gaussian" and not likelihood.infer_scale:
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
        outputs + likelihood.infer_scale,
        hyper,
    )
    if likelihood.infer_scale:
        params["log_scale"] = np.asarray(_start_scale(response))
    data: dict[str, Any] = {"x": _row_features(table), "y": response}
    if model_weights is not None:
        data["weight"] = model_weights
    if model_offset is not None:
        data["offset"] = model_offset
    model = GLM(
        likelihood, data, gaussian_prior, params, Predict(likelihood), hyper, names=parameter_names
    )
    model.likelihood, model.features, model.response = likelihood, table, response
    model.classes, model.feature_names, model._linear = classes, names, linear
    return model


def _parameters(
    likelihood: Likelihood, names: tuple[str, ...], classes: np.ndarray | None, intercept: bool
) -> tuple[dict[str, np.ndarray], tuple[str, ...], np.ndarray, np.ndarray]:
    """Zeros for the parameters, their names in flat order, and where each enters the predictors."""
    columns, outputs = len(names), likelihood.predictors
    entries: list[tuple[str, int, int]]  # name, feature, predictor
    params: dict[str, np.ndarray] = {}
    if likelihood.family == "categorical":
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
    if likelihood.infer_scale:
        params["log_scale"] = np.zeros(())
        entries.append(("log_scale", columns, 1))
    labels, features, predictors = zip(*entries, strict=True)
    return params, labels, np.array(features), np.array(predictors)


def _response(
    y: Any, family: str, n_data: int, known: Any = None
) -> tuple[np.ndarray, np.ndarray | None]:
    values = tables.column(y, "y")
    if values.shape[0] != n_data:
        raise InputError(f"X has {n_data} rows but y has {values.shape[0]}")
    if family in ("bernoulli", "categorical"):
        return (
            _labels(values, family)
            if known is None
            else _known_labels(values, family, np.asarray(known))
        )
    values = tables.numbers(values, "y")
    require_finite("y", values)
    if family == "poisson" and (np.any(values < 0) or np.any(values != np.floor(values))):
        raise InputError(
            "the poisson family needs counts 0, 1, 2, …; y holds a negative or fractional value"
        )
    return (values if values.dtype.kind == "f" else values.astype(float)), None


def _known_labels(
    values: np.ndarray, family: str, classes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    if classes.ndim != 1 or classes.size < 2 or np.any(classes[1:] <= classes[:-1]):
        raise InputError("classes must be two or more different labels in ascending order")
    if family == "bernoulli" and classes.size > 2:
        raise InputError(
            f"the bernoulli family needs two labels; there are {classes.size}. Use family='categorical'"
        )
    codes = np.minimum(np.searchsorted(classes, values), classes.size - 1)
    if np.any(classes[codes] != values):
        raise InputError("y holds a label that is not among classes")
    return codes.astype(np.float32 if family == "bernoulli" else np.int32), classes


def _labels(values: np.ndarray, family: str) -> tuple[np.ndarray, np.ndarray]:
    if values.dtype.kind == "f":
        require_finite("y", values)
    if values.dtype.kind == "O":
        import pandas

        if np.any(pandas.isna(values)):
            raise InputError("y holds a missing label")
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
                f"the bernoulli family needs two labels; y holds {classes.size}. Use family='categorical'"
            )
        return codes.astype(np.float32), classes
    if classes.size > max(2, values.size // 2):
        raise InputError(
            f"y holds {classes.size} different labels in {values.size} rows; is it a regression target?"
        )
    return codes.astype(np.int32), classes


def _precision(what: str, value: Any, columns: int | None, outputs: int) -> np.ndarray:
    try:
        precision = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{what} must be a number or an array of numbers; got {value!r}") from None
    if precision.ndim == 1 and precision.size == columns and outputs > 1:
        precision = np.repeat(precision[:, None], outputs, axis=1)
    shapes = {(), (columns,), (columns, outputs)} if outputs > 1 else {(), (columns,)}
    if precision.shape not in shapes:
        raise InputError(
            f"{what} must be one number or one per column ({columns}); it has shape {precision.shape}"
        )
    if not np.all(np.isfinite(precision)) or np.any(precision < 0):
        raise InputError(f"{what} must be finite and not negative; got {np.min(precision)}")
    return (
        precision if np.any(precision) else np.zeros(())
    )  # one zero for all: the flat prior has no shape


def _positive(what: str, value: Any) -> np.ndarray:
    if not isinstance(value, int | float | np.number) or not np.isfinite(value) or value <= 0:
        given = repr(value) if np.ndim(value) == 0 else f"an array of shape {np.shape(value)}"
        raise InputError(f"{what} must be a positive number or 'infer'; got {given}")
    return np.asarray(float(value))


def _optional(values: Any, what: str, n_data: int, outputs: int | None) -> np.ndarray | None:
    if values is None:
        return None
    if outputs is None:
        array = tables.numbers(values, what).astype(float)
    else:
        array = np.asarray(values, dtype=float)
        if array.shape != (n_data, outputs):
            raise InputError(
                f"{what} must have shape {(n_data, outputs)}, one number per row and class; it has {array.shape}"
            )
    if array.shape[0] != n_data:
        raise InputError(f"X has {n_data} rows but {what} has {array.shape[0]}")
    require_finite(what, array)
    return array


def _start_scale(response: np.ndarray) -> float:
    spread = float(np.std(response))
    if spread == 0.0:
        raise InputError(
            "y is constant: the noise scale cannot be inferred. Give noise_scale a number"
        )
    return float(np.log(spread))


def _row_features(table: Any) -> Any:
    """Dense rows as they are; sparse rows as padded (column, value) pairs, so that a step costs what is not zero."""
    if not tables.is_sparse(table):
        return table
    counts = np.diff(table.indptr)
    longest = max(1, int(counts.max()))
    columns = np.zeros((table.shape[0], longest), dtype=np.int32)
    values = np.zeros((table.shape[0], longest), dtype=np.result_type(table.data, np.float32))
    filled = np.arange(longest) < counts[:, None]
    columns[filled], values[filled] = table.indices, table.data
    return {"columns": columns, "values": values}
