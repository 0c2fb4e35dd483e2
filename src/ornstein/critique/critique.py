"""The critique: whether the model fits its data, apart from whether the draws can be trusted."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein import markup
from ornstein.checks import printable
from ornstein.critique.calibration import calibration
from ornstein.critique.dispersion import dispersion
from ornstein.critique.evidence import Evidence
from ornstein.critique.finding import LEVELS, SKIPPED, Finding, skipped
from ornstein.critique.influence import influence
from ornstein.critique.information import information
from ornstein.critique.prior import prior
from ornstein.critique.spread import spread
from ornstein.critique.tails import tails
from ornstein.critique.trend import link, trend
from ornstein.critique.zeros import zeros
from ornstein.errors import InputError
from ornstein.model.regression import GLM
from ornstein.posterior.own_model import model_of

if TYPE_CHECKING:
    from ornstein.model.model import Model
    from ornstein.posterior.posterior import Posterior

MARKS = {"fits": "ok", "doubtful": "??", "does not fit": "NO", SKIPPED: "--"}
MEANING = {
    "fits": "The data look as the model says they would.",
    "doubtful": "The model misses something. Read what is marked ??.",
    "does not fit": "The model does not describe these data. Read what is marked NO.",
    SKIPPED: "The rows could not be checked.",
}
WIDTH, ROWS = 120, "rows"
LOOKS = (dispersion, zeros, calibration, tails, trend, link, spread, influence)


@dataclass(frozen=True)
class Critique:
    """Whether the model fits; prints as a table.

    >>> print(Critique((Finding("zeros", "fits", 0.0, 0.03, "3.0 % of the outcomes are zero"),)))
    Model: fits. The data look as the model says they would.
      [ok] zeros  3.0 % of the outcomes are zero
    """

    findings: tuple[Finding, ...]

    @property
    def level(self) -> str:
        """The worst level of any finding; "skipped" where none was raised and the rows were not
        looked at.
        """
        levels = [finding.level for finding in self.findings if finding.level in LEVELS]
        worst = max(levels, key=LEVELS.index, default=SKIPPED)
        unseen = any(one.name == ROWS and one.level == SKIPPED for one in self.findings)
        return SKIPPED if unseen and worst == LEVELS[0] else worst

    @property
    def fits(self) -> bool:
        return self.level == "fits"

    @property
    def remedies(self) -> tuple[str, ...]:
        """What to do, the worst findings first."""
        raised = [finding for finding in self.findings if finding.level in LEVELS[1:]]
        raised.sort(key=lambda finding: -LEVELS.index(finding.level))
        return tuple(dict.fromkeys(finding.remedy for finding in raised if finding.remedy))

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __getitem__(self, name: str) -> Finding:
        """The finding of this name."""
        for finding in self.findings:
            if finding.name == name:
                return finding
        names = [finding.name for finding in self.findings]
        raise InputError(f"there is no finding {name!r}; there are {names}")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON: NaN and infinity become None."""
        rows = [asdict(finding) for finding in self.findings]
        for row in rows:
            row.update({key: None for key in ("number", "bound") if not np.isfinite(row[key])})
        return {"level": self.level, "findings": rows}

    def __str__(self) -> str:
        width = max((len(finding.name) for finding in self.findings), default=0)
        lines = [f"Model: {self.level}. {MEANING[self.level]}"]
        for finding in self.findings:
            lead = f"  [{MARKS[finding.level]}] {finding.name:<{width}}  "
            under = " " * len(lead)
            lines += textwrap.wrap(
                finding.sentence, WIDTH, initial_indent=lead, subsequent_indent=under
            )
            if finding.remedy:
                lines.append(f"{under}→ {finding.remedy}")
        return "\n".join(printable(line, None) for line in lines)

    def __repr__(self) -> str:
        return f"Critique({self.level}, {len(self.findings)} findings)"

    def _repr_html_(self) -> str:
        found = [(one.name, one.level, one.sentence, one.remedy) for one in self.findings]
        return markup.findings("Model", self.level, found)


def critique(posterior: Posterior, model: Model | None = None, *, seed: int = 0) -> Critique:
    """Look at whether the model fits the rows that it holds."""
    model = model_of(posterior, model)
    if model is None:
        reason = "it needs the data, which a saved file does not hold: critique(model=…)"
        return Critique((skipped("data", reason),))
    found = [_looked("prior", lambda: prior(posterior, model))]
    found.insert(0, _looked("information", lambda: information(posterior)))
    return Critique(tuple(item for item in [*_by_rows(posterior, model, seed), *found] if item))


def _by_rows(posterior: Posterior, model: Model, seed: int) -> list[Finding | None]:
    """The findings that look at rows: those of regressions."""
    if not isinstance(model, GLM):
        return [skipped(ROWS, "it needs a regression with one predictor (orn.glm, orn.regress)")]
    evidence = Evidence.of(posterior, model, seed)
    return [_looked(look.__name__, partial(look, evidence)) for look in LOOKS]


def _looked(name: str, look: Callable[[], Finding | None]) -> Finding | None:
    """A look must not keep the others from being taken."""
    try:
        return look()
    except Exception as error:
        said = (str(error).strip() or "no message").splitlines()[0]
        return skipped(name, f"could not be checked: {type(error).__name__}: {said}")
