"""Mixed models against NUTS on the whole hierarchical model, every effect a parameter of its own
(non-centred): means within 0.1 sd, standard deviations within 10 %, effects of groups too.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from helpers import data_directory
from numpyro.infer import MCMC, NUTS

import ornstein as orn
from ornstein.compute.precision import width

pytestmark = pytest.mark.nightly


def table(name):
    return pd.read_csv(data_directory() / "mixed" / f"{name}.csv.gz")


def hierarchical(model, data):
    """The same model with all effects, written down with NumPyro from the table."""
    groups = model.predict.groups
    spec, hyper = model.predict.spec, model.hyperparameters
    x = spec.design.build(data, len(data))
    x = np.column_stack([x, np.ones(len(x))])
    labels = [factor.labels(data) for factor in groups]
    z = [factor.matrix(data, len(data)) for factor in groups]
    column = data[spec.target]
    y = np.asarray(column if model.family == "gaussian" else column == spec.classes[1], float)

    def written():
        beta = []
        for place, precision in enumerate(hyper["coef_precision"]):
            flat = dist.ImproperUniform(dist.constraints.real, (), ())
            law = dist.Normal(0.0, precision**-0.5) if precision > 0.0 else flat
            beta.append(numpyro.sample(f"beta{place}", law))
        u = jnp.asarray(x) @ jnp.stack(beta)
        for place, factor in enumerate(groups):
            own = model.predict.part(place)
            scale = jnp.asarray(hyper["effect_scale"][own])
            half_t = dist.FoldedDistribution(dist.StudentT(3.0, 0.0, scale)).to_event(1)
            tau = numpyro.sample(f"tau{place}", half_t)
            root = jnp.eye(len(factor.effects))
            if factor.blocks[0] > 1:
                root = numpyro.sample(f"root{place}", dist.LKJCholesky(len(factor.effects), 2.0))
            shape = (len(labels[place].levels), len(factor.effects))
            white = numpyro.sample(f"white{place}", dist.Normal(0.0, 1.0).expand(shape).to_event(2))
            effects = numpyro.deterministic(f"effects{place}", white @ (tau[:, None] * root).T)
            u = u + jnp.sum(jnp.asarray(z[place]) * effects[labels[place].codes], axis=-1)
        if model.family == "gaussian":
            log_scale = numpyro.sample(
                "log_scale", dist.ImproperUniform(dist.constraints.real, (), ())
            )
            numpyro.sample("y", dist.Normal(u, jnp.exp(log_scale)), obs=y)
        else:
            numpyro.sample("y", dist.Bernoulli(logits=u), obs=y)

    return written


def by_nuts(model, data, draws=2000):
    with width("float64"):
        start = {
            f"beta{k}": value for k, value in enumerate(model.layout.unflatten(model.init)["coef"])
        }
        kernel = NUTS(
            hierarchical(model, data),
            init_strategy=numpyro.infer.init_to_value(values=start),
            target_accept_prob=0.9,
        )
        run = MCMC(
            kernel,
            num_warmup=1000,
            num_samples=draws,
            num_chains=4,
            progress_bar=False,
            chain_method="sequential",
        )
        run.run(jax.random.PRNGKey(0))
        return {name: np.asarray(value) for name, value in run.get_samples().items()}


def assert_alike(name, ours, theirs):
    mean, sd = theirs.mean(axis=0), theirs.std(axis=0)
    shift = np.abs(ours.mean(axis=0) - mean) / sd
    ratio = np.abs(ours.std(axis=0) / sd - 1.0)
    assert np.max(shift) < 0.1, (name, shift)
    assert np.max(ratio) < 0.1, (name, ratio)


CASES = {
    "sleepstudy": "Reaction ~ Days + (1 + Days | Subject)",
    "Contraception": "use ~ age + I(age**2) + urban + C(livch) + (1 | urban:district)",
    "Penicillin": "diameter ~ 1 + (1 | plate) + (1 | sample)",
}


@pytest.mark.parametrize("name", list(CASES))
def test_the_posterior_is_that_of_all_effects(name):
    data = table(name)
    post = orn.fit(CASES[name], data, draws=2000, progress=False)
    assert post.check().level == "trusted"
    model = post.model
    found = by_nuts(model, data)
    flat = {key: value.reshape(-1) for key, value in post.constrained.items()}
    for place, column in enumerate(model.columns):
        assert_alike(column, flat[column], found[f"beta{place}"])
    if "sigma" in flat:
        assert_alike("sigma", flat["sigma"], np.exp(found["log_scale"]))
    for place, factor in enumerate(model.factors):
        for k, effect in enumerate(model.predict.effect_names(place)):
            deviation = f"sd({effect}|{factor})"
            assert_alike(deviation, flat[deviation], found[f"tau{place}"][:, k])
        effects = post.group_effects(factor, draws=8000)
        assert_alike(f"effects of {factor}", effects.draws, found[f"effects{place}"])
        if f"root{place}" in found:
            names = [f"{effect}|{factor}" for effect in model.predict.effect_names(place)]
            assert_alike(
                "correlation", flat[f"cor({names[0]},{names[1]})"], found[f"root{place}"][:, 1, 0]
            )
