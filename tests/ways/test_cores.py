"""The default call does the same with one core and with two."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

FITS = """
import hashlib, json, os, sys
os.sched_setaffinity(0, json.loads(sys.argv[1]))
import numpy as np
import ornstein as orn

def fit(model, **options):
    answer = orn.sample(model, draws=200, progress=False, **options)
    draws = hashlib.sha256(np.ascontiguousarray(answer.draws).tobytes()).hexdigest()
    return [[one.way, one.verdict, one.passes] for one in answer.history], draws

rng = np.random.default_rng(0)
X = rng.normal(size=(2000, 40))
y = rng.random(2000) < 1 / (1 + np.exp(-X[:, 0]))
logistic = orn.glm(X, y, "bernoulli", prior_precision=1.0)
few = orn.glm(X[:25, :2], rng.poisson(0.3, 25), "poisson", prior_precision=1.0)
print(json.dumps([fit(logistic), fit(logistic, batch_size=50), fit(few)]))
"""


@pytest.mark.slow
def test_one_core_and_two_give_equal_histories_and_draws():
    cores = sorted(os.sched_getaffinity(0))
    environment = {**os.environ, "OMP_NUM_THREADS": "", "OPENBLAS_NUM_THREADS": ""}
    kept = {name: value for name, value in environment.items() if value}
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", FITS, json.dumps(cores[:count])],
                capture_output=True,
                text=True,
                check=True,
                env=kept,
            ).stdout
        )
        for count in (1, 2)
    ]
    assert found[0] == found[1]
    assert len({draws for _, draws in found[0]}) == 3
