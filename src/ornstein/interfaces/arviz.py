"""To and from ArviZ, whose 0.x and 1.x differ in how arrays are handed over."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import Any

import numpy as np

Array = np.ndarray
TAILS = (0.05, 0.95)
STATISTICS = "arviz_stats.base"


def effective_sample_size(draws: Array, method: str) -> float:
    """ESS of one quantity's draws, shape (chains, draws); method "bulk" or "tail"."""
    quantiles = {"prob": TAILS} if method == "tail" else {}
    return float(_array_stats().ess(draws, chain_axis=0, draw_axis=1, method=method, **quantiles))


def split_r_hat(draws: Array) -> float:
    """Rank-normalised split R-hat of one quantity's draws."""
    return float(_array_stats().rhat(draws, chain_axis=0, draw_axis=1))


def pareto_smoothed(log_weights: Array) -> tuple[Array, float]:
    """Log importance weights with their tail smoothed (PSIS), up to a constant, and the tail's shape k."""
    # Made for leave-one-out weights 1/p(y): what it is given is the log likelihood, whose negative is the log weight.
    smoothed, k = _array_stats().psislw(-log_weights, axis=-1)
    return np.asarray(smoothed), float(k)


def _array_stats() -> Any:
    """ArviZ's statistics of plain arrays: a package of their own, which imports in a third of the time of all of ArviZ."""
    return importlib.import_module(STATISTICS).array_stats


def import_statistics() -> None:
    """Begin to import them on a thread, for a check to come: half a second that chains, which need no interpreter, hide."""
    if STATISTICS not in sys.modules:
        threading.Thread(target=importlib.import_module, args=(STATISTICS,)).start()


def inference_data(
    posterior: dict[str, Array],
    attributes: dict[str, Any],
    coords: dict[str, list[str]] | None = None,
    dims: dict[str, list[str]] | None = None,
) -> Any:
    """An InferenceData (0.x) or DataTree (1.x) with one posterior group."""
    import arviz

    if int(arviz.__version__.split(".")[0]) >= 1:
        tree = arviz.from_dict({"posterior": posterior}, coords=coords, dims=dims)
        tree["posterior"].attrs.update(attributes)
        return tree
    return arviz.from_dict(posterior=posterior, posterior_attrs=attributes, coords=coords, dims=dims)
