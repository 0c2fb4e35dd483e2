"""Time series and dynamical systems of NumPyro's examples and tutorials."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.experimental.ode import odeint
from numpyro.contrib.control_flow import scan

from numpyro_models.catalogue import Call, case


@case("AR(2) by scan, the observations handed over by condition")
def autoregression() -> Call:
    rng = np.random.default_rng(30)
    y = np.zeros(60)
    for t in range(2, 60):
        y[t] = 0.5 * y[t - 1] - 0.3 * y[t - 2] + 0.5 * rng.normal()

    def model(y):
        alpha1 = numpyro.sample("alpha_1", dist.Normal(0.0, 1.0))
        alpha2 = numpyro.sample("alpha_2", dist.Normal(0.0, 1.0))
        const = numpyro.sample("const", dist.Normal(0.0, 1.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))

        def transition(carry, _):
            before, last = carry
            mean = const + alpha1 * last + alpha2 * before
            now = numpyro.sample("y", dist.Normal(mean, sigma))
            return (last, now), mean

        with numpyro.handlers.condition(data={"y": y[2:]}):
            _, mu = scan(transition, (y[0], y[1]), jnp.arange(2, len(y)))
        numpyro.deterministic("mu", mu)

    return Call(model, (jnp.asarray(y),))


@case("stochastic volatility: Gaussian random walk")
def volatility() -> Call:
    rng = np.random.default_rng(31)
    log_sd = -1.0 + np.cumsum(0.1 * rng.normal(size=60))
    returns = np.exp(log_sd) * rng.standard_t(10, 60)

    def model(returns):
        step = numpyro.sample("sigma", dist.Exponential(50.0))
        s = numpyro.sample("s", dist.GaussianRandomWalk(scale=step, num_steps=len(returns)))
        nu = numpyro.sample("nu", dist.Exponential(0.1))
        law = dist.StudentT(df=nu, loc=0.0, scale=jnp.exp(s))
        return numpyro.sample("r", law, obs=returns)

    return Call(model, (returns,))


@case("Holt-Winters: exponential smoothing with a season, by lax.scan")
def holt_winters() -> Call:
    rng = np.random.default_rng(33)
    t = np.arange(72)
    y = 5.0 + 0.05 * t + np.sin(2.0 * np.pi * t / 6.0) + 0.3 * rng.normal(size=72)

    def model(y, season):
        level_smooth = numpyro.sample("level_smoothing", dist.Beta(1, 1))
        trend_smooth = numpyro.sample("trend_smoothing", dist.Beta(1, 1))
        season_smooth = numpyro.sample("adj_seasonal", dist.Beta(1, 1))
        level0 = numpyro.sample("level_init", dist.Normal(5.0, 1.0))
        trend0 = numpyro.sample("trend_init", dist.Normal(0.0, 0.1))
        with numpyro.plate("season", season):
            seasons0 = numpyro.sample("seasonality_init", dist.Normal(0.0, 1.0))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))

        def step(carry, value):
            level, trend, seasons = carry
            mean = level + trend + seasons[0]
            new = level_smooth * (value - seasons[0]) + (1 - level_smooth) * (level + trend)
            slope = trend_smooth * (new - level) + (1 - trend_smooth) * trend
            part = season_smooth * (value - new) + (1 - season_smooth) * seasons[0]
            return (new, slope, jnp.append(seasons[1:], part)), mean

        _, mean = jax.lax.scan(step, (level0, trend0, seasons0), y)
        numpyro.sample("y", dist.Normal(mean, noise), obs=y)

    return Call(model, (jnp.asarray(y), 6))


@case("predators and prey: an ordinary differential equation")
def predators() -> Call:
    rng = np.random.default_rng(34)
    times = np.arange(12.0)
    truth = np.empty((12, 2))
    state = np.array([30.0, 5.0])
    for number in range(12):
        truth[number] = state
        for _ in range(1000):
            u, v = state
            state = state + 0.001 * np.array([0.55 * u - 0.028 * u * v, 0.024 * u * v - 0.8 * v])
    y = truth * np.exp(0.15 * rng.normal(size=(12, 2)))

    def dz_dt(z, t, theta):
        u, v = z[0], z[1]
        alpha, beta, gamma, delta = theta[0], theta[1], theta[2], theta[3]
        return jnp.stack([(alpha - beta * v) * u, (-gamma + delta * u) * v])

    def model(N, y=None):
        z_init = numpyro.sample("z_init", dist.LogNormal(jnp.log(10), 1).expand([2]))
        ts = jnp.arange(float(N))
        theta = numpyro.sample(
            "theta",
            dist.TruncatedNormal(
                low=0.0, loc=jnp.array([1.0, 0.05, 1.0, 0.05]), scale=jnp.array([0.2, 0.01] * 2)
            ),
        )
        z = odeint(dz_dt, z_init, ts, theta, rtol=1e-6, atol=1e-5, mxstep=1000)
        sigma = numpyro.sample("sigma", dist.LogNormal(-1, 1).expand([2]))
        numpyro.sample("y", dist.LogNormal(jnp.log(z), sigma), obs=y)

    return Call(model, (len(times),), {"y": y})


@case("hidden Markov model: supervised counts, words by the forward algorithm in a factor")
def forward_algorithm() -> Call:
    rng = np.random.default_rng(35)
    transitions = np.array([[0.8, 0.2], [0.3, 0.7]])
    emissions = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    states = [0]
    for _ in range(199):
        states.append(int(rng.choice(2, p=transitions[states[-1]])))
    words = np.array([rng.choice(3, p=emissions[state]) for state in states])

    def model(states, words, unlabelled):
        p_move = numpyro.sample("transition_prob", dist.Dirichlet(jnp.ones((2, 2))))
        p_word = numpyro.sample("emission_prob", dist.Dirichlet(jnp.ones((2, 3))))
        numpyro.sample("states", dist.Categorical(p_move[states[:-1]]), obs=states[1:])
        numpyro.sample("words", dist.Categorical(p_word[states]), obs=words)

        def forward(log_prob, word):
            inner = log_prob[:, None] + jnp.log(p_move) + jnp.log(p_word[:, word])
            return jax.scipy.special.logsumexp(inner, axis=0), None

        first = jnp.log(p_word[:, unlabelled[0]])
        log_prob, _ = jax.lax.scan(forward, first, unlabelled[1:])
        numpyro.factor("forward", jax.scipy.special.logsumexp(log_prob))

    known = np.array(states[:100])
    return Call(model, (jnp.asarray(known), jnp.asarray(words[:100]), jnp.asarray(words[100:])))


@case("local trend with gaps: missing days masked inside scan")
def gaps() -> Call:
    rng = np.random.default_rng(36)
    y = 1.0 + np.cumsum(0.2 * rng.normal(size=50)) + 0.3 * rng.normal(size=50)
    y[10:14] = np.nan

    def model(y):
        seen = ~np.isnan(y)
        filled = np.where(seen, y, 0.0)
        rho = numpyro.sample("rho", dist.Beta(8.0, 2.0))
        mean = numpyro.sample("mean", dist.Normal(1.0, 1.0))
        drift = numpyro.sample("drift", dist.HalfNormal(0.5))
        noise = numpyro.sample("noise", dist.HalfNormal(0.5))

        def step(level, each):
            value, known = each
            z = numpyro.sample("z", dist.Normal(0.0, 1.0))
            level = mean + rho * (level - mean) + drift * z
            with numpyro.handlers.mask(mask=known):
                numpyro.sample("y", dist.Normal(level, noise), obs=value)
            return level, None

        scan(step, mean, (filled, seen))

    return Call(model, (y,))
