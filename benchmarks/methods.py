"""Methods for a posterior: each yields mean and covariance of what it has so far, again and again,
as its own users would run it.

Imports stand inside the functions: what a library needs to start is part of its time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.problems import Problem

Found = tuple[np.ndarray, np.ndarray]
# in units of 1/λ, λ the largest curvature of N times the mean loss
SGLD_RATES = (1.0, 0.3, 0.1, 0.03, 0.01)


class Pool:
    """Mean and covariance of blocks of draws; `late` forgets the first half of them, as one does
    with a chain's start.
    """

    def __init__(self, marginal: bool, late: bool) -> None:
        self.marginal, self.late = marginal, late
        self.blocks: list[tuple[float, np.ndarray, np.ndarray]] = []

    def add(self, draws: np.ndarray) -> None:
        flat = np.asarray(draws, dtype=float).reshape(len(draws), -1)
        centred = flat - flat.mean(axis=0)
        spread = np.mean(centred**2, axis=0) if self.marginal else centred.T @ centred / len(flat)
        self.add_moments(len(flat), flat.mean(axis=0), spread)

    def add_moments(self, count: float, mean: np.ndarray, covariance: np.ndarray) -> None:
        covariance = (
            np.diagonal(covariance) if self.marginal and covariance.ndim == 2 else covariance
        )
        self.blocks.append((float(count), mean, covariance))

    def moments(self) -> Found:
        blocks = self.blocks[len(self.blocks) // 2 :] if self.late else self.blocks
        total = sum(count for count, _, _ in blocks)
        mean = sum(count * centre for count, centre, _ in blocks) / total
        spread = 0.0
        for count, centre, covariance in blocks:
            shift = centre - mean
            spread = spread + count * (
                covariance + (shift**2 if self.marginal else np.outer(shift, shift))
            )
        return np.asarray(mean), np.asarray(spread) / total


def ornstein(
    problem: Problem, structure: str = "auto", draws: int = 50, **options: Any
) -> Iterator[Found]:
    """`orn.sample` with its defaults, asked for twice as many draws each time; all draws count.

    Data beyond the processor's caches are read in slices, as docs/scaling.md advises.
    """
    import ornstein as orn
    from ornstein.rows.memory import BEYOND_CACHES

    model = problem.model()
    scheme = "slices" if problem.features.nbytes >= BEYOND_CACHES else "replacement"
    curvature = orn.measure(model, structure)
    pool, settings = (
        Pool(problem.marginal, late=False),
        {"scheme": scheme, "curvature": curvature, "keep": "moments", **options},
    )
    for seed in range(30):
        post = orn.sample(model, draws=draws, seed=seed, progress=False, **settings)
        pool.add_moments(post.settings["states"], post.mean, post.covariance)
        yield pool.moments()
        draws *= 2


def ornstein_diagonal(problem: Problem) -> Iterator[Found]:
    """The diagonal metric: no whole matrix is measured, and the preconditioner is a diagonal."""
    yield from ornstein(problem, "diagonal")


def ornstein_controlled(problem: Problem) -> Iterator[Found]:
    """Langevin dynamics with control variates and the full metric, as docs/choosing-a-sampler.md
    advises for many rows.

    Most directions forget within some steps and few within hundreds, so that draws more often than
    the slowest one forgets tell more.
    """
    import ornstein as orn

    sampler = orn.SGLD(exact=True, control_variates=True, preconditioner="full")
    yield from ornstein(problem, draws=250, sampler=sampler, thin=64)


def newton_laplace(problem: Problem) -> Iterator[Found]:
    """The mode by Newton's method and the inverse Hessian there: one answer, and no better one
    later.
    """
    import ornstein as orn

    post = orn.laplace(problem.model(), draws=1, chains=1)
    yield post.mean, post.covariance


def numpyro_nuts(problem: Problem, block: int = 250) -> Iterator[Found]:
    """NumPyro's own driver: 500 steps of warm-up, then draws of one chain in blocks."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    def model(x: Any, y: Any) -> None:
        theta = numpyro.sample(
            "theta", dist.Normal(0.0, 1.0).expand(problem.shape).to_event(len(problem.shape))
        )
        predictor = x @ theta
        if problem.family == "gaussian":
            numpyro.sample("y", dist.Normal(predictor, 1.0), obs=y)
        elif problem.family == "bernoulli":
            numpyro.sample("y", dist.Bernoulli(logits=predictor), obs=y)
        else:
            numpyro.sample("y", dist.Categorical(logits=predictor), obs=y)

    mcmc = MCMC(NUTS(model), num_warmup=500, num_samples=block, progress_bar=False)
    mcmc.warmup(jax.random.key(0), problem.features, problem.response)
    pool = Pool(problem.marginal, late=False)
    while True:
        mcmc.run(mcmc.post_warmup_state.rng_key, problem.features, problem.response)
        mcmc.post_warmup_state = mcmc.last_state
        pool.add(np.asarray(mcmc.get_samples()["theta"]))
        yield pool.moments()


def blackjax_sgld(problem: Problem, rate: float = 1.0, block: int = 2000) -> Iterator[Found]:
    """`blackjax.sgld` in a scan from zero, a constant rate, the later half of the draws."""
    import blackjax
    import jax
    import jax.numpy as jnp

    features, response, rows, size = (
        problem.features,
        problem.response,
        len(problem.response),
        problem.batch_size,
    )
    bound = {"gaussian": 1.0, "bernoulli": 0.25, "categorical": 0.5}[problem.family]
    curved = bound * np.linalg.eigvalsh(features.T.astype(float) @ features)[-1] + 1.0

    def log_density(position: Any, batch: Any) -> Any:
        x, y = batch
        predictor = x @ position
        if problem.family == "gaussian":
            fit = -0.5 * (y - predictor) ** 2
        elif problem.family == "bernoulli":
            fit = y * predictor - jax.nn.softplus(predictor)
        else:
            fit = jnp.take_along_axis(predictor, y[:, None], 1)[:, 0] - jax.nn.logsumexp(
                predictor, axis=1
            )
        return rows * jnp.mean(fit) - 0.5 * jnp.sum(position**2)

    kernel = blackjax.sgld(jax.grad(log_density))

    @jax.jit
    def run(position: Any, key: Any, data: Any) -> Any:
        def step(current: Any, key: Any) -> Any:
            batch_key, step_key = jax.random.split(key)
            chosen = jax.random.randint(batch_key, (size,), 0, rows)
            moved = kernel.step(
                step_key, current, (data[0][chosen], data[1][chosen]), rate / curved
            )
            return moved, moved

        return jax.lax.scan(step, position, jax.random.split(key, block))

    data = (jnp.asarray(features), jnp.asarray(response))
    position, key, pool = (
        jnp.zeros(problem.shape),
        jax.random.key(0),
        Pool(problem.marginal, late=True),
    )
    while True:
        key, now = jax.random.split(key)
        position, draws = run(position, now, data)
        pool.add(np.asarray(draws))
        yield pool.moments()


def pymc_advi(problem: Problem, method: str = "advi", block: int = 500) -> Iterator[Found]:
    """ADVI with `pm.Minibatch` and PyMC's own optimiser and rate."""
    import pymc

    # Compile-time notes of PyTensor are no concern of this page.
    warnings.simplefilter("ignore")
    # it refuses others
    response = problem.response.astype(np.int32 if problem.family == "categorical" else np.float64)
    with pymc.Model():
        x, y = pymc.Minibatch(
            problem.features.astype(np.float64), response, batch_size=problem.batch_size
        )
        theta = pymc.Normal("theta", 0.0, 1.0, shape=problem.shape)
        predictor, rows = x @ theta, len(problem.response)
        if problem.family == "gaussian":
            pymc.Normal("y", predictor, 1.0, observed=y, total_size=rows)
        elif problem.family == "bernoulli":
            pymc.Bernoulli("y", logit_p=predictor, observed=y, total_size=rows)
        else:
            pymc.Categorical("y", logit_p=predictor, observed=y, total_size=rows)
        inference = pymc.ADVI() if method == "advi" else pymc.FullRankADVI()
        inference.fit(block, progressbar=False)
    spread = inference.approx.std if method == "advi" else inference.approx.cov
    while True:
        value = np.asarray(spread.eval(), dtype=float)
        mean = np.asarray(inference.approx.mean.eval(), dtype=float)
        yield mean, np.diag(value**2) if method == "advi" else value
        inference.refine(block, progressbar=False)


def pymc_full_rank(problem: Problem) -> Iterator[Found]:
    yield from pymc_advi(problem, "fullrank_advi")


METHODS: dict[str, Callable[..., Iterator[Found]]] = {
    "ornstein": ornstein,
    "ornstein SGLD-CV": ornstein_controlled,
    "ornstein diagonal": ornstein_diagonal,
    "Newton + Laplace": newton_laplace,
    "numpyro NUTS": numpyro_nuts,
    "blackjax SGLD": blackjax_sgld,
    "PyMC ADVI": pymc_advi,
    "PyMC full-rank ADVI": pymc_full_rank,
}
