"""Many fits at once, from threads of one process: each has the draws that it has alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from helpers import regression_data

import ornstein as orn
from ornstein.compute import one_thread

FITS = 64


def fit(number, **more):
    X, y = regression_data(200, 3, seed=number)  # data of their own, compiled code in common
    model = orn.glm(X, y, noise_scale=1.0, prior_precision=1.0)
    return orn.sample(
        model,
        orn.SGLD() if number % 8 == 3 else orn.ConstantSGD("full"),
        draws=30,
        chains=2,
        batch_size=10,
        warmup=100,
        thin=20,
        seed=number,
        dtype="float64" if number % 8 == 5 else "float32",
        progress=False,
        **more,
    )


def test_sixty_four_fits_at_once(tmp_path):
    alone = [fit(number) for number in range(FITS)]
    together: list = [None] * FITS
    start = threading.Barrier(FITS)

    def one(number):
        start.wait(60)
        kept = {"checkpoint": tmp_path / str(number), "every": 0.05} if number % 4 == 0 else {}
        together[number] = fit(number, **kept)

    with ThreadPoolExecutor(FITS) as pool:
        list(pool.map(one, range(FITS)))
    for number, (some, other) in enumerate(zip(alone, together, strict=True)):
        np.testing.assert_array_equal(some.draws, other.draws, err_msg=f"fit {number}")
        np.testing.assert_array_equal(some.covariance, other.covariance)
    assert one_thread._inside == 0 and one_thread._limits is None
