"""From a model to a Posterior: measure, tune, predict, warm up, freeze, run."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ornstein.checkpoint import Checkpoint
from ornstein.checks import brief
from ornstein.collect import STATES_PER_DRAW, require_memory
from ornstein.curvature import Curvature, measure
from ornstein.dynamics import Dynamics, matrix_root
from ornstein.errors import BudgetWarning, InputError, OrnsteinError, StabilityError
from ornstein.extrapolate import extrapolated, half_step
from ornstein.minibatch import checked_batch_size, is_whole
from ornstein.model import Model
from ornstein.posterior import Posterior
from ornstein.prediction import Prediction
from ornstein.samplers.constant_sgd import ConstantSGD
from ornstein.session import Plan, Session, finished
from ornstein.sketch import rank_of
from ornstein.warmup import Tuned

Array = np.ndarray
WARMUP_RELAXATION_TIMES = 10.0


def sample(
    model: Model,
    sampler: Any = None,
    *,
    batch_size: int | str = "auto",
    scheme: str = "replacement",
    draws: int = 1000,
    chains: int = 4,
    thin: int | str = "auto",
    warmup: int | str = "auto",
    max_steps: int = 20_000_000,
    curvature: Curvature | None = None,
    init: Any = None,
    seed: int = 0,
    dtype: str | None = None,
    keep: str = "draws",
    progress: bool = True,
    checkpoint: str | Path | None = None,
    every: str | float = "60s",
    client: Any = None,
    first_chain: int = 0,
    extrapolate: bool = False,
) -> Posterior:
    """Draw from the posterior by stochastic gradients, with every number that is not given chosen by theory.

    Args:
        model: what is inferred.
        sampler: a sampler (a rule that is tuned here) or a Dynamics (taken as it is); None is `ConstantSGD("full")`, or
            diagonal above 2000 parameters.
        batch_size: S; "auto" is near √N, halved until the step is stable.
        scheme: how minibatches are drawn: "replacement", "without-replacement" or "slices"; the last is faster on data beyond the
            processor's caches, and holds two more copies of them.
        draws: kept draws per chain.
        chains: how many chains run.
        thin: steps between draws; "auto" is two relaxation times, cut with a BudgetWarning where `max_steps` does not allow it.
        warmup: steps thrown away first; "auto" is ten relaxation times, longer until the stationarity test passes.
        max_steps: bound on the steps of all chains together, warm-up included.
        curvature: a measured Curvature; None measures.
        init: pytree or flat vector where all chains start; None starts each at a draw from the predicted law.
        seed: same seed, same draws.
        dtype: "float32" (default) or "float64", for the chain; curvature and theory are always float64.
        keep: "draws"; "moments" to keep only mean and covariance; "low-rank" (or "low-rank:K") for a covariance of a diagonal
            plus rank 20 (or K) in memory O(K·D), and `draws` per chain from that Gaussian.
        progress: show a progress bar on a terminal.
        client: a dask.distributed.Client: chains run on its workers, and a model on Dask collections shard by shard (see
            `ornstein.cluster`). With `checkpoint`, finished parts are kept, and the same call goes on after a lost scheduler.
        first_chain: the number of the first chain; chain k has the same random streams in every run with this seed.
        checkpoint: a folder to write the whole state into, `every` so often ("30s", "5m", "1h" or seconds); `orn.resume` goes
            on from there, to the same draws.
        extrapolate: run again at half the step and move the draws to the mean extrapolated from both (extrapolate.py).

    Ctrl-C ends the run early: what has been drawn so far is returned, with `settings["complete"]` False.

    >>> import numpy as np
    >>> from ornstein.glm import glm
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(500, 2))
    >>> post = sample(glm(X, X @ [1.0, 2.0] + rng.normal(size=500)), draws=500, progress=False)
    >>> post.draws.shape
    (4, 500, 4)
    """
    if client is not None:
        given = {
            "batch_size": batch_size,
            "scheme": scheme,
            "draws": draws,
            "thin": thin,
            "warmup": warmup,
            "init": init,
        }
        given |= {"max_steps": max_steps, "dtype": dtype, "keep": keep, "curvature": curvature}
        return _on_cluster(client, model, sampler, given, chains, seed, checkpoint)
    started = time.perf_counter()
    options = _checked_options(draws, chains, max_steps, dtype, keep, seed)
    measured = curvature is None
    curvature = measure(model) if curvature is None else curvature
    if not isinstance(curvature, Curvature):
        raise InputError(
            f"curvature must be a Curvature, for instance orn.measure(model); got a {type(curvature).__name__}"
        )
    if not isinstance(model, Model):
        raise InputError(
            f"model must be a Model, for instance orn.glm(X, y); got a {type(model).__name__}"
        )
    if curvature.dim != model.dim:
        raise InputError(f"the curvature has {curvature.dim} parameters, the model {model.dim}")
    if sampler is None:
        sampler = ConstantSGD("diagonal" if curvature.diagonal else "full")
    dynamics, prediction = _tuned(sampler, curvature, batch_size, scheme)
    with _solvable(dynamics.sampler):
        _require_stable(dynamics, prediction)
    if extrapolate:
        if checkpoint is not None:
            raise InputError(
                "extrapolate=True makes two runs, of which a checkpoint would hold the first: leave one of them out"
            )
        half_step(dynamics, curvature)  # refuses now what it would refuse after the run
    wanted_thin, (thin, planned, limit) = (
        thin,
        _lengths(thin, warmup, dynamics, prediction, draws, chains, max_steps),
    )
    options |= {"first_chain": first_chain, "warmup_limit": limit}
    if keep == "draws":
        require_memory("an array of draws", int(chains), int(draws), model.dim)
    plan = Plan(int(draws), int(chains), thin, planned, warmup == "auto", **options)
    starts = _starts(
        model, curvature, prediction, init, range(first_chain, first_chain + plan.chains), seed
    )
    can_retune = measured and curvature.noise_response is None and hasattr(sampler, "tune")
    tuned = Tuned(dynamics, curvature, prediction)
    session = Session(model, tuned, starts, plan, sampler if can_retune else None)
    pause = (
        None
        if checkpoint is None
        else Checkpoint.of_session(Path(checkpoint), every, session, measured)
    )
    posterior = finished(session, progress, pause, started)
    if not extrapolate:
        return posterior
    again = {
        "draws": draws,
        "chains": chains,
        "thin": wanted_thin,
        "warmup": warmup,
        "max_steps": max_steps,
        "init": init,
    }
    return extrapolated(model, posterior, seed, dtype=dtype, keep=keep, progress=progress, **again)


def _on_cluster(
    client: Any,
    model: Model,
    sampler: Any,
    options: dict[str, Any],
    chains: int,
    seed: int,
    checkpoint: str | Path | None,
) -> Posterior:
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise InputError("a cluster needs Dask: pip install 'ornstein[cluster]'") from error
    from ornstein.cluster import sample_on

    _checked_options(
        options["draws"], chains, options["max_steps"], options["dtype"], options["keep"], seed
    )
    return sample_on(
        client,
        model,
        sampler,
        options,
        chains,
        seed,
        None if checkpoint is None else Path(checkpoint),
    )


def _checked_options(
    draws: int, chains: int, max_steps: int, dtype: str | None, keep: str, seed: int
) -> dict[str, Any]:
    for name, value in (("draws", draws), ("chains", chains), ("max_steps", max_steps)):
        if not is_whole(value) or value < 1:
            raise InputError(f"{name} must be a positive whole number; got {value!r}")
    if draws * chains > max_steps:
        raise InputError(
            f"{draws * chains:.3g} draws over all chains are more than max_steps={max_steps:.3g} steps can give"
        )
    if draws * chains < 2:
        raise InputError("draws times chains must be at least 2: one draw alone has no covariance")
    if dtype not in (None, "float32", "float64"):
        raise InputError(f"dtype must be 'float32' or 'float64', not {dtype!r}")
    if keep not in ("draws", "moments") and rank_of(keep) is None:
        raise InputError(
            f"keep must be 'draws', 'moments', 'low-rank' or 'low-rank:K' with a rank K; got {keep!r}"
        )
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed must be a whole number, 0 or more; got {seed!r}")
    return {"dtype": dtype or "float32", "keep": keep, "seed": int(seed)}


def _tuned(
    sampler: Any, curvature: Curvature, batch_size: int | str, scheme: str
) -> tuple[Dynamics, Prediction]:
    """The dynamics and what theory predicts of it."""
    if isinstance(sampler, type) or not (hasattr(sampler, "kernel") or hasattr(sampler, "tune")):
        given = (
            f"the class {sampler.__name__} itself"
            if isinstance(sampler, type)
            else f"a {type(sampler).__name__}"
        )
        raise InputError(
            f"sampler must be a sampler, for instance orn.ConstantSGD(), or a Dynamics; got {given}"
        )
    if hasattr(sampler, "kernel"):
        return _predicted(_fitting(sampler, curvature), curvature)
    if batch_size != "auto":
        if isinstance(batch_size, str):
            raise InputError(f"batch_size must be a whole number or 'auto', not {batch_size!r}")
        return _predicted(_tune(sampler, curvature, batch_size, scheme), curvature)
    size = automatic_batch(curvature.n_data)
    while True:
        dynamics, prediction = _predicted(_tune(sampler, curvature, size, scheme), curvature)
        if size == 1 or prediction.stable:
            return dynamics, prediction
        size //= 2


def _predicted(dynamics: Dynamics, curvature: Curvature) -> tuple[Dynamics, Prediction]:
    with _solvable(dynamics.sampler):
        return dynamics, dynamics.predict(curvature)


def _tune(sampler: Any, curvature: Curvature, batch_size: int, scheme: str) -> Dynamics:
    with _solvable(f"{brief(sampler)} with batch_size={batch_size}"):
        return _fitting(sampler.tune(curvature, batch_size=batch_size, scheme=scheme), curvature)


@contextmanager
def _solvable(what: str) -> Iterator[None]:
    """Numbers so extreme that the theory's equations have no solution in floating point are called that."""
    try:
        yield
    except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
        if isinstance(error, OrnsteinError):
            raise
        raise InputError(
            f"{what} cannot be used on this model: the equations for its law have no solution in floating point "
            f"({str(error).splitlines()[0]})"
        ) from error


def _fitting(dynamics: Dynamics, curvature: Curvature) -> Dynamics:
    """A Dynamics as it was given, refused where it is not one for this many rows and parameters."""
    checked_batch_size(dynamics.batch_size, curvature.n_data, dynamics.scheme)
    for name in ("preconditioner", "injected", "output_map"):
        shape = np.shape(getattr(dynamics, name) if getattr(dynamics, name) is not None else 0.0)
        if any(length != curvature.dim for length in shape):
            raise InputError(
                f"the {name} has shape {shape}, which does not fit {curvature.dim} parameters"
            )
    return dynamics


def automatic_batch(n_data: int) -> int:
    """The power of two nearest √N, between 16 and 1024 and at most N/4.

    >>> automatic_batch(5000), automatic_batch(10**7), automatic_batch(20)
    (64, 1024, 5)
    """
    size = 2 ** round(math.log2(math.sqrt(n_data)))
    return max(1, min(max(16, size), 1024, n_data // 4))


def _require_stable(dynamics: Dynamics, prediction: Prediction) -> None:
    if prediction.stable:
        return
    if dynamics.preconditioner.ndim == 0:
        size, bound = float(dynamics.preconditioner), prediction.step_bound
        said = f"the step size {size:.4g} is beyond the stability bound {bound:.4g}"
    else:
        said = f"the preconditioner is beyond the stability bound: multiply it by less than {prediction.step_bound:.4g}"
    raise StabilityError(
        f"{said} ({'; '.join((f'batch_size={dynamics.batch_size}', *dynamics.notes))}): the chain would diverge. Use a smaller "
        "step, step_size='auto' or another batch_size"
    )


def _lengths(
    thin: int | str,
    warmup: int | str,
    dynamics: Dynamics,
    prediction: Prediction,
    draws: int,
    chains: int,
    max_steps: int,
) -> tuple[int, int, int]:
    """Steps between draws, steps of warm-up, and how long warm-up may become; all chains together stay within `max_steps`."""
    total = draws * chains
    if thin != "auto" or dynamics.window > 1:
        steps = _thinning(thin, dynamics, prediction, total, max_steps)
        planned = _planned_warmup(warmup, prediction, (max_steps - total * steps) // chains)
    else:
        planned = _planned_warmup(warmup, prediction, max_steps // (2 * chains))
        steps = _thinning(thin, dynamics, prediction, total, max_steps - chains * planned)
    return steps, planned, max(planned, (max_steps - total * steps) // chains)


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
                f"{total} draws of {thin} steps each exceed max_steps={max_steps:.3g}: raise max_steps, ask for fewer draws or "
                "thin less"
            )
        return int(thin)
    wanted = max(1, math.ceil(2.0 * prediction.relaxation_time))
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
        f"thinning is cut from {wanted} to {allowed} steps to stay within the {max_steps:.3g} steps that max_steps leaves for "
        f"draws: the slowest direction relaxes in {prediction.relaxation_time:.3g} steps, so {total} draws are worth about "
        f"{size:.0f} there. Raise max_steps or ask for fewer draws{faster}",
        BudgetWarning,
        stacklevel=3,
    )
    return allowed


def _window_spacing(dynamics: Dynamics, total: int, max_steps: int) -> int:
    """Steps from one window's end to the next; they cannot be cut, so a budget that is too small is refused."""
    spacing = dynamics.window + dynamics.gap
    if total * spacing > max_steps:
        raise InputError(
            f"{total} draws of {spacing} steps each exceed max_steps={max_steps:.3g}: raise max_steps to "
            f"{total * spacing:.3g} or more, ask for fewer draws (at most {max_steps // spacing} over all chains), or use a "
            "larger batch or a shorter window"
        )
    return spacing


def _planned_warmup(warmup: int | str, prediction: Prediction, most: int) -> int:
    if warmup != "auto":
        if isinstance(warmup, bool) or not isinstance(warmup, int | np.integer) or warmup < 0:
            raise InputError(f"warmup must be a whole number, 0 or more, or 'auto'; got {warmup!r}")
        return int(warmup)
    wanted = math.ceil(WARMUP_RELAXATION_TIMES * prediction.relaxation_time) + 10
    return min(wanted, max(1, most))


def _starts(
    model: Model, curvature: Curvature, prediction: Prediction, init: Any, chains: range, seed: int
) -> Array:
    """Displacements from the mode where the chains, given by their numbers, start."""
    if init is not None:
        flat = (
            init
            if isinstance(init, np.ndarray) and init.shape == (model.dim,)
            else model.layout.flatten(init)
        )
        if not np.all(np.isfinite(flat)):
            raise InputError("init holds a value that is not finite")
        return np.tile(flat - curvature.mode, (len(chains), 1))
    process = prediction.process
    spread = (
        curvature.posterior_covariance
        if process is None
        else process.modes.to_theta(process.stationary)
    )
    normals = np.stack(
        [
            np.random.Generator(
                np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(chain, 7)))
            ).standard_normal(model.dim)
            for chain in chains
        ]
    )
    root = matrix_root(spread)
    return normals * root if root.ndim < 2 else normals @ root.T
