"""A regression in the frame of a full preconditioner, where the step is the identity.

With LLᵀ = H and θ = θ̂ + Lw, the step θ' = θ − Hĝ(θ) is w' = w − ∇_w. The rows are multiplied by L
once; a step then costs what a scalar one does. L is chosen so that LᵀΛL is diagonal, Λ the prior's
precision: then the prior's slope costs one number per parameter too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from ornstein.checks import FULL_LIMIT
from ornstein.model.families.likelihood import Likelihood
from ornstein.model.families.prior import RegressionPrior, gaussian_prior
from ornstein.model.loss import Loss, Problem
from ornstein.model.model import Model
from ornstein.model.on_device import on_device
from ornstein.model.parameters import Layout
from ornstein.model.regression import GLM
from ornstein.model.tables import is_sparse
from ornstein.types import Array, PyTree, Traced

# With fewer parameters a product with a matrix costs less than gathering the rows.
FEWEST = 100
LARGEST = 2**31  # bytes of the rows in the frame
# Products of numbers that bring the rows into the frame: some ten seconds, of which a run of a
# hundred thousand steps gets more back.
MOST_PRODUCTS = 2**37
# Numbers of an array of rows that is multiplied at a time.
AT_ONCE = 2**24


@dataclass(frozen=True)
class FramedLikelihood:
    """The log likelihood with "coef" = w for the parameters: the rows hold what w is multiplied
    with, and the hyperparameters how the auxiliary parameters follow from w.
    """

    likelihood: Likelihood

    def __call__(self, params: PyTree, example: PyTree, hyperparameters: PyTree) -> Traced:
        return self.likelihood(
            self._params(params, hyperparameters), example, hyperparameters["own"]
        )

    def change(
        self, centre: PyTree, params: PyTree, example: PyTree, hyperparameters: PyTree
    ) -> Traced:
        """As `Likelihood.change`."""
        still = self._params(centre, hyperparameters)
        moved = self._params(params, hyperparameters)
        return self.likelihood.change(still, moved, example, hyperparameters["own"])

    def _params(self, params: PyTree, hyperparameters: PyTree) -> PyTree:
        return {"coef": params["coef"], **shared(self.likelihood, params, hyperparameters)}


@dataclass(frozen=True)
class FramedPrior:
    """The log prior of w: quadratic in the coefficients, and `prior` of the auxiliary parameters;
    None where that is flat.
    """

    likelihood: Likelihood
    prior: RegressionPrior | None

    def __call__(self, params: PyTree, hyperparameters: PyTree) -> Traced:
        hyper, w = hyperparameters, params["coef"]
        quadratic = jnp.sum(hyper["slope"] * w + 0.5 * hyper["precision"] * w**2)
        if self.prior is None:
            return -quadratic
        return (
            self.prior.of_auxiliary(shared(self.likelihood, params, hyper), hyper["own"])
            - quadratic
        )


def shared(likelihood: Likelihood, params: PyTree, hyperparameters: PyTree) -> PyTree:
    """The auxiliary parameters at w, each a linear function of it."""
    names = [auxiliary.name for auxiliary in likelihood.auxiliaries]
    size = hyperparameters["shared"].shape[1]
    # sums, not products of matrices: a loop that is compiled as one kernel holds none
    moved = jnp.sum(hyperparameters["shared"] * params["coef"][:size], axis=1)
    values = moved + hyperparameters["shared_centre"]
    return {name: values[k] for k, name in enumerate(names)}


@dataclass(frozen=True, eq=False)
class Framed:
    """A regression in a frame: its loss and problem in w, and L."""

    loss: Loss
    problem: Problem
    frame: Array


def fits(model: Model) -> bool:
    """Whether a regression can be brought into a frame: dense rows in memory, one predictor that
    sees them, and a normal prior on the coefficients.
    """
    if not isinstance(model, GLM) or not FEWEST <= model.dim <= FULL_LIMIT:
        return False
    features, law = model.features, model.likelihood.law
    if is_sparse(features) or isinstance(features, np.memmap) or features.dtype.kind != "f":
        return False
    numbers = features.shape[0] * model.dim
    if (
        law.classes
        or model.likelihood.parts
        or 4 * numbers > LARGEST
        or numbers * model.dim > MOST_PRODUCTS
    ):
        return False
    scalars = all(
        model.layout.shapes[model.layout.paths.index(a.name)] == () for a in law.auxiliaries
    )
    return scalars and _is_normal(model)


def _is_normal(model: GLM) -> bool:
    prior = model.loss.log_prior
    if prior is gaussian_prior:
        return True
    return (
        isinstance(prior, RegressionPrior)
        and not prior.tails
        and "intercept_df" not in model.hyperparameters
        and not any(auxiliary.level for auxiliary, _ in prior.auxiliary)
    )


def framed(model: GLM, centre: Array, step: Array, dtype: str, batch_size: int) -> Framed:
    """The regression about `centre` in the frame of the preconditioner `step`; call it inside
    `precision.width(dtype)`.
    """
    linear = model.linear
    own = linear.predictor_of == 0
    prior = np.where(np.outer(own, own), _whole(model.prior_hessian(centre)), 0.0)
    slope = np.where(own, model.n_data * model.scaled_prior(centre)[1], 0.0)
    frame, precision = frame_of(step, prior)
    data, _ = model._centred(centre)
    layout = Layout.of({"coef": np.zeros(model.dim)})
    names = [auxiliary.name for auxiliary in model.likelihood.auxiliaries]
    places = [int(np.flatnonzero(linear.predictor_of == k + 1)[0]) for k in range(len(names))]
    hyperparameters = {
        "own": model.hyperparameters,
        "shared": frame[places],
        "shared_centre": centre[places],
        "slope": frame.T @ slope,
        "precision": precision,
    }
    likelihood, log_prior = FramedLikelihood(model.likelihood), model.loss.log_prior
    prior_of_auxiliary = log_prior if isinstance(log_prior, RegressionPrior) else None
    traits = replace(model.loss.traits, change=FramedLikelihood.change)
    rows = {**data, "x": _rows_times(model, np.where(own[:, None], frame, 0.0), dtype)}
    cast = partial(jax.tree.map, lambda leaf: on_device(np.asarray(leaf), dtype=dtype))
    problem = Problem(
        model._laid_out(rows, dtype, batch_size),
        cast(hyperparameters),
        cast(np.asarray(float(model.n_data))),
        cast(np.zeros(model.dim)),
        cast(np.zeros(model.dim)),
    )
    return Framed(
        Loss(likelihood, FramedPrior(model.likelihood, prior_of_auxiliary), layout, traits),
        problem,
        frame,
    )


def frame_of(step: Array, prior: Array) -> tuple[Array, Array]:
    """L with LLᵀ = H and LᵀΛL diagonal, and that diagonal.

    >>> L, diagonal = frame_of(np.array([[2.0, 1.0], [1.0, 3.0]]), np.diag([1.0, 4.0]))
    >>> (L @ L.T).round(9).tolist()
    [[2.0, 1.0], [1.0, 3.0]]
    >>> (L.T @ np.diag([1.0, 4.0]) @ L - np.diag(diagonal)).round(9).any()
    np.False_
    """
    root = np.asarray(scipy.linalg.cholesky(step, lower=True))
    values, vectors = np.linalg.eigh(root.T @ prior @ root)
    return root @ vectors, np.maximum(values, 0.0)


def _rows_times(model: GLM, frame: Array, dtype: str) -> Array:
    """(x, 1)ₙ L for every row, as the parameters of the first predictor see them."""
    linear = model.linear
    matrix = np.zeros((linear.features.shape[1] + 1, model.dim))
    np.add.at(matrix, linear.feature_of, frame)
    found = np.empty((linear.n_rows, model.dim), dtype)
    some = max(1, AT_ONCE // model.dim)
    for start in range(0, linear.n_rows, some):
        part = slice(start, start + some)
        np.add(np.asarray(linear.features[part], float) @ matrix[:-1], matrix[-1], out=found[part])
    return found


def _whole(matrix: Array) -> Array:
    return np.diag(matrix) if matrix.ndim == 1 else matrix
