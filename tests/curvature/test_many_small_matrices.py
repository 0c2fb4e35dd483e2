"""A likelihood with a factorisation in it, over many examples: it must come to an end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ornstein as orn
from ornstein.compute.precision import width
from ornstein.model import loss
from ornstein.model.loss import Problem

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


def test_many_rows_are_looked_at_in_turns(monkeypatch):
    """Values and slopes by turns of five rows are those of all twelve at once."""
    rows = np.random.default_rng(0).normal(size=(12, 3))
    model = orn.Model(
        lambda params, row: -jnp.log1p(jnp.sum((row - params) ** 2)), rows, init=np.full(3, 0.2)
    )

    def found():
        with width("float64"):
            problem = Problem(None, {}, np.asarray(12.0), model.init, model.init)
            summed = jax.value_and_grad(
                lambda move: jnp.sum(model.loss.log_likelihoods(problem, move, rows))
            )
            text = str(jax.make_jaxpr(summed)(np.zeros(3)))
            return *map(np.asarray, summed(np.zeros(3))), "scan" in text

    value, slope, turns = found()
    monkeypatch.setattr(loss, "TOGETHER", 5)
    again, slope_again, turns_again = found()
    assert turns_again and not turns
    assert again == pytest.approx(value, rel=1e-14)
    assert slope_again == pytest.approx(slope, rel=1e-13)


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
