"""Catch the mistake that ruins every step size: a likelihood on the wrong scale."""

from __future__ import annotations

import jax
import numpy as np

from ornstein.compute.precision import double
from ornstein.curvature.autodiff import example_gradients
from ornstein.curvature.measure import measure
from ornstein.errors import InputError
from ornstein.model.model import Model


def check_gradients(model: Model, rows: int = 512) -> float:
    """Raise an InputError if the likelihood looks summed, averaged or multiplied over the data;
    else return the ratio found.

    For the log density of *one* example, the gradient noise C and the Hessian A of the data agree
    in size (C = A if the model is true). A likelihood divided by N makes C/A come out near 1/N, one
    multiplied by N near N, and one that sums over all rows gives every row the same value. The
    ratio tr(A⁻¹C)/D is returned; ratios within a factor √N of 1 pass.

    >>> import jax.numpy as jnp, numpy as np
    >>> x = np.random.default_rng(0).normal(size=400)
    >>> round(
    ...     check_gradients(
    ...         Model(lambda t, example: -0.5 * (example - t) ** 2, x, init=jnp.zeros(()))
    ...     ),
    ...     1,
    ... )
    1.0
    >>> check_gradients(
    ...     Model(lambda t, example: -0.5 * (example - t) ** 2 / 400, x, init=jnp.zeros(()))
    ... )
    Traceback (most recent call last):
    ...
    ornstein.errors.InputError: log_likelihood looks divided by N...
    """
    size = min(rows, model.n_data)
    chosen = np.linspace(0, model.n_data - 1, size).astype(int)
    with double():
        problem = model.problem_without_data("float64", model.init)
        batch = model.gathered(chosen, model.init, "float64")
        origin = np.zeros(model.dim)
        values = np.asarray(model.loss.log_likelihoods(problem, origin, batch))
        slopes = np.asarray(example_gradients(model.loss, problem, origin, batch))
    if not np.all(np.isfinite(values)) or not np.all(np.isfinite(slopes)):
        raise InputError(
            f"log_likelihood or its gradient is not finite for some of {size} rows at init"
        )
    _require_varying(values, slopes, batch)
    curvature = measure(model)
    prior = curvature.prior_hessian
    data_part = curvature.hessian - (0.0 if prior is None else prior / model.n_data)
    diagonals = [
        part if part.ndim == 1 else np.diagonal(part) for part in (curvature.noise, data_part)
    ]
    informed = diagonals[1] > 0
    ratio = float(np.mean(diagonals[0][informed] / diagonals[1][informed]))
    _require_scale(ratio, model.n_data)
    return ratio


def _require_varying(values: np.ndarray, slopes: np.ndarray, batch: object) -> None:
    distinct = any(
        np.unique(np.asarray(leaf), axis=0).shape[0] > 1 for leaf in jax.tree.leaves(batch)
    )
    same = np.ptp(values) <= 1e-12 * max(1.0, float(np.max(np.abs(values)))) and np.all(
        np.ptp(slopes, axis=0) <= 1e-12 * np.maximum(1.0, np.max(np.abs(slopes), axis=0))
    )
    if len(values) > 1 and distinct and same:
        raise InputError(
            "log_likelihood gives the same value for every row: it seems to sum or average over the"
            " whole data set. It must return the log density of the one example it is given"
        )


def _require_scale(ratio: float, n_data: int) -> None:
    bound = np.sqrt(n_data)
    if n_data < 100 or 1.0 / bound < ratio < bound:
        return
    wrong = "divided by N" if ratio < 1.0 else "multiplied by N"
    raise InputError(
        f"log_likelihood looks {wrong}: gradient noise over curvature is {ratio:.2g}, near"
        f" {'1/N' if ratio < 1 else 'N'} (N = {n_data}) where about 1 is expected. It must return"
        " the log density of one example; the mean over examples is taken by the model"
    )
