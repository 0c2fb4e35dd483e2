"""Networks of Flax, Equinox and scikit-learn: what enters the last layer, refusals, predictions on
the framework's own inputs, files.
"""

from __future__ import annotations

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import laplace_instead
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ornstein as orn
from ornstein.interfaces.networks.equinox import equinox_network
from ornstein.interfaces.networks.flax import flax_network
from ornstein.interfaces.networks.reading import batches, is_last
from ornstein.interfaces.networks.sklearn import SklearnNetwork

INPUTS, UNITS, CLASSES = 3, 4, 3
QUICK = {"draws": 50, "prior_precision": 1.0, "progress": False}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, INPUTS)).astype(np.float32)
Y = RNG.integers(0, CLASSES, 60)


def fitted(net, X, y):
    """A few rounds of training are enough here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return net.fit(X, y)


class Flax(nnx.Module):
    """Dropout and a norm in front of the last layer, which `after` changes."""

    def __init__(self, outputs=CLASSES, after=lambda logits: logits, bias=True):
        rngs = nnx.Rngs(0)
        self.hidden = nnx.Linear(INPUTS, UNITS, rngs=rngs)
        self.norm = nnx.BatchNorm(UNITS, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(UNITS, outputs, use_bias=bias, rngs=rngs)])
        self.after = after

    def __call__(self, x):
        hidden = self.dropout(self.norm(jnp.tanh(self.hidden(x))))
        return self.after(self.layers[0](hidden))

    def by_hand(self, x):
        """What enters the last layer in evaluation."""
        return np.tanh(x @ self.hidden.kernel[...] + self.hidden.bias[...]) / np.sqrt(1 + 1e-5)


class Equinox(eqx.Module):
    hidden: eqx.nn.Linear
    dropout: eqx.nn.Dropout
    layers: list
    squeezed: bool = False

    def __init__(self, outputs=CLASSES, squeezed=False):
        keys = jax.random.split(jax.random.key(0))
        self.hidden = eqx.nn.Linear(INPUTS, UNITS, key=keys[0])
        self.dropout = eqx.nn.Dropout(0.5)
        self.layers = [eqx.nn.Linear(UNITS, outputs, key=keys[1])]
        self.squeezed = squeezed

    def __call__(self, x):
        logits = self.layers[0](self.dropout(jnp.tanh(self.hidden(x))))
        return logits[0] if self.squeezed else logits

    def by_hand(self, x):
        return np.tanh(x @ self.hidden.weight.T + self.hidden.bias)


MADE = {
    "flax": (Flax, flax_network, orn.from_flax),
    "equinox": (Equinox, equinox_network, orn.from_equinox),
}


@pytest.fixture(autouse=True)
def no_chains(monkeypatch):
    monkeypatch.setattr("ornstein.interfaces.networks.last_layer.sample", laplace_instead)


@pytest.mark.parametrize("framework", MADE)
@pytest.mark.parametrize("layer", ["layers.0", "auto"])
def test_what_enters_the_last_layer(framework, layer):
    make, network_of, _ = MADE[framework]
    net = make()
    network = network_of(net, layer, X)
    assert network.layer == "layers.0"
    np.testing.assert_allclose(network.features(X), net.by_hand(X), rtol=2e-5, atol=1e-6)
    weights, biases = network.head()
    assert weights.shape == (UNITS, CLASSES) and biases.shape == (CLASSES,)


@pytest.mark.parametrize("framework", MADE)
def test_many_rows_are_run_in_portions(framework):
    make, network_of, _ = MADE[framework]
    net, rows = make(), np.tile(X, (40, 1))
    assert network_of(net, "layers.0").features(rows).shape == (2400, UNITS)


@pytest.mark.parametrize(
    "net",
    [
        Flax(1),
        Flax(1, lambda logits: logits[:, 0]),
        Flax(1, lambda logits: jnp.squeeze(logits, -1), bias=False),
    ],
)
def test_regression_heads_of_flax(net):
    found = flax_network(net, "layers.0").features(X)
    np.testing.assert_allclose(found, net.by_hand(X), rtol=2e-5, atol=1e-6)


def test_regression_heads_of_equinox():
    net = Equinox(1, squeezed=True)
    found = equinox_network(net, "layers.0").features(X)
    np.testing.assert_allclose(found, net.by_hand(X), rtol=2e-5, atol=1e-6)


class Twice(nnx.Module):
    def __init__(self):
        self.square = nnx.Linear(INPUTS, INPUTS, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return self.square(jnp.tanh(self.square(x)))


class Pairs(nnx.Module):
    """Its last layer sees three axes."""

    def __init__(self):
        self.last = nnx.Linear(INPUTS, CLASSES, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return self.last(jnp.stack([x, x], axis=1))


@pytest.mark.parametrize(
    ("net", "layer", "words"),
    [
        (Flax(), "hidden", "is not the last"),
        (Flax(), "norm", "no linear layer 'norm'; there are hidden, layers.0"),
        (Flax(), "head", "no linear layer 'head'"),
        (Flax(after=lambda logits: logits + 1.0), "layers.0", "is not the last"),
        (Flax(after=lambda logits: (logits, logits)), "layers.0", "returns a tuple"),
        (Twice(), "square", "is not the last, or is used more than once"),
        (Pairs(), "last", "two-dimensional"),
        (Flax(after=jnp.tanh), "auto", "is not the last"),
        (Equinox(), "layers.0", "net must be a flax.nnx.Module"),
    ],
)
def test_refusals_of_flax(net, layer, words):
    with pytest.raises(orn.InputError, match=words):
        orn.from_flax(net, (X, Y), layer=layer, **QUICK)


@pytest.mark.parametrize(
    ("net", "layer", "words"),
    [
        (Equinox(), "hidden", "is not the last"),
        (Equinox(), "head", "no linear layer 'head'; there are hidden, layers.0"),
        (eqx.nn.Lambda(jnp.tanh), "auto", "no linear layer"),
        (lambda x: x, "auto", "net must be an equinox.Module"),
    ],
)
def test_refusals_of_equinox(net, layer, words):
    with pytest.raises(orn.InputError, match=words):
        orn.from_equinox(net, (X, Y), layer=layer, **QUICK)


@pytest.mark.parametrize("framework", MADE)
def test_predictions_run_the_network_and_files_ask_for_it(framework, tmp_path):
    make, _, enter = MADE[framework]
    net = make()
    post = enter(net, [(X[:30], Y[:30]), (X[30:], Y[30:])], held_out=(X, Y), **QUICK)
    found = post.predict(X[:5]).mean
    features = net.by_hand(X)
    back = orn.load(post.save(tmp_path / "net.orn"))
    np.testing.assert_allclose(back.predict(features[:5]).mean, found, rtol=1e-4)
    np.testing.assert_array_equal(back.predict(X[:5], net=net).mean, found)
    assert (back.framework, back.layer) == (framework, "layers.0")
    assert "trained network" in dict(post.calibration.scores)
    other = jax.tree.map(lambda leaf: leaf + 1 if eqx.is_inexact_array(leaf) else leaf, net)
    with pytest.raises(orn.InputError, match="not the network that the posterior was made from"):
        back.predict(X[:5], net=other)


@pytest.mark.parametrize("framework", MADE)
def test_networks_in_less_than_single_precision(framework):
    make, network_of, _ = MADE[framework]
    net = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float16) if eqx.is_inexact_array(leaf) else leaf, make()
    )
    assert network_of(net, "layers.0").features(X.astype(np.float16)).shape == (60, UNITS)


def test_a_class_that_no_training_row_has_keeps_its_logit():
    post = orn.from_flax(Flax(), (X, np.minimum(Y, 1)), **QUICK)
    assert post.predict(X[:2]).mean.shape == (2, CLASSES)


def test_perceptrons_of_sklearn(tmp_path):
    names = np.array(["ant", "bee", "cat"])
    mlp = MLPClassifier((UNITS,), max_iter=30, random_state=0)
    renamed = fitted(make_pipeline(StandardScaler(), mlp), X, names[Y])
    post = orn.from_sklearn(renamed, X, names[Y], (X, names[Y]), **QUICK)
    assert list(post.model.classes) == list(names)
    wanted = -np.mean(np.log(renamed.predict_proba(X)[np.arange(60), Y]))
    assert post.calibration["trained network"].loss == pytest.approx(wanted, rel=1e-5)
    back = orn.load(post.save(tmp_path / "net.orn"))
    np.testing.assert_array_equal(back.predict(X[:5], net=renamed).mean, post.predict(X[:5]).mean)


@pytest.mark.parametrize("activation", ["identity", "logistic", "tanh", "relu"])
def test_hidden_layers_of_sklearn(activation):
    net = fitted(MLPClassifier((6, UNITS), activation=activation, max_iter=5), X, Y)
    assert SklearnNetwork.of(net).features(X).shape == (60, UNITS)  # checked inside


@pytest.mark.parametrize(
    "net",
    [
        fitted(MLPClassifier((UNITS,), max_iter=5), X, Y > 0),
        fitted(MLPRegressor(hidden_layer_sizes=(UNITS,), max_iter=5), X, X @ [1.0, 2.0, 3.0]),
    ],
)
def test_other_heads_of_sklearn(net):
    network = SklearnNetwork.of(net)
    assert network.features(X).shape == (60, UNITS) and network.head()[1].shape == (1,)


def test_a_regression_of_sklearn():
    target = X @ [1.0, 2.0, 3.0]
    net = fitted(MLPRegressor(hidden_layer_sizes=(UNITS,), max_iter=50, random_state=0), X, target)
    post = orn.from_sklearn(net, X, target, **QUICK)
    assert "log_scale" in post.names
    assert post.predict(X[:4]).outcome.sd.shape == (4,)


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (StandardScaler(), "got a StandardScaler"),
        (MLPClassifier(), "not fitted"),
        (
            fitted(MLPClassifier((2,), max_iter=5), X, np.stack([Y > 0, Y > 1], axis=1)),
            "several labels",
        ),
    ],
)
def test_refusals_of_sklearn(net, words):
    with pytest.raises(orn.InputError, match=words):
        orn.from_sklearn(net, X, Y)


def test_several_targets_are_refused():
    net = fitted(MLPRegressor(hidden_layer_sizes=(UNITS,), max_iter=5), X, X[:, :2])
    with pytest.raises(orn.InputError, match="2 outputs; a regression has one"):
        orn.from_sklearn(net, X, X[:, 0])


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        (3, "a pair .inputs, y. or yield such pairs; got a int"),
        ([], "yields no rows"),
        ([X], "it yields a ndarray"),
        ([(X, Y, Y)], "it yields a tuple of 3"),
        ((X, Y[:5]), "60 inputs with 5 outcomes"),
    ],
)
def test_loaders(loader, words):
    with pytest.raises(orn.InputError, match=words):
        orn.from_flax(Flax(), loader, layer="layers.0", **QUICK)


def test_a_pair_is_one_batch_and_others_are_taken_in_turn():
    assert len(list(batches((X, Y)))) == 1
    assert len(list(batches([(X, Y), (X, Y)]))) == 2


@pytest.mark.parametrize("off", [0.0, 0.1])
def test_last_is_a_matter_of_numbers(off):
    features, weights, biases = np.ones((5, 2)), np.eye(2), np.array([1.0, 3.0])
    logits = features @ weights + biases + np.array([0.0, off])
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for outputs in (logits, chances, np.log(chances)):
        assert is_last(features, (weights, biases), outputs) == (off == 0.0)
