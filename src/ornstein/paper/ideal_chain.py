"""What a chain of finite length shows if the predicted law is right: its KL to the posterior, by
simulating the prediction itself.

A KL divergence from a fitted Gaussian is biased by the chain's length, and skewed: an exact
stationary value and a simulated one can only be compared through this. The predicted process is a
Gaussian autoregression, so no model and no data are needed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.signal

from ornstein.theory import Gaussian, Process, kl
from ornstein.theory.modes import as_matrix
from ornstein.types import Array

LENGTHS = np.geomspace(1.0, 4096.0, 13)  # in relaxation times


def ideal_divergences(
    process: Process, states: int, posterior: Array, replicates: int, seed: int = 0
) -> Array:
    """KL(posterior ‖ fitted Gaussian) of `replicates` independent ideal chains of `states` states,
    `process.spacing` apart.

    Means over windows are taken as independent: at 30 relaxation times a window its correlation
    with the next is 1/60.
    """
    rng = np.random.default_rng(seed)
    size = process.modes.dimension
    reference = Gaussian(np.zeros(size), as_matrix(posterior, size))
    found = []
    for _ in range(replicates):
        path = _path(process, states, rng)
        found.append(kl(reference, Gaussian(path.mean(axis=0), np.cov(path.T).reshape(size, size))))
    return np.array(found)


def _path(process: Process, states: int, rng: np.random.Generator) -> Array:
    """One ideal chain, (states, D), about zero."""
    modes, size = process.modes, process.modes.dimension
    if process.window > 1 or modes.damping != 1.0:
        return (
            rng.standard_normal((states, size))
            @ np.linalg.cholesky(as_matrix(process.covariance(), size)).T
        )
    ratio = (1.0 - modes.rates) ** process.spacing
    stationary = as_matrix(process.stationary, size)
    innovations = (
        rng.standard_normal((states, size))
        @ np.linalg.cholesky(stationary * (1.0 - np.outer(ratio, ratio))).T
    )
    innovations[0] = np.linalg.cholesky(stationary) @ rng.standard_normal(size)
    path = np.stack(
        [scipy.signal.lfilter([1.0], [1.0, -r], innovations[:, k]) for k, r in enumerate(ratio)],
        axis=1,
    )
    return np.asarray(path @ as_matrix(modes.basis, size).T)


def length_that_shows(
    process: Process, posterior: Array, divergence: float, replicates: int = 24
) -> float:
    """The length, in relaxation times, at which an ideal chain shows `divergence` on average; NaN
    where none does.

    The expected divergence falls with the length, towards the exact one.
    """
    relaxation = process.modes.relaxation_time
    lengths, shown = [], []
    for length in LENGTHS:
        # Short chains need many states to have a covariance at all; in long ones few tell the same.
        spaced = replace(
            process, spacing=max(1, round(relaxation / (32.0 if length < 64.0 else 4.0)))
        )
        states = round(length * relaxation / spaced.spacing)
        if states < 2 * process.modes.dimension:
            continue
        lengths.append(length)
        shown.append(float(np.mean(ideal_divergences(spaced, states, posterior, replicates))))
        if shown[-1] < divergence:
            break
    falling = np.minimum.accumulate(shown)
    if len(shown) < 2 or not falling[-1] < divergence <= falling[0]:
        return float("nan")
    return float(np.exp(np.interp(-np.log(divergence), -np.log(falling), np.log(lengths))))
