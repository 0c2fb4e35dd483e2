"""The regression guard: ratios of a short run beside those stored, never absolute times; information, never a failure."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from benchmarks.comparison import competitors, show
from benchmarks.steps import interleaved
from benchmarks.tasks import TASKS

STORED = Path(__file__).with_name("stored_ratios.json")
ALERT = 1.5


def guard(console: Console, store: bool = False) -> None:
    """T1 and T2: how many times faster than blackjax SGLD; an alert where that fell by more than 1.5×."""
    found = {}
    for task in TASKS[:3]:
        result = interleaved(competitors(task, with_peers=False)[0], seconds=0.15, rounds=5)
        show(console, task, result)
        found[task.name] = {name: result["blackjax SGLD"] / value for name, value in result.items()}
    if store or not STORED.exists():
        STORED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        console.print(f"stored these ratios in {STORED.name}")
        return
    alerts = fallen(json.loads(STORED.read_text(encoding="utf-8")), found)
    console.print(
        "\n".join(["slower than stored by more than 1.5×:", *alerts]) if alerts else "no ratio fell by more than 1.5×"
    )


def fallen(stored: dict[str, dict[str, float]], found: dict[str, dict[str, float]]) -> list[str]:
    """The ratios of ornstein that are lower than stored by more than `ALERT`, in words."""
    return [
        f"{task}: {name} was {before:.1f} times faster than blackjax SGLD, now {found[task][name]:.1f}"
        for task, names in stored.items()
        for name, before in names.items()
        if name.startswith("ornstein") and found[task][name] * ALERT < before
    ]
