"""A likelihood with a factorisation in it, over many examples: it must come to an end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import jax, jax.numpy as jnp, numpy as np
import ornstein as orn
from ornstein.curvature.autodiff import Autodiff

y = np.random.default_rng(0).normal(size=(60_000, 2))
y += np.random.default_rng(1).normal(size=(60_000, 1))

def log_likelihood(params, group):
    noise, groups = jnp.exp(params["noise"]), jnp.exp(params["groups"])
    covariance = noise * jnp.eye(2) + groups * jnp.ones((2, 2))
    factor = jnp.linalg.cholesky(covariance + 0.0 * group[0])
    rest = jax.scipy.linalg.solve_triangular(factor, group, lower=True)
    return -0.5 * rest @ rest - jnp.sum(jnp.log(jnp.diagonal(factor)))

zero = np.zeros(())
model = orn.Model(log_likelihood, y, init={"noise": zero, "groups": zero})
derivatives = Autodiff(model)
value, slope = derivatives.value_and_gradient(model.init)
first, second = derivatives.gradient_moments(model.init)
single = np.concatenate(list(derivatives.example_gradients(model.init)))
assert np.allclose(single.mean(axis=0), slope) and np.allclose(first, slope)
print("done")
"""


def test_it_ends_in_a_process_of_its_own():
    source = Path(__file__).resolve().parents[2] / "src"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.stdout.strip() == "done", run.stderr
