"""What lies around the draws: points weighted by the posterior, and other modes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ornstein.verdict.importance import Weighted, draws_gaussian
from ornstein.verdict.modes import Mode, other_modes
from ornstein.verdict.subject import Subject


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Where the draws of a subject are not."""

    subject: Subject

    @cached_property
    def weighted(self) -> Weighted | None:
        """The draws' Gaussian, weighted by the posterior."""
        return draws_gaussian(self.subject)

    @cached_property
    def modes(self) -> tuple[Mode, ...] | None:
        """Modes that no draw is near."""
        return other_modes(self.subject, self.weighted)
