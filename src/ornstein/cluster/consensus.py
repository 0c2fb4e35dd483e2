"""Draws of shards combined into draws of the whole posterior (Scott et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from ornstein.cluster.store import Part
from ornstein.curvature.curvature import Curvature
from ornstein.model.model import Model
from ornstein.posterior.posterior import Posterior
from ornstein.theory import Gaussian, kl
from ornstein.types import Array, PyTree
from ornstein.verdict.finding import LEVELS, SKIPPED, Finding
from ornstein.verdict.verdict import Verdict

SMALL_KL, LARGE_KL = 0.05, 0.5


def combined(curvature: Curvature, parts: list[Part]) -> tuple[Array, Gaussian]:
    """The consensus of the shards' draws, and its first two moments from all states of the
    shards.
    """
    if all(part.hessian.ndim == part.covariance.ndim == 1 for part in parts):
        return _combined_diagonals(curvature, parts)
    weights = [part.rows * _matrix(part.hessian) for part in parts]
    total = np.linalg.inv(sum(weights))
    shortest = min(part.draws.shape[1] for part in parts)
    draws = np.zeros((parts[0].draws.shape[0], shortest, curvature.dim))
    covariance = np.zeros((curvature.dim, curvature.dim))
    for part, weight in zip(parts, weights, strict=True):
        share = total @ weight
        draws += (part.draws[:, :shortest] - part.mean) @ share.T
        covariance += share @ _matrix(part.covariance) @ share.T
    return curvature.mode + draws, Gaussian(curvature.mode, (covariance + covariance.T) / 2.0)


def _combined_diagonals(curvature: Curvature, parts: list[Part]) -> tuple[Array, Gaussian]:
    """The same where only diagonals are known, in memory O(D)."""
    total = sum(part.rows * part.hessian for part in parts)
    shortest = min(part.draws.shape[1] for part in parts)
    draws = np.zeros((parts[0].draws.shape[0], shortest, curvature.dim))
    variance = np.zeros(curvature.dim)
    for part in parts:
        share = part.rows * part.hessian / total
        draws += (part.draws[:, :shortest] - part.mean) * share
        variance += share**2 * part.covariance
    return curvature.mode + draws, Gaussian(curvature.mode, variance)


def _matrix(values: Array) -> Array:
    return np.diag(values) if values.ndim == 1 else values


def pooled(parts: list[Part]) -> Gaussian:
    """Mean and covariance of all chains' states together; every chain has as many."""
    means = np.stack([part.mean for part in parts])
    within = np.mean([part.covariance for part in parts], axis=0)
    shift = means - means.mean(axis=0)
    between = shift.T @ shift if within.ndim == 2 else np.sum(shift**2, axis=0)
    return Gaussian(means.mean(axis=0), within + between / max(1, len(parts)))


def whole_verdict(parts: list[Part], law: Gaussian, curvature: Curvature) -> Verdict:
    """For every question the worst answer of a shard, and how far the combined draws are from the
    Gaussian at the mode.
    """
    findings = []
    for name in dict.fromkeys(finding["name"] for part in parts for finding in part.findings):
        answers = [
            (number, f)
            for number, part in enumerate(parts)
            for f in part.findings
            if f["name"] == name
        ]
        looked = [answer for answer in answers if answer[1]["level"] != SKIPPED] or answers[:1]
        number, worst = max(
            looked,
            key=lambda answer: (
                LEVELS.index(answer[1]["level"]) if answer[1]["level"] in LEVELS else -1
            ),
        )
        sentence = f"worst of {len(parts)} shards (number {number}): {worst['sentence']}"
        findings.append(Finding(**{**worst, "sentence": sentence}))
    distance = kl(law, curvature.laplace)
    level = (
        "trusted" if distance <= SMALL_KL else "caution" if distance <= LARGE_KL else "not trusted"
    )
    said = (
        f"KL(combined draws ‖ Gaussian at the mode of all rows) = {distance:.2g} (wanted: below"
        f" {SMALL_KL})"
    )
    findings.append(
        Finding(
            "consensus", level, distance, SMALL_KL, said, "use fewer, larger shards or more draws"
        )
    )
    return Verdict(tuple(findings))


@dataclass(frozen=True, eq=False)
class ConsensusPosterior(Posterior):
    """Draws combined from shards; its verdict was made where the rows are."""

    verdict: Verdict = field(default_factory=lambda: Verdict(()))

    def check(
        self,
        model: Model | None = None,
        *,
        stein: bool | int = False,
        seed: int = 0,
        of: Callable[[PyTree], ArrayLike] | None = None,
    ) -> Verdict:
        """The verdicts of the shards and of their combination."""
        return self.verdict if of is None else super().check(model, of=of)
