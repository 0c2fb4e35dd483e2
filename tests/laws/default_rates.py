"""How often does `orn.sample(model)`, with nothing else specified, end trusted, and is it right?

    python tests/laws/default_rates.py --half reporting --out rates.jsonl

fits, judges and compares with the truth, one line of JSON per fit, and prints the rates with their
intervals; `--read rates.jsonl` prints those of a file again. A fit that is in the file already is
not made again, and `--minutes 10` begins no fit after that. The problems are those of `suite`,
`suite_extremes` and `suite_variants`, the smallest tables first. A fit that takes more than
`--limit` seconds of processors is stopped and recorded as a time-out. A problem counts as trusted
where all its seeds are, as wrong where any is.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import threading
import time
import warnings
from collections import Counter, defaultdict
from contextlib import suppress
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
    """The default call on a problem. `level` is "refused" where it raised an OrnsteinError,
    "exception" where it raised another one, and "time-out" where it took too long; `said` is its
    sentence, or the findings raised.
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
    reasons: tuple[str, ...] = ()  # what the verdict on each way found

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
            level = post.check().level
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
        level,
        tuple(attempt.way for attempt in post.history),
        tuple(attempt.verdict for attempt in post.history),
        error.distance,
        error.move,
        error.certain,
        said,
        post.plan[post.plan.chosen].seconds,
        round(took, 2),
        post.settings["work"],
        tuple(attempt.reason for attempt in post.history),
    )


def _answers(pipe, limit):
    """What the process that makes the fits does: a name and a seed come in, a fit goes out."""
    problems = {problem.name: problem for problem in HALVES["all"]}
    with suppress(EOFError):  # no more are wanted
        while True:
            name, seed = pipe.recv()
            done = threading.Event()
            late = _without(problems[name], seed, "time-out", f"more than {limit:.0f} s")
            threading.Thread(target=_watch, args=(pipe, done, limit, late), daemon=True).start()
            found = answered(problems[name], seed)
            done.set()
            pipe.send(found)


def _watch(pipe, done, limit, late):
    """End the process where it has computed for too long."""
    last = time.process_time() + limit
    while not done.wait(0.5):
        if time.process_time() > last:
            pipe.send(late)
            os._exit(1)


def _without(problem, seed, level, said) -> Answered:
    """What is recorded where there was no answer."""
    return Answered(problem.name, problem.kind, problem.modes, seed, level, said=(said,))


class Answers:
    """Fits made in a process of their own, which ends where one takes too long."""

    def __init__(self, limit: float):
        self.limit, self.process = limit, None

    def of(self, problem, seed) -> Answered:
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, theirs = context.Pipe()
            given = {"args": (theirs, self.limit), "daemon": True}
            self.process = context.Process(target=_answers, **given)
            self.process.start()
            theirs.close()
        self.pipe.send((problem.name, seed))
        try:
            found = self.pipe.recv()
        except EOFError:
            found = _without(problem, seed, "exception", "the process ended")
        if found.said[:1] == ("the process ended",) or found.level == "time-out":
            self.process = None
        return found


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
    yield f"time-outs                 {share(fits, lambda fit: fit.level == 'time-out')}"
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
        lists = {name: tuple(row[name]) for name in ("ways", "verdicts", "said", "reasons")}
        yield Answered(**{**row, **lists})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", default="reporting", choices=HALVES)
    parser.add_argument("--kinds", nargs="+")
    parser.add_argument("--only", default="", help="problems whose name holds this")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=np.inf)
    parser.add_argument("--limit", type=float, default=900.0, help="of a fit, in seconds")
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
        for problem in sorted(HALVES[given.half], key=_size)
        if (not given.kinds or problem.kind in given.kinds)
        and given.only in problem.name
        and (problem.name, seed) not in made
    ]
    answers = Answers(given.limit)
    with out.open("a") as file:
        for problem, seed in wanted:
            if time.monotonic() - began > 60.0 * given.minutes:
                return
            file.write(json.dumps(asdict(answers.of(problem, seed))) + "\n")
            file.flush()


def _size(problem) -> int:
    """Numbers in the table, about what a pass costs."""
    model = problem.make()
    return model.n_data * model.dim


if __name__ == "__main__":
    main()
