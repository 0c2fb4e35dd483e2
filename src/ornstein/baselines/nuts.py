"""NUTS by NumPyro on the full-data posterior: the reference where the data are small enough for
it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.baselines.common import (
    checked_dtype,
    checked_numbers,
    delivered,
    start_of,
)
from ornstein.baselines.laplace import CountedPasses
from ornstein.checks import require_memory
from ornstein.compute.compiled import compiled
from ornstein.compute.precision import width
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.derivatives import derivatives_of
from ornstein.errors import ConvergenceWarning, InputError
from ornstein.model.loss import Loss, Problem
from ornstein.model.model import Model
from ornstein.posterior.posterior import Posterior
from ornstein.posterior.working import in_working_coordinates
from ornstein.streams import Purpose, stream
from ornstein.types import Array, PyTree, Traced


@dataclass(frozen=True)
class _Program:
    """What is compiled: the posterior, NumPyro's settings and the length of a chain."""

    loss: Loss
    warmup: int
    draws: int
    dense_mass: bool
    target_accept: float
    max_tree_depth: int


def nuts(
    model: Model,
    *,
    draws: int = 1000,
    chains: int = 4,
    warmup: int = 1000,
    dense_mass: bool = False,
    target_accept: float = 0.8,
    max_tree_depth: int = 10,
    init: PyTree = None,
    seed: int = 0,
    dtype: str | None = None,
) -> Posterior:
    """Draws from the posterior itself, exp(−N·L), by the no-U-turn sampler with gradients of all
    data.

    All rows are held in memory. Every leapfrog step is one pass over them; `settings["passes"]`
    counts warm-up too. Divergent transitions after warm-up are counted in
    `settings["divergences"]`, and a ConvergenceWarning names them.

    Args:
        model: what is inferred.
        draws, chains, warmup: draws kept and thrown away per chain; chains run one after the other.
        dense_mass: adapt a full mass matrix, for correlated posteriors of moderate dimension.
        target_accept, max_tree_depth: as in NumPyro.
        init: pytree or flat vector; None is the model's. Chains start around it, two standard
            deviations apart (as the gradients there tell), so that R-hat can see chains that do not
            meet.
        seed: same seed, same draws.
        dtype: "float64" (default) or "float32".
    """
    checked_numbers(draws=draws, chains=chains, warmup=warmup, max_tree_depth=max_tree_depth)
    checked_numbers(0, seed=seed)
    if not 0.0 < target_accept < 1.0:
        raise InputError(f"target_accept must lie between 0 and 1; got {target_accept}")
    precision = checked_dtype(dtype)
    require_memory("an array of draws", chains, draws + warmup, model.dim)

    def run(worked: Model, _: Curvature | None, start: Array | None) -> Posterior:
        program = _Program(worked.loss, warmup, draws, dense_mass, target_accept, max_tree_depth)
        return _nuts(worked, program, chains, start, seed, precision)

    return in_working_coordinates(model, None, init, run)


def _nuts(
    model: Model, program: _Program, chains: int, init: PyTree, seed: int, dtype: str
) -> Posterior:
    import numpyro

    started, warmup = time.perf_counter(), program.warmup
    centre = start_of(model, init)
    starts, passes = _starts(model, centre, chains, seed)
    with width(dtype):
        problem = model.problem(dtype, centre)
        keys = jax.random.split(jax.random.key(seed), chains)
        results = [
            _chain(program, key, jnp.asarray(start, dtype), problem)
            for key, start in zip(keys, starts, strict=True)
        ]
        displacements, lengths, diverged = (
            np.stack([np.asarray(part) for part in parts]) for parts in zip(*results, strict=True)
        )
    divergences = int(diverged[:, warmup:].sum())
    if divergences:
        warnings.warn(
            f"{divergences} of {program.draws * chains} NUTS transitions diverged: the draws may"
            " miss a part of the posterior. Raise target_accept towards 1, or reparameterise the"
            " model",
            ConvergenceWarning,
            stacklevel=5,
        )
    return delivered(
        model,
        "nuts",
        centre + displacements[:, warmup:].astype(float),
        started,
        passes + int(lengths.sum()),
        seed=int(seed),
        dtype=dtype,
        warmup=warmup,
        dense_mass=program.dense_mass,
        divergences=divergences,
        longest_trajectory=int(lengths[:, warmup:].max()),
        numpyro=numpyro.__version__,
    )


@compiled
def _chain(
    program: _Program, key: Traced, start: Traced, problem: Problem
) -> tuple[Traced, Traced, Traced]:
    """One chain: displacements, leapfrog steps and divergences, warm-up included.

    NumPyro's kernel in one compiled loop: its own driver compiles warm-up and sampling apart and
    does not count the leapfrog steps of warm-up, which are most of what a short run costs.
    """
    from numpyro.infer import NUTS

    kernel = NUTS(
        _numpyro_model(program.loss),
        dense_mass=program.dense_mass,
        target_accept_prob=program.target_accept,
        max_tree_depth=program.max_tree_depth,
    )
    state = kernel.init(key, program.warmup, {"displacement": start}, (problem,), {})

    def transition(state: PyTree, _: None) -> tuple[PyTree, tuple[Traced, Traced, Traced]]:
        state = kernel.sample(state, (problem,), {})
        return state, (state.z["displacement"], state.num_steps, state.diverging)

    return jax.lax.scan(transition, state, None, length=program.warmup + program.draws)[1]


def _numpyro_model(loss: Loss) -> Callable[[Problem], None]:
    """The posterior over displacements from the centre, as a NumPyro model whose data are an
    argument.
    """
    import numpyro
    from numpyro.distributions import ImproperUniform, constraints

    def log_joint(problem: Problem) -> None:
        law = ImproperUniform(constraints.real_vector, (), problem.centre.shape)
        displacement = numpyro.sample("displacement", law)
        numpyro.factor(
            "log_joint", -problem.n_data * loss.minibatch(problem, displacement, problem.data)
        )

    return log_joint


def _starts(model: Model, centre: Array, chains: int, seed: int) -> tuple[Array, int]:
    """Displacements from the centre, 2/√(N·E[g²] + λ) per coordinate, and the passes that took."""
    derivatives = CountedPasses(derivatives_of(model))
    _, second = derivatives.diagonal_moments(centre)
    prior = model.prior_hessian(centre)
    precision = model.n_data * second + np.maximum(
        prior if prior.ndim == 1 else np.diagonal(prior), 0.0
    )
    generator = stream(seed, Purpose.NUTS, 0)
    spread = 2.0 / np.sqrt(np.where(precision > 0, precision, 1.0))
    return generator.standard_normal((chains, model.dim)) * spread, derivatives.passes
