"""Trust in a quantity of the user's own: a function of the parameters, judged by its draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import numpy as np
from numpy.typing import ArrayLike

from ornstein.errors import InputError
from ornstein.posterior.statistics import effective_sample_size, split_r_hat
from ornstein.theory.stationarity import SHORTEST
from ornstein.types import Array, PyTree
from ornstein.verdict import thresholds
from ornstein.verdict.finding import Finding, graded
from ornstein.verdict.verdict import Verdict

if TYPE_CHECKING:
    from ornstein.posterior.posterior import Posterior


def verdict_on(
    posterior: Posterior, function: Callable[[PyTree], ArrayLike], name: str = "quantity"
) -> Verdict:
    """R-hat, effective draws in the middle and in the tails, and the Monte-Carlo error of the mean
    of each number that the function returns.
    """
    values = values_of(posterior, function)
    if values.shape[1] < SHORTEST:
        raise InputError(f"{values.shape[1]} draws a chain were kept, {SHORTEST} are needed")
    several = values.shape[2] > 1
    return Verdict(
        tuple(
            finding
            for place in range(values.shape[2])
            for finding in _judged(values[:, :, place], f"{name}[{place}]" if several else name)
        )
    )


def values_of(posterior: Posterior, function: Callable[[PyTree], ArrayLike]) -> Array:
    """The function at every draw, (chains, draws, numbers)."""
    chains, draws = posterior.draws.shape[:2]
    flat = jax.tree.map(
        lambda leaf: np.asarray(leaf).reshape(chains * draws, *np.shape(leaf)[2:]),
        posterior.params,
    )
    try:
        found = [
            np.asarray(function(jax.tree.map(lambda leaf, k=k: leaf[k], flat)), dtype=float)
            for k in range(chains * draws)
        ]
        values = np.stack(found).reshape(chains, draws, -1)
    except Exception as error:
        said = (str(error).strip() or "no message").splitlines()[0]
        raise InputError(f"of= fails on a draw: {type(error).__name__}: {said}") from error
    if not np.all(np.isfinite(values)):
        raise InputError("of= returns a value that is not finite for some draws")
    if np.any(np.ptp(values, axis=(0, 1)) == 0.0):
        raise InputError("of= returns the same number for every draw: there is nothing to judge")
    return values


def _judged(values: Array, name: str) -> list[Finding]:
    r_hat = split_r_hat(values)
    bulk, tail = (effective_sample_size(values, kind) for kind in ("bulk", "tail"))
    spread = float(values.std(ddof=1))
    error = spread / np.sqrt(bulk)
    remedy = f"take more draws: draws={2 * values.shape[1]}"

    def of_size(kind: str, size: float, words: str) -> Finding:
        level = graded(-size, -thresholds.EFFECTIVE_DRAWS, -thresholds.TOO_FEW_DRAWS)
        sentence = f"{words}, {size:.0f} effective draws (wanted: {thresholds.EFFECTIVE_DRAWS:.0f})"
        return Finding(f"{name}, {kind}", level, size, thresholds.EFFECTIVE_DRAWS, sentence, remedy)

    level = graded(r_hat, thresholds.R_HAT, thresholds.LARGEST_R_HAT)
    sentence = f"R-hat {r_hat:.3f} (wanted: below {thresholds.R_HAT})"
    ends = np.quantile(values, [0.025, 0.975])
    return [
        Finding(f"{name}, R-hat", level, r_hat, thresholds.R_HAT, sentence, remedy),
        of_size("mean", bulk, f"mean {values.mean():.4g} ± {error:.1g} (MCSE), sd {spread:.4g}"),
        of_size("tails", tail, f"95 % interval {ends[0]:.4g} to {ends[1]:.4g}"),
    ]
