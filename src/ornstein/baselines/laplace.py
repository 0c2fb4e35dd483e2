"""Laplace's approximation: the Gaussian at the mode whose precision is the Hessian there. It is Curvature, with draws."""

from __future__ import annotations

import copy
import time
from typing import Any

from ornstein.baselines import checked_numbers, delivered, independent_draws
from ornstein.curvature import Curvature, measure
from ornstein.derivatives import Autodiff
from ornstein.errors import InputError
from ornstein.model import Model
from ornstein.posterior import Posterior


def laplace(
    model: Model,
    *,
    draws: int = 1000,
    chains: int = 4,
    seed: int = 0,
    curvature: Curvature | None = None,
) -> Posterior:
    """Independent draws from N(mode, A⁻¹/N), A the Hessian of the mean loss; diagonal above 2000 parameters.

    `mean` and `covariance` of the result are the Gaussian's own. A curvature measured before saves the search for the mode.

    >>> import numpy as np
    >>> from ornstein.glm import glm
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> laplace(glm(X, X @ [1.0, -1.0], noise_scale=1.0, intercept=False)).mean.round(2)
    array([ 0.99, -0.99])
    """
    started = time.perf_counter()
    checked_numbers(draws=draws, chains=chains)
    checked_numbers(0, seed=seed)
    counted, passes = counting(model)
    curvature = measure(counted) if curvature is None else curvature
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


def counting(model: Model) -> tuple[Model, CountedPasses]:
    """The same model, with derivatives that count the sweeps over the data."""
    counted, derivatives = copy.copy(model), CountedPasses(model)
    counted.closed_form = lambda: derivatives  # type: ignore[method-assign]
    return counted, derivatives


class CountedPasses:
    """A model's full-data derivatives, counting the sweeps over the data; those over a part of it are not counted."""

    def __init__(self, model: Model) -> None:
        self.passes = 0
        self._derivatives = model.closed_form() or Autodiff(model)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._derivatives, name)

        def counted(*arguments: Any) -> Any:
            self.passes += name != "part"
            return method(*arguments)

        return counted
