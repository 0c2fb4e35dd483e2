"""The effects of groups after the fit, and predictions for known, new and average groups."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ornstein.checks import is_whole, printable, require_memory
from ornstein.errors import InputError, PredictionWarning
from ornstein.model.mixed.model import MixedModel
from ornstein.model.mixed.predict import MixedPredict
from ornstein.model.mixed.several_model import SeveralModel
from ornstein.model.model import Model
from ornstein.model.parameters import Layout
from ornstein.posterior.drawn_effects import drawn_effects, effects_of_factors
from ornstein.posterior.groups_at_draws import Drawn, GroupsAtDraws
from ornstein.posterior.predictive import Placed, Predictive
from ornstein.streams import Purpose, stream
from ornstein.types import Array, Traced

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class Source:
    """What a posterior knows: draws (M, D), how they are laid out, the model where it is at hand,
    and what predicts.
    """

    draws: Array
    layout: Layout
    model: Model | None
    predict: Callable[..., Traced] | None


@dataclass(frozen=True, eq=False)
class GroupEffects:
    """Draws of the effects of some groups, (draws, groups, effects), with their labels."""

    draws: Array
    levels: Array
    effects: tuple[str, ...]
    deviations: Array  # of the effects among groups, (draws, effects)

    def summary(self, probability: float = 0.95) -> pandas.DataFrame:
        """Mean, sd, central interval and shrinkage, a row per group and effect."""
        import pandas

        tail = (1.0 - probability) / 2.0
        low, high = np.quantile(self.draws, [tail, 1.0 - tail], axis=0)
        columns = {
            "mean": self.mean,
            "sd": self.draws.std(axis=0, ddof=1),
            f"{100 * tail:g}%": low,
            f"{100 * (1.0 - tail):g}%": high,
            "shrinkage": self.shrinkage,
        }
        index = pandas.MultiIndex.from_product(
            [list(self.levels), list(self.effects)], names=["group", "effect"]
        )
        return pandas.DataFrame({k: v.reshape(-1) for k, v in columns.items()}, index=index)

    @cached_property
    def mean(self) -> Array:
        return self.draws.mean(axis=0)

    @property
    def shrinkage(self) -> Array:
        """How far each effect is drawn towards zero: its variance over that among groups, 0 where
        the group's own rows decide and 1 where they say nothing.
        """
        return self.draws.var(axis=0, ddof=1) / np.mean(self.deviations**2, axis=0)

    def plot(self, effect: str | None = None, ax: Any = None) -> Any:
        """A caterpillar plot: groups in order of their effect, with 95 % intervals."""
        import matplotlib.pyplot as plt

        place = 0 if effect is None else self.effects.index(effect)
        axes = plt.subplots()[1] if ax is None else ax
        order = np.argsort(self.mean[:, place])
        low, high = np.quantile(self.draws[:, order, place], [0.025, 0.975], axis=0)
        heights = np.arange(len(order))
        axes.hlines(heights, low, high, linewidth=1.0)
        axes.plot(self.mean[order, place], heights, "o", markersize=3.0)
        axes.axvline(0.0, linewidth=0.5, color="black")
        axes.set_xlabel(self.effects[place])
        if len(order) <= 60:
            axes.set_yticks(heights, [str(label) for label in self.levels[order]])
        return axes


def group_effects(
    source: Source,
    name: str | None = None,
    groups: ArrayLike | None = None,
    draws: int = 400,
    seed: int = 0,
) -> GroupEffects:
    """Effects of these groups (None: all) of a factor at some draws of the posterior."""
    model = _mixed(source)
    factor = _factor(model, name)
    function, labels = _predict(model), _labels(model, factor)
    places = np.arange(len(labels)) if groups is None else _places(labels, groups)
    thetas = _some(source.draws, draws, seed)
    own = function.part(factor)
    require_memory("an array of effects", len(thetas), len(places), own.stop - own.start)
    drawn = _of_factor(model, factor, thetas, places, seed)
    factors = model.covariance.matrix(model.layout.unflatten(thetas)["factor"])[:, own]
    deviations = np.sqrt(np.sum(factors**2, axis=-1))
    if groups is None and not isinstance(model, SeveralModel):
        order = _in_order(labels)  # in the order of the labels, not of the groups' sizes
        drawn, places = drawn[:, order], places[order]
    return GroupEffects(drawn, labels[places], function.effect_names(factor), deviations)


def predicted(source: Source, inputs: Any, groups: str, seed: int) -> Predictive:
    """What is predicted for new rows at all draws."""
    function, thetas = source.predict, source.draws
    if not isinstance(function, MixedPredict):
        raise InputError("only a mixed model (orn.glmm, or a formula with (1 | g)) has groups")
    if groups not in ("known", "new", "average"):
        raise InputError(f"groups must be 'known', 'new' or 'average'; got {groups!r}")
    rows, complete = function.new_rows(inputs), None
    if rows.complete is not None and not np.all(rows.complete):
        warnings.warn(rows.said, PredictionWarning, stacklevel=4)
        complete = kept = rows.complete
        labels = tuple(None if part is None else part[kept] for part in rows.labels)
        offset = None if rows.offset is None else rows.offset[kept]
        rows = replace(rows, x=rows.x[kept], z=rows.z[kept], labels=labels, offset=offset)
    drawn: tuple[Drawn, ...] = ()
    if groups == "known":
        drawn = _known(source, function, rows.labels, seed)
    elif groups == "new":
        drawn = _new(source, function, rows.labels, len(rows.x), seed)
    found = GroupsAtDraws(function, source.layout, thetas, rows, drawn)
    return Predictive(found, Placed(complete))


def _known(
    source: Source, function: MixedPredict, labels: tuple[Array | None, ...], seed: int
) -> tuple[Drawn, ...]:
    """The effects of the groups that the rows belong to; those of all factors belong together."""
    given = []
    for name, part in zip(function.names, labels, strict=True):
        if part is None:
            raise InputError(
                f"groups='known' needs labels: the rows lack those of {name!r} (give a"
                " table with its columns, or a dict with 'X', 'groups' and, where the model has Z,"
                " 'Z')"
            )
        given.append(part)
    model = _mixed(source)
    if isinstance(model, SeveralModel):
        every = effects_of_factors(model, source.draws, seed)
        return tuple(
            Drawn(every[place], _places(_labels(model, place), part))
            for place, part in enumerate(given)
        )
    known, codes = np.unique(given[0], return_inverse=True)
    places = _places(model.levels, known)
    return (Drawn(drawn_effects(model, source.draws, places, seed), codes),)


def _new(
    source: Source,
    function: MixedPredict,
    labels: tuple[Array | None, ...],
    count: int,
    seed: int,
) -> tuple[Drawn, ...]:
    """Effects of groups not seen; rows with the same label are in one group."""
    params = source.layout.unflatten(source.draws)
    factors, found = function.covariance.matrix(params["factor"]), []
    for place, part in enumerate(labels):
        codes = np.arange(count) if part is None else np.unique(part, return_inverse=True)[1]
        own = function.part(place)
        shape = (len(source.draws), int(codes.max(initial=-1)) + 1, own.stop - own.start)
        require_memory("an array of effects", *shape)
        normals = stream(seed, Purpose.EFFECTS, 0, place).standard_normal(shape)
        effects = np.einsum("mij,mgj->mgi", factors[:, own, own], normals)
        found.append(Drawn(effects, codes))
    return tuple(found)


def _of_factor(model: MixedModel, factor: int, thetas: Array, places: Array, seed: int) -> Array:
    if isinstance(model, SeveralModel):
        return effects_of_factors(model, thetas, seed)[factor][:, places]
    return drawn_effects(model, thetas, places, seed)


def _factor(model: MixedModel, name: str | None) -> int:
    """The place of a factor by its name."""
    if name is None and len(model.factors) == 1:
        return 0
    if name not in model.factors:
        names = " and ".join(repr(printable(factor)) for factor in model.factors)
        asked = "name one of them" if name is None else f"not {printable(name)!r}"
        raise InputError(f"the groups of this model are {names}: {asked}")
    return model.factors.index(name)


def _labels(model: MixedModel, factor: int) -> Array:
    return model.groups[factor].labels if isinstance(model, SeveralModel) else model.levels


def _predict(model: MixedModel) -> MixedPredict:
    assert isinstance(model.predict, MixedPredict)
    return model.predict


def _mixed(source: Source) -> MixedModel:
    if isinstance(source.model, MixedModel):
        return source.model
    if isinstance(source.predict, MixedPredict):
        raise InputError(
            "the effects of groups need the data, which a saved file does not hold: give the model"
            " again, dataclasses.replace(posterior, model=orn.regress(…)), or for predictions"
            " predict(…, model=…)"
        )
    raise InputError("only a mixed model (orn.glmm, or a formula with (1 | g)) has groups")


def _in_order(labels: Array) -> Array:
    """Labels of texts in the order of the numbers that they are, if they are."""
    if labels.dtype.kind != "O":
        return np.argsort(labels, kind="stable")
    from ornstein.regression.columns import natural

    return np.array(sorted(range(len(labels)), key=lambda place: natural(str(labels[place]))))


def _places(labels: Array, groups: ArrayLike) -> Array:
    """Where the groups with these labels are among all."""
    wanted = np.atleast_1d(np.asarray(groups))
    if labels.dtype.kind == "O" and wanted.dtype.kind in "iuf":
        wanted = np.array([f"{label:g}" if label % 1 else str(int(label)) for label in wanted])
    if labels.dtype.kind == "O":
        known = {str(label): place for place, label in enumerate(labels)}
        found = np.array([known.get(str(label), -1) for label in wanted], dtype=np.int64)
        _require_none_unknown(found < 0, wanted)
        return found
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    try:
        places = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
        unknown = ordered[places] != wanted
    except TypeError:
        raise InputError("the labels asked for have another type than the model's") from None
    _require_none_unknown(unknown, wanted)
    return order[places]


def _require_none_unknown(unknown: Array, wanted: Array) -> None:
    if np.any(unknown):
        raise InputError(
            f"the data have no group {printable(wanted[int(np.argmax(unknown))])!r}; for"
            " unseen groups use groups='new' or 'average'"
        )


def _some(flat: Array, draws: int, seed: int) -> Array:
    if not is_whole(draws) or draws < 1:
        raise InputError(f"draws must be a whole number, 1 or more; got {draws!r}")
    if not len(flat):
        raise InputError("there are no draws: only their moments were kept (keep='moments')")
    if draws >= len(flat):
        return flat
    return flat[stream(seed, Purpose.EFFECTS, 2).choice(len(flat), int(draws), replace=False)]
