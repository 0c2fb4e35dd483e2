"""Stochastic approximation of the evidence's maximum: φ moves by the gradients that blocks of a
chain deliver, ever less.

The step is a Newton step on the log evidence, both parts of it taken from the draws (Louis 1982),

    gradient     g = E[∂φ log p(y,θ|φ)],
    information  J = E[−∂²φφ log p(y,θ|φ)] − Cov[∂φ log p(y,θ|φ)],

the second term being what is lost because θ is not observed. EM would step by the first term alone,
and creep where θ is mostly prior. The rate of a coordinate stays 1 while its steps agree in sign
and then falls like (number of turns)^−0.7 (Kesten 1958). The estimate is the mean of φ over the
last quarter of the blocks, corrected by the Newton step that their mean gradient asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ornstein.types import Array

LARGEST_STEP = float(np.log(10.0))  # of a logarithm, per block
DECAY = 0.7
SHARE_KEPT = 0.2  # an information below this share of the complete data's is not believed in a step
SHARE_FINAL = 0.02  # the same for the error of the final value, where it rests on many blocks
# coordinates; beyond, the covariance of the gradients in one block is mostly noise
NEWTON_LIMIT = 10
FEWEST_BLOCKS, FEWEST_TURNS = 24, 3
BLOCK_FIELDS = ("phi", "slopes", "covariance", "complete", "steps")
NEAR = 0.05  # from the estimate, where one Newton step is as good as exact


@dataclass(frozen=True, eq=False)
class Block:
    """What a block of draws at one φ says: the gradient per chain (chains, k), its covariance over
    draws, the complete information.
    """

    phi: Array
    slopes: Array
    covariance: Array
    complete: Array
    steps: int

    @classmethod
    def of(cls, phi: Array, gradients: Array, complete: Array, steps: int) -> Block:
        """From gradients at draws, (chains, n, k)."""
        flat = gradients.reshape(-1, phi.size)
        centred = flat - flat.mean(axis=0)
        return cls(
            phi.copy(),
            gradients.mean(axis=1),
            centred.T @ centred / max(1, len(flat) - 1),
            complete,
            steps,
        )

    @property
    def gradient(self) -> Array:
        return self.slopes.mean(axis=0)


@dataclass
class Ascent:
    """φ on its way up, with all blocks so far; `held` coordinates no longer move."""

    phi: Array
    positive: Array
    newton: bool = True
    blocks: list[Block] = field(default_factory=list)
    held: Array = field(init=False)
    turns: Array = field(init=False)
    _sign: Array = field(init=False)

    def __post_init__(self) -> None:
        self.held = np.zeros(self.phi.size, dtype=bool)
        self.turns, self._sign = np.zeros(self.phi.size), np.zeros(self.phi.size)

    def take(self, block: Block) -> None:
        """One step by what the block says."""
        self.blocks.append(block)
        lost = (
            block.covariance
            if self.newton and self.phi.size <= NEWTON_LIMIT
            else np.zeros_like(block.covariance)
        )
        step = solve_information(block.complete, lost, SHARE_KEPT, block.gradient)
        step = np.where(self.positive, np.clip(step, -LARGEST_STEP, LARGEST_STEP), step)
        self.turns += (np.sign(step) * self._sign < 0) & ~self.held
        self._sign = np.sign(step)
        self.phi = self.phi + np.where(self.held, 0.0, step / (1.0 + self.turns) ** DECAY)

    def hold(self, which: Array, at: Array) -> None:
        """Stop moving these coordinates."""
        self.held |= which
        self.phi = np.where(which, at, self.phi)

    def state(self) -> dict[str, Array]:
        """All that changes, as arrays."""
        moving = {"phi": self.phi, "held": self.held, "turns": self.turns, "sign": self._sign}
        if not self.blocks:
            return moving
        return moving | {
            f"blocks_{name}": np.stack([getattr(block, name) for block in self.blocks])
            for name in BLOCK_FIELDS
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from `state`."""
        self.phi, self.held, self.turns, self._sign = (
            state[name].copy() for name in ("phi", "held", "turns", "sign")
        )
        columns = [state[f"blocks_{name}"] for name in BLOCK_FIELDS if f"blocks_{name}" in state]
        rows = zip(*columns, strict=True)
        self.blocks = [
            Block(phi, slopes, lost, complete, int(steps))
            for phi, slopes, lost, complete, steps in rows
        ]

    def last_quarter(self) -> list[Block]:
        return self.blocks[-max(2, len(self.blocks) // 4) :]

    def estimate(self) -> Array:
        """The mean of φ over the last quarter, and the Newton step that the mean gradient there
        still asks for.
        """
        targets = self._targets()
        return np.where(self.held, self.phi, targets.mean(axis=(0, 1)))

    def error(self) -> Array:
        """Monte-Carlo standard error of `estimate`.

        The larger of two: blocks and chains taken as independent, and chains alone, in which slow
        directions show.
        """
        targets = self._targets()
        count, chains, size = targets.shape
        independent = targets.reshape(-1, size).var(axis=0, ddof=1) / (count * chains)
        between = (
            targets.mean(axis=0).var(axis=0, ddof=1) / chains if chains > 1 else np.zeros(size)
        )
        return np.where(self.held, 0.0, np.sqrt(np.maximum(independent, between)))

    def _targets(self) -> Array:
        """φ + J⁻¹g by block of the last quarter and chain, J the mean over those blocks: (blocks,
        chains, k).
        """
        blocks = self.last_quarter()
        complete = np.mean([block.complete for block in blocks], axis=0)
        lost = np.mean([block.covariance for block in blocks], axis=0)
        return np.stack(
            [
                block.phi + solve_information(complete, lost, SHARE_FINAL, block.slopes.T).T
                for block in blocks
            ]
        )

    def settled(self, tolerance: float) -> bool:
        """Whether every coordinate has turned often enough, is near the estimate and known to
        `tolerance`.
        """
        if np.all(self.held):
            return True
        if len(self.blocks) < FEWEST_BLOCKS or np.any(self.turns[~self.held] < FEWEST_TURNS):
            return False
        behind = np.mean([block.phi for block in self.last_quarter()], axis=0) - self.estimate()
        return bool(
            np.all(self.error() <= tolerance) and np.all(np.abs(behind[~self.held]) <= NEAR)
        )


def solve_information(complete: Array, lost: Array, share: float, gradient: Array) -> Array:
    """(complete − lost)⁻¹ gradient, no eigenvalue of it below `share` of the complete
    information's.
    """
    scale = np.sqrt(np.maximum(np.abs(np.diagonal(complete)), 1e-12))
    values, vectors = np.linalg.eigh((complete - lost) / np.multiply.outer(scale, scale))
    inverse = (vectors / np.maximum(np.abs(values), share)) @ vectors.T
    scaled = (gradient.T / scale).T
    return ((inverse @ scaled).T / scale).T
