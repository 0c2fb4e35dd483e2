"""How much memory a process has held at most, for tests that start one; imports next to nothing."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path


def peak() -> int:
    """The largest number of bytes that this process has held.

    Not what `getrusage` tells: that begins with what the process held that started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else 1024 * used


def with_tests() -> dict[str, str]:
    """The environment, for a process that imports from this folder."""
    path = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), path])}
