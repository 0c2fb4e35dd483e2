"""Models with discrete latents, and mixtures, of NumPyro's examples and tutorials."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.ops.indexing import Vindex

from numpyro_models.catalogue import Call, case


@case("Gaussian mixture: a discrete assignment for each row")
def assignments() -> Call:
    rng = np.random.default_rng(40)
    which = rng.random(200) < 0.35
    y = np.where(which, rng.normal(-2.0, 0.7, 200), rng.normal(1.5, 0.7, 200))

    def model(data):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 2.0))
        first = numpyro.sample("first", dist.Normal(-2.0, 2.0))
        gap = numpyro.sample("gap", dist.HalfNormal(5.0))
        locs = jnp.stack([first, first + gap])
        with numpyro.plate("data", len(data)):
            assignment = numpyro.sample("assignment", dist.Categorical(weights))
            numpyro.sample("obs", dist.Normal(locs[assignment], scale), obs=data)

    return Call(model, (jnp.asarray(y),))


@case("Gaussian mixture: MixtureSameFamily with ordered means")
def same_family() -> Call:
    rng = np.random.default_rng(41)
    y = np.concatenate([rng.normal(-3, 1, 60), rng.normal(0, 0.5, 60), rng.normal(4, 1, 80)])

    def model(y, k):
        weights = numpyro.sample("weights", dist.Dirichlet(2.0 * jnp.ones(k)))
        start = dist.Normal(jnp.array([-2.0, 0.0, 2.0]), 3.0).to_event(1)
        order = dist.transforms.OrderedTransform()
        means = numpyro.sample("means", dist.TransformedDistribution(start, order))
        with numpyro.plate("components", k):
            sds = numpyro.sample("sds", dist.LogNormal(0.0, 0.5))
        with numpyro.plate("data", len(y)):
            law = dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(means, sds))
            numpyro.sample("y", law, obs=y)

    return Call(model, (y, 3))


@case("annotators: true classes summed out", symmetric=False)
def annotators() -> Call:
    rng = np.random.default_rng(42)
    truth = rng.choice(2, 60, p=[0.4, 0.6])
    skill = np.array([0.9, 0.8, 0.7, 0.85])
    votes = np.where(rng.random((60, 4)) < skill, truth[:, None], 1 - truth[:, None])

    def model(votes):
        items, people = votes.shape
        prevalence = numpyro.sample("pi", dist.Dirichlet(jnp.ones(2)))
        with numpyro.plate("annotator", people, dim=-1):
            diagonal = jnp.array([[4.0, 1.0], [1.0, 4.0]])
            beta = numpyro.sample("beta", dist.Dirichlet(diagonal).to_event(1))
        with numpyro.plate("item", items, dim=-2):
            c = numpyro.sample("c", dist.Categorical(prevalence), infer={"enumerate": "parallel"})
            with numpyro.plate("position", people, dim=-1):
                law = dist.Categorical(Vindex(beta)[jnp.arange(people), c])
                numpyro.sample("y", law, obs=votes)

    return Call(model, (votes,))


@case("hidden Markov model: hidden states summed out in scan")
def hidden_markov() -> Call:
    rng = np.random.default_rng(43)
    state, notes = 0, []
    for _ in range(80):
        state = int(rng.random() < (0.1, 0.8)[state])
        notes.append(int(rng.random() < (0.2, 0.9)[state]))

    def model(notes):
        law = dist.Beta(jnp.array([2.0, 8.0]), jnp.array([8.0, 2.0])).to_event(1)
        stay = numpyro.sample("probs_x", law)
        tone = numpyro.sample("probs_y", law)

        def transition(x_before, y):
            x = numpyro.sample("x", dist.Bernoulli(stay[x_before]), infer={"enumerate": "parallel"})
            numpyro.sample("y", dist.Bernoulli(tone[x]), obs=y)
            return x, None

        scan(transition, 0, notes)

    return Call(model, (jnp.asarray(notes),))


@case("capture and recapture: dead or alive summed out in scan")
def recapture() -> Call:
    rng = np.random.default_rng(44)
    alive = np.ones(40, bool)
    history = []
    for _ in range(7):
        alive &= rng.random(40) < 0.8
        history.append((alive & (rng.random(40) < 0.6)).astype(float))

    def model(history):
        survival = numpyro.sample("phi", dist.Uniform(0.0, 1.0))
        recaptured = numpyro.sample("rho", dist.Uniform(0.0, 1.0))

        def transition(carry, y):
            first, z = carry
            with numpyro.plate("animals", history.shape[1], dim=-1):
                z = numpyro.sample(
                    "z", dist.Bernoulli(first * survival * z), infer={"enumerate": "parallel"}
                )
                numpyro.sample("y", dist.Bernoulli(first * recaptured * z), obs=y)
            return (first, z), None

        everyone = jnp.ones(history.shape[1], dtype=jnp.int32)
        scan(transition, (everyone, everyone), history)

    return Call(model, (jnp.asarray(np.array(history)),))


@case("imputation of a binary predictor, summed out")
def binary_imputation() -> Call:
    rng = np.random.default_rng(45)
    cat = (rng.random(100) < 0.4).astype(float)
    notes = rng.poisson(np.exp(0.5 - 0.8 * cat) * 3.0)
    cat[rng.choice(100, 25, replace=False)] = np.nan

    def model(cat, notes):
        seen = ~np.isnan(cat)
        k = numpyro.sample("k", dist.Beta(2.0, 2.0))
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        with numpyro.plate("known", int(seen.sum())):
            numpyro.sample("cat_known", dist.Bernoulli(k), obs=cat[seen].astype(int))
            rate = jnp.exp(a + b * cat[seen])
            numpyro.sample("notes_known", dist.Poisson(rate), obs=notes[seen])
        with numpyro.plate("unknown", int((~seen).sum())):
            there = numpyro.sample(
                "cat_unknown", dist.Bernoulli(k), infer={"enumerate": "parallel"}
            )
            law = dist.Poisson(jnp.exp(a + b * there))
            numpyro.sample("notes_unknown", law, obs=notes[~seen])

    return Call(model, (cat, notes))


@case("switch point of a rate: a discrete latent outside every plate")
def switch_point() -> Call:
    rng = np.random.default_rng(46)
    counts = np.concatenate([rng.poisson(3.2, 20), rng.poisson(1.0, 30)])

    def model(counts):
        early = numpyro.sample("early", dist.Exponential(1.0))
        late = numpyro.sample("late", dist.Exponential(1.0))
        weights = jnp.ones(len(counts)) / len(counts)
        switch = numpyro.sample(
            "switch", dist.Categorical(weights), infer={"enumerate": "parallel"}
        )
        with numpyro.plate("years", len(counts)):
            rate = jnp.where(jnp.arange(len(counts)) < switch, early, late)
            numpyro.sample("counts", dist.Poisson(rate), obs=counts)

    return Call(model, (counts,))


@case("counts of unseen birds: a Poisson latent, which cannot be enumerated")
def unseen() -> Call:
    def model(seen):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 0.1))
        with numpyro.plate("sites", len(seen)):
            there = numpyro.sample("there", dist.Poisson(rate))
            numpyro.sample("seen", dist.Binomial(there, 0.4), obs=seen)

    return Call(model, (np.array([4, 7, 3, 6, 5]),))


@case("Neal's funnel, which observes nothing")
def funnel() -> Call:
    def model(dim):
        y = numpyro.sample("y", dist.Normal(0, 3))
        numpyro.sample("x", dist.Normal(jnp.zeros(dim - 1), jnp.exp(y / 2)))

    return Call(model, (5,))
