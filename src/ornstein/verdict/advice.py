"""What to do about draws that are not those of the posterior."""

from __future__ import annotations

from ornstein.verdict.subject import Subject

# Ways that are exact in law: what is wrong with their draws, no other way mends.
EXACT = ("nuts", "hmc")


def another_way(subject: Subject) -> tuple[str, str]:
    """In words, and as options of `ornstein fit`."""
    made_by = str(subject.posterior.settings.get("sampler", ""))
    if made_by.startswith(EXACT):
        draws = 4 * subject.posterior.draws.shape[1]
        return (
            f"take longer chains and shorter steps: orn.nuts(model, draws={draws},"
            " target_accept=0.95)"
        ), ""
    return "the draws are not those of the posterior: use orn.nuts(model)", "--sampler nuts"
