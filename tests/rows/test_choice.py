"""Every way of holding, drawing and summing rows on one model: the gradients are the same."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ornstein as orn
from ornstein.compute.precision import width
from ornstein.rows import packed
from ornstein.rows.choice import Choice, Traits
from ornstein.rows.held import HeldRows

ROUNDING = 1e-13
ROWS, SIZE = 50, 9
LAYOUTS, SUMMATIONS = ("plain", "bytes", "packed", "shuffled", "fed"), ("product", "portions")


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 20))
    y = X[:, 0] + rng.normal(size=ROWS)
    return orn.glm(
        X, y, offset=rng.normal(size=ROWS), weights=rng.uniform(0.5, 1.5, ROWS), prior_precision=1.0
    )


def held_and_batch(data, layout, summation, indices):
    """The rows at `indices`, held and asked for in one of the ways."""
    choice = Choice(layout, summation, draws_inside=False, one_kernel=False)
    if layout == "packed":
        rows = {name: np.asarray(leaf) for name, leaf in data.items()}
        data = packed.side_by_side(rows, "float64", "coef")
    if layout == "fed":
        rows = jax.tree.map(lambda leaf: leaf[indices], data)
        return HeldRows.of(None, choice, SIZE), rows
    if layout == "shuffled":
        order = np.concatenate([indices, np.setdiff1d(np.arange(ROWS), indices)])
        shuffled = jax.tree.map(lambda leaf: leaf[np.roll(order, 3)], data)
        return HeldRows.of(shuffled, choice, SIZE), jnp.asarray(3)
    return HeldRows.of(data, choice, SIZE), indices


@pytest.mark.parametrize(("layout", "summation"), [*product(LAYOUTS, SUMMATIONS)])
@pytest.mark.parametrize("change", [False, True], ids=["gradient", "its change"])
def test_every_choice_gives_the_same_gradient(model, layout, summation, change):
    rng = np.random.default_rng(1)
    indices = rng.permutation(ROWS)[:SIZE]
    centre, place = 0.3 * rng.normal(size=model.dim), 0.2 * rng.normal(size=model.dim)
    with width("float64"):
        problem = model.problem("float64", centre)
        held, batch = held_and_batch(problem.data, layout, summation, indices)
        rows = jax.tree.map(lambda leaf: leaf[indices], problem.data)
        slope = model.loss.gradient_change if change else model.loss.gradient
        found = jax.jit(slope)(problem._replace(data=held), place, batch)
        whole = jax.grad(model.loss.minibatch, argnums=1)
        wanted = whole(problem, place, rows)
        if change:
            wanted = wanted - whole(problem, 0.0 * place, rows)
    assert np.allclose(found, wanted, rtol=ROUNDING, atol=ROUNDING)


def test_another_row_is_seen(model):
    """The negative control."""
    with width("float64"):
        problem = model.problem("float64")
        place = np.full(model.dim, 0.1)
        one, other = (
            model.loss.gradient(problem, place, np.arange(SIZE) + shift) for shift in (0, 1)
        )
    assert not np.allclose(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("columns", "traits", "expected"),
    [
        (5, Traits(), ("plain", "product")),
        (11, Traits(polynomial=True), ("plain", "portions")),
        (11, Traits(), ("plain", "product")),
        (40, Traits(polynomial=True), ("bytes", "product")),
        (150, Traits(), ("plain", "product")),
    ],
)
def test_what_is_chosen(columns, traits, expected):
    data = {"x": jnp.zeros((100, columns)), "y": jnp.zeros(100)}
    choice = Choice.of(data, traits, 10, columns, 2, "replacement")
    assert (choice.layout, choice.summation) == expected


def test_rows_are_drawn_inside_only_where_each_is_drawn_for_itself():
    data = {"x": jnp.zeros((100, 5)), "y": jnp.zeros(100)}
    inside = {
        (scheme, fed): Choice.of(data, Traits(elementary=True), 10, 5, 2, scheme, fed).draws_inside
        for scheme in ("replacement", "without-replacement", "slices")
        for fed in (False, True)
    }
    assert [key for key, value in inside.items() if value] == [("replacement", False)]
