"""Black-box variational inference: the Gaussian nearest to the posterior in KL(q ‖ p), by
stochastic gradients of the ELBO.

NumPyro's autoguides and ELBO (reparameterisation gradients), Adam by optax, minibatches from
reshuffled epochs: an optimiser may use those, a sampler may not. No rate is to be chosen:

- The guide lives in coordinates z = P⁻¹(θ − centre) in which the posterior has a spread of about
  one, P from the curvature at the centre. A rate is then a step in standard deviations. P is a
  diagonal for the mean-field family and lower triangular for the full one, so that the family is
  the same in θ; it is measured anew after each window of steps.
- A window runs at one rate, and the guide is averaged over its second half. Then the *shortfall* is
  measured on all data: how many nats the ELBO would gain at the optimum, ½gᵀA⁻¹g for the mean (g
  the expected gradient under the guide) and ½(tr B − log|B| − D) for the spread (B = LᵀAL;
  mean-field B_kk = A_kk s_k²). While it falls fast, the window is repeated; where it falls slowly,
  windows double; where it does not fall, the rate is halved as well. It ends where it is small.
- Where A is out of reach, the shortfall is replaced by how far (in nats) the averaged guide moved
from one window to the next.
"""

from __future__ import annotations

import time
import warnings

import jax
import numpy as np
import scipy.linalg

from ornstein.baselines.common import (
    checked_dtype,
    checked_numbers,
    delivered,
    independent_draws,
    start_of,
)
from ornstein.baselines.elbo_ascent import Guide, Program, Search, epochs, window
from ornstein.baselines.laplace import CountedPasses
from ornstein.checks import FULL_LIMIT
from ornstein.curvature.derivatives import derivatives_of
from ornstein.errors import ConvergenceWarning, DivergenceError, InputError
from ornstein.model.model import Model
from ornstein.model.required import require_model
from ornstein.posterior.posterior import Posterior
from ornstein.rows.scheme import checked_batch_size
from ornstein.theory import kl
from ornstein.types import Array, PyTree

RANKS = ("mean-field", "full")
FIRST_RATE, FIRST_SPREAD = 0.1, 0.1  # in standard deviations; the spread is NumPyro's own default
# of the shortfall before: below the first it falls fast, above the second not at all
FAST, STALLED = 0.7, 0.95
# pairs ±ε for the expected gradient: exact for a Gaussian posterior whatever their number
PAIRS = 4
AUTODIFF_HESSIAN_LIMIT = 200


def bbvi(
    model: Model,
    rank: str = "mean-field",
    *,
    draws: int = 1000,
    chains: int = 4,
    batch_size: int | str = "auto",
    init: PyTree = None,
    tolerance: float = 0.005,
    max_steps: int = 200_000,
    seed: int = 0,
    dtype: str | None = None,
) -> Posterior:
    """Independent draws from the Gaussian q that maximises the ELBO, i.e. minimises KL(q ‖
    posterior).

    Of a Gaussian posterior with precision NA, mean-field finds the right mean and the variances
    1/(N A_kk), which are too small where parameters correlate; the full family finds the posterior.

    `settings["elbo"]` holds the ELBO averaged over blocks of steps and `settings["elbo_steps"]` the
    steps taken by then; `settings["converged"]` says whether the tolerance was met and
    `settings["convergence"]` the same in words. A ConvergenceWarning says it where it was not. All
    rows are held in memory.

    Args:
        model: what is inferred.
        rank: "mean-field" (independent parameters) or "full" (up to 2000 of them).
        draws, chains: independent draws from q, arranged in chains so that all tools accept them.
        batch_size: rows per step; "auto" is 1024, or all rows where there are fewer.
        init: pytree or flat vector to start from; None is the model's.
        tolerance: stop when the ELBO is within this number of nats *per parameter* of its optimum.
            0.005 is a mean off by 0.1 standard deviations, or a standard deviation off by 7 %.
        max_steps: bound on the steps.
        seed: same seed, same result.
        dtype: "float64" (default) or "float32".
    """
    started = time.perf_counter()
    _checked(model, rank, tolerance)
    require_model(model)
    checked_numbers(draws=draws, chains=chains, max_steps=max_steps)
    checked_numbers(0, seed=seed)
    dtype = checked_dtype(dtype)
    import numpyro

    size = min(1024, model.n_data)
    if batch_size != "auto":
        size = checked_batch_size(batch_size, model.n_data, "replacement")  # type: ignore[arg-type]
    derivatives = CountedPasses(derivatives_of(model))
    search = _search(
        model, derivatives, rank, start_of(model, init), size, tolerance, max_steps, seed, dtype
    )
    statement = _statement(model, search, tolerance)
    if not search.converged:
        warnings.warn(f"{rank} BBVI has {statement}", ConvergenceWarning, stacklevel=2)
    law = search.guide.law()
    return delivered(
        model,
        "bbvi",
        independent_draws(law, chains, draws, seed),
        started,
        search.steps * size / model.n_data + derivatives.passes,
        moments=law,
        seed=int(seed),
        rank=rank,
        dtype=dtype,
        batch_size=size,
        steps=search.steps,
        elbo=tuple(search.elbo),
        elbo_steps=tuple(search.elbo_steps),
        shortfall=search.shortfall,
        converged=search.converged,
        convergence=statement,
        numpyro=numpyro.__version__,
    )


def _checked(model: Model, rank: str, tolerance: float) -> None:
    if rank not in RANKS:
        raise InputError(f"rank must be one of {RANKS}, not {rank!r}")
    if rank == "full" and model.dim > FULL_LIMIT:
        raise InputError(
            f"the full family has {model.dim}² numbers here; it is limited to {FULL_LIMIT}"
            " parameters"
        )
    if not tolerance > 0.0:
        raise InputError(f"tolerance must be positive; got {tolerance}")


def _statement(model: Model, search: Search, tolerance: float) -> str:
    what = f"the ELBO is {search.shortfall:.2g} nats from its optimum"
    if not _hessian_in_reach(model):
        what = (
            f"the averaged guide moved between the last two windows by {search.shortfall:.2g} nats"
        )
    what += f" (wanted: below {tolerance * model.dim:.2g}), after {search.steps} steps"
    return (
        f"converged: {what}"
        if search.converged
        else f"not converged: {what}; raise max_steps or batch_size"
    )


def _search(
    model: Model,
    derivatives: CountedPasses,
    rank: str,
    start: Array,
    batch_size: int,
    tolerance: float,
    max_steps: int,
    seed: int,
    dtype: str,
) -> Search:
    block = max(1, min(500, 2**20 // batch_size, max_steps // 2))
    coordinates = _coordinates(model, derivatives, start, rank)
    search = Search(Guide(start, FIRST_SPREAD * coordinates), FIRST_RATE, 2)
    batches = epochs(model.n_data, batch_size, block, seed)
    key = jax.random.key(seed)
    program = Program(model.loss, rank)
    current, failures = search.guide, 0
    while search.steps + search.blocks * block <= max_steps:
        key, window_key = jax.random.split(key)
        average, last, elbo = window(
            program, model, current, coordinates, search, batches, window_key, dtype
        )
        search.elbo_steps.extend(
            search.steps + block * number for number in range(1, search.blocks + 1)
        )
        search.elbo.extend(elbo)
        search.steps += search.blocks * block
        if not (average.finite() and last.finite()):
            failures += 1
            if failures == 10:
                raise DivergenceError(
                    f"the ELBO reached non-finite values near step {search.steps}, at every"
                    " rate down"
                    f" to {search.rate:.2g} standard deviations a step: start nearer the mode"
                    " (init=…)",
                    chain=0,
                    step=search.steps,
                    last_finite=current.mean,
                )
            search.rate /= 4.0
            continue
        before, search.shortfall = (
            search.shortfall,
            _shortfall(model, derivatives, average, search.guide, seed),
        )
        search.guide, current = average, last
        if search.shortfall <= tolerance * model.dim:
            search.converged = True
            break
        if search.shortfall > FAST * before:
            search.blocks *= 2
        if np.isfinite(before) and not search.shortfall <= STALLED * before:
            search.rate /= 2.0
            current = average
        search.blocks = min(search.blocks, max(2, 2 * ((max_steps - search.steps) // (2 * block))))
        coordinates = _coordinates(model, derivatives, current.mean, rank)
    return search


def _coordinates(model: Model, derivatives: CountedPasses, theta: Array, rank: str) -> Array:
    """P: a square root of the inverse of the precision N·A near θ, or of its diagonal for the
    mean-field family.

    A is the Hessian where that is in reach and positive; else the second moment of the gradients
    with the prior's part, which is the same where the model is right and θ is near the mode. Only
    speed depends on it.
    """
    diagonal = rank == "mean-field"
    precision = None
    if _hessian_in_reach(model):
        precision = _precision(model, derivatives, theta)
        smallest = np.diagonal(precision) if diagonal else np.linalg.eigvalsh(precision)
        precision = precision if np.all(smallest > 0.0) else None
    if precision is None:
        prior = model.prior_hessian(theta)
        _, second = (
            derivatives.diagonal_moments(theta) if diagonal else derivatives.gradient_moments(theta)
        )
        if diagonal:
            precision = model.n_data * second + np.maximum(
                prior if prior.ndim == 1 else np.diagonal(prior), 0.0
            )
        else:
            precision = model.n_data * second + (np.diag(prior) if prior.ndim == 1 else prior)
    if diagonal:
        values = precision if precision.ndim == 1 else np.diagonal(precision)
        return 1.0 / np.sqrt(np.where(values > 0.0, values, 1.0))
    unit = np.sqrt(np.where(np.diagonal(precision) > 0.0, np.diagonal(precision), 1.0))
    values, vectors = np.linalg.eigh(precision / np.multiply.outer(unit, unit))
    root = (vectors / np.sqrt(np.maximum(values, 1e-10))) / unit[:, None]
    return np.linalg.cholesky(root @ root.T)


def _hessian_in_reach(model: Model) -> bool:
    return model.dim <= (AUTODIFF_HESSIAN_LIMIT if model.linear is None else FULL_LIMIT)


def _precision(model: Model, derivatives: CountedPasses, theta: Array) -> Array:
    """N·A at θ, the prior included."""
    return model.n_data * derivatives.hessian(theta) + model.prior_hessian(theta)


def _shortfall(
    model: Model, derivatives: CountedPasses, guide: Guide, before: Guide, seed: int
) -> float:
    """Nats between the ELBO and its optimum, or between this guide and the one before; infinite
    where no optimum is near.
    """
    if not _hessian_in_reach(model):
        return kl(guide.law(), before.law())
    precision = _precision(model, derivatives, guide.mean)
    try:
        factor = scipy.linalg.cho_factor(precision)
    except (np.linalg.LinAlgError, ValueError):
        return float("inf")
    normals = np.random.default_rng(seed).normal(size=(PAIRS, model.dim))
    slope = np.zeros(model.dim)
    for shift in np.concatenate([guide.spread(normals), -guide.spread(normals)]):
        theta = guide.mean + shift
        slope += derivatives.value_and_gradient(theta)[1] + model.scaled_prior(theta)[1]
    slope *= model.n_data / (2 * PAIRS)
    mean_part = 0.5 * float(slope @ scipy.linalg.cho_solve(factor, slope))
    if guide.root.ndim == 1:
        ratio = np.diagonal(precision) * guide.root**2
    else:
        ratio = np.linalg.eigvalsh(guide.root.T @ precision @ guide.root)
    return mean_part + 0.5 * float(np.sum(ratio - 1.0 - np.log(ratio)))
