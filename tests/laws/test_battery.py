"""Every check of battery.py on every sampler of its table."""

from __future__ import annotations

from itertools import product

import battery
import numpy as np
import pytest
from battery import TABLE, TINY

import ornstein as orn

samplers = pytest.mark.parametrize("name", TABLE)
# One of every kind of law. The costly checks run on these always, and on their variants (momentum,
# the paper's tuning, a step of one's own, other targets) among the slow tests.
ALWAYS = {
    f"ConstantSGD {form} discrete μ=1.0" for form in ("scalar", "diagonal", "full", "sqrt")
} | {
    "ConstantSGD full discrete μ=0.3",
    "ConstantSGD full continuous μ=1.0",
    "ConstantSGD full sandwich",
    "SGLD",
    "SGLD exact",
    "SGLD-CV",
    "SGFS full",
    "SGHMC",
    "SGNHT",
    "IASG",
}
# Of these only the numbers differ from another of the above, and so the law, but not the code that
# runs.
SAME_CODE = {
    "ConstantSGD sqrt discrete μ=1.0",
    "ConstantSGD full continuous μ=1.0",
    "ConstantSGD full sandwich",
}
CODE = ALWAYS - SAME_CODE


def slow_beyond(chosen):
    return [
        pytest.param(name, marks=[] if name in chosen else [pytest.mark.slow]) for name in TABLE
    ]


costly = pytest.mark.parametrize("name", slow_beyond(CODE))


def test_what_always_runs_is_in_the_table():
    assert TABLE.keys() >= ALWAYS >= SAME_CODE


@samplers
def test_protocol(name):
    battery.check_protocol(TABLE[name])


@samplers
def test_instability_is_said_not_raised(name):
    battery.check_instability(TABLE[name])


def one_step_cases():
    """Every sampler on both models in both widths; of the variants always the model that is not
    quadratic, in float32.
    """
    for name, model, dtype in product(TABLE, TINY[:2], ("float32", "float64")):
        always = name in CODE or (model, dtype) == ("bernoulli", "float32")
        yield pytest.param(name, model, dtype, marks=[] if always else [pytest.mark.slow])


@pytest.mark.parametrize(("name", "model", "dtype"), list(one_step_cases()))
def test_one_step_law(name, model, dtype):
    battery.check_one_step(TABLE[name], model, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("model", TINY[2:])
@costly
def test_one_step_law_with_a_scale_and_with_a_dead_column(name, model, dtype):
    battery.check_one_step(TABLE[name], model, dtype)


@pytest.mark.parametrize(
    "name", [row for row in slow_beyond(ALWAYS) if TABLE[row.values[0]].stationary]
)
def test_stationary_covariance_on_a_quadratic_model(name):
    battery.check_stationary(TABLE[name], battery.quadratic, batch_size=10)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.stationary])
def test_stationary_covariance_on_logistic_regression(name):
    battery.check_stationary(TABLE[name], battery.logistic, batch_size=40)


@pytest.mark.parametrize(
    "name", ["ConstantSGD full discrete μ=1.0", "ConstantSGD scalar discrete μ=0.3"]
)
def test_stationary_covariance_on_logistic_regression_quickly(name):
    battery.check_stationary(TABLE[name], battery.logistic, batch_size=40)


@costly
def test_a_restored_chain_goes_on_bit_for_bit(name, monkeypatch):
    battery.check_restored(TABLE[name], monkeypatch)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scheme", ["without-replacement", "slices"])
def test_restoring_knows_every_minibatch_scheme_and_width(scheme, dtype, monkeypatch):
    battery.check_restored(
        battery.Row(orn.ConstantSGD("full", damping=0.3)), monkeypatch, dtype, scheme
    )


class Rule:
    """A sampler that always answers with one Dynamics."""

    def __init__(self, **settings):
        self.settings = settings

    def tune(self, curvature, batch_size, scheme="replacement"):
        return orn.Dynamics(batch_size=batch_size, scheme=scheme, **self.settings)


EVERYTHING = {
    "preconditioner": 0.05 * np.array([[1.0, 0.2, 0.0], [0.2, 0.8, 0.1], [0.0, 0.1, 0.5]]),
    "injected": 1e-3 * np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.3]]),
    "damping": 0.4,
    "schedule": lambda step: 1.0 / (1.0 + step / 50.0),
}


def test_restoring_knows_momentum_injected_noise_and_schedules(monkeypatch):
    battery.check_restored(battery.Row(Rule(**EVERYTHING)), monkeypatch)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("control_variates", [False, True])
@pytest.mark.parametrize("form", ["matrix", "diagonal", "scalar"])
def test_one_step_law_of_everything_a_dynamics_can_hold(form, control_variates, dtype):
    settings = dict(EVERYTHING, schedule=lambda step: 0.7 - 0.1 * step)
    for part in ("preconditioner", "injected"):
        whole = 5.0 * EVERYTHING[part]
        settings[part] = {"matrix": whole, "diagonal": np.diagonal(whole), "scalar": whole[0, 0]}[
            form
        ]
    row = battery.Row(Rule(**settings, control_variates=control_variates))
    battery.check_one_step(row, "gaussian, scale inferred", dtype)
    battery.check_one_step(row, "gaussian, dead column", dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_step_law_with_noise_that_enters_with_the_gradient(dtype):
    """R = HGH for a diagonal G, some of it zero: the noise needs no product of its own, and has the
    covariance asked for.
    """
    step = 5.0 * EVERYTHING["preconditioner"]
    injected = step @ np.diag([0.3, 0.0, 2.0]) @ step
    settings = dict(
        EVERYTHING, preconditioner=step, injected=injected, schedule=lambda step: 0.7 - 0.1 * step
    )
    assert orn.Dynamics(batch_size=2, **settings).arrays()["gradient_root"] == pytest.approx(
        np.sqrt([0.3, 0.0, 2.0]), abs=1e-7
    )
    battery.check_one_step(battery.Row(Rule(**settings)), "gaussian, scale inferred", dtype)
    settings["injected"] = injected + 1e-4 * injected[0, 0] * np.eye(3)
    assert set(orn.Dynamics(batch_size=2, **settings).arrays()) == {
        "preconditioner",
        "memory",
        "injected_root",
    }


@costly
def test_same_seed_same_draws(name):
    battery.check_same_seed(TABLE[name])


@costly
def test_saved_and_loaded(name, tmp_path):
    battery.check_stored(TABLE[name], tmp_path)
