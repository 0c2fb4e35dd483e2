"""How often does `orn.sample(model)`, with nothing else specified, end trusted, and is it right?

    python tests/laws/default_rates.py --half reporting --out rates.jsonl

fits, judges and compares with the truth, one line of JSON per fit, and prints the rates with their
intervals; `--read rates.jsonl` prints those of a file again. A fit that is in the file already is
not made again, and `--minutes 10` begins no fit after that. The problems are those of `suite`,
`suite_extremes` and `suite_variants`. A problem counts as trusted where all its seeds are, as wrong
where any is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from fit_error import Error, error_of_fit, wrong  # noqa: E402
from suite import PROBLEMS, REPORTING, TUNING  # noqa: E402
from suite_extremes import EXTREMES  # noqa: E402
from suite_variants import VARIANTS  # noqa: E402
from verdict_rates import interval  # noqa: E402

import ornstein as orn  # noqa: E402

HALVES = {
    "tuning": (*TUNING, *EXTREMES[0::2], *VARIANTS[0::2]),
    "reporting": (*REPORTING, *EXTREMES[1::2], *VARIANTS[1::2]),
    "all": (*PROBLEMS, *EXTREMES, *VARIANTS),
}
# Models whose gradient is not the slope of their density: no answer to them need be trusted.
BROKEN = "wrong gradient"


@dataclass(frozen=True)
class Answered:
    """The default call on a problem. `level` is "refused" where it raised an OrnsteinError, and
    "exception" where it raised another one; `said` is its sentence, or the findings raised.
    """

    problem: str
    kind: str
    modes: int
    seed: int
    level: str
    ways: tuple[str, ...] = ()
    verdicts: tuple[str, ...] = ()
    distance: float = np.nan
    move: float = np.nan
    certain: float = np.nan
    said: tuple[str, ...] = ()
    predicted_seconds: float = np.nan
    seconds: float = np.nan  # of processors
    passes: float = np.nan

    @property
    def trusted(self) -> bool:
        return self.level == "trusted"

    @property
    def wrong(self) -> bool:
        return wrong(self.level, Error(self.distance, self.move, self.certain))


def answered(problem, seed=0) -> Answered:
    """Fit, look at the verdict and compare with the truth."""
    named = (problem.name, problem.kind, problem.modes, seed)
    model, began = problem.make(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            post = orn.sample(model, seed=seed, progress=False)
        except Exception as error:
            level = "refused" if isinstance(error, orn.OrnsteinError) else "exception"
            return Answered(*named, level, said=(f"{type(error).__name__}: {error}",))
    took = time.process_time() - began
    error = error_of_fit(post, problem.truth())
    said = tuple(
        f"{found.name} [{found.level}]: {found.sentence}; {found.detail}"
        for found in post.verdict or ()
        if found.level in ("caution", "not trusted")
    )
    return Answered(
        *named,
        post.check().level,
        tuple(attempt.way for attempt in post.history),
        tuple(attempt.verdict for attempt in post.history),
        error.distance,
        error.move,
        error.certain,
        said,
        post.plan[post.plan.chosen].seconds,
        round(took, 2),
        post.settings["work"],
    )


def share(fits, counts, every=False):
    """Of the problems among these fits, those of which any fit (or every one) counts, as text."""
    problems = defaultdict(list)
    for fit in fits:
        problems[fit.problem].append(counts(fit))
    found = sum((all if every else any)(flags) for flags in problems.values())
    if not problems:
        return "no problems"
    low, high = interval(found, len(problems))
    return f"{found} of {len(problems)} ({found / len(problems):.0%}; {low:.0%} to {high:.0%})"


def rates(fits):
    """Lines: what is trusted, what is wrong, by number of ways tried; and which ways won."""
    sound = [fit for fit in fits if fit.kind != BROKEN]
    one = [fit for fit in sound if fit.modes == 1]
    yield f"one mode, trusted         {share(one, lambda fit: fit.trusted, every=True)}"
    yield f"one mode, trusted, fits   {sum(f.trusted for f in one)} of {len(one)}"
    yield f"trusted and wrong         {share(fits, lambda fit: fit.trusted and fit.wrong)}"
    yield f"not trusted, and right    {share(fits, lambda f: not f.trusted and f.wrong)}"
    yield f"refused                   {share(fits, lambda fit: fit.level == 'refused')}"
    yield f"exceptions                {share(fits, lambda fit: fit.level == 'exception')}"
    for count in sorted({len(fit.ways) for fit in fits}):
        of = [fit for fit in fits if len(fit.ways) == count]
        levels = dict(Counter(fit.level for fit in of))
        bad = sum(fit.trusted and fit.wrong for fit in of)
        yield f"{count} ways tried: {len(of)} fits, {levels}, trusted and wrong {bad}"
    won = Counter(fit.ways[-1] for fit in fits if fit.trusted)
    yield f"ways that won: {dict(won.most_common())}"
    for kind in dict.fromkeys(fit.kind for fit in fits):
        of = [fit for fit in fits if fit.kind == kind]
        seconds = [fit.seconds for fit in of]
        yield (
            f"  {kind:<20} trusted {sum(fit.trusted for fit in of)} of {len(of)},"
            f" median {np.nanmedian(seconds):.1f} s, longest {np.nanmax(seconds):.1f} s"
        )


def read(paths):
    lines = (line for path in paths for line in Path(path).read_text().splitlines())
    for row in map(json.loads, lines):
        lists = {name: tuple(row[name]) for name in ("ways", "verdicts", "said")}
        yield Answered(**{**row, **lists})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", default="reporting", choices=HALVES)
    parser.add_argument("--kinds", nargs="+")
    parser.add_argument("--only", default="", help="problems whose name holds this")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=np.inf)
    parser.add_argument("--out", default="rates.jsonl")
    parser.add_argument("--read", nargs="+")
    given = parser.parse_args()
    if not given.read:
        measure(given)
    print("\n".join(rates(list(read(given.read or [given.out])))))


def measure(given) -> None:
    """Make the fits that are not in the file yet."""
    out, began = Path(given.out), time.monotonic()
    made = {(fit.problem, fit.seed) for fit in read([out])} if out.exists() else set()
    wanted = [
        (problem, seed)
        for seed in range(given.seeds)
        for problem in HALVES[given.half]
        if (not given.kinds or problem.kind in given.kinds)
        and given.only in problem.name
        and (problem.name, seed) not in made
    ]
    with out.open("a") as file:
        for problem, seed in wanted:
            if time.monotonic() - began > 60.0 * given.minutes:
                return
            file.write(json.dumps(asdict(answered(problem, seed))) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
