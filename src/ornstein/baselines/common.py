"""Other ways to the same posterior, to compare with; each returns the same Posterior as `sample`.

Their Posterior has no prediction: no law was predicted that its draws could be compared with.
`settings["sampler"]` names the method, `settings["passes"]` counts sweeps over the data, and where
`settings["exact_moments"]` is true, mean and covariance are those of the Gaussian that the draws
were taken from, free of Monte-Carlo error.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from ornstein.errors import InputError
from ornstein.streams import Purpose, stream
from ornstein.types import PyTree

if TYPE_CHECKING:
    from ornstein.curvature.curvature import Curvature
    from ornstein.model.model import Model
    from ornstein.posterior.posterior import Posterior
    from ornstein.theory import Gaussian


def checked_numbers(least: int = 1, **values: object) -> None:
    """Refuse counts that are not whole numbers of at least `least`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise InputError(f"{name} must be a whole number, {least} or more; got {value!r}")


def checked_dtype(dtype: str | None) -> str:
    """The working precision: float64 unless asked otherwise."""
    if dtype not in (None, "float32", "float64"):
        raise InputError(f"dtype must be 'float32' or 'float64', not {dtype!r}")
    return dtype or "float64"


def start_of(model: Model, init: PyTree) -> np.ndarray:
    """Where to start, as a flat vector: `init` (a pytree or a flat vector) or the model's own."""
    return model.init if init is None else model.flat(init)


def independent_draws(law: Gaussian, chains: int, draws: int, seed: int) -> np.ndarray:
    """Draws of a Gaussian, (chains, draws, D); a chain's draws do not depend on how many chains
    there are.
    """
    from ornstein.checks import require_memory

    size = law.mean.size
    require_memory("an array of draws", chains, draws, size)
    root = (
        np.sqrt(law.covariance) if law.covariance.ndim == 1 else np.linalg.cholesky(law.covariance)
    )
    values = np.empty((chains, draws, size))
    for chain in range(chains):
        generator = stream(seed, Purpose.STARTS, chain)
        normals = generator.standard_normal((draws, size))
        values[chain] = law.mean + (normals * root if root.ndim == 1 else normals @ root.T)
    return values


def delivered(
    model: Model,
    sampler: str,
    draws: np.ndarray,
    started: float,
    passes: float,
    *,
    curvature: Curvature | None = None,
    moments: Gaussian | None = None,
    **settings: object,
) -> Posterior:
    """The Posterior of a baseline, with where it came from and what it cost."""
    from ornstein.posterior.posterior import Posterior
    from ornstein.posterior.provenance import provenance

    known = {
        "sampler": sampler,
        "seconds": time.perf_counter() - started,
        "passes": float(passes),
        "exact_moments": moments is not None,
        **settings,
        **provenance(),
    }
    return Posterior(
        draws,
        tuple(model.names),
        model.layout,
        known,
        curvature=curvature,
        predict_function=model.predict,
        moments=moments,
        constrained=model.constrained(draws),
        model=model,
    )
