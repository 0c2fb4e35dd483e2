"""The verdict: a few findings, each with its number, its bound and what to do, and one word for all of them.

"trusted": nothing speaks against it. "caution": something does, read it. "not trusted": the draws are not those of the
posterior, or there are too few to tell. Bounds and their reasons are in thresholds.py.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.diagnostics.agreement import as_predicted
from ornstein.diagnostics.assumptions import assumptions
from ornstein.diagnostics.convergence import chains_agree, length, stationary
from ornstein.diagnostics.distance import predicted_distance
from ornstein.diagnostics.finding import LEVELS, SKIPPED, Finding, worst
from ornstein.diagnostics.importance import draws_gaussian, measured_distance
from ornstein.diagnostics.subject import Subject
from ornstein.errors import InputError, TrustWarning

if TYPE_CHECKING:
    from ornstein.model import Model
    from ornstein.posterior import Posterior

MARKS = {"trusted": "ok", "caution": "??", "not trusted": "NO", SKIPPED: "--"}
MEANING = {
    "trusted": "Nothing speaks against taking these draws for the posterior.",
    "caution": "Usable with care; read what is marked ??.",
    "not trusted": "Do not take these draws for the posterior; see what is marked NO.",
}
WIDTH = 120


@dataclass(frozen=True)
class Verdict:
    """Whether the answer can be trusted; prints as a table.

    >>> Verdict(
    ...     (
    ...         Finding(
    ...             "length",
    ...             "caution",
    ...             12.0,
    ...             100.0,
    ...             "each chain is 12 relaxation times long",
    ...             "run longer",
    ...         ),
    ...     )
    ... )
    Verdict: caution. Usable with care; read what is marked ??.
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
        """Raise a TrustWarning that names what speaks against the answer; nothing where it is trusted."""
        raised = [finding for finding in self.findings if finding.level in LEVELS[1:]]
        if raised:
            said = "; ".join(f"{finding.name}: {finding.sentence}" for finding in raised)
            warnings.warn(f"{self.level}: {said}", TrustWarning, stacklevel=stacklevel)

    def __str__(self) -> str:
        return self._table(details=False)

    def explain(self) -> str:
        """The table with every finding's details, those that are content too."""
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

    __repr__ = __str__


def _wrapped(text: str, first: str, following: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=following, break_long_words=False
    )


def check(
    posterior: Posterior, model: Model | None = None, *, stein: bool | int = False, seed: int = 0
) -> Verdict:
    """Look at a posterior from all sides; see `Posterior.check`."""
    if model is not None and model.dim != posterior.mean.size:
        raise InputError(
            f"the model has {model.dim} parameters, the posterior {posterior.mean.size}"
        )
    subject = Subject(posterior, model if model is not None else posterior.model, seed)
    weighted = draws_gaussian(subject)
    findings = [
        length(subject),
        stationary(subject),
        chains_agree(subject),
        as_predicted(subject),
        predicted_distance(subject),
        measured_distance(subject, weighted),
        *assumptions(subject, weighted),
    ]
    if stein:
        from ornstein.diagnostics.stein import stein_discrepancy

        findings.append(stein_discrepancy(subject, None if stein is True else stein))
    return Verdict(tuple(finding for finding in findings if finding is not None))
