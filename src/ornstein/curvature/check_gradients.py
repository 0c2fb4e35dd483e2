"""Catch the mistakes that ruin every step: a likelihood on the wrong scale, and a gradient that is
not the slope of the log density.
"""

from __future__ import annotations

import jax
import numpy as np

from ornstein.compute.precision import double
from ornstein.curvature.autodiff import example_gradients
from ornstein.curvature.measure import measure
from ornstein.errors import InputError
from ornstein.model.loss import Problem
from ornstein.model.model import Model
from ornstein.model.required import require_model
from ornstein.types import Array, PyTree

PARAMETERS = 100  # along which slopes are compared, at most
BESIDE = 0.01  # how far from init, so that a kink there does not count
STEP = 1e-4  # of the differences
TOLERANCE = 0.01  # of a slope: share of it, or of the largest
BENT = 1e-3  # by which differences over a step and half of it differ at a kink, which do not count


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
    require_model(model)
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
    _require_slopes(model, problem, batch)
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


def _require_slopes(model: Model, problem: Problem, batch: PyTree) -> None:
    """Refuse a gradient that is not the slope, naming the parameter where it is farthest off."""
    generator = np.random.default_rng(0)
    size = np.maximum(1.0, np.abs(model.init))
    beside = BESIDE * size * generator.standard_normal(model.dim)
    chosen = np.unique(np.linspace(0, model.dim - 1, PARAMETERS).astype(int))
    steps = STEP * size[chosen, None] * np.eye(model.dim)[chosen]

    def likelihood(moved: Array) -> Array:
        with double():
            mean = jax.vmap(lambda d: model.loss.log_likelihoods(problem, d, batch).mean())
            return np.asarray(mean(moved))

    def prior(moved: Array) -> Array:
        return -model.n_data * model.scaled_priors(model.init + moved)[0]

    with double():
        slopes = example_gradients(model.loss, problem, beside, batch)
    said_of = {
        "log_likelihood": (likelihood, np.asarray(slopes).mean(axis=0)),
        "log_prior": (prior, model.n_data * model.scaled_prior(model.init + beside)[1]),
    }
    for name, (values, gradient) in said_of.items():
        found, halved = (
            (values(beside + part * steps) - values(beside - part * steps))
            / (2.0 * part * STEP * size[chosen])
            for part in (1.0, 0.5)
        )
        _require_same_slopes(model, name, chosen, -gradient[chosen], found, halved)


def _require_same_slopes(
    model: Model, name: str, chosen: Array, said: Array, found: Array, halved: Array
) -> None:
    usable = np.isfinite(said) & np.isfinite(found)
    with np.errstate(invalid="ignore"):
        usable &= np.abs(found - halved) <= BENT * (1.0 + np.abs(found))
    if not usable.any():
        return
    said, found, chosen = said[usable], found[usable], chosen[usable]
    error = np.abs(said - found) / np.maximum(np.abs(found), np.abs(found).max() + 1e-12)
    worst = int(np.argmax(error))
    if error[worst] > TOLERANCE:
        raise InputError(
            f"the gradient of {name} with respect to {model.names[chosen[worst]]} is"
            f" {said[worst]:.4g}, but {name} changes by {found[worst]:.4g} per unit there: look at"
            " derivatives that were written by hand (custom_jvp, custom_vjp, stop_gradient)"
        )


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
