"""How often is the verdict right? Fits of the suite by several samplers, each judged.

    python tests/laws/verdict_rates.py --ways plan exact --half reporting --out rates.jsonl

fits and judges, one line of JSON per fit, and prints the rates with their intervals; `--read
rates.jsonl` prints those of a file again. A fit that is in the file already is not made again, so
that the suite can be run in pieces: `--kinds` and `--only` choose problems, and no fit is begun
after `--minutes`.
Intervals are Clopper and Pearson's 95 %, over problems: a problem counts as wrong where any of its
seeds is.

Besides samplers, `exact` takes draws of the posterior itself; `too wide` and the like spoil these;
and `moments` are draws of the Gaussian with the posterior's mean and covariance.

With `--remedies` the command of the worst finding is followed, and that fit is judged as well.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import defaultdict
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
import scipy.stats

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from adversaries import CHANGES, posterior_of  # noqa: E402
from fit_error import Error, error_of_fit, wrong  # noqa: E402
from suite import PROBLEMS, REPORTING, TUNING  # noqa: E402

import ornstein as orn  # noqa: E402
from ornstein.verdict.finding import LEVELS  # noqa: E402

# What a fit takes at most, and what is called a small and a large error where the verdict must be
# of use: in nats.
MOST_STEPS, SMALL, LARGE = 2_000_000, 0.02, 0.2
HALVES = {"tuning": TUNING, "reporting": REPORTING, "all": PROBLEMS}


def _sampled(sampler=None, **options):
    return lambda problem, model, seed: orn.sample(
        model, sampler, seed=seed, progress=False, max_steps=MOST_STEPS, **options
    )


def _exact(change):
    def made(problem, model, seed):
        reference = problem.truth()
        chosen = np.random.default_rng(seed).permutation(len(reference))[:4000]
        return posterior_of(model, change(reference[chosen]))

    return made


def _moments(problem, model, seed):
    reference, rng = problem.truth(), np.random.default_rng(seed)
    covariance = np.atleast_2d(np.cov(reference.T))
    normal = rng.multivariate_normal(reference.mean(axis=0), covariance, 4000)
    return posterior_of(model, normal)


SAMPLERS = {
    "plan": None,
    "full": orn.ConstantSGD("full"),
    "scalar": orn.ConstantSGD("scalar"),
    "SGLD": orn.SGLD(exact=True, control_variates=True, preconditioner="full"),
    "SGFS": orn.SGFS("full"),
    "SGHMC": orn.SGHMC(),
    "SGNHT": orn.SGNHT(),
    "IASG": orn.IASG(),
}
WAYS = {
    **{name: _sampled(sampler) for name, sampler in SAMPLERS.items()},
    "Laplace": lambda problem, model, seed: orn.laplace(model, seed=seed),
    "VI": lambda problem, model, seed: orn.gaussian_vi(model, seed=seed),
    "HMC": lambda problem, model, seed: orn.hmc(model, seed=seed),
    "NUTS": lambda problem, model, seed: orn.nuts(model, draws=500, warmup=500, seed=seed),
    "exact": _exact(CHANGES["right"]),
    **{name: _exact(change) for name, change in CHANGES.items() if name != "right"},
    "moments": _moments,
}


@dataclass(frozen=True)
class Judged:
    """A fit and its verdict; `level` is "refused" where no fit was made, with the reason in
    `raised`, and "exception" where `check` raised.
    """

    problem: str
    kind: str
    way: str
    seed: int
    level: str
    distance: float = np.nan
    move: float = np.nan
    certain: float = np.nan
    raised: tuple[str, ...] = ()
    seconds: float = np.nan
    check_seconds: float = np.nan
    # the worst finding with a command, that command, and the verdict on the fit that it makes
    finding: str = ""
    command: str = ""
    remedied: str = ""

    @property
    def error(self):
        return Error(self.distance, self.move, self.certain)

    @property
    def wrong(self):
        return self.level == "exception" or wrong(self.level, self.error)


def judge(problem, way, seed=0, remedies=False) -> Judged:
    """Fit, check and compare with the truth."""
    named = (problem.name, problem.kind, way, seed)
    model, began = problem.make(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            post = WAYS[way](problem, model, seed)
        except Exception as error:  # of the fit, which is not what is measured here
            return Judged(*named, "refused", raised=(f"{type(error).__name__}: {error}",))
        fitted = time.process_time()
        try:
            verdict = post.check(seed=seed)
        except Exception as error:
            return Judged(*named, "exception", raised=(f"{type(error).__name__}: {error}",))
        checked = time.process_time()
        error = error_of_fit(post, problem.truth())
        finding, command = _worst_command(verdict)
        remedied = _remedied(problem, model, way, seed, command) if remedies and command else ""
    raised = tuple(
        f"{found.name} [{found.level}]: {found.sentence}; {found.detail}"
        for found in verdict
        if found.level in ("caution", "not trusted")
    )
    return Judged(
        *named,
        verdict.level,
        error.distance,
        error.move,
        error.certain,
        raised,
        round(fitted - began, 2),
        round(checked - fitted, 2),
        finding,
        command,
        remedied,
    )


def _worst_command(verdict):
    """Of the findings that have a command, the worst; the name and the command."""
    found = [one for one in verdict if one.level in LEVELS[1:] and one.command]
    worst = max(found, key=lambda one: LEVELS.index(one.level), default=None)
    return ("", "") if worst is None else (worst.name, worst.command)


def _remedied(problem, model, way, seed, command):
    """The level of a fit by these options of `ornstein fit`, otherwise made as before."""
    words = command.split()
    options = dict(zip(words[::2], words[1::2], strict=True))
    given = {
        name.lstrip("-").replace("-", "_"): int(value)
        for name, value in options.items()
        if name != "--sampler"
    }
    sampler = options.get("--sampler")
    try:
        if sampler is None and way not in SAMPLERS:
            if way != "NUTS":
                return ""
            post = orn.nuts(model, draws=given["draws"], warmup=500, seed=seed)
        else:
            asked = {"max_steps": MOST_STEPS, **given}
            chosen = SAMPLERS.get(way) if sampler is None else sampler
            post = orn.sample(model, chosen, seed=seed, progress=False, **asked)
        return post.check(seed=seed).level
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def interval(count, total):
    """Clopper and Pearson's 95 % interval of a rate."""
    low = scipy.stats.beta.ppf(0.025, count, total - count + 1) if count else 0.0
    high = scipy.stats.beta.ppf(0.975, count + 1, total - count) if count < total else 1.0
    return float(low), float(high)


def rate(judged, counts):
    """Of the problems among these fits, the share with a fit that counts, as text."""
    problems = defaultdict(list)
    for fit in judged:
        problems[fit.problem].append(counts(fit))
    count, total = sum(any(found) for found in problems.values()), len(problems)
    if not total:
        return "no fits"
    low, high = interval(count, total)
    return f"{count} of {total} ({count / total:.0%}; {low:.0%} to {high:.0%})"


def rates(judged):
    """Lines of the table: by way, what is wrong and what is of use."""
    for way in dict.fromkeys(fit.way for fit in judged):
        fits = [fit for fit in judged if fit.way == way and fit.level != "refused"]
        refused = sum(fit.way == way and fit.level == "refused" for fit in judged)
        near = [fit for fit in fits if fit.distance < SMALL and fit.move < 0.1]
        far = [fit for fit in fits if fit.distance > LARGE]
        counted = {
            "trusted, wrongly": (fits, lambda fit: fit.level == "trusted" and fit.wrong),
            "not trusted, wrongly": (fits, lambda fit: fit.level == "not trusted" and fit.wrong),
            "exceptions": (fits, lambda fit: fit.level == "exception"),
            f"error below {SMALL}, not trusted": (near, lambda fit: fit.level != "trusted"),
            f"error above {LARGE}, not caught": (far, lambda fit: fit.level != "not trusted"),
        }
        yield f"{way}: {len(fits)} fits, {refused} refused"
        for name, (chosen, counts) in counted.items():
            yield f"  {name:<28} {rate(chosen, counts)}"
        sound = [fit for fit in fits if not fit.error.large]
        cautious = rate(sound, lambda fit: fit.level == "caution")
        yield f"  {'sound, a caution':<28} {cautious}"


def remedies(judged):
    """Lines of the table: by finding and command, how often the remedy ended trusted."""
    tried = [fit for fit in judged if fit.remedied]
    for key in dict.fromkeys((fit.finding, fit.command.split()[0]) for fit in tried):
        own = [fit for fit in tried if (fit.finding, fit.command.split()[0]) == key]
        trusted = sum(fit.remedied == "trusted" for fit in own)
        yield f"{key[0]}, {key[1]}: {trusted} of {len(own)} remedies ended trusted"


def read(paths):
    lines = (line for path in paths for line in Path(path).read_text().splitlines())
    return [Judged(**{**row, "raised": tuple(row["raised"])}) for row in map(json.loads, lines)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ways", nargs="+", default=["plan", "exact"], choices=WAYS)
    parser.add_argument("--half", default="reporting", choices=HALVES)
    parser.add_argument("--kinds", nargs="+")
    parser.add_argument("--only", default="", help="problems whose name holds this")
    parser.add_argument("--minutes", type=float, default=np.inf)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--remedies", action="store_true")
    parser.add_argument("--out", default="rates.jsonl")
    parser.add_argument("--read", nargs="+")
    given = parser.parse_args()
    if not given.read:
        measure(given)
    judged = read(given.read or [given.out])
    print("\n".join([*rates(judged), *remedies(judged)]))


def measure(given):
    """Make the fits that are not in the file yet."""
    out = Path(given.out)
    made = {(fit.problem, fit.way, fit.seed) for fit in read([out])} if out.exists() else set()
    last = time.monotonic() + 60.0 * given.minutes
    with out.open("a") as file:
        for problem, way, seed in product(_chosen(given), given.ways, range(given.seeds)):
            if (problem.name, way, seed) in made:
                continue
            if time.monotonic() > last:
                break
            found = judge(problem, way, seed, given.remedies)
            file.write(json.dumps(asdict(found)) + "\n")
            file.flush()


def _chosen(given):
    for problem in HALVES[given.half]:
        if given.only in problem.name and (not given.kinds or problem.kind in given.kinds):
            yield problem


if __name__ == "__main__":
    main()
