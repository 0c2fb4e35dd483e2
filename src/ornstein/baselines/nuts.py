"""NUTS by NumPyro on the full-data posterior: the reference where the data are small enough for
it.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

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
from ornstein.compute.compiled import NO_LIBRARY, compiled, known_options
from ornstein.compute.precision import width
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.derivatives import derivatives_of
from ornstein.errors import ConvergenceWarning, InputError
from ornstein.model.loss import Loss, Problem
from ornstein.model.model import Model
from ornstein.model.required import require_model
from ornstein.posterior.posterior import Posterior
from ornstein.posterior.working import in_working_coordinates
from ornstein.streams import Purpose, stream
from ornstein.types import Array, PyTree, Traced

# No bound: a chain of a million transitions of the longest trajectories.
MOST_LEAPFROGS = 2**30


@dataclass(frozen=True)
class Program:
    """What is compiled: the posterior, NumPyro's settings and the length of a chain.

    A chain keeps `draws` states, `thin` transitions apart. `adapts` says whether warm-up tunes the
    mass matrix beside the step.
    """

    loss: Loss
    warmup: int
    draws: int
    dense_mass: bool = False
    target_accept: float = 0.8
    max_tree_depth: int = 10
    thin: int = 1
    adapts: bool = True


@dataclass(frozen=True, eq=False)
class Chains:
    """Displacements from the centre (chains, draws, D), and what they took; not `complete` where a
    bound on the leapfrog steps was met first.
    """

    displacements: Array
    leapfrogs: int
    divergences: int
    longest: int
    complete: bool = True


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
        draws, chains, warmup: draws kept and thrown away per chain.
        dense_mass: adapt a full mass matrix, for correlated posteriors of moderate dimension.
        target_accept, max_tree_depth: as in NumPyro.
        init: pytree or flat vector; None is the model's. Chains start around it, two standard
            deviations apart (as the gradients there tell), so that R-hat can see chains that do not
            meet.
        seed: same seed, same draws.
        dtype: "float64" (default) or "float32".
    """
    require_model(model)
    checked_numbers(draws=draws, chains=chains, warmup=warmup, max_tree_depth=max_tree_depth)
    checked_numbers(0, seed=seed)
    if not 0.0 < target_accept < 1.0:
        raise InputError(f"target_accept must lie between 0 and 1; got {target_accept}")
    precision = checked_dtype(dtype)
    require_memory("an array of draws", chains, draws, model.dim)

    def run(worked: Model, _: Curvature | None, start: Array | None) -> Posterior:
        program = Program(worked.loss, warmup, draws, dense_mass, target_accept, max_tree_depth)
        return _nuts(worked, program, chains, start, seed, precision)

    return in_working_coordinates(model, None, init, run)


def _nuts(
    model: Model, program: Program, chains: int, init: PyTree, seed: int, dtype: str
) -> Posterior:
    import numpyro

    started, warmup = time.perf_counter(), program.warmup
    centre = start_of(model, init)
    starts, passes = dispersed(model, centre, chains, seed)
    found = run_chains(model, program, centre, starts, seed, dtype)
    divergences = found.divergences
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
        centre + found.displacements,
        started,
        passes + found.leapfrogs,
        seed=int(seed),
        dtype=dtype,
        warmup=warmup,
        dense_mass=program.dense_mass,
        divergences=divergences,
        longest_trajectory=found.longest,
        numpyro=numpyro.__version__,
    )


def run_chains(
    model: Model,
    program: Program,
    centre: Array,
    starts: Array,
    seed: int,
    dtype: str,
    root: Array | None = None,
    most: int = MOST_LEAPFROGS,
) -> Chains:
    """Chains on threads, from `starts` (chains, D), displacements from the centre.

    A chain that has taken `most` leapfrog steps ends, and all chains are cut to the shortest. With
    a `root` (D, D) starts and states of the chains are z, and displacements root·z.
    """
    with width(dtype):
        problem = model.problem(dtype, centre)
        keys = jax.random.split(jax.random.key(seed), len(starts))
        placed = [jnp.asarray(start, dtype) for start in starts]
        shape = None if root is None else jnp.asarray(root, dtype)
        # Compiled before threads come, each of which would compile it.
        jax.block_until_ready(_chain(program, 0, most, keys[0], placed[0], problem, shape))

    def chain(number: int) -> tuple[Array, ...]:
        with width(dtype):
            found = _chain(program, 1, most, keys[number], placed[number], problem, shape)
            return tuple(np.asarray(part) for part in found)

    with ThreadPoolExecutor(max(1, min(len(starts), os.cpu_count() or 1))) as pool:
        results = list(pool.map(chain, range(len(starts))))
    states, transitions, leapfrogs, diverged, longest = (
        np.stack(parts) for parts in zip(*results, strict=True)
    )
    done = int(transitions.min())
    draws = max(0, done - program.warmup) // program.thin
    states = states[:, :draws].astype(float)
    return Chains(
        states if root is None else states @ root.T,
        int(leapfrogs.sum()),
        int(diverged.sum()),
        int(longest.max()),
        draws == program.draws,
    )


# A library would share sums out among cores, and their rounding would depend on how many there are.
@partial(compiled, options=partial(known_options, **NO_LIBRARY))
def _chain(
    program: Program,
    go: int,
    most: int,
    key: Traced,
    start: Traced,
    problem: Problem,
    root: Traced | None,
) -> tuple[Traced, ...]:
    """One chain: states after warm-up, transitions, leapfrog steps (those of warm-up among them),
    divergences and the longest trajectory after warm-up; with `go` 0 nothing is done but compiling.

    NumPyro's kernel in one compiled loop: its own driver compiles warm-up and sampling apart and
    does not count the leapfrog steps of warm-up, which are most of what a short run costs.
    """
    from numpyro.infer import NUTS

    kernel = NUTS(
        _numpyro_model(program.loss),
        dense_mass=program.dense_mass,
        adapt_mass_matrix=program.adapts,
        target_accept_prob=program.target_accept,
        max_tree_depth=program.max_tree_depth,
    )
    state = kernel.init(key, program.warmup, {"displacement": start}, (problem, root), {})
    kept = jnp.zeros((program.draws, *start.shape), start.dtype)
    zero = jnp.zeros((), int)

    def transition(carry: PyTree) -> PyTree:
        number, state, kept, leapfrogs, diverged, longest = carry
        state = kernel.sample(state, (problem, root), {})
        after = number >= program.warmup
        place = jnp.maximum((number - program.warmup) // program.thin, 0)
        return (
            number + 1,
            state,
            # a draw's place holds the last of its transitions
            kept.at[place].set(state.z["displacement"]),
            leapfrogs + state.num_steps,
            diverged + jnp.where(after & state.diverging, 1, 0),
            jnp.maximum(longest, jnp.where(after, state.num_steps, 0)),
        )

    count = go * (program.warmup + program.draws * program.thin)
    done, _, kept, leapfrogs, diverged, longest = jax.lax.while_loop(
        lambda carry: (carry[0] < count) & (carry[3] < most),
        transition,
        (zero, state, kept, zero, zero, zero),
    )
    return kept, done, leapfrogs, diverged, longest


def _numpyro_model(loss: Loss) -> Callable[[Problem, Traced | None], None]:
    """The posterior over displacements from the centre, or over z with displacements root·z, as a
    NumPyro model whose data are an argument.
    """
    import numpyro
    from numpyro.distributions import ImproperUniform, constraints

    def log_joint(problem: Problem, root: Traced | None) -> None:
        law = ImproperUniform(constraints.real_vector, (), problem.centre.shape)
        place = numpyro.sample("displacement", law)
        displacement = place if root is None else root @ place
        numpyro.factor(
            "log_joint", -problem.n_data * loss.minibatch(problem, displacement, problem.data)
        )

    return log_joint


def dispersed(model: Model, centre: Array, chains: int, seed: int) -> tuple[Array, int]:
    """Starts, displacements from the centre of 2/√(N·E[g²] + λ) per coordinate, and the passes that
    took.
    """
    derivatives = CountedPasses(derivatives_of(model))
    _, second = derivatives.diagonal_moments(centre)
    prior = model.prior_hessian(centre)
    precision = model.n_data * second + np.maximum(
        prior if prior.ndim == 1 else np.diagonal(prior), 0.0
    )
    generator = stream(seed, Purpose.NUTS, 0)
    spread = 2.0 / np.sqrt(np.where(precision > 0, precision, 1.0))
    return generator.standard_normal((chains, model.dim)) * spread, derivatives.passes
