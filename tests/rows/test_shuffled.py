"""Minibatches as slices of shuffled rows: which rows they hold, the chains that they drive, and the
law that results.
"""

from __future__ import annotations

import gc
import warnings
import weakref
from dataclasses import replace

import jax
import numpy as np
import pytest
from battery import SIGMAS, covariance_scores
from helpers import regression_data, steps_by_hand
from stopping import same, whole_and_resumed
from test_stationary_law import DETECTABLE, length_for

import ornstein as orn
from ornstein.compute.precision import width
from ornstein.engine import blocks
from ornstein.engine.run import Run
from ornstein.rows import shuffled
from ornstein.rows.scheme import noise_factor
from ornstein.rows.shuffled import PASSES, Order, ShuffledRows
from ornstein.rows.sources import SliceSource

ROUNDING = 1e-12  # of float64, over 600 steps of a few terms


@pytest.fixture
def small_data_too(monkeypatch):
    """Rows are laid out anew however few they are, and orders last for a few blocks."""
    monkeypatch.setattr(shuffled, "BEYOND_CACHES", 0)
    monkeypatch.setattr(shuffled, "FEWEST_SLICES", 0)
    monkeypatch.setattr(blocks, "BLOCK_NUMBERS", 2**17)


def table(rows):
    return {"x": np.arange(2.0 * rows).reshape(rows, 2), "y": np.arange(rows, dtype=np.int32)}


class TestOrders:
    def test_every_row_is_there_once_and_the_first_come_again(self):
        data = jax.tree.map(np.asarray, ShuffledRows(table(50), batch_size=7, seed=1).order(3).data)
        order = data["y"]
        assert data["x"].dtype == np.float64 and order.dtype == np.int32
        assert np.array_equal(np.sort(order[:50]), np.arange(50))
        assert np.array_equal(order[50:], order[:6])
        assert np.array_equal(data["x"], table(50)["x"][order])

    def test_number_and_seed_determine_them(self):
        def order(number, seed):
            return np.asarray(ShuffledRows(table(50), 7, seed).order(number).data["y"])

        assert np.array_equal(order(2, 1), order(2, 1))
        assert not np.array_equal(order(2, 1), order(3, 1))
        assert not np.array_equal(order(2, 1), order(2, 2))

    def test_chains_share_them_and_what_nobody_uses_is_gone(self):
        rows = ShuffledRows(table(50), 7, 0)
        one, other = rows.order(0), rows.order(0)
        assert one is other
        memory = weakref.ref(one)
        del one, other
        gc.collect()
        assert memory() is None

    def test_what_was_prepared_is_what_comes(self, monkeypatch):
        numbers, shuffled = [], ShuffledRows._shuffled
        monkeypatch.setattr(
            ShuffledRows,
            "_shuffled",
            lambda self, number: (numbers.append(number), shuffled(self, number))[1],
        )
        rows = ShuffledRows(table(50), 7, 0)
        rows.prepare(4)
        rows.prepare(4)
        order = rows.order(4)
        rows.prepare(4)
        assert rows.order(4) is order
        assert numbers == [4]
        rows.prepare(9)  # and is not asked for
        rows.order(5)
        assert np.array_equal(
            rows.order(9).data["y"], ShuffledRows(table(50), 7, 0).order(9).data["y"]
        )

    def test_given_an_order_the_noise_is_off_by_no_more_than_is_said(self):
        """√(4S/3N) for slices that overlap; the bound is √(2S/N). All N slices of 400 orders, so
        the deviation is known to 4 %.
        """
        rows, size = 4000, 10
        values = np.random.default_rng(0).normal(size=rows)
        variances = []
        for number in range(400):
            order = np.asarray(ShuffledRows(values, size, seed=0)._shuffled(number).data)
            variances.append(np.convolve(order, np.full(size, 1.0 / size), "valid").var())
        relative = (
            np.array(variances) / (values.var() / size * noise_factor("slices", rows, size)) - 1.0
        )
        assert abs(relative.mean()) < SIGMAS * relative.std() / 20.0
        assert relative.std() == pytest.approx(
            np.sqrt(4.0 * size / (3.0 * rows)), rel=SIGMAS * 0.04
        )
        assert relative.std() < np.sqrt(2.0 * size / rows)


def test_an_order_lasts_for_the_passes_that_are_said():
    rows, size, steps = 6400, 10, 1000
    source = SliceSource(
        ShuffledRows(np.arange(rows), size, 0), np.random.Generator(np.random.SFC64(0))
    )
    orders = []
    for _ in range(20):
        starts = source.draw(steps)
        assert starts.shape == (steps,) and starts.min() >= 0 and starts.max() < rows
        orders.append(source.order(steps))
    assert PASSES * rows / (size * steps) == pytest.approx(5.12)
    changes = [number for number in range(1, 20) if orders[number] is not orders[number - 1]]
    assert changes == [6, 12, 18]


def model_of(family, rows=60):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(rows, 3))
    y = {
        "gaussian": X[:, 0] + rng.normal(size=rows),
        "bernoulli": X[:, 0] > 0,
        "categorical": np.digitize(X[:, 0], [-1.0, 1.0]),
    }
    return orn.glm(X, y[family], family, prior_precision=1.0)


def run_of(model, chains=1, first_chain=0, batch_size=3):
    with width("float64"):
        problem = model.problem("float64", np.zeros(model.dim))
    dynamics = orn.Dynamics(np.asarray(1e-2), batch_size, "slices")
    starts = np.zeros((chains, model.dim))
    return Run(
        model.loss, problem, dynamics, model.n_data, starts, 3, "float64", first_chain=first_chain
    )


def positions(run, keeps=60, chain=0):
    kept = []
    run.advance(
        keeps, 10, lambda number, values: kept.append(values.positions) if number == chain else None
    )
    return np.concatenate(kept)


def by_hand(model, steps=600, batch_size=3):
    """The same steps in NumPy, on rows found by their numbers; of a block what is left of ten steps
    is not used.
    """
    run = run_of(model)
    source, length = run.chains[0].source, run.block_steps
    numbers = ShuffledRows(np.arange(model.n_data), batch_size, 3)
    used, batches = length - length % 10, []
    for block in range(-(-steps // used)):
        order = np.asarray(numbers.order(block // numbers.lasting(length)).data)[: model.n_data]
        batches += [
            order[(start + np.arange(batch_size)) % model.n_data]
            for start in source.draw(length)[:used]
        ]
    assert block >= 2 * numbers.lasting(length), "too short to see three orders"
    return steps_by_hand(model, batches[:steps])


@pytest.mark.usefixtures("small_data_too")
class TestChains:
    @pytest.mark.parametrize("family", ["gaussian", "bernoulli", "categorical"])
    def test_the_steps_are_those_taken_by_hand(self, family, monkeypatch):
        monkeypatch.setattr(blocks, "BLOCK_NUMBERS", 300)
        model = model_of(family)
        run = run_of(model)
        assert run.rows.slice_rows == 3
        truth = by_hand(model)
        assert np.abs(positions(run) - truth).max() < ROUNDING * np.abs(truth).max()
        several = run_of(model)
        several.program = replace(several.program, one_kernel=False)
        assert np.abs(positions(several) - truth).max() < ROUNDING * np.abs(truth).max()

    def test_a_chain_does_not_depend_on_how_many_there_are(self):
        model = model_of("gaussian")
        alone = positions(run_of(model, first_chain=2))
        assert np.array_equal(alone, positions(run_of(model, chains=3), chain=2))

    @pytest.mark.parametrize(
        "sampler", [None, orn.SGLD(), orn.SGLD(control_variates=True), orn.IASG()]
    )
    def test_stopped_and_resumed_is_the_run_that_was_never_stopped(self, sampler, tmp_path):
        averaged = isinstance(sampler, orn.IASG)  # its draws are windows of some hundred steps
        length = {"draws": 500, "thin": "auto"} if averaged else {"draws": 30, "thin": 5000}
        options = {**length, "chains": 2, "batch_size": 3, "scheme": "slices", "warmup": 100}
        same(*whole_and_resumed(tmp_path, model_of("gaussian", 2000), sampler, **options))


@pytest.mark.parametrize(
    ("rows", "batch_size", "sliced"),
    [(500_000, 100, True), (500_000, 1000, False), (150_000, 100, False)],
)
def test_rows_are_laid_out_where_they_are_beyond_the_caches_and_slices_are_many(
    rows, batch_size, sliced
):
    X = np.zeros((rows, 20))
    run = run_of(
        orn.glm(X, X[:, 0], intercept=False, noise_scale=1.0, prior_precision=1.0),
        batch_size=batch_size,
    )
    assert run.rows.slice_rows == (batch_size if sliced else 0)


@pytest.mark.usefixtures("small_data_too")
class TestLaw:
    """N/S = 600, where `worthwhile` begins: the orders are fewest and the chains forget fastest."""

    @staticmethod
    def run(sort=False):
        """The covariance's scores, and the smallest error that they would notice."""
        X, y = regression_data(30_000, 3, seed=5)
        if sort:
            X, y = X[np.argsort(y)], np.sort(y)
        model = orn.glm(X, y, noise_scale=1.0, intercept=False, prior_precision=1.0)
        curvature = orn.measure(model)
        dynamics = orn.ConstantSGD("full").tune(curvature, batch_size=50, scheme="slices")
        draws, thin = length_for(dynamics, curvature, 0.95 * DETECTABLE)
        options = {
            "draws": draws,
            "thin": thin,
            "seed": 2,
            "keep": "moments",
            "progress": False,
            "max_steps": 10**9,
        }
        with warnings.catch_warnings():
            # where rows are not shuffled it does not settle
            warnings.simplefilter("ignore", orn.OrnsteinWarning)
            return covariance_scores(orn.sample(model, dynamics, curvature=curvature, **options))

    def test_the_covariance_is_the_predicted_one(self):
        scores, detectable = self.run()
        assert detectable < DETECTABLE
        assert np.max(np.abs(scores)) < SIGMAS

    def test_rows_that_are_not_shuffled_are_noticed(self, monkeypatch):
        """Neighbours that resemble each other make a slice noisier than distinct rows."""

        def as_they_are(self, number):
            return Order(
                jax.tree.map(lambda leaf: self._laid_out(leaf, np.arange(self.n_data)), self._data)
            )

        monkeypatch.setattr(ShuffledRows, "_shuffled", as_they_are)
        scores, _ = self.run(sort=True)
        assert np.max(np.abs(scores)) > 2.0 * SIGMAS
