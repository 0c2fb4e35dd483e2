"""Do draws of thousands of parameters keep their distribution, where no matrix of them fits?

As in invariance.py some of the draws are moved by HMC that leaves the posterior invariant; here in
the coordinates of the heaviest parameters, all draws in lockstep. Among thousands of parameters
some always seem to change, and changes are significant that are too small to matter. Hence the size
of the change decides: averaged over all parameters, over the predictors of rows, and for the
parameter that moved farthest if chance cannot explain it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.stats

from ornstein.checks import printable
from ornstein.curvature.operator import PredictorRows
from ornstein.curvature.row_density import RowDensity
from ornstein.curvature.wide import HeadCoordinates, around, from_rows, pace
from ornstein.engine.lockstep import States, Target, move, tuned
from ornstein.model.model import Model
from ornstein.posterior.statistics import effective_sample_size, split_r_hat
from ornstein.streams import Purpose, sequence
from ornstein.types import Array
from ornstein.verdict import thresholds
from ornstein.verdict.finding import Finding, graded, rounded, skipped, worst
from ornstein.verdict.moved import DRIFTING, LEAST_ACCEPTED, paired_score
from ornstein.verdict.subject import Subject

NAME, CHAINS = "moved draws", "R-hat, ESS"
# Draws that are moved: as many as make NUMBERS parameters or predictors, within bounds.
NUMBERS, FEWEST, MOST = 3 * 10**7, 16, 48
PILOTS, ACCEPTED, MOST_KICKS = 8, 0.6, 64
ROUNDS, MOST_ROUNDS = 3, 5  # trajectories of each draw; more while −log density still changes
ROWS = 500  # whose predictors are looked at
AT_A_TIME = 2**20  # numbers of the draws that move together
KNOWN = 500  # draws of a chain that the spread of predictors is taken from
LARGEST_MEMORY = 0.8  # of the start, in a direction that can tell anything
COLUMNS = 1000  # directions worked on at a time
LARGEST_CORRELATION = 0.98  # of a draw and the one before
LOOKED_AT = 40  # parameters whose chains are looked at


@dataclass(frozen=True, eq=False)
class Shifts:
    """By how much means move along many directions, in sds, with standard errors, and the sds after
    the moves over those of the draws, on average.
    """

    moves: Array
    errors: Array
    # The same, no smaller than those of draws that keep their distribution: of skewed quantities a
    # small mean comes with a small variance, which would count twice.
    least_errors: Array
    weights: Array
    width: float

    @classmethod
    def of(cls, before: Array, after: Array, mean: Array, sd: Array, size: Array) -> Shifts:
        """Of points (K, directions) that were moved. Mean and sd of all draws are worth `size`
        independent ones along each direction; what the moved draws remember of their start is
        regressed out.
        """
        start, end = (before - mean) / sd, (after - mean) / sd
        centred = start - start.mean(axis=0)
        own = end - end.mean(axis=0)
        squares = np.maximum(np.sum(centred**2, axis=0), 1e-300)
        memory = np.clip(np.sum(centred * own, axis=0) / squares, 0.0, LARGEST_MEMORY)
        rest = end - memory * start
        left = 1.0 - memory
        noise = rest.var(axis=0, ddof=2)
        errors = noise / (len(start) * left**2) + 1.0 / size
        least = np.maximum(noise, 1.0 - memory**2) / (len(start) * left**2) + 1.0 / size
        forgotten = 1.0 - float(np.mean(memory**2))
        spread = float(np.mean(own**2)) - float(np.mean(memory**2)) * float(np.mean(centred**2))
        spread *= len(start) / ((len(start) - 1.0) * forgotten)
        width = float(np.sqrt(max(spread, 1e-300)))
        moves = rest.mean(axis=0) / left
        return cls(moves, np.sqrt(errors), np.sqrt(least), left**2, width)

    @property
    def typical(self) -> float:
        """Root mean square of the moves, less what chance adds to it."""
        excess = self.weights @ (self.moves**2 - self.errors**2) / self.weights.sum()
        return float(np.sqrt(max(0.0, excess)))

    def farthest(self, count: int, false_alarms: float) -> int | None:
        """The direction that moved farthest; None where chance may explain it."""
        scores = np.abs(self.moves) / self.least_errors
        bound = scipy.stats.t.isf(false_alarms / (2.0 * len(scores)), count - 1)
        clear = np.flatnonzero(scores > bound)
        return int(clear[np.argmax(np.abs(self.moves[clear]))]) if clear.size else None


@dataclass(frozen=True, eq=False)
class WideLaw:
    """What the moved draws say."""

    count: int
    accepted: float
    drifting: bool
    parameters: Shifts
    predictors: Shifts
    energy: float
    tries: int = 1

    @property
    def stuck(self) -> bool:
        return self.accepted < LEAST_ACCEPTED

    @property
    def decisive(self) -> bool:
        """Whether the draws moved, and no longer do."""
        return not self.stuck and not self.drifting


def wide_law(subject: Subject) -> WideLaw | None:
    """Move some of the draws; None where they are few or the model is no wide regression."""
    model, density = subject.model, subject.density
    if model is None or density is None or not from_rows(model):
        return None
    draws = subject.some_draws(_count(model))
    if len(draws) < FEWEST:
        return None
    metric = subject.metric
    if metric is None:
        metric = around(model, subject.posterior.mean, subject.some_draws(MOST))
    coordinates = HeadCoordinates(metric.mean, metric.head)
    generator = np.random.default_rng(sequence(subject.seed, Purpose.VERDICT, 2))
    precise = RowDensity(metric.averages)
    target = _target(precise, coordinates)
    start = States.at(target, coordinates.z(draws))
    end, accepted, drifting = _moved(target, start, *pace(metric), generator)
    after = coordinates.theta(end.z)
    density.passes += precise.passes
    post, rows = subject.posterior, _some_rows(model)
    some = post.draws[:, :KNOWN]
    at_rows = rows(some.reshape(-1, model.dim)).reshape(*some.shape[:2], -1)
    sd = np.maximum(at_rows.std(axis=(0, 1), ddof=1), 1e-300)
    return WideLaw(
        len(draws),
        accepted,
        drifting,
        Shifts.of(draws, after, post.mean, post.sd, _worth(subject, post.draws)),
        Shifts.of(rows(draws), rows(after), rows(post.mean[None])[0], sd, _worth(subject, at_rows)),
        float(np.mean(end.energy - start.energy)),
        subject.tries,
    )


def _worth(subject: Subject, draws: Array) -> Array:
    """How many independent draws all draws (chains, draws, directions) are worth, along each
    direction, by the correlation of a draw with the one before.
    """
    count = float(len(subject.flat_draws))
    if subject.posterior.settings.get("independent") or subject.no_chains:
        return np.full(draws.shape[2], count)
    found = np.empty(draws.shape[2])
    for start in range(0, len(found), COLUMNS):
        part = slice(start, start + COLUMNS)
        centred = draws[:, :, part] - draws[:, :, part].mean(axis=(0, 1))
        squares = np.maximum(np.mean(centred**2, axis=(0, 1)), 1e-300)
        found[part] = np.mean(centred[:, 1:] * centred[:, :-1], axis=(0, 1)) / squares
    found = np.clip(found, 0.0, LARGEST_CORRELATION)
    return np.asarray(count * (1.0 - found) / (1.0 + found))


def _count(model: Model) -> int:
    assert model.linear is not None
    longest = max(model.dim, model.n_data * model.linear.predictors)
    return int(np.clip(NUMBERS // longest, FEWEST, MOST))


def _target(density: RowDensity, coordinates: HeadCoordinates) -> Target:
    def energy_and_slope(z: Array) -> tuple[Array, Array]:
        values, slopes = density.values_and_gradients(coordinates.theta(z))
        return values, coordinates.gradient(slopes)

    return energy_and_slope


def _moved(
    target: Target, start: States, quarters: float, few: int, generator: np.random.Generator
) -> tuple[States, float, bool]:
    """Where trajectories end, the share of them that were accepted, and whether −log density still
    changes. A few of the draws find the number of kicks, and start again.
    """
    pilots = start.part(slice(None, None, -(-len(start.z) // PILOTS)))
    _, kicks, share = tuned(target, pilots, ACCEPTED, MOST_KICKS, 2, generator, quarters, few)
    # Draws that the most kicks hardly move are far off, which one trajectory shows.
    fewest, most = (ROUNDS, MOST_ROUNDS) if share >= ACCEPTED else (1, 1)
    states, shares, drifting = start, list[float](), True
    while len(shares) < (most if drifting else fewest):
        before = states.energy
        states, chance = _trajectories(target, states, kicks, generator, quarters)
        shares.append(float(chance.mean()))
        drifting = abs(paired_score(before, states.energy)) > DRIFTING
    return states, float(np.mean(shares)), drifting


def _trajectories(
    target: Target, states: States, kicks: int, generator: np.random.Generator, quarters: float
) -> tuple[States, Array]:
    """One trajectory of every draw; long draws go a few at a time, because each holds a dozen
    arrays of its length on its way.
    """
    some = max(1, AT_A_TIME // states.z.shape[1])
    moved, chances = States(*map(np.empty_like, (states.z, states.energy, states.slope))), []
    for first in range(0, len(states.z), some):
        part = slice(first, first + some)
        end, chance = move(target, states.part(part), kicks, generator, quarters)
        moved.z[part], moved.energy[part], moved.slope[part] = end.z, end.energy, end.slope
        chances.append(chance)
    return moved, np.concatenate(chances)


@dataclass(frozen=True, eq=False)
class _Rows:
    """The predictors of some rows at points (K, D): (K, rows × predictors); of several predictors,
    which only differ by what they have in common, that is taken off.
    """

    rows: PredictorRows

    def __call__(self, points: Array) -> Array:
        found = self.rows.predictors(points.T)
        if found.shape[1] > 1:
            found = found - found.mean(axis=1, keepdims=True)
        return np.asarray(found.reshape(-1, len(points)).T)


def _some_rows(model: Model) -> _Rows:
    assert model.linear is not None
    chosen = np.unique(np.linspace(0, model.n_data - 1, min(ROWS, model.n_data)).astype(int))
    return _Rows(PredictorRows.of(model.linear.part(chosen)))


def wide_moved(subject: Subject, law: WideLaw) -> Finding:
    """The finding: how large the changes are."""
    if law.stuck:
        sentence = (
            f"the draws hardly move ({law.accepted:.0%} of the moves were accepted): too little to"
            " tell"
        )
        remedy = "use orn.sample(model, 'hmc')"
        return Finding(NAME, "caution", np.nan, thresholds.SMALL_MOVE, sentence, remedy)
    shift = max(law.parameters.typical, law.predictors.typical)
    widths = law.parameters.width, law.predictors.width
    wrong = max(abs(float(np.log(width))) for width in widths)
    place = law.parameters.farthest(law.count, thresholds.FALSE_ALARMS / law.tries)
    level = worst(
        graded(shift, thresholds.SMALL_MOVE, thresholds.LARGE_MOVE),
        graded(wrong, thresholds.SMALL_WIDTH, thresholds.LARGE_WIDTH),
        "trusted" if place is None else "not trusted",
    )
    sentence = (
        f"{law.count} draws moved by HMC on all rows shift the means of parameters by"
        f" {rounded(law.parameters.typical)} sd and of predictors by"
        f" {rounded(law.predictors.typical)} sd (root mean square; wanted: at most"
        f" {thresholds.SMALL_MOVE}), and make sds {widths[0]:.2f} and {widths[1]:.2f} times as"
        f" large (wanted: within {thresholds.SMALL_WIDTH:.0%})"
    )
    if place is not None:
        sentence += (
            f"; {printable(subject.posterior.names[place])} moves by"
            f" {law.parameters.moves[place]:+.2g} sd"
        )
    detail = (
        f"−log density changes by {law.energy:+.3g} on average; {law.accepted:.0%} of the moves"
        " were accepted"
    )
    remedy = "the draws are not those of the posterior: use orn.sample(model, 'hmc')"
    return Finding(NAME, level, shift, thresholds.SMALL_MOVE, sentence, remedy, detail)


def wide_chains(subject: Subject) -> Finding:
    """R-hat and effective draws of parameters that are chosen beforehand: of thousands, some
    always look bad.
    """
    draws = subject.posterior.draws
    if subject.posterior.settings.get("independent"):
        count = draws.shape[0] * draws.shape[1]
        few = graded(-count, -thresholds.EFFECTIVE_DRAWS, -thresholds.TOO_FEW_DRAWS)
        sentence = (
            f"{count} draws, independent of each other (wanted: {thresholds.EFFECTIVE_DRAWS:.0f})"
        )
        bound = thresholds.EFFECTIVE_DRAWS
        remedy = f"take more draws: draws={int(np.ceil(bound / draws.shape[0]))}"
        return Finding(CHAINS, few, float(count), bound, sentence, remedy)
    if subject.no_chains:
        return skipped(CHAINS, subject.no_chains)
    precision = 1.0 / subject.posterior.sd
    heavy = np.argsort(-precision, kind="stable")[: LOOKED_AT // 2]
    spread = np.linspace(0, len(precision) - 1, LOOKED_AT // 2).astype(int)
    columns = np.unique(np.concatenate([heavy, spread]))
    r_hats = [split_r_hat(draws[:, :, column]) for column in columns]
    sizes = [effective_sample_size(draws[:, :, column], "bulk") for column in columns]
    largest, fewest = int(np.argmax(r_hats)), int(np.argmin(sizes))
    r_hat, size = r_hats[largest], sizes[fewest]
    halves, length = 2 * draws.shape[0], draws.shape[1] // 2
    chance = scipy.stats.chi2.isf(thresholds.DOUBTFUL_P / len(columns), halves - 1) / (halves - 1)
    share = min(1.0, size / (draws.shape[0] * draws.shape[1]))
    bound = max(thresholds.R_HAT, float(np.sqrt(1.0 + chance / (length * share))))
    level = worst(
        graded(r_hat, bound, max(bound, thresholds.LARGEST_R_HAT)),
        graded(-size, -thresholds.EFFECTIVE_DRAWS, -thresholds.TOO_FEW_DRAWS),
    )
    sentence = (
        f"R-hat {r_hat:.3f} (wanted: below {bound:.3f}), {size:.0f} effective draws (wanted:"
        f" {thresholds.EFFECTIVE_DRAWS:.0f}), the worst of {len(columns)} parameters"
    )
    names = subject.posterior.names
    detail = (
        f"largest R-hat for {printable(names[columns[largest]])}; fewest effective draws for"
        f" {printable(names[columns[fewest]])}"
    )
    wanted = int(np.ceil(draws.shape[1] * max(2.0, 1.5 * thresholds.EFFECTIVE_DRAWS / size)))
    remedy = f"take more draws: draws={wanted}"
    return Finding(CHAINS, level, r_hat, bound, sentence, remedy, detail)
