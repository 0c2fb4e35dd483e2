"""Problems with a known truth, on which the verdict must be right; each is a model and a way to
sample it.

Truth is exact where the posterior is Gaussian, else a stored NUTS run (references/, with the script
that made it). Row counts and batch sizes are few, so that compiled code is shared.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from helpers import rows_drawn_outside

import ornstein as orn
from ornstein.baselines.laplace import laplace
from ornstein.rows import sources

REFERENCES = Path(__file__).parent / "references" / "nuts.npz"
Array = np.ndarray
Run = Callable[..., Any]  # (model, seed=3) -> Posterior


@dataclass(frozen=True)
class Problem:
    """`reference` names a stored NUTS run; None where the posterior is Gaussian and known."""

    name: str
    model: Callable[[], Any]
    run: Run
    reference: str | None = None


def truth(problem: Problem, model: Any) -> Any:
    """Mean and covariance of the true posterior."""
    if problem.reference is None:
        return orn.measure(model).laplace
    with np.load(REFERENCES) as stored:
        return orn.Gaussian(
            stored[f"{problem.reference}/mean"], stored[f"{problem.reference}/covariance"]
        )


def true_distance(posterior: Any, law: Any) -> float:
    """The larger of the two KL divergences between draws and posterior, as Gaussians."""
    return max(posterior.kl_to(law))


# Data
# --------------------------------------------------------------------------------------------------

ROWS, COLUMNS, BATCH = 1000, 4, 50


def _features(
    seed: int, rows: int = ROWS, columns: int = COLUMNS, condition: float = 30.0
) -> Array:
    rng = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(rng.normal(size=(columns, columns)))
    return (
        rng.normal(size=(rows, columns)) * np.sqrt(np.geomspace(1.0, condition, columns)) @ rotation
    )


def _response(features: Array, seed: int, noise: Array | float = 1.0) -> Array:
    rng = np.random.default_rng(1000 + seed)
    return features @ rng.normal(size=features.shape[1]) + noise * rng.normal(size=len(features))


@lru_cache
def regression(kind: str = "plain") -> Any:
    """Linear regression with a known noise scale: a Gaussian posterior."""
    features = _features(1)
    if kind == "collinear":
        features[:, 1] = features[:, 0] + 1e-3 * features[:, 1]
    if kind == "dead":
        features[:, 2] = 0.0
    if kind == "heavy":
        features = np.random.default_rng(5).standard_t(2.1, size=(ROWS, COLUMNS))
    if kind == "Cauchy":
        features = np.random.default_rng(7).standard_t(1.0, size=(ROWS, COLUMNS))
    if kind == "leverage":
        features = np.random.default_rng(3).normal(size=(ROWS, COLUMNS))
        features[17] = [400.0, 0.0, 0.0, 0.0]
    if kind == "white":
        features = np.random.default_rng(6).normal(size=(ROWS, COLUMNS))
    noise = np.exp(features[:, 0] - 0.5 * np.var(features[:, 0])) if kind == "misspecified" else 1.0
    return orn.glm(
        features,
        _response(features, 1, noise),
        noise_scale=1.0,
        intercept=False,
        prior_precision=1.0,
    )


@lru_cache
def unknown_noise() -> Any:
    """Linear regression whose noise scale is inferred: almost Gaussian."""
    features = _features(2)
    return orn.glm(features, _response(features, 2), prior_precision=1.0)


@lru_cache
def logistic(
    rows: int = ROWS, columns: int = COLUMNS, scale: float = 1.0, kind: str = "plain"
) -> Any:
    rng = np.random.default_rng(rows + columns)
    features = (
        rng.standard_t(2.1, (rows, columns))
        if kind == "heavy"
        else rng.normal(size=(rows, columns))
    )
    coefficients = scale * rng.normal(size=columns) / np.sqrt(columns)
    chance = 1.0 / (1.0 + np.exp(-features @ coefficients))
    return orn.glm(
        features, (rng.random(rows) < chance).astype(int), family="bernoulli", prior_precision=1.0
    )


@lru_cache
def poisson(rows: int = ROWS) -> Any:
    rng = np.random.default_rng(rows)
    features = rng.normal(size=(rows, COLUMNS))
    rate = np.exp(0.2 + features @ (rng.normal(size=COLUMNS) / np.sqrt(COLUMNS)))
    return orn.glm(features, rng.poisson(rate), family="poisson", prior_precision=1.0)


# Ways to sample
# --------------------------------------------------------------------------------------------------


def sampled(sampler: Any, **options: Any) -> Run:
    """By a sampler that tunes itself."""

    def run(model: Any, seed: int = 3) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # several of these are asked for against advice
            return orn.sample(
                model,
                sampler,
                **{"batch_size": BATCH, "draws": 500, "progress": False, "seed": seed, **options},
            )

    return run


def changed(
    change: Callable[[Any], Any], sampler: Any = None, batch_size: int = BATCH, **options: Any
) -> Run:
    """By dynamics that were tampered with after tuning."""

    def run(model: Any, seed: int = 3) -> Any:
        curvature = orn.measure(model)
        dynamics = change((sampler or orn.ConstantSGD("full")).tune(curvature, batch_size))
        return sampled(dynamics, curvature=curvature, **options)(model, seed)

    return run


def scaled(factor: float) -> Callable[[Any], Any]:
    return lambda dynamics: replace(dynamics, preconditioner=factor * dynamics.preconditioner)


def short(relaxation_times: float, start: float = 0.0, states: int = 40) -> Run:
    """A run of `times` relaxation times without warm-up, from the law or `start` sds away from the
    mode along the slowest direction.
    """

    def run(model: Any, seed: int = 3) -> Any:
        curvature = orn.measure(model)
        dynamics = orn.ConstantSGD("full").tune(curvature, BATCH)
        prediction = dynamics.predict(curvature)
        steps = round(prediction.relaxation_time * relaxation_times)
        thin = max(1, steps // states)
        modes = prediction.process.modes
        away = modes.basis[:, int(np.argmax(modes.radii))]
        away = start * away / np.sqrt(away @ np.linalg.solve(prediction.covariance, away))
        init = curvature.mode + away if start else None
        return sampled(
            dynamics, curvature=curvature, thin=thin, draws=steps // thin, warmup=0, init=init
        )(model, seed)

    return run


def reshuffled(model: Any, seed: int = 3) -> Any:
    """By minibatches that go through the data in a shuffled order, epoch by epoch, as theory does
    not assume.
    """

    def draw(source: Any, steps: int) -> Array:
        epochs = -(-steps * source.batch_size // source.n_data)
        orders = [source.generator.permutation(source.n_data) for _ in range(epochs)]
        return (
            np.concatenate(orders)[: steps * source.batch_size].reshape(steps, -1).astype(np.int32)
        )

    with (
        mock.patch.object(sources.IndexSource, "draw", draw),
        rows_drawn_outside(),
    ):
        return sampled(orn.ConstantSGD("full"))(model, seed)


def approximated(model: Any, seed: int = 3) -> Any:
    """By Laplace's approximation, where there is no law to be predicted."""
    return laplace(model, seed=seed)


FULL = orn.ConstantSGD("full")
PROBLEMS = [
    # Gaussian posteriors: the truth is exact
    Problem("regression, full", regression, sampled(FULL)),
    Problem("regression, scalar", regression, sampled(orn.ConstantSGD("scalar"))),
    Problem("regression, diagonal", regression, sampled(orn.ConstantSGD("diagonal"))),
    Problem("regression, sqrt", regression, sampled(orn.ConstantSGD("sqrt"))),
    Problem(
        "white features, scalar", lambda: regression("white"), sampled(orn.ConstantSGD("scalar"))
    ),
    Problem(
        "white features, diagonal",
        lambda: regression("white"),
        sampled(orn.ConstantSGD("diagonal")),
    ),
    Problem("momentum", regression, sampled(orn.ConstantSGD("full", damping=0.3))),
    Problem("without replacement", regression, sampled(FULL, scheme="without-replacement")),
    Problem("large batch, exact tuning", regression, sampled(FULL, batch_size=500)),
    Problem(
        "large batch, the paper's tuning",
        regression,
        sampled(orn.ConstantSGD("full", tuning="continuous"), batch_size=500),
    ),
    Problem("three times the step", regression, changed(scaled(3.0))),
    Problem("1.3 times the step", regression, changed(scaled(1.3))),
    Problem("a fifth of the step", regression, changed(scaled(0.2))),
    Problem(
        "near the stability bound",
        regression,
        changed(lambda d: scaled(0.95 * d.predict(orn.measure(regression())).step_bound)(d)),
    ),
    Problem(
        "wrong scheme",
        regression,
        changed(lambda dynamics: replace(dynamics, scheme="without-replacement"), batch_size=500),
    ),
    Problem("reshuffled epochs", regression, reshuffled),
    Problem("2 relaxation times", regression, short(2.0)),
    Problem("5 relaxation times", regression, short(5.0)),
    Problem("10 relaxation times from 10 sd away", regression, short(10.0, start=10.0)),
    Problem("30 relaxation times from 10 sd away", regression, short(30.0, start=10.0)),
    Problem("400 relaxation times", regression, short(400.0, states=400)),
    Problem("collinear features", lambda: regression("collinear"), sampled(FULL)),
    Problem(
        "collinear features, scalar",
        lambda: regression("collinear"),
        sampled(orn.ConstantSGD("scalar"), max_steps=400_000),
    ),
    Problem("dead feature", lambda: regression("dead"), sampled(FULL)),
    Problem("heavy-tailed features", lambda: regression("heavy"), sampled(FULL)),
    Problem("Cauchy features", lambda: regression("Cauchy"), sampled(FULL)),
    Problem("one row of high leverage", lambda: regression("leverage"), sampled(FULL)),
    Problem("misspecified, full", lambda: regression("misspecified"), sampled(FULL)),
    Problem(
        "misspecified, plain IASG",
        lambda: regression("misspecified"),
        sampled(orn.IASG(rescale=False), draws=200),
    ),
    Problem(
        "misspecified, IASG", lambda: regression("misspecified"), sampled(orn.IASG(), draws=200)
    ),
    Problem("SGLD", regression, sampled(orn.SGLD())),
    Problem("SGLD, exact", regression, sampled(orn.SGLD(exact=True))),
    Problem(
        "SGLD, ten times the step",
        regression,
        changed(lambda d: replace(scaled(10.0)(d), injected=10.0 * d.injected), orn.SGLD()),
    ),
    Problem("SGFS, full", regression, sampled(orn.SGFS("full"))),
    Problem("SGFS, scalar", regression, sampled(orn.SGFS("scalar"))),
    Problem("SGHMC", regression, sampled(orn.SGHMC())),
    # Not Gaussian: compared with NUTS
    Problem("unknown noise scale", unknown_noise, sampled(FULL), "unknown noise"),
    Problem("logistic, full", logistic, sampled(FULL), "logistic"),
    Problem("logistic, scalar", logistic, sampled(orn.ConstantSGD("scalar")), "logistic"),
    Problem("logistic, a fifth of the step", logistic, changed(scaled(0.2)), "logistic"),
    Problem(
        "logistic, heavy-tailed features",
        lambda: logistic(kind="heavy"),
        sampled(FULL),
        "logistic heavy",
    ),
    Problem(
        "logistic, many for its rows",
        lambda: logistic(300, 12, 2.0),
        sampled(FULL, batch_size=20),
        "logistic wide",
    ),
    Problem("logistic, 60 rows", lambda: logistic(60), sampled(FULL, batch_size=4), "logistic 60"),
    Problem(
        "logistic, 24 rows",
        lambda: logistic(24, scale=3.0),
        sampled(FULL, batch_size=2),
        "logistic 24",
    ),
    Problem(
        "logistic, 12 rows",
        lambda: logistic(12, scale=3.0),
        sampled(FULL, batch_size=2),
        "logistic 12",
    ),
    Problem(
        "logistic, 12 rows, Laplace", lambda: logistic(12, scale=3.0), approximated, "logistic 12"
    ),
    Problem("logistic, Laplace", logistic, approximated, "logistic"),
    Problem("Poisson, full", poisson, sampled(FULL), "Poisson"),
    Problem("Poisson, scalar", poisson, sampled(orn.ConstantSGD("scalar")), "Poisson"),
    Problem("Poisson, SGLD", poisson, sampled(orn.SGLD()), "Poisson"),
    Problem("Poisson, 40 rows", lambda: poisson(40), sampled(FULL, batch_size=4), "Poisson 40"),
]

REFERENCE_MODELS = {
    "unknown noise": unknown_noise,
    "logistic": logistic,
    "logistic heavy": lambda: logistic(kind="heavy"),
    "logistic wide": lambda: logistic(300, 12, 2.0),
    "logistic 60": lambda: logistic(60),
    "logistic 24": lambda: logistic(24, scale=3.0),
    "logistic 12": lambda: logistic(12, scale=3.0),
    "Poisson": poisson,
    "Poisson 40": lambda: poisson(40),
}
