"""Draws of the effects of groups given the data and the parameters, p(b | θ, y).

With a gaussian response b given θ is a normal. With another response and one factor it is drawn by
resampling: `PROPOSALS` points from a normal around the mode, a little wider than the curvature
there says, one of which is taken with the probability that its importance weight gives it. With
several factors it is a normal around the mode.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.checks import require_memory
from ornstein.compute.compiled import compiled
from ornstein.compute.precision import double
from ornstein.model.mixed.gaussian import GaussianMarginal, posterior_effects
from ornstein.model.mixed.model import MixedModel
from ornstein.model.mixed.predictor import effect_columns, fixed_part, rows_that_count
from ornstein.model.mixed.quadrature import Joint, QuadratureMarginal
from ornstein.model.mixed.several import SeveralMarginal
from ornstein.model.mixed.several_model import SeveralModel
from ornstein.model.mixed.small import backward, cholesky
from ornstein.streams import Purpose, stream
from ornstein.types import Array, PyTree, Traced

PROPOSALS, WIDER = 48, 1.15
NUMBERS = 2**22  # random numbers held at a time


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


def effects_of_factors(model: SeveralModel, thetas: Array, seed: int) -> list[Array]:
    """b of all groups of each factor, one for each θ, (M, groups, effects); those of one draw
    belong together.
    """
    generator, grouping = stream(seed, Purpose.EFFECTS, 1), model.marginal.grouping
    found = []
    for groups, size in zip(model.groups, grouping.sizes, strict=True):
        require_memory("an array of effects", len(thetas), len(groups.labels), size)
        found.append(np.empty((len(thetas), len(groups.labels), size)))
    factors = model.covariance.matrix(model.layout.unflatten(thetas)["factor"])
    with double():
        params = jax.tree.map(jnp.asarray, model.layout.unflatten(thetas))
        for first, stop, _ in model.spans(NUMBERS // (len(thetas) * model.dim), 1):
            chunk = jax.tree.map(lambda leaf, a=first, b=stop: leaf[a:b], model.data)
            inner = model.marginal.inner_groups(chunk["x"].shape[1])
            count = inner * grouping.sizes[grouping.inner] + grouping.others
            normals = generator.standard_normal((len(thetas), stop - first, count))
            own, others = (
                np.asarray(part) for part in _drawn_together(model.marginal, params, chunk, normals)
            )
            for place, drawn in enumerate(found):
                part = model.groups[place].places[first:stop]
                which = part >= 0
                if place == grouping.inner:
                    z = own[:, :, : part.shape[1]]
                else:
                    start, size = grouping.start(place), grouping.sizes[place]
                    z = others[:, :, start : start + size * part.shape[1]]
                    z = z.reshape(*z.shape[:2], part.shape[1], size)
                effects = grouping.part(place)
                block = factors[:, effects.start : effects.stop, effects.start : effects.stop]
                drawn[:, part[which]] = np.einsum(
                    "mij,mgj->mgi", block, z[:, which[:, : z.shape[2]]]
                )
    return found


@compiled
def _drawn_together(
    marginal: SeveralMarginal, params: PyTree, examples: PyTree, normals: Traced
) -> tuple[Traced, Traced]:
    def of_draw(given: tuple[PyTree, Traced]) -> tuple[Traced, Traced]:
        theta, numbers = given
        return jax.vmap(lambda example, number: marginal.effects(theta, example, number))(
            examples, numbers
        )

    return jax.lax.map(of_draw, (params, normals))
