"""R-hat, effective sample sizes and smoothed importance weights: ArviZ's, on plain arrays."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import numpy as np

from ornstein.types import Array

TAILS = (0.05, 0.95)
STATISTICS = "arviz_stats.base"


def effective_sample_size(draws: Array, method: str) -> float:
    """ESS of one quantity's draws, shape (chains, draws); method "bulk" or "tail"."""
    quantiles = {"prob": TAILS} if method == "tail" else {}
    return float(_array_stats().ess(draws, chain_axis=0, draw_axis=1, method=method, **quantiles))


def split_r_hat(draws: Array) -> float:
    """Rank-normalised split R-hat of one quantity's draws; of a single chain, whose halves are then
    the chains.

    >>> import numpy as np
    >>> steady = np.random.default_rng(0).normal(size=(1, 400))
    >>> split_r_hat(steady) < 1.02, split_r_hat(steady + np.linspace(0, 3, 400)) > 1.2
    (True, True)
    """
    if draws.shape[0] == 1:
        half = draws.shape[1] // 2
        draws = np.concatenate([draws[:, :half], draws[:, -half:]])
    return float(_array_stats().rhat(draws, chain_axis=0, draw_axis=1))


def pareto_smoothed(log_weights: Array) -> tuple[Array, float]:
    """Log importance weights with their tail smoothed (PSIS), up to a constant, and the tail's
    shape k; as they are, with an infinite k, where equal weights leave no tail to fit.
    """
    # Made for leave-one-out weights 1/p(y): what it is given is the log likelihood, whose negative
    # is the log weight.
    smoothed, k = _array_stats().psislw(-log_weights, axis=-1)
    if np.isnan(smoothed).any() and np.isfinite(log_weights).all():
        return log_weights, float("inf")
    return np.asarray(smoothed), float(k)


def _array_stats() -> ModuleType:
    """ArviZ's statistics of plain arrays: a package of their own, which imports in a third of the
    time of all of ArviZ.
    """
    return importlib.import_module(STATISTICS).array_stats


@contextmanager
def imported_meanwhile(after: float = 0.5) -> Iterator[None]:
    """Import them for a check to come while chains, which need no interpreter, run: if they still
    do after some seconds.
    """
    timer = threading.Timer(after, importlib.import_module, (STATISTICS,))
    timer.start()
    try:
        yield
    except BaseException:
        timer.cancel()
        # an import that goes on while the interpreter ends would make it forget that it was
        # interrupted
        timer.join()
        raise
    timer.cancel()
