"""A NumPyro model with groups, run by minibatches and compared with NUTS on the same model and
data.
"""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

import ornstein as orn


def model(school, hours, score, schools):
    centre = numpyro.sample("centre", dist.Normal(50.0, 20.0))
    spread = numpyro.sample("spread", dist.HalfNormal(10.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 5.0))
    sigma = numpyro.sample("sigma", dist.Exponential(0.1))
    with numpyro.plate("schools", schools):
        level = numpyro.sample("level", dist.Normal(centre, spread))
    with numpyro.plate("pupils", score.shape[0]):
        numpyro.sample("score", dist.Normal(level[school] + slope * hours, sigma), obs=score)


rng = np.random.default_rng(0)
school, hours = rng.integers(0, 8, 4_000), rng.normal(size=4_000)
score = rng.normal(50.0, 5.0, 8)[school] + 2.0 * hours + rng.normal(0.0, 10.0, 4_000)

post = orn.sample(
    orn.from_numpyro(model, school, hours, score, schools=8), draws=500, progress=False
)
print(post.summary()[["mean", "sd", "ess_bulk", "r_hat"]].round(2))
print("verdict:", post.check().level)

nuts = numpyro.infer.MCMC(
    numpyro.infer.NUTS(model), num_warmup=300, num_samples=500, progress_bar=False
)
nuts.run(jax.random.key(0), school, hours, score, schools=8)
for name, exact in nuts.get_samples().items():
    shift = (post.params[name].mean(axis=(0, 1)) - exact.mean(axis=0)) / exact.std(axis=0)
    ratio = post.params[name].std(axis=(0, 1)) / exact.std(axis=0)
    print(
        f"{name:7s} against NUTS: mean off by at most {np.max(np.abs(shift)):.2f} sd, sd ratio"
        f" {np.min(ratio):.2f}–{np.max(ratio):.2f}"
    )
