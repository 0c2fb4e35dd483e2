"""`ornstein compare`: samplers and baselines on one table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ornstein.errors import InputError, OrnsteinError
from ornstein.interfaces.cli import console
from ornstein.samplers import FORMS, sampler_by_name

if TYPE_CHECKING:
    from ornstein.curvature.curvature import Curvature
    from ornstein.model.model import Model
    from ornstein.posterior.posterior import Posterior

BASELINES = ("laplace", "bbvi", "nuts")
DEFAULT = ("constant-sgd-full", "constant-sgd-diagonal", "constant-sgd-scalar", "sgld", "laplace")


def compare_methods(
    model: Model,
    methods: Sequence[str] | None,
    reference: str | None,
    options: dict[str, Any],
    stochastic: dict[str, Any],
    plot: Path | None,
) -> None:
    """Run each method and print orn.compare's table; a method that cannot run is said to, and left
    out.

    `options` (draws, chains, seed) are for all methods, `stochastic` (batch size, budget) for those
    with minibatches.
    """
    from ornstein.curvature.measure import measure
    from ornstein.posterior.comparison import compare

    chosen = list(dict.fromkeys([*(methods or DEFAULT), *([reference] if reference else [])]))
    for name in chosen:
        if name not in (*FORMS, *BASELINES):
            raise InputError(
                f"unknown method {name!r}; choose from {', '.join((*FORMS, *BASELINES))}"
            )
    console.remark("mode and curvature …")
    began = time.perf_counter()
    curvature = measure(model)
    measuring = time.perf_counter() - began
    posteriors: dict[str, Posterior] = {}
    for number, name in enumerate(chosen, start=1):
        console.remark(f"{name}, {number} of {len(chosen)} …")
        began = time.perf_counter()
        try:
            posteriors[name] = _run(model, name, curvature, options, stochastic)
        except OrnsteinError as error:
            if name == reference or len(chosen) == 1:
                raise
            console.warn(f"{name} was left out: {error}")
            continue
        if not posteriors[name].settings.get("complete", True):
            raise KeyboardInterrupt(f"interrupted in {name}")
        console.remark(f"{name}: {time.perf_counter() - began:.1f} s")
    comparison = compare(posteriors, reference=reference)
    console.say(str(comparison))
    console.say(
        f"Mode and curvature were measured in {measuring:.1f} s once for all of them, which no"
        " row includes.\nMeans and sds are on the scale of the table; KL (in nats) does not depend"
        " on it. A KL near its MC floor is explained by Monte Carlo error alone; a worst sd ratio"
        " of 0.5 means an uncertainty half as large as the reference says."
    )
    if plot is not None:
        comparison.plot(plot)
        console.say(f"Written: {plot}")


def _run(
    model: Model,
    name: str,
    curvature: Curvature,
    options: dict[str, Any],
    stochastic: dict[str, Any],
) -> Posterior:
    import ornstein

    if name in FORMS:
        return ornstein.sample(
            model, sampler_by_name(name), curvature=curvature, **options, **stochastic
        )
    if name == "laplace":
        return ornstein.laplace(model, curvature=curvature, **options)
    return ornstein.bbvi(model, **options) if name == "bbvi" else ornstein.nuts(model, **options)
