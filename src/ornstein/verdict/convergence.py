"""Is the chain long enough, has it forgotten its start, and do the chains agree?"""

from __future__ import annotations

import numpy as np

from ornstein.checks import printable
from ornstein.theory.stationarity import SHORTEST, stationarity_test
from ornstein.types import Array
from ornstein.verdict import thresholds
from ornstein.verdict.change import moment_distance
from ornstein.verdict.effective import most_different
from ornstein.verdict.finding import Finding, graded, rounded, skipped, worst
from ornstein.verdict.fluctuation import fluctuation_dissipation
from ornstein.verdict.subject import Subject

LEAST_MOST_STEPS = 20_000_000  # what `ornstein fit` allows anyway


def length(subject: Subject) -> Finding | None:
    """Relaxation times per chain, and the Monte-Carlo error that they leave along the slowest
    direction.
    """
    law, error = subject.law, subject.error
    if law is None or error is None:
        return None
    enough = thresholds.ENOUGH_RELAXATION_TIMES
    times = subject.steps_per_chain / max(law.prediction.relaxation_time, 1e-12)
    level = "trusted" if times >= enough else "caution"
    level = worst(
        level, graded(error.slowest, thresholds.LARGEST_MEAN_ERROR, thresholds.LARGEST_MEAN_ERROR)
    )
    sentence = (
        f"{f'{times:,.0f}' if times >= enough else f'{times:.3g}'} relaxation times per chain"
        f" (wanted: {enough:.0f})"
    )
    detail = (
        f"along the slowest direction, {subject.words(law.process.modes.slowest)}, the mean is"
        f" known to {error.slowest:.2g} sd (not trusted above {thresholds.LARGEST_MEAN_ERROR});"
        f" Monte Carlo error alone adds a KL of {error.total:.2g}"
    )
    factor = enough / max(times, 1e-12)
    draws = int(np.ceil(max(subject.posterior.draws.shape[1], 1) * factor))
    remedy = (
        f"run {factor:.2g} times longer: draws={draws}, or raise max_steps where it cut the"
        " thinning"
    )
    command = f"--draws {draws} --max-steps {_more_steps(subject, factor)}"
    return Finding("length", level, times, enough, sentence, remedy, detail, command)


def _more_steps(subject: Subject, factor: float) -> int:
    """Enough for a run that is `factor` times longer, and for its warm-up, with two digits."""
    wanted = 2.0 * factor * subject.steps_per_chain * subject.posterior.draws.shape[0]
    digits = 10 ** max(int(np.log10(max(wanted, 1.0))) - 1, 0)
    return max(int(np.ceil(wanted / digits)) * digits, LEAST_MOST_STEPS)


def stationary(subject: Subject) -> Finding | None:
    """The energy and slowest-direction test of theory/stationarity.py on the draws: the p-value
    tells whether early draws differ, and what they do to all draws whether it matters.
    """
    law, draws = subject.law, subject.posterior.draws
    if law is None:
        return None
    if subject.no_chains:
        return skipped("stationary", subject.no_chains)
    test = stationarity_test(
        draws - law.curvature.mode, law.process, subject.posterior.settings["thin"]
    )
    doubtful, impossible = (
        bound / subject.tries for bound in (thresholds.DOUBTFUL_P, thresholds.IMPOSSIBLE_P)
    )
    level, harm = graded(-test.p_value, -doubtful, -impossible), 0.0
    detail = f"z = {rounded(test.z)} in the {test.series}"
    verb = "do not differ"
    if level != "trusted":
        harm, place = _harm(subject, law.process.modes.slowest)
        verb = f"differ, which shifts all draws together by a KL of {rounded(harm)}"
        detail += f"; most along {place}"
        if harm <= thresholds.SMALL_CHANGE:
            level = "caution"
    sentence = (
        f"early and late draws {verb} (p = {test.p_value:.2g}; wanted: above {doubtful:g}; not"
        f" trusted below {impossible:g} and above a KL of {thresholds.SMALL_CHANGE})"
    )
    ratio = fluctuation_dissipation(subject)
    if np.isfinite(ratio):
        detail += f"; the fluctuation–dissipation ratio, which is 1 at equilibrium, is {ratio:.2g}"
    remedy = (
        "the chain was still moving when the draws began: warm up longer (warmup=…) or start nearer"
        " the mode"
    )
    command = f"--draws {2 * draws.shape[1]}"
    return Finding("stationary", level, test.p_value, doubtful, sentence, remedy, detail, command)


def _harm(subject: Subject, slowest: Array) -> tuple[float, str]:
    """How far the moments of all draws are from those of the later half, in nats, along the
    parameter where that is most or the slowest direction; and its name.
    """
    draws = subject.posterior.draws
    series = np.concatenate([draws, (draws @ slowest)[..., None]], axis=2)
    late = series[:, series.shape[1] // 2 :]
    sd = np.maximum(late.std(axis=(0, 1)), np.finfo(float).tiny)
    shift = (series.mean(axis=(0, 1)) - late.mean(axis=(0, 1))) / sd
    with np.errstate(divide="ignore"):
        distance = moment_distance(shift, 2.0 * np.log(series.std(axis=(0, 1)) / sd))
    place = int(np.argmax(distance))
    parameters = [printable(name) for name in subject.posterior.names]
    return float(distance[place]), [*parameters, subject.words(slowest)][place]


def chains_agree(subject: Subject) -> Finding:
    """R-hat and effective draws, from ArviZ, of the parameters whose chains differ most and of the
    slowest direction.
    """
    draws, law = subject.posterior.draws, subject.law
    if subject.no_chains:
        return _without_chains(subject)
    from ornstein.posterior.statistics import effective_sample_size, split_r_hat

    columns = most_different(draws)
    series = {subject.posterior.names[column]: draws[:, :, column] for column in columns}
    if law is not None:
        slowest = f"the slowest direction, {subject.words(law.process.modes.slowest)}"
        series[slowest] = (draws - law.curvature.mode) @ law.process.modes.slowest
    r_hats = {name: split_r_hat(values) for name, values in series.items()}
    sizes = {
        (kind, name): effective_sample_size(values, kind)
        for name, values in series.items()
        for kind in ("bulk", "tail")
    }
    highest, scarcest = (
        max(r_hats, key=lambda name: _or_infinite(r_hats[name])),
        min(sizes, key=lambda key: sizes[key]),
    )
    r_hat, size = r_hats[highest], sizes[scarcest]
    size = min(size, subject.posterior.settings.get("effective_draws", np.inf))
    level = worst(
        graded(r_hat, thresholds.R_HAT, thresholds.LARGEST_R_HAT),
        graded(-size, -thresholds.EFFECTIVE_DRAWS, -thresholds.TOO_FEW_DRAWS),
    )
    shown = f"{r_hat:.3f}" if r_hat <= 10.0 else "over 10"
    of_one = " between parts of the one chain" if draws.shape[0] == 1 else ""
    sentence = (
        f"R-hat {shown}{of_one} (wanted: below {thresholds.R_HAT}), {size:.0f} effective draws "
        f"(wanted: {thresholds.EFFECTIVE_DRAWS:.0f})"
    )
    detail = (
        f"largest R-hat for {printable(highest)}; fewest effective draws for"
        f" {printable(scarcest[1])} ({scarcest[0]})"
    )
    wanted = int(np.ceil(draws.shape[1] * max(2.0, 1.5 * thresholds.EFFECTIVE_DRAWS / size)))
    remedy = f"take more draws: draws={wanted}"
    if r_hat > thresholds.R_HAT:
        remedy = f"the chains disagree: warm up longer, and {remedy}"
    command = f"--draws {wanted}"
    return Finding("R-hat, ESS", level, r_hat, thresholds.R_HAT, sentence, remedy, detail, command)


def _without_chains(subject: Subject) -> Finding:
    """Too few draws a chain to compare chains: then their number alone counts. Moments of a chain
    need no draws.
    """
    chains, draws = subject.posterior.draws.shape[:2]
    if draws == 0 or subject.from_moments:
        return skipped("R-hat, ESS", subject.no_chains)
    count = float(chains * draws)
    level = worst("caution", graded(-count, -thresholds.EFFECTIVE_DRAWS, -thresholds.TOO_FEW_DRAWS))
    sentence = (
        f"{count:.0f} draws in all (wanted: {thresholds.EFFECTIVE_DRAWS:.0f} that are effective);"
        f" {subject.no_chains}"
    )
    wanted = max(SHORTEST, int(np.ceil(1.5 * thresholds.EFFECTIVE_DRAWS / chains)))
    remedy, command = f"take more draws: draws={wanted}", f"--draws {wanted}"
    bound = thresholds.EFFECTIVE_DRAWS
    return Finding("R-hat, ESS", level, count, bound, sentence, remedy, command=command)


def _or_infinite(value: float) -> float:
    return value if np.isfinite(value) else np.inf
