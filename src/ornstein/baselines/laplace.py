"""Laplace's approximation: the Gaussian at the mode whose precision is the Hessian there. It is
Curvature, with draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from ornstein.baselines.common import checked_numbers, delivered, independent_draws
from ornstein.baselines.wide import at_the_mode, draws_of, from_rows
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.derivatives import Derivatives, derivatives_of
from ornstein.curvature.measure import measure
from ornstein.errors import InputError
from ornstein.model.model import Model
from ornstein.model.network import warn_of_network
from ornstein.posterior.posterior import Posterior
from ornstein.posterior.working import in_working_coordinates
from ornstein.theory import Gaussian
from ornstein.types import Array


def laplace(
    model: Model,
    *,
    draws: int | None = None,
    chains: int = 4,
    seed: int = 0,
    curvature: Curvature | None = None,
) -> Posterior:
    """Independent draws from N(mode, A⁻¹/N), A the Hessian of the mean loss; diagonal above 2000
    parameters, except for regressions on sparse rows.

    `mean` and `covariance` of the result are the Gaussian's own. A curvature measured before saves
    the search for the mode. `draws` is 1000 a chain unless said.

    A regression on sparse rows with more than 2000 parameters keeps the whole A, as products with
    the rows: draws are solutions of linear systems, 50 a chain unless said, and `covariance` is the
    diagonal of A⁻¹/N from 128 of them. In such models the posterior's mass is often far from the
    mode: `orn.gaussian_vi` costs little more.

    >>> import numpy as np
    >>> from ornstein.model.regression import glm
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> laplace(glm(X, X @ [1.0, -1.0], noise_scale=1.0, intercept=False)).mean.round(2)
    array([ 1., -1.])
    """
    wide = curvature is None and from_rows(model)
    count = (50 if wide else 1000) if draws is None else draws
    checked_numbers(draws=count, chains=chains)
    checked_numbers(0, seed=seed)
    warn_of_network(model)
    if wide:
        return _by_rows(model, count, chains, seed)

    def run(worked: Model, known: Curvature | None, init: Array | None) -> Posterior:
        return _laplace(worked, count, chains, seed, known)

    return in_working_coordinates(model, curvature, None, run)


def _laplace(
    model: Model, draws: int, chains: int, seed: int, curvature: Curvature | None
) -> Posterior:
    started = time.perf_counter()
    passes = CountedPasses(derivatives_of(model))
    curvature = measure(model, derivatives=passes, seed=seed) if curvature is None else curvature
    if curvature.dim != model.dim:
        raise InputError(f"the curvature has {curvature.dim} parameters, the model {model.dim}")
    return delivered(
        model,
        "laplace",
        independent_draws(curvature.laplace, chains, draws, seed),
        started,
        passes.passes,
        curvature=curvature,
        moments=curvature.laplace,
        seed=int(seed),
        approximate=curvature.approximate,
    )


def _by_rows(model: Model, draws: int, chains: int, seed: int) -> Posterior:
    started = time.perf_counter()
    found = at_the_mode(model)
    law = Gaussian(found.mean, found.variances())
    values = draws_of(found, chains, draws, seed)
    return delivered(
        model,
        "laplace",
        values,
        started,
        found.passes,
        moments=law,
        exact_moments=False,
        seed=int(seed),
        head=int(found.head.heavy.size),
        approximate="",
    )


class CountedPasses:
    """Full-data derivatives that count the sweeps over the data; those over a part of it are not
    counted.
    """

    def __init__(self, derivatives: Derivatives) -> None:
        self.passes = 0
        self._derivatives = derivatives

    def _counted(self) -> Derivatives:
        self.passes += 1
        return self._derivatives

    def value(self, theta: Array) -> float:
        return self._counted().value(theta)

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        return self._counted().value_and_gradient(theta)

    def hessian(self, theta: Array) -> Array:
        return self._counted().hessian(theta)

    def gradient_moments(self, theta: Array) -> tuple[Array, Array]:
        return self._counted().gradient_moments(theta)

    def diagonal_moments(self, theta: Array) -> tuple[Array, Array]:
        return self._counted().diagonal_moments(theta)

    def example_gradients(self, theta: Array) -> Iterator[Array]:
        return self._counted().example_gradients(theta)

    def hessian_product(self, theta: Array, vector: Array) -> Array:
        return self._counted().hessian_product(theta, vector)

    def squared_hessian(self, theta: Array) -> Callable[[Array], Array] | None:
        return self._counted().squared_hessian(theta)

    def part(self, rows: Array) -> Derivatives | None:
        return self._derivatives.part(rows)
