"""scikit-learn estimators: regressions with a posterior behind `fit` and `predict`.

The prior is on the scale of standardised columns (and of a standardised target in the gaussian regression), as in `ornstein
fit`: `prior_precision` λ means slope_j ~ N(0, s_y²/(λ s_j²)), with s_j and s_y standard deviations in the training data (s_y 1
for classes and counts). So rescaling a column or the target rescales the answer and changes nothing else. Coefficients are on
the scale of the data; intercepts have a flat prior.

The rows are put into an order of their own first, and weights that are whole numbers are taken as repetitions: the same rows in
another order, or repeated instead of weighted, give the same draws bit for bit.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ornstein.errors import InputError, OrnsteinError

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.metrics import d2_tweedie_score
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data

    from ornstein.interfaces.estimator_fitting import (
        deviation,
        ordered_rows,
        regression,
        regression_prior,
        row_weights,
        set_posterior,
        whole_counts,
    )
except ImportError as error:
    raise OrnsteinError(
        "the estimators need scikit-learn: pip install 'ornstein[sklearn]'"
    ) from error

Array = np.ndarray
CHUNK = 2**22


class BayesianRegressor(RegressorMixin, BaseEstimator):
    """Linear regression with Gaussian noise.

    σ, unless given, has a scaled inverse χ² prior: one observation's worth of belief that it is a tenth of the target's
    standard deviation, which matters only where there are about as many columns as rows.

    Args:
        prior_precision: λ of the module's text, a number or one per column; 0 is flat.
        noise_scale: "infer", or σ.
        fit_intercept: whether to add an intercept.
        scale_prior: False takes `prior_precision` as 1/variance of the slopes as they are.
        sampler, batch_size, draws, chains, max_steps: as in `orn.sample`. Where the data leave too little gradient noise for
            the default sampler (residuals of zero, more columns than rows), Fisher scoring (SGFS) takes its place.
        random_state: seed of the draws.

    Attributes:
        coef_, intercept_: posterior means. posterior_: the Posterior; verdict_: its verdict. noise_scale_: posterior mean of σ.

    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> fitted = BayesianRegressor().fit(X, X @ [1.0, 2.0] + 0.1 * np.sin(30 * X[:, 0]))
    >>> mean, sd = fitted.predict(X[:3], return_std=True)
    >>> mean.shape, sd.shape, fitted.coef_.round(1)
    ((3,), (3,), array([1., 2.]))
    """

    def __init__(
        self,
        prior_precision: Any = 1.0,
        *,
        noise_scale: float | str = "infer",
        fit_intercept: bool = True,
        scale_prior: bool = True,
        sampler: Any = None,
        batch_size: int | str = "auto",
        draws: int = 250,
        chains: int = 4,
        max_steps: int = 20_000_000,
        random_state: Any = 0,
    ) -> None:
        self.prior_precision = prior_precision
        self.noise_scale = noise_scale
        self.fit_intercept = fit_intercept
        self.scale_prior = scale_prior
        self.sampler = sampler
        self.batch_size = batch_size
        self.draws = draws
        self.chains = chains
        self.max_steps = max_steps
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianRegressor:
        """Sample the posterior; weights multiply the rows' log likelihoods."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        rows = ordered_rows(X, np.asarray(y, dtype=float), row_weights(sample_weight, X))
        scale = deviation(rows.y, rows.weights)
        if scale == 0.0:
            raise InputError("y is constant: there is nothing to explain")
        model = regression(self, rows, "gaussian", scale, noise_scale=self.noise_scale)
        if model.likelihood.infer_scale:
            model.hyperparameters = {
                **model.hyperparameters,
                "noise_guess": np.asarray(0.1 * scale),
            }
            model.loss = replace(model.loss, log_prior=regression_prior)
        set_posterior(self, model)
        mean = self.posterior_.layout.unflatten(self.posterior_.mean)
        self.coef_ = mean["coef"]
        self.intercept_ = float(mean["intercept"]) if self.fit_intercept else 0.0
        self.noise_scale_ = (
            float(np.mean(_scales(self)))
            if model.likelihood.infer_scale
            else float(self.noise_scale)
        )
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictive mean, and with `return_std` the predictive standard deviation, noise included."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        mean = X @ self.coef_ + self.intercept_
        if not return_std:
            return mean
        slopes = X.shape[1] + self.fit_intercept
        covariance = self.posterior_.covariance
        covariance = (covariance if covariance.ndim == 2 else np.diag(covariance))[:slopes, :slopes]
        extended = np.column_stack([X, np.ones(len(X))]) if self.fit_intercept else X
        return mean, np.sqrt(
            np.einsum("ij,ij->i", extended @ covariance, extended) + np.mean(_scales(self) ** 2)
        )

    def sample_posterior(
        self, n_samples: int | None = None, random_state: Any = None
    ) -> dict[str, Array]:
        """Draws of `coef` (n, columns), `intercept` (n,) and `noise_scale` (n,), at random without replacement; None is all."""
        check_is_fitted(self)
        coef, intercept = _linear_draws(self)
        return _chosen(
            {
                "coef": coef,
                "intercept": intercept,
                "noise_scale": np.broadcast_to(_scales(self), len(coef)),
            },
            n_samples,
            random_state,
        )

    def __getstate__(self) -> dict[str, Any]:
        return _portable(super().__getstate__())

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(_restored(state))


class BayesianPoissonRegressor(RegressorMixin, BaseEstimator):
    """Poisson regression of counts with a log link.

    The target may be fractional, as rates with exposures for weights are: a fraction is split over the two counts around it,
    which gives the same likelihood. `score` is D², the fraction of deviance explained. Arguments and attributes are those of
    `BayesianRegressor`, without the noise.

    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> fitted = BayesianPoissonRegressor().fit(
    ...     X, np.random.default_rng(1).poisson(np.exp(X @ [0.5, 0.0]))
    ... )
    >>> bool(abs(fitted.coef_[0] - 0.5) < 0.2)
    True
    """

    def __init__(
        self,
        prior_precision: Any = 1.0,
        *,
        fit_intercept: bool = True,
        scale_prior: bool = True,
        sampler: Any = None,
        batch_size: int | str = "auto",
        draws: int = 250,
        chains: int = 4,
        max_steps: int = 20_000_000,
        random_state: Any = 0,
    ) -> None:
        self.prior_precision = prior_precision
        self.fit_intercept = fit_intercept
        self.scale_prior = scale_prior
        self.sampler = sampler
        self.batch_size = batch_size
        self.draws = draws
        self.chains = chains
        self.max_steps = max_steps
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianPoissonRegressor:
        """Sample the posterior; weights multiply the rows' log likelihoods."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        y = np.asarray(y, dtype=float)
        if np.any(y < 0):
            raise InputError(f"y must not be negative; it holds {y.min():.4g}")
        if not np.any(y):
            raise InputError("y is 0 everywhere: the rate has no lower bound")
        set_posterior(
            self,
            regression(
                self, whole_counts(ordered_rows(X, y, row_weights(sample_weight, X))), "poisson"
            ),
        )
        mean = self.posterior_.layout.unflatten(self.posterior_.mean)
        self.coef_ = mean["coef"]
        self.intercept_ = float(mean["intercept"]) if self.fit_intercept else 0.0
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictive mean E[exp(xᵀβ)], and with `return_std` the standard deviation of the predicted count."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        mean, variance = _over_draws(self, X, np.exp)
        return (mean, np.sqrt(mean + variance)) if return_std else mean

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """D², the fraction of the Poisson deviance that is explained."""
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    def sample_posterior(
        self, n_samples: int | None = None, random_state: Any = None
    ) -> dict[str, Array]:
        """Draws of `coef` (n, columns) and `intercept` (n,), at random without replacement; None is all."""
        check_is_fitted(self)
        coef, intercept = _linear_draws(self)
        return _chosen({"coef": coef, "intercept": intercept}, n_samples, random_state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        return _portable(super().__getstate__())

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(_restored(state))


class BayesianClassifier(ClassifierMixin, BaseEstimator):
    """Logistic regression, softmax regression for more than two classes.

    Arguments are those of `BayesianRegressor`, without the noise. `coef_` has shape (1, columns) for two classes and
    (classes, columns) for more, where only differences between classes matter.

    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> fitted = BayesianClassifier().fit(X, np.where(X[:, 0] + X[:, 1] ** 3 > 0, "yes", "no"))
    >>> fitted.classes_, fitted.predict_proba(X[:4]).shape
    (array(['no', 'yes'], dtype='<U3'), (4, 2))
    """

    def __init__(
        self,
        prior_precision: Any = 1.0,
        *,
        fit_intercept: bool = True,
        scale_prior: bool = True,
        sampler: Any = None,
        batch_size: int | str = "auto",
        draws: int = 250,
        chains: int = 4,
        max_steps: int = 20_000_000,
        random_state: Any = 0,
    ) -> None:
        self.prior_precision = prior_precision
        self.fit_intercept = fit_intercept
        self.scale_prior = scale_prior
        self.sampler = sampler
        self.batch_size = batch_size
        self.draws = draws
        self.chains = chains
        self.max_steps = max_steps
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianClassifier:
        """Sample the posterior; weights multiply the rows' log likelihoods."""
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        weights = row_weights(sample_weight, X)
        kept = slice(None) if weights is None else weights > 0
        self.classes_ = np.unique(y[kept])
        if len(self.classes_) < 2:
            raise InputError(
                f"y holds one class only, {self.classes_[0]!r}; there is nothing to separate"
            )
        codes = np.searchsorted(self.classes_, np.asarray(y)[kept]).astype(float)
        rows = ordered_rows(X[kept], codes, None if weights is None else weights[kept])
        set_posterior(
            self, regression(self, rows, "bernoulli" if len(self.classes_) == 2 else "categorical")
        )
        coef, intercept = _linear_draws(self)
        self.coef_ = np.atleast_2d(coef.mean(axis=0).T)
        self.intercept_ = np.atleast_1d(intercept.mean(axis=0))
        return self

    def predict_proba(self, X: Any, return_std: bool = False) -> Any:
        """Probabilities averaged over the posterior, and with `return_std` their standard deviation over it."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        mean, variance = _over_draws(self, X, _sigmoid if len(self.classes_) == 2 else _softmax)
        if len(self.classes_) == 2:
            mean, variance = (
                np.column_stack([1.0 - mean, mean]),
                np.column_stack([variance, variance]),
            )
        return (mean, np.sqrt(variance)) if return_std else mean

    def predict(self, X: Any) -> Array:
        """The class of highest predictive probability."""
        check_is_fitted(self)
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def sample_posterior(
        self, n_samples: int | None = None, random_state: Any = None
    ) -> dict[str, Array]:
        """Draws of `coef` (n, 1 or classes, columns) and `intercept` (n, 1 or classes); None is all, in random order."""
        check_is_fitted(self)
        coef, intercept = _linear_draws(self)
        if coef.ndim == 2:
            coef, intercept = coef[..., None], intercept[..., None]
        return _chosen(
            {"coef": np.swapaxes(coef, 1, 2), "intercept": intercept}, n_samples, random_state
        )

    def __getstate__(self) -> dict[str, Any]:
        return _portable(super().__getstate__())

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(_restored(state))


def _linear_draws(estimator: Any) -> tuple[Array, Array]:
    """Draws of the coefficients (n, columns) or (n, columns, classes) and intercepts (n,) or (n, classes)."""
    params = {
        name: values.reshape(-1, *values.shape[2:])
        for name, values in estimator.posterior_.params.items()
    }
    coef, classes = params["coef"], len(getattr(estimator, "classes_", ()))
    if coef.ndim == 2:
        return coef, params.get("intercept", np.zeros(len(coef)))
    intercept = params.get("intercept", np.zeros((len(coef), classes)))
    return _with_reference(coef, classes), _with_reference(intercept, classes)


def _with_reference(values: Array, classes: int) -> Array:
    """A zero for the first class where it is the reference."""
    if values.shape[-1] == classes:
        return values
    return np.concatenate([np.zeros_like(values[..., :1]), values], axis=-1)


def _scales(estimator: Any) -> Array:
    """Draws of σ, or the one that was given."""
    params = estimator.posterior_.params
    return (
        np.exp(params["log_scale"]).reshape(-1)
        if "log_scale" in params
        else np.asarray([float(estimator.noise_scale)])
    )


def _over_draws(estimator: Any, X: Array, link: Any) -> tuple[Array, Array]:
    """Mean and variance over the posterior of link(Xβ), a bounded number of rows at a time."""
    coef, intercept = _linear_draws(estimator)
    size = max(1, CHUNK // intercept.size)
    means, variances = [], []
    for start in range(0, len(X), size):
        values = link(np.tensordot(X[start : start + size], coef, axes=(1, 1)) + intercept)
        means.append(values.mean(axis=1))
        variances.append(values.var(axis=1, ddof=1))
    return np.concatenate(means), np.concatenate(variances)


def _sigmoid(predictor: Array) -> Array:
    from scipy.special import expit

    return expit(predictor)


def _softmax(predictor: Array) -> Array:
    from scipy.special import softmax

    return softmax(predictor, axis=-1)


def _chosen(draws: dict[str, Array], n_samples: int | None, random_state: Any) -> dict[str, Array]:
    total = len(draws["coef"])
    wanted = total if n_samples is None else n_samples
    if not 1 <= wanted <= total:
        raise InputError(
            f"n_samples must lie between 1 and the number of draws, {total}; got {n_samples}"
        )
    order = check_random_state(random_state).permutation(total)[:wanted]
    return {name: values[order] for name, values in draws.items()}


def _portable(state: dict[str, Any]) -> dict[str, Any]:
    """The estimator's state with its posterior as the bytes of a file, which hold numbers and no code."""
    if "posterior_" not in state:
        return state
    with tempfile.TemporaryDirectory() as folder:
        file = state["posterior_"].save(Path(folder) / "posterior.orn")
        return {**state, "posterior_": file.read_bytes()}


def _restored(state: dict[str, Any]) -> dict[str, Any]:
    if "posterior_" not in state:
        return state
    from ornstein.storage import load

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "posterior.orn"
        file.write_bytes(state["posterior_"])
        return {**state, "posterior_": load(file)}
