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
import scipy.sparse.linalg

from ornstein.checks import FULL_LIMIT, require_memory
from ornstein.curvature.operator import Precision
from ornstein.curvature.row_averages import STILL, RowAverages, Spread, has_normal_prior
from ornstein.curvature.solves import Head, solved
from ornstein.errors import CurvatureError, InputError
from ornstein.model.model import Model
from ornstein.model.tables import is_sparse
from ornstein.streams import Purpose, stream
from ornstein.types import Array

HEAD = 2000  # heaviest parameters whose block of the precision is held as a matrix
# Bytes that a matrix of all parameters may take where rows are dense, in float32 and twice: that of
# 10,000 parameters.
MEMORY, NUMBER = 8e8, 4
MOST_OF_A_ROUND, FEWEST_OF_A_ROUND = 128, 32  # draws that averages are taken over
AT_A_TIME = 64  # right-hand sides, where they are not too long
LARGEST_ROUND, LARGEST_GROUP = 2**25, 2**24  # numbers of draws or predictors in all of them
# Squared distance from where the average gradient vanishes, in sds and summed over parameters
SETTLED, SETTLED_PER_ACCURACY, NEWTON_STEPS, HALVINGS = 1e-4, 1e3, 50, 30
LOOSEST_STEP, TIGHTEST_STEP = 1e-2, 1e-6  # tolerances of Newton steps
STALE = 25  # products of a Newton step, above which its preconditioner is made anew
LONGEST_STEP = 1.5  # in periods over 2π of the fastest direction: longer ones are not stable
CONTRACTING = 0.2  # relative change of curvatures, below which the next round's can be foreseen
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
    passes: float = 0
    fresh: bool = True  # whether `head` was made of this precision

    @property
    def accuracy(self) -> float:
        """The tolerance of linear systems."""
        return self.head.tolerance if self.tolerance is None else self.tolerance

    @property
    def factored(self) -> bool:
        """Whether the whole of this precision is there as a factor, to the default tolerance."""
        return self.head.whole and self.fresh and self.tolerance is None

    @property
    def draws_of_a_round(self) -> int:
        """Draws that averages are taken over."""
        most = LARGEST_ROUND // self._longest // 16 * 16
        return int(np.clip(most, FEWEST_OF_A_ROUND, MOST_OF_A_ROUND))

    @property
    def at_a_time(self) -> int:
        """Right-hand sides that are solved for together."""
        return int(np.clip(LARGEST_GROUP // self._longest, 8, AT_A_TIME))

    @property
    def _longest(self) -> int:
        count, size = self.averages.rows.shape
        return max(self.mean.size, count * size)

    def settle(self, spread: Spread) -> None:
        """Move the mean by Newton steps to where the average gradient vanishes, and take the
        precision there.

        Where rows have several predictors, their averages of second derivatives are many numbers:
        steps keep those of the start, and the precision is averaged again in the end.
        """
        keeps = spread.deviations is not None
        value, slope, self.precision = self._averaged(self.mean, spread)
        self.fresh = False
        if not self.head.whole:
            self._renew()
        target = min(SETTLED, (SETTLED_PER_ACCURACY * self.accuracy) ** 2)
        for _ in range(NEWTON_STEPS):
            tolerance = self._forced(slope, target)
            step, spent = solved(self.precision.product, self.head, slope[:, None], tolerance)
            self.passes += spent
            decrease = float(slope @ step[:, 0])
            if decrease <= target:
                self._finished(spread if keeps else None)
                return
            value, slope = self._searched(spread, value, decrease, step[:, 0], keeps)
            if spent > STALE:
                self._renew()
        raise CurvatureError(
            f"no point where the gradient vanishes was found in {NEWTON_STEPS} Newton steps: give"
            " the prior a positive precision"
        )

    def _forced(self, slope: Array, target: float) -> float:
        """The tolerance of a Newton step: no tighter than what is left to go."""
        left = float(slope @ self.head.solve(slope[:, None])[:, 0])
        if left > 1.0:
            return LOOSEST_STEP
        tightest = min(TIGHTEST_STEP, self.accuracy)
        return float(np.clip(0.5 * np.sqrt(target / max(left, target)), tightest, LOOSEST_STEP))

    def _renew(self) -> None:
        self.head, self.fresh = Head.of(self.precision, self.head_size), True

    def _finished(self, spread: Spread | None) -> None:
        if spread is not None:
            _, _, self.precision = self._averaged(self.mean, spread)
            self.fresh = False
        if not self.fresh:
            self._renew()

    def _searched(
        self, spread: Spread, value: float, decrease: float, step: Array, keeps: bool
    ) -> tuple[float, Array]:
        length = 1.0
        for _ in range(HALVINGS):
            trial = self.mean - length * step
            there, slope, precision = self._averaged(trial, spread, not keeps)
            if np.isfinite(there) and there <= value - 1e-4 * length * decrease + 1e-12 * abs(
                value
            ):
                self.mean = trial
                if not keeps:
                    self.precision, self.fresh = precision, False
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
        if self.factored:
            return self.head.root(generator.standard_normal((count, self.mean.size))).T, (
                self.head.variances
            )
        found, squares = np.empty((self.mean.size, count)), np.zeros(self.mean.size)
        for first in range(0, count, self.at_a_time):
            part = slice(first, min(first + self.at_a_time, count))
            right = self.precision.noise(generator, part.stop - part.start)
            known = None if start is None else start[:, part]
            found[:, part], spent = solved(
                self.precision.product, self.head, right, self.accuracy, known
            )
            self.passes += spent + right.shape[1]
            # Given all others, a parameter's mean is known (Rao–Blackwell): the rest is exact.
            squares += np.sum((found[:, part] - self.head.solve(right)) ** 2, axis=1)
        return found, self.head.variances + squares / count

    def variances(self) -> Array:
        """Those of the parameters, from a fixed set of draws where they are not known exactly."""
        if self.factored:
            return self.head.variances
        return self.deviations(self.draws_of_a_round, np.random.default_rng(0))[1]

    def _averaged(
        self, mean: Array, spread: Spread, curved: bool = True
    ) -> tuple[float, Array, Precision]:
        columns = 1 if spread.deviations is None else spread.deviations.shape[1]
        self.passes += columns
        return self.averages.over(mean, spread, curved)


def head_size(model: Model, head: int | None, memory: float = MEMORY) -> int:
    """Parameters whose block of the precision is held: the 2000 heaviest where rows are sparse, all
    where they are dense; refused where a matrix of all would take more than `memory` bytes.
    """
    assert model.linear is not None
    if is_sparse(model.linear.features):
        return min(HEAD if head is None else head, model.dim)
    needed = 2.0 * NUMBER * model.dim**2
    if (head is None and needed > memory) or (head is not None and head < model.dim):
        raise InputError(
            f"the rows are dense and the model has {model.dim} parameters: a matrix of all of them"
            f" takes {needed / 1e9:.1f} GB in float32. Give memory={needed:.1e} to allow that, make"
            " the rows sparse, or use orn.bbvi(model)"
        )
    return model.dim


def at_the_mode(
    model: Model,
    head: int | None = None,
    tolerance: float | None = None,
    memory: float = MEMORY,
) -> WideGaussian:
    """Laplace's approximation of a regression, with the block of `head` parameters as a matrix.

    The tolerance is that of linear systems; None is 1e-3, and 1e-4 without a head.
    """
    averages = RowAverages.of(model)
    size = head_size(model, head, memory)
    _, _, precision = averages.over(model.init, STILL)
    found = WideGaussian(
        averages, size, tolerance, model.init, precision, Head.of(precision, size), passes=1
    )
    found.settle(STILL)
    return found


def from_rows(model: Model, memory: float = MEMORY) -> bool:
    """Whether the posterior of a model with more than 2000 parameters is found from its rows: it is
    a regression with a normal prior of independent parameters, and rows are sparse, or a matrix of
    all parameters takes no more than `memory` bytes.
    """
    if model.dim <= FULL_LIMIT or model.streams or model.linear is None:
        return False
    if not has_normal_prior(model):
        return False
    return is_sparse(model.linear.features) or 2.0 * NUMBER * model.dim**2 <= memory


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


@dataclass(frozen=True)
class Rounds:
    """How variational inference went: its rounds, and by how much another would change means and
    sds, in sds.
    """

    number: int
    change: float
    before: Array  # variances of Laplace's approximation
    variances: Array


def spread_out(found: WideGaussian, tolerance: float, most: int) -> Rounds:
    """Turn Laplace's approximation into the Gaussian nearest to the posterior: rounds until means
    and sds change by at most `tolerance` sds.

    What another round would change is known before it is taken where the curvature hardly moved:
    it is the last change times that of the curvature.
    """
    deviations: Array | None = None
    sd: Array | None = None
    first, number, change = None, 0, np.inf
    while number < most and change > tolerance:
        number += 1
        generator = np.random.default_rng(0)  # the same in every round, so that changes are real
        deviations, variances = found.deviations(found.draws_of_a_round, generator, deviations)
        first = variances if first is None else first
        before, sd = sd, np.sqrt(variances)
        mean, diagonal = found.mean, found.precision.diagonal
        found.settle(Spread.of(found.averages.rows, deviations))
        bent = float(np.max(np.abs(np.log(found.precision.diagonal / diagonal)))) / 2.0
        change = float(np.max(np.abs(found.mean - mean) / sd))
        if before is not None:
            change = max(change, float(np.abs(np.log(sd / before)).max()))
        elif bent <= CONTRACTING:
            change *= bent
    assert first is not None
    stale = found.factored or number == 1
    return Rounds(number, change, first, found.variances() if stale else variances)


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

        if self.head.whole:
            return 1.0, 1.0
        operator = scipy.sparse.linalg.LinearOperator((size, size), matvec=product, dtype=float)
        start = np.random.default_rng(0).standard_normal(size)
        smallest, largest = (
            scipy.sparse.linalg.eigsh(
                operator, k=1, which=end, tol=0.05, v0=start, return_eigenvectors=False
            )[0]
            for end in ("SA", "LA")
        )
        return float(smallest), float(largest)


def pace(found: WideGaussian) -> tuple[float, int]:
    """Quarter turns of a trajectory that the slowest direction needs in the coordinates of the
    head, and the fewest kicks with which the fastest is stable.
    """
    slowest, fastest = HeadCoordinates(found.mean, found.head).extremes(found.precision)
    quarters = 1.0 / np.sqrt(min(1.0, slowest))
    few = 0.5 * np.pi * quarters * np.sqrt(max(1.0, fastest)) / LONGEST_STEP
    return float(quarters), max(1, int(few))


def around(
    model: Model, mean: Array | None = None, draws: Array | None = None, head: int | None = None
) -> WideGaussian:
    """The Gaussian that a mean and draws (M, D) stand for, with its precision from the rows, or
    that of variational inference.
    """
    if mean is None or draws is None:
        found = at_the_mode(model, head)
        spread_out(found, GUIDE_TOLERANCE, GUIDE_ROUNDS)
        return found
    averages, size = RowAverages.of(model), head_size(model, head)
    count = max(1, LARGEST_ROUND // max(model.dim, int(np.prod(averages.rows.shape))))
    count = int(np.clip(count, FEWEST_OF_A_ROUND, MOST_OF_A_ROUND))
    some = draws[:: -(-len(draws) // count)] - mean
    _, _, precision = averages.over(mean, Spread.of(averages.rows, some.T))
    return WideGaussian(
        averages, size, None, mean, precision, Head.of(precision, size), 2.0 * len(some)
    )
