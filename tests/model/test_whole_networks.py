"""Networks as a whole are recognised by exchanging hidden units, and nothing else is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ornstein as orn
from ornstein.model.network import whole_network
from ornstein.verdict.networks import network_as_a_whole
from ornstein.verdict.subject import Subject

ROWS = 60


def labelled(columns=3, classes=3):
    rng = np.random.default_rng(0)
    return {"x": rng.normal(size=(ROWS, columns)), "y": rng.integers(0, classes, ROWS)}


def normal_prior(params):
    return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))


def model_of(log_likelihood, data, **shapes):
    init = {name: np.zeros(shape) for name, shape in shapes.items()}
    return orn.Model(log_likelihood, data, normal_prior, init=init)


def classifier(logits):
    return lambda params, row: jax.nn.log_softmax(logits(params, row["x"]))[row["y"]]


def perceptron(data=None):
    def logits(p, x):
        return jnp.tanh(x @ p["a"] + p["b"]) @ p["c"] + p["d"]

    shapes = {"a": (3, 4), "b": (4,), "c": (4, 3), "d": (3,)}
    return model_of(classifier(logits), data or labelled(), **shapes)


def deep():
    """Two hidden layers of one width, so that six arrays have axes of one length."""

    def logits(p, x):
        hidden = jax.nn.relu(x @ p["w1"] + p["b1"])
        return jax.nn.relu(hidden @ p["w2"] + p["b2"]) @ p["w3"]

    shapes = {"w1": (3, 5), "b1": (5,), "w2": (5, 5), "b2": (5,), "w3": (5, 3)}
    return model_of(classifier(logits), labelled(), **shapes)


def recurrent():
    """Both axes of one array are of hidden units."""

    def logits(p, x):
        state = jnp.zeros(4)
        for number in x:
            state = jnp.tanh(state @ p["u"] + number * p["v"])
        return state @ p["w"]

    return model_of(classifier(logits), labelled(), u=(4, 4), v=(4,), w=(4, 3))


def convolution():
    def logits(p, x):
        planes = jax.nn.relu(jnp.stack([jnp.convolve(x, kernel) for kernel in p["kernels"]]))
        return jnp.mean(planes, axis=1) @ p["weights"]

    shapes = {"kernels": (6, 3), "weights": (6, 2)}
    return model_of(classifier(logits), labelled(8, 2), **shapes)


def normalised():
    """A layer with a norm: five arrays run through one axis."""

    def logits(p, x):
        hidden = x @ p["a"] + p["b"]
        hidden = (hidden - hidden.mean()) / jnp.sqrt(hidden.var() + 1e-3)
        return jax.nn.relu(p["g"] * hidden + p["h"]) @ p["z"]

    shapes = {"a": (3, 4), "b": (4,), "g": (4,), "h": (4,), "z": (4, 3)}
    return model_of(classifier(logits), labelled(), **shapes)


NETWORKS = [perceptron, deep, recurrent, convolution, normalised]


@pytest.mark.parametrize("make", NETWORKS)
def test_networks_are_recognised(make):
    assert "can be exchanged" in whole_network(make())


def wide_regression():
    """More columns than rows, and a bias for each class."""

    def logits(p, x):
        return x @ p["w"] + p["b"]

    return model_of(classifier(logits), labelled(40, 4), w=(40, 4), b=(4,))


def many_classes():
    """Rows of other classes do not tell two classes apart; those of all rows do."""

    def logits(p, x):
        return x @ p["w"] + p["b"]

    data = labelled(3, 50)
    return model_of(classifier(logits), data, w=(3, 50), b=(50,))


def groups():
    """Intercepts and slopes of more groups than rows that are looked at."""
    rng = np.random.default_rng(1)
    data = {"x": rng.normal(size=ROWS), "y": rng.normal(size=ROWS), "g": np.arange(ROWS) % 30}

    def log_likelihood(p, row):
        middle = p["level"][row["g"]] + p["slope"][row["g"]] * row["x"]
        return -0.5 * (row["y"] - middle) ** 2

    return model_of(log_likelihood, data, level=(30,), slope=(30,), spread=(2,))


def mixture(rows=40):
    """Components can be exchanged, and there are more parameters than a tenth of the rows."""
    rng = np.random.default_rng(2)
    data = rng.normal(size=(rows,)) + 4.0 * (rng.random(rows) < 0.5)

    def log_likelihood(p, value):
        parts = jax.nn.log_softmax(p["weights"]) - 0.5 * (value - p["means"]) ** 2
        return jax.scipy.special.logsumexp(parts)

    return model_of(log_likelihood, data, weights=(3,), means=(3,))


def experts():
    """A mixture of regressions with weights that depend on the row."""
    rng = np.random.default_rng(6)
    data = {"x": rng.normal(size=(ROWS, 3)), "y": rng.normal(size=ROWS)}

    def log_likelihood(p, row):
        parts = jax.nn.log_softmax(row["x"] @ p["gate"])
        normals = jax.scipy.stats.norm.logpdf(row["y"], row["x"] @ p["slope"], jnp.exp(p["width"]))
        return jax.scipy.special.logsumexp(parts + normals)

    return model_of(log_likelihood, data, gate=(3, 4), slope=(3, 4), width=(4,))


def seasons():
    """A shift of all months leaves nothing as it was; that two arrays have twelve entries is no
    symmetry.
    """
    rng = np.random.default_rng(3)
    data = {"m": np.arange(ROWS) % 12, "y": rng.normal(size=ROWS)}

    def log_likelihood(p, row):
        return -0.5 * (row["y"] - p["level"][row["m"]] * jnp.exp(p["tilt"][row["m"]])) ** 2

    return model_of(log_likelihood, data, level=(12,), tilt=(12,))


def ring():
    """Unchanged by a shift of both arrays, not by exchanging two entries."""
    data = np.random.default_rng(4).normal(size=ROWS)

    def log_likelihood(p, value):
        return -0.5 * (value - jnp.sum(p["a"] * p["b"] * jnp.roll(p["a"], 1))) ** 2

    return model_of(log_likelihood, data, a=(5,), b=(5,))


def unused():
    """An array that rows never look at."""
    data = np.random.default_rng(5).normal(size=ROWS)

    def log_likelihood(p, value):
        return -0.5 * (value - p["a"] @ jnp.arange(8.0)) ** 2

    return model_of(log_likelihood, data, a=(8,), b=(8,))


OTHERS = [wide_regression, many_classes, groups, mixture, experts, seasons, ring, unused]


@pytest.mark.parametrize("make", OTHERS)
def test_others_are_not(make):
    assert whole_network(make()) == ""


def test_a_regression_is_never_looked_at():
    data = labelled(40, 3)
    model = orn.glm(data["x"], data["y"], "categorical", prior_precision=1.0)
    assert whole_network(model) == ""
    assert "hidden_units" not in vars(model)


def test_many_rows_make_a_small_network_an_ordinary_model():
    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=(400, 3)), "y": rng.integers(0, 3, 400)}
    model = perceptron(data)
    assert model.dim * 10 <= model.n_data
    assert whole_network(model) == ""


def test_the_default_refuses_and_says_what_to_do():
    with pytest.raises(orn.NetworkError) as refused:
        orn.sample(perceptron(), progress=False)
    for words in ("orn.last_layer", "temperature scaling", "ensemble", "a, b, c share"):
        assert words in str(refused.value)


def quick_posterior(model):
    """Draws that took nothing to make."""
    curvature = orn.Curvature(
        mode=np.zeros(model.dim),
        hessian=np.eye(model.dim),
        noise=np.eye(model.dim),
        n_data=model.n_data,
    )
    return orn.laplace(model, curvature=curvature, draws=10)


def test_a_verdict_is_at_best_a_matter_of_caution():
    model = perceptron()
    with pytest.warns(orn.TrustWarning, match=r"network as a whole.*orn\.last_layer"):
        post = quick_posterior(model)
    found = network_as_a_whole(Subject(post, model))
    assert found.level == "caution" and "can be exchanged" in found.sentence


def test_a_verdict_on_another_model_says_nothing_of_networks():
    model = mixture()
    assert network_as_a_whole(Subject(quick_posterior(model), model)) is None


@pytest.mark.nightly
def test_a_named_sampler_runs_with_a_warning():
    with pytest.warns(orn.TrustWarning, match=r"network as a whole.*orn\.last_layer"):
        post = orn.sample(perceptron(), "nuts", draws=60, chains=2, progress=False)
    verdict = post.check()
    assert verdict["whole network"].level == "caution" and not verdict.trusted
