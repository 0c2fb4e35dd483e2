"""Hamiltonian Monte Carlo with gradients of all data, in the coordinates of a Gaussian that is
known to be near the posterior.
"""

from __future__ import annotations

import time
import warnings

import numpy as np

from ornstein.baselines.common import checked_numbers, delivered
from ornstein.baselines.gaussian_vi import gaussian_vi
from ornstein.checks import is_number, require_memory
from ornstein.compute.one_thread import one_thread
from ornstein.curvature.curvature import Curvature
from ornstein.engine.lockstep import States, Target, move, tuned
from ornstein.errors import ConvergenceWarning, CurvatureError, InputError
from ornstein.model.model import Model
from ornstein.posterior.posterior import Posterior
from ornstein.streams import Purpose, stream
from ornstein.theory import Gaussian
from ornstein.types import Array
from ornstein.verdict.coordinates import Coordinates
from ornstein.verdict.density import Density

MOST_KICKS, PILOT = 64, 6  # per trajectory, and trajectories with each number of kicks tried
# During warm-up one trajectory in so many takes so many times smaller steps: it frees chains whose
# start was in a tail, where the density falls faster than the Gaussian's.
EVERY, SMALLER_STEPS = 4, 4
# Shares of trajectories: accepted on average, and by a chain that is not stuck.
USUAL_ACCEPTED, LEAST_ACCEPTED = 0.5, 0.02


@one_thread()
def hmc(
    model: Model,
    gaussian: Gaussian | Posterior | None = None,
    *,
    draws: int = 1000,
    chains: int = 4,
    warmup: int = 20,
    kicks: int | None = None,
    target_accept: float = 0.8,
    seed: int = 0,
) -> Posterior:
    """Draws from the posterior itself, by trajectories that are exact where it is `gaussian`.

    All chains move at once, so a gradient of all of them is a few matrix products with all rows:
    more chains with fewer draws each cost less. Chains start at draws of the Gaussian. Every draw
    is the end of one trajectory of about a quarter period, Metropolis-corrected on all rows.
    Its number of gradients is the least that `target_accept` allows, found in a pilot and then
    fixed.

    `settings` holds `kicks` (gradients per draw), `accepted` (mean chance of acceptance),
    `least_accepted` (that of the worst chain) and `passes`, where a gradient of one chain is one
    pass.

    Args:
        model: what is inferred.
        gaussian: a Gaussian near the posterior, or a Posterior whose mean and covariance are taken.
            It sets speed, never the law. None is `orn.gaussian_vi(model)`.
        draws, chains, warmup: draws kept, and trajectories thrown away before them, per chain.
        kicks: gradients per trajectory; None finds the number.
        target_accept: share of trajectories to be accepted in the pilot.
        seed: same seed, same draws.

    >>> import numpy as np
    >>> from ornstein.model.regression import glm
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> post = hmc(glm(X, X[:, 0] > 0, "bernoulli", intercept=False), draws=50, chains=40)
    >>> post.settings["kicks"], bool(post.settings["accepted"] > 0.7)
    (1, True)
    """
    started = time.perf_counter()
    checked_numbers(draws=draws, chains=chains)
    checked_numbers(0, warmup=warmup, seed=seed)
    if kicks is not None:
        checked_numbers(kicks=kicks)
    if not is_number(target_accept) or not 0.0 < target_accept < 1.0:
        raise InputError(f"target_accept must lie between 0 and 1; got {target_accept!r}")
    require_memory("an array of draws", chains, draws, model.dim)
    near, spent, curvature = _near(model, gaussian)
    density, generator = Density(model), stream(seed, Purpose.HMC)
    coordinates = Coordinates.of(near.mean, near.covariance)
    target = _target(density, coordinates)
    states = States.at(target, generator.standard_normal((chains, model.dim)))
    if not np.any(np.isfinite(states.energy)):
        raise CurvatureError(
            "the density is zero or not finite at every draw of the Gaussian: give another one"
        )
    if kicks is None:
        states, kicks, _ = tuned(target, states, target_accept, MOST_KICKS, PILOT, generator)
    for number in range(warmup):
        longer = SMALLER_STEPS if number % EVERY == 0 else 1
        states, _ = move(target, states, longer * kicks, generator)
    values, chances = np.empty((chains, draws, model.dim)), np.zeros(chains)
    for number in range(draws):
        states, chance = move(target, states, kicks, generator)
        values[:, number] = coordinates.theta(states.z)
        chances += chance / draws
    _warn(chances)
    return delivered(
        model,
        "hmc",
        values,
        started,
        spent + density.passes,
        curvature=curvature,
        seed=int(seed),
        warmup=int(warmup),
        kicks=int(kicks),
        accepted=float(chances.mean()),
        least_accepted=float(chances.min()),
    )


def _near(
    model: Model, gaussian: Gaussian | Posterior | None
) -> tuple[Gaussian, float, Curvature | None]:
    """The Gaussian, the passes over the data that finding it took and the curvature it came
    with.
    """
    spent = 0.0
    if gaussian is None:
        gaussian = gaussian_vi(model, draws=1, chains=1)
        spent = gaussian.settings["passes"]
    if not isinstance(gaussian, Gaussian | Posterior):
        raise InputError(
            f"gaussian must be a Gaussian, a Posterior or None; got a {type(gaussian).__name__}"
        )
    near = Gaussian(gaussian.mean, gaussian.covariance)
    if near.mean.size != model.dim:
        raise InputError(f"the Gaussian has {near.mean.size} parameters, the model {model.dim}")
    return near, spent, gaussian.curvature if isinstance(gaussian, Posterior) else None


def _target(density: Density, coordinates: Coordinates) -> Target:
    """U and its gradient in the coordinates in which the Gaussian is a standard normal."""

    def energy_and_slope(z: Array) -> tuple[Array, Array]:
        values, slopes = density.values_and_gradients(coordinates.theta(z))
        return values, coordinates.gradient(slopes)

    return energy_and_slope


def _warn(chances: Array) -> None:
    if chances.mean() < USUAL_ACCEPTED or chances.min() < LEAST_ACCEPTED:
        warnings.warn(
            f"HMC accepted {chances.mean():.0%} of its trajectories on average and"
            f" {chances.min():.0%} in the worst chain (wanted: at least {USUAL_ACCEPTED:.0%} and"
            f" {LEAST_ACCEPTED:.0%}): the Gaussian is far from the posterior. Give more kicks, or"
            " use orn.nuts(model)",
            ConvergenceWarning,
            stacklevel=4,
        )
