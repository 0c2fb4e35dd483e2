"""Which parameters mix worst, and how many independent draws theirs are worth."""

from __future__ import annotations

import numpy as np

from ornstein.types import Array

PARAMETERS_LOOKED_AT = 4


def fewest_effective(draws: Array) -> float:
    """The smallest bulk ESS among the parameters whose chains differ most."""
    from ornstein.posterior.statistics import effective_sample_size

    columns = most_different(draws)
    return min(effective_sample_size(draws[:, :, column], "bulk") for column in columns)


def most_different(draws: Array) -> Array:
    """The parameters whose chains differ most, by the variance of the means of half chains over the
    variance within them: what R-hat grows with.
    """
    half = draws.shape[1] // 2
    halves = np.concatenate([draws[:, :half], draws[:, -half:]])
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    ratio = np.divide(between, within, out=np.full(within.shape, np.inf), where=within > 0)
    return np.argsort(-ratio)[:PARAMETERS_LOOKED_AT]
