"""Hamiltonian Monte Carlo with gradients of all data, in the coordinates of a Gaussian that is
known to be near the posterior.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from ornstein.baselines.common import checked_numbers, delivered
from ornstein.baselines.gaussian_vi import gaussian_vi
from ornstein.checks import is_number, require_memory
from ornstein.compute.one_thread import one_thread
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.row_averages import RowAverages
from ornstein.curvature.row_density import RowDensity
from ornstein.curvature.wide import HeadCoordinates, WideGaussian, around, from_rows, pace
from ornstein.engine.lockstep import States, Target, move, tuned
from ornstein.errors import ConvergenceWarning, CurvatureError, InputError
from ornstein.model.model import Model
from ornstein.model.required import require_model
from ornstein.posterior.posterior import Posterior
from ornstein.posterior.working import in_working_coordinates
from ornstein.streams import Purpose, stream
from ornstein.theory import Gaussian
from ornstein.types import Array
from ornstein.verdict.coordinates import Coordinates
from ornstein.verdict.density import Density

Guess: TypeAlias = Gaussian | Posterior | WideGaussian | None
MOST_KICKS, PILOT = 256, 6  # per trajectory, and trajectories with each number of kicks tried
# During warm-up one trajectory in EVERY takes SMALLER_STEPS times smaller steps: it frees chains
# whose start was in a tail, where the density falls faster than the Gaussian's.
EVERY, SMALLER_STEPS = 4, 4
# Shares of trajectories: accepted on average, and by a chain that is not stuck.
USUAL_ACCEPTED, LEAST_ACCEPTED = 0.5, 0.02


@one_thread()
def hmc(
    model: Model,
    gaussian: Gaussian | Posterior | WideGaussian | None = None,
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

    Regressions with more than 2000 parameters take the precision of Gaussian VI from the rows:
    where these are sparse, whole for the 2000 heaviest parameters and its diagonal for the others.
    Trajectories are then longer, as the slowest direction needs (`settings["quarters"]` quarter
    periods).

    `settings` holds `kicks` (gradients per draw), `accepted` (mean chance of acceptance),
    `least_accepted` (that of the worst chain) and `passes`, where a gradient of one chain is one
    pass.

    Args:
        model: what is inferred.
        gaussian: a Gaussian near the posterior (of more than 2000 parameters, a WideGaussian), or a
            Posterior whose mean and covariance are taken. It sets speed, never the law. None is
            `orn.gaussian_vi(model)`.
        draws, chains, warmup: draws kept, and trajectories thrown away before them, per chain.
        kicks: gradients per trajectory; None finds the number.
        target_accept: share of trajectories to be accepted in the pilot.
        seed: same seed, same draws.

    >>> import numpy as np
    >>> from ornstein.model.regression import glm
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> post = hmc(glm(X, X[:, 0] > 0, "bernoulli", 1.0, intercept=False), draws=50, chains=40)
    >>> post.settings["kicks"], bool(post.settings["accepted"] > 0.7)
    (1, True)
    """
    require_model(model)
    checked_numbers(draws=draws, chains=chains)
    checked_numbers(0, warmup=warmup, seed=seed)
    if kicks is not None:
        checked_numbers(kicks=kicks)
    if not is_number(target_accept) or not 0.0 < target_accept < 1.0:
        raise InputError(f"target_accept must lie between 0 and 1; got {target_accept!r}")
    require_memory("an array of draws", chains, draws, model.dim)
    _require_fitting(model, gaussian)
    given = Settings(draws, chains, warmup, kicks, target_accept, seed)

    def run(worked: Model, _: Curvature | None, start: Array | None) -> Posterior:
        return _hmc(worked, _in_working(model, gaussian), given)

    return in_working_coordinates(model, None, None, run)


@dataclass(frozen=True)
class Settings:
    """What was asked for."""

    draws: int
    chains: int
    warmup: int
    kicks: int | None
    target_accept: float
    seed: int


def _hmc(model: Model, gaussian: Guess, given: Settings) -> Posterior:
    started, kicks = time.perf_counter(), given.kicks
    guide, generator = _guide(model, gaussian, given.chains), stream(given.seed, Purpose.HMC)
    density = Density(model) if guide.averages is None else RowDensity(guide.averages)
    target = _target(density, guide.coordinates)
    states = States.at(target, guide.starts(generator))
    if not np.any(np.isfinite(states.energy)):
        raise CurvatureError(
            "the density is zero or not finite at every draw of the Gaussian: give another one"
        )
    step = partial(move, target, generator=generator, quarters=guide.quarters)
    if kicks is None:
        states, kicks, _ = tuned(
            target,
            states,
            given.target_accept,
            MOST_KICKS,
            PILOT,
            generator,
            guide.quarters,
            guide.fewest_kicks,
        )
    for number in range(given.warmup):
        states, _ = step(states, (SMALLER_STEPS if number % EVERY == 0 else 1) * kicks)
    values = np.empty((given.chains, given.draws, model.dim))
    chances = np.zeros(given.chains)
    for number in range(given.draws):
        states, chance = step(states, kicks)
        values[:, number] = guide.coordinates.theta(states.z)
        chances += chance / given.draws
    _warn(chances)
    return delivered(
        model,
        "hmc",
        values,
        started,
        guide.passes + density.passes,
        curvature=guide.curvature,
        seed=int(given.seed),
        warmup=int(given.warmup),
        kicks=int(kicks),
        quarters=guide.quarters,
        accepted=float(chances.mean()),
        least_accepted=float(chances.min()),
    )


def _require_fitting(model: Model, gaussian: object) -> None:
    if gaussian is not None and not isinstance(gaussian, Gaussian | Posterior | WideGaussian):
        raise InputError(
            f"gaussian must be a Gaussian, a Posterior or None; got a {type(gaussian).__name__}"
        )
    if gaussian is not None and np.size(gaussian.mean) != model.dim:
        raise InputError(
            f"the Gaussian has {np.size(gaussian.mean)} parameters, the model {model.dim}"
        )


def _in_working(model: Model, gaussian: Guess) -> Guess:
    """What was given, in the coordinates of the run."""
    if gaussian is None or isinstance(gaussian, WideGaussian) or model.worked is None:
        return gaussian
    if isinstance(gaussian, Posterior) and gaussian.ran is not None:
        return gaussian.ran
    coordinates = model.worked.coordinates
    covariance = coordinates.working_covariance(gaussian.covariance)
    return Gaussian(coordinates.working(gaussian.mean), covariance)


@dataclass(frozen=True, eq=False)
class Guide:
    """Coordinates in which the posterior is about a standard normal, draws of it in them, and the
    quarter turns that its slowest direction takes.
    """

    coordinates: Coordinates | HeadCoordinates
    starts: Callable[[np.random.Generator], Array]
    passes: float = 0.0
    quarters: float = 1.0
    fewest_kicks: int = 1  # that are worth a trial
    curvature: Curvature | None = None
    averages: RowAverages | None = None  # of a wide regression


def _guide(model: Model, gaussian: Guess, chains: int) -> Guide:
    if isinstance(gaussian, WideGaussian):
        return _wide_guide(gaussian, chains)
    if from_rows(model) and not isinstance(gaussian, Gaussian):
        given = (None, None) if gaussian is None else (gaussian.mean, _flat(gaussian))
        return _wide_guide(around(model, *given), chains)
    spent = 0.0
    if gaussian is None:
        gaussian = gaussian_vi(model, draws=1, chains=1)
        spent = gaussian.settings["passes"]
    curvature = gaussian.curvature if isinstance(gaussian, Posterior) else None
    return Guide(
        Coordinates.of(gaussian.mean, gaussian.covariance),
        lambda generator: generator.standard_normal((chains, model.dim)),
        spent,
        curvature=curvature,
    )


def _flat(posterior: Posterior) -> Array:
    return posterior.draws.reshape(-1, posterior.mean.size)


def _wide_guide(found: WideGaussian, chains: int) -> Guide:
    """The metric of the heaviest parameters, diagonal for the others: its factor is exact, so that
    momenta are what they should be.
    """
    coordinates = HeadCoordinates(found.mean, found.head)
    quarters, few = pace(found)

    def starts(generator: np.random.Generator) -> Array:
        deviations, _ = found.deviations(chains, generator)
        return found.head.inverse_root(deviations.T)

    return Guide(coordinates, starts, found.passes, quarters, few, averages=found.averages)


def _target(density: Density | RowDensity, coordinates: Coordinates | HeadCoordinates) -> Target:
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
            stacklevel=6,
        )
