"""The kernel Stein discrepancy: are these draws those of the posterior, asked of its gradients
alone?

Inverse multiquadric kernel (Gorham and Mackey 2017) k(x, y) = (1 + |x−y|²/D)^(−1/2) in coordinates
where the posterior has unit covariance. For scores s = ∇ log p,

    k₀(x, y) = s(x)ᵀs(y) k + s(x)ᵀ∇_y k + s(y)ᵀ∇_x k + tr ∇_x∇_y k

has mean zero under p in either argument. Its mean over pairs of different draws estimates the
squared discrepancy without bias, and still does where each draw's score comes from a minibatch of
its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.compute.compiled import compiled
from ornstein.compute.precision import double
from ornstein.rows.scheme import checked_batch_size
from ornstein.rows.uniform import index_dtype
from ornstein.streams import Purpose, sequence
from ornstein.theory.modes import as_matrix
from ornstein.types import Array, Traced
from ornstein.verdict import thresholds
from ornstein.verdict.density import Density
from ornstein.verdict.finding import Finding, graded, skipped
from ornstein.verdict.subject import ABSENT, Subject

if TYPE_CHECKING:
    from ornstein.model.loss import Loss, Problem
    from ornstein.model.model import Model

DRAWS, BOOTSTRAPS = 300, 1000


@dataclass(frozen=True)
class SteinDiscrepancy:
    """`squared`: the unbiased estimate of KSD², may be below zero; `p_value`: for the draws being
    those of the posterior.
    """

    squared: float
    p_value: float

    @property
    def value(self) -> float:
        return float(np.sqrt(max(self.squared, 0.0)))


def kernel_stein_discrepancy(
    draws: Array, scores: Array, covariance: Array, seed: int = 0
) -> SteinDiscrepancy:
    """The discrepancy of independent draws (n, D) from the law whose scores ∇log p at them are
    given, in units of `covariance`.

    The p-value is that of the wild bootstrap with random signs.

    >>> draws = np.random.default_rng(0).normal(size=(200, 2))
    >>> kernel_stein_discrepancy(draws, -draws, np.eye(2)).p_value > 0.01
    True
    >>> kernel_stein_discrepancy(
    ...     draws, -draws / 4.0, np.eye(2)
    ... ).p_value < 0.01  # the law is twice as wide
    True
    """
    count = len(draws)
    kernel = _stein_kernel(draws, scores, covariance)
    np.fill_diagonal(kernel, 0.0)
    squared = float(kernel.sum() / (count * (count - 1)))
    signs = np.random.default_rng(sequence(seed, Purpose.VERDICT, 8)).choice(
        [-1.0, 1.0], (BOOTSTRAPS, count)
    )
    null = np.einsum("bi,bi->b", signs @ kernel, signs) / (count * (count - 1))
    return SteinDiscrepancy(squared, float((1 + np.sum(null >= squared)) / (1 + BOOTSTRAPS)))


def stein_discrepancy(subject: Subject, batch_size: int | None = None) -> Finding:
    """The finding, on a few hundred draws with scores of all data or of one minibatch per draw."""
    name = "Stein discrepancy"
    if subject.model is None:
        return skipped(name, ABSENT)
    if subject.posterior.draws.shape[1] < 2:
        return skipped(name, "no draws were kept")
    draws = subject.some_draws(DRAWS)
    if batch_size is None:
        scores = -Density(subject.model).values_and_gradients(draws)[1]
    else:
        scores = minibatch_scores(subject.model, draws, batch_size, subject.seed)
    curvature = subject.posterior.curvature
    units = subject.posterior.covariance if curvature is None else curvature.posterior_covariance
    found = kernel_stein_discrepancy(draws, scores, units, subject.seed)
    level = graded(-found.p_value, -thresholds.DOUBTFUL_P)
    how = "all data" if batch_size is None else f"minibatches of {batch_size}"
    sentence = (
        f"KSD {found.value:.2g}, p = {found.p_value:.2g} (wanted: above {thresholds.DOUBTFUL_P})"
    )
    detail = f"{len(draws)} draws, scores from {how}"
    remedy = (
        "the draws do not fit the posterior's gradients: follow the remedies of the other findings"
    )
    return Finding(name, level, found.p_value, thresholds.DOUBTFUL_P, sentence, remedy, detail)


def minibatch_scores(model: Model, points: Array, batch_size: int, seed: int = 0) -> Array:
    """An unbiased estimate of ∇log p at each point (M, D), from a minibatch of its own."""
    batch_size = checked_batch_size(batch_size, model.n_data, "replacement")
    generator = np.random.default_rng(sequence(seed, Purpose.VERDICT, 9))
    indices = generator.integers(
        0, model.n_data, (len(points), batch_size), dtype=index_dtype(model.n_data)
    )
    with double():
        centre = points.mean(axis=0)
        problem = model.problem("float64", centre)
        gradients = _gradients(
            model.loss, problem, jnp.asarray(points - centre), jnp.asarray(indices)
        )
        return -model.n_data * np.asarray(gradients)


@compiled
def _gradients(loss: Loss, problem: Problem, displacements: Traced, indices: Traced) -> Traced:
    return jax.vmap(loss.gradient, (None, 0, 0))(problem, displacements, indices)


def _stein_kernel(draws: Array, scores: Array, covariance: Array) -> Array:
    """k₀ of every pair, with q = 1 + |u|²/D, u = x − y: k = q^−½, ∇_x k = −u q^(−3/2)/D."""
    size = draws.shape[1]
    root = np.linalg.cholesky(as_matrix(covariance, size))
    x = np.linalg.solve(root, (draws - draws.mean(axis=0)).T).T
    s = scores @ root
    inner = s @ x.T
    own = np.diagonal(inner)
    squared = np.maximum(np.sum(x**2, axis=1)[:, None] + np.sum(x**2, axis=1) - 2.0 * x @ x.T, 0.0)
    q = 1.0 + squared / size
    pull = (own[:, None] + own - inner - inner.T) / size  # u·(s(x) − s(y))/D
    return (s @ s.T) * q**-0.5 + (pull + 1.0) * q**-1.5 - 3.0 * squared / size**2 * q**-2.5
