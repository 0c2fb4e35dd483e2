"""Draws of the posterior that are moved by a kernel which leaves it invariant are draws of the
posterior still; others change.

Some of the draws take Metropolis-corrected HMC trajectories on all rows, in coordinates where the
posterior is about a standard normal and a quarter of a period forgets the start. Trajectories have
random lengths: after half a period a wrong width would look as it did before. Where nearly all of
them leave the support, parameters are moved one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ornstein.types import Array
from ornstein.verdict.change import signed_ranks
from ornstein.verdict.coordinates import Coordinates
from ornstein.verdict.density import Density

QUARTER = np.pi / 2.0
LONGEST_STEP = 0.7
HALVINGS = 6
PILOTS = 16
ACCEPTED = 0.7  # of the pilots' trajectories
FEWEST, MOST = 64, 4000  # draws that are moved
LEAST_PASSES = 4  # for each of them, without which nothing is tried
# This number shows a shift along one direction that makes a KL of 0.1, at the bound of the tests.
DECISIVE = 128
# Trajectories of each draw: as many as are paid for, as are taken while the passes last, and while
# the energy changes by more than DRIFTING standard errors.
ROUNDS, USUAL_ROUNDS, MOST_ROUNDS, DRIFTING = 3, 5, 12, 3.0
SHORTEST_LENGTH = 0.5  # of a trajectory, as a share of the longest
# Single parameters are moved where fewer trajectories than this are accepted: by REACH sds given
# the others, SWEEPS times each.
FEWEST_ACCEPTED, REACH, SWEEPS = 0.3, 2.4, 4
# Of moves that can tell anything: the least share accepted, and the largest correlation between
# start and end.
LEAST_ACCEPTED, LARGEST_MEMORY = 0.1, 0.9


@dataclass(frozen=True, eq=False)
class Moved:
    """Draws before and after their trajectories, in coordinates z, with U at both."""

    before: Array
    after: Array
    energy_before: Array
    energy_after: Array
    accepted: float
    memory: float = 0.0  # of the start, where parameters moved one at a time
    drifting: bool = False  # whether the energy still changed in the end

    @property
    def stuck(self) -> bool:
        """Whether the draws are still about where they were."""
        return self.accepted < LEAST_ACCEPTED or self.memory > LARGEST_MEMORY


def move(
    density: Density,
    coordinates: Coordinates,
    z: Array,
    passes: int,
    passes_for_sweeps: int,
    generator: np.random.Generator,
) -> Moved | None:
    """Move some of the draws `z`, as many as the passes allow; None where these are too few."""
    limit = density.passes + passes
    sweeping = passes_for_sweeps // (SWEEPS * coordinates.dimension + 1) >= FEWEST
    if passes < LEAST_PASSES * min(FEWEST, len(z)) and not sweeping:
        return None
    step, steps = _tuned(density, coordinates, z[:PILOTS], generator)
    most = passes // (steps + 2)
    moved = None
    if most >= min(FEWEST, len(z)):
        chosen = _spread(z, max(min(DECISIVE, most), passes // (ROUNDS * steps + 1)))
        moved = _by_trajectories(density, coordinates, chosen, step, steps, limit, generator)
    if not sweeping or (moved is not None and moved.accepted >= FEWEST_ACCEPTED):
        return moved
    most = passes_for_sweeps // (SWEEPS * coordinates.dimension + 1)
    return _by_sweeps(density, coordinates, _spread(z, most), generator)


def _spread(z: Array, count: int) -> Array:
    """At most `count` of the draws, evenly spread."""
    return z[np.unique(np.linspace(0, len(z) - 1, min(count, len(z), MOST)).astype(int))]


def _by_trajectories(
    density: Density,
    coordinates: Coordinates,
    start: Array,
    step: float,
    steps: int,
    limit: int,
    generator: np.random.Generator,
) -> Moved:
    """One trajectory, and more while the passes last, or while the energy still changes: an error
    in many directions may reach the one that it shows in only after several.
    """
    z, (energy, slope) = start, coordinates.energy(density, start)
    first_energy, shares, drifting = energy, list[float](), True
    while not shares or (
        len(shares) < (MOST_ROUNDS if drifting else USUAL_ROUNDS)
        and (drifting or density.passes + len(z) * steps <= limit)
    ):
        last = energy
        z, energy, slope, share = _trajectory(
            density, coordinates, (z, energy, slope), step, steps, generator
        )
        shares.append(share)
        drifting = abs(paired_score(last, energy)) > DRIFTING
    return Moved(start, z, first_energy, energy, float(np.mean(shares)), drifting=drifting)


def paired_score(before: Array, after: Array) -> float:
    """The z-score of a change, over what is finite, by signed ranks."""
    change = (after - before)[np.isfinite(before) & np.isfinite(after)]
    return float(signed_ranks(change)) if len(change) > 1 else 0.0


def _by_sweeps(
    density: Density, coordinates: Coordinates, start: Array, generator: np.random.Generator
) -> Moved:
    """Metropolis moves of one parameter after the other, forth and back: so the whole is
    reversible.
    """
    theta = coordinates.theta(start)
    energy = first_energy = density.values(theta)
    shares = []
    forth, sds = np.arange(coordinates.dimension), coordinates.conditional_sd
    for parameter in np.tile(np.concatenate([forth, forth[::-1]]), SWEEPS // 2):
        trial = theta.copy()
        trial[:, parameter] += REACH * sds[parameter] * generator.standard_normal(len(theta))
        trial_energy = density.values(trial)
        taken, share = _decided(trial_energy - energy, generator)
        theta = np.where(taken[:, None], trial, theta)
        energy = np.where(taken, trial_energy, energy)
        shares.append(share)
    end, share = coordinates.z(theta), float(np.mean(shares))
    spread = np.std(start, axis=0) * np.std(end, axis=0)
    products = np.mean((start - start.mean(axis=0)) * (end - end.mean(axis=0)), axis=0)
    return Moved(start, end, first_energy, energy, share, float(np.median(products / spread)))


def _decided(change: Array, generator: np.random.Generator) -> tuple[Array, float]:
    """Metropolis decisions for changes of the energy, and the share that is accepted."""
    chance = np.exp(np.minimum(0.0, -np.where(np.isnan(change), np.inf, change)))
    return generator.random(len(change)) < chance, float(np.mean(chance))


def _tuned(
    density: Density, coordinates: Coordinates, z: Array, generator: np.random.Generator
) -> tuple[float, int]:
    """A step that most trajectories accept, and the steps of a quarter period."""
    step = min(LONGEST_STEP, 0.9 * coordinates.dimension**-0.25)
    state = (z, *coordinates.energy(density, z))
    for _ in range(HALVINGS):
        steps = int(np.ceil(QUARTER / step))
        if _trajectory(density, coordinates, state, step, min(steps, 8), generator)[3] >= ACCEPTED:
            break
        step /= 2.0
    return step, int(np.ceil(QUARTER / step))


def _trajectory(
    density: Density,
    coordinates: Coordinates,
    state: tuple[Array, Array, Array],
    step: float | Array,
    steps: int,
    generator: np.random.Generator,
) -> tuple[Array, Array, Array, float]:
    """Leapfrog and a Metropolis decision for all draws at once; the share of moves accepted."""
    start, start_energy, start_slope = state
    momentum = generator.standard_normal(start.shape)
    total = start_energy + 0.5 * np.sum(momentum**2, axis=1)
    z, slope = start, start_slope
    step = step * generator.uniform(SHORTEST_LENGTH, 1.0, (len(z), 1))
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(steps):
            momentum = momentum - 0.5 * step * slope
            z = z + step * momentum
            energy, slope = coordinates.energy(density, z)
            momentum = momentum - 0.5 * step * slope
        change = energy + 0.5 * np.sum(momentum**2, axis=1) - total
    taken, share = _decided(change, generator)
    chosen = taken[:, None]
    return (
        np.where(chosen, z, start),
        np.where(taken, energy, start_energy),
        np.where(chosen, slope, start_slope),
        share,
    )
