"""Leave-one-out: how well a model predicts a row that it has not seen (PSIS-LOO), and the
comparison of models by it.

Up to 2 GB of pointwise log likelihood every row is smoothed. Beyond, the density at the posterior
mean is taken for all rows and PSIS for a random subset of them; the difference estimator puts both
together (Magnusson, Andersen, Jonasson and Vehtari 2019).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from ornstein.checks import LARGEST_ALLOCATION, brief, is_whole
from ornstein.errors import InputError
from ornstein.model.regression import GLM
from ornstein.posterior.pointwise import Pointwise
from ornstein.streams import generator
from ornstein.types import Array

if TYPE_CHECKING:
    import pandas

    from ornstein.model.model import Model

SUBSET = 1000  # rows, where not all can be smoothed
MOST_DRAWS = 2000
RELIABLE = 0.7  # Pareto k


@dataclass(frozen=True, eq=False)
class Loo:
    """The expected log density of new rows, summed over as many as the model has.

    Attributes:
        elpd, se: the sum and its standard error over rows.
        p_loo: the effective number of parameters.
        subsampling_se: the part of the error from smoothing some rows only; 0 where all were.
        pointwise, pareto_k: of the rows in `rows`. approximate: of all rows, at the mean.
        outcomes: a hash of what a regression explains, weights included; "" of other models.
    """

    elpd: float
    se: float
    p_loo: float
    subsampling_se: float
    n_data: int
    rows: Array
    pointwise: Array
    pareto_k: Array
    approximate: Array | None = None
    outcomes: str = ""

    @property
    def bad(self) -> int:
        """How many of the rows looked at have a Pareto k above 0.7: their part is a guess."""
        return int(np.sum(self.pareto_k > RELIABLE))

    def __str__(self) -> str:
        part = f", {len(self.rows):,} rows smoothed" if self.approximate is not None else ""
        return (
            f"elpd_loo {self.elpd:.1f} ± {self.se:.1f}, p_loo {self.p_loo:.1f}, {self.n_data:,}"
            f" rows{part}, {self.bad} with Pareto k above {RELIABLE}"
        )

    __repr__ = __str__


@runtime_checkable
class Fitted(Protocol):
    """A posterior."""

    def loo(self) -> Loo: ...


def loo(draws: Array, mean: Array, model: Model | None, subset: int | None, seed: int) -> Loo:
    """The leave-one-out of a posterior by its draws (n, D); `Posterior.loo` explains the rest."""
    if model is None:
        raise InputError("loo needs the data, which a saved file does not hold: loo(model=…)")
    if model.undivided:
        raise InputError(f"loo needs single rows. {model.undivided}")
    if not len(draws):
        raise InputError("loo needs draws; only their moments were kept (keep='moments')")
    if subset is not None and (not is_whole(subset) or subset < 2):
        raise InputError(f"subset must be a whole number, 2 or more; got {subset!r}")
    rng = generator(seed)
    if len(draws) > MOST_DRAWS:
        draws = draws[np.sort(rng.choice(len(draws), MOST_DRAWS, replace=False))]
    pointwise, count = Pointwise(model), model.n_data
    if subset is None and 8 * count * len(draws) > LARGEST_ALLOCATION:
        subset = SUBSET
    if subset is None or subset >= count:
        found = _whole(pointwise.at(draws, np.arange(count), mean), count)
    else:
        found = _subsampled(pointwise, mean, draws, int(subset), count, rng)
    return replace(found, outcomes=_hash_of_outcomes(model))


def _hash_of_outcomes(model: Model) -> str:
    """What tells the outcomes of one regression from those of another, in whatever type."""
    if not isinstance(model, GLM):
        return ""
    digest = hashlib.blake2b(digest_size=16)
    for values in (model.response, model.data.get("weight")):
        digest.update(b"none" if values is None else b"some")
        for start in range(0, 0 if values is None else len(values), 2**22):
            digest.update(np.asarray(values[start : start + 2**22], dtype=np.float32).tobytes())
    return digest.hexdigest()


def _whole(densities: Array, count: int) -> Loo:
    found, k, gained = _smoothed(densities)
    error = float(np.sqrt(count) * found.std())
    return Loo(
        float(found.sum()), error, float(gained.sum()), 0.0, count, np.arange(count), found, k
    )


def _subsampled(
    pointwise: Pointwise,
    mean: Array,
    draws: Array,
    subset: int,
    count: int,
    rng: np.random.Generator,
) -> Loo:
    """All rows at the mean, and by how much leaving out changes it for some of them."""
    surrogate = pointwise.at(mean[None], np.arange(count), mean)[0]
    rows = np.sort(rng.choice(count, subset, replace=False))
    found, k, gained = _smoothed(pointwise.at(draws, rows, mean))
    difference = found - surrogate[rows]
    elpd = float(surrogate.sum() + count * difference.mean())
    left = 1.0 - subset / count
    own = float(count * np.sqrt(left / subset) * difference.std(ddof=1))
    # the variance over rows by the same estimator, of the squares
    squares = np.sum(surrogate**2) + count * np.mean(found**2 - surrogate[rows] ** 2)
    error = float(np.sqrt(max(0.0, squares - elpd**2 / count)))
    return Loo(elpd, error, float(count * gained.mean()), own, count, rows, found, k, surrogate)


def _smoothed(densities: Array) -> tuple[Array, Array, Array]:
    """elpd, Pareto k and p_loo of each row from (draws, rows)."""
    from arviz_stats.base import array_stats
    from scipy.special import logsumexp

    by_row = np.ascontiguousarray(densities.T)
    with np.errstate(all="ignore"):
        weights, k = (np.array(found) for found in array_stats.psislw(by_row, axis=-1))  # of 1/p
    # A tail beyond floating point has no shape; its row counts as it is, and as bad.
    broken = np.isnan(weights).any(axis=1)
    weights[broken], k[broken] = -by_row[broken], np.inf
    found = logsumexp(weights + by_row, axis=1) - logsumexp(weights, axis=1)
    whole = logsumexp(by_row, axis=1) - np.log(by_row.shape[1])
    return found, k, whole - found


def loo_compare(fits: Mapping[str, Fitted | Loo]) -> pandas.DataFrame:
    """Models side by side, the best first: elpd, its difference to the best with the standard error
    of the difference, and p_loo. Models must hold the same rows.

    >>> import ornstein as orn
    >>> x = np.arange(12.0)[:, None]
    >>> y = [0, 1, 0, 2, 1, 2, 4, 3, 6, 5, 9, 11]
    >>> fits = {name: orn.laplace(orn.glm(x, y, name), seed=0) for name in ("poisson", "gaussian")}
    >>> list(loo_compare(fits).index)
    ['poisson', 'gaussian']
    """
    import pandas

    if not isinstance(fits, Mapping) or len(fits) < 2:
        raise InputError("loo_compare needs two or more fits by name: {'a': first, 'b': second}")
    for name, fit in fits.items():
        if not isinstance(fit, Loo | Fitted):
            raise InputError(f"{name!r} must be a Posterior or its loo(); got {brief(fit)}")
    looked = {name: fit if isinstance(fit, Loo) else fit.loo() for name, fit in fits.items()}
    counts = {name: found.n_data for name, found in looked.items()}
    if len(set(counts.values())) > 1:
        raise InputError(
            f"the models hold different numbers of rows, {counts}: they cannot be compared"
        )
    if len({found.outcomes for found in looked.values() if found.outcomes}) > 1:
        raise InputError(
            "the models explain different outcomes (other values, another order of the rows, or"
            " other weights): their log densities cannot be compared"
        )
    first = next(iter(looked.values()))
    if any(not np.array_equal(found.rows, first.rows) for found in looked.values()):
        raise InputError(
            "the fits were evaluated on different rows: give all the same subset and seed"
        )
    order = sorted(looked, key=lambda name: -looked[name].elpd)
    best = looked[order[0]]
    rows = [
        {
            "elpd": looked[name].elpd,
            "difference": looked[name].elpd - best.elpd,
            "difference_se": _error_of_difference(looked[name], best),
            "p_loo": looked[name].p_loo,
            "bad_k": looked[name].bad,
        }
        for name in order
    ]
    return pandas.DataFrame(rows, index=pandas.Index(order, dtype=object))


def _error_of_difference(one: Loo, other: Loo) -> float:
    gaps = one.pointwise - other.pointwise
    over_rows = np.sqrt(one.n_data) * gaps.std()
    if one.approximate is None or other.approximate is None:
        return float(over_rows)
    differences = gaps - (one.approximate - other.approximate)[one.rows]
    left = 1.0 - len(gaps) / one.n_data
    own = one.n_data * np.sqrt(left / len(gaps)) * differences.std(ddof=1)
    return float(np.hypot(over_rows, own))
