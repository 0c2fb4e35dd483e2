"""What no network can be run on, and outcomes that nothing can be learned from: one sentence each,
before any chain runs, whatever the framework.
"""

from __future__ import annotations

import warnings

import equinox as eqx
import jax
import numpy as np
import pandas as pd
import pytest
from flax import nnx
from helpers import laplace_instead
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

import ornstein as orn

N, INPUTS, UNITS = 40, 3, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, INPUTS))
Y = X[:, 0] + RNG.normal(size=N)
QUICK = {"draws": 50, "prior_precision": 1.0, "progress": False}


@pytest.fixture(autouse=True)
def no_chains(monkeypatch):
    monkeypatch.setattr("ornstein.interfaces.networks.last_layer.sample", laplace_instead)


class Flax(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.hidden, self.head = (
            nnx.Linear(INPUTS, UNITS, rngs=rngs),
            nnx.Linear(UNITS, 1, rngs=rngs),
        )

    def __call__(self, x):
        return self.head(nnx.tanh(self.hidden(x)))


def trained():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return MLPRegressor(hidden_layer_sizes=(UNITS,), max_iter=5, random_state=0).fit(X, Y)


def by_sklearn(x, y, **options):
    return orn.from_sklearn(trained(), x, y, **{**QUICK, **options})


def by_flax(x, y, **options):
    return orn.from_flax(Flax(), (x, y), **{**QUICK, **options})


def by_equinox(x, y, **options):
    net = eqx.nn.MLP(INPUTS, 1, UNITS, 1, key=jax.random.PRNGKey(0))
    return orn.from_equinox(net, (x, y), **{**QUICK, **options})


def by_torch(x, y, **options):
    torch = pytest.importorskip("torch", reason="needs torch")
    net = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, UNITS), torch.nn.Tanh(), torch.nn.Linear(UNITS, 1)
    )
    return orn.from_torch(net, (x, y), **{**QUICK, **options})


FRAMEWORKS = pytest.mark.parametrize("fit", [by_sklearn, by_flax, by_equinox, by_torch])
BROKEN = np.where(np.arange(N) == 3, np.nan, Y)
MASKED = np.ma.masked_array(Y, np.arange(N) == 3)


@FRAMEWORKS
def test_inputs_that_the_network_cannot_take(fit):
    holed = np.where(np.arange(N)[:, None] == 3, np.nan, X)
    for inputs, words in [
        (X[:, :2], "cannot be run on these inputs: .*Error"),
        (None, r"inputs must be|cannot be run"),
        (np.array([object()] * N), r"inputs must be|cannot be run"),
        (X[:0], r"rows|cannot be run"),
        (holed, r"not finite|NaN"),
        (np.ma.masked_array(X, X > 1.0), "masked value"),
    ]:
        with pytest.raises(orn.InputError, match=words) as refused:
            fit(inputs, Y)
        assert "\n" not in str(refused.value)


@FRAMEWORKS
def test_outcomes_that_are_none(fit):
    for outcomes, words in [
        (None, "y cannot be read as an array"),
        (3.0, r"y must have one value per row|one outcome per row"),
        (Y[:-1], r"40 inputs with 39 outcomes|40 rows but y has 39"),
        (BROKEN, "y holds a value that is not finite, first in row 3"),
        (MASKED, "y has 1 masked value, first in row 3"),
    ]:
        with pytest.raises(orn.InputError, match=words):
            fit(X, outcomes)


@FRAMEWORKS
def test_held_out_outcomes_that_are_none(fit):
    for outcomes, words in [
        (BROKEN, "held_out holds a value that is not finite"),
        (MASKED, "mask"),
    ]:
        with pytest.raises(orn.InputError, match=words):
            fit(X, Y, held_out=(X, outcomes))


@FRAMEWORKS
def test_an_option_that_does_not_exist_is_not_passed_over(fit):
    with pytest.raises(orn.InputError, match="there is no option 'priors_precision'; there are"):
        fit(X, Y, priors_precision=2.0)


def test_there_is_a_report(tmp_path):
    """Its curves are along features, which the network must not be run on once more."""
    assert by_flax(X, Y).report(tmp_path / "report.html").stat().st_size > 1000


def test_several_inputs_must_have_as_many_rows():
    net = Flax()
    with pytest.raises(orn.InputError, match="they have 3, 40 rows"):
        orn.from_flax(net, ({"a": X, "b": X[:3]}, Y), **QUICK)


def test_a_network_that_was_trained_further_is_refused():
    net = trained()
    post = orn.from_sklearn(net, X, Y, **QUICK)
    before = post.predict(X).mean
    net.coefs_[-1] += 1.0
    with pytest.raises(orn.InputError, match="holds other weights"):
        post.predict(X)
    net.coefs_[-1] -= 1.0
    np.testing.assert_allclose(post.predict(X).mean, before)


def test_a_list_of_rows_is_not_taken_for_several_arguments():
    listed, arrays = by_torch(X.tolist(), Y.tolist()), by_torch(X, Y)
    assert listed.draws.shape == arrays.draws.shape
    torch = pytest.importorskip("torch", reason="needs torch")
    with pytest.raises(orn.InputError, match=r"net must be a torch\.nn\.Module; got a int"):
        listed.predict(X, net=3)
    loader = torch.utils.data.DataLoader([X[0, :2], X[1]], batch_size=2)
    with pytest.raises(orn.InputError, match="cannot be run on these inputs"):
        arrays.predict(loader)


ARRAYS = {
    "y of complex numbers": ({"y": Y + 1j}, "complex128"),
    "labels of two kinds": ({"y": np.array(["a", 1] * (N // 2), dtype=object)}, "put in order"),
    "held-out labels of another kind": (
        {"y": np.arange(N) % 2, "held_out": (X, np.array(["a", 1] * (N // 2), dtype=object))},
        "lacks?|another kind",
    ),
    "held-out NaN": ({"held_out": (X, BROKEN)}, "held_out holds a value that is not finite"),
    "held-out infinity": (
        {"held_out": (X, np.full(N, np.inf))},
        "held_out holds a value that is not finite",
    ),
    "head of text": ({"head": (X[:INPUTS, :1], "x")}, "head must be a number or an array"),
    "head with NaN": ({"head": (np.full((INPUTS, 1), np.nan), [0.0])}, "head holds a value"),
    "deadline": ({"deadline": "soon"}, "deadline must be a time"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_that_no_last_layer_is_made_of(case, monkeypatch):
    changed, words = ARRAYS[case]
    if "deadline" in changed:
        monkeypatch.undo()
    with pytest.raises(orn.InputError, match=words):
        orn.last_layer(**{"features": X, "y": Y, **QUICK, **changed})


FRAME = pd.DataFrame(X, columns=["a", "b", "c"])


def test_features_of_a_frame_are_found_by_name():
    held = FRAME[:20], Y[:20]
    post = orn.last_layer(FRAME, Y, held, **QUICK)
    other = FRAME[["c", "a", "b"]]
    np.testing.assert_array_equal(post.predict(other).mean, post.predict(FRAME).mean)
    again = orn.last_layer(FRAME, Y, (other[:20], Y[:20]), **QUICK)
    assert again.temperature == post.temperature
    with pytest.raises(orn.InputError, match="lack column 'c'"):
        post.predict(FRAME[["a", "b"]])


@pytest.mark.parametrize("where", ["rows", "held_out"])
def test_rows_of_another_order_are_not_paired_by_position(where):
    turned = pd.Series(Y[::-1], index=FRAME.index[::-1])
    y, held = (turned, None) if where == "rows" else (Y, (FRAME, turned))
    for fit in (orn.last_layer, lambda *given, **more: orn.from_sklearn(trained(), *given, **more)):
        with pytest.raises(orn.InputError, match="has another order than that of"):
            fit(FRAME, y, held, **QUICK)
