"""The peers, each run as its own users run it. A peer that is not installed is left out, and said
so.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.steps import Stepper
from benchmarks.tasks import Task


def blackjax_sgld_steps(task: Task) -> Stepper:
    """`blackjax.sgld` in a `lax.scan`, minibatch indices drawn by jax.random inside, as its
    documentation shows.
    """
    import blackjax

    features, response = (jnp.asarray(part) for part in task.data())
    scale = task.rows / task.batch_size

    def log_likelihood(position: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        predictor = x @ position
        if task.family == "gaussian":
            return -0.5 * (y - predictor) ** 2
        if task.family == "bernoulli":
            return y * predictor - jax.nn.softplus(predictor)
        return predictor[y] - jax.nn.logsumexp(predictor)

    def log_density(position: jax.Array, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
        values = jax.vmap(log_likelihood, (None, 0, 0))(position, *batch)
        return scale * jnp.sum(values) - 0.5 * jnp.sum(position**2)

    kernel = blackjax.sgld(jax.grad(log_density))
    shape = (task.columns,) if task.classes == 1 else (task.columns, task.classes)

    @jax.jit
    def run(position: jax.Array, keys: jax.Array, data: tuple[jax.Array, jax.Array]) -> jax.Array:
        def step(current: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
            batch_key, step_key = jax.random.split(key)
            rows = jax.random.randint(batch_key, (task.batch_size,), 0, task.rows)
            return kernel.step(step_key, current, (data[0][rows], data[1][rows]), 1e-8), None

        return jax.lax.scan(step, position, keys)[0]

    def timed(count: int) -> float:
        keys = jax.block_until_ready(jax.random.split(jax.random.key(0), count))
        started = time.perf_counter()
        jax.block_until_ready(run(jnp.zeros(shape), keys, (features, response)))
        return time.perf_counter() - started

    return timed


def numpyro_svi_steps(task: Task) -> Stepper:
    """SVI with AutoNormal and a subsampling plate, `svi.update` in a scan."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    features, response = (jnp.asarray(part) for part in task.data())
    shape = (task.columns,) if task.classes == 1 else (task.columns, task.classes)

    def model(x: jax.Array, y: jax.Array) -> None:
        theta = numpyro.sample("theta", dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))
        with numpyro.plate("data", task.rows, subsample_size=task.batch_size) as rows:
            predictor = x[rows] @ theta
            if task.family == "gaussian":
                numpyro.sample("y", dist.Normal(predictor, 1.0), obs=y[rows])
            elif task.family == "bernoulli":
                numpyro.sample("y", dist.Bernoulli(logits=predictor), obs=y[rows])
            else:
                numpyro.sample("y", dist.Categorical(logits=predictor), obs=y[rows])

    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(1e-3), Trace_ELBO())
    state = svi.init(jax.random.key(0), features, response)

    @jax.jit
    def run(state: Any, steps: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        return jax.lax.fori_loop(0, steps, lambda _, current: svi.update(current, x, y)[0], state)

    def timed(count: int) -> float:
        started = time.perf_counter()
        jax.block_until_ready(jax.tree.leaves(run(state, count, features, response)))
        return time.perf_counter() - started

    return timed


def sklearn_sgd_steps(task: Task) -> Stepper:
    """`partial_fit` on random minibatches: optimised SGD as its users call it, no sampling."""
    from sklearn.linear_model import SGDClassifier, SGDRegressor

    features, response = task.data()
    rng = np.random.default_rng(0)
    options: dict[str, Any] = {
        "learning_rate": "constant",
        "eta0": 1e-4,
        "fit_intercept": False,
        "alpha": 1.0 / task.rows,
    }
    classes = None
    if task.family == "gaussian":
        learner: Any = SGDRegressor(**options)
    else:
        learner = SGDClassifier(loss="log_loss", **options)
        classes = np.unique(response)

    def timed(count: int) -> float:
        started = time.perf_counter()
        for rows in rng.integers(0, task.rows, (count, task.batch_size)):
            if classes is None:
                learner.partial_fit(features[rows], response[rows])
            else:
                learner.partial_fit(features[rows], response[rows], classes=classes)
        return time.perf_counter() - started

    return timed


def posteriors_sgld_steps(task: Task) -> Stepper:
    """`posteriors.sgmcmc.sgld` in PyTorch on the CPU, one thread."""
    import posteriors
    import torch

    torch.set_num_threads(1)
    features, response = (torch.from_numpy(part) for part in task.data())
    shape = (task.columns,) if task.classes == 1 else (task.columns, task.classes)

    def log_posterior(params: Any, batch: Any) -> Any:
        x, y = batch
        predictor = x @ params["theta"]
        if task.family == "gaussian":
            fit = -0.5 * (y - predictor) ** 2
        elif task.family == "bernoulli":
            fit = -torch.nn.functional.binary_cross_entropy_with_logits(
                predictor, y, reduction="none"
            )
        else:
            fit = -torch.nn.functional.cross_entropy(predictor, y.long(), reduction="none")
        return fit.mean() - 0.5 * (params["theta"] ** 2).sum() / task.rows, predictor

    transform = posteriors.sgmcmc.sgld.build(log_posterior, lr=1e-4, temperature=1.0 / task.rows)
    state = transform.init({"theta": torch.zeros(shape)})

    def timed(count: int) -> float:
        nonlocal state
        started = time.perf_counter()
        for _ in range(count):
            rows = torch.randint(0, task.rows, (task.batch_size,))
            updated = transform.update(state, (features[rows], response[rows]))
            state = updated[0] if isinstance(updated, tuple) else updated
        return time.perf_counter() - started

    return timed


def pymc_advi_steps(task: Task) -> Stepper:
    """Mean-field ADVI with `pm.Minibatch`."""
    import pymc

    logging.getLogger("pymc").setLevel(logging.ERROR)  # it reports the end of every call

    features, response = task.data()
    features, response = (
        features.astype(np.float64),
        response.astype(np.int32 if task.classes > 1 else np.float64),
    )
    with pymc.Model():
        x, y = pymc.Minibatch(features, response, batch_size=task.batch_size)
        shape = task.columns if task.classes == 1 else (task.columns, task.classes)
        theta = pymc.Normal("theta", 0.0, 1.0, shape=shape)
        predictor = x @ theta
        if task.family == "gaussian":
            pymc.Normal("y", predictor, 1.0, observed=y, total_size=task.rows)
        elif task.family == "bernoulli":
            pymc.Bernoulli("y", logit_p=predictor, observed=y, total_size=task.rows)
        else:
            pymc.Categorical("y", logit_p=predictor, observed=y, total_size=task.rows)
        inference = pymc.ADVI()
        inference.fit(2, progressbar=False)

    def timed(count: int) -> float:
        started = time.perf_counter()
        inference.refine(count, progressbar=False)
        return time.perf_counter() - started

    return timed


PEERS: dict[str, Callable[[Task], Stepper]] = {
    "blackjax SGLD": blackjax_sgld_steps,
    "numpyro SVI": numpyro_svi_steps,
    "scikit-learn SGD": sklearn_sgd_steps,
    "posteriors SGLD": posteriors_sgld_steps,
    "PyMC ADVI": pymc_advi_steps,
}


def installed(task: Task) -> tuple[dict[str, Stepper], list[str]]:
    """Steppers of the peers that can run here, and the names of those that cannot."""
    found, missing = {}, []
    for name, build in PEERS.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[name] = build(task)
        except ImportError as error:
            missing.append(f"{name} ({error})")
    return found, missing
