"""Hamiltonian Monte Carlo under a Gaussian, all chains at once.

In coordinates z where a Gaussian near the target is a standard normal, −log density is
U(z) = ½|z|² + r(z). Under its first part position and momentum rotate, exactly; only r kicks:

    p ← p − ½ δ ∇r(z),   (z, p) ← (z cos δ + p sin δ, p cos δ − z sin δ),   p ← p − ½ δ ∇r(z)

is reversible and keeps volume, so that a Metropolis decision on ½|p|² + U(z) leaves the target
invariant. Where r is constant every trajectory is accepted, and one of a quarter turn ends in an
independent draw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ornstein.types import Array

QUARTER = np.pi / 2.0
# Trajectories have random lengths, as a share of a quarter turn: those of one length could return
# to their start along some direction. A quarter turn in the middle makes draws of a Gaussian
# uncorrelated.
SHORTEST, LONGEST = 0.6, 1.4

# (chains, D) ↦ U (chains,) and its gradient (chains, D); U is infinite where there is no density
Target = Callable[[Array], tuple[Array, Array]]


@dataclass(frozen=True, eq=False)
class States:
    """Where all chains are: z (chains, D), U(z) (chains,) and its gradient (chains, D)."""

    z: Array
    energy: Array
    slope: Array

    @classmethod
    def at(cls, target: Target, z: Array) -> States:
        """The states at these positions."""
        return cls(z, *target(z))

    def part(self, rows: slice) -> States:
        """Some of the chains."""
        return States(self.z[rows], self.energy[rows], self.slope[rows])

    def where(self, taken: Array, other: States) -> States:
        """These where taken, else the others."""
        rows = taken[:, None]
        return States(
            np.where(rows, self.z, other.z),
            np.where(taken, self.energy, other.energy),
            np.where(rows, self.slope, other.slope),
        )


def rotated(
    target: Target, states: States, momentum: Array, angle: Array, kicks: int
) -> tuple[States, Array]:
    """The end of trajectories of `kicks` rotations by `angle` (chains, 1), and the momentum there.

    >>> import numpy as np
    >>> normal = lambda z: (0.5 * np.sum(z**2, axis=1), z)
    >>> states = States.at(normal, np.array([[1.0, 2.0]]))
    >>> end, momentum = rotated(normal, states, np.array([[3.0, 4.0]]), np.array([[QUARTER]]), 1)
    >>> end.z.round(12), momentum.round(12)
    (array([[3., 4.]]), array([[-1., -2.]]))
    """
    cosine, sine = np.cos(angle), np.sin(angle)
    for _ in range(kicks):
        momentum = momentum - 0.5 * angle * (states.slope - states.z)
        z = states.z * cosine + momentum * sine
        momentum = momentum * cosine - states.z * sine
        states = States.at(target, z)
        momentum = momentum - 0.5 * angle * (states.slope - states.z)
    return states, momentum


def move(
    target: Target,
    states: States,
    kicks: int,
    generator: np.random.Generator,
    quarters: float = 1.0,
) -> tuple[States, Array]:
    """One trajectory of about `quarters` quarter turns and a Metropolis decision for every chain;
    the chance of each to be accepted.
    """
    momentum, angle = generator.standard_normal(states.z.shape), quarters * QUARTER
    share = generator.uniform(SHORTEST, LONGEST, (len(states.z), 1))
    decided = generator.random(len(states.z))
    total = states.energy + 0.5 * np.sum(momentum**2, axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        end, momentum = rotated(target, states, momentum, angle * share / kicks, kicks)
        change = end.energy + 0.5 * np.sum(momentum**2, axis=1) - total
    chance = np.exp(np.minimum(0.0, -np.where(np.isnan(change), np.inf, change)))
    return end.where(decided < chance, states), chance


def tuned(
    target: Target,
    states: States,
    accepted: float,
    most: int,
    trajectories: int,
    generator: np.random.Generator,
    quarters: float = 1.0,
    kicks: int = 1,
) -> tuple[States, int, float]:
    """The fewest kicks, from `kicks` on, at which trajectories are accepted so often, the states
    after this pilot, and the share accepted at the last.

    Kicks grow by half until then. States move on meanwhile, so that energies of starts that are
    not the target's have settled by the time that the answer is given.
    """
    while True:
        chances = []
        for _ in range(trajectories):
            states, chance = move(target, states, kicks, generator, quarters)
            chances.append(chance)
        share = float(np.mean(chances[trajectories // 2 :]))
        if share >= accepted or kicks >= most:
            return states, kicks, share
        kicks = min(most, kicks + max(1, kicks // 2))
