"""The verdict: a few findings, each with its number, its bound and what to do, and one word for all
of them.

Findings that compare the draws with the posterior's density decide. Those about the sampler's
theory explain: they decide only where the density could not be checked closely enough. Bounds and
their reasons are in thresholds.py.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ornstein import markup
from ornstein.checks import printable
from ornstein.errors import InputError, TrustWarning
from ornstein.posterior.own_model import model_of
from ornstein.posterior.working import as_run
from ornstein.streams import require_seed
from ornstein.verdict.agreement import as_predicted
from ornstein.verdict.assumptions import assumptions
from ornstein.verdict.components import effects_near_zero
from ornstein.verdict.convergence import chains_agree, length, stationary
from ornstein.verdict.distance import predicted_distance
from ornstein.verdict.finding import LEVELS, NOTE, SKIPPED, Finding, worst
from ornstein.verdict.importance import measured_distance
from ornstein.verdict.invariance import Kept, kept_law, moved_draws
from ornstein.verdict.modes import modes_finding
from ornstein.verdict.networks import network_as_a_whole
from ornstein.verdict.slopes import NAME as GRADIENT
from ornstein.verdict.slopes import gradient_of_density
from ornstein.verdict.subject import Subject
from ornstein.verdict.surroundings import Surroundings
from ornstein.verdict.wide import WideLaw, wide_chains, wide_law, wide_moved

if TYPE_CHECKING:
    from ornstein.curvature.wide import WideGaussian
    from ornstein.model.model import Model
    from ornstein.posterior.posterior import Posterior
    from ornstein.types import Array

MARKS = {"trusted": "ok", "caution": "??", "not trusted": "NO", SKIPPED: "--", NOTE: "  "}
MEANING = {
    "trusted": "No problems found. You can use these draws as the posterior.",
    "caution": "You can use these draws with care. Read what is marked ??.",
    "not trusted": "Do not use these draws as the posterior. Read what is marked NO.",
}
WIDTH = 120
Made = TypeVar("Made")


@dataclass(frozen=True)
class Verdict:
    """Whether the answer can be trusted; prints as a table.

    >>> said = "each chain is 12 relaxation times long"
    >>> print(Verdict((Finding("length", "caution", 12.0, 100.0, said, "run longer"),)))
    Verdict: caution. You can use these draws with care. Read what is marked ??.
      [??] length  each chain is 12 relaxation times long
                   → run longer
    """

    findings: tuple[Finding, ...]

    @property
    def level(self) -> str:
        """The worst level of any finding: "trusted", "caution" or "not trusted"."""
        return worst(*(finding.level for finding in self.findings))

    @property
    def trusted(self) -> bool:
        return self.level == "trusted"

    @property
    def remedies(self) -> tuple[str, ...]:
        """What to do, the worst findings first."""
        raised = [
            finding for finding in self.findings if finding.level in LEVELS[1:] and finding.remedy
        ]
        return tuple(
            finding.remedy
            for finding in sorted(raised, key=lambda finding: -LEVELS.index(finding.level))
        )

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __getitem__(self, name: str) -> Finding:
        """The finding of this name."""
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise InputError(
            f"there is no finding {name!r}; there are {[finding.name for finding in self.findings]}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON: NaN and infinity become None."""
        rows = [asdict(finding) for finding in self.findings]
        for row in rows:
            row.update({key: None for key in ("number", "threshold") if not np.isfinite(row[key])})
        return {"level": self.level, "findings": rows}

    def warn(self, stacklevel: int = 2) -> None:
        """Raise a TrustWarning that names the findings beyond their thresholds; do nothing where
        the verdict is *trusted*.
        """
        raised = [finding for finding in self.findings if finding.level in LEVELS[1:]]
        if raised:
            said = "; ".join(f"{finding.name}: {finding.sentence}" for finding in raised)
            warnings.warn(f"{self.level}: {said}", TrustWarning, stacklevel=stacklevel)

    def __str__(self) -> str:
        return self._table(details=False)

    def explain(self) -> str:
        """The table with the details of every finding."""
        return self._table(details=True)

    def _table(self, *, details: bool) -> str:
        width = max((len(finding.name) for finding in self.findings), default=0)
        lines = [f"Verdict: {self.level}. {MEANING[self.level]}"]
        for finding in self.findings:
            raised = finding.level in LEVELS[1:]
            lead = f"  [{MARKS[finding.level]}] {finding.name:<{width}}  "
            under = " " * len(lead)
            lines += _wrapped(finding.sentence, lead, under)
            if finding.detail and (details or raised):
                lines += _wrapped(finding.detail, under, under)
            if finding.remedy and raised:
                lines += _wrapped(finding.remedy, under + "→ ", under + "  ")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Verdict({self.level}, {len(self.findings)} findings)"

    def _repr_html_(self) -> str:
        found = [(one.name, one.level, one.sentence, one.remedy) for one in self.findings]
        return markup.findings("Verdict", self.level, found)


def _wrapped(text: str, first: str, following: str) -> list[str]:
    lines = textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=following, break_long_words=False
    )
    return [printable(line, None) for line in lines]


def check(
    posterior: Posterior, model: Model | None = None, *, stein: bool | int = False, seed: int = 0
) -> Verdict:
    """Look at a posterior from all sides; see `Posterior.check`."""
    require_seed(seed)
    subject = Subject(*as_run(posterior, model_of(posterior, model)), seed)
    # What is not a number counts against the draws; it needs no warning as well.
    with np.errstate(all="ignore"):
        return Verdict(tuple(_findings(subject, Surroundings(subject), stein)))


@dataclass(frozen=True, eq=False)
class Judgement:
    """A verdict, the modes away from the draws that it knows of (None where they were not searched
    for), the passes over the data that it took, and those that it might have taken.
    """

    verdict: Verdict
    modes: tuple[Array, ...] | None
    passes: float
    set_aside: float


def judge(
    posterior: Posterior,
    seed: int,
    tries: int,
    known_modes: tuple[Array, ...] | None = None,
    metric: WideGaussian | None = None,
    allowed: float = np.inf,
) -> Judgement:
    """The verdict on one of at most `tries` answers to one question: p-value bounds are divided by
    their number, and modes that an earlier look has found are not searched for again. `metric` is
    where the posterior of a wide regression is about, if it is known. The looks take about
    `allowed` passes over the data at most.
    """
    there = posterior.coordinates
    if known_modes is not None and there is not None:
        known_modes = tuple(there.working(mode) for mode in known_modes)
    run = as_run(posterior, posterior.model)
    subject = Subject(*run, seed, tries, known_modes, metric, allowed)
    around = Surroundings(subject)
    with np.errstate(all="ignore"):
        verdict = Verdict(tuple(_findings(subject, around, False)))
        modes = None if subject.unsound else _tried(lambda: around.modes)
    if known_modes is None and modes is not None:
        known_modes = tuple(mode.theta for mode in modes)
    if known_modes is not None and there is not None:
        known_modes = tuple(there.original(mode) for mode in known_modes)
    passes = _tried(lambda: subject.passes_taken) or 0.0
    return Judgement(verdict, known_modes, passes, max(passes, subject.set_aside))


def _findings(subject: Subject, around: Surroundings, stein: bool | int) -> list[Finding]:
    if subject.unsound:
        return [_unsound(subject)]
    kept = _tried(lambda: wide_law(subject)) or _tried(lambda: kept_law(subject))
    findings = [*_evidence(subject, around, kept)]
    settled = kept is not None and kept.decisive and _settled(findings)
    if settled:
        findings = [_excused(found) for found in findings]
    explained = _explanations(subject)
    findings += [replace(found, level=NOTE) if settled else found for found in explained]
    if not _compared(findings) and not subject.aims_elsewhere:
        findings.append(_not_compared(subject))
    if stein:
        from ornstein.verdict.stein import stein_discrepancy

        batch_size = None if stein is True else stein
        look = _looked("Stein discrepancy", lambda: stein_discrepancy(subject, batch_size))
        findings += [look] if look is not None else []
    return findings


def _evidence(
    subject: Subject, around: Surroundings, kept: Kept | WideLaw | None
) -> Iterator[Finding]:
    """What decides: length and agreement of the chains, and the posterior's density."""
    wide, narrow = (kept, None) if isinstance(kept, WideLaw) else (None, kept)
    weighted = _tried(lambda: around.weighted)
    looks = (
        ("length", lambda: length(subject)),
        ("stationary", lambda: stationary(subject)),
        ("R-hat, ESS", lambda: wide_chains(subject) if wide else chains_agree(subject)),
        (
            "moved draws",
            lambda: wide_moved(subject, wide) if wide else moved_draws(subject, narrow),
        ),
        ("measured distance", lambda: measured_distance(subject, weighted)),
        ("other modes", lambda: modes_finding(subject, around.modes)),
        ("gradient", lambda: gradient_of_density(subject)),
        ("whole network", lambda: network_as_a_whole(subject)),
    )
    for name, look in looks:
        if (found := _looked(name, look)) is not None:
            yield found


def _explanations(subject: Subject) -> list[Finding]:
    """What theory says, and which of its assumptions hold."""
    looks = (
        ("as predicted", lambda: [as_predicted(subject)]),
        ("predicted distance", lambda: [predicted_distance(subject)]),
        ("assumptions", lambda: assumptions(subject)),
        ("effects near zero", lambda: [effects_near_zero(subject)]),
    )
    found = []
    for name, look in looks:
        try:
            found += [finding for finding in look() if finding is not None]
        except Exception as error:
            found.append(_failed(name, error))
    return found


def _settled(findings: list[Finding]) -> bool:
    """Whether the density was looked at closely and nothing was found: then it does not matter what
    theory's assumptions would say, nor what gradient the sampler followed.
    """
    levels = {finding.name: finding.level for finding in findings if finding.name != GRADIENT}
    return levels.get("moved draws") == "trusted" and worst(*levels.values()) != "not trusted"


def _excused(found: Finding) -> Finding:
    """A gradient that is not the slope, where it did not harm: NUTS corrects for it, and others may
    not use it where it is wrong.
    """
    harmless = found.name == GRADIENT and found.level == "not trusted"
    return replace(found, level="caution") if harmless else found


def _unsound(subject: Subject) -> Finding:
    remedy = "run again with smaller steps, or in float64; see what the model's log density returns"
    return Finding("draws", "not trusted", np.nan, np.nan, subject.unsound, remedy)


def _compared(findings: list[Finding]) -> bool:
    """Whether the draws were compared with the posterior's density closely enough to tell."""
    looks = ("moved draws", "measured distance")
    return any(found.name in looks and found.level in LEVELS for found in findings)


def _not_compared(subject: Subject) -> Finding:
    if subject.model is None:
        reason, remedy = "a file holds no data", "give the model: check(model=…)"
    else:
        reason, remedy = "it would take too many passes", "compare with another sampler"
    sentence = f"the draws were not compared with the posterior's density: {reason}"
    return Finding("density", "caution", np.nan, np.nan, sentence, remedy)


def _looked(name: str, look: Callable[[], Finding | None]) -> Finding | None:
    """A look must never keep the others from being taken: a verdict matters most where draws are
    worst.
    """
    try:
        return look()
    except Exception as error:
        return _failed(name, error)


def _tried(make: Callable[[], Made | None]) -> Made | None:
    try:
        return make()
    except Exception:
        return None


def _failed(name: str, error: Exception) -> Finding:
    said = (str(error).strip() or "no message").splitlines()[0]
    sentence = f"could not be checked: {type(error).__name__}: {said}"
    return Finding(name, "caution", np.nan, np.nan, sentence)
