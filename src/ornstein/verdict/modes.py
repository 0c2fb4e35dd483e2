"""Is there mass elsewhere, at a mode that no chain has visited?

Descents of −log density start far from the draws. Where one of them ends at a point of its own,
the mass about it is estimated and compared with the mass about the draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.special

from ornstein.curvature.derivatives import derivatives_of
from ornstein.streams import Purpose, sequence
from ornstein.types import Array
from ornstein.verdict import thresholds
from ornstein.verdict.coordinates import Coordinates
from ornstein.verdict.density import Density
from ornstein.verdict.finding import Finding, graded, skipped
from ornstein.verdict.importance import Weighted
from ornstein.verdict.slopes import EVALUATIONS
from ornstein.verdict.slopes import FEWEST as FEWEST_DRAWS
from ornstein.verdict.subject import ABSENT, Close, Subject

NAME = "other modes"
DISTANCES = np.array([12.0, 25.0, 6.0, 50.0, 3.0])  # of starts, in sds
STEPS = 60  # of a descent
FEWEST, MOST = 6, 200  # descents
FLAT = 0.05  # the slope in z at which a descent has ended
APART = 3.0  # distance in z of a mode from all draws looked at
# A mode was visited if this share of the draws reach within so far of it on the way there: half of
# a mass that matters, and two sds.
VISITED, REACHED = 0.5 * thresholds.SMALL_MASS, 2.0
BARRIER = 1.0  # in nats, between two modes
ROUNDING = 1e-12  # of U, relative: a bend smaller than this is none
# Points that the mass about a mode is measured with, and how much wider than Laplace's Gaussian
# theirs is, over √D: so that their weights vary by the same in any dimension.
POINTS, WIDER = 64, 0.5
LARGEST = 2000  # parameters up to which the mass of a mode is measured


@dataclass(frozen=True, eq=False)
class Mode:
    """A minimum of U away from the draws, its coordinates z and the log of the mass about it over
    that about the draws.
    """

    z: Array
    theta: Array
    log_mass: float
    mirrored: bool

    @property
    def share(self) -> float:
        return float(scipy.special.expit(self.log_mass))


def starts(subject: Subject, count: int, generator: np.random.Generator) -> Array:
    """Starts of `count` descents, (count, D): the mean moved along parameters, along principal axes
    of the draws and at random, at several distances; and where the model says that chains start.
    """
    assert subject.model is not None
    mean, sd, size = subject.posterior.mean, subject.posterior.sd, subject.dimension
    chosen = generator.permutation(size)[: max(1, count // 4)]
    parameters = np.zeros((len(chosen), size))
    parameters[np.arange(len(chosen)), chosen] = sd[chosen]
    random = generator.standard_normal((count, size)) * sd / np.sqrt(size)
    moved = [
        _both_ways(parameters)[: -(-count // 2)],
        _principal_axes(subject)[: max(1, count // 4)],
        random * generator.choice(DISTANCES, count)[:, None],
    ]
    own = subject.model.elsewhere(generator)
    return np.concatenate([own, mean + np.concatenate(moved)])[:count]


def _both_ways(steps: Array) -> Array:
    """Steps of one sd made longer: each to both sides at one distance, which differ from step to
    step, before any at the next.
    """
    places = np.arange(len(steps))
    rounds = [
        np.concatenate([distances, -distances])[:, None] * np.concatenate([steps, steps])
        for shift in range(len(DISTANCES))
        for distances in [DISTANCES[(places + shift) % len(DISTANCES)]]
    ]
    return np.concatenate(rounds)


def _principal_axes(subject: Subject) -> Array:
    """Steps along principal axes of the draws, longest and shortest alternating: each to both sides
    at all distances before the next.
    """
    covariance = subject.posterior.covariance
    if covariance.ndim == 1 or subject.large or subject.dimension == 1:
        return np.zeros((0, subject.dimension))
    squares, vectors = np.linalg.eigh(covariance)
    axes = (vectors * np.sqrt(np.maximum(squares, 0.0))).T
    places = np.arange(len(axes))
    axes = axes[np.ravel(np.column_stack([places[::-1], places]))[: len(axes)]]
    steps = np.concatenate([DISTANCES, -DISTANCES])[:, None]
    return np.concatenate([steps * axis for axis in axes])


def descended(
    density: Density, coordinates: Coordinates, z: Array, steps: int = STEPS
) -> tuple[Array, Array, Array]:
    """Ends of descents from z, U there, and whether each has come to rest."""
    energy, slope = coordinates.energy(density, z)
    rate = np.full(len(z), 0.5)
    moving = np.isfinite(energy)
    for _ in range(steps):
        active = np.flatnonzero(moving)
        if not len(active):
            break
        length = np.linalg.norm(slope[active], axis=1)
        step = rate[active] * np.minimum(1.0, 10.0 / np.maximum(length, 1e-300))
        trial = z[active] - step[:, None] * slope[active]
        trial_energy, trial_slope = coordinates.energy(density, trial)
        better = trial_energy < energy[active]
        moved, turned = trial - z[active], trial_slope - slope[active]
        bend = np.sum(moved * turned, axis=1)
        square = np.sum(moved**2, axis=1)
        fitted = np.where(bend > 0, square / np.where(bend > 0, bend, 1.0), 2.0 * rate[active])
        rate[active] = np.where(better, np.clip(fitted, 1e-4, 1e4), rate[active] / 4.0)
        taken = active[better]
        z[taken], energy[taken], slope[taken] = (
            trial[better],
            trial_energy[better],
            trial_slope[better],
        )
        moving[active] = np.linalg.norm(slope[active], axis=1) > FLAT
    return z, energy, ~moving & np.isfinite(energy)


def other_modes(subject: Subject, weighted: Weighted | None) -> tuple[Mode, ...] | None:
    """Modes that no draw is near; None where there are too few passes to look."""
    close, coordinates = subject.close, subject.coordinates
    if close is None or coordinates is None or weighted is None:
        return None
    density = close.density
    generator = np.random.default_rng(sequence(subject.seed, Purpose.VERDICT, 3))
    ends = _ends(subject, close, coordinates, generator)
    near = coordinates.z(subject.some_draws(1000))
    middle = np.median(near, axis=0)
    found: list[Mode] = []
    for end in ends:
        known = [mode.z for mode in found]
        if _is_near(end, near, middle) or any(np.linalg.norm(end - other) < 0.5 for other in known):
            continue
        if not _parted(density, coordinates, end, middle):
            continue
        mode = _measured(subject, close, end, weighted, generator)
        if mode is not None:
            found.append(mode)
    return tuple(found)


def _ends(
    subject: Subject, close: Close, coordinates: Coordinates, generator: np.random.Generator
) -> Array:
    """Where descents come to rest, in z; or the modes that are known already."""
    if subject.known_modes is not None:
        ends = coordinates.z(np.reshape(subject.known_modes, (-1, subject.dimension)))
        energies = close.density.values(coordinates.theta(ends)) if len(ends) else np.zeros(0)
        return ends[np.isfinite(energies)]
    reserved = EVALUATIONS * FEWEST_DRAWS
    left = close.passes // 2 if close.rows else subject.passes_left(reserved)
    count = min(max(close.passes // (5 * STEPS), FEWEST), MOST, max(1, left // STEPS))
    ends, _, rested = descended(
        close.density,
        coordinates,
        coordinates.z(starts(subject, count, generator)),
        min(STEPS, left // count - 1),
    )
    return ends[rested]


def _is_near(point: Array, draws: Array, middle: Array) -> bool:
    """Whether a mode lies among the draws: as near to one of them as they are to each other, and
    reached by some on the straight line from their middle. In many dimensions all are as far apart
    as separate modes, and only the line tells.
    """
    distances = np.linalg.norm(draws - point, axis=1)
    usual = np.median(np.linalg.norm(draws - draws.mean(axis=0), axis=1))
    if distances.min() > min(max(APART, 1.5 * usual), 2.0 * usual + 1.0):
        return False
    way = point - middle
    length = np.linalg.norm(way)
    reached = (draws - middle) @ way >= length * (length - REACHED)
    return bool(np.mean(reached) >= VISITED)


def _parted(density: Density, coordinates: Coordinates, end: Array, middle: Array) -> bool:
    """Whether U rises on the straight line from a mode to the middle of the draws, other than as a
    convex function does: the one mode of a skewed posterior of many parameters lies far from its
    mass, too.
    """
    shares = np.linspace(0.0, 1.0, 17)[:, None]
    way = density.values(coordinates.theta(end + shares * (middle - end)))
    if np.max(way[1:-1]) - way[0] < BARRIER:
        return False
    with np.errstate(invalid="ignore"):
        return not np.all(np.diff(way, 2) >= -ROUNDING * np.abs(way).max())


def _measured(
    subject: Subject,
    close: Close,
    end: Array,
    weighted: Weighted,
    generator: np.random.Generator,
) -> Mode | None:
    """The mass about the mode by importance weights on Laplace's Gaussian there."""
    model, density, coordinates = subject.model, close.density, subject.coordinates
    assert model is not None and subject.density is not None and coordinates is not None
    if subject.dimension > LARGEST:
        return None
    theta = coordinates.theta(end[None])[0]
    hessian = model.n_data * (
        derivatives_of(model).hessian(theta) + model.scaled_prior_hessian(theta)
    )
    try:
        wider = 1.0 + WIDER / np.sqrt(subject.dimension)
        there = Coordinates.of(theta, wider * np.linalg.inv(hessian))
    except np.linalg.LinAlgError:
        return None
    z = generator.standard_normal((POINTS, subject.dimension))
    logs = weighted.lowest - density.values(there.theta(z)) + 0.5 * np.sum(z**2, axis=1)
    mass = scipy.special.logsumexp(logs) - np.log(POINTS)
    mass += 0.5 * subject.dimension * np.log(2.0 * np.pi) + there.log_volume
    if close.rows:  # what all rows say about it
        mass += float((density.values(theta[None]) - subject.density.values(theta[None]))[0])
    return Mode(
        end,
        theta,
        float(mass - weighted.log_evidence),
        _mirrored(subject, theta),
    )


def _mirrored(subject: Subject, theta: Array) -> bool:
    """Whether the model takes this point for one of the draws' own: a permutation or change of sign
    of several parameters that leaves the density as it is everywhere.
    """
    density, mode = subject.density, subject.posterior.mean
    assert density is not None
    order, image = np.argsort(-np.abs(mode)), np.argsort(-np.abs(theta))
    signs = np.sign(theta[image]) * np.sign(mode[order])
    moved = (order != image) | (signs < 0)
    if moved.sum() < 2:
        return False
    points = np.concatenate([mode[None], subject.some_draws(8)])
    mapped = np.empty_like(points)
    mapped[:, image] = points[:, order] * np.where(signs < 0, -1.0, 1.0)
    if np.any(np.abs(mapped[0] - theta)[image] > 3.0 * subject.posterior.sd[order]):
        return False
    one, other = density.values(points), density.values(mapped)
    return bool(np.allclose(one, other, rtol=1e-9, atol=1e-6))


def modes_finding(subject: Subject, modes: tuple[Mode, ...] | None) -> Finding:
    """The mass at modes that the draws miss."""
    if subject.model is None:
        return skipped(NAME, ABSENT)
    if modes is None:
        return skipped(NAME, "too few passes over the data are allowed for it")
    missed = [mode for mode in modes if not mode.mirrored]
    mirrored = f"; {len(modes) - len(missed)} equal by symmetry" if len(modes) > len(missed) else ""
    share = max((mode.share for mode in missed), default=0.0)
    level = graded(share, thresholds.SMALL_MASS, thresholds.LARGE_MASS)
    if not missed:
        return Finding(NAME, level, 0.0, thresholds.SMALL_MASS, f"none found{mirrored}")
    worst_one = max(missed, key=lambda mode: mode.share)
    sd = np.maximum(subject.posterior.sd, 1e-300)
    moves = (worst_one.theta - subject.posterior.mean) / sd
    place = int(np.argmax(np.abs(moves)))
    sentence = (
        f"a mode that no draw visited holds {share:.0%} of the mass, at"
        f" {subject.posterior.names[place]} = {worst_one.theta[place]:.4g} (wanted: at most"
        f" {thresholds.SMALL_MASS:.0%}){mirrored}"
    )
    remedy = "start chains at both modes and weight them, or choose a prior that rules one out"
    return Finding(NAME, level, share, thresholds.SMALL_MASS, sentence, remedy)
