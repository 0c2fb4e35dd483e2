"""`check` gives a verdict on every Posterior that the library returns, and never raises."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from verdict_problems import logistic, regression, unknown_noise

import ornstein as orn
from ornstein.verdict.finding import LEVELS
from ornstein.ways import REGISTRY

FEW = {"draws": 60, "chains": 4}


def groups():
    """A regression with an intercept for each of eight groups."""
    rng = np.random.default_rng(0)
    X, of = rng.normal(size=(240, 2)), np.repeat(np.arange(8), 30)
    y = X @ [1.0, -1.0] + rng.normal(size=8)[of] + rng.normal(size=240)
    return orn.glmm(X, y, of)


def by_numpyro():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def regression(x, y):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(slope * x, scale), obs=y)

    x = np.random.default_rng(0).normal(size=600)
    y = x + np.random.default_rng(1).normal(size=600)
    return orn.from_numpyro(regression, jnp.asarray(x), y=jnp.asarray(y))


def wide():
    """More parameters than a Hessian is held for."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2100))
    return orn.glm(X, X[:, 0] + rng.normal(size=300), prior_precision=1.0, noise_scale=1.0)


def made(way, model, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return way(model, **options)


def judged(post, **options):
    """The verdict, of a fit with the verdict of the plan as well as without."""
    found = replace(post, verdict=None).check(**options)
    assert found.level in LEVELS and len(str(found).splitlines()) > 1
    assert not [f for f in found if f.sentence.startswith("could not be checked")], found
    return found


SAMPLED = {
    "plan": {},
    **{way.name: {"sampler": way.name} for way in REGISTRY},
    "sgld": {"sampler": orn.SGLD()},
    "sghmc": {"sampler": orn.SGHMC()},
    "iasg": {"sampler": orn.IASG()},
    "moments": {"sampler": orn.ConstantSGD("full"), "keep": "moments"},
    "low rank": {"sampler": orn.ConstantSGD("full"), "keep": "low-rank"},
    "sandwich": {"sampler": orn.ConstantSGD("full", target="sandwich")},
    "float32": {"sampler": orn.ConstantSGD("full"), "dtype": "float32"},
    "one chain": {"sampler": orn.ConstantSGD("full"), "chains": 1},
}
QUICK = {"plan", "laplace", "constant-sgd-full", "moments", "low rank", "one chain"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in SAMPLED],
)
def test_of_every_way(name):
    try:
        post = made(orn.sample, regression(), progress=False, **{**FEW, **SAMPLED[name]})
    except orn.OrnsteinError as error:
        pytest.fail(f"{name} made no draws: {error}")
    judged(post)
    judged(replace(post, model=None))
    judged(post, stein=True)


BASELINES = {
    "laplace": orn.laplace,
    "nuts": lambda model: orn.nuts(model, draws=60, warmup=60),
    "bbvi": orn.bbvi,
    "gaussian_vi": orn.gaussian_vi,
    "low_rank": lambda model: orn.low_rank(model, rank=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("make", [logistic, unknown_noise], ids=lambda make: make.__name__)
def test_of_every_baseline(name, make):
    judged(made(BASELINES[name], make()))


@pytest.mark.slow
@pytest.mark.parametrize("make", [groups, by_numpyro, wide], ids=lambda make: make.__name__)
def test_of_every_kind_of_model(make):
    model = make()
    sampler = orn.ConstantSGD("diagonal") if model.dim > 2000 else None
    judged(made(orn.sample, model, sampler=sampler, progress=False, **FEW))


def test_after_saving_and_resuming(tmp_path):
    model = regression()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asked = {"progress": False, "checkpoint": tmp_path / "run", **FEW}
        post = orn.sample(model, orn.ConstantSGD("full"), **asked)
        longer = orn.resume(tmp_path / "run", model, draws=80, progress=False)
    loaded = orn.load(post.save(tmp_path / "fit.orn"))
    assert judged(loaded).level != "trusted"
    judged(loaded, model=model)
    judged(longer)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda draws: draws[:, :1],
        lambda draws: draws[:1, :3],
        lambda draws: draws[:, :4] * np.nan,
        lambda draws: np.where(np.arange(60)[:, None] == 7, -np.inf, draws),
        lambda draws: np.zeros_like(draws),
        lambda draws: draws * [1.0, 1.0, 1.0, 0.0],
        lambda draws: draws * 1e160,
        lambda draws: draws * 1e-160,
        lambda draws: draws + 1e12,
        lambda draws: np.repeat(draws[:, :1], 60, axis=1),
        lambda draws: draws[..., :1] * np.ones(4),
    ],
    ids=[
        "one each",
        "three in all",
        "NaN",
        "one infinite",
        "zeros",
        "one constant",
        "huge",
        "tiny",
        "far off",
        "chains that stand still",
        "all parameters the same",
    ],
)
def test_of_degenerate_draws(spoil):
    model = regression()
    post = made(orn.laplace, model, draws=60)
    found = replace(post, draws=spoil(post.draws), moments=None)
    assert judged_at_all(found) != "trusted"
    assert judged_at_all(replace(found, model=None)) != "trusted"


def judged_at_all(post):
    with np.errstate(all="ignore"):
        return post.check().level
