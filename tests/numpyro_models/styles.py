"""Styles of writing: the same few regressions, with data and plates where users put them."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from flax import nnx
from numpyro import handlers
from numpyro.contrib.module import random_nnx_module

from numpyro_models.catalogue import Call, case


def _rows(seed: int, count: int = 600) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 2))
    return x, 0.5 + x @ [1.0, -0.5] + 0.7 * rng.normal(size=count)


def _groups(seed: int, count: int = 600) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    group, x = rng.integers(0, 6, count), rng.normal(size=count)
    return group, x, np.linspace(-1, 1, 6)[group] + 0.5 * x + 0.6 * rng.normal(size=count)


def _likelihood(mean, y):
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    with numpyro.plate("rows", mean.shape[0]):
        numpyro.sample("y", dist.Normal(mean, sigma), obs=y)


@case("a plate over the rows, as in the documentation")
def plain() -> Call:
    def model(x, y=None):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
        a = numpyro.sample("a", dist.Normal(0, 1))
        _likelihood(a + x @ b, y)

    x, y = _rows(50)
    return Call(model, (x, y))


@case("data by closure")
def closure() -> Call:
    x, y = _rows(51)

    def model():
        b = numpyro.sample("b", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
        a = numpyro.sample("a", dist.Normal(0, 1))
        _likelihood(a + x @ b, y)

    return Call(model)


@case("observations by functools.partial")
def by_partial() -> Call:
    x, y = _rows(52)

    def model(x, y=None):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        numpyro.sample("y", dist.Normal(x @ b, sigma), obs=y)

    return Call(partial(model, y=jnp.asarray(y)), (jnp.asarray(x),))


@case("observations by handlers.condition")
def by_condition() -> Call:
    x, y = _rows(53)

    def model(x):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ b, sigma))

    return Call(handlers.condition(model, data={"y": jnp.asarray(y)}), (x,))


@case("a DataFrame as the argument")
def data_frame() -> Call:
    group, x, y = _groups(54)
    frame = pd.DataFrame({"group": pd.Categorical(list("abcdef"))[group], "x": x, "y": y})

    def model(df):
        code = df["group"].cat.codes.values
        with numpyro.plate("groups", df["group"].nunique()):
            a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        sigma = numpyro.sample("sigma", dist.Exponential(1.0))
        with numpyro.plate("rows", len(df)):
            mean = a[code] + b * df["x"].values
            numpyro.sample("y", dist.Normal(mean, sigma), obs=df["y"].values)

    return Call(model, (frame,))


@case("group indices by closure")
def group_closure() -> Call:
    group, x, y = _groups(55)
    groups = len(np.unique(group))

    def model(x, y=None):
        with numpyro.plate("groups", groups):
            a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        _likelihood(a[group] + b * x, y)

    return Call(model, (x, y))


@case("rows with missing outcomes, masked")
def masked() -> Call:
    x, y = _rows(56)
    y[::7] = np.nan

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
        a = numpyro.sample("a", dist.Normal(0, 1))
        sigma = numpyro.sample("sigma", dist.Exponential(1.0))
        with numpyro.plate("rows", len(y)), handlers.mask(mask=~jnp.isnan(y)):
            numpyro.sample("y", dist.Normal(a + x @ b, sigma), obs=y)

    return Call(model, (x, y))


@case("a Flax NNX network with random weights", symmetric=True)
def flax_network() -> Call:
    rng = np.random.default_rng(57)
    x = rng.uniform(-1, 1, size=(80, 1))
    y = np.sin(3.0 * x[:, 0]) + 0.2 * rng.normal(size=80)

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.inner = nnx.Linear(1, 4, rngs=rngs)
            self.outer = nnx.Linear(4, 1, rngs=rngs)

        def __call__(self, x):
            return self.outer(nnx.tanh(self.inner(x)))

    net = Net(nnx.Rngs(params=jax.random.key(0)))

    def model(x, y):
        network = random_nnx_module("net", net, prior=dist.Normal(0.0, 1.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(network(x)[:, 0], sigma), obs=y)

    return Call(model, (jnp.asarray(x), jnp.asarray(y)))


@case("several outcomes at once with an LKJ prior, no plate")
def multivariate() -> Call:
    rng = np.random.default_rng(58)
    x = rng.normal(size=(500, 2))
    noise = rng.normal(size=(500, 2)) @ np.array([[0.8, 0.3], [0.0, 0.6]])
    y = x @ np.array([[1.0, 0.2], [-0.5, 0.7]]) + noise

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(jnp.zeros((2, 2)), 1.0).to_event(2))
        sd = numpyro.sample("sd", dist.Exponential(1.0).expand([2]).to_event(1))
        root = numpyro.sample("root", dist.LKJCholesky(2, concentration=2.0))
        law = dist.MultivariateNormal(x @ b, scale_tril=sd[:, None] * root)
        numpyro.sample("y", law, obs=y)

    return Call(model, (x, y))


@case("a method of a class that holds the data")
def method() -> Call:
    x, y = _rows(59)

    class Regression:
        def __init__(self, x, y):
            self.x, self.y = x, y

        def model(self):
            b = numpyro.sample("b", dist.Normal(0, 1).expand([self.x.shape[1]]).to_event(1))
            a = numpyro.sample("a", dist.Normal(0, 1))
            _likelihood(a + self.x @ b, self.y)

    return Call(Regression(x, y).model)


@case("a dictionary of data, subsampled in the plate")
def dictionary() -> Call:
    x, y = _rows(60)

    def model(data, subsample):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
        sigma = numpyro.sample("sigma", dist.Exponential(1.0))
        with numpyro.plate("rows", len(data["y"]), subsample_size=subsample) as rows:
            mean = data["x"][rows] @ b
            numpyro.sample("y", dist.Normal(mean, sigma), obs=data["y"][rows])

    return Call(model, ({"x": jnp.asarray(x), "y": jnp.asarray(y)}, 50))


@case("outcomes standardised inside the model")
def standardised() -> Call:
    x, y = _rows(61)

    def model(x, y):
        z = (y - y.mean()) / y.std()
        b = numpyro.sample("b", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
        a = numpyro.sample("a", dist.Normal(0, 1))
        _likelihood(a + x @ b, z)

    return Call(model, (x, y))


@case("a constant that is fitted and not inferred: a param statement")
def with_param() -> Call:
    x, y = _rows(63)

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, numpyro.param("width", 1.0)).expand([2]).to_event(1))
        _likelihood(x @ b, y)

    return Call(model, (x, y))
