"""How far an ideal chain of finite length must appear from its own law, in its mean and in its
covariance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ornstein.theory import Process
from ornstein.theory.modes import as_matrix
from ornstein.types import Array


@dataclass(frozen=True)
class MonteCarloError:
    """Expected KL between a law and the Gaussian fitted to finitely many of its states, in nats.

    Attributes:
        mean: the part of the means, ½E|m|² in units of the law.
        covariance: the part of the covariances; covariance_sd its standard deviation over
            repetitions.
        slowest: standard error of the mean along the slowest direction, in its standard deviations.
    """

    mean: float
    covariance: float
    covariance_sd: float
    slowest: float

    @property
    def total(self) -> float:
        """The Monte-Carlo floor of THEORY.md section 6."""
        return self.mean + self.covariance


def expected_error(process: Process, states: int) -> MonteCarloError:
    """The error of `states` states of a process, over all chains.

    Each mode i forgets by r_i from one state to the next: the mean along it has the error
    (1+r)/(1−r)/n, the covariance of two modes (1+r_i r_j)/(1−r_i r_j)/n. Exact without momentum and
    for iterates; with momentum |r| stands for r, and window means are taken as independent.

    >>> from ornstein.theory import normal_modes
    >>> round(
    ...     expected_error(Process(normal_modes([1.0, 1.0], 1.0), np.ones(2)), 1000).mean, 6
    ... )  # D/2n: independent states
    0.001
    """
    modes = process.modes
    full = modes.basis.ndim == 2 or process.stationary.ndim == 2
    return _from_ratios(_ratios(process), states, full=full)


def variances_error(process: Process, states: int) -> MonteCarloError:
    """The same of the variances of the parameters alone, each compared with its own.

    The variance of parameter a, of which mode k makes the share w_k, has the relative error
    2 Σ_kl w_k w_l (1+r_k r_l)/(1−r_k r_l)/n squared. Errors of two parameters correlate as the
    square of the parameters' own correlation.
    """
    size, ratio = process.modes.dimension, _ratios(process)
    basis = as_matrix(process.modes.basis, size)
    shares = basis * (as_matrix(process.stationary, size) @ basis.T).T
    shares = shares / shares.sum(axis=1, keepdims=True)
    products = np.multiply.outer(ratio, ratio)
    parts = np.sum(shares @ ((1.0 + products) / (1.0 - products)) * shares, axis=1) * 2.0 / states
    law = as_matrix(process.covariance(), size)
    squares = law**2 / np.multiply.outer(np.diagonal(law), np.diagonal(law))
    together = parts @ squares**2 @ parts
    whole = _from_ratios(ratio, states, full=False)
    return replace(
        whole,
        covariance=float(np.sum(parts) / 4.0),
        covariance_sd=float(np.sqrt(2.0 * together) / 4.0),
    )


def _ratios(process: Process) -> Array:
    """How much each mode keeps from one state to the next."""
    if process.window > 1:
        return np.zeros(process.modes.dimension)
    if process.modes.damping == 1.0:
        return np.asarray((1.0 - process.modes.rates) ** process.spacing)
    return np.asarray(process.modes.radii**process.spacing)


def independent_error(dimension: int, states: float, *, full: bool = True) -> MonteCarloError:
    """The error of independent draws: D(D+3)/(4n) in all."""
    return _from_ratios(np.zeros(dimension), states, full=full)


def _from_ratios(ratio: Array, states: float, *, full: bool) -> MonteCarloError:
    growth = (1.0 + ratio) / (1.0 - ratio)
    own = (1.0 + ratio**2) / (1.0 - ratio**2) / (2.0 * states)
    parts = own
    if full:
        products = np.multiply.outer(ratio, ratio)[np.triu_indices(ratio.size, 1)]
        parts = np.concatenate([own, (1.0 + products) / (1.0 - products) / (2.0 * states)])
    slowest = growth[np.argmax(np.abs(ratio))]
    return MonteCarloError(
        float(np.sum(growth) / (2.0 * states)),
        float(np.sum(parts)),
        float(np.sqrt(2.0 * np.sum(parts**2))),
        float(np.sqrt(slowest / states)),
    )
