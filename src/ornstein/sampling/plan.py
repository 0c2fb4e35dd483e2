"""From what was asked for to plain numbers: batch size, steps between draws, warm-up, starts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ornstein.checks import brief, require_memory
from ornstein.curvature.curvature import Curvature
from ornstein.dynamics.dynamics import Dynamics, Sampler
from ornstein.dynamics.prediction import Prediction, require_fit
from ornstein.errors import BudgetWarning, InputError, OrnsteinError, StabilityError
from ornstein.model.model import Model
from ornstein.rows.scheme import (
    STRATIFIED,
    UNIT,
    automatic_batch,
    checked_scheme,
)
from ornstein.sampling.collect import STATES_PER_DRAW
from ornstein.sampling.request import SampleRequest
from ornstein.streams import Purpose, stream
from ornstein.theory.matrices import matrix_root
from ornstein.types import Array

WARMUP_RELAXATION_TIMES = 10.0
MOST_STEPS = 10**18  # beyond any budget; a relaxation time may be longer, even infinite


@dataclass(frozen=True)
class Schedule:
    """What was asked for, in plain numbers: steps between draws, steps of the first round of
    warm-up, and so on.
    """

    draws: int
    chains: int
    thin: int
    warmup: int
    automatic_warmup: bool
    keep: str
    dtype: str
    seed: int
    first_chain: int = 0
    # steps a chain that warm-up may take where it goes on until the chain has settled
    warmup_limit: int | None = None


def tuned(
    sampler: object, curvature: Curvature, batch_size: int | str, scheme: str
) -> tuple[Dynamics, Prediction]:
    """The dynamics and what theory predicts of it."""
    if isinstance(sampler, type) or not isinstance(sampler, Dynamics | Sampler):
        given = (
            f"the class {sampler.__name__} itself"
            if isinstance(sampler, type)
            else f"a {type(sampler).__name__}"
        )
        raise InputError(
            f"sampler must be a sampler, for instance orn.ConstantSGD(), or a Dynamics; got {given}"
        )
    if isinstance(sampler, Dynamics):
        return _predicted(fitting(sampler, curvature), curvature)
    if batch_size != "auto":
        if isinstance(batch_size, str):
            raise InputError(f"batch_size must be a whole number or 'auto', not {batch_size!r}")
        return _predicted(_tune(sampler, curvature, batch_size, scheme), curvature)
    least = UNIT if checked_scheme(scheme) == STRATIFIED else 1
    size = max(least, automatic_batch(curvature.n_data))
    while True:
        dynamics, prediction = _predicted(_tune(sampler, curvature, size, scheme), curvature)
        if size <= least or prediction.stable:
            return dynamics, prediction
        size //= 2


def _predicted(dynamics: Dynamics, curvature: Curvature) -> tuple[Dynamics, Prediction]:
    with solvable(dynamics.sampler):
        return dynamics, dynamics.predict(curvature)


def _tune(sampler: Sampler, curvature: Curvature, batch_size: int, scheme: str) -> Dynamics:
    with solvable(f"{brief(sampler)} with batch_size={batch_size}"):
        return fitting(sampler.tune(curvature, batch_size=batch_size, scheme=scheme), curvature)


@contextmanager
def solvable(what: str) -> Iterator[None]:
    """Numbers so extreme that the theory's equations have no solution in floating point are called
    that.
    """
    try:
        yield
    except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
        if isinstance(error, OrnsteinError):
            raise
        raise InputError(
            f"{what} cannot be used on this model: the equations for its law have no solution in"
            f" floating point ({str(error).splitlines()[0]}). Bring the columns and y to a common"
            " scale, give step_size a number, or use another sampler"
        ) from error


def fitting(dynamics: Dynamics, curvature: Curvature) -> Dynamics:
    """A Dynamics as it was given, refused where it is not one for this many rows and parameters."""
    require_fit(dynamics, curvature)
    return dynamics


def require_stable(dynamics: Dynamics, prediction: Prediction) -> None:
    """Refuse a step beyond the stability bound, naming both."""
    if prediction.stable:
        return
    if dynamics.preconditioner.ndim == 0:
        size, bound = float(dynamics.preconditioner), prediction.step_bound
        said = f"the step size {size:.4g} is beyond the stability bound {bound:.4g}"
    else:
        said = (
            "the preconditioner is beyond the stability bound: multiply it by less than"
            f" {prediction.step_bound:.4g}"
        )
    raise StabilityError(
        f"{said} ({'; '.join((f'batch_size={dynamics.batch_size}', *dynamics.notes))}): the chain"
        " would diverge. Use a smaller step, step_size='auto' or another batch_size"
    )


def planned(
    request: SampleRequest, dynamics: Dynamics, prediction: Prediction, dimension: int
) -> Schedule:
    """The request in plain numbers; all chains together stay within `max_steps`."""
    total, chains, most = request.draws * request.chains, int(request.chains), request.max_steps
    if request.thin != "auto" or dynamics.window > 1:
        thin = _thinning(request.thin, dynamics, prediction, total, most)
        warmup = _planned_warmup(request.warmup, prediction, (most - total * thin) // chains)
    else:
        warmup = _planned_warmup(request.warmup, prediction, most // (2 * chains))
        thin = _thinning(request.thin, dynamics, prediction, total, most - chains * warmup)
    if request.keep == "draws":
        require_memory("an array of draws", chains, int(request.draws), dimension)
    return Schedule(
        int(request.draws),
        chains,
        thin,
        warmup,
        request.warmup == "auto",
        request.keep,
        request.working_dtype,
        int(request.seed),
        request.first_chain,
        max(warmup, (most - total * thin) // chains),
    )


def _thinning(
    thin: int | str, dynamics: Dynamics, prediction: Prediction, total: int, max_steps: int
) -> int:
    if dynamics.window > 1:
        if thin != "auto":
            raise InputError(
                "thin cannot be set where draws are window means: window and gap decide it"
            )
        return _window_spacing(dynamics, total, max_steps)
    if thin != "auto":
        if isinstance(thin, bool) or not isinstance(thin, int | np.integer) or thin < 1:
            raise InputError(f"thin must be a positive whole number or 'auto'; got {thin!r}")
        if total * thin > max_steps:
            raise InputError(
                f"{total} draws of {thin} steps each exceed max_steps={max_steps:.3g}: raise"
                " max_steps, ask for fewer draws or thin less"
            )
        return int(thin)
    wanted = max(1, math.ceil(min(2.0 * prediction.relaxation_time, MOST_STEPS)))
    if wanted > STATES_PER_DRAW:
        wanted = STATES_PER_DRAW * math.ceil(wanted / STATES_PER_DRAW)
    allowed = max(1, max_steps // total)
    if wanted <= allowed:
        return wanted
    correlation = math.exp(-allowed / prediction.relaxation_time)
    size = total * (1.0 - correlation) / (1.0 + correlation)
    faster = (
        ""
        if dynamics.preconditioner.ndim == 2
        else ", or use a preconditioner that mixes faster (ConstantSGD('full'))"
    )
    warnings.warn(
        f"thinning is cut from {wanted} to {allowed} steps to stay within the {max_steps:.3g} steps"
        " that max_steps leaves for draws: the slowest direction relaxes in"
        f" {prediction.relaxation_time:.3g} steps, so {total} draws are worth about {size:.0f}"
        f" there. Raise max_steps or ask for fewer draws{faster}",
        BudgetWarning,
        stacklevel=5,
    )
    return allowed


def _window_spacing(dynamics: Dynamics, total: int, max_steps: int) -> int:
    """Steps from one window's end to the next; they cannot be cut, so a budget that is too small is
    refused.
    """
    spacing = dynamics.window + dynamics.gap
    if total * spacing > max_steps:
        raise InputError(
            f"{total} draws of {spacing} steps each exceed max_steps={max_steps:.3g}: raise"
            f" max_steps to {total * spacing:.3g} or more, ask for fewer draws (at most"
            f" {max_steps // spacing} over all chains), or use a larger batch or a shorter window"
        )
    return spacing


def _planned_warmup(warmup: int | str, prediction: Prediction, most: int) -> int:
    if warmup != "auto":
        if isinstance(warmup, bool) or not isinstance(warmup, int | np.integer) or warmup < 0:
            raise InputError(f"warmup must be a whole number, 0 or more, or 'auto'; got {warmup!r}")
        return int(warmup)
    times = WARMUP_RELAXATION_TIMES * prediction.relaxation_time
    wanted = math.ceil(min(times, MOST_STEPS)) + 10
    return min(wanted, max(1, most))


def starts(
    request: SampleRequest, model: Model, curvature: Curvature, prediction: Prediction
) -> Array:
    """Displacements from the mode where the chains start: at `init`, or drawn from the predicted
    law.
    """
    if request.init is not None:
        flat = model.flat(request.init)
        return np.tile(flat - curvature.mode, (len(request.chain_numbers), 1))
    process = prediction.process
    spread = (
        curvature.posterior_covariance
        if process is None
        else process.modes.to_theta(process.stationary)
    )
    generators = [stream(request.seed, Purpose.STARTS, chain) for chain in request.chain_numbers]
    normals = np.stack([generator.standard_normal(model.dim) for generator in generators])
    root = matrix_root(spread)
    return normals * root if root.ndim < 2 else normals @ root.T
