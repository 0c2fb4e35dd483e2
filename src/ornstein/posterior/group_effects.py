"""The effects of groups after the fit: draws from p(b | θ, y) for draws of θ, and predictions for
groups that are known, new or average.

With a gaussian response b given θ is a normal. Otherwise it is drawn by resampling: `PROPOSALS`
points from a normal around the mode, a little wider than the curvature there says, one of which is
taken with the probability that its importance weight gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from ornstein.checks import is_whole, printable, require_memory
from ornstein.compute.compiled import compiled
from ornstein.compute.precision import double
from ornstein.errors import InputError
from ornstein.model import tables
from ornstein.model.mixed.gaussian import GaussianMarginal, posterior_effects
from ornstein.model.mixed.model import MixedModel
from ornstein.model.mixed.predict import MixedPredict
from ornstein.model.mixed.predictor import effect_columns, fixed_part, rows_that_count
from ornstein.model.mixed.quadrature import Joint, QuadratureMarginal
from ornstein.model.mixed.small import backward, cholesky
from ornstein.model.model import Model
from ornstein.model.parameters import Layout
from ornstein.streams import Purpose, stream
from ornstein.types import Array, PyTree, Traced

if TYPE_CHECKING:
    import pandas

PROPOSALS, WIDER = 48, 1.15
NUMBERS = 2**22  # random numbers held at a time


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
    """Effects of these groups (None: all) at some draws of the posterior."""
    model = _mixed(source)
    if name is not None and name != model.group_name:
        raise InputError(f"the groups of this model are {model.group_name!r}, not {name!r}")
    places = np.arange(model.n_data) if groups is None else _places(model, groups)
    thetas = _some(source.draws, draws, seed)
    effects = len(model.covariance.effects)
    require_memory("an array of effects", len(thetas), len(places), effects)
    drawn = drawn_effects(model, thetas, places, seed)
    factors = model.covariance.matrix(model.layout.unflatten(thetas)["factor"])
    deviations = np.sqrt(np.sum(factors**2, axis=-1))
    if groups is None:  # in the order of the labels, not of the groups' sizes
        order = np.argsort(model.levels, kind="stable")
        drawn, places = drawn[:, order], places[order]
    return GroupEffects(drawn, model.levels[places], model.covariance.effects, deviations)


def predicted(source: Source, inputs: Any, groups: str, seed: int) -> Array:
    """E[y | x, b, θ] at all draws for new rows, (draws, rows, …)."""
    function, thetas = source.predict, source.draws
    if not isinstance(function, MixedPredict):
        raise InputError("only a mixed model (orn.glmm) predicts for groups")
    if groups not in ("known", "new", "average"):
        raise InputError(f"groups must be 'known', 'new' or 'average'; got {groups!r}")
    x, z, labels = _new_rows(inputs, function)
    params = source.layout.unflatten(thetas)
    effects = np.zeros((len(thetas), len(x), len(function.covariance.effects)))
    if groups == "known":
        if labels is None:
            raise InputError(
                "groups='known' needs to know which: give a dict with 'X', 'groups' and, where the"
                " model has Z, 'Z'"
            )
        model = _mixed(source)
        known, codes = np.unique(labels, return_inverse=True)
        effects = drawn_effects(model, thetas, _places(model, known), seed)[:, codes]
    elif groups == "new":
        codes = np.arange(len(x)) if labels is None else np.unique(labels, return_inverse=True)[1]
        normals = stream(seed, Purpose.EFFECTS, 0).standard_normal(
            (len(thetas), codes.max() + 1, effects.shape[-1])
        )
        factors = function.covariance.matrix(params["factor"])
        effects = np.einsum("mij,mgj->mgi", factors, normals)[:, codes]
    with double():
        fixed = np.stack(
            [np.asarray(function.fixed_part(_one(params, m), x)) for m in range(len(thetas))]
        )
        predictor = fixed + np.einsum("mrq,rq->mr", effects, z)
        return np.stack(
            [
                np.asarray(function.mean(jnp.asarray(u), _one(params, m)))
                for m, u in enumerate(predictor)
            ]
        )


def _one(params: PyTree, place: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[place], params)


def _new_rows(inputs: Any, function: MixedPredict) -> tuple[Array, Array, Array | None]:
    """X, Z (ones for a random intercept) and labels, None where there are none."""
    given = inputs if isinstance(inputs, dict) else {"X": inputs}
    if "X" not in given or set(given) - {"X", "Z", "groups"}:
        raise InputError("give the rows to predict as X, or as a dict with 'X', 'groups' and 'Z'")
    x = np.asarray(tables.features(given["X"])[0], dtype=float)
    effects = len(function.covariance.effects)
    if "Z" in given:
        z = np.asarray(tables.features(given["Z"])[0], dtype=float)
    else:
        z = np.ones((len(x), 1))
    if z.shape != (len(x), effects):
        raise InputError(f"predict needs Z of shape {(len(x), effects)}; it has {z.shape}")
    labels = np.asarray(given["groups"]) if "groups" in given else None
    if labels is not None and labels.shape != (len(x),):
        raise InputError(f"X has {len(x)} rows but groups has shape {labels.shape}")
    return x, z, labels


def drawn_effects(model: MixedModel, thetas: Array, places: Array, seed: int) -> Array:
    """b of the groups at `places`, one for each θ, (M, groups, effects)."""
    generator = stream(seed, Purpose.EFFECTS, 1)
    effects = len(model.covariance.effects)
    gaussian = isinstance(model.marginal, GaussianMarginal)
    needed = effects if gaussian else PROPOSALS * (effects + 1)
    found = np.empty((len(thetas), len(places), effects))
    length = np.array([model.buckets.length_of(place) for place in places])
    with double():
        params = jax.tree.map(jnp.asarray, model.layout.unflatten(thetas))
        for bucket in np.unique(length):
            here = np.flatnonzero(length == bucket)
            some = max(1, NUMBERS // max(needed * len(thetas), int(bucket) * needed))
            for start in range(0, len(here), some):
                part = here[start : start + some]
                chunk = jax.tree.map(lambda leaf, part=part: leaf[places[part]], model.data)
                normals = generator.standard_normal((len(thetas), len(part), needed))
                drawn = _drawn(model.marginal, params, chunk, normals)
                found[:, part] = np.asarray(drawn)
    return found


@compiled
def _drawn(
    marginal: GaussianMarginal | QuadratureMarginal, params: PyTree, groups: PyTree, normals: Traced
) -> Traced:
    def one(theta: PyTree, group: PyTree, number: Traced) -> Traced:
        if isinstance(marginal, GaussianMarginal):
            return _gaussian(marginal, theta, group, number)
        return _resampled(marginal, theta, group, number)

    def of_draw(given: tuple[PyTree, Traced]) -> Traced:
        theta, numbers = given
        return jax.vmap(lambda group, number: one(theta, group, number))(groups, numbers)

    return jax.lax.map(of_draw, (params, normals))


def _gaussian(marginal: GaussianMarginal, params: PyTree, group: PyTree, normals: Traced) -> Traced:
    """L(ẑ + C⁻ᵀε)."""
    counts, scale = rows_that_count(group), jnp.exp(params["log_scale"])
    residual = jnp.where(counts, (group["y"] - fixed_part(params, group)) / scale, 0.0)
    columns = [
        jnp.where(counts, column / scale, 0.0)
        for column in effect_columns(marginal.covariance, params, group)
    ]
    mode, factor = posterior_effects(columns, residual)
    moved = backward(factor, [normals[i] for i in range(len(mode))])
    z = [entry + move for entry, move in zip(mode, moved, strict=True)]
    return _in_units(marginal, params, z)


def _resampled(
    marginal: QuadratureMarginal, params: PyTree, group: PyTree, normals: Traced
) -> Traced:
    joint = Joint.of(marginal, params, group)
    mode = joint.mode()
    factor = cholesky(joint.slopes(mode)[1])
    moves = normals[: PROPOSALS * len(mode)].reshape(PROPOSALS, len(mode))

    def proposal(move: Traced) -> tuple[Traced, Traced]:
        away = backward(factor, [WIDER * move[i] for i in range(len(mode))])
        z = [entry + step for entry, step in zip(mode, away, strict=True)]
        return jnp.stack(z), joint.value(z) + 0.5 * jnp.sum(move**2)

    points, log_weights = jax.vmap(proposal)(moves)
    # the largest of log weights plus Gumbel numbers is a draw by weight
    uniform = jax.scipy.stats.norm.cdf(normals[PROPOSALS * len(mode) :])
    chosen = points[jnp.argmax(log_weights - jnp.log(-jnp.log(uniform)))]
    return _in_units(marginal, params, [chosen[i] for i in range(len(mode))])


def _in_units(
    marginal: GaussianMarginal | QuadratureMarginal, params: PyTree, z: list[Traced]
) -> Traced:
    """b = Lz."""
    factor = marginal.covariance.factor(params["factor"])
    rows = [sum((row[j] * z[j] for j in range(1, len(row))), row[0] * z[0]) for row in factor]
    return jnp.stack(rows)


def _mixed(source: Source) -> MixedModel:
    if isinstance(source.model, MixedModel):
        return source.model
    if isinstance(source.predict, MixedPredict):
        raise InputError(
            "the effects of groups need the data, which a saved file does not hold: set the model,"
            " dataclasses.replace(posterior, model=orn.glmm(…))"
        )
    raise InputError("only a mixed model (orn.glmm) has effects of groups")


def _places(model: MixedModel, groups: ArrayLike) -> Array:
    """Where the groups with these labels are among the examples."""
    wanted = np.atleast_1d(np.asarray(groups))
    order = np.argsort(model.levels, kind="stable")
    ordered = model.levels[order]
    try:
        found = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
        unknown = ordered[found] != wanted
    except TypeError:
        raise InputError("the labels asked for are of another kind than the model's") from None
    if np.any(unknown):
        raise InputError(
            f"the data hold no group {printable(wanted[int(np.argmax(unknown))])!r}; for groups"
            " not seen use groups='new' or 'average'"
        )
    return order[found]


def _some(flat: Array, draws: int, seed: int) -> Array:
    if not is_whole(draws) or draws < 1:
        raise InputError(f"draws must be a whole number, 1 or more; got {draws!r}")
    if not len(flat):
        raise InputError("there are no draws: only their moments were kept (keep='moments')")
    if draws >= len(flat):
        return flat
    return flat[stream(seed, Purpose.EFFECTS, 2).choice(len(flat), int(draws), replace=False)]
