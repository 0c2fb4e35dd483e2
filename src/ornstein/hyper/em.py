"""`orn.em`: hyperparameters learnt while sampling (variational EM; Mandt, Hoffman and Blei 2017,
sections 4.2 and 7.3, corrected).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ornstein.checks import FULL_LIMIT
from ornstein.compute.one_thread import one_thread
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.measure import diagonal_curvature
from ornstein.dynamics.dynamics import Dynamics, Sampler
from ornstein.engine.run import Pause
from ornstein.errors import ApproximationWarning, InputError
from ornstein.hyper.climb import Climb
from ornstein.hyper.coordinates import Coordinates
from ornstein.hyper.evidence import laplace_evidence
from ornstein.hyper.fit import EMFit
from ornstein.hyper.full_batch import FullBatch
from ornstein.hyper.grid import Grid, map_grid, map_spread
from ornstein.hyper.held_out import HeldOut
from ornstein.hyper.mean_field import MeanField, mean_field
from ornstein.hyper.request import Request
from ornstein.hyper.saved import saving
from ornstein.hyper.tuning import DiagonalTuning, FullTuning, PaperTuning, Tuning, automatic_sampler
from ornstein.model.model import Model
from ornstein.model.required import require_model
from ornstein.posterior.posterior import Posterior
from ornstein.rows.scheme import LEVERAGE, STRATIFIED, checked_batch_size, checked_scheme
from ornstein.sampling.progress import terminal
from ornstein.sampling.request import SampleRequest, require_folder
from ornstein.sampling.run import run_here
from ornstein.types import Array, PyTree
from ornstein.ways.automatic import sample_automatically
from ornstein.ways.saved import Limits


def em(
    model: Model,
    hyperparameters: Sequence[str] | Mapping[str, ArrayLike | None] = ("prior_precision",),
    sampler: Sampler | str = "auto",
    recipe: str = "corrected",
    batch_size: int | str = "auto",
    seed: int = 0,
    *,
    real: Sequence[str] = (),
    scheme: str = "replacement",
    chains: int = 4,
    draws: int | None = None,
    tolerance: float = 0.01,
    max_blocks: int = 200,
    validation: PyTree = None,
    baselines: Sequence[str] = (),
    grid: ArrayLike | None = None,
    bbvi_steps: int = 20_000,
    progress: bool = True,
    checkpoint: str | Path | None = None,
    every: str | float = "60s",
) -> EMFit:
    """Learn hyperparameters by their evidence while θ is sampled: θ at a constant rate, λ at a
    decreasing one.

    By Fisher's identity the gradient of log p(y|λ) is the posterior mean of ∂ log p(y,θ|λ), which a
    chain delivers; the degenerate maximum of the joint density (λ = ∞, θ = 0) is no fixed point of
    it, because θ is spread and not a point. What is found is as good as the chain's law:

    - `recipe="corrected"` up to 2000 parameters: the exactly tuned full chain, whose law is the
      local posterior, so that λ is the maximum of the evidence. Beyond, or with
      `sampler="diagonal"`: the diagonal chain with injected prior noise, whose λ is the optimum of
      the *diagonal*-Laplace approximation (above the evidence's where features are correlated; 3
      times in one example).
    - `recipe="paper"`: one rate ε* = 2(S/N) P/tr C, as printed. It overshoots: coordinates without
      gradient noise are pinned (4 times on MNIST). For comparison only.

    The evidence's best λ is not the validation's, most of all at small N; give `validation` to see
    both.

    Args:
        model: with the hyperparameters at their starting values.
        hyperparameters: names of those to learn. A mapping says how entries share one value:
            `{"prior_precision": labels}` with one label per column (automatic relevance
            determination: `range(columns)`); entries that are 0 stay 0.
        sampler: "auto", which leaves the final posterior to the choice of `orn.sample`; "full",
            "diagonal", or a sampler whose law is the posterior, such as `SGLD(exact=True)`.
        recipe: "corrected" or "paper".
        batch_size: S; a size that the chain cannot bear is capped, and said so.
        seed: same seed, same answer.
        real: names that may be negative; all others move on the log scale.
        scheme: how minibatches are drawn.
        chains: how many run.
        draws: of the final posterior, per chain; None is 1000, or 100 beyond 2000 parameters.
        tolerance: Monte-Carlo error of log λ (of λ itself for `real` ones) at which it ends.
        max_blocks: bound on the blocks (of 25 draws per chain) before a BudgetWarning.
        validation: held-out rows: (X, y) for a regression, else a Model or data like the model's.
        baselines: "grid" for MAP fits along λ (needs validation), "bbvi" for the mean-field ELBO in
            (q, λ).
        grid: values of λ for it; None is 13 over two decades either side of what was found.
        bbvi_steps: of the ELBO.
        progress: show what is being done on a terminal.
        checkpoint: a folder to write the whole state into, `every` so often ("30s", "5m", "1h" or
            seconds) and between two blocks; `orn.resume(folder, model, validation=...)` goes on to
            the same answer. What follows the climb (posterior, baselines) is not written down but
            done again.

    >>> import numpy as np
    >>> from ornstein.model.regression import glm
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 20))
    >>> y = X @ rng.normal(size=20) * 0.5 + rng.normal(size=400)  # coefficients of precision 4
    >>> fit = em(
    ...     glm(X, y, prior_precision=1.0, noise_scale=1.0, intercept=False),
    ...     draws=100,
    ...     progress=False,
    ... )
    >>> 1.5 < fit.hyperparameters["prior_precision"] < 9.0
    True
    """
    require_model(model)
    require_folder(checkpoint)
    request = Request(
        hyperparameters,
        sampler,
        recipe,
        batch_size,
        seed,
        real,
        scheme,
        chains,
        draws,
        tolerance,
        max_blocks,
        baselines,
        grid,
        bbvi_steps,
    )
    climb, held_out = begun(model, request, validation)
    pause = None if checkpoint is None else saving(Path(checkpoint), every, request, climb)
    return finished(climb, held_out, request, progress, pause)


@one_thread()
def begun(model: Model, request: Request, validation: PyTree) -> tuple[Climb, HeldOut | None]:
    """Everything ready for the first block."""
    if "grid" in request.baselines and validation is None:
        raise InputError(
            "the grid of MAP fits is judged by validation data: give validation=(X, y)"
        )
    coordinates = Coordinates.of(model, request.hyperparameters, request.real)
    held_out = None if validation is None else HeldOut(model, validation)
    tuning = _tuning(model, request)
    return (
        Climb.begin(model, coordinates, tuning, request.seed, newton=request.recipe == "corrected"),
        held_out,
    )


@one_thread()
def finished(
    climb: Climb,
    held_out: HeldOut | None,
    request: Request,
    progress: bool,
    pause: Pause | None = None,
) -> EMFit:
    """From where the climb stands to the fit."""
    began = time.perf_counter()
    model, coordinates, tuning = climb.model, climb.coordinates, climb.tuning
    with _status(progress) as report:
        climb.to_the_top(
            request.tolerance, request.max_blocks, lambda climb: report(_progress(climb)), pause
        )
        phi = climb.ascent.estimate()
        final = coordinates.model_at(model, phi)
        seconds = time.perf_counter() - began
        report("sampling the posterior")
        curvature, dynamics = _at_the_end(climb, final)
        posterior = _posterior(final, curvature, dynamics, request)
        found, losses = _compared(climb, curvature, held_out, request, report)
    if held_out is not None:
        losses = {
            "map": held_out.loss(final, curvature.mode),
            "posterior": held_out.predictive_loss(final, posterior.draws.reshape(-1, model.dim)),
            **losses,
        }
    if "cap" in tuning.notes:
        warnings.warn(tuning.notes["cap"], ApproximationWarning, stacklevel=3)
    natural = coordinates.natural(phi)
    return EMFit(
        coordinates.by_name(natural),
        coordinates.by_name(climb.ascent.error() * np.where(coordinates.positive, natural, 1.0)),
        coordinates.groups,
        {coordinates.names[index]: where for index, where in climb.runaway.items()},
        climb.trajectory(),
        posterior,
        final,
        None if curvature.diagonal else laplace_evidence(final, curvature),
        losses,
        found,
        tuning.finds,
        tuple(tuning.notes.values()),
        {
            "blocks": len(climb.ascent.blocks),
            "settled": climb.ascent.settled(request.tolerance),
            "stages": climb.stages,
            "steps": sum(block.steps for block in climb.ascent.blocks),
            "batch_size": dynamics.batch_size,
            "seconds": seconds,
            "seconds_in_all": time.perf_counter() - began,
            "seed": request.seed,
        },
    )


def _tuning(model: Model, request: Request) -> Tuning:
    """The rule of the recipe."""
    scheme, chains, batch_size = checked_scheme(request.scheme), request.chains, request.batch_size
    if scheme in (LEVERAGE, STRATIFIED):
        raise InputError(f"em does not support scheme={scheme!r}: use 'replacement'")
    if isinstance(batch_size, str) and batch_size != "auto":
        raise InputError(f"batch_size must be a whole number or 'auto', not {batch_size!r}")
    size = (
        batch_size
        if isinstance(batch_size, str)
        else checked_batch_size(batch_size, model.n_data, scheme)
    )
    if request.recipe == "paper":
        if request.sampler != "auto":
            raise InputError("the paper's recipe has its own sampler: leave sampler='auto'")
        return PaperTuning(FullBatch(model), size, scheme, chains)
    chosen = automatic_sampler(request.sampler, model, FULL_LIMIT)
    if isinstance(chosen, str):  # "diagonal"
        return DiagonalTuning(FullBatch(model), size, scheme, chains)
    if model.dim > FULL_LIMIT:
        raise InputError(
            f"the full recipe takes at most {FULL_LIMIT} parameters; the model has {model.dim}: use"
            " sampler='diagonal'"
        )
    return FullTuning(chosen, FullBatch(model), size, scheme, chains)


def _at_the_end(climb: Climb, final: Model) -> tuple[Curvature, Dynamics]:
    """The curvature at the mode of the final model, and the chain as the recipe tunes it there."""
    tuning = climb.tuning
    if isinstance(tuning, FullTuning):
        curvature = tuning.curvature(final)
        return curvature, tuning.stable(curvature)[0]
    assert isinstance(tuning, DiagonalTuning | PaperTuning) and climb.positions is not None
    mode = tuning.full_batch.mode(final, climb.positions.mean(axis=0), np.ones(final.dim))
    curvature = diagonal_curvature(final, mode, partial(tuning.full_batch.hessian_product, final))
    return curvature, tuning.tune(curvature)


def _posterior(
    final: Model, curvature: Curvature, dynamics: Dynamics, request: Request
) -> Posterior:
    few = 1000 if final.dim <= FULL_LIMIT else 100
    draws = few if request.draws is None else request.draws
    options: dict[str, Any] = {"thin": 200, "warmup": 2000} if request.recipe == "paper" else {}
    options |= {"chains": request.chains, "seed": request.seed}
    if request.recipe == "corrected" and request.sampler == "auto" and not curvature.diagonal:
        free = SampleRequest(curvature=curvature, draws=draws, progress=False, **options)
        return sample_automatically(final, free, Limits())
    asked = SampleRequest(dynamics, curvature=curvature, draws=draws, progress=False, **options)
    return run_here(final, asked)


def _compared(
    climb: Climb,
    curvature: Curvature,
    held_out: HeldOut | None,
    request: Request,
    report: Callable[[str], None],
) -> tuple[dict[str, Grid | MeanField], dict[str, float]]:
    """The baselines asked for, and the validation loss of the MAP fit at BBVI's hyperparameters."""
    found: dict[str, Grid | MeanField] = {}
    losses: dict[str, float] = {}
    model, coordinates = climb.model, climb.coordinates
    if "grid" in request.baselines:
        assert held_out is not None
        centre = float(coordinates.natural(climb.ascent.estimate())[0])
        values = centre * np.geomspace(1e-2, 1e2, 13) if request.grid is None else request.grid
        found["grid"] = map_grid(
            model, coordinates, values, held_out, np.zeros(model.dim), curvature, report
        )
    if "bbvi" in request.baselines:
        spread = np.sqrt(1.0 / (curvature.n_data * _diagonal(curvature.hessian)))
        root = (
            spread
            if curvature.diagonal
            else map_spread(model, curvature) / np.sqrt(curvature.n_data)
        )
        options = {"steps": request.bbvi_steps, "seed": request.seed}
        options["batch_size"] = climb.stage.dynamics.batch_size if climb.stage is not None else 1
        field = mean_field(
            model, coordinates, curvature.mode, root, spread, report=report, **options
        )
        found["bbvi"] = field
        if held_out is not None:
            there = coordinates.model_at(model, field.phi)
            mode = FullBatch(model).mode(there, curvature.mode, map_spread(there, curvature))
            losses["bbvi"] = held_out.loss(there, mode)
    return found, losses


def _diagonal(matrix: Array) -> Array:
    return matrix if matrix.ndim == 1 else np.diagonal(matrix)


def _progress(climb: Climb) -> str:
    values = climb.coordinates.natural(climb.ascent.phi)
    shown = ", ".join(
        f"{name} = {value:.3g}"
        for name, value in zip(climb.coordinates.names[:3], values[:3], strict=True)
    )
    return f"block {len(climb.ascent.blocks)}: {shown}{' …' if len(values) > 3 else ''}"


@contextmanager
def _status(show: bool) -> Iterator[Callable[[str], None]]:
    """What is being done, on a terminal; silent elsewhere."""
    console = terminal() if show else None
    if console is None:
        yield lambda words: None
        return
    with console.status("em") as status:
        yield lambda words: status.update(f"em: {words}")
