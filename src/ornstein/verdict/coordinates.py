"""Coordinates in which the posterior is about a standard normal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ornstein.theory.matrices import matrix_root
from ornstein.types import Array
from ornstein.verdict.density import Density


@dataclass(frozen=True, eq=False)
class Coordinates:
    """θ = centre + root·z; the root is a matrix (D, D) or a diagonal (D,)."""

    centre: Array
    root: Array

    @classmethod
    def of(cls, centre: Array, covariance: Array) -> Coordinates:
        """In which this Gaussian is a standard normal."""
        whole = covariance.ndim == 2
        return cls(centre, np.linalg.cholesky(covariance) if whole else matrix_root(covariance))

    @property
    def dimension(self) -> int:
        return int(self.centre.size)

    def theta(self, z: Array) -> Array:
        """Points (M, D) in the model's own coordinates."""
        return self.centre + (z * self.root if self.root.ndim == 1 else z @ self.root.T)

    def z(self, theta: Array) -> Array:
        """Points (M, D) in these coordinates."""
        moved = theta - self.centre
        if self.root.ndim == 1:
            return moved / self.root
        return np.linalg.solve(self.root, moved.T).T

    def gradient(self, slopes: Array) -> Array:
        """Gradients with respect to z of gradients with respect to θ."""
        return slopes * self.root if self.root.ndim == 1 else slopes @ self.root

    def energy(self, density: Density, z: Array) -> tuple[Array, Array]:
        """U and its gradient with respect to z."""
        values, slopes = density.values_and_gradients(self.theta(z))
        return values, np.nan_to_num(self.gradient(slopes), posinf=0.0, neginf=0.0)

    @property
    def conditional_sd(self) -> Array:
        """The sd of each parameter given all others, where z is a standard normal."""
        if self.root.ndim == 1:
            return self.root
        return 1.0 / np.linalg.norm(np.linalg.inv(self.root), axis=0)

    @property
    def log_volume(self) -> float:
        """log |det root|."""
        if self.root.ndim == 1:
            return float(np.sum(np.log(self.root)))
        return float(np.linalg.slogdet(self.root)[1])


def wider_of(centre: Array, one: Array, other: Array) -> Coordinates:
    """Coordinates in which the wider of two covariances, direction by direction, is the identity.

    >>> wider_of(np.zeros(2), np.diag([1.0, 1.0]), np.diag([4.0, 0.1])).root.round(6).tolist()
    [[0.0, 2.0], [1.0, 0.0]]
    """
    if one.ndim == 1 or other.ndim == 1:
        diagonals = (part if part.ndim == 1 else np.diagonal(part) for part in (one, other))
        return Coordinates(centre, np.sqrt(np.maximum(*diagonals)))
    root = np.linalg.cholesky(one)
    inside = np.linalg.solve(root, np.linalg.solve(root, other).T)
    ratios, vectors = np.linalg.eigh((inside + inside.T) / 2.0)
    return Coordinates(centre, root @ vectors * np.sqrt(np.maximum(1.0, ratios)))
