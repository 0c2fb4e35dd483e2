"""The dense metric of hundreds and thousands of parameters: the law of long runs, in random
directions and in all at once, against the prediction.

A whole covariance of thousands of parameters cannot be compared entry by entry from few draws. In
coordinates where the prediction is a standard normal, the squares along any direction can, and the
mean square of all parameters is known to a fraction of a percent.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from battery import SIGMAS

import ornstein as orn

DRAWS, CHAINS, DIRECTIONS = 30, 4, 50
SIZES = [200, pytest.param(2100, marks=pytest.mark.slow)]


def regression(size):
    """Columns that have something in common, three rows for each."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(3 * size, size)) + 0.5 * rng.normal(size=(3 * size, 1))
    y = X @ rng.normal(size=size) / np.sqrt(size) + rng.normal(size=3 * size)
    return orn.glm(X, y, noise_scale=1.0, intercept=False, prior_precision=1.0)


def predicted_normals(post):
    """The draws in coordinates where they should be standard normals, (D, draws), and how much
    longer than independent ones they must be for the same error of a square.
    """
    root = np.linalg.cholesky(post.prediction.covariance)
    away = post.draws.reshape(-1, post.mean.size) - post.curvature.mode
    kept = np.max(np.abs(1.0 - post.delivered_process().modes.rates)) ** post.settings["thin"]
    return scipy.linalg.solve_triangular(root, away.T, lower=True), (1 + kept**2) / (1 - kept**2)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", ["constant-sgd-full", "sgld-cv"])
def test_the_law_is_the_predicted_one(form, size):
    model = regression(size)
    curvature = orn.measure(model, "full")
    options = {"draws": DRAWS, "chains": CHAINS, "batch_size": size // 4, "progress": False}
    post = orn.sample(model, form, curvature=curvature, **options)
    z, growth = predicted_normals(post)
    error = SIGMAS * np.sqrt(growth / z.shape[1])
    directions, _ = np.linalg.qr(np.random.default_rng(6).normal(size=(size, DIRECTIONS)))
    along = directions.T @ z
    scatter = along @ along.T / z.shape[1] - np.eye(DIRECTIONS)
    assert np.max(np.abs(np.diagonal(scatter))) < np.sqrt(2.0) * error
    assert np.max(np.abs(scatter)) < np.sqrt(2.0) * error
    together = error * np.sqrt(2.0 / size)
    assert together < 0.05  # a step or a noise that is off by so much would be seen
    assert abs(np.mean(z**2) - 1.0) < together
