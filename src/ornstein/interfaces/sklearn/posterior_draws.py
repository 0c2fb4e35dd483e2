"""The posterior behind a fitted estimator: its draws by coefficient, means and variances over
them, and the estimator's state with the posterior as a file, for pickles.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from ornstein.checks import brief
from ornstein.errors import InputError
from ornstein.interfaces.sklearn.fitting import has_intercept
from ornstein.types import Array

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

CHUNK = 2**22


def unconstrained(estimator: BaseEstimator) -> dict[str, Array]:
    """Draws of the parameters that the sampler works on, (chains, draws, …)."""
    posterior = estimator.posterior_
    found: dict[str, Array] = posterior.layout.unflatten(posterior.draws)
    return found


def linear_draws(estimator: BaseEstimator) -> tuple[Array, Array]:
    """Draws of the coefficients (n, columns) or (n, columns, classes) and intercepts (n,) or (n,
    classes).
    """
    params = {
        name: values.reshape(-1, *values.shape[2:])
        for name, values in unconstrained(estimator).items()
    }
    coef, classes = params["coef"], len(getattr(estimator, "classes_", ()))
    if coef.ndim == 2:
        if estimator.groups_ is not None and has_intercept(estimator):  # it is the last
            return coef[:, :-1], coef[:, -1]
        return coef, params.get("intercept", np.zeros(len(coef)))
    intercept = params.get("intercept", np.zeros((len(coef), classes)))
    return _with_reference(coef, classes), _with_reference(intercept, classes)


def _with_reference(values: Array, classes: int) -> Array:
    """A zero for the first class where it is the reference."""
    if values.shape[-1] == classes:
        return values
    return np.concatenate([np.zeros_like(values[..., :1]), values], axis=-1)


def scales(estimator: BaseEstimator) -> Array:
    """Draws of σ, or the one that was given."""
    params = unconstrained(estimator)
    return (
        np.exp(params["log_scale"]).reshape(-1)
        if "log_scale" in params
        else np.asarray([float(estimator.noise_scale)])
    )


def over_draws(
    estimator: BaseEstimator, X: Array, link: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """Mean and variance over the posterior of link(Xβ), a bounded number of rows at a time."""
    coef, intercept = linear_draws(estimator)
    size = max(1, CHUNK // intercept.size)
    means, variances = [], []
    for start in range(0, len(X), size):
        values = link(np.tensordot(X[start : start + size], coef, axes=(1, 1)) + intercept)
        means.append(values.mean(axis=1))
        variances.append(values.var(axis=1, ddof=1))
    return np.concatenate(means), np.concatenate(variances)


def predictor_variance(estimator: BaseEstimator, X: Array, intercept: bool) -> Array:
    """The variance of the linear predictor of each row over the posterior."""
    slopes = X.shape[1] + intercept
    covariance = estimator.posterior_.covariance
    covariance = (covariance if covariance.ndim == 2 else np.diag(covariance))[:slopes, :slopes]
    extended = np.column_stack([X, np.ones(len(X))]) if intercept else X
    return np.einsum("ij,ij->i", extended @ covariance, extended)


def is_outcome(return_std: bool | str) -> bool:
    """Whether the standard deviation asked for is that of the outcome, not of its expectation."""
    if return_std in (True, "outcome", "expectation"):
        return return_std != "expectation"
    raise InputError(
        f"return_std must be True, 'outcome' or 'expectation'; got {brief(return_std)}"
    )


def sigmoid(predictor: Array) -> Array:
    """Probability of the second of two classes."""
    from scipy.special import expit

    return expit(predictor)


def softmax(predictor: Array) -> Array:
    """Probabilities of the classes, which are the last axis."""
    from scipy import special

    return special.softmax(predictor, axis=-1)


def chosen(
    draws: dict[str, Array], n_samples: int | None, random_state: int | np.random.RandomState | None
) -> dict[str, Array]:
    """Some of the draws, at random without replacement; None is all, in random order."""
    total = len(draws["coef"])
    wanted = total if n_samples is None else n_samples
    if not 1 <= wanted <= total:
        raise InputError(
            f"n_samples must lie between 1 and the number of draws, {total}; got {n_samples}"
        )
    order = check_random_state(random_state).permutation(total)[:wanted]
    return {name: values[order] for name, values in draws.items()}


class Portable:
    """An estimator whose pickles hold its posterior as a file."""

    def __getstate__(self) -> dict[str, object]:
        return portable(super().__getstate__())  # type: ignore[arg-type]

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(restored(state))  # type: ignore[misc]


def portable(state: dict[str, Any]) -> dict[str, object]:
    """The estimator's state with its posterior as the bytes of a file, which hold numbers and no
    code.
    """
    if "posterior_" not in state:
        return state
    with tempfile.TemporaryDirectory() as folder:
        file = state["posterior_"].save(Path(folder) / "posterior.orn")
        return {**state, "posterior_": file.read_bytes()}


def restored(state: dict[str, Any]) -> dict[str, object]:
    """The state that `portable` was given."""
    if "posterior_" not in state:
        return state
    from ornstein.posterior.storage import load

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "posterior.orn"
        file.write_bytes(state["posterior_"])
        return {**state, "posterior_": load(file)}
