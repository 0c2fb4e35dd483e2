"""Peak memory of a whole fit, measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

N, D = 1_000_000, 100
CHILD = f"""
import json, resource, sys
import numpy as np

def peak():
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else 1024 * used

import jax, scipy.linalg, scipy.optimize, scipy.sparse
import ornstein as orn
orn.sample(orn.glm(np.eye(60, 3), np.arange(60.0), noise_scale=1.0), draws=5, warmup=0, progress=False)  # compilers loaded
baseline = peak()
rng = np.random.default_rng(0)
X = np.empty(({N}, {D}), dtype=np.float32)
for start in range(0, {N}, 10_000):
    X[start : start + 10_000] = rng.normal(size=(10_000, {D}))
y = X[:, 0] + rng.normal(size={N}).astype(np.float32)
data = X.nbytes + y.nbytes
with_data = peak()
post = orn.sample(orn.glm(X, y), batch_size=200, draws=20, chains=2, thin=50, warmup=100, progress=False)
assert np.all(np.isfinite(post.draws))
print(json.dumps({{"baseline": baseline, "data": data, "with_data": with_data, "peak": peak()}}))
"""


@pytest.mark.slow
def test_sampling_a_million_rows_stays_below_twice_the_data():
    """The user's copy, the device's copy, and 300 MB for everything else."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    sizes = json.loads(done.stdout.splitlines()[-1])
    above = sizes["peak"] - sizes["baseline"]
    assert above < 2 * sizes["data"] + 300e6, (
        f"{above / 1e6:.0f} MB above the baseline, for {sizes['data'] / 1e6:.0f} MB of data"
    )
