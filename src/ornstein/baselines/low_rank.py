"""A SWAG-style Gaussian for many parameters: mean, diagonal and a few factors, from constant SGD
that is tuned to sample.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from ornstein.baselines.common import checked_numbers
from ornstein.baselines.laplace import CountedPasses
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.derivatives import derivatives_of
from ornstein.dynamics.dynamics import Dynamics, Sampler
from ornstein.model.model import Model
from ornstein.model.required import require_model
from ornstein.posterior.posterior import Posterior
from ornstein.samplers.constant_sgd import ConstantSGD
from ornstein.sampling.request import SampleRequest
from ornstein.sampling.run import run_here


def low_rank(
    model: Model,
    rank: int = 20,
    *,
    sampler: Sampler | Dynamics | None = None,
    draws: int = 50,
    chains: int = 4,
    curvature: Curvature | None = None,
    seed: int = 0,
    **options: Any,
) -> Posterior:
    """Independent draws from N(mean, LLᵀ + diag(d)), L of `rank` columns, fitted to the states of
    tuned constant SGD.

    The chain is `orn.sample` with the diagonal preconditioner, so its spread is the posterior's as
    far as a diagonal step allows (`prediction` says how far), and not that of an arbitrary learning
    rate as in SWAG. The variances are exactly those of the chain's states, d = variance −
    diag(LLᵀ); the convention of Maddox et al., half the diagonal plus half a low-rank part, is not
    used because it halves every covariance. Principal components that as few draws of independent
    parameters would show too are left out, so the rank in use may be smaller. See
    `ornstein.posterior.low_rank`.

    `prediction` and `dynamics` are those of the chain; `covariance` is LLᵀ + diag(d), above 2000
    parameters its diagonal. The draws are independent of each other, but their law is only as well
    known as the chain is long: `settings["states"]` states, `settings["moment_spacing"]` steps
    apart.

    Args:
        model: what is inferred.
        rank: most factors to keep.
        sampler: another sampler to feed it; None is `ConstantSGD("diagonal")`.
        draws: the chain runs for as many draws, two relaxation times apart, and the same number is
            drawn from the Gaussian, per chain. The default makes each chain a hundred relaxation
            times long.
        chains, curvature, seed: as for `orn.sample`.
        options: further arguments of `orn.sample`: batch_size, scheme, warmup, max_steps, dtype, ….
    """
    started = time.perf_counter()
    require_model(model)
    checked_numbers(rank=rank)
    measuring = CountedPasses(derivatives_of(model))
    request = SampleRequest(
        ConstantSGD("diagonal") if sampler is None else sampler,
        draws=draws,
        chains=chains,
        curvature=curvature,
        seed=seed,
        keep=f"low-rank:{rank}",
        **options,
    )
    posterior = run_here(model, request, measuring)
    passes = (
        measuring.passes
        + posterior.settings["steps"] * posterior.settings["batch_size"] / model.n_data
    )
    cost = {"seconds": time.perf_counter() - started, "passes": float(passes)}
    settings = {**posterior.settings, "sampler": "low_rank", "rank": int(rank), **cost}
    return replace(posterior, settings=settings)
