"""The prior of a regression: what was asked for, and defaults on the scale of the data.

By default a coefficient has the standard deviation 2.5 in units of its column: 2.5/sd(x) (for a
column of two values 2.5 per step between them), times sd(y) where the predictor has the unit of y.
The intercept's prior is that of the linear predictor of a row of averages, so that neither the unit
nor the origin of a column changes the posterior.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ornstein.checks import FULL_LIMIT, as_numbers, brief
from ornstein.errors import InputError
from ornstein.model.families.family import Auxiliary, Family
from ornstein.model.families.prior import RegressionPrior, gaussian_prior
from ornstein.model.priors import Flat, Normal, OnCoefficients, Prior, StudentT, numbers_of, words
from ornstein.model.spread import Spread
from ornstein.types import Array, PyTree, Traced

# Standard deviations of a coefficient per unit of its column, and of the intercept: effects beyond
# twice as large are rare where columns and response have their natural units.
WIDTH = 2.5


@dataclass(frozen=True, eq=False)
class Facts:
    """What a default prior asks of the data.

    Attributes:
        columns: their spread.
        unit: sd(y) where the predictor has the unit of y, else 1.
        middle: the linear predictor of the average response, one number or one per class.
    """

    columns: Spread
    unit: float
    middle: Array


@dataclass(frozen=True, eq=False)
class Wanted:
    """What was asked for: None is the default."""

    precision: ArrayLike | None
    intercept_precision: ArrayLike | None
    priors: Mapping[str, Prior] | None


@dataclass(frozen=True, eq=False)
class Chosen:
    """A log prior with its numbers, and whether it leaves coefficients or intercepts free."""

    log_prior: Callable[[PyTree, PyTree], Traced]
    hyperparameters: dict[str, Array]
    coef_flat: bool
    intercept_flat: bool


@dataclass(eq=False)
class _Draft:
    """Numbers of a prior while they are put together."""

    unit: Array  # 1/scale², by column or by column and class
    mean: Array
    df: Array
    intercept: OnCoefficients | None = None  # of a row of averages
    middle: Array | None = None  # where that is, if not where it says
    raw_intercept: Array = field(default_factory=lambda: np.zeros(()))  # precision about zero
    shared: dict[str, Prior] = field(default_factory=dict)


def chosen(
    law: Family,
    names: tuple[str, ...],
    outputs: int,
    wanted: Wanted,
    facts: Callable[[], Facts],
    parts: tuple[tuple[str, int, int], ...] = (),
) -> Chosen:
    """The prior that was asked for; `facts` are asked for only where the data set its scale.

    `parts` are auxiliary parameters with the columns that they follow (`Likelihood.parts`).
    """
    columns = len(names)
    asked = 0.0 if wanted.intercept_precision is None else wanted.intercept_precision
    raw = checked_precision("intercept_precision", asked, None, 1)
    if wanted.precision is not None and not wanted.priors:
        precision = checked_precision("prior_precision", wanted.precision, columns, outputs)
        numbers = {"prior_precision": precision, "intercept_precision": raw}
        return Chosen(gaussian_prior, numbers, not np.any(precision), not np.any(raw))
    known = facts()
    if wanted.precision is None:
        draft = _scaled(law, known, parts)
        if wanted.intercept_precision is not None:
            draft.intercept = None
    else:
        precision = checked_precision("prior_precision", wanted.precision, columns, outputs)
        shape = (columns, outputs) if precision.ndim == 2 else (columns,)
        draft = _Draft(np.array(np.broadcast_to(precision, shape)), *np.zeros((2, columns)))
        draft.shared = {item.word: Flat() for item in law.auxiliaries}
    draft.raw_intercept = raw
    _override(draft, {} if wanted.priors is None else wanted.priors, names)
    return _finished(draft, law, outputs, known, parts)


def _scaled(law: Family, facts: Facts, parts: tuple[tuple[str, int, int], ...]) -> _Draft:
    unit = np.full(facts.columns.mean.size, facts.unit)
    for _, first, after in parts:
        unit[first:after] = 1.0  # a logarithm or a logit, whatever the unit of y
    scale = WIDTH * unit / facts.columns.units()
    zero = np.zeros(scale.size)
    draft = _Draft(1.0 / scale**2, zero, zero.copy())
    draft.intercept, draft.middle = Normal(0.0, WIDTH * facts.unit), facts.middle
    draft.shared = law.default_priors(facts.unit, facts.middle)
    return draft


def _override(draft: _Draft, priors: Mapping[str, Prior], names: tuple[str, ...]) -> None:
    if not isinstance(priors, Mapping):
        raise InputError(
            "priors must be a dictionary by name, as in {'age': orn.priors.Normal(0, 1)}; got"
            f" {brief(priors)}"
        )
    places = {name: place for place, name in enumerate(names)}
    for name, prior in priors.items():
        if not isinstance(prior, Prior):
            raise InputError(
                f"the prior of {brief(name)} must be one of orn.priors, as in"
                f" orn.priors.Normal(0, 1); got {brief(prior)}"
            )
        if name not in places and name != "intercept":
            _require_known(name, draft.shared, names)
            draft.shared[name] = prior
            continue
        if not isinstance(prior, OnCoefficients):
            raise InputError(
                f"{name!r} takes Normal, StudentT or Flat; {type(prior).__name__} is for positive"
                " numbers"
            )
        if name in places:
            _put(draft, places[name], prior)
        else:
            draft.intercept, draft.middle = prior, None


def _require_known(name: str, shared: Mapping[str, Prior], names: tuple[str, ...]) -> None:
    if name in shared:
        return
    possible = [*names, "intercept", *shared]
    close = difflib.get_close_matches(str(name), possible, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {brief(possible)}"
    raise InputError(
        f"priors names {brief(name)}, which is neither a column nor a parameter; {hint}"
    )


def _put(draft: _Draft, place: int, prior: OnCoefficients) -> None:
    mean, scale, df = 0.0, np.inf, 0.0
    if isinstance(prior, Normal):
        mean, scale = prior.mean, prior.sd
    elif isinstance(prior, StudentT):
        mean, scale, df = prior.loc, prior.scale, prior.df
    draft.unit[place], draft.mean[place], draft.df[place] = 1.0 / scale**2, mean, df


def _finished(
    draft: _Draft,
    law: Family,
    outputs: int,
    facts: Facts,
    parts: tuple[tuple[str, int, int], ...],
) -> Chosen:
    coef_flat = not np.any(draft.unit)
    tails = bool(np.any(draft.df))
    numbers: dict[str, Array] = {
        "prior_precision": np.ones(()),
        "precision_unit": draft.unit,
        "prior_mean": draft.mean if np.any(draft.mean) else np.zeros(()),
        **({"prior_df": draft.df} if tails else {}),
    }
    centred = draft.intercept is not None and not isinstance(draft.intercept, Flat)
    numbers["intercept_precision"] = draft.raw_intercept
    numbers["intercept_mean"] = np.zeros(())
    main = parts[0][1] if parts else facts.columns.mean.size
    if centred:
        centred = _centre(numbers, draft, outputs, facts, main)
    own = {name: (first, after) for name, first, after in parts}
    kinds: list[tuple[Auxiliary, type[Prior]]] = []
    for auxiliary in law.auxiliaries:
        prior = draft.shared[auxiliary.word]
        kinds.append((auxiliary, type(prior)))
        if not isinstance(prior, Flat):
            numbers[f"{auxiliary.word}_prior"] = np.array(numbers_of(prior))
        if auxiliary.name in own:
            numbers[f"{auxiliary.word}_means"] = _only(facts.columns.mean, *own[auxiliary.name])
    reference = law.classes and coef_flat
    log_prior = RegressionPrior(tails, centred, reference, tuple(kinds))
    return Chosen(log_prior, numbers, coef_flat, not np.any(numbers["intercept_precision"]))


def _only(values: Array, first: int, after: int) -> Array:
    """Zeros but for some entries."""
    kept = np.zeros_like(values)
    kept[first:after] = values[first:after]
    return kept


def _centre(
    numbers: dict[str, Array], draft: _Draft, outputs: int, facts: Facts, main: int
) -> bool:
    """Put the intercept's prior among the numbers; whether it is that of a row of averages.

    With more than 2000 parameters only diagonals of the prior's Hessian are kept: then the
    intercept's prior is independent of the others, as wide as it would have been.
    """
    prior, means = draft.intercept, _only(facts.columns.mean, 0, main)
    assert isinstance(prior, Normal | StudentT)
    location = prior.mean if isinstance(prior, Normal) else prior.loc
    scale = prior.sd if isinstance(prior, Normal) else prior.scale
    numbers["intercept_mean"] = np.asarray(
        location if draft.middle is None else draft.middle, float
    )
    numbers["intercept_precision"] = np.asarray(1.0 / scale**2)
    if isinstance(prior, StudentT):
        numbers["intercept_df"] = np.asarray(float(prior.df))
    if (means.size + 1) * outputs <= FULL_LIMIT:
        numbers["column_means"] = means
        return True
    unit = draft.unit if draft.unit.ndim == 1 else draft.unit.max(axis=1)
    spread = np.divide(means**2, unit, out=np.zeros_like(means), where=unit > 0)
    numbers["intercept_precision"] = np.asarray(1.0 / (scale**2 + np.sum(spread)))
    return False


def checked_precision(what: str, value: ArrayLike, columns: int | None, outputs: int) -> np.ndarray:
    """Precisions that fit the coefficients: one, one per column, or one per column and class."""
    precision = as_numbers(what, value)
    if precision.ndim == 1 and precision.size == columns and outputs > 1:
        precision = np.repeat(precision[:, None], outputs, axis=1)
    shapes = {(), (columns,), (columns, outputs)} if outputs > 1 else {(), (columns,)}
    if precision.shape not in shapes:
        raise InputError(
            f"{what} must be one number or one per column ({columns}); it has shape"
            f" {precision.shape}"
        )
    if not np.all(np.isfinite(precision)) or np.any(precision < 0):
        raise InputError(f"{what} must be finite and not negative; got {np.min(precision)}")
    # one zero for all: the flat prior has no shape
    return precision if np.any(precision) else np.zeros(())


def described(
    log_prior: object,
    hyperparameters: Mapping[str, Array],
    names: tuple[str, ...],
    intercept: bool,
    auxiliaries: tuple[Auxiliary, ...],
) -> dict[str, str]:
    """The prior of every column, of the intercept and of the auxiliary parameters, in words."""
    precision = np.asarray(hyperparameters["prior_precision"], dtype=float)
    unit = np.asarray(hyperparameters.get("precision_unit", 1.0))
    precision = _per_column(precision, len(names)) * _per_column(unit, len(names))
    mean = _per_column(np.asarray(hyperparameters.get("prior_mean", 0.0)), len(names))
    df = _per_column(np.asarray(hyperparameters.get("prior_df", 0.0)), len(names))
    found = {
        name: _named(*numbers) for name, *numbers in zip(names, precision, mean, df, strict=True)
    }
    given = log_prior if isinstance(log_prior, RegressionPrior) else None
    if intercept:
        level = np.asarray(hyperparameters.get("intercept_mean", 0.0))
        df_level = float(hyperparameters.get("intercept_df", 0.0))
        said = _named(hyperparameters["intercept_precision"], np.mean(level), df_level)
        if level.ndim:
            said = said.replace("(0", "(class's own", 1)
        at_average = given is not None and given.centred
        found["intercept"] = f"{said} where columns are average" if at_average else said
    kinds = dict(given.auxiliary) if given else {}
    for auxiliary in auxiliaries:
        kind: Any = kinds.get(auxiliary, Flat)
        numbers = hyperparameters.get(f"{auxiliary.word}_prior", np.zeros(0))
        found[auxiliary.word] = words(kind(*map(float, numbers)))
        if f"{auxiliary.word}_means" in hyperparameters:
            found[auxiliary.word] += " where columns are average"
    return found


def _per_column(values: Array, columns: int) -> Array:
    """One number per column; the largest precision where the classes of a column differ."""
    return np.broadcast_to(values.max(axis=1) if values.ndim == 2 else values, (columns,))


def _named(precision: ArrayLike, mean: ArrayLike, df: ArrayLike) -> str:
    if not np.asarray(precision) > 0:
        return words(Flat())
    scale = float(np.asarray(precision)) ** -0.5
    if np.asarray(df) > 0:
        return words(StudentT(float(np.asarray(df)), float(np.asarray(mean)), scale))
    return words(Normal(float(np.asarray(mean)), scale))
