"""Hierarchical models of NumPyro's examples and tutorials."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import expit
from numpyro.handlers import reparam
from numpyro.infer.reparam import LocScaleReparam

from numpyro_models.catalogue import Call, case

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


@case("eight schools, centred")
def eight_schools() -> Call:
    def model(J, sigma, y=None):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("J", J):
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
            numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)

    return Call(model, (8, ERRORS), {"y": EFFECTS})


@case("eight schools, non-centred by a transformed distribution")
def eight_schools_non_centred() -> Call:
    def model(J, sigma, y=None):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("J", J):
            with reparam(config={"theta": LocScaleReparam(0)}):
                theta = numpyro.sample("theta", dist.Normal(mu, tau))
            numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)

    return Call(model, (8, ERRORS), {"y": EFFECTS})


def _batters() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(20)
    at_bats = np.full(18, 45)
    return at_bats, rng.binomial(at_bats, rng.beta(30.0, 80.0, 18))


@case("baseball: everyone alike")
def fully_pooled() -> Call:
    def model(at_bats, hits=None):
        phi = numpyro.sample("phi", dist.Uniform(0, 1))
        with numpyro.plate("num_players", at_bats.shape[0]):
            return numpyro.sample("obs", dist.Binomial(at_bats, probs=phi), obs=hits)

    return Call(model, _batters())


@case("baseball: nobody alike")
def not_pooled() -> Call:
    def model(at_bats, hits=None):
        with numpyro.plate("num_players", at_bats.shape[0]):
            phi = numpyro.sample("phi", dist.Uniform(0, 1))
            return numpyro.sample("obs", dist.Binomial(at_bats, probs=phi), obs=hits)

    return Call(model, _batters())


@case("baseball: partially pooled")
def partially_pooled() -> Call:
    def model(at_bats, hits=None):
        m = numpyro.sample("m", dist.Uniform(0, 1))
        kappa = numpyro.sample("kappa", dist.Pareto(1, 1.5))
        with numpyro.plate("num_players", at_bats.shape[0]):
            phi = numpyro.sample("phi", dist.Beta(m * kappa, (1 - m) * kappa))
            return numpyro.sample("obs", dist.Binomial(at_bats, probs=phi), obs=hits)

    return Call(model, _batters())


@case("baseball: partially pooled on the logit scale")
def partially_pooled_logit() -> Call:
    def model(at_bats, hits=None):
        loc = numpyro.sample("loc", dist.Normal(-1, 1))
        scale = numpyro.sample("scale", dist.HalfCauchy(1))
        with numpyro.plate("num_players", at_bats.shape[0]):
            alpha = numpyro.sample("alpha", dist.Normal(loc, scale))
            return numpyro.sample("obs", dist.Binomial(at_bats, logits=alpha), obs=hits)

    return Call(model, _batters())


@case("admissions: binomial with varying intercepts and slopes")
def admissions() -> Call:
    rng = np.random.default_rng(21)
    dept, male = np.repeat(np.arange(6), 2), np.tile([1.0, 0.0], 6)
    applications = rng.integers(50, 500, 12)
    odds = np.linspace(0.6, -2.0, 6)[dept] - 0.1 * male
    admit = rng.binomial(applications, 1.0 / (1.0 + np.exp(-odds)))

    def model(dept, male, applications, admit=None):
        v_mu = numpyro.sample("v_mu", dist.Normal(0, jnp.array([4.0, 1.0])))
        sigma = numpyro.sample("sigma", dist.HalfNormal(jnp.ones(2)))
        root = numpyro.sample("L_Rho", dist.LKJCholesky(2, concentration=2))
        scale_tril = sigma[..., jnp.newaxis] * root
        z = numpyro.sample("z", dist.Normal(jnp.zeros((6, 2)), 1))
        v = jnp.dot(scale_tril, z.T).T
        logits = v_mu[0] + v[dept, 0] + (v_mu[1] + v[dept, 1]) * male
        if admit is None:
            numpyro.deterministic("probs", expit(logits))
        numpyro.sample("admit", dist.Binomial(applications, logits=logits), obs=admit)

    return Call(model, (dept, male, applications), {"admit": admit})


@case("lung function: lines of patients, plates in helper functions")
def lung_function() -> Call:
    rng = np.random.default_rng(22)
    patient = np.repeat(np.arange(12), 6)
    weeks = np.tile(np.linspace(-1.0, 1.0, 6), 12)
    fvc = (
        rng.normal(0.0, 1.0, 12)[patient]
        + rng.normal(-0.3, 0.3, 12)[patient] * weeks
        + 0.2 * rng.normal(size=72)
    )

    def lines(patients):
        mu_a = numpyro.sample("mu_a", dist.Normal(0.0, 1.0))
        sigma_a = numpyro.sample("sigma_a", dist.HalfNormal(1.0))
        mu_b = numpyro.sample("mu_b", dist.Normal(0.0, 1.0))
        sigma_b = numpyro.sample("sigma_b", dist.HalfNormal(1.0))
        with numpyro.plate("patients", patients):
            a = numpyro.sample("a", dist.Normal(mu_a, sigma_a))
            b = numpyro.sample("b", dist.Normal(mu_b, sigma_b))
        return a, b

    def noisy(mean, obs):
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        with numpyro.plate("data", len(mean)):
            numpyro.sample("obs", dist.Normal(mean, sigma), obs=obs)

    def model(patient_code, Weeks, FVC_obs=None):
        a, b = lines(len(np.unique(patient_code)))
        noisy(a[patient_code] + b[patient_code] * Weeks, FVC_obs)

    return Call(model, (patient, weeks), {"FVC_obs": fvc})


@case("radon: varying intercepts with a predictor of the group")
def radon() -> Call:
    rng = np.random.default_rng(23)
    county, floor = rng.integers(0, 15, 400), rng.integers(0, 2, 400)
    uranium = rng.normal(size=15)
    level = 1.3 + 0.5 * uranium + 0.3 * rng.normal(size=15)
    y = level[county] - 0.6 * floor + 0.7 * rng.normal(size=400)

    def model(county, uranium, floor, log_radon=None):
        g0 = numpyro.sample("g0", dist.Normal(0.0, 2.0))
        g1 = numpyro.sample("g1", dist.Normal(0.0, 1.0))
        sigma_a = numpyro.sample("sigma_a", dist.HalfNormal(1.0))
        with numpyro.plate("counties", uranium.shape[0]):
            offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
        a = numpyro.deterministic("a", g0 + g1 * uranium + sigma_a * offset)
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        sigma = numpyro.sample("sigma", dist.Exponential(1.0))
        with numpyro.plate("homes", county.shape[0]):
            mean = a[county] + b * floor
            numpyro.sample("log_radon", dist.Normal(mean, sigma), obs=log_radon)

    return Call(model, (county, uranium, floor), {"log_radon": y})


@case("mortality: areas and ages, counts with large exposures")
def mortality() -> Call:
    rng = np.random.default_rng(26)
    area, age = np.repeat(np.arange(10), 5), np.tile(np.arange(5), 10)
    population = rng.integers(5_000, 50_000, 50)
    rate = np.exp(-6.0 + 0.7 * age + 0.2 * rng.normal(size=10)[area])
    deaths = rng.poisson(population * rate)

    def model(area, age, areas, ages, population, deaths=None):
        alpha = numpyro.sample("alpha", dist.Normal(-5.0, 3.0))
        sigma_area = numpyro.sample("sigma_area", dist.HalfNormal(1.0))
        sigma_step = numpyro.sample("sigma_step", dist.HalfNormal(1.0))
        with numpyro.plate("areas", areas):
            by_area = numpyro.sample("by_area", dist.Normal(0.0, sigma_area))
        with numpyro.plate("ages", ages - 1):
            steps = numpyro.sample("steps", dist.Normal(0.0, sigma_step))
        by_age = jnp.concatenate([jnp.zeros(1), jnp.cumsum(steps)])
        lam = jnp.exp(alpha + by_area[area] + by_age[age])
        with numpyro.plate("N", population.shape[0]):
            numpyro.sample("deaths", dist.Poisson(population * lam), obs=deaths)

    return Call(model, (area, age, 10, 5, population), {"deaths": deaths})


@case("imputation: missing ages as latents, found by NumPy inside the model")
def imputation() -> Call:
    rng = np.random.default_rng(27)
    age, female = rng.normal(size=120), rng.integers(0, 2, 120)
    odds = -0.5 - 0.4 * age + 1.5 * female
    survived = (rng.random(120) < 1.0 / (1.0 + np.exp(-odds))).astype(int)
    age[rng.choice(120, 20, replace=False)] = np.nan

    def model(age, female, survived=None):
        b_sex = numpyro.sample("b_sex", dist.Normal(0, 1).expand([2]))
        b_age = numpyro.sample("b_age", dist.Normal(0, 1))
        mu = numpyro.sample("age_mu", dist.Normal(0, 1))
        sigma = numpyro.sample("age_sigma", dist.HalfNormal(1))
        missing = np.isnan(age).nonzero()[0]
        guessed = numpyro.sample(
            "age_impute", dist.Normal(mu, sigma).expand([len(missing)]).mask(False)
        )
        age = jnp.asarray(age).at[missing].set(guessed)
        numpyro.sample("age", dist.Normal(mu, sigma), obs=age)
        logits = b_sex[female] + b_age * age
        numpyro.sample("survived", dist.Bernoulli(logits=logits), obs=survived)

    return Call(model, (age, female), {"survived": survived})


@case("cognitive modelling: two rates and their difference")
def two_rates() -> Call:
    def model(n1, n2, k1, k2):
        theta1 = numpyro.sample("theta1", dist.Beta(1.0, 1.0))
        theta2 = numpyro.sample("theta2", dist.Beta(1.0, 1.0))
        numpyro.deterministic("delta", theta1 - theta2)
        numpyro.sample("k1", dist.Binomial(n1, theta1), obs=k1)
        numpyro.sample("k2", dist.Binomial(n2, theta2), obs=k2)

    return Call(model, (10, 10, 5, 7))
