"""scikit-learn estimators: regressions with a posterior behind `fit` and `predict`.

The prior is that of `orn.glm`: weakly informative, on the scale of the data. A number λ for
`prior_precision` is meant on the scale of standardised columns (and of a standardised target in the
gaussian regression), as in `ornstein fit`: slope_j ~ N(0, s_y²/(λ s_j²)), with s_j and s_y standard
deviations in the training data (s_y 1 for classes and counts), and a flat prior on the intercept.
So rescaling a column or the target rescales the answer and changes nothing else. Coefficients are
on the scale of the data.

With a `formula`, a right side such as "a + bs(b, df=5)", X is a table and the formula makes the
columns; without one, X holds the columns themselves.

With `groups` in `fit`, one label per row, the model is a mixed one (`orn.glmm`): each group has an
intercept of its own, integrated out. Predictions are for the average group, or with `groups` in
`predict` for these groups. `posterior_.group_effects()` has the effects themselves.

The rows are put into an order of their own first, and weights that are whole numbers are taken as
repetitions: the same rows in another order, or repeated instead of weighted, give the same draws
bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ornstein.checks import brief
from ornstein.errors import InputError, OrnsteinError
from ornstein.regression.regress import labelled
from ornstein.types import Array

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import ArrayLike
    from sklearn.utils import Tags

    from ornstein.dynamics.dynamics import Dynamics, Sampler

    Column: TypeAlias = ArrayLike | None  # one value per row

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.metrics import d2_tweedie_score
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted

    from ornstein.interfaces.sklearn.fitting import (
        coefficients,
        deviation,
        has_intercept,
        new_rows,
        ordered_rows,
        regression,
        row_weights,
        set_posterior,
        training,
        whole_counts,
    )
    from ornstein.interfaces.sklearn.known_groups import known_groups
    from ornstein.interfaces.sklearn.posterior_draws import (
        Portable,
        chosen,
        is_outcome,
        linear_draws,
        over_draws,
        predictor_variance,
        scales,
        sigmoid,
        softmax,
    )
except ImportError as error:
    raise OrnsteinError(
        "the estimators need scikit-learn: pip install 'ornstein[sklearn]'"
    ) from error


class BayesianRegressor(Portable, RegressorMixin, BaseEstimator):
    """Linear regression with Gaussian noise.

    Args:
        prior_precision: λ of the module's text, one or one per column; 0 is flat.
        formula: a right side, such as "a * b + bs(c, df=5)", for tables.
        noise_scale: "infer", or σ.
        fit_intercept: whether to add an intercept.
        scale_prior: False takes `prior_precision` as 1/variance of the slopes as they are.
        sampler: as in `orn.sample`, or a name: "laplace", "nuts", or one of the command line. None
            or "auto" lets the library choose, and `posterior_.history` says what it tried.
        target: "sandwich" gives robust standard errors, A⁻¹CA⁻¹/N in place of the posterior's.
        batch_size, draws, chains, max_steps: as in `orn.sample`.
        random_state: seed of the draws.

    Attributes:
        coef_, intercept_: posterior means. posterior_: the Posterior; verdict_: its verdict.
            noise_scale_: posterior mean of σ.

    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> fitted = BayesianRegressor().fit(X, X @ [1.0, 2.0] + 0.1 * np.sin(30 * X[:, 0]))
    >>> mean, sd = fitted.predict(X[:3], return_std=True)
    >>> mean.shape, sd.shape, fitted.coef_.round(1)
    ((3,), (3,), array([1., 2.]))
    """

    def __init__(
        self,
        prior_precision: ArrayLike | None = None,
        *,
        formula: str | None = None,
        noise_scale: float | str = "infer",
        fit_intercept: bool = True,
        scale_prior: bool = True,
        sampler: Sampler | Dynamics | str | None = None,
        target: str = "posterior",
        batch_size: int | str = "auto",
        draws: int = 250,
        chains: int = 4,
        max_steps: int = 20_000_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.prior_precision = prior_precision
        self.formula = formula
        self.noise_scale = noise_scale
        self.fit_intercept = fit_intercept
        self.scale_prior = scale_prior
        self.sampler = sampler
        self.target = target
        self.batch_size = batch_size
        self.draws = draws
        self.chains = chains
        self.max_steps = max_steps
        self.random_state = random_state

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: Column = None, groups: Column = None
    ) -> BayesianRegressor:
        """Sample the posterior; weights multiply the rows' log likelihoods."""
        table, target = training(self, X, y, sample_weight)
        weights = row_weights(sample_weight, table)
        rows = ordered_rows(table, np.asarray(target, dtype=float), weights, groups)
        scale = float(deviation(rows.y, rows.weights))
        if scale == 0.0:
            raise InputError("y is constant: there is nothing to explain")
        model = regression(self, rows, "gaussian", scale, noise_scale=self.noise_scale)
        set_posterior(self, model)
        self.coef_, self.intercept_ = coefficients(self)
        self.noise_scale_ = float(np.mean(scales(self)))
        return self

    def predict(
        self, X: ArrayLike, return_std: bool | str = False, groups: Column = None
    ) -> Array | tuple[Array, Array]:
        """Predictive mean, and with `return_std` the standard deviation of the outcome, noise
        included, or with "expectation" that of the expectation.
        """
        check_is_fitted(self)
        table = new_rows(self, X)
        if groups is not None:
            return known_groups(self, table, groups, return_std)
        mean = table @ self.coef_ + self.intercept_
        if not return_std:
            return mean
        noise = np.mean(scales(self) ** 2) if is_outcome(return_std) else 0.0
        return mean, np.sqrt(predictor_variance(self, table, has_intercept(self)) + noise)

    def sample_posterior(
        self, n_samples: int | None = None, random_state: int | np.random.RandomState | None = None
    ) -> dict[str, Array]:
        """Draws of `coef` (n, columns), `intercept` (n,) and `noise_scale` (n,), at random without
        replacement; None is all.
        """
        check_is_fitted(self)
        coef, intercept = linear_draws(self)
        return chosen(
            {
                "coef": coef,
                "intercept": intercept,
                "noise_scale": np.broadcast_to(scales(self), len(coef)),
            },
            n_samples,
            random_state,
        )


class BayesianPoissonRegressor(Portable, RegressorMixin, BaseEstimator):
    """Poisson regression of counts with a log link.

    The target may be fractional, as rates with exposures for weights are: a fraction is split over
    the two counts around it, which gives the same likelihood. `score` is D². Arguments and
    attributes are those of `BayesianRegressor`, without the noise.

    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> fitted = BayesianPoissonRegressor().fit(
    ...     X, np.random.default_rng(1).poisson(np.exp(X @ [0.5, 0.0]))
    ... )
    >>> bool(abs(fitted.coef_[0] - 0.5) < 0.2)
    True
    """

    def __init__(
        self,
        prior_precision: ArrayLike | None = None,
        *,
        formula: str | None = None,
        fit_intercept: bool = True,
        scale_prior: bool = True,
        sampler: Sampler | Dynamics | str | None = None,
        target: str = "posterior",
        batch_size: int | str = "auto",
        draws: int = 250,
        chains: int = 4,
        max_steps: int = 20_000_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.prior_precision = prior_precision
        self.formula = formula
        self.fit_intercept = fit_intercept
        self.scale_prior = scale_prior
        self.sampler = sampler
        self.target = target
        self.batch_size = batch_size
        self.draws = draws
        self.chains = chains
        self.max_steps = max_steps
        self.random_state = random_state

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: Column = None, groups: Column = None
    ) -> BayesianPoissonRegressor:
        """Sample the posterior; weights multiply the rows' log likelihoods."""
        table, target = training(self, X, y, sample_weight)
        counts = np.asarray(target, dtype=float)
        if np.any(counts < 0):
            raise InputError(f"y must not be negative; it holds {counts.min():.4g}")
        if not np.any(counts):
            raise InputError("y is 0 everywhere: the rate has no lower bound")
        rows = ordered_rows(table, counts, row_weights(sample_weight, table), groups)
        set_posterior(self, regression(self, whole_counts(rows), "poisson"))
        self.coef_, self.intercept_ = coefficients(self)
        return self

    def predict(
        self, X: ArrayLike, return_std: bool | str = False, groups: Column = None
    ) -> Array | tuple[Array, Array]:
        """Predictive mean E[exp(xᵀβ)], and with `return_std` the standard deviation of the
        outcome, a single count, or with "expectation" that of the expectation.
        """
        check_is_fitted(self)
        table = new_rows(self, X)
        if groups is not None:
            return known_groups(self, table, groups, return_std)
        mean, variance = over_draws(self, table, np.exp)
        if not return_std:
            return mean
        return mean, np.sqrt(variance + (mean if is_outcome(return_std) else 0.0))

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """D², the fraction of the Poisson deviance that is explained."""
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    def sample_posterior(
        self, n_samples: int | None = None, random_state: int | np.random.RandomState | None = None
    ) -> dict[str, Array]:
        """Draws of `coef` (n, columns) and `intercept` (n,), at random without replacement; None is
        all.
        """
        check_is_fitted(self)
        coef, intercept = linear_draws(self)
        return chosen({"coef": coef, "intercept": intercept}, n_samples, random_state)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


class BayesianClassifier(Portable, ClassifierMixin, BaseEstimator):
    """Logistic regression, softmax regression for more than two classes.

    Arguments are those of `BayesianRegressor`, without the noise. `coef_` has shape (1, columns)
    for two classes and (classes, columns) for more, where only differences between classes matter.

    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> fitted = BayesianClassifier().fit(X, np.where(X[:, 0] + X[:, 1] ** 3 > 0, "yes", "no"))
    >>> fitted.classes_, fitted.predict_proba(X[:4]).shape
    (array(['no', 'yes'], dtype='<U3'), (4, 2))
    """

    def __init__(
        self,
        prior_precision: ArrayLike | None = None,
        *,
        formula: str | None = None,
        fit_intercept: bool = True,
        scale_prior: bool = True,
        sampler: Sampler | Dynamics | str | None = None,
        target: str = "posterior",
        batch_size: int | str = "auto",
        draws: int = 250,
        chains: int = 4,
        max_steps: int = 20_000_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.prior_precision = prior_precision
        self.formula = formula
        self.fit_intercept = fit_intercept
        self.scale_prior = scale_prior
        self.sampler = sampler
        self.target = target
        self.batch_size = batch_size
        self.draws = draws
        self.chains = chains
        self.max_steps = max_steps
        self.random_state = random_state

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: Column = None, groups: Column = None
    ) -> BayesianClassifier:
        """Sample the posterior; weights multiply the rows' log likelihoods."""
        table, target = training(self, X, y, sample_weight, labels=True)
        check_classification_targets(target)
        weights = row_weights(sample_weight, table)
        kept = slice(None) if weights is None else weights > 0
        self.classes_ = np.unique(target[kept])
        if len(self.classes_) < 2:
            raise InputError(
                f"y holds one class only, {brief(self.classes_[0])}; there is nothing to separate"
            )
        codes = np.searchsorted(self.classes_, np.asarray(target)).astype(float)
        rows = ordered_rows(table, codes, weights, groups)
        model = regression(self, rows, "bernoulli" if len(self.classes_) == 2 else "categorical")
        if len(self.classes_) > 2:
            labels = tuple(map(str, self.classes_))
            model = model.replace(names=labelled(model.names, labels))
        set_posterior(self, model)
        coef, intercept = linear_draws(self)
        self.coef_ = np.atleast_2d(coef.mean(axis=0).T)
        self.intercept_ = np.atleast_1d(intercept.mean(axis=0))
        return self

    def predict_proba(
        self, X: ArrayLike, return_std: bool = False, groups: Column = None
    ) -> Array | tuple[Array, Array]:
        """Probabilities averaged over the posterior, and with `return_std` the standard
        deviation of these expectations over it.
        """
        check_is_fitted(self)
        table = new_rows(self, X)
        if groups is not None:
            return known_groups(self, table, groups, return_std and "expectation")
        mean, variance = over_draws(self, table, sigmoid if len(self.classes_) == 2 else softmax)
        if len(self.classes_) == 2:
            mean, variance = (
                np.column_stack([1.0 - mean, mean]),
                np.column_stack([variance, variance]),
            )
        return (mean, np.sqrt(variance)) if return_std else mean

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def decision_function(self, X: ArrayLike) -> Array:
        """Log-odds of the second class, (n,), or log probabilities of several, (n, classes):
        above zero, or the largest, where `predict` says so.
        """
        logs = self.predict_log_proba(X)
        return logs[:, 1] - logs[:, 0] if len(self.classes_) == 2 else logs

    def predict(self, X: ArrayLike, groups: Column = None) -> Array:
        """The class of highest predictive probability."""
        check_is_fitted(self)
        found = self.predict_proba(X, groups=groups)
        if np.isnan(found).any():
            raise InputError(
                f"{int(np.isnan(found).any(axis=1).sum()):,} of {len(found):,} rows cannot be"
                " predicted: leave them out, or use predict_proba, which leaves them empty"
            )
        return self.classes_[np.argmax(found, axis=1)]

    def sample_posterior(
        self, n_samples: int | None = None, random_state: int | np.random.RandomState | None = None
    ) -> dict[str, Array]:
        """Draws of `coef` (n, 1 or classes, columns) and `intercept` (n, 1 or classes); None is
        all, in random order.
        """
        check_is_fitted(self)
        coef, intercept = linear_draws(self)
        if coef.ndim == 2:
            coef, intercept = coef[..., None], intercept[..., None]
        return chosen(
            {"coef": np.swapaxes(coef, 1, 2), "intercept": intercept}, n_samples, random_state
        )
