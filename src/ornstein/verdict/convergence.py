"""Is the chain long enough, has it forgotten its start, and do the chains agree?"""

from __future__ import annotations

import numpy as np

from ornstein.checks import printable
from ornstein.theory.stationarity import stationarity_test
from ornstein.verdict import thresholds
from ornstein.verdict.effective import most_different
from ornstein.verdict.finding import Finding, graded, skipped, worst
from ornstein.verdict.fluctuation import fluctuation_dissipation
from ornstein.verdict.subject import Subject


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
        f"along the slowest direction the mean is known to {error.slowest:.2g} sd (not trusted"
        f" above {thresholds.LARGEST_MEAN_ERROR}); Monte Carlo error alone makes a KL of"
        f" {error.total:.2g}"
    )
    factor = enough / max(times, 1e-12)
    draws = int(np.ceil(max(subject.posterior.draws.shape[1], 1) * factor))
    remedy = (
        f"run {factor:.2g} times longer: draws={draws}, or raise max_steps where it cut the"
        " thinning"
    )
    return Finding("length", level, times, enough, sentence, remedy, detail)


def stationary(subject: Subject) -> Finding | None:
    """The energy and slowest-direction test of theory/stationarity.py on the draws."""
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
    level = graded(-test.p_value, -doubtful, -impossible)
    verb = "do not differ" if level == "trusted" else "differ"
    sentence = (
        f"early and late draws {verb} (p = {test.p_value:.2g}; wanted: above {doubtful:g}; not"
        f" trusted below {impossible:g})"
    )
    detail = f"z = {test.z:.2f} in the {test.series}"
    ratio = fluctuation_dissipation(subject)
    if np.isfinite(ratio):
        detail += (
            f"; the fluctuation–dissipation ratio, a gauge that is 1 at rest, reads {ratio:.3f}"
        )
    remedy = (
        "the chain was still moving when the draws began: warm up longer (warmup=…) or start nearer"
        " the mode"
    )
    return Finding("stationary", level, test.p_value, doubtful, sentence, remedy, detail)


def chains_agree(subject: Subject) -> Finding:
    """R-hat and effective draws, from ArviZ, of the parameters whose chains differ most and of the
    slowest direction.
    """
    draws, law = subject.posterior.draws, subject.law
    if subject.no_chains:
        return skipped("R-hat, ESS", subject.no_chains)
    from ornstein.posterior.statistics import effective_sample_size, split_r_hat

    columns = most_different(draws)
    series = {subject.posterior.names[column]: draws[:, :, column] for column in columns}
    if law is not None:
        series["the slowest direction"] = (draws - law.curvature.mode) @ law.process.modes.slowest
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
        "trusted" if size >= thresholds.EFFECTIVE_DRAWS else "caution",
    )
    of_one = " between parts of the one chain" if draws.shape[0] == 1 else ""
    sentence = (
        f"R-hat {r_hat:.3f}{of_one} (wanted: below {thresholds.R_HAT}), {size:.0f} effective draws "
        f"(wanted: {thresholds.EFFECTIVE_DRAWS:.0f})"
    )
    detail = (
        f"largest R-hat for {printable(highest)}; fewest effective draws for"
        f" {printable(scarcest[1])} ({scarcest[0]})"
    )
    remedy = (
        "take more draws"
        if r_hat <= thresholds.R_HAT
        else "the chains disagree: warm up longer, or take more draws"
    )
    return Finding("R-hat, ESS", level, r_hat, thresholds.R_HAT, sentence, remedy, detail)


def _or_infinite(value: float) -> float:
    return value if np.isfinite(value) else np.inf
