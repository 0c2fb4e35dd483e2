"""Points and weights for expectations of a function of a few normal variables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.special
import scipy.stats

from ornstein.types import Array

# Trapezoids for one variable: how many standard deviations they reach, and how wide they are at
# most, in sds and in the predictor. The poles of a logistic slope at ±iπ then leave no error above
# rounding.
REACH, WIDEST, WIDEST_IN_PREDICTOR, NARROWEST = 9.0, 0.5, 0.5, 1.0 / 32.0
POINTS_OF_TWO = (
    9  # per axis: for a mean and a log scale, which is known well wherever N is not tiny
)
PAIRS_OF_MANY = 64
GRID_AXES = 2  # more variables than these are averaged over points ±t and not over a grid


@dataclass(frozen=True, eq=False)
class Points:
    """Points (M, m) whose weighted average stands for the expectation over m standard normals."""

    places: Array
    weights: Array


def points_for(variables: int, largest_sd: float) -> Points:
    """A rule for functions of `variables` normals with standard deviations up to `largest_sd`.

    >>> rule = points_for(1, 1.0)
    >>> round(float(rule.weights @ rule.places[:, 0] ** 4), 10)
    3.0
    """
    if variables > GRID_AXES:
        return paired_points(variables, max(PAIRS_OF_MANY, 4 * variables))
    return trapezoids(largest_sd) if variables == 1 else grid(variables, POINTS_OF_TWO)


def trapezoids(largest_sd: float) -> Points:
    """Evenly spaced points for one variable; widths are powers of two, so that few different
    numbers of points are compiled for.
    """
    width = WIDEST
    while width * largest_sd > WIDEST_IN_PREDICTOR and width > NARROWEST:
        width /= 2.0
    places = np.arange(-REACH, REACH + width / 2.0, width)
    weights = np.exp(-0.5 * places**2)
    return Points(places[:, None], weights / weights.sum())


def grid(variables: int, count: int) -> Points:
    """The product of Gauss–Hermite rules of `count` points."""
    places, weights = scipy.special.roots_hermitenorm(count)
    weights = weights / weights.sum()
    axes = np.meshgrid(*[places] * variables, indexing="ij")
    products = np.meshgrid(*[weights] * variables, indexing="ij")
    return Points(
        np.stack([axis.ravel() for axis in axes], axis=1),
        np.prod([product.ravel() for product in products], axis=0),
    )


def paired_points(variables: int, pairs: int, seed: int = 0) -> Points:
    """Points ±t, at random but for their second moments, which are those of standard normals.

    Averages of polynomials up to the third degree are exact, as they are of a quadratic function's
    products with a linear one.
    """
    pairs = max(pairs, variables)
    normals = np.random.default_rng(seed).standard_normal((pairs, variables))
    root = np.linalg.cholesky(normals.T @ normals / pairs)
    places = np.linalg.solve(root, normals.T).T
    return Points(np.concatenate([places, -places]), np.full(2 * pairs, 0.5 / pairs))
