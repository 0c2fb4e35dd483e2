"""The doors to posteriors: each chooses between this process, a Dask cluster and variational EM."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ornstein.curvature.curvature import Curvature
from ornstein.dynamics.dynamics import Dynamics, Sampler
from ornstein.entrances.models import regress
from ornstein.errors import InputError
from ornstein.hyper import resume as climbs
from ornstein.hyper.saved import KIND
from ornstein.model.mixed.priors import MixedPriors
from ornstein.model.model import Model
from ornstein.model.network import require_no_network, warn_of_network
from ornstein.model.required import require_model
from ornstein.posterior.posterior import Posterior
from ornstein.samplers import sampler_by_name
from ornstein.sampling.request import SampleRequest
from ornstein.sampling.resume import newest, resumed_here
from ornstein.sampling.run import run_here
from ornstein.types import PyTree
from ornstein.ways import require_way, way_by_name
from ornstein.ways.automatic import chooses, resumed, sample_automatically, taken
from ornstein.ways.saved import KIND as WAYS
from ornstein.ways.saved import Limits

if TYPE_CHECKING:
    from distributed import Client


def fit(
    formula: str,
    data: Any,
    family: Any = "auto",
    link: str | None = None,
    priors: Mapping[str, Any] | MixedPriors | str | None = None,
    missing: str = "drop",
    weights: Any = None,
    zero: str | None = None,
    scale: str | None = None,
    *,
    sampler: Any = None,
    progress: bool = True,
    **options: Any,
) -> Posterior:
    """The posterior of a regression from a table: `regress` with its arguments, then `sample` with
    its `options`, by name.

    A formula with group terms, such as "y ~ x + (1 + x | g)", makes it a mixed model: see
    `regress`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> table = {"dose": rng.normal(size=400), "ward": rng.choice(["a", "b"], 400)}
    >>> table["days"] = 3.0 + 2.0 * table["dose"] + rng.normal(size=400)
    >>> post = fit("days ~ dose + ward", table, draws=500, progress=False)
    >>> post.predict({"dose": [0.0, 1.0], "ward": ["a", "b"]}).mean.round()
    array([3., 5.])
    """
    settings = (family, link, priors, missing, weights, zero, scale)
    model = regress(formula, data, *settings, progress=progress)
    return sample(model, sampler, progress=progress, **options)


def sample(
    model: Model,
    sampler: Sampler | Dynamics | str | None = None,
    *,
    batch_size: int | str = "auto",
    scheme: str = "replacement",
    draws: int = 1000,
    chains: int = 4,
    thin: int | str = "auto",
    warmup: int | str = "auto",
    max_steps: int = 20_000_000,
    curvature: Curvature | None = None,
    init: PyTree = None,
    seed: int = 0,
    dtype: str | None = None,
    keep: str = "draws",
    progress: bool = True,
    checkpoint: str | Path | None = None,
    every: str | float = "60s",
    client: Client | None = None,
    first_chain: int = 0,
    extrapolate: bool = False,
    budget: float | None = None,
    deadline: str | float | None = None,
    remedy: bool = True,
) -> Posterior:
    """Draw from the posterior.

    Without a sampler the library chooses the cheapest way that should end trusted (see `orn.plan`),
    runs it, judges it, and continues with what the verdict calls for: at most four ways, listed in
    `post.history`. With a sampler it runs that one, with every number that is not given chosen by
    theory, and does not judge. A network as a whole (its hidden units can be exchanged, and it has
    more parameters than a tenth of the rows) is refused without a sampler.

    Args:
        model: what is inferred.
        sampler: None to let the library choose; the name of a way or sampler ("laplace", "nuts",
            "sgld-cv", …); a sampler (a rule that is tuned here) or a Dynamics (taken as it is).
            Data on a cluster are left to constant SGD, and so are more than 2000 parameters of
            anything but a regression with a normal prior.
        batch_size: S; "auto" is near √N, halved until the step is stable.
        scheme: how minibatches are drawn: "replacement", "without-replacement", "slices",
            "leverage" or "stratified". Slices are faster on data beyond the processor's caches, and
            hold two more copies of them. Leverage draws rows that say more about the parameters
            more often: for columns that only a few rows inform. Stratified minibatches of a mixed
            model have fixed numbers of groups of each size.
        draws: kept draws per chain.
        chains: how many chains run.
        thin: steps between draws; "auto" is two relaxation times, cut with a BudgetWarning where
            `max_steps` does not allow it.
        warmup: steps thrown away first; "auto" is ten relaxation times, longer until the
            stationarity test passes.
        max_steps: bound on the steps of all chains together, warm-up included.
        curvature: a measured Curvature; None measures.
        init: pytree or flat vector where all chains start; None starts each at a draw from the
            predicted law.
        seed: same seed, same draws.
        dtype: "float32" or "float64", for the chain; curvature and theory are always float64. None
            is float32, unless that cannot resolve the posterior of a `Model` beside its place or
            data: `settings["dtype_reason"]` then says why.
        keep: "draws"; "moments" to keep only mean and covariance; "low-rank" (or "low-rank:K") for
            a covariance of a diagonal plus rank 20 (or K) in memory O(K·D), and `draws` per chain
            from that Gaussian.
        progress: show a progress bar on a terminal.
        client: a dask.distributed.Client: chains run on its workers, and a model on Dask
            collections shard by shard (see `ornstein.cluster`). With `checkpoint`, finished parts
            are kept, and the same call continues after a lost scheduler.
        first_chain: the number of the first chain; chain k has the same random streams in every run
            with this seed.
        checkpoint: a folder to write the whole state into, `every` so often ("30s", "5m", "1h" or
            seconds); `orn.resume` goes on from there, to the same draws.
        extrapolate: run again at half the step and move the draws to the mean extrapolated from
            both (sampling/extrapolate.py).
        budget: passes over the data (row gradients / N) that everything together may take, where
            the library chooses; None is a function of the number of rows and parameters.
        deadline: "60s", "5m": stop early, with what there is then; `settings["stopped"]` says
            where, and which budget repeats it.
        remedy: whether to go on where the first way does not end trusted.

    Ctrl-C ends the run early: what has been drawn so far is returned, with `settings["complete"]`
    False. Before every chain has a draw it is a KeyboardInterrupt, and so is a second Ctrl-C.

    >>> import numpy as np
    >>> from ornstein import glm
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(500, 2))
    >>> post = sample(glm(X, X @ [1.0, 2.0] + rng.normal(size=500)), draws=500, progress=False)
    >>> post.draws.shape
    (4, 500, 4)
    """
    named = None if isinstance(sampler, str) else sampler
    limits = {"budget": budget, "deadline": deadline}
    request = SampleRequest(
        named,
        batch_size,
        scheme,
        draws,
        chains,
        thin,
        warmup,
        max_steps,
        curvature,
        init,
        seed,
        dtype,
        keep,
        progress,
        checkpoint,
        every,
        first_chain,
        extrapolate,
    )
    if isinstance(model, Model) and client is None:
        if sampler is not None:
            warn_of_network(model)
        elif not model.network_by_nuts:
            require_no_network(model)
    if isinstance(sampler, str):
        require_way(sampler)
        if (way := way_by_name(sampler)) is not None and not way.stochastic:
            _require_none(
                f"{sampler!r} runs in one piece in this process",
                {"client": client, "checkpoint": checkpoint, **limits},
            )
            return taken(way, model, request)
        request = replace(request, sampler=sampler_by_name(sampler))
    minibatched = request.sampler is not None or client is not None
    if minibatched and isinstance(model, Model) and model.undivided:
        raise InputError(f"{model.undivided}: leave sampler and client out, or give 'nuts'")
    if client is None and request.sampler is None and chooses(model, request):
        return sample_automatically(model, request, Limits(budget, deadline, remedy))
    _require_none("the library does not choose the way of this run", limits)
    if client is not None:
        return _on_cluster(client, model, request)
    return run_here(model, request)


def _require_none(reason: str, given: Mapping[str, object]) -> None:
    """Refuse what would be passed over in silence."""
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{name} has no effect here, because {reason}: leave it out")


def _on_cluster(client: Client, model: Model, request: SampleRequest) -> Posterior:
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise InputError("a cluster needs Dask: pip install 'ornstein[cluster]'") from error
    from ornstein.cluster.run import sample_on

    return sample_on(client, model, request)


def resume(
    folder: str | Path,
    model: Model,
    *,
    sampler: Sampler | Dynamics | None = None,
    curvature: Curvature | None = None,
    draws: int | None = None,
    validation: PyTree = None,
    max_blocks: int | None = None,
    every: str | float = "60s",
    progress: bool = True,
) -> Any:
    """Go on with the run whose checkpoints are in `folder`, to the answer it would have had without
    the interruption.

    Returns the Posterior of `orn.sample`, or the EMFit of `orn.em`.

    Args:
        folder: what `orn.sample(..., checkpoint=folder)` or `orn.em` was given.
        model: the same model on the same data; another one is refused.
        sampler: needed only where the sampler holds a function of yours (a schedule) or a class of
            yours; another one than the run's is refused.
        curvature: needed only where one with a `noise_response` or `hessian_product` of yours was
            given to `sample`.
        draws: more draws per chain than first asked for; None keeps the number.
        validation: of `em`: the held-out rows again, where there were any.
        max_blocks: of `em`: another bound than first asked for.
        every, progress: as for `sample`.
    """
    require_model(model)
    if not isinstance(folder, str | os.PathLike):
        raise InputError(f"folder must be the path of a folder; got {folder!r}")
    path, meta, arrays = newest(Path(folder))
    if meta.get("kind") == KIND:
        _require_none("this is a run of orn.em", {"sampler": sampler, "curvature": curvature})
        return climbs.resumed(
            path,
            every,
            meta,
            arrays,
            model,
            validation=validation,
            draws=draws,
            max_blocks=max_blocks,
            progress=progress,
        )
    _require_none(
        "this is a run of orn.sample", {"validation": validation, "max_blocks": max_blocks}
    )
    if meta.get("kind") == WAYS:
        _require_none("the library chooses the way of this run", {"sampler": sampler})
        return resumed(path, every, meta, arrays, model, curvature, draws, progress)
    return resumed_here(path, every, meta, arrays, model, sampler, curvature, draws, progress)
