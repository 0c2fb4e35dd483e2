"""Regressions of NumPyro's examples and tutorials."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.hsgp.approximation import hsgp_squared_exponential

from numpyro_models.catalogue import Call, case


@case("covtype: logistic regression without a plate")
def covtype() -> Call:
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.normal(size=(800, 5)), np.ones(800)])
    y = (rng.random(800) < 1.0 / (1.0 + np.exp(-x @ np.linspace(-1, 1, 6)))).astype(int)

    def model(data, labels):
        width = data.shape[1]
        coefs = numpyro.sample("coefs", dist.Normal(jnp.zeros(width), jnp.ones(width)))
        return numpyro.sample("obs", dist.Bernoulli(logits=jnp.dot(data, coefs)), obs=labels)

    return Call(model, (jnp.asarray(x), jnp.asarray(y)))


@case("Bayesian regression: divorce rates by two predictors, keywords and None by default")
def divorce() -> Call:
    rng = np.random.default_rng(2)
    marriage, age = rng.normal(size=50), rng.normal(size=50)
    rate = -0.6 * age + 0.05 * marriage + 0.8 * rng.normal(size=50)

    def model(marriage=None, age=None, divorce=None):
        a = numpyro.sample("a", dist.Normal(0.0, 0.2))
        mean, by_age = 0.0, 0.0
        if marriage is not None:
            mean = numpyro.sample("bM", dist.Normal(0.0, 0.5)) * marriage
        if age is not None:
            by_age = numpyro.sample("bA", dist.Normal(0.0, 0.5)) * age
        sigma = numpyro.sample("sigma", dist.Exponential(1.0))
        mu = numpyro.deterministic("mu", a + mean + by_age)
        numpyro.sample("obs", dist.Normal(mu, sigma), obs=divorce)

    return Call(model, (), {"marriage": marriage, "age": age, "divorce": rate})


@case("divorce rates with measurement error in both variables")
def measurement_error() -> Call:
    rng = np.random.default_rng(3)
    age = rng.normal(size=40)
    truth = -0.8 * age + 0.4 * rng.normal(size=40)
    error = rng.uniform(0.1, 0.4, 40)
    seen = truth + error * rng.normal(size=40)

    def model(age, observed, error):
        a = numpyro.sample("a", dist.Normal(0.0, 0.2))
        slope = numpyro.sample("bA", dist.Normal(0.0, 0.5))
        sigma = numpyro.sample("sigma", dist.Exponential(1.0))
        rates = numpyro.sample("rates", dist.Normal(a + slope * age, sigma))
        numpyro.sample("obs", dist.Normal(rates, error), obs=observed)

    return Call(model, (age, seen, error))


@case("zero-inflated Poisson regression")
def zero_inflated() -> Call:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(400, 2))
    y = rng.poisson(np.exp(0.5 + x @ [0.4, -0.3])) * (rng.random(400) < 0.7)

    def model(x, y):
        b1 = numpyro.sample("b1", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
        b2 = numpyro.sample("b2", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
        a1, a2 = numpyro.sample("a", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("obs", x.shape[0]):
            law = dist.ZeroInflatedPoisson(
                gate_logits=a1 + x @ b1, rate=jnp.exp(jnp.clip(a2 + x @ b2, -10.0, 10.0))
            )
            numpyro.sample("Y", law, obs=y)

    return Call(model, (x, y))


@case("horseshoe regression")
def horseshoe() -> Call:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(120, 6))
    y = x @ [2.0, 0.0, 0.0, -1.5, 0.0, 0.0] + 0.5 * rng.normal(size=120)

    def model(X, Y):
        width = X.shape[1]
        lambdas = numpyro.sample("lambdas", dist.HalfCauchy(jnp.ones(width)))
        tau = numpyro.sample("tau", dist.HalfCauchy(jnp.ones(1)))
        raw = numpyro.sample("unscaled_betas", dist.Normal(0.0, jnp.ones(width)))
        betas = numpyro.deterministic("betas", tau * lambdas * raw)
        precision = numpyro.sample("prec_obs", dist.Gamma(3.0, 1.0))
        numpyro.sample("Y", dist.Normal(X @ betas, 1.0 / jnp.sqrt(precision)), obs=Y)

    return Call(model, (x, y))


@case("sparse regression: pairwise interactions by a kernel")
def sparse_kernel() -> Call:
    rng = np.random.default_rng(6)
    x = rng.normal(size=(60, 3))
    y = x[:, 0] + 0.5 * x[:, 0] * x[:, 1] + 0.2 * rng.normal(size=60)

    def kernel(X, Z, eta1, eta2, c):
        eta1sq, eta2sq = eta1**2, eta2**2
        inner = X @ Z.T
        squares = (X**2) @ (Z**2).T
        return (
            0.5 * eta2sq * (1.0 + inner) ** 2
            - 0.5 * eta2sq * squares
            + (eta1sq - eta2sq) * inner
            + c**2
            - 0.5 * eta2sq
        )

    def model(X, Y):
        width = X.shape[1]
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        eta1 = numpyro.sample("eta1", dist.HalfNormal(1.0))
        eta2 = numpyro.deterministic("eta2", 0.3 * eta1**2)
        scale = numpyro.sample("lambda", dist.HalfNormal(1.0).expand([width]))
        inside = kernel(scale * X, scale * X, eta1, eta2, 1.0) + sigma**2 * jnp.eye(len(X))
        law = dist.MultivariateNormal(jnp.zeros(len(X)), inside)
        numpyro.sample("Y", law, obs=Y)

    return Call(model, (x, y))


@case("Gaussian process regression")
def gaussian_process() -> Call:
    rng = np.random.default_rng(7)
    x = np.linspace(-1.0, 1.0, 30)
    y = x + 0.2 * x**3 + 0.5 * (0.5 + x) ** 2 * np.sin(4.0 * x) + 0.15 * rng.normal(size=30)

    def kernel(X, Z, variance, length, noise):
        inside = variance * jnp.exp(-0.5 * ((X[:, None] - Z) / length) ** 2)
        return inside + (noise + 1e-6) * jnp.eye(X.shape[0])

    def model(X, Y):
        var = numpyro.sample("kernel_var", dist.LogNormal(0.0, 1.0))
        noise = numpyro.sample("kernel_noise", dist.LogNormal(-1.0, 1.0))
        length = numpyro.sample("kernel_length", dist.LogNormal(0.0, 1.0))
        inside = kernel(X, X, var, length, noise)
        law = dist.MultivariateNormal(loc=jnp.zeros(X.shape[0]), covariance_matrix=inside)
        numpyro.sample("Y", law, obs=Y)

    return Call(model, (x, y))


@case("Gaussian process in Hilbert space")
def hilbert_space() -> Call:
    rng = np.random.default_rng(8)
    x = np.sort(rng.uniform(-1.0, 1.0, 80))
    y = np.sin(4.0 * x) + 0.2 * rng.normal(size=80)

    def model(x, ell, m, y=None):
        alpha = numpyro.sample("alpha", dist.HalfNormal(1.0))
        length = numpyro.sample("length", dist.InverseGamma(5.0, 1.0))
        noise = numpyro.sample("noise", dist.HalfNormal(0.5))
        f = hsgp_squared_exponential(x=x, alpha=alpha, length=length, ell=ell, m=m)
        with numpyro.plate("data", x.shape[0]):
            numpyro.sample("likelihood", dist.Normal(f, noise), obs=y)

    return Call(model, (x, 1.3, 12), {"y": y})


@case("Bayesian neural network with one hidden layer, weights by hand", symmetric=True)
def bnn() -> Call:
    rng = np.random.default_rng(11)
    x = np.linspace(-1.0, 1.0, 60)
    features = np.power(x[:, None], np.arange(3))
    y = 2.0 * x**2 + np.sin(3.0 * x) + 0.3 * rng.normal(size=60)

    def model(X, Y, hidden, width=1):
        w1 = numpyro.sample("w1", dist.Normal(jnp.zeros((X.shape[1], hidden)), 1.0))
        w2 = numpyro.sample("w2", dist.Normal(jnp.zeros((hidden, width)), 1.0))
        out = jnp.tanh(X @ w1) @ w2
        precision = numpyro.sample("prec_obs", dist.Gamma(3.0, 1.0))
        with numpyro.plate("data", Y.shape[0]):
            law = dist.Normal(out, 1.0 / jnp.sqrt(precision)).to_event(1)
            numpyro.sample("Y", law, obs=Y)

    return Call(model, (features, y[:, None], 3))


@case("ordinal regression with Dirichlet cutpoints")
def ordinal() -> Call:
    rng = np.random.default_rng(12)
    x = rng.normal(size=200)
    y = np.digitize(1.2 * x + rng.logistic(size=200), [-1.0, 1.0])

    def model(X, Y, classes, concentration, anchor=0.0):
        slope = numpyro.sample("b_X_eta", dist.Normal(0, 5))
        base = dist.Dirichlet(concentration)
        transform = dist.transforms.SimplexToOrderedTransform(anchor)
        cuts = numpyro.sample("c_y", dist.TransformedDistribution(base, transform))
        with numpyro.plate("obs", X.shape[0]):
            eta = X * slope
            numpyro.sample("Y", dist.OrderedLogistic(eta, cuts), obs=Y)

    return Call(model, (x, y, 3, np.ones(3) * 2.0))


@case("robust regression: Student t with unknown degrees of freedom, no plate")
def robust() -> Call:
    rng = np.random.default_rng(13)
    x = rng.normal(size=300)
    y = 0.5 + 1.5 * x + 0.4 * rng.standard_t(4, 300)

    def model(x, y):
        a = numpyro.sample("a", dist.Normal(0, 5))
        b = numpyro.sample("b", dist.Normal(0, 5))
        df = numpyro.sample("df", dist.Gamma(2.0, 0.1))
        scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
        numpyro.sample("y", dist.StudentT(df, a + b * x, scale), obs=y)

    return Call(model, (x, y))


@case("truncated normal outcomes")
def truncated() -> Call:
    rng = np.random.default_rng(14)
    y = rng.normal(1.0, 1.5, 900)
    y = y[y > 0.0][:500]

    def model(low, y):
        loc = numpyro.sample("loc", dist.Normal(0.0, 2.0))
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
        with numpyro.plate("obs", len(y)):
            numpyro.sample("y", dist.TruncatedNormal(loc, scale, low=low), obs=y)

    return Call(model, (0.0, y))


@case("censored survival times by a factor")
def censored() -> Call:
    rng = np.random.default_rng(15)
    x = rng.normal(size=250)
    time = rng.weibull(1.5, 250) * np.exp(0.5 + 0.4 * x)
    event = time < 2.5

    def model(x, time, event):
        a = numpyro.sample("a", dist.Normal(0.0, 2.0))
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        shape = numpyro.sample("shape", dist.LogNormal(0.0, 0.5))
        scale = jnp.exp(a + b * x)
        hazard = jnp.log(shape / scale) + (shape - 1.0) * jnp.log(time / scale)
        survival = -((time / scale) ** shape)
        numpyro.factor("log_lik", jnp.where(event, hazard, 0.0) + survival)

    return Call(model, (x, np.minimum(time, 2.5), event))
