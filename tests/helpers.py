"""Small things that several tests build on: random matrices, tiny data sets, the paper's wine
setting.
"""

from __future__ import annotations

import gzip
import os
from contextlib import contextmanager
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import pytest
import scipy.linalg

from ornstein.baselines.laplace import laplace
from ornstein.compute.precision import width
from ornstein.rows.choice import Choice

ROOT = Path(__file__).resolve().parent.parent


def spd(rng, dimension, condition=20.0):
    """A random symmetric positive definite matrix with eigenvalues between 1/√condition and
    √condition.
    """
    rotation, _ = np.linalg.qr(rng.normal(size=(dimension, dimension)))
    values = (
        np.exp(np.linspace(-0.5, 0.5, dimension) * np.log(condition))
        if dimension > 1
        else np.ones(1)
    )
    matrix = rotation * values @ rotation.T
    return (matrix + matrix.T) / 2.0


def hessian_and_noise(dimension, seed=0):
    """A and C that do not commute (for D > 1)."""
    rng = np.random.default_rng(seed)
    return spd(rng, dimension, 30.0), spd(rng, dimension, 8.0)


def companion(hessian, step, damping):
    """F of THEORY.md section 1 for z = (θ, v)."""
    size = len(hessian)
    identity, memory = np.eye(size), 1.0 - damping
    drift = step @ hessian
    return np.block([[identity - drift, memory * identity], [-drift, memory * identity]])


def joint_covariance(hessian, noise, step, damping, injected=0.0):
    """Covariance of (θ, v) by SciPy's discrete Lyapunov solver; the same noise enters every
    block.
    """
    driven = step @ noise @ step.T + injected
    return scipy.linalg.solve_discrete_lyapunov(
        companion(hessian, step, damping), np.block([[driven, driven], [driven, driven]])
    )


def matrix_of(step, dimension):
    """A scalar, diagonal or full step as a matrix."""
    step = np.asarray(step, dtype=float)
    return step if step.ndim == 2 else np.diag(np.broadcast_to(step, (dimension,)))


def relative(found, wanted):
    """Largest error of an array in units of the largest entry wanted."""
    return float(np.max(np.abs(np.asarray(found) - np.asarray(wanted))) / np.max(np.abs(wanted)))


def kl_by_definition(q, p):
    """KL(N(0,q) ‖ N(0,p)) from eigenvalues, independent of the library."""
    values = np.real(np.linalg.eigvals(np.linalg.solve(p, q)))
    return float(0.5 * np.sum(values - 1.0 - np.log(values)))


def all_minibatches(scheme, n_data, batch_size):
    """Every minibatch of a scheme, each as likely as the others: indices of shape (how many, S)."""
    if scheme == "replacement":
        return np.array(list(product(range(n_data), repeat=batch_size)), dtype=np.int32)
    if scheme == "without-replacement":
        return np.array(list(permutations(range(n_data), batch_size)), dtype=np.int32)
    orders = np.array(list(permutations(range(n_data))), dtype=np.int32)
    slices = [orders[:, (start + np.arange(batch_size)) % n_data] for start in range(n_data)]
    return np.concatenate(slices)


def regression_data(n_data, dimension, seed=0, noise=1.0):
    """Correlated features of different scales, a target with Gaussian noise."""
    rng = np.random.default_rng(seed)
    features = (
        rng.normal(size=(n_data, dimension)) @ scipy.linalg.sqrtm(spd(rng, dimension, 10.0)).real
    )
    target = features @ rng.normal(size=dimension) + noise * rng.normal(size=n_data)
    return features, target


def logistic_data(n_data, dimension, seed=0):
    rng = np.random.default_rng(seed)
    features = (
        rng.normal(size=(n_data, dimension)) @ scipy.linalg.sqrtm(spd(rng, dimension, 4.0)).real
    )
    chance = 1.0 / (1.0 + np.exp(-features @ (0.7 * rng.normal(size=dimension))))
    return features, (rng.random(n_data) < chance).astype(int)


def data_directory():
    return Path(os.environ.get("ORNSTEIN_DATA", ROOT.parent / "shared" / "data"))


def wine():
    """White wine in the paper's setting: features and target standardised; skips where the file is
    absent.
    """
    path = data_directory() / "winequality-white.csv.gz"
    if not path.exists():
        pytest.skip(
            f"needs the data of the paper: white wine is not at {path}; set ORNSTEIN_DATA to the"
            " folder that holds winequality-white.csv.gz"
        )
    with gzip.open(path, "rt") as file:
        table = np.genfromtxt(file, delimiter=";", skip_header=1)
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    return table[:, :-1], table[:, -1]


def steps_by_hand(model, batches, step=1e-2):
    """Constant SGD from zero in NumPy, from the model's gradient of one minibatch: every tenth
    position.
    """
    theta, kept = np.zeros(model.dim), []
    with width("float64"):
        problem = model.problem("float64", theta)
        slope = jax.jit(jax.grad(lambda at, rows: model.loss.minibatch(problem, at, rows)))
        for number, rows in enumerate(batches):
            theta = theta - step * np.asarray(
                slope(theta, jax.tree.map(lambda leaf, chosen=rows: leaf[chosen], problem.data))
            )
            if number % 10 == 9:
                kept.append(theta)
    return np.array(kept)


def laplace_instead(model, *, curvature, draws, chains, seed, **others):
    """In the place of `sample`, where draws need not be good: nothing is compiled for them."""
    return laplace(model, curvature=curvature, draws=draws, chains=chains, seed=seed)


@contextmanager
def rows_drawn_outside():
    """Minibatches come as indices from the host, where tests can put others in their place."""
    of = Choice.of

    def outside(*arguments, **named):
        return replace(of(*arguments, **named), draws_inside=False)

    with mock.patch.object(Choice, "of", outside):
        yield
