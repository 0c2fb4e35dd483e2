"""Predictions and leave-one-out of a million rows, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
from peak_memory import with_tests

PREDICT = """
    import json, time
    import numpy as np
    import ornstein as orn
    from peak_memory import peak

    rng = np.random.default_rng(0)
    X = rng.standard_normal((2_000, 50))
    y = rng.uniform(size=2_000) < 0.5
    model = orn.glm(X, y, "bernoulli")
    draws = 0.1 * rng.standard_normal((4, 250, model.dim))
    post = orn.Posterior(draws, model.names, model.layout, {}, predict_function=model.predict)
    post.predict(X).interval()
    rows = rng.standard_normal((1_000_000, 50))
    idle, began = peak(), time.perf_counter()
    found = post.predict(rows)
    mean, (low, high) = found.mean, found.interval()
    taken = time.perf_counter() - began
    assert mean.shape == (1_000_000,) and np.all((low <= mean) & (mean <= high))
    u = rows[7] @ draws.reshape(1000, -1)[:, :50].T + draws.reshape(1000, -1)[:, 50]
    assert abs(mean[7] - np.mean(1 / (1 + np.exp(-u)))) < 1e-12
    print(json.dumps({"GB": (peak() - idle) / 2**30, "seconds": taken}))
"""
LOO = """
    import json, time
    import numpy as np
    import ornstein as orn
    from peak_memory import peak

    rng = np.random.default_rng(0)
    X = rng.standard_normal((1_000_000, 3))
    y = rng.poisson(np.exp(0.3 + X @ [0.2, -0.1, 0.3]))
    model = orn.glm(X, y, "poisson")
    post = orn.laplace(model, draws=250, chains=2, seed=0)
    idle, began = peak(), time.perf_counter()
    some = post.loo(subset=1000)
    taken = time.perf_counter() - began
    high = (peak() - idle) / 2**30
    # all rows, a part at a time, at the same draws
    from ornstein.posterior.loo import _smoothed
    from ornstein.posterior.pointwise import Pointwise
    flat = post.draws.reshape(-1, post.draws.shape[-1])
    parts = np.array_split(np.arange(1_000_000), 20)
    whole = sum(_smoothed(Pointwise(model).at(flat, part, post.mean))[0].sum() for part in parts)
    away = abs(some.elpd - whole) / some.subsampling_se
    print(json.dumps({"GB": high, "seconds": taken, "away": away, "se": some.subsampling_se}))
"""


def measured(code: str) -> dict[str, float]:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        env=with_tests(),
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    print(found)
    return found


@pytest.mark.nightly
def test_a_million_rows_are_predicted_within_two_gigabytes():
    assert measured(PREDICT)["GB"] < 2.0


@pytest.mark.nightly
def test_the_subsampled_leave_one_out_of_a_million_rows():
    """Within its own standard error of that of all rows, in 1 GB."""
    found = measured(LOO)
    assert found["GB"] < 1.0
    assert found["away"] < 1.0
