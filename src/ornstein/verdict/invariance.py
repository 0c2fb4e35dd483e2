"""Do the draws keep their distribution when a kernel that leaves the posterior invariant moves
them?
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.stats

from ornstein.streams import Purpose, sequence
from ornstein.types import Array
from ornstein.verdict import thresholds
from ornstein.verdict.advice import another_way
from ornstein.verdict.change import MOMENT_TESTS, Change, change, two_sided
from ornstein.verdict.finding import Finding, graded, rounded, skipped, worst
from ornstein.verdict.moved import DECISIVE, MOST, Moved, move, paired_score
from ornstein.verdict.subject import ABSENT, Subject

NAME = "moved draws"
# Combinations of parameters: the number for each parameter (more would repeat them), and at most.
RANDOM_EACH, RANDOM_DIRECTIONS = 4, 50
# Beyond MANY parameters only the extreme eigenvectors are looked along, beside the parameters.
MANY, EXTREME = 300, 25
CLEAR = 2.0  # standard errors of a 5, 50 or 95 % point in a direction that has changed
UNBOUNDED = (
    "write parameters that end somewhere on a scale that does not, for instance as logarithms"
)
# Share of the draws where the posterior has no density: of a caution; and what takes trust away
# where their move inside tells nothing else, and by itself. The last is the share by which two laws
# differ that are a KL of 0.1 apart, 0.45 sd.
MOST_OUTSIDE, MANY_OUTSIDE, LARGE_OUTSIDE = 0.001, 0.01, 0.18
JOINT = 50  # parameters up to which the distance of all of them together counts


@dataclass(frozen=True, eq=False)
class Kept:
    """What the moved draws say: the change along named directions and along independent axes, and
    in the log density. `rows` stand for all rows, 0 where all were read.
    """

    moved: Moved
    names: tuple[str, ...]
    along: Change
    axes: Change
    energy: float
    energy_z: float
    tries: int = 1
    rows: int = 0

    @property
    def seen(self) -> str:
        """How many draws were moved and on which rows, in words."""
        on = f"{self.rows:,} rows, which stand for all," if self.rows else "all rows"
        return f"{len(self.moved.before)} draws moved by HMC on {on}"

    @property
    def tests(self) -> int:
        return 2 * len(self.names) + 3

    @property
    def energy_changed(self) -> bool:
        return bool(two_sided(self.energy_z) < self.bound)

    @property
    def decisive(self) -> bool:
        """Whether enough draws were moved to see an error along any one direction."""
        moved = self.moved
        return len(moved.before) >= DECISIVE and not moved.stuck and not moved.drifting

    @property
    def bound(self) -> float:
        """The p-value of one test below which something has changed."""
        return thresholds.FALSE_ALARMS / self.tests / self.tries


def kept_law(subject: Subject) -> Kept | None:
    """Move some of the draws; None where the passes allowed are too few for that."""
    close, coordinates = subject.close, subject.coordinates
    if close is None or coordinates is None:
        return None
    generator = np.random.default_rng(sequence(subject.seed, Purpose.VERDICT, 2))
    z = coordinates.z(subject.some_draws(MOST))
    passes = close.passes // 2
    sweeps = passes if close.rows else max(passes, subject.cheap_passes)
    moved = move(close.density, coordinates, z, passes, sweeps, generator)
    if moved is None:
        return None
    names, project = _projection(subject, generator)
    everything = subject.some_draws(4000)
    start, end = coordinates.theta(moved.before), coordinates.theta(moved.after)
    along = change(project(start), project(end), project(everything), subject.independent)
    axes = change(moved.before, moved.after, coordinates.z(everything), subject.independent)
    return Kept(moved, names, along, axes, *_change_of_energy(moved), subject.tries, close.rows)


def _change_of_energy(moved: Moved) -> tuple[float, float]:
    """The mean change of −log density and its z-score, over the draws that have a density."""
    sound = np.isfinite(moved.energy_before)
    if sound.sum() < 2:
        return 0.0, 0.0
    difference = (moved.energy_after - moved.energy_before)[sound]
    return float(difference.mean()), paired_score(moved.energy_before, moved.energy_after)


def _projection(
    subject: Subject, generator: np.random.Generator
) -> tuple[tuple[str, ...], Callable[[Array], Array]]:
    """Names of directions, and what projects points (n, D) on them: parameters, eigenvectors of the
    Hessian, and combinations at random.

    Not eigenvectors of the draws' covariance: the draws vary most along those by selection, and
    draws that are moved would seem to vary less.
    """
    coordinates, size = subject.coordinates, subject.dimension
    curvature = subject.posterior.curvature
    assert coordinates is not None
    number = min(RANDOM_EACH * (size - 1), RANDOM_DIRECTIONS)
    root, random = coordinates.root, generator.standard_normal((number, size))
    combined = random / root if root.ndim == 1 else np.linalg.solve(root.T, random.T).T
    names = [*subject.posterior.names]
    if curvature is not None and not curvature.diagonal and size > 1:
        _, vectors = np.linalg.eigh(curvature.hessian)
        chosen = vectors if size <= MANY else vectors[:, np.r_[:EXTREME, -EXTREME:0]]
        names += [subject.words(vector) for vector in chosen.T]
        combined = np.concatenate([chosen.T, combined])
    names += [subject.words(combination) for combination in combined[len(combined) - number :]]
    return tuple(names), lambda points: np.concatenate([points, points @ combined.T], axis=1)


def moved_draws(subject: Subject, kept: Kept | None) -> Finding:
    """The finding: significant changes and how large they are, in the units of the error of a
    fit.
    """
    if subject.model is None:
        return skipped(NAME, ABSENT)
    if subject.aims_elsewhere:
        return skipped(NAME, "the sampler aims at the sandwich, not at the posterior")
    if kept is None:
        return skipped(NAME, "too few passes over the data are allowed for it")
    outside = float(np.mean(~np.isfinite(kept.moved.energy_before)))
    if outside <= MOST_OUTSIDE and kept.moved.stuck:
        sentence = (
            f"the draws hardly move ({kept.moved.accepted:.0%} of the moves were accepted): too"
            " little to tell"
        )
        remedy, command = another_way(subject)
        bound = thresholds.SMALL_CHANGE
        return Finding(NAME, "caution", np.nan, bound, sentence, remedy, command=command)
    moment, point, joint = _effects(kept)
    place = int(np.argmax(moment)) if moment.max() > 0 else int(np.argmax(point))
    size = max(float(moment.max()), joint)
    level = worst(
        graded(size, thresholds.SMALL_CHANGE, thresholds.LARGE_CHANGE),
        graded(float(point.max()), thresholds.SMALL_MOVE, thresholds.LARGE_MOVE),
        graded(outside, MOST_OUTSIDE, MANY_OUTSIDE if kept.moved.stuck else LARGE_OUTSIDE),
    )
    if level == "trusted" and kept.energy_changed and not kept.decisive:
        return _somewhere(subject, kept)
    sentence = _sentence(kept, size, float(point.max()), outside)
    if level != "trusted":
        sentence += f", most along {kept.names[place]}"
    detail = (
        f"there the mean moves by {kept.along.shift[place]:+.2g} sd and the sd becomes"
        f" {np.exp(0.5 * kept.along.log_ratio[place]):.2g} times as large;"
        f" {kept.moved.accepted:.0%} of the moves were accepted"
    )
    remedy, command = another_way(subject)
    if outside > MOST_OUTSIDE:
        remedy, command = UNBOUNDED, ""
    return Finding(NAME, level, size, thresholds.SMALL_CHANGE, sentence, remedy, detail, command)


def _somewhere(subject: Subject, kept: Kept) -> Finding:
    """A change of the log density that too few draws can place."""
    sentence = (
        f"{kept.seen} change −log density by {kept.energy:+.2g} on average; too few were moved to"
        " see along which direction"
    )
    remedy, command = another_way(subject)
    bound = thresholds.SMALL_CHANGE
    return Finding(NAME, "caution", np.nan, bound, sentence, remedy, command=command)


def _effects(kept: Kept) -> tuple[Array, Array, float]:
    """What is significant, in nats along each direction, in sds of its 5, 50 and 95 % points, and
    in nats of all axes together.
    """
    along, bound = kept.along, kept.bound
    # A direction in which anything is significant is taken at its word in everything.
    changed = (along.moment_p < bound / MOMENT_TESTS) | (along.quantile_p < bound / 3.0)
    moment = np.where(changed, along.distance, 0.0)
    moves = np.where(changed & (np.abs(along.quantile_z) > CLEAR), np.abs(along.quantile), 0.0)
    joint, size = 0.0, kept.moved.before.shape[1]
    if size <= JOINT:
        scores = kept.axes.shift_z**2
        if scipy.stats.chi2.sf(scores.sum(), size) < bound:
            excess = kept.axes.shift**2 * (1.0 - 1.0 / np.maximum(scores, 1.0))
            joint = 0.5 * float(excess.sum())
        if kept.energy_changed:
            joint = max(joint, kept.energy**2 / size)
    return moment, moves.max(axis=0), joint


def _sentence(kept: Kept, size: float, point: float, outside: float) -> str:
    count = len(kept.moved.before)
    if outside > MOST_OUTSIDE:
        return f"{outside:.1%} of {count} draws lie where the posterior has no density"
    if size == 0.0 and point == 0.0:
        return f"{kept.seen} keep their distribution"
    moved = f"; a 5, 50 or 95 % point moves by {rounded(point)} sd" if point > 0 else ""
    return (
        f"{kept.seen} change their distribution by a KL of {rounded(size)}"
        f" (wanted: at most {thresholds.SMALL_CHANGE}){moved}"
    )
