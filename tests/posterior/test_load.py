"""Many fits at once, and many one after another: the same results, and no memory left behind."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import regression_data
from small_fits import fit

import ornstein as orn


def at_once(count, workers):
    alone = [fit(number) for number in range(count)]
    with ThreadPoolExecutor(workers) as pool:
        together = list(pool.map(fit, range(count)))
    for number, (some, other) in enumerate(zip(alone, together, strict=True)):
        np.testing.assert_array_equal(some, other, err_msg=f"fit {number}")


def test_fits_from_threads_are_those_made_alone():
    at_once(6, 6)


def test_threads_of_different_precision_do_not_disturb_each_other():
    X, y = regression_data(80, 2)

    def mixed(number):
        dtype = ("float32", "float64")[number % 2]
        return orn.sample(
            orn.glm(X, y, prior_precision=1.0),
            orn.ConstantSGD("full"),
            draws=10,
            thin=5,
            warmup=20,
            batch_size=8,
            dtype=dtype,
            progress=False,
        ).draws

    alone = [mixed(number) for number in range(2)]
    with ThreadPoolExecutor(8) as pool:
        for number, draws in enumerate(pool.map(mixed, range(8))):
            np.testing.assert_array_equal(draws, alone[number % 2])


@pytest.mark.slow
def test_64_fits_from_threads():
    at_once(64, 64)


@pytest.mark.slow
def test_64_fits_from_processes():
    alone = [fit(number) for number in range(64)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(4, mp_context=context) as pool:
        together = list(pool.map(fit, range(64)))
    for some, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(some, other)


class Heap(ctypes.Structure):
    """`struct mallinfo2` of glibc; of its numbers, `blocks` and `mapped` are the bytes in use, in
    and beside its arenas.
    """

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "free",
            "small",
            "maps",
            "mapped",
            "most",
            "kept",
            "blocks",
            "unused",
            "top",
        )
    ]


def in_use():
    """Bytes that the process has asked for and not given back."""
    mallinfo2 = ctypes.CDLL("libc.so.6").mallinfo2
    mallinfo2.restype = Heap
    heap = mallinfo2()
    return heap.blocks + heap.mapped


def resident():
    """Bytes of memory this process holds now, compiled code among them, what the allocator kept for
    later given back before.
    """
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def new_model(number):
    """A function that JAX has not seen before: nothing compiled earlier can be used again."""

    def log_likelihood(theta, x):
        return -0.5 * (x - theta) ** 2 - 0.001 * number * theta

    data = np.random.default_rng(number).normal(size=50)
    return orn.Model(log_likelihood, data, lambda theta: -0.5 * theta**2, init=jnp.zeros(()))


def grown_after(fits, warm, make, size):
    """Bytes by which the process's `size` has grown over `fits` fits, after the first `warm` have
    filled what is bounded.

    The least of ten readings each: single ones hold blocks that are just being freed.
    """
    options = {"draws": 4, "chains": 1, "thin": 1, "warmup": 2, "batch_size": 5, "progress": False}
    readings = {}
    for number in range(fits):
        orn.sample(make(number), orn.ConstantSGD("full"), **options)
        if warm - 10 <= number < warm or number >= fits - 10:
            gc.collect()
            readings[number] = size()
    before, after = (
        min(readings[number] for number in range(end - 10, end)) for end in (warm, fits)
    )
    return after - before


@pytest.mark.slow
def test_the_same_model_over_and_over_does_not_grow():
    # Measured: 10 kB a fit in JAX's own tables. One block of indices (4 MB) unforgotten a fit would
    # be 160 MB.
    X, y = regression_data(80, 2)
    assert grown_after(60, 20, lambda number: orn.glm(X, y, prior_precision=1.0), in_use) < 2e6


@pytest.mark.slow
def test_200_different_models_in_one_process_do_not_grow():
    # Measured: about 20 MB of compiled code each, 1.6 MB for the smallest function; one of those
    # unforgotten a fit would be 220 MB.
    assert grown_after(200, 60, new_model, resident) < 30e6
