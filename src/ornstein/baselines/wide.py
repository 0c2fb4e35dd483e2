"""Gaussians for regressions with more parameters than a matrix can be held for: Laplace's and that
of variational inference, from products with the rows.

Draws of a Gaussian with precision P are P⁻¹ of draws of N(0, P), which rows make (perturb, then
optimise). Their predictors tell how far each row's predictor varies; with that the averages of
gradient and Hessian follow row by row. A round makes such draws and takes Newton steps to where
the average gradient vanishes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse.linalg

from ornstein.checks import FULL_LIMIT, require_memory
from ornstein.curvature.operator import Precision
from ornstein.curvature.row_averages import STILL, RowAverages, Spread
from ornstein.curvature.solves import Head, solved
from ornstein.errors import CurvatureError, InputError
from ornstein.model.model import Model
from ornstein.model.tables import is_sparse
from ornstein.posterior.posterior import Posterior
from ornstein.streams import Purpose, stream
from ornstein.types import Array

HEAD = 2000  # heaviest parameters whose block of the precision is held as a matrix
DRAWS_OF_A_ROUND = 128
AT_A_TIME = 64  # right-hand sides
# Squared distance from where the average gradient vanishes, in sds and summed over parameters
SETTLED, SETTLED_PER_ACCURACY, NEWTON_STEPS, HALVINGS = 1e-4, 1e3, 50, 30
GUIDE_TOLERANCE, GUIDE_ROUNDS = 0.05, 6  # of a Gaussian that only guides


@dataclass(eq=False)
class WideGaussian:
    """N(mean, P⁻¹) with P as an operator.

    `passes` counts how often all rows were read, a product with one vector as once.
    """

    averages: RowAverages
    head_size: int
    tolerance: float | None
    mean: Array
    precision: Precision
    head: Head
    passes: int = 0

    @property
    def accuracy(self) -> float:
        """The tolerance of linear systems."""
        return self.head.tolerance if self.tolerance is None else self.tolerance

    def settle(self, spread: Spread) -> None:
        """Move the mean by Newton steps to where the average gradient vanishes, and take the
        precision there.
        """
        value, slope, self.precision = self._averaged(self.mean, spread)
        self.head = Head.of(self.precision, self.head_size)
        for number in range(NEWTON_STEPS):
            step, spent = solved(
                self.precision.product, self.head, slope[:, None], min(1e-6, self.accuracy)
            )
            self.passes += spent
            decrease = float(slope @ step[:, 0])
            if decrease <= min(SETTLED, (SETTLED_PER_ACCURACY * self.accuracy) ** 2):
                return
            value, slope = self._searched(spread, value, decrease, step[:, 0])
            if decrease > len(slope) * 1e-2 or number % 4 == 3:
                self.head = Head.of(self.precision, self.head_size)
        raise CurvatureError(
            f"no place where the gradient vanishes was found in {NEWTON_STEPS} Newton steps: give"
            " the prior a positive precision"
        )

    def _searched(
        self, spread: Spread, value: float, decrease: float, step: Array
    ) -> tuple[float, Array]:
        length = 1.0
        for _ in range(HALVINGS):
            trial = self.mean - length * step
            there, slope, precision = self._averaged(trial, spread)
            if np.isfinite(there) and there <= value - 1e-4 * length * decrease + 1e-12 * abs(
                value
            ):
                self.mean, self.precision = trial, precision
                return there, slope
            length /= 2.0
        raise CurvatureError(
            "the search for the mean is stuck: no step along the Newton direction lowers the loss."
            " Give the prior a positive precision, or another init"
        )

    def deviations(
        self, count: int, generator: np.random.Generator, start: Array | None = None
    ) -> tuple[Array, Array]:
        """Draws less the mean, (D, count), and what they say about the variances of parameters."""
        require_memory("an array of draws", self.mean.size, count)
        found, squares = np.empty((self.mean.size, count)), np.zeros(self.mean.size)
        for first in range(0, count, AT_A_TIME):
            part = slice(first, min(first + AT_A_TIME, count))
            right = self.precision.noise(generator, part.stop - part.start)
            known = None if start is None else start[:, part]
            found[:, part], spent = solved(
                self.precision.product, self.head, right, self.accuracy, known
            )
            self.passes += spent + right.shape[1]
            # Given all others, a parameter's mean is known (Rao–Blackwell): the rest is exact.
            squares += np.sum((found[:, part] - self.head.solve(right)) ** 2, axis=1)
        return found, _diagonal_of_inverse(self.head) + squares / count

    def variances(self) -> Array:
        """Those of the parameters, from a fixed set of draws."""
        return self.deviations(DRAWS_OF_A_ROUND, np.random.default_rng(0))[1]

    def _averaged(self, mean: Array, spread: Spread) -> tuple[float, Array, Precision]:
        columns = 1 if spread.deviations is None else spread.deviations.shape[1]
        self.passes += columns
        return self.averages.over(mean, spread)


def _diagonal_of_inverse(head: Head) -> Array:
    found = 1.0 / head.diagonal
    if head.heavy.size:
        inverse = scipy.linalg.solve_triangular(head.factor, np.eye(head.heavy.size), lower=True)
        found[head.heavy] = np.sum(inverse**2, axis=0)
    return found


def at_the_mode(model: Model, head: int = HEAD, tolerance: float | None = None) -> WideGaussian:
    """Laplace's approximation of a regression, with the block of `head` parameters as a matrix.

    The tolerance is that of linear systems; None is 1e-3, and 1e-4 without a head.
    """
    averages = RowAverages.of(model)
    if not is_sparse(averages.rows.features) and model.dim > head:
        raise InputError(
            f"the rows are dense and the model has {model.dim} parameters: only sparse rows are"
            f" offered above {head}. Give head={model.dim}, whose matrix takes"
            f" {8e-9 * model.dim**2:.1f} GB, or use orn.bbvi(model)"
        )
    size = min(head, model.dim)
    _, _, precision = averages.over(model.init, STILL)
    found = WideGaussian(
        averages, size, tolerance, model.init, precision, Head.of(precision, size), passes=1
    )
    found.settle(STILL)
    return found


def from_rows(model: Model) -> bool:
    """Whether a model is so wide that only its rows are at hand, and they are sparse."""
    return model.dim > FULL_LIMIT and model.linear is not None and is_sparse(model.linear.features)


def draws_of(found: WideGaussian, chains: int, draws: int, seed: int) -> Array:
    """Independent draws, (chains, draws, D); a chain's do not depend on how many chains there
    are.
    """
    require_memory("an array of draws", chains, draws, found.mean.size)
    values = np.empty((chains, draws, found.mean.size))
    for chain in range(chains):
        deviations, _ = found.deviations(draws, stream(seed, Purpose.STARTS, chain))
        values[chain] = found.mean + deviations.T
    return values


def spread_out(found: WideGaussian, tolerance: float, rounds: int) -> tuple[int, float, Array]:
    """Turn Laplace's approximation into the Gaussian nearest to the posterior: rounds until means
    and sds change by at most `tolerance` sds; how many there were, the last change and the
    variances of the parameters.
    """
    deviations: Array | None = None
    sd: Array | None = None
    number, change = 0, np.inf
    while number < rounds and change > tolerance:
        number += 1
        generator = np.random.default_rng(0)  # the same in every round, so that changes are real
        deviations, variances = found.deviations(DRAWS_OF_A_ROUND, generator, deviations)
        before, sd, mean = sd, np.sqrt(variances), found.mean
        found.settle(Spread.of(found.averages.rows, deviations))
        change = float(np.max(np.abs(found.mean - mean) / sd))
        if before is not None:
            change = max(change, float(np.abs(np.log(sd / before)).max()))
        elif change <= tolerance:  # the sds follow from those of the mode, which hardly moved
            break
    return number, change, variances


@dataclass(frozen=True, eq=False)
class HeadCoordinates:
    """θ = centre + Rz with RRᵀ = M⁻¹, M the preconditioner: an exact factor, unlike that of P."""

    centre: Array
    head: Head

    def theta(self, z: Array) -> Array:
        """Points (k, D) in the model's own coordinates."""
        return self.centre + self.head.root(z)

    def z(self, theta: Array) -> Array:
        """Points (k, D) in these coordinates."""
        return self.head.inverse_root(theta - self.centre)

    def gradient(self, slopes: Array) -> Array:
        """Gradients with respect to z of gradients with respect to θ."""
        return self.head.root_transposed(slopes)

    def extremes(self, precision: Precision) -> tuple[float, float]:
        """The smallest and the largest eigenvalue of RᵀPR: along the first a trajectory takes
        longest, along the other its steps must be smallest.
        """
        size = self.centre.size

        def product(vector: Array) -> Array:
            image = precision.product(self.head.root(vector.reshape(1, size)).T)
            return self.head.root_transposed(image.T)[0]

        operator = scipy.sparse.linalg.LinearOperator((size, size), matvec=product, dtype=float)
        start = np.random.default_rng(0).standard_normal(size)
        smallest, largest = (
            scipy.sparse.linalg.eigsh(
                operator, k=1, which=end, tol=0.05, v0=start, return_eigenvectors=False
            )[0]
            for end in ("SA", "LA")
        )
        return float(smallest), float(largest)


def around(model: Model, posterior: Posterior | None, head: int = HEAD) -> WideGaussian:
    """The Gaussian that a posterior's draws stand for, with its precision from the rows, or that of
    variational inference.
    """
    if posterior is None:
        found = at_the_mode(model, head)
        spread_out(found, GUIDE_TOLERANCE, GUIDE_ROUNDS)
        return found
    averages, flat = RowAverages.of(model), posterior.draws.reshape(-1, model.dim)
    some = flat[:: max(1, len(flat) // DRAWS_OF_A_ROUND)] - posterior.mean
    spread = Spread.of(averages.rows, some.T)
    _, _, precision = averages.over(posterior.mean, spread)
    passes = 2 * len(some)
    size = min(head, model.dim)
    return WideGaussian(
        averages, size, None, posterior.mean, precision, Head.of(precision, size), passes
    )
