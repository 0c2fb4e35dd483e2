"""Each section's raw results as a JSON file, so that sections can be run apart and the page put
together from them.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("results")
SECTIONS = ("steps", "chains", "startup", "posterior", "growth")


def save(section: str, result: Any) -> Path:
    """Write one section's numbers, with the day and the kind of machine."""
    FOLDER.mkdir(exist_ok=True)
    machine = {
        "date": f"{datetime.date.today():%Y-%m-%d}",
        "cores": os.cpu_count(),
        "machine": platform.machine(),
    }
    path = FOLDER / f"{section}.json"
    path.write_text(json.dumps({**machine, "result": result}, indent=1) + "\n", encoding="utf-8")
    return path


def load(section: str) -> dict[str, Any] | None:
    """What `save` wrote, or None where the section has not been run."""
    path = FOLDER / f"{section}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
