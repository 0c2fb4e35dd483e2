"""The regression guard: ratios of a short run beside those stored, never absolute times;
information, never a failure.
"""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from benchmarks.comparison import competitors, show
from benchmarks.steps import interleaved
from benchmarks.tasks import TASKS

STORED = Path(__file__).with_name("stored_ratios.json")
REFERENCES = ("C++ loop, scalar", "blackjax SGLD")
ALERT = 1.5
# task -> reference -> form of ornstein -> times faster than the reference
Ratios = dict[str, dict[str, dict[str, float]]]


def guard(console: Console, store: bool = False) -> None:
    """T1 and T2 beside the C++ loop and blackjax SGLD; an alert where ornstein fell behind both by
    more than 1.5×.
    """
    found: Ratios = {}
    for task in TASKS[:3]:
        everyone, _ = competitors(task, with_peers=False)
        result = interleaved(everyone, seconds=0.1, rounds=6)
        show(console, task, result)
        found[task.name] = {
            reference: {
                name: result[reference] / value
                for name, value in result.items()
                if name.startswith("ornstein")
            }
            for reference in REFERENCES
            if reference in result
        }
    if store or not STORED.exists():
        STORED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        console.print(f"stored these ratios in {STORED.name}")
        return
    alerts = fallen(json.loads(STORED.read_text(encoding="utf-8")), found)
    console.print(
        "\n".join(["slower than stored by more than 1.5×:", *alerts])
        if alerts
        else "no ratio fell by more than 1.5×"
    )


def fallen(stored: Ratios, found: Ratios) -> list[str]:
    """Where ornstein is slower than stored beside every reference, in words; beside one alone, that
    one has grown faster.
    """
    alerts = []
    for task, references in stored.items():
        shared = [reference for reference in references if reference in found[task]]
        for name in references[shared[0]] if shared else ():
            kept = {
                reference: found[task][reference][name] / references[reference][name]
                for reference in shared
            }
            if max(kept.values()) * ALERT < 1.0:
                beside = ", ".join(
                    f"{1.0 / part:.1f}× beside the {reference}" for reference, part in kept.items()
                )
                alerts.append(f"{task}: {name} is slower by {beside}")
    return alerts
