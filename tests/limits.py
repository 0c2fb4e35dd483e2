"""Disks that are full, and processes of their own to meet them in."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest
from helpers import ROOT

OPEN_TO_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


@contextmanager
def small_disk(folder, size):
    """A file system of `size` bytes at `folder`; the test skips where it may not be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no command to mount a small disk with")
    if done.returncode:
        pytest.skip(f"a small disk needs root to be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def child(code, *arguments, **options):
    """A Python process that runs `code`, open to Ctrl-C even where the tests run in the
    background.
    """
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, **options.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-c", OPEN_TO_INTERRUPTS + code, *map(str, arguments)],
        env=environment,
        errors="backslashreplace",
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )


def finished(process, timeout=120):
    """The exit code, stdout and stderr."""
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err
