"""Rows in one piece: what is read from them, the chains that they drive, and only where it pays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import ornstein as orn
from ornstein.compute.precision import width
from ornstein.engine.run import Run
from ornstein.model import frame
from ornstein.rows import choice, packed, shuffled
from ornstein.rows.choice import begin_at_lines, packs
from ornstein.rows.packed import PackedRows, side_by_side

ROUNDING = 1e-12  # of float64, over 200 steps of a hundred terms
ROWS, COLUMNS = 60, 99  # with a response and an offset 101 numbers, in cache lines of 8


@pytest.fixture
def small_data_too(monkeypatch):
    """Rows are laid side by side however few they are."""
    monkeypatch.setattr(choice, "BEYOND_CACHES", 0)
    monkeypatch.setattr(packed, "FEWEST", 1)
    monkeypatch.setattr(choice, "SMALL_STEP", 0)


def model_of(family, **options):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(ROWS, COLUMNS)) / 10.0
    y = {
        "gaussian": X[:, 0] + rng.normal(size=ROWS),
        "bernoulli": X[:, 0] > 0,
        "categorical": np.digitize(X[:, 0], [-0.1, 0.1]),
        "poisson": rng.poisson(1.0, size=ROWS),
    }
    return orn.glm(X, y[family], family, **{"prior_precision": 1.0, **options})


def problems(model, batch_size=7):
    """The model's problem as it is, and with its rows in one piece, measured from a centre that
    gives every row an offset.
    """
    centre = np.linspace(-0.1, 0.1, model.dim)
    with width("float64"):
        return model.problem("float64", centre), model.problem("float64", centre, batch_size)


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "categorical", "poisson"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted, with offset"])
def test_likelihoods_and_gradients_are_those_of_rows_in_pieces(small_data_too, family, weighted):
    rng = np.random.default_rng(5)
    offset = rng.normal(size=(ROWS, 3) if family == "categorical" else ROWS)
    model = model_of(
        family, **({"weights": rng.uniform(1.0, 2.0, ROWS), "offset": offset} if weighted else {})
    )
    pieces, table = problems(model)
    assert isinstance(table.data, PackedRows) and not isinstance(pieces.data, PackedRows)
    assert table.data.numbers.shape[1] % 8 == 0
    displacement, batch = 0.1 * rng.normal(size=model.dim), np.array([3, 59, 3, 0])
    with width("float64"):
        reads = (
            lambda p: model.loss.log_likelihoods(p, displacement, p.data),
            gradient_of(model, displacement, batch),
            lambda p: model.loss.gradient_change(p, displacement, batch),
        )
        for read in reads:
            assert np.allclose(
                jax.jit(read)(table), jax.jit(read)(pieces), rtol=ROUNDING, atol=ROUNDING
            )


def gradient_of(model, displacement, batch):
    return lambda problem: model.loss.gradient(problem, displacement, batch)


def test_a_number_behind_the_features_that_meets_no_zero_is_seen(small_data_too, monkeypatch):
    """The negative control: with a coefficient of 1e-6 for what lies behind the features the
    gradient is another one.
    """

    def not_zeros(self, params):
        coef = params["coef"]
        behind = (self.numbers.shape[-1] - len(coef), *coef.shape[1:])
        return {**params, "coef": jnp.concatenate([coef, jnp.full(behind, 1e-6, coef.dtype)])}

    model = model_of("bernoulli")
    pieces, table = problems(model)
    read = gradient_of(model, np.full(model.dim, 0.1), np.arange(7))
    monkeypatch.setattr(PackedRows, "widened", not_zeros)
    with width("float64"):
        assert not np.allclose(read(table), read(pieces), rtol=ROUNDING, atol=ROUNDING)


def run_of(model, problem, scheme):
    dynamics = orn.Dynamics(np.asarray(1e-2), 7, scheme)
    return Run(model.loss, problem, dynamics, model.n_data, np.zeros((3, model.dim)), 3, "float64")


def positions(run):
    kept = {}
    run.advance(20, 10, lambda number, values: kept.setdefault(number, []).append(values.positions))
    return np.stack([np.concatenate(kept[number]) for number in range(3)])


@pytest.mark.parametrize("family", ["bernoulli", "categorical"])
@pytest.mark.parametrize("scheme", ["without-replacement", "slices"])
def test_chains_are_those_of_rows_in_pieces(small_data_too, monkeypatch, family, scheme):
    """Not where each row is drawn for itself: the loop draws other rows then if it is one
    kernel.
    """
    monkeypatch.setattr(shuffled, "BEYOND_CACHES", 0)
    monkeypatch.setattr(shuffled, "FEWEST_SLICES", 0)
    model = model_of(family)
    pieces, table = (positions(run_of(model, problem, scheme)) for problem in problems(model))
    assert np.ptp(pieces) > 0.01
    assert np.allclose(table, pieces, rtol=0.0, atol=ROUNDING)


def test_rows_that_begin_at_lines_are_found_by_several_kernels(small_data_too, monkeypatch):
    """With a chain for every core; slices, which need not be found, stay in one kernel."""
    monkeypatch.setattr(shuffled, "BEYOND_CACHES", 0)
    monkeypatch.setattr(shuffled, "FEWEST_SLICES", 0)
    model = model_of("bernoulli")
    pieces, table = problems(model)
    assert begin_at_lines(table.data) and not begin_at_lines(pieces.data)
    kernels = {
        (p is table, s): run_of(model, p, s).program.one_kernel
        for p in (pieces, table)
        for s in ("replacement", "slices")
    }
    assert kernels == {
        (False, "replacement"): True,
        (True, "replacement"): False,
        (False, "slices"): True,
        (True, "slices"): True,
    }


def test_a_fit_on_rows_in_one_piece(monkeypatch):
    """90,000 rows of 100 columns through `sample`: the same draws, to what float32 keeps of
    them.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90_000, 100)).astype(np.float32)
    model = orn.glm(
        X, X[:, 0] + rng.normal(size=90_000), noise_scale=1.0, intercept=False, prior_precision=1.0
    )
    curvature = orn.measure(model)
    monkeypatch.setattr(frame, "FEWEST", 10**9)  # in a frame rows are laid out elsewhere
    seen = []
    monkeypatch.setattr(
        orn.Model,
        "problem",
        lambda self, *given, of=orn.Model.problem: (seen.append(of(self, *given)), seen[-1])[1],
    )

    def draws():
        options = {
            "curvature": curvature,
            "batch_size": 1000,
            "scheme": "without-replacement",
            "chains": 1,
            "seed": 1,
        }
        post = orn.sample(
            model, orn.ConstantSGD("full"), draws=20, warmup=20, thin=5, progress=False, **options
        )
        return (post.draws - curvature.mode) / np.sqrt(np.diagonal(curvature.posterior_covariance))

    table = draws()
    assert any(isinstance(problem.data, PackedRows) for problem in seen)
    seen.clear()
    monkeypatch.setattr(choice, "BEYOND_CACHES", 2**40)
    pieces = draws()
    assert not any(isinstance(problem.data, PackedRows) for problem in seen)
    assert pieces.std() > 0.5
    assert np.abs(table - pieces).max() < 1e-3


@pytest.mark.parametrize(
    ("features", "numbers", "expected"),
    [
        (np.zeros((100_000, 100), np.float32), 10**5, True),
        (np.zeros((100_000, 100), np.float32), 2**16, False),
        (np.zeros((50_000, 100), np.float32), 10**5, False),
        (np.zeros((100_000, 112), np.float32), 10**5, False),
        (np.zeros((200_000, 60), np.float32), 10**5, False),
        (np.zeros((100_000, 100), np.int32), 10**5, False),
        (
            {"columns": np.zeros((10**6, 20), np.int32), "values": np.zeros((10**6, 20))},
            10**5,
            False,
        ),
    ],
    ids=[
        "yes",
        "small steps",
        "within the caches",
        "no room",
        "few columns",
        "whole numbers",
        "sparse",
    ],
)
def test_only_where_it_pays(features, numbers, expected):
    rows = len(jax.tree.leaves(features)[0])
    assert packs({"x": features, "y": np.zeros(rows)}, "float32", numbers) is expected


def test_sparse_rows_stay_as_they_are(small_data_too):
    model = orn.glm(
        scipy.sparse.random(ROWS, COLUMNS, 0.1, "csr", random_state=0),
        np.arange(float(ROWS)),
        prior_precision=1.0,
    )
    assert not isinstance(problems(model)[1].data, PackedRows)


def test_what_is_read_from_a_table():
    data = {
        "x": np.arange(12.0).reshape(4, 3),
        "y": np.array([2, 0, 1, 2], np.int32),
        "offset": np.ones((4, 2)),
    }
    table = side_by_side(data, "float32", "coef")
    assert table.numbers.shape == (4, 16) and table.numbers.dtype == jnp.float32
    assert np.array_equal(np.asarray(table["x"])[:, :3], data["x"]) and not np.any(
        np.asarray(table["x"])[:, 6:]
    )
    assert np.array_equal(table["y"], data["y"]) and np.array_equal(table["offset"], data["offset"])
    assert "offset" in table and "weight" not in table
    assert begin_at_lines(table) is False  # few rows
