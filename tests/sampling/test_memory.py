"""Peak memory of a whole fit, measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from peak_memory import with_tests

import ornstein as orn
from ornstein.engine.chain import Kept
from ornstein.sampling.warmup import Tuned, WarmUp

N, D = 1_000_000, 100
CHILD = f"""
import json, sys
import numpy as np
from peak_memory import peak

import jax, scipy.linalg, scipy.optimize, scipy.sparse
import ornstein as orn
model = orn.glm(np.eye(60, 3), np.arange(60.0), noise_scale=1.0)
orn.sample(model, orn.ConstantSGD("full"), draws=5, warmup=0, progress=False)  # compilers loaded
baseline = peak()
rng = np.random.default_rng(0)
X = np.empty(({N}, {D}), dtype=np.float32)
for start in range(0, {N}, 10_000):
    X[start : start + 10_000] = rng.normal(size=(10_000, {D}))
y = X[:, 0] + rng.normal(size={N}).astype(np.float32)
data = X.nbytes + y.nbytes
with_data = peak()
post = orn.sample(orn.glm(X, y), orn.ConstantSGD("full"), batch_size=200, draws=20, chains=2,
                  thin=50, warmup=100, progress=False)
assert np.all(np.isfinite(post.draws))
print(json.dumps({{"baseline": baseline, "data": data, "with_data": with_data, "peak": peak()}}))
"""


@pytest.mark.slow
def test_sampling_a_million_rows_stays_below_twice_the_data():
    """The user's copy, the device's copy, and 300 MB for everything else."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        capture_output=True,
        text=True,
        check=False,
        env=with_tests(),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    sizes = json.loads(done.stdout.splitlines()[-1])
    above = sizes["peak"] - sizes["baseline"]
    assert above < 2 * sizes["data"] + 300e6, (
        f"{above / 1e6:.0f} MB above the baseline, for {sizes['data'] / 1e6:.0f} MB of data"
    )


WIDE = """
import json, sys, warnings
import numpy as np, scipy.sparse
from peak_memory import peak

warnings.simplefilter("ignore")
import ornstein as orn
rows, columns, entries = 20_000, 131_072, 40
rng = np.random.default_rng(0)
places = rng.integers(0, columns, size=rows * entries)
X = scipy.sparse.csr_array(
    (rng.normal(size=rows * entries), places, np.arange(0, rows * entries + 1, entries)),
    shape=(rows, columns),
)
signal = X @ np.where(np.arange(columns) < 200, rng.normal(size=columns), 0.0)
noise = rng.logistic(size=rows)
if {family!r} == "gaussian":
    model = orn.glm(X, signal + noise, noise_scale=2.0, prior_precision=100.0)
else:
    model = orn.glm(X, signal + noise > 0, "bernoulli")
post = orn.sample(model, orn.ConstantSGD("full"), draws=50, chains=4, progress=False,
                  max_steps={max_steps})
assert post.draws.shape == (4, 50, columns + 1) and np.all(np.isfinite(post.draws))
after_fit = peak()
level = post.check().level
after_check = peak()
assert np.all(np.isfinite(post.predict(X[:5_000]).mean))
after_predict = peak()
print(json.dumps({{"fit": after_fit, "check": after_check, "level": level,
                   "predict": after_predict, "warmup": post.settings["warmup"]}}))
"""


def wide_fit(family, max_steps):
    """Peak bytes of a process that fits, checks and predicts with 131,072 sparse columns."""
    script = WIDE.format(family=family, max_steps=max_steps)
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=with_tests(),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_short_fit_of_many_sparse_columns_stays_below_2_gb():
    """Positions of one round of warm-up alone, 125 a chain, would be 525 MB, and four times that
    while they are put together and looked at.
    """
    sizes = wide_fit("bernoulli", max_steps=1_000)
    assert sizes["warmup"] == 125
    assert sizes["predict"] < 2e9, sizes


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_a_fit_of_many_sparse_columns_stays_below_2_gb(family):
    sizes = wide_fit(family, max_steps=20_000_000)
    assert sizes["predict"] < 2e9, sizes


def test_warm_up_keeps_two_numbers_per_position():
    """The same memory whatever the round: it grows with positions, not with positions times
    parameters.
    """
    X = np.random.default_rng(0).normal(size=(50, 2_000))
    curvature = orn.Curvature(np.zeros(2_000), np.ones(2_000), np.ones(2_000), 1_000_000)
    dynamics = orn.ConstantSGD("diagonal").tune(curvature, batch_size=100)
    tuned = Tuned(dynamics, curvature, dynamics.predict(curvature))
    state = WarmUp(tuned, 4_000, True, chains=4, stride=20, dtype="float32", retunes=True)
    sizes = []
    for attempt in range(4):
        state.attempt = attempt
        state.begin_round()
        for chain in range(4):
            for _ in range(state.keeps // len(X)):
                state.receive(chain, Kept(X, None, 0))
        assert state.round is not None and np.all(state.round.count + state.round.waiting > 0)
        sizes.append(sum(array.nbytes for array in state.state()["round"].values()))
    assert sizes[0] < 10e6 < 8 * 4 * 200 * X.shape[1]
    assert sizes[3] - sizes[0] == 2 * 8 * 4 * (1600 - 200)
