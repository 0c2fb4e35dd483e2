"""Networks as a whole: the looks that count elsewhere do not reach all of their posterior."""

from __future__ import annotations

from ornstein.model.network import INSTEAD, SHARE, whole_network
from ornstein.verdict.finding import Finding
from ornstein.verdict.subject import Subject


def network_as_a_whole(subject: Subject) -> Finding | None:
    """At best a caution, whatever the others find; None for other models."""
    if subject.model is None or not (found := whole_network(subject.model)):
        return None
    model = subject.model
    return Finding(
        "whole network",
        "caution",
        float(model.dim),
        model.observations / SHARE,
        found,
        INSTEAD,
        "Each order of the hidden units is a mode of its own, and beside these there are others: no"
        " look at the draws can tell that they miss none that matters for predictions.",
    )
