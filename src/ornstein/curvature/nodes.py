"""A mixed model made ready: its mode, where each group's nodes lie, and how many there are.

The number of nodes is the smallest that is exact enough: at the mode and three posterior standard
deviations to both sides of it in each parameter, the errors of all groups add up to less than
`TOLERATED`. It is fixed then, so that all draws are of one posterior.
"""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from ornstein.compute.compiled import compiled
from ornstein.compute.precision import double
from ornstein.curvature.autodiff import padded_chunks
from ornstein.curvature.derivatives import derivatives_of
from ornstein.curvature.mode import find_mode
from ornstein.errors import ApproximationWarning, CurvatureError
from ornstein.model.mixed.model import MixedModel
from ornstein.model.mixed.quadrature import QuadratureMarginal
from ornstein.model.mixed.several import SeveralMarginal
from ornstein.types import Array, PyTree, Traced

TOLERATED = 0.01  # nats, summed over groups
DEVIATIONS = 3.0
# Nodes in each dimension to choose from, by the number of effects, and those taken as exact.
CHOICES = {1: (9, 15, 25), 2: (5, 9, 15)}
EXACT = {1: 37, 2: 19}
LOOKED_AT = 20_000  # groups; where there are more, these stand for all


def settled(model: MixedModel, points: int | None) -> MixedModel:
    """The model with its mode as the start, and for a family without a closed form as many nodes as
    are needed; `points` of them where that is given.
    """
    mode, covariance = _mode(model)
    model = model.replace(init=mode)
    if isinstance(model.marginal, SeveralMarginal) and model.family != "gaussian":
        names = " and ".join(model.factors)
        _warn(f"the effects of {names} are")
    if not isinstance(model.marginal, QuadratureMarginal):
        return model
    effects = len(model.covariance.effects)
    if effects not in EXACT:
        _warn(f"the {effects} effects of a group are")
        return model
    sd, used = np.sqrt(np.diagonal(covariance)), model.marginal.points
    error = _error(model, mode, sd)
    while error > TOLERATED and points is None:
        more = [n for n in CHOICES[effects] if n > used]
        if not more:
            break
        used = more[0]
        model = model.with_points(used)
        error = _error(model, mode, sd)
    if error > TOLERATED:
        warnings.warn(
            f"with {used} nodes in each dimension the log likelihood is off by"
            f" {error:.2g} nats over all groups (wanted: {TOLERATED}): some groups say"
            f" little about widely spread effects. {_remedy(points, effects)}",
            ApproximationWarning,
            stacklevel=3,
        )
    return model.replace(quadrature_error=error)


def _warn(effects: str) -> None:
    warnings.warn(
        f"{effects} integrated out by Laplace's approximation, whose error is not measured: it is"
        " small where groups have many rows",
        ApproximationWarning,
        stacklevel=4,
    )


def _remedy(points: int | None, effects: int) -> str:
    if points is not None and points < CHOICES[effects][-1]:
        return f"Take more points (up to {CHOICES[effects][-1]}), or points='auto'"
    return "Narrower priors on the effects' standard deviations (effect_scale) reduce it"


def _mode(model: MixedModel) -> tuple[Array, Array]:
    """The mode and the covariance there, or a sentence on which component runs to zero."""
    derivatives = derivatives_of(model)
    try:
        mode = find_mode(model, derivatives, derivatives.hessian)
    except CurvatureError:
        _require_components(model)
        raise
    model.require_mode(mode)
    hessian = derivatives.hessian(mode) + model.scaled_prior_hessian(mode)
    return mode, np.linalg.pinv(hessian, hermitian=True) / model.n_data


def _require_components(model: MixedModel) -> None:
    """Refuse, where the search for the mode failed, a component without which the fit is as
    good.
    """
    derivatives = derivatives_of(model)

    def loss(theta: Array) -> tuple[float, Array]:
        value, slope = derivatives.value_and_gradient(theta)
        prior, prior_slope = model.scaled_prior(theta)
        return value + prior, slope + prior_slope

    found = scipy.optimize.minimize(
        loss, model.first, jac=True, method="L-BFGS-B", options={"maxiter": 100}
    )
    for place, far in model.edges(found.x):
        without = found.x.copy()
        without[place] = far
        if loss(without)[0] <= found.fun + 1e-4 / model.n_data:
            model.require_components(without)


def _error(model: MixedModel, mode: Array, sd: Array) -> float:
    """The largest of the errors at all places, in nats over all groups."""
    assert isinstance(model.marginal, QuadratureMarginal)
    exact = model.marginal.with_points(EXACT[len(model.covariance.effects)])
    moves = np.concatenate([np.diag(sd), -np.diag(sd)]) * DEVIATIONS
    places = np.concatenate([mode[None], mode + moves])
    total = np.zeros(len(places))
    share = max(1, -(-model.n_data // LOOKED_AT))
    with double():
        for chunk, mask in padded_chunks(model, share * 2**18 // model.dim):
            some = slice(0, -(-len(mask) // share))
            chunk = jax.tree.map(lambda leaf, some=some: leaf[some], chunk)
            for place, theta in enumerate(places):
                params = jax.tree.map(jnp.asarray, model.layout.unflatten(theta))
                off = np.abs(np.asarray(_differences((model.marginal, exact), params, chunk)))
                total[place] += mask[some] @ off * mask.sum() / mask[some].sum()
    return float(total.max())


@compiled
def _differences(
    rules: tuple[QuadratureMarginal, QuadratureMarginal], params: PyTree, groups: PyTree
) -> Traced:
    """log p of each group by one rule less that by another."""

    def of_group(group: PyTree) -> Traced:
        first, second = (rule(params, group, None) for rule in rules)
        return first - second

    return jax.vmap(of_group)(groups)
