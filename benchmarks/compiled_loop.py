"""The hand-written C++ loop, compiled on the fly."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.steps import Stepper
from benchmarks.tasks import Task

SOURCE = Path(__file__).with_name("loop.cpp")


def available() -> bool:
    return shutil.which("g++") is not None


@cache
def _library() -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp(prefix="ornstein-bench-"))
    target = folder / "loop.so"
    command = [
        "g++",
        "-O3",
        "-march=native",
        "-ffast-math",
        "-shared",
        "-fPIC",
        "-o",
        str(target),
        str(SOURCE),
    ]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(target))


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def on_every_core(task: Task) -> Stepper:
    """A loop on each core at once: the seconds that one step of all of them takes, divided by their
    number.
    """
    cores = os.cpu_count() or 1
    loops = [compiled_steps(task) for _ in range(cores)]

    def timed(count: int) -> float:
        with ThreadPoolExecutor(cores) as pool:
            return max(pool.map(lambda loop: loop(count), loops)) / cores

    return timed


def compiled_steps(task: Task) -> Stepper:
    features, response = task.data()
    theta = np.zeros((task.columns, task.classes), dtype=np.float32)
    tail = (ctypes.c_float(1e-4), ctypes.c_float(1.0 / task.rows))

    def timed(count: int) -> float:
        shape = (ctypes.c_int64(task.rows), ctypes.c_int(task.columns))
        end = (ctypes.c_int64(count), ctypes.c_uint64(1), _pointer(theta))
        started = time.perf_counter()
        if task.family == "categorical":
            _library().softmax_sgd(
                _pointer(features),
                _pointer(response),
                *shape,
                ctypes.c_int(task.classes),
                ctypes.c_int(task.batch_size),
                *tail,
                *end,
            )
        else:
            family = ctypes.c_int(0 if task.family == "gaussian" else 1)
            _library().scalar_sgd(
                family,
                _pointer(features),
                _pointer(response),
                *shape,
                ctypes.c_int(task.batch_size),
                *tail,
                *end,
            )
        return time.perf_counter() - started

    return timed
