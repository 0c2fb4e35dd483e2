"""To and from ArviZ, whose 0.x and 1.x differ in how arrays are handed over."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray


def _is_new() -> bool:
    import arviz

    return int(arviz.__version__.split(".")[0]) >= 1


def effective_sample_size(draws: Array, method: str) -> float:
    """ESS of one quantity's draws, shape (chains, draws); method "bulk" or "tail"."""
    if _is_new():
        from arviz_stats.base import array_stats

        return float(array_stats.ess(draws, chain_axis=0, draw_axis=1, method=method))
    import arviz

    return float(arviz.ess(draws, method=method))


def split_r_hat(draws: Array) -> float:
    """Rank-normalised split R-hat of one quantity's draws."""
    if _is_new():
        from arviz_stats.base import array_stats

        return float(array_stats.rhat(draws, chain_axis=0, draw_axis=1))
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

    if _is_new():
        tree = arviz.from_dict({"posterior": posterior}, coords=coords, dims=dims)
        tree["posterior"].attrs.update(attributes)
        return tree
    return arviz.from_dict(posterior=posterior, posterior_attrs=attributes, coords=coords, dims=dims)


def pareto_smoothed(log_weights: Array) -> tuple[Array, float]:
    """Log importance weights with their tail smoothed (PSIS), up to a constant, and the tail's shape k."""
    if _is_new():
        from arviz_stats.base import array_stats

        smoothed, k = array_stats.psislw(log_weights, axis=-1)
    else:
        import arviz

        smoothed, k = arviz.psislw(log_weights)
    return np.asarray(smoothed), float(k)
