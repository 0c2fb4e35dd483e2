"""Exact draws of laws of one and two parameters, from their densities on a fine grid."""

from __future__ import annotations

import numpy as np
import scipy.optimize

REACH = 9.0  # of a grid, in sds of the Gaussian at the mode
LINE, PLANE = 40_001, 601  # points per axis


def on_a_line(log_density, low, high, count, generator):
    """Draws (count,) of a density on an interval, by its distribution function."""
    grid = np.linspace(low, high, LINE)
    logs = log_density(grid)
    density = np.exp(logs - logs.max())
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return np.interp(generator.random(count), below / below[-1], grid)


def on_a_plane(log_density, start, count, generator, reach=REACH):
    """Draws (count, 2) of a density of two parameters: cells of a grid by their mass, a point in
    each at random. `log_density` takes points (M, 2).
    """
    mode = scipy.optimize.minimize(lambda t: -log_density(t[None])[0], start, method="Nelder-Mead")
    mode = scipy.optimize.minimize(lambda t: -log_density(t[None])[0], mode.x, method="BFGS").x
    root = np.linalg.cholesky(np.linalg.inv(_hessian(log_density, mode)))
    axis = np.linspace(-reach, reach, PLANE)
    units = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    logs = log_density(mode + units @ root.T)
    masses = np.exp(logs - logs.max())
    cells = generator.choice(len(units), count, p=masses / masses.sum())
    jitter = (generator.random((count, 2)) - 0.5) * (axis[1] - axis[0])
    return mode + (units[cells] + jitter) @ root.T


def _hessian(log_density, mode, step=1e-4):
    """Minus the second differences at the mode."""
    shifts = step * np.maximum(1.0, np.abs(mode)) * np.eye(2)
    hessian = np.empty((2, 2))
    for i, one in enumerate(shifts):
        for j, other in enumerate(shifts):
            corners = np.stack([mode + a * one + b * other for a in (1, -1) for b in (1, -1)])
            values = log_density(corners)
            change = values[0] - values[1] - values[2] + values[3]
            hessian[i, j] = -change / (4.0 * one[i] * other[j])
    return hessian
