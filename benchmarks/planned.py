"""`python -m benchmarks.planned`: what the default call costs beside what its plan says and beside
single ways.

    python -m benchmarks.planned seconds   # displayed seconds of ways beside measured ones
    python -m benchmarks.planned default   # the default call beside single ways, in fresh processes
    python -m benchmarks.planned metric    # a step with the full metric beside a scalar one

Seconds are those of processors, so that neighbours on the machine matter little.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.problems import Problem
from benchmarks.steps import REST

PARAMETERS = (300, 1000, 2000)
# Ways beside which the default call is measured; each must end trusted to count.
SINGLE = (
    "laplace",
    "gaussian-vi",
    "laplace-weighted",
    "constant-sgd-full",
    "sgld-cv",
    "hmc",
    "nuts-metric",
)
LIMIT = 300.0  # seconds of a single way


# Models
# --------------------------------------------------------------------------------------------------


def columns(rows: int, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns and a predictor."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, size))
    return x, x @ rng.normal(size=size) / np.sqrt(size)


def linear(rows: int, size: int, **options: Any) -> Any:
    import ornstein as orn

    x, predictor = columns(rows, size, 0)
    y = predictor + np.random.default_rng(1).normal(size=rows)
    return orn.glm(x, y, prior_precision=1.0, **options)


def logistic(rows: int, size: int, strength: float = 1.0) -> Any:
    import ornstein as orn

    x, predictor = columns(rows, size, 2)
    chance = 1.0 / (1.0 + np.exp(-strength * predictor))
    y = np.random.default_rng(3).random(rows) < chance
    return orn.glm(x, y, "bernoulli", prior_precision=1.0)


def counts(rows: int, size: int, level: float) -> Any:
    import ornstein as orn

    x, predictor = columns(rows, size, 4)
    y = np.random.default_rng(5).poisson(np.exp(level + 0.5 * predictor))
    return orn.glm(x, y, "poisson", prior_precision=1.0)


def classes(rows: int, size: int) -> Any:
    import ornstein as orn

    x, _ = columns(rows, size, 6)
    rng = np.random.default_rng(7)
    y = np.argmax(x @ rng.normal(size=(size, 3)) + rng.gumbel(size=(rows, 3)), axis=1)
    return orn.glm(x, y, "categorical", prior_precision=1.0)


def robust(rows: int, size: int) -> Any:
    import ornstein as orn

    x, predictor = columns(rows, size, 8)
    y = predictor + np.random.default_rng(9).standard_t(3.0, size=rows)
    return orn.glm(x, y, orn.families.StudentT(df=3), prior_precision=1.0)


def written(rows: int, size: int) -> Any:
    """Of a function of one row, with no linear predictor to be seen."""
    import jax.numpy as jnp

    import ornstein as orn

    x, predictor = columns(rows, size, 10)
    y = np.exp(predictor) + np.random.default_rng(11).normal(size=rows)

    def log_likelihood(t: Any, row: Any) -> Any:
        return -0.5 * (row["y"] - jnp.exp(row["x"] @ t)) ** 2

    return orn.Model(log_likelihood, {"x": x, "y": y}, lambda t: -0.5 * t @ t, init=np.zeros(size))


def absolute(rows: int, size: int) -> Any:
    """A kink in every row."""
    import jax.numpy as jnp

    import ornstein as orn

    x, predictor = columns(rows, size, 12)
    y = predictor + np.random.default_rng(13).laplace(size=rows)

    def log_likelihood(t: Any, row: Any) -> Any:
        return -jnp.abs(row["y"] - row["x"] @ t)

    return orn.Model(log_likelihood, {"x": x, "y": y}, lambda t: -0.5 * t @ t, init=np.zeros(size))


MODELS: dict[str, Callable[[], Any]] = {
    "linear, 600 x 3": lambda: linear(600, 3, noise_scale=1.0),
    "linear, noise inferred, 5,000 x 12": lambda: linear(5000, 12),
    "logistic, 300 x 4": lambda: logistic(300, 4, 3.0),
    "logistic, 50,000 x 20": lambda: logistic(50_000, 20),
    "Poisson, few events, 400 x 5": lambda: counts(400, 5, -2.0),
    "Poisson, 20,000 x 10": lambda: counts(20_000, 10, 0.5),
    "three classes, 3,000 x 6": lambda: classes(3000, 6),
    "Student's t, 2,000 x 8": lambda: robust(2000, 8),
    "a function, 1,000 x 3": lambda: written(1000, 3),
    "a kink, 500 x 3": lambda: absolute(500, 3),
}


# Displayed seconds
# --------------------------------------------------------------------------------------------------


def seconds(ways: tuple[str, ...]) -> Iterator[str]:
    """Displayed, measured and their ratio, for the chosen way and these, where they are short."""
    from ornstein.sampling.request import SampleRequest
    from ornstein.ways import REGISTRY
    from ornstein.ways.costs import machine_factor
    from ornstein.ways.plan import planned
    from ornstein.ways.situation import survey

    machine_factor()
    yield "| model | way | displayed | measured | ratio |"
    yield "|---|---|---|---|---|"
    for name, make in MODELS.items():
        model, began = make(), time.process_time()
        situation = survey(model)
        yield f"| {name} | (planning) | | {time.process_time() - began:.2f} s | |"
        plan = planned(situation, SampleRequest())
        for way in REGISTRY:
            row = plan[way.name]
            displayed = row.seconds * machine_factor()
            wanted = way.name == plan.chosen or way.name in ways
            if not (row.possible and wanted and displayed <= 40.0):
                continue
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    way.run(situation, SampleRequest(progress=False))
                except Exception as error:
                    yield f"| {name} | {way.name} | {displayed:.2f} s | {type(error).__name__} | |"
                    continue
            took = time.process_time() - began
            mark = " (chosen)" if way.name == plan.chosen else ""
            yield (
                f"| {name} | {way.name}{mark} | {displayed:.2f} s | {took:.2f} s |"
                f" {displayed / took:.2f} |"
            )


# The default call beside single ways
# --------------------------------------------------------------------------------------------------


def problem_named(name: str) -> Problem:
    """The data, and the posterior they should lead to; that at the mode where none is stored."""
    if name in ("wine", "protein", "skin", "covertype"):
        from benchmarks.reference import problem_of

        return problem_of(name)
    rows, size = {"50,000 x 20": (50_000, 20), "1,000,000 x 100": (1_000_000, 100)}[name]
    x, predictor = columns(rows, size, 2)
    y = np.random.default_rng(3).random(rows) < 1.0 / (1.0 + np.exp(-predictor))
    mean, covariance = np.full(size, np.nan), np.eye(size)
    return Problem(name, "bernoulli", x.astype(np.float32), y.astype(np.float32), mean, covariance)


TABLES = ("wine", "protein", "skin", "50,000 x 20", "1,000,000 x 100")


def worker(file: str, way: str) -> None:
    """What a fresh process does: a fit and its verdict, and a line of JSON."""
    import ornstein as orn

    problem = Problem.load(Path(file))
    model = problem.model()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        post = orn.sample(model, None if way == "default" else way, progress=False)
        before = _own()
        level = post.check().level
    found = {
        "level": level,
        "seconds": before,
        "with check": _own(),
        "kl": problem.distance(post.mean, post.covariance),
        "history": [str(one) for one in post.history],
    }
    print(json.dumps(found))


def _own() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def default(names: tuple[str, ...], ways: tuple[str, ...]) -> Iterator[str]:
    """Seconds of the default call, verdict included, beside those of single ways with theirs."""
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "data.npz"
            problem_named(name).save(file)
            for way in ("default", *ways):
                yield f"{name}, {way}: {_alone(file, way)}"


def _alone(file: Path, way: str) -> str:
    command = [sys.executable, "-m", "benchmarks.planned", "worker", str(file), way]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True)
    except subprocess.TimeoutExpired:
        return f"more than {LIMIT:.0f} s"
    except subprocess.CalledProcessError as error:
        return str(error.stderr).strip().splitlines()[-1]
    found = json.loads(done.stdout.splitlines()[-1])
    return (
        f"{found['level']}, KL {found['kl']:.2g}, {found['seconds']:.1f} s, with its verdict"
        f" {found['with check']:.1f} s {'; '.join(found['history'])}"
    )


# The full metric
# --------------------------------------------------------------------------------------------------


def metric(rows: int = 4000, batch_size: int = 64, rounds: int = 25) -> Iterator[str]:
    """Microseconds a step in rotating order, the best of some rounds."""
    import ornstein as orn

    yield "| parameters | scalar, µs | full, µs | ratio |"
    yield "|---|---|---|---|"
    for size in PARAMETERS:
        x, predictor = columns(rows, size, 2)
        y = np.random.default_rng(3).random(rows) < 1.0 / (1.0 + np.exp(-predictor))
        model = orn.glm(x, y, "bernoulli", prior_precision=1.0, intercept=False)
        # speed does not depend on the values
        curvature = orn.Curvature(np.zeros(size), np.ones(size), np.ones(size), rows)
        root = np.eye(size) + 0.1 * np.tri(size) / np.sqrt(size)
        forms = {"scalar": np.asarray(1e-4), "full": 1e-4 * root @ root.T}
        best, runs = dict.fromkeys(forms, np.inf), {}
        for form, step in forms.items():
            dynamics = orn.Dynamics(step, batch_size, "replacement")
            runs[form] = _stepper(model, curvature, dynamics)
        for _ in range(rounds):
            for form, stepper in runs.items():
                time.sleep(REST)
                best[form] = min(best[form], stepper())
        ratio = best["full"] / best["scalar"]
        yield f"| {size} | {best['scalar']:.1f} | {best['full']:.1f} | {ratio:.2f} |"


def _stepper(model: Any, curvature: Any, dynamics: Any, steps: int = 1000) -> Callable[[], float]:
    """Microseconds of one of some steps, as a run takes them."""
    from ornstein.compute.precision import width
    from ornstein.engine.run import Run
    from ornstein.sampling.framing import in_frame
    from ornstein.sampling.warmup import Tuned

    scalar = replace(dynamics, preconditioner=np.asarray(1e-4))
    with width("float32"):
        law = Tuned(dynamics, curvature, scalar.predict(curvature))
        stepped = in_frame(model, law, "float32", False)
        loss, frame = model.loss, None
        if stepped is None:
            problem = model.problem("float32", curvature.mode, dynamics.batch_size)
        else:
            loss, problem, dynamics = stepped.loss, stepped.problem, stepped.dynamics
            frame = stepped.frame
    starts = np.zeros((1, model.dim))
    run = Run(loss, problem, dynamics, model.n_data, starts, seed=0, frame=frame)
    stride = max(1, min(100, run.block_steps))

    def stepper() -> float:
        began = time.perf_counter()
        run.advance(steps // stride, stride, lambda chain, kept: None)
        return (time.perf_counter() - began) / (steps // stride * stride) * 1e6

    stepper()
    return stepper


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("section", choices=("seconds", "default", "metric", "worker"))
    parser.add_argument("given", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--ways", nargs="+", default=list(SINGLE))
    given = parser.parse_args()
    if given.section == "worker":
        worker(*given.given)
        return
    found = {
        "seconds": lambda: seconds(tuple(given.ways)),
        "metric": metric,
        "default": lambda: default(tuple(given.tables), tuple(given.ways)),
    }[given.section]()
    for line in found:
        print(line, flush=True)


if __name__ == "__main__":
    main()
