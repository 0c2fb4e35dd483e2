"""Gaussian variational inference by Newton's method: the Gaussian q nearest to the posterior in
KL(q ‖ p).

At the optimum q's precision is E_q[∇²U] and E_q[∇U] = 0, with U = −log posterior. Laplace's
approximation asks the same at the mode. Where the posterior's mass is not at its mode, as with few
rows per parameter, the averages are right and the mode is not.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from ornstein.baselines.common import checked_numbers, delivered, independent_draws
from ornstein.baselines.laplace import CountedPasses
from ornstein.checks import FULL_LIMIT, is_number
from ornstein.compute.one_thread import one_thread
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.derivatives import derivatives_of
from ornstein.curvature.expected import Expectation, Expected
from ornstein.curvature.measure import measure
from ornstein.curvature.wide import MEMORY, WideGaussian, at_the_mode, draws_of, spread_out
from ornstein.errors import ConvergenceWarning, CurvatureError, InputError
from ornstein.model.model import Model
from ornstein.model.required import require_model
from ornstein.posterior.posterior import Posterior
from ornstein.posterior.working import in_working_coordinates
from ornstein.theory import Gaussian
from ornstein.types import Array

# Steps are shortened until the free energy falls, up to errors of its averages (in nats).
SHORTEST_STEP, SLACK = 1.0 / 64.0, 0.01
DEPTH = 3  # earlier rounds that a step takes into account


@one_thread()
def gaussian_vi(
    model: Model,
    *,
    draws: int | None = None,
    chains: int = 4,
    seed: int = 0,
    curvature: Curvature | None = None,
    tolerance: float = 0.01,
    rounds: int = 20,
    dense_limit: int = FULL_LIMIT,
    head: int | None = None,
    solves: float | None = None,
    memory: float = MEMORY,
) -> Posterior:
    """Independent draws from the Gaussian q that minimises KL(q ‖ posterior).

    Starts from Laplace's approximation. A round averages the gradient and the Hessian over q and
    takes a Newton step; one to six are usual. For regressions with one linear predictor a round is
    one pass over the data and exact up to quadrature. For other models it takes a pass for each of
    2·max(128, 2D) fixed points of q.

    `mean` and `covariance` of the result are those of q. `settings["shift"]` is the largest
    distance of its mean from the mode, in posterior standard deviations, and
    `settings["sd_ratio"]` the smallest and largest ratio of its standard deviations to Laplace's.
    `settings["converged"]` says whether the last round changed little; a ConvergenceWarning says it
    where it did not.

    With more parameters than `dense_limit`, the precision of a regression on sparse rows is never
    held: draws of q are solutions of linear systems, by conjugate gradients on the rows. q's mean
    is then its own, and `covariance` is the diagonal, from up to 128 draws and all that is known
    given them. Where rows are dense the precision is a matrix in float32, as far as `memory`
    allows.

    Args:
        model: what is inferred: any model up to `dense_limit` parameters, a regression with a
            normal prior beyond.
        draws, chains: independent draws from q, arranged in chains so that all tools accept them;
            None is 1000 a chain, and 50 beyond `dense_limit`.
        seed: same seed, same draws; q itself does not depend on it.
        curvature: measured before, saves the search for the mode.
        tolerance: stop when a round changes no mean by more than this many standard deviations, and
            no standard deviation by more than this share of it.
        rounds: bound on their number.
        dense_limit: parameters up to which whole matrices are held, at most 2000.
        head: beyond it, the heaviest parameters whose block of the precision is held, 8·head²
            bytes; None is 2000, and all where rows are dense.
        solves: tolerance of linear systems; None is 1e-3, and 1e-4 where head is 0.
        memory: bytes that a matrix of all parameters may take where rows are dense, twice 4·D²; the
            usual 8e8 are 10,000 parameters.

    >>> import numpy as np
    >>> from ornstein.model.regression import glm
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> post = gaussian_vi(glm(X, X[:, 0] > 0, "bernoulli", 1.0, intercept=False))
    >>> post.mean.round(1)
    array([ 2.6, -0.1])
    """
    require_model(model)
    wide = model.dim > dense_limit
    draws = (50 if wide else 1000) if draws is None else draws
    checked_numbers(draws=draws, chains=chains, rounds=rounds)
    checked_numbers(0, seed=seed, dense_limit=dense_limit, head=0 if head is None else head)
    positive = {"tolerance": tolerance, "solves": 1.0 if solves is None else solves}
    for name, value in {**positive, "memory": memory}.items():
        if not is_number(value) or value <= 0.0:
            raise InputError(f"{name} must be positive; got {value!r}")
    if dense_limit > FULL_LIMIT:
        raise InputError(f"dense_limit must be at most {FULL_LIMIT}; got {dense_limit}")
    if wide:
        started = time.perf_counter()
        found = at_the_mode(model, head, solves, memory)
        fitted = widened(found, tolerance, rounds)
        if not fitted.converged:
            warnings.warn(fitted.statement, ConvergenceWarning, stacklevel=3)
        return by_rows(model, found, fitted, draws, chains, seed, started)

    def run(worked: Model, known: Curvature | None, _: Array | None) -> Posterior:
        return _by_matrices(worked, draws, chains, seed, known, tolerance, rounds)

    return in_working_coordinates(model, curvature, None, run)


def _by_matrices(
    model: Model,
    draws: int,
    chains: int,
    seed: int,
    curvature: Curvature | None,
    tolerance: float,
    rounds: int,
) -> Posterior:
    started = time.perf_counter()
    passes = CountedPasses(derivatives_of(model))
    curvature = measure(model, derivatives=passes, seed=seed) if curvature is None else curvature
    if curvature.dim != model.dim:
        raise InputError(f"the curvature has {curvature.dim} parameters, the model {model.dim}")
    if curvature.diagonal:
        raise InputError("the curvature holds only diagonals: give one with a whole Hessian")
    expectation = Expectation(model)
    found = _fitted(expectation, curvature.laplace, tolerance, rounds)
    if not found.converged:
        warnings.warn(found.statement, ConvergenceWarning, stacklevel=6)
    law = found.law
    ratio = law.standard_deviation / curvature.laplace.standard_deviation
    shift = np.abs(law.mean - curvature.mode) / law.standard_deviation
    return delivered(
        model,
        "gaussian_vi",
        independent_draws(law, chains, draws, seed),
        started,
        passes.passes + expectation.passes,
        curvature=curvature,
        moments=law,
        seed=int(seed),
        rounds=found.rounds,
        converged=found.converged,
        convergence=found.statement,
        change=found.change,
        shift=float(shift.max()),
        sd_ratio=(float(ratio.min()), float(ratio.max())),
        approximate=curvature.approximate,
    )


def widened(found: WideGaussian, tolerance: float, rounds: int) -> Widened:
    """Turn Laplace's approximation into q, without a matrix of all parameters where rows are
    sparse.
    """
    mode = found.mean
    ended = spread_out(found, tolerance, rounds)
    own, sd = np.sqrt(ended.variances), np.sqrt(ended.before)
    return Widened(
        Gaussian(found.mean, ended.variances),
        ended.number,
        ended.change,
        tolerance,
        float(np.max(np.abs(found.mean - mode) / own)),
        (float((own / sd).min()), float((own / sd).max())),
    )


def by_rows(
    model: Model,
    found: WideGaussian,
    fitted: Widened,
    draws: int,
    chains: int,
    seed: int,
    started: float,
) -> Posterior:
    """Draws of q, where `found` is what `widened` left."""
    values = draws_of(found, chains, draws, seed)
    return delivered(
        model,
        "gaussian_vi",
        values,
        started,
        found.passes,
        moments=fitted.law,
        exact_moments=False,
        independent=True,
        seed=int(seed),
        rounds=fitted.rounds,
        converged=fitted.converged,
        convergence=fitted.statement,
        change=fitted.change,
        shift=fitted.shift,
        sd_ratio=fitted.sd_ratio,
        head=int(found.head.heavy.size),
        approximate="",
    )


@dataclass(frozen=True, eq=False)
class Fitted:
    """Where the rounds ended."""

    law: Gaussian
    rounds: int
    change: float  # by the last round, in standard deviations
    tolerance: float

    @property
    def converged(self) -> bool:
        return self.change <= self.tolerance

    @property
    def statement(self) -> str:
        """Whether and how it converged, in words."""
        what = (
            f"the last of {self.rounds} rounds changed means and sds by up to {self.change:.2g} sd"
            f" (wanted: {self.tolerance:.2g})"
        )
        if self.converged:
            return f"converged: {what}"
        return f"Gaussian VI has not converged: {what}; raise rounds, or use orn.nuts(model)"


@dataclass(frozen=True, eq=False)
class Widened(Fitted):
    """The same with what the mode is off by: the largest shift of a mean in sds, and the smallest
    and largest ratio of the sds to Laplace's.
    """

    shift: float
    sd_ratio: tuple[float, float]


def _fitted(expectation: Expectation, law: Gaussian, tolerance: float, rounds: int) -> Fitted:
    """Newton steps for mean and precision together, from `law`."""
    here, precision = expectation.over(law), _inverse(law.covariance)
    if not here.finite or precision is None:
        raise CurvatureError(
            "the density is zero or not finite at some points of Laplace's approximation: the"
            " posterior is far from Gaussian there. Use orn.nuts(model)"
        )
    history: list[Round] = []
    number, change = 0, np.inf
    while number < rounds and change > tolerance:
        number += 1
        curved = _inverse(here.hessian)
        step = None if curved is None else -curved @ here.slope
        if step is not None:
            history = [*history[-DEPTH:], Round(law.mean, precision, step, here.hessian)]
        stepped = _step(expectation, law, here, precision, history if curved is not None else [])
        if stepped is None:
            raise CurvatureError(
                "Gaussian VI found no better Gaussian near Laplace's approximation: the average"
                " Hessian is not positive definite or the free energy does not fall. The"
                " posterior may have several modes or heavy tails: use orn.nuts(model)"
            )
        following, precision, here, length = stepped
        change = _change(law, following) / length
        law = following
        history = history if length == 1.0 else []
    return Fitted(law, number, change, tolerance)


@dataclass(frozen=True, eq=False)
class Round:
    """Where a round was, and the whole Newton step from there."""

    mean: Array
    precision: Array
    step: Array
    hessian: Array

    def residual(self, scale: Array) -> Array:
        """The step in units of about one."""
        change = (self.hessian - self.precision) / np.multiply.outer(scale, scale)
        return np.concatenate([scale * self.step, change.ravel()])


def _mixed(history: list[Round]) -> tuple[Array, Array]:
    """Mean and precision after Anderson's mixing of the last rounds: the combination of their
    steps that is smallest.

    Mean and precision depend on each other. Plain steps overshoot in turns, and this makes up for
    it.
    """
    last = history[-1]
    mean, precision = last.mean + last.step, last.hessian
    if len(history) == 1:
        return mean, precision
    scale = np.sqrt(np.diagonal(last.hessian))
    newest, *others = (entry.residual(scale) for entry in history[::-1])
    changes = np.stack([newest - other for other in others], axis=1)
    shares = np.linalg.lstsq(changes, newest, rcond=1e-8)[0]
    for share, entry in zip(shares, history[-2::-1], strict=True):
        mean = mean - share * (last.mean + last.step - entry.mean - entry.step)
        precision = precision - share * (last.hessian - entry.hessian)
    return mean, precision


def _step(
    expectation: Expectation,
    law: Gaussian,
    here: Expected,
    precision: Array,
    history: list[Round],
) -> tuple[Gaussian, Array, Expected, float] | None:
    """The next Gaussian with its precision, its averages and the length of the step to it; None
    where no step lowers the free energy.
    """
    energy = free_energy(here, law)
    for mean, sharper, length in _trials(here, precision, history):
        covariance = _inverse(sharper)
        if covariance is None:
            continue
        newton = law.mean - length * covariance @ here.slope
        trial = Gaussian(newton if mean is None else mean, covariance)
        there = expectation.over(trial)
        if there.finite and free_energy(there, trial) <= energy + SLACK:
            return trial, sharper, there, length
    return None


def _trials(
    here: Expected, precision: Array, history: list[Round]
) -> Iterator[tuple[Array | None, Array, float]]:
    """Means (None: by a Newton step), precisions and lengths of the steps to try."""
    if len(history) > 1:
        yield *_mixed(history), 1.0
    length = 1.0
    while length >= SHORTEST_STEP:
        yield None, (1.0 - length) * precision + length * here.hessian, length
        length /= 2.0


def free_energy(expected: Expected, law: Gaussian) -> float:
    """E_q[U] − ½ log|Σ|, which is KL(q ‖ p) up to a constant."""
    return expected.value - 0.5 * float(np.linalg.slogdet(law.covariance)[1])


def _inverse(matrix: Array) -> Array | None:
    """Of a positive definite matrix, scaled to a diagonal of ones meanwhile; None of others."""
    diagonal = np.diagonal(matrix)
    if not np.all(diagonal > 0.0):
        return None
    scale = np.sqrt(diagonal)
    scaled = matrix / np.multiply.outer(scale, scale)
    try:
        factor = scipy.linalg.cho_factor(scaled)
    except np.linalg.LinAlgError:
        return None
    inverse = scipy.linalg.cho_solve(factor, np.eye(len(matrix)))
    return (inverse + inverse.T) / (2.0 * np.multiply.outer(scale, scale))


def _change(before: Gaussian, after: Gaussian) -> float:
    """The largest change of a mean or a standard deviation, in standard deviations."""
    sd, other = before.standard_deviation, after.standard_deviation
    moved = np.abs(after.mean - before.mean) / np.minimum(sd, other)
    return float(max(moved.max(), np.abs(np.log(other / sd)).max()))
