"""Seconds that a user waits before anything happens, each in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

FIRST_FIT = """
from benchmarks.steps import model_of
from benchmarks.tasks import TASKS
import ornstein as orn
orn.sample(model_of(TASKS[0]), batch_size=100, draws=100, progress=False)
"""


def startup_times(rounds: int = 3) -> dict[str, float]:
    """Best of a few runs: the bare interpreter, the import, and a first fit of T1, compiled anew or
    kept from before.
    """
    programs = {
        "python alone": "",
        "import ornstein": "import ornstein",
        "first fit of T1": FIRST_FIT,
    }
    found = {
        what: min(_seconds(program) for _ in range(rounds)) for what, program in programs.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        program = f"import ornstein as orn\norn.cache_compilations({folder!r})\n{FIRST_FIT}"
        _seconds(program)  # fills the folder
        found["first fit of T1 with cache_compilations"] = min(
            _seconds(program) for _ in range(rounds)
        )
    return found


def _seconds(program: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    return time.perf_counter() - started
