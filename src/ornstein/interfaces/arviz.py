"""To and from ArviZ, whose 0.x and 1.x differ in how arrays are handed over."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray
TAILS = (0.05, 0.95)


@cache  # a module that is absent would be looked for anew each time
def _array_stats() -> Any:
    """ArviZ's statistics of plain arrays, a package of their own since 1.0; None with the older ArviZ of Python 3.11."""
    try:
        from arviz_stats.base import array_stats
    except ImportError:
        return None
    return array_stats


def effective_sample_size(draws: Array, method: str) -> float:
    """ESS of one quantity's draws, shape (chains, draws); method "bulk" or "tail"."""
    stats = _array_stats()
    if stats is not None:
        quantiles = {"prob": TAILS} if method == "tail" else {}
        return float(stats.ess(draws, chain_axis=0, draw_axis=1, method=method, **quantiles))
    import arviz

    return float(arviz.ess(draws, method=method, prob=TAILS if method == "tail" else None))


def split_r_hat(draws: Array) -> float:
    """Rank-normalised split R-hat of one quantity's draws."""
    stats = _array_stats()
    if stats is not None:
        return float(stats.rhat(draws, chain_axis=0, draw_axis=1))
    import arviz

    return float(arviz.rhat(draws))


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


def pareto_smoothed(log_weights: Array) -> tuple[Array, float]:
    """Log importance weights with their tail smoothed (PSIS), up to a constant, and the tail's shape k."""
    stats = _array_stats()
    if stats is not None:
        # Made for leave-one-out weights 1/p(y): what it is given is the log likelihood, whose negative is the log weight.
        smoothed, k = stats.psislw(-log_weights, axis=-1)
    else:
        import arviz

        smoothed, k = arviz.psislw(log_weights)
    return np.asarray(smoothed), float(k)
