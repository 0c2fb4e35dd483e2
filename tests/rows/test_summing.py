"""Rows of 8 to 15 numbers: their slopes added up in portions are those of the whole minibatch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ornstein as orn
from ornstein.compute.precision import width
from ornstein.rows import summing
from ornstein.rows.choice import Choice
from ornstein.rows.held import HeldRows

ROUNDING = 1e-13
ROWS, COLUMNS = 60, 11


def model_of(family="gaussian", columns=COLUMNS, extras=False, **settings):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(ROWS, columns))
    y = X[:, 0] + rng.normal(size=ROWS) if family == "gaussian" else rng.integers(0, 2, ROWS)
    if extras:
        settings |= {"weights": rng.random(ROWS) + 0.5, "offset": rng.normal(size=ROWS)}
    return orn.glm(X, y, family, **{"prior_precision": 1.0, **settings})


def gradients(model, batch, change=False):
    """As a step takes it, of rows at indices and of rows handed over; and that of the sum, which
    knows nothing of portions.
    """
    rng = np.random.default_rng(1)
    with width("float64"):
        problem = model.problem("float64", 0.3 * rng.normal(size=model.dim))
        place, rows = (
            0.2 * rng.normal(size=model.dim),
            jax.tree.map(lambda leaf: leaf[batch], problem.data),
        )
        choice = Choice.of(problem.data, model.loss.traits, len(batch), model.dim, 1, "replacement")
        held, fed = (HeldRows.of(data, choice, len(batch)) for data in (problem.data, None))
        slope = model.loss.gradient_change if change else model.loss.gradient
        whole = jax.grad(model.loss.minibatch, argnums=1)

        @jax.jit
        def all_three(problem, place, rows):
            found = (
                slope(problem._replace(data=held), place, batch),
                slope(problem._replace(data=fed), place, rows),
            )
            return found, whole(problem, place, rows) - (
                whole(problem, 0.0 * place, rows) if change else 0.0
            )

        found, wanted = all_three(problem, place, rows)
    return [np.asarray(slope) for slope in found], np.asarray(wanted)


def used(monkeypatch):
    """How many rows each call was about."""
    counts, original = [], summing.summed_slopes

    def counted(slope, read, count):
        counts.append(count)
        return original(slope, read, count)

    monkeypatch.setattr(summing, "summed_slopes", counted)
    return counts


FORMS = [
    {},
    {"noise_scale": 0.6, "intercept": False},
    {"extras": True},
    {"noise_scale": 2.0, "extras": True},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("change", [False, True], ids=["gradient", "its change"])
@pytest.mark.parametrize("size", [1, 33, 64, 100])
def test_gradients_are_those_of_the_whole_minibatch(monkeypatch, size, change, form):
    counts = used(monkeypatch)
    batch = np.random.default_rng(size).integers(0, ROWS, size)
    found, wanted = gradients(model_of(**form), batch, change)
    assert counts == [size, size]
    for slope in found:
        assert np.allclose(slope, wanted, rtol=ROUNDING, atol=ROUNDING)


def test_a_portion_that_is_left_out_is_seen(monkeypatch):
    """The negative control: without the last rows, those that do not fill a portion."""

    def forgetful(slope, read, count):
        return original(slope, read, count - count % summing.PORTION)

    original = summing.summed_slopes
    monkeypatch.setattr(summing, "summed_slopes", forgetful)
    (slope, _), wanted = gradients(model_of(), np.arange(33))
    assert not np.allclose(slope, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "settings", [{"columns": 7}, {"columns": 16}, {"family": "bernoulli"}], ids=str
)
def test_other_rows_are_taken_at_once(monkeypatch, settings):
    counts = used(monkeypatch)
    found, wanted = gradients(model_of(**settings), np.arange(40))
    assert counts == []
    for slope in found:
        assert np.allclose(slope, wanted, rtol=ROUNDING, atol=ROUNDING)


def test_minibatches_that_several_kernels_may_take_are_taken_at_once():
    rows = {"x": jnp.zeros((4, 15)), "y": jnp.zeros(4)}
    assert summing.pay(rows, summing.LARGEST // 15) and not summing.pay(
        rows, summing.LARGEST // 15 + 1
    )


def test_a_law_on_rows_in_portions_is_the_predicted_one(monkeypatch):
    """A whole run, in float32: z of the covariance below Bonferroni's 1 in 1000 over its 66
    entries.
    """
    from sampler_checks import assert_law, run

    counts = used(monkeypatch)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, COLUMNS))
    model = orn.glm(
        X, X[:, 0] + rng.normal(size=3000), noise_scale=1.0, intercept=False, prior_precision=1.0
    )
    assert_law(
        run(model, orn.measure(model), orn.ConstantSGD("full"), 50, draws=1500), resolution=0.3
    )
    assert counts and set(counts) == {50}
