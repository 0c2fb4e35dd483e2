"""From a model to a Posterior: measure, tune, predict, warm up, freeze, run."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ornstein.collect import Delivery, Draws, Moments
from ornstein.curvature import FULL_LIMIT, Curvature, measure
from ornstein.dynamics import Dynamics, matrix_root
from ornstein.engine import Kept, Run, block_length, divisor_within
from ornstein.errors import BudgetWarning, InputError, StabilityError
from ornstein.model import Model
from ornstein.posterior import Posterior, provenance
from ornstein.precision import width
from ornstein.prediction import Prediction
from ornstein.samplers.constant_sgd import ConstantSGD
from ornstein.warmup import Tuned, retuner, warm_up

Array = np.ndarray
WARMUP_RELAXATION_TIMES = 10.0
STATES_PER_DRAW = 8


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
) -> Posterior:
    """Draw from the posterior by stochastic gradients, with every number that is not given chosen by theory.

    Args:
        model: what is inferred.
        sampler: a sampler (a rule that is tuned here) or a Dynamics (taken as it is); None is `ConstantSGD("full")`, or
            diagonal above 2000 parameters.
        batch_size: S; "auto" is near √N, halved until the step is stable.
        scheme: how minibatches are drawn: "replacement", "without-replacement" or "slices".
        draws: kept draws per chain.
        chains: how many chains run.
        thin: steps between draws; "auto" is two relaxation times, cut with a BudgetWarning where `max_steps` does not allow it.
        warmup: steps thrown away first; "auto" is ten relaxation times, longer until the stationarity test passes.
        max_steps: bound on the steps of all chains together.
        curvature: a measured Curvature; None measures.
        init: pytree or flat vector where all chains start; None starts each at a draw from the predicted law.
        seed: same seed, same draws.
        dtype: "float32" (default) or "float64", for the chain; curvature and theory are always float64.
        keep: "draws", or "moments" to keep only mean and covariance.
        progress: show a progress bar on a terminal.

    >>> import numpy as np
    >>> from ornstein.glm import glm
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(500, 2))
    >>> post = sample(glm(X, X @ [1.0, 2.0] + rng.normal(size=500)), draws=500, progress=False)
    >>> post.draws.shape
    (4, 500, 4)
    """
    started = time.perf_counter()
    options = _checked_options(draws, chains, max_steps, dtype, keep, seed)
    measured = curvature is None
    curvature = measure(model) if curvature is None else curvature
    if curvature.dim != model.dim:
        raise InputError(f"the curvature has {curvature.dim} parameters, the model {model.dim}")
    if sampler is None:
        sampler = ConstantSGD("diagonal" if curvature.diagonal else "full")
    dynamics = _tuned(sampler, curvature, batch_size, scheme)
    prediction = dynamics.predict(curvature)
    _require_stable(dynamics, prediction)
    thin = _thinning(thin, dynamics, prediction, draws * chains, max_steps)
    with width(options["dtype"]):
        problem = model.problem(options["dtype"], curvature.mode)
    starts = _starts(model, curvature, prediction, init, chains, seed)
    run = Run(model.loss, problem, dynamics, model.n_data, starts, seed, options["dtype"])
    planned = _planned_warmup(warmup, prediction, chains, max_steps)
    can_retune = measured and curvature.noise_response is None and hasattr(sampler, "tune")
    retune = retuner(model, run, sampler, seed) if can_retune else None
    tuned = Tuned(dynamics, curvature, prediction)
    with _progress_bar(progress, chains * (planned + draws * thin)) as report:
        tuned, warmed = warm_up(run, tuned, planned, warmup == "auto", retune, report)
        warmup_seconds = time.perf_counter() - started
        store, moments, complete = _collect(run, tuned.dynamics, thin, draws, chains, keep, report)
    settings = {
        "batch_size": dynamics.batch_size,
        "scheme": dynamics.scheme,
        "thin": thin,
        "warmup": warmed,
        "steps": sum(chain.step for chain in run.chains),
        "complete": complete,
        "moment_spacing": moments.spacing,
        "seconds": time.perf_counter() - started,
        "seconds_before_draws": warmup_seconds,
        **options,
        **provenance(),
    }
    return Posterior.from_run(model, tuned.dynamics, tuned.curvature, tuned.prediction, store, moments, settings)


def _checked_options(draws: int, chains: int, max_steps: int, dtype: str | None, keep: str, seed: int) -> dict[str, Any]:
    for name, value in (("draws", draws), ("chains", chains), ("max_steps", max_steps)):
        if isinstance(value, bool) or int(value) != value or value < 1:
            raise InputError(f"{name} must be a positive whole number; got {value!r}")
    if dtype not in (None, "float32", "float64"):
        raise InputError(f"dtype must be 'float32' or 'float64', not {dtype!r}")
    if keep not in ("draws", "moments"):
        raise InputError(f"keep must be 'draws' or 'moments', not {keep!r}")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed must be a whole number, 0 or more; got {seed!r}")
    return {"dtype": dtype or "float32", "keep": keep, "seed": int(seed)}


def _tuned(sampler: Any, curvature: Curvature, batch_size: int | str, scheme: str) -> Dynamics:
    if hasattr(sampler, "kernel"):
        return sampler
    if not hasattr(sampler, "tune"):
        raise InputError(f"{sampler!r} is neither a sampler (it has no tune) nor a Dynamics")
    if batch_size != "auto":
        if isinstance(batch_size, str):
            raise InputError(f"batch_size must be a whole number or 'auto', not {batch_size!r}")
        return sampler.tune(curvature, batch_size=batch_size, scheme=scheme)
    size = automatic_batch(curvature.n_data)
    while True:
        dynamics = sampler.tune(curvature, batch_size=size, scheme=scheme)
        if size == 1 or dynamics.predict(curvature).stable:
            return dynamics
        size //= 2


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
        f"{said} (batch_size={dynamics.batch_size}): the chain would diverge. Use a smaller step, step_size='auto' or "
        "another batch_size"
    )


def _thinning(thin: int | str, dynamics: Dynamics, prediction: Prediction, total: int, max_steps: int) -> int:
    if dynamics.window > 1:
        if thin != "auto":
            raise InputError("thin cannot be set where draws are window means: window and gap decide it")
        return dynamics.window + dynamics.gap
    if thin != "auto":
        if isinstance(thin, bool) or not isinstance(thin, int | np.integer) or thin < 1:
            raise InputError(f"thin must be a positive whole number or 'auto'; got {thin!r}")
        return int(thin)
    wanted = max(1, math.ceil(2.0 * prediction.relaxation_time))
    if wanted > STATES_PER_DRAW:
        wanted = STATES_PER_DRAW * math.ceil(wanted / STATES_PER_DRAW)
    allowed = max(1, max_steps // total)
    if wanted <= allowed:
        return wanted
    correlation = math.exp(-allowed / prediction.relaxation_time)
    size = total * (1.0 - correlation) / (1.0 + correlation)
    warnings.warn(
        f"thinning is cut from {wanted} to {allowed} steps to stay within max_steps={max_steps:.0e}: the slowest direction "
        f"relaxes in {prediction.relaxation_time:.3g} steps, so {total} draws are worth about {size:.0f} there. Raise "
        "max_steps, ask for fewer draws, or use a preconditioner that mixes faster (ConstantSGD('full'))",
        BudgetWarning,
        stacklevel=3,
    )
    return allowed


def _planned_warmup(warmup: int | str, prediction: Prediction, chains: int, max_steps: int) -> int:
    if warmup != "auto":
        if isinstance(warmup, bool) or not isinstance(warmup, int | np.integer) or warmup < 0:
            raise InputError(f"warmup must be a whole number, 0 or more, or 'auto'; got {warmup!r}")
        return int(warmup)
    wanted = math.ceil(WARMUP_RELAXATION_TIMES * prediction.relaxation_time) + 10
    return min(wanted, max(1, max_steps // (2 * chains)))


def _starts(model: Model, curvature: Curvature, prediction: Prediction, init: Any, chains: int, seed: int) -> Array:
    """Displacements from the mode where the chains start."""
    if init is not None:
        flat = init if isinstance(init, np.ndarray) and init.shape == (model.dim,) else model.layout.flatten(init)
        if not np.all(np.isfinite(flat)):
            raise InputError("init holds a value that is not finite")
        return np.tile(flat - curvature.mode, (chains, 1))
    process = prediction.process
    assert process is not None
    normals = np.stack(
        [
            np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(chain, 7)))).standard_normal(model.dim)
            for chain in range(chains)
        ]
    )
    root = matrix_root(process.modes.to_theta(process.stationary))
    return normals * root if root.ndim < 2 else normals @ root.T


def _collect(
    run: Run, dynamics: Dynamics, thin: int, draws: int, chains: int, keep: str, report: Callable[[int], None]
) -> tuple[Draws | None, Moments, bool]:
    dimension = run.problem.centre.shape[0]
    window, gap = dynamics.window, dynamics.gap
    unit = math.gcd(window, gap) if window > 1 else thin
    finest = unit if window > 1 else max(1, thin // STATES_PER_DRAW)
    longest = block_length(dynamics.batch_size, dimension)
    stride = divisor_within(unit, min(finest, longest))
    if 4 * stride < finest:
        stride = divisor_within(unit, longest)  # an awkward thinning (a prime, say) has no use for states in between
    store = Draws(chains, draws, dimension) if keep == "draws" else None
    moments = Moments(chains, dimension, dimension <= FULL_LIMIT, stride if window == 1 else thin)
    deliveries = [Delivery(stride, thin, window) for _ in range(chains)]

    def receive(chain: int, kept: Kept) -> None:
        delivered = deliveries[chain].draws(kept)
        moments.add(chain, kept.positions if window == 1 else delivered)
        if store is not None:
            store.add(chain, delivered)

    complete = run.advance(draws * thin // stride, stride, receive, report)
    return store, moments, complete


@contextmanager
def _progress_bar(show: bool, steps: int) -> Iterator[Callable[[int], None]]:
    """Steps done, steps per second and time left, on a terminal; silent elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    if not show or not console.is_terminal:
        yield lambda done: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("sampling"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.completed:,.0f} steps, {task.fields[rate]} steps/s"),
        TimeRemainingColumn(),
    )
    began = time.perf_counter()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("sampling", total=steps, rate="…")

        def report(done: int) -> None:
            bar.advance(task, done)
            completed = bar.tasks[0].completed
            bar.update(task, rate=f"{completed / max(time.perf_counter() - began, 1e-9):,.0f}")

        yield report
