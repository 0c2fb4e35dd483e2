"""Bad input, systematically: every case ends in a correct result or in one sentence from a typed
error; what is malformed beyond doubt ends in the sentence, at every entrance.

A case passes if it raises an OrnsteinError whose message is a plain sentence, or if it returns
draws that are all finite. Any other exception, above all one from inside JAX, fails, and so does a
case that does not end within a minute.
"""

from __future__ import annotations

import datetime
import decimal
import re
import signal
import warnings
from contextlib import contextmanager

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from corruptions import CORRUPTIONS, ENTRANCES, CommandFailedError, sound, sound_mixed
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import ornstein as orn
from ornstein.samplers.iasg import IASG
from ornstein.samplers.sgfs import SGFS
from ornstein.samplers.sghmc import SGHMC
from ornstein.samplers.sgld import SGLD, robbins_monro
from ornstein.samplers.sgnht import SGNHT

RNG = np.random.default_rng(0)
N = 60
X = RNG.normal(size=(N, 2))
GAUSSIAN = X @ [1.0, -0.5] + 0.5 * RNG.normal(size=N)
BINARY = (RNG.random(N) < 1.0 / (1.0 + np.exp(-X[:, 0]))).astype(int)
CLASSES = RNG.integers(0, 3, N)
COUNTS = RNG.poisson(np.exp(0.3 * X[:, 0]))
SHORT = {"draws": 8, "chains": 1, "thin": 1, "warmup": 5, "progress": False, "batch_size": 6}


FULL = orn.ConstantSGD("full")


def fit(X=X, y=GAUSSIAN, sampler=FULL, options=None, **model):
    return orn.sample(orn.glm(X, y, **model), sampler, **{**SHORT, **(options or {})})


def run(**options):
    return fit(options=options, noise_scale=1.0)


def with_sampler(make):
    return lambda: fit(sampler=make(), noise_scale=1.0)


def bernoulli(y=BINARY, **rest):
    return fit(y=y, family="bernoulli", **rest)


def categorical(y=CLASSES, **rest):
    return fit(y=y, family="categorical", **rest)


def poisson(y=COUNTS, **rest):
    return fit(y=y, family="poisson", **rest)


def changed(array, place, value, dtype=None):
    other = np.array(array, dtype=dtype)
    other[place] = value
    return other


def frame(**columns):
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], **columns})


def joined(column):
    return np.column_stack([X, column])


DESIGN = {
    "scalar": lambda: fit(X=3.0),
    "vector": lambda: fit(X=X[:, 0]),
    "three axes": lambda: fit(X=X[:, :, None]),
    "no rows": lambda: fit(X=X[:0], y=GAUSSIAN[:0]),
    "no columns": lambda: fit(X=X[:, :0]),
    "fewer rows than y": lambda: fit(X=X[:-1]),
    "ragged list": lambda: fit(X=[[1.0, 2.0], [3.0]] * 30),
    "none": lambda: fit(X=None),
    "text": lambda: fit(X="table.csv"),
    "bytes": lambda: fit(X=b"abc"),
    "mapping": lambda: fit(X={"a": X[:, 0]}),
    "set": lambda: fit(X={1.0, 2.0}),
    "generator": lambda: fit(X=(row for row in X)),
    "function": lambda: fit(X=lambda: X),
    "numbers as objects": lambda: fit(X=X.astype(object)),
    "None among objects": lambda: fit(X=changed(X, (3, 1), None, object)),
    "text among objects": lambda: fit(X=changed(X, (3, 1), "high", object)),
    "lists among objects": lambda: fit(X=np.array([[[1], 2.0]] * N, dtype=object)),
    "text array": lambda: fit(X=X.astype(str)),
    "complex": lambda: fit(X=X + 1j),
    "dates": lambda: fit(X=np.full((N, 2), np.datetime64("2020-01-01"))),
    "durations": lambda: fit(X=np.full((N, 2), np.timedelta64(3, "D"))),
    "records": lambda: fit(X=np.zeros(N, dtype=[("a", "f8"), ("b", "f8")])),
    "booleans": lambda: fit(X=X > 0),
    "small integers": lambda: fit(X=(10 * X).astype(np.int8)),
    "unsigned": lambda: fit(X=np.abs(10 * X).astype(np.uint8)),
    "large integers": lambda: fit(X=(1e15 * X).astype(np.int64)),
    "largest unsigned": lambda: fit(X=changed(np.ones((N, 2)), (0, 0), 2**64 - 1, np.uint64)),
    "half floats": lambda: fit(X=X.astype(np.float16)),
    "long floats": lambda: fit(X=X.astype(np.longdouble)),
    "other byte order": lambda: fit(X=X.astype(">f8")),
    "masked": lambda: fit(X=np.ma.masked_array(X, mask=X > 2.0)),
    "matrix": lambda: fit(X=sp.csr_matrix(X).todense()),
    "columns first": lambda: fit(X=np.asfortranarray(X)),
    "backwards": lambda: fit(X=X[::-1]),
    "read-only": lambda: fit(X=np.broadcast_to(X[:1], (N, 2)), y=GAUSSIAN),
    "JAX array": lambda: fit(X=jnp.asarray(X)),
    "list of lists": lambda: fit(X=X.tolist()),
    "NaN": lambda: fit(X=changed(X, (5, 0), np.nan)),
    "NaN in the last row": lambda: fit(X=changed(X, (-1, -1), np.nan)),
    "infinity": lambda: fit(X=changed(X, (5, 0), np.inf)),
    "minus infinity": lambda: fit(X=changed(X, (0, 0), -np.inf)),
    "infinite after rounding": lambda: fit(X=changed(X, (5, 0), 1e39)),
    "all NaN": lambda: fit(X=np.full((N, 2), np.nan)),
    "sparse": lambda: fit(X=sp.coo_matrix(X)),
    "sparse with NaN": lambda: fit(X=sp.csr_matrix(changed(X, (5, 0), np.nan))),
    "sparse without entries": lambda: fit(X=sp.csr_matrix((N, 2))),
    "sparse integers": lambda: fit(X=sp.csr_matrix(BINARY[:, None])),
    "sparse complex": lambda: fit(X=sp.csr_matrix(X + 1j)),
    "frame": lambda: fit(X=frame()),
    "frame with text": lambda: fit(X=frame(c="high")),
    "frame with dates": lambda: fit(X=frame(c=pd.Timestamp("2020-01-01"))),
    "frame with categories": lambda: fit(X=frame(c=pd.Categorical(["u", "v"] * 30))),
    "frame with missing": lambda: fit(X=frame(c=pd.array([1, None] * 30, dtype="Int64"))),
    "frame with NaN": lambda: fit(X=frame(c=[1.0, np.nan] * 30)),
    "frame with doubled names": lambda: fit(X=pd.DataFrame(X, columns=["a", "a"])),
    "frame without columns": lambda: fit(X=pd.DataFrame(index=range(N))),
    "frame with numbers for names": lambda: fit(X=pd.DataFrame(X, columns=[0, 1])),
    "frame with lists": lambda: fit(X=frame(c=[[1]] * N)),
    "polars": lambda: fit(X=pl.DataFrame({"a": X[:, 0]})),
    "polars with null": lambda: fit(X=pl.DataFrame({"a": [1.0, None] * 30})),
    "polars with text": lambda: fit(X=pl.DataFrame({"a": ["u", "v"] * 30})),
    "one row": lambda: fit(X=X[:1], y=GAUSSIAN[:1], options={"batch_size": 1}),
    "one row, known noise": lambda: fit(
        X=X[:1], y=GAUSSIAN[:1], noise_scale=1.0, options={"batch_size": 1}
    ),
    "two rows": lambda: fit(X=X[:2], y=GAUSSIAN[:2], noise_scale=1.0, options={"batch_size": 1}),
    "two rows, automatic": lambda: fit(
        X=X[:2], y=GAUSSIAN[:2], noise_scale=1.0, options={"batch_size": "auto"}
    ),
    "wider than long": lambda: fit(X=RNG.normal(size=(N, 62)), noise_scale=1.0),
    "wider than long, flat": lambda: fit(
        X=RNG.normal(size=(N, 62)), noise_scale=1.0, prior_precision=0.0
    ),
    "constant column": lambda: fit(X=joined(np.ones(N))),
    "constant column, flat": lambda: fit(X=joined(np.ones(N)), prior_precision=0.0),
    "zero column": lambda: fit(X=joined(np.zeros(N))),
    "zero column, flat": lambda: fit(X=joined(np.zeros(N)), prior_precision=0.0),
    "doubled column": lambda: fit(X=joined(X[:, 0])),
    "doubled column, flat": lambda: fit(X=joined(X[:, 0]), prior_precision=0.0),
    "almost doubled column, flat": lambda: fit(
        X=joined(X[:, 0] + 1e-9 * X[:, 1]), prior_precision=0.0
    ),
    "all zero": lambda: fit(X=np.zeros((N, 2)), noise_scale=1.0),
    "all equal rows": lambda: fit(X=np.ones((N, 2)), y=np.ones(N), noise_scale=1.0),
    "huge": lambda: fit(X=1e20 * X),
    "huge, known noise": lambda: fit(X=1e20 * X, noise_scale=1.0),
    "beyond float32": lambda: fit(X=1e200 * X, noise_scale=1.0),
    "squares overflow": lambda: fit(X=1e160 * X, noise_scale=1.0),
    "tiny": lambda: fit(X=1e-20 * X, noise_scale=1.0),
    "tiny, flat": lambda: fit(X=1e-20 * X, noise_scale=1.0, prior_precision=0.0),
    "below float32": lambda: fit(X=1e-300 * X, noise_scale=1.0, prior_precision=0.0),
    "mixed scales": lambda: fit(X=X * [1e-8, 1e8], noise_scale=1.0, prior_precision=0.0),
    "large offset": lambda: fit(X=X + 1e8, noise_scale=1.0, prior_precision=0.0),
    "one outlier": lambda: fit(X=changed(X, (0, 0), 1e12), noise_scale=1.0),
    "subnormal": lambda: fit(X=np.full((N, 2), 5e-324), noise_scale=1.0),
}

RESPONSE = {
    "gaussian: NaN": lambda: fit(y=changed(GAUSSIAN, 3, np.nan)),
    "gaussian: infinity": lambda: fit(y=changed(GAUSSIAN, 3, np.inf)),
    "gaussian: none": lambda: fit(y=None),
    "gaussian: text": lambda: fit(y=["a"] * N),
    "gaussian: a name": lambda: fit(y="price"),
    "gaussian: None among objects": lambda: fit(y=changed(GAUSSIAN, 3, None, object)),
    "gaussian: decimals": lambda: fit(
        y=[decimal.Decimal(str(round(value, 3))) for value in GAUSSIAN]
    ),
    "gaussian: dates": lambda: fit(y=[datetime.date(2020, 1, 1)] * N),
    "gaussian: complex": lambda: fit(y=GAUSSIAN + 1j),
    "gaussian: two columns": lambda: fit(y=X),
    "gaussian: one column": lambda: fit(y=GAUSSIAN[:, None]),
    "gaussian: one row": lambda: fit(y=GAUSSIAN[None]),
    "gaussian: short": lambda: fit(y=GAUSSIAN[:-1]),
    "gaussian: scalar": lambda: fit(y=1.0),
    "gaussian: empty": lambda: fit(y=[]),
    "gaussian: constant": lambda: fit(y=np.ones(N)),
    "gaussian: constant, known noise": lambda: fit(y=np.ones(N), noise_scale=1.0),
    "gaussian: exact fit": lambda: fit(y=X @ [1.0, 2.0], prior_precision=0.0),
    "gaussian: almost exact fit": lambda: fit(y=X @ [1.0, 2.0] + 1e-9 * GAUSSIAN),
    "gaussian: huge": lambda: fit(y=1e30 * GAUSSIAN),
    "gaussian: beyond float32": lambda: fit(y=1e200 * GAUSSIAN),
    "gaussian: tiny": lambda: fit(y=1e-30 * GAUSSIAN),
    "gaussian: large integers": lambda: fit(y=(1e17 * GAUSSIAN).astype(np.int64)),
    "gaussian: masked": lambda: fit(y=np.ma.masked_array(GAUSSIAN, mask=GAUSSIAN > 1.0)),
    "gaussian: sparse": lambda: fit(y=sp.csr_matrix(GAUSSIAN[:, None])),
    "gaussian: booleans": lambda: fit(y=GAUSSIAN > 0),
    "gaussian: other byte order": lambda: fit(y=GAUSSIAN.astype(">f4")),
    "gaussian: series": lambda: fit(y=pd.Series(GAUSSIAN, index=range(5, N + 5))),
    "gaussian: missing": lambda: fit(y=pd.array([1.5, None] * 30, dtype="Float64")),
    "bernoulli: one class": lambda: bernoulli(y=np.ones(N)),
    "bernoulli: three classes": lambda: bernoulli(y=CLASSES),
    "bernoulli: minus one and one": lambda: bernoulli(y=2 * BINARY - 1),
    "bernoulli: text": lambda: bernoulli(y=np.where(BINARY, "yes", "no")),
    "bernoulli: booleans": lambda: bernoulli(y=BINARY.astype(bool)),
    "bernoulli: NaN": lambda: bernoulli(y=changed(BINARY, 2, np.nan, float)),
    "bernoulli: None": lambda: bernoulli(y=changed(BINARY, 2, None, object)),
    "bernoulli: mixed kinds": lambda: bernoulli(y=changed(BINARY, 2, "yes", object)),
    "bernoulli: continuous": lambda: bernoulli(y=GAUSSIAN),
    "bernoulli: beyond 32 bits": lambda: bernoulli(y=BINARY * 2**40),
    "bernoulli: beyond 63 bits": lambda: bernoulli(y=BINARY.astype(np.uint64) * np.uint64(2**63)),
    "bernoulli: one exception": lambda: bernoulli(y=changed(np.zeros(N), 0, 1)),
    "bernoulli: separable": lambda: bernoulli(y=X[:, 0] > 0),
    "bernoulli: separable, flat": lambda: bernoulli(y=X[:, 0] > 0, prior_precision=0.0),
    "bernoulli: dates": lambda: bernoulli(
        y=np.where(BINARY, np.datetime64("2020-01-01"), np.datetime64("2021-01-01"))
    ),
    "bernoulli: categories": lambda: bernoulli(
        y=pd.Series(pd.Categorical(np.where(BINARY, "u", "v")))
    ),
    "bernoulli: lists": lambda: bernoulli(y=[[0], [1]] * 30),
    "bernoulli: objects without order": lambda: bernoulli(y=[object(), object()] * 30),
    "bernoulli: huge features": lambda: bernoulli(X=1e20 * X),
    "categorical: one class": lambda: categorical(y=np.zeros(N)),
    "categorical: as many as rows": lambda: categorical(y=np.arange(N)),
    "categorical: huge labels": lambda: categorical(y=CLASSES * 2**61),
    "categorical: negative labels": lambda: categorical(y=CLASSES - 5),
    "categorical: text": lambda: categorical(y=np.array(["u", "v", "w"])[CLASSES]),
    "categorical: NaN": lambda: categorical(y=changed(CLASSES, 0, np.nan, float)),
    "categorical: flat": lambda: categorical(prior_precision=0.0),
    "categorical: two columns": lambda: categorical(y=X),
    "poisson: negative": lambda: poisson(y=COUNTS - 1),
    "poisson: fractional": lambda: poisson(y=COUNTS + 0.5),
    "poisson: huge": lambda: poisson(y=COUNTS * 10**15),
    "poisson: beyond 64 bits": lambda: poisson(y=COUNTS * 1e30),
    "poisson: unsigned": lambda: poisson(y=COUNTS.astype(np.uint64)),
    "poisson: largest unsigned": lambda: poisson(y=changed(COUNTS, 0, 2**64 - 1, np.uint64)),
    "poisson: all zero": lambda: poisson(y=np.zeros(N)),
    "poisson: all zero, flat": lambda: poisson(y=np.zeros(N), prior_precision=0.0),
    "poisson: text": lambda: poisson(y=["1"] * N),
    "poisson: NaN": lambda: poisson(y=changed(COUNTS, 0, np.nan, float)),
    "poisson: large features": lambda: poisson(X=1000.0 * X),
    "poisson: huge features": lambda: poisson(X=1e10 * X),
}

SETTINGS = {
    "family misspelt": lambda: fit(family="guassian"),
    "family none": lambda: fit(family=None),
    "family list": lambda: fit(family=["gaussian"]),
    "prior negative": lambda: fit(prior_precision=-1.0),
    "prior NaN": lambda: fit(prior_precision=np.nan),
    "prior infinite": lambda: fit(prior_precision=np.inf),
    "prior text": lambda: fit(prior_precision="strong"),
    "prior none": lambda: fit(prior_precision=None),
    "prior of wrong shape": lambda: fit(prior_precision=np.ones(5)),
    "prior with one negative": lambda: fit(prior_precision=[1.0, -1.0]),
    "prior huge": lambda: fit(prior_precision=1e30, noise_scale=1.0),
    "prior beyond float32": lambda: fit(prior_precision=1e300, noise_scale=1.0),
    "prior tiny": lambda: fit(prior_precision=1e-300, noise_scale=1.0),
    "prior complex": lambda: fit(prior_precision=1j),
    "intercept prior negative": lambda: fit(intercept_precision=-1.0),
    "intercept prior NaN": lambda: fit(intercept_precision=np.nan),
    "noise zero": lambda: fit(noise_scale=0.0),
    "noise negative": lambda: fit(noise_scale=-1.0),
    "noise NaN": lambda: fit(noise_scale=np.nan),
    "noise infinite": lambda: fit(noise_scale=np.inf),
    "noise text": lambda: fit(noise_scale="guess"),
    "noise none": lambda: fit(noise_scale=None),
    "noise array": lambda: fit(noise_scale=np.ones(3)),
    "noise tiny": lambda: fit(noise_scale=1e-30),
    "noise below float32": lambda: fit(noise_scale=1e-200),
    "noise huge": lambda: fit(noise_scale=1e200),
    "weights negative": lambda: fit(weights=-np.ones(N)),
    "weights zero": lambda: fit(weights=np.zeros(N)),
    "weights NaN": lambda: fit(weights=np.full(N, np.nan)),
    "weights short": lambda: fit(weights=np.ones(N - 1)),
    "weights text": lambda: fit(weights="balanced"),
    "weights huge": lambda: fit(weights=np.full(N, 1e30), noise_scale=1.0),
    "weights on one row": lambda: fit(weights=changed(np.zeros(N), 0, 1.0), noise_scale=1.0),
    "offset NaN": lambda: fit(offset=np.full(N, np.nan)),
    "offset short": lambda: fit(offset=np.ones(3)),
    "offset scalar": lambda: fit(offset=1.0),
    "offset huge": lambda: poisson(offset=np.full(N, 1e10)),
    "offset very negative": lambda: poisson(offset=np.full(N, -1e10)),
    "offset of wrong width": lambda: categorical(offset=np.ones((N, 2))),
    "without intercept": lambda: fit(intercept=False),
}

SAMPLING = {
    **{
        f"{name}={value!r}": (lambda name=name, value=value: run(**{name: value}))
        for name, values in {
            "draws": [0, -1, 1.5, np.nan, np.inf, "many", None, True, 10**12, [5]],
            "chains": [0, -1, 2.5, np.nan, "two", None, True, 10**9],
            "thin": [0, -1, 1.5, np.nan, "often", None, True, 10**9],
            "warmup": [-1, 1.5, np.nan, "long", None, True],
            "max_steps": [0, -1, np.nan, np.inf, "many", None, True],
            "seed": [-1, 1.5, np.nan, "lucky", None, True, 2**70],
            "dtype": ["float16", "int32", np.float32, 32, "double"],
            "keep": ["all", None, 3, ["draws"], "low-rank:0", "low-rank:x"],
            "scheme": ["epoch", "reshuffle", "random", None, 3, ""],
            "batch_size": [0, -1, 61, 10**12, 1.5, np.nan, np.inf, "big", None, True, [5], 60],
            "init": [
                np.ones(2),
                np.full(3, np.nan),
                np.full(3, np.inf),
                "zero",
                3.0,
                {"coef": np.ones(2)},
                np.full(3, 1e30),
                [0.0] * 3,
            ],
            "curvature": ["exact", 3, np.eye(3), orn.Curvature([0.0], [[1.0]], [[1.0]], 10)],
            "sampler": ["sgd", 3, orn.ConstantSGD, np.eye(3), object()],
            "every": ["soon", -1, None],
            "model": ["gaussian", None],
        }.items()
        if name not in ("sampler", "every", "model")
        for value in values
    },
    **{
        f"sampler={value!r}": (lambda value=value: fit(sampler=value))
        for value in ["sgd", 3, orn.ConstantSGD, np.eye(3), SGLD, b"", (), orn.measure]
    },
    **{
        f"model={value!r}": (
            lambda value=value: orn.sample(value, orn.ConstantSGD("full"), **SHORT)
        )
        for value in ["gaussian", None, 3, orn.Model]
    },
    "whole batch without replacement": lambda: run(batch_size=N, scheme="without-replacement"),
    "whole batch as slices": lambda: run(batch_size=N, scheme="slices"),
    "whole batch with replacement": lambda: run(batch_size=N),
    "batch of one": lambda: run(batch_size=1),
    "one draw": lambda: run(draws=1),
    "one draw, moments": lambda: run(draws=1, keep="moments"),
    "tiny budget": lambda: run(max_steps=1, thin="auto", warmup="auto"),
    "start far away": lambda: run(init=np.full(3, 1e4), warmup="auto"),
    "start beyond float32": lambda: run(init=np.full(3, 1e200)),
    "checkpoint and time in words": lambda: run(checkpoint="/dev/null/run", every="soon"),
    "checkpoint nowhere": lambda: run(checkpoint="/dev/null/run"),
}


def at_edge(factor):
    """A scalar step size at `factor` times its stability bound."""
    model = orn.glm(X, GAUSSIAN, noise_scale=1.0)
    curvature = orn.measure(model)
    bound = (
        orn.ConstantSGD("scalar", step_size=0.01)
        .tune(curvature, batch_size=6)
        .predict(curvature)
        .step_bound
    )
    sampler = orn.ConstantSGD("scalar", step_size=factor * bound)
    return orn.sample(model, sampler, curvature=curvature, **SHORT)


STEPS = {
    **{
        f"step at {factor} of the bound": (lambda f=factor: at_edge(f))
        for factor in (0.5, 0.99, 0.999999, 1.0, 1.000001, 1.5, 100.0)
    },
    **{
        f"{make.__name__}(step_size={step!r})": with_sampler(
            lambda make=make, step=step: make(step_size=step)
        )
        for make in (orn.ConstantSGD, SGLD, SGFS, SGHMC, SGNHT, IASG)
        for step in (
            0.0,
            -1.0,
            np.nan,
            np.inf,
            "fast",
            None,
            1e-300,
            1e300,
            [1.0, 2.0],
            np.eye(2),
            True,
            1j,
        )
    },
    **{
        f"{make.__name__}(damping={value!r})": with_sampler(
            lambda make=make, value=value: make(damping=value)
        )
        for make in (orn.ConstantSGD, SGLD, SGHMC, SGNHT, IASG)
        for value in (0.0, -0.5, 1.5, np.nan, np.inf, "some", None, 1e-12, 1.0)
    },
    **{
        f"ConstantSGD({argument}={value!r})": with_sampler(
            lambda a=argument, v=value: orn.ConstantSGD(**{a: v})
        )
        for argument in ("preconditioner", "tuning", "objective", "target")
        for value in ("best", None, 3, ["full"])
    },
    "preconditioner not positive": with_sampler(lambda: orn.ConstantSGD(step_size=-np.eye(3))),
    "preconditioner not symmetric": with_sampler(
        lambda: orn.ConstantSGD(step_size=np.triu(np.ones((3, 3))))
    ),
    "preconditioner of wrong size": with_sampler(
        lambda: orn.ConstantSGD(step_size=0.01 * np.eye(5))
    ),
    "preconditioner with NaN": with_sampler(
        lambda: orn.ConstantSGD(step_size=np.full((3, 3), np.nan))
    ),
    "diagonal of wrong size": with_sampler(
        lambda: orn.ConstantSGD("diagonal", step_size=np.full(5, 0.01))
    ),
    "control variates": with_sampler(lambda: orn.ConstantSGD(control_variates=True)),
    "schedule of words": with_sampler(lambda: SGLD(schedule="slow")),
    "schedule negative": with_sampler(lambda: SGLD(schedule=lambda steps: -steps)),
    "schedule of NaN": with_sampler(lambda: SGLD(schedule=lambda steps: np.nan * steps)),
    "schedule scalar": with_sampler(lambda: SGLD(schedule=lambda steps: 0.1)),
    "schedule that raises": with_sampler(lambda: SGLD(schedule=lambda steps: 1 // 0)),
    "schedule to zero": with_sampler(lambda: robbins_monro(0.0)),
    "schedule too steep": with_sampler(lambda: robbins_monro(0.1, power=2.0)),
    "SGFS(injected=-1)": with_sampler(lambda: SGFS(injected=-np.eye(3))),
    "SGFS(injected of wrong size)": with_sampler(lambda: SGFS(injected=np.eye(7))),
    "SGFS(injected of words)": with_sampler(lambda: SGFS(injected="much")),
    "IASG(window=0)": with_sampler(lambda: IASG(window=0)),
    "IASG(window=-3)": with_sampler(lambda: IASG(window=-3)),
    "IASG(window=1.5)": with_sampler(lambda: IASG(window=1.5)),
    "IASG(window in words)": with_sampler(lambda: IASG(window="long")),
    "IASG(window too long)": with_sampler(lambda: IASG(window=10**9)),
    "IASG(gap=-1)": with_sampler(lambda: IASG(gap=-1)),
    "dynamics with NaN": with_sampler(lambda: orn.Dynamics(np.asarray(np.nan), 5)),
    "dynamics of zero": with_sampler(lambda: orn.Dynamics(np.asarray(0.0), 5)),
    "dynamics of wrong size": with_sampler(lambda: orn.Dynamics(0.01 * np.eye(9), 5)),
    "dynamics with batch 0": with_sampler(lambda: orn.Dynamics(np.asarray(0.01), 0)),
    "dynamics with batch beyond N": with_sampler(lambda: orn.Dynamics(np.asarray(0.01), 10**6)),
    "dynamics with wrong noise": with_sampler(
        lambda: orn.Dynamics(np.asarray(0.01), 5, injected=-np.eye(3))
    ),
    "dynamics with window 0": with_sampler(lambda: orn.Dynamics(np.asarray(0.01), 5, window=0)),
}


def own(
    log_likelihood,
    data=GAUSSIAN,
    log_prior=lambda theta: -0.5 * jnp.sum(theta**2),
    init=0.0,
    options=None,
    **rest,
):
    model = orn.Model(
        log_likelihood,
        data,
        log_prior,
        init=init if init is None else jax.tree.map(jnp.asarray, init),
        **rest,
    )
    return orn.sample(model, orn.ConstantSGD("full"), **{**SHORT, **(options or {})})


def normal(theta, x):
    return -0.5 * (x - theta) ** 2


def raising(theta, x):
    raise RuntimeError("the database is down")


def branching(theta, x):
    return -0.5 * (x - theta) ** 2 if theta > 0 else -jnp.abs(x - theta)


def with_numpy(theta, x):
    return -0.5 * np.square(float(theta) - x)


def hidden(theta, x, calls=[0]):  # noqa: B006
    calls[0] += 1
    return -0.5 * (x - theta) ** 2 + 0.0 * calls[0]


class Moody:
    """Another function every time it is traced."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __call__(self, theta, x):
        return -0.5 * (x - theta) ** 2 * float(self.rng.uniform(0.1, 10.0))


MODELS = {
    "fine": lambda: own(normal),
    "likelihood not a function": lambda: own(3.0),
    "likelihood none": lambda: own(None),
    "likelihood without arguments": lambda: own(lambda: 0.0),
    "likelihood of four arguments": lambda: own(lambda a, b, c, d: 0.0),
    "likelihood of any arguments": lambda: own(lambda *arguments: normal(*arguments[:2])),
    "likelihood raises": lambda: own(raising),
    "likelihood branches on a parameter": lambda: own(branching),
    "likelihood leaves JAX": lambda: own(with_numpy),
    "likelihood with a counter": lambda: own(hidden),
    "likelihood with moods": lambda: own(Moody()),
    "likelihood of a vector": lambda: own(lambda theta, x: jnp.stack([x - theta, theta])),
    "likelihood of one-vector": lambda: own(lambda theta, x: jnp.reshape(normal(theta, x), (1,))),
    "likelihood returns None": lambda: own(lambda theta, x: None),
    "likelihood returns a pair": lambda: own(lambda theta, x: (normal(theta, x), 0.0)),
    "likelihood returns text": lambda: own(lambda theta, x: "likely"),
    "likelihood returns a number": lambda: own(lambda theta, x: -1.0),
    "likelihood of integers": lambda: own(lambda theta, x: jnp.asarray(1)),
    "likelihood complex": lambda: own(lambda theta, x: normal(theta, x) + 1j),
    "likelihood boolean": lambda: own(lambda theta, x: x > theta),
    "likelihood NaN": lambda: own(lambda theta, x: normal(theta, x) * jnp.nan),
    "likelihood infinite": lambda: own(lambda theta, x: normal(theta, x) + jnp.inf),
    "likelihood minus infinite": lambda: own(lambda theta, x: normal(theta, x) - jnp.inf),
    "likelihood NaN at the start": lambda: own(lambda theta, x: normal(theta, x) + jnp.log(theta)),
    "likelihood NaN for some rows": lambda: own(
        lambda theta, x: normal(theta, x) + 0.0 * jnp.log(x)
    ),
    "likelihood NaN beyond a bound": lambda: own(
        lambda theta, x: normal(theta, x) + 0.0 * jnp.log(0.1 - theta)
    ),
    "likelihood NaN around the mode": lambda: own(
        lambda theta, x: normal(theta, x) + 0.0 * jnp.sqrt(jnp.abs(theta - 0.02) - 0.01)
    ),
    "gradient NaN at zero": lambda: own(
        lambda theta, x: -jnp.sqrt(jnp.abs(theta)) + normal(theta, x)
    ),
    "likelihood constant": lambda: own(lambda theta, x: 0.0 * theta),
    "likelihood constant, flat": lambda: own(lambda theta, x: 0.0 * theta, log_prior=None),
    "likelihood linear, flat": lambda: own(lambda theta, x: theta, log_prior=None),
    "likelihood upside down": lambda: own(lambda theta, x: -normal(theta, x)),
    "likelihood a saddle": lambda: own(
        lambda theta, x: -0.5 * (x - theta[0]) ** 2 + 0.5 * theta[1] ** 2,
        init=np.zeros(2),
        log_prior=None,
    ),
    "likelihood with two modes": lambda: own(lambda theta, x: -((theta**2 - 1.0) ** 2) + 0.01 * x),
    "likelihood a step": lambda: own(lambda theta, x: jnp.where(x > theta, 0.0, -1.0)),
    "likelihood with a kink": lambda: own(lambda theta, x: -jnp.abs(x - theta)),
    "likelihood quartic": lambda: own(
        lambda theta, x: -((x - x - theta) ** 4), log_prior=None, init=1.0
    ),
    "likelihood huge": lambda: own(lambda theta, x: 1e30 * normal(theta, x)),
    "likelihood tiny": lambda: own(lambda theta, x: 1e-30 * normal(theta, x), log_prior=None),
    "likelihood overflows": lambda: own(lambda theta, x: -jnp.exp(jnp.exp(50.0 + theta))),
    "likelihood unidentified": lambda: own(
        lambda theta, x: normal(theta[0] + theta[1], x), init=np.zeros(2), log_prior=None
    ),
    "likelihood ignores the data": lambda: own(lambda theta, x: -0.5 * theta**2),
    "likelihood ignores one parameter": lambda: own(
        lambda theta, x: normal(theta[0], x), init=np.zeros(2), log_prior=None
    ),
    "likelihood of the wrong shape": lambda: own(lambda theta, x: x["value"] @ theta),
    "likelihood with a wrong key": lambda: own(
        lambda theta, x: x["value"] * theta, data={"y": GAUSSIAN}
    ),
    "likelihood with a host call": lambda: own(
        lambda theta, x: jax.pure_callback(
            lambda t: np.float32(t), jax.ShapeDtypeStruct((), jnp.float32), theta
        )
    ),
    "likelihood prints": lambda: own(lambda theta, x: normal(theta, x) + 0.0 * len(str(x))),
    "prior of a vector": lambda: own(normal, log_prior=lambda theta: jnp.stack([theta, theta])),
    "prior raises": lambda: own(normal, log_prior=lambda theta: 1 // 0),
    "prior NaN": lambda: own(normal, log_prior=lambda theta: theta * jnp.nan),
    "prior minus infinite": lambda: own(normal, log_prior=lambda theta: -jnp.inf),
    "prior with a wall": lambda: own(
        normal, log_prior=lambda theta: jnp.where(theta > -0.05, 0.0, -jnp.inf)
    ),
    "prior explodes": lambda: own(normal, log_prior=lambda theta: 1e6 * theta**2),
    "prior of two arguments": lambda: own(normal, log_prior=lambda theta, hyper: 0.0 * theta),
    "prior of three arguments": lambda: own(normal, log_prior=lambda a, b, c: 0.0),
    "prior not a function": lambda: own(normal, log_prior=1.0),
    "no start": lambda: own(normal, init=None),
    "empty start": lambda: own(normal, init={}),
    "start of size zero": lambda: own(lambda theta, x: -(x**2) + jnp.sum(theta), init=np.zeros(0)),
    "start NaN": lambda: own(normal, init=np.nan),
    "start infinite": lambda: own(normal, init=np.inf),
    "start of text": lambda: orn.Model(normal, GAUSSIAN, init="zero"),
    "start of integers": lambda: own(normal, init=1),
    "start boolean": lambda: own(normal, init=True),
    "start complex": lambda: own(normal, init=1j),
    "start far away": lambda: own(normal, init=1e30),
    "data none": lambda: own(normal, data=None),
    "data empty": lambda: own(normal, data=np.zeros(0)),
    "data scalar": lambda: own(normal, data=1.0),
    "data of different lengths": lambda: own(
        lambda theta, x: normal(theta, x["a"]), data={"a": np.ones(3), "b": np.ones(4)}
    ),
    "data of text": lambda: own(normal, data=np.array(["a", "b"])),
    "data of objects": lambda: own(normal, data=np.array([1.0, None], dtype=object)),
    "data of dates": lambda: own(normal, data=np.array(["2020-01-01"], dtype="datetime64[D]")),
    "data with NaN": lambda: own(normal, data=changed(GAUSSIAN, 0, np.nan)),
    "data complex": lambda: own(normal, data=GAUSSIAN + 1j),
    "data beyond 32 bits": lambda: own(normal, data=np.arange(N) * 2**40),
    "data of records": lambda: own(normal, data=np.zeros(N, dtype=[("a", "f8")])),
    "data with infinity": lambda: own(normal, data=changed(GAUSSIAN, 0, np.inf)),
    "data of bytes": lambda: own(normal, data=b"abc"),
    "data of big endian": lambda: own(normal, data=GAUSSIAN.astype(">f8")),
    "hyperparameters of text": lambda: own(normal, hyperparameters={"a": "b"}),
    "hyperparameters NaN": lambda: own(
        lambda theta, x, hyper: normal(theta, x) * hyper["a"], hyperparameters={"a": np.nan}
    ),
    "hyperparameters a list": lambda: own(normal, hyperparameters=[1.0]),
    "names too few": lambda: own(
        lambda theta, x: normal(theta[0], x) - theta[1] ** 2, init=np.zeros(2), names=("a",)
    ),
}

EYE = np.eye(2)


def written_down(**changes):
    return orn.Curvature(
        **{"mode": np.zeros(2), "hessian": EYE, "noise": EYE, "n_data": 100, **changes}
    )


CURVATURES = {
    **{
        f"{name}={value!r}": (lambda name=name, value=value: written_down(**{name: value}))
        for name, values in {
            "mode": [np.full(2, np.nan), np.zeros(3), np.zeros((2, 2)), "zero", None, []],
            "hessian": [
                -EYE,
                np.zeros((2, 2)),
                np.eye(3),
                np.full((2, 2), np.nan),
                [[1.0, 0.5], [0.0, 1.0]],
                np.ones((2, 2)),
                "A",
                None,
            ],
            "noise": [
                np.eye(3),
                np.full((2, 2), np.inf),
                [[1.0, 0.5], [0.0, 1.0]],
                "C",
                None,
                -EYE,
            ],
            "n_data": [0, -1, np.nan, "many", None],
        }.items()
        for value in values
    },
    "no noise at all": lambda: orn.ConstantSGD().tune(written_down(noise=0.0 * EYE), batch_size=5),
    "unknown structure": lambda: orn.measure(orn.glm(X, GAUSSIAN), structure="banded"),
    "unknown Hessian": lambda: orn.measure(orn.glm(X, GAUSSIAN), hessian="guess"),
    "mode of wrong size": lambda: orn.measure(orn.glm(X, GAUSSIAN), mode=np.zeros(9)),
    "mode with NaN": lambda: orn.measure(orn.glm(X, GAUSSIAN), mode=np.full(4, np.nan)),
    "batch of words": lambda: orn.ConstantSGD().tune(written_down(), batch_size="ten"),
    "batch none": lambda: orn.ConstantSGD().tune(written_down(), batch_size=None),
    "prediction in unknown time": lambda: (
        orn.ConstantSGD().tune(written_down(), batch_size=5).predict(written_down(), time="slow")
    ),
    "Gaussians of different size": lambda: orn.kl(
        orn.Gaussian(np.zeros(2), EYE), orn.Gaussian(np.zeros(3), np.eye(3))
    ),
    "Gaussian not positive": lambda: orn.kl(
        orn.Gaussian(np.zeros(2), -EYE), orn.Gaussian(np.zeros(2), EYE)
    ),
    "Gaussian with NaN": lambda: orn.kl(
        orn.Gaussian(np.zeros(2), EYE * np.nan), orn.Gaussian(np.zeros(2), EYE)
    ),
}

POSTERIOR = {
    "predict: columns": lambda post: post.predict(np.ones((3, 5))),
    "predict: vector": lambda post: post.predict(np.ones(3)),
    "predict: text": lambda post: post.predict(np.array([["a", "b"]])),
    "predict: none": lambda post: post.predict(None),
    "predict: no rows": lambda post: post.predict(np.ones((0, 2))),
    "predict: NaN": lambda post: post.predict(np.full((1, 2), np.nan)),
    "predict: objects": lambda post: post.predict(np.array([[1.0, None]], dtype=object)),
    "predict: no draws": lambda post: post.predict(X, draws=0),
    "predict: negative draws": lambda post: post.predict(X, draws=-3),
    "predict: draws in words": lambda post: post.predict(X, draws="all"),
    "summary: probability 2": lambda post: post.summary(2.0),
    "summary: probability NaN": lambda post: post.summary(np.nan),
    "summary: probability of text": lambda post: post.summary("wide"),
    "predict: groups of a model without": lambda post: post.predict(X, groups="known"),
    "check: of a number": lambda post: post.check(of=3),
    "check: of words": lambda post: post.check(of=lambda params: "high"),
    "effects: no such column": lambda post: post.effects("dose"),
    "effects: a number": lambda post: post.effects(3),
    "effects: no column in the table": lambda post: post.effects("x0", pd.DataFrame({"b": [1.0]})),
    "predict_at: no column": lambda post: post.predict_at(),
    "predict_at: no such column": lambda post: post.predict_at(dose=[1.0]),
    "predict_at: words": lambda post: post.predict_at(x0=["high"]),
    "group_effects: no groups": lambda post: post.group_effects("ward"),
    "to_arviz: no such group": lambda post: post.to_arviz(groups=("nonsense",)),
    "loo_compare: nothing": lambda post: orn.loo_compare({}),
    "loo_compare: a number": lambda post: orn.loo_compare({"a": 3, "b": post}),
    "compare: nothing": lambda post: orn.compare({}),
    "compare: a number": lambda post: orn.compare(3),
    "to_arviz: a number": lambda post: post.to_arviz(groups=3),
    "check_gradients: a number": lambda post: orn.check_gradients(3),
    "open_table: none": lambda post: orn.open_table(None),
    "open_table: no such files": lambda post: orn.open_table(["/nowhere/table.parquet"]),
    "glm: priors a number": lambda post: orn.glm(X, GAUSSIAN, priors=3),
    "glmm: Z without columns": lambda post: orn.glmm(X, GAUSSIAN, CLASSES, Z=X[:, :0]),
    "em: hyperparameters a number": lambda post: orn.em(post.model, hyperparameters=3),
    "em: blocks in words": lambda post: orn.em(post.model, max_blocks="x"),
    "em: checkpoint a number": lambda post: orn.em(post.model, checkpoint=3),
    "average: batches in words": lambda post: orn.average(post.model, batches="x"),
    "average: curvature a number": lambda post: orn.average(post.model, curvature=3),
    "laplace: curvature a number": lambda post: orn.laplace(post.model, curvature=3),
    "gaussian_vi: curvature a number": lambda post: orn.gaussian_vi(post.model, curvature=3),
    "sample: checkpoint a number": lambda post: orn.sample(post.model, checkpoint=3),
    "sample: first chain below zero": lambda post: orn.sample(post.model, first_chain=-1),
    "plan: text": lambda post: orn.plan("gaussian"),
    "plan: budget below zero": lambda post: orn.plan(post.model, budget=-1),
    "plan: budget NaN": lambda post: orn.plan(post.model, budget=np.nan),
    "plan: no draws": lambda post: orn.plan(post.model, draws=0),
    "sample: budget in words": lambda post: orn.sample(post.model, budget="all", progress=False),
    "sample: deadline in words": lambda post: orn.sample(
        post.model, deadline="soon", progress=False
    ),
    "sample: no such way": lambda post: orn.sample(post.model, "sideways"),
    "gaussian_vi: text": lambda post: orn.gaussian_vi("gaussian"),
    "gaussian_vi: no draws": lambda post: orn.gaussian_vi(post.model, draws=0),
    "hmc: text": lambda post: orn.hmc("gaussian"),
    "hmc: no draws": lambda post: orn.hmc(post.model, draws=0),
    "laplace: text": lambda post: orn.laplace("gaussian"),
    "nuts: text": lambda post: orn.nuts("gaussian"),
    "bbvi: text": lambda post: orn.bbvi("gaussian"),
    "low_rank: text": lambda post: orn.low_rank("gaussian"),
    "resume: missing": lambda post: orn.resume("/nowhere/run", post.model),
    "resume: a file": lambda post: orn.resume("/dev/null", post.model),
    "kl_to: text": lambda post: post.kl_to("truth"),
    "kl_to: other size": lambda post: post.kl_to(orn.Gaussian(np.zeros(9), np.eye(9))),
    "save: no folder": lambda post: post.save("/dev/null/folder/fit.orn"),
    "save: a folder": lambda post: post.save("/"),
    "save: none": lambda post: post.save(None),
    "load: none": lambda post: orn.load(None),
    "load: missing": lambda post: orn.load("/nowhere/fit.orn"),
    "load: a folder": lambda post: orn.load("/"),
    "load: a device": lambda post: orn.load("/dev/null"),
    "load: a number": lambda post: orn.load(12345678),
}


@contextmanager
def at_most(seconds):
    def late(*_):
        raise TimeoutError(f"still running after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def verdict_on(case, *arguments):
    """None if the case behaved, else what is wrong."""
    try:
        with warnings.catch_warnings(), at_most(60):
            warnings.simplefilter("ignore")
            result = case(*arguments)
    except orn.OrnsteinError as error:
        sentence = str(error)
        if not 10 <= len(sentence) <= 1000 or "Traceback" in sentence or "\n" in sentence:
            return f"a message that is no sentence: {sentence[:300]!r}"
        return None
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    if isinstance(result, orn.Posterior):
        if result.draws.size == 0 and result.settings["keep"] == "draws":
            return "no draws"
        if not (np.all(np.isfinite(result.draws)) and np.all(np.isfinite(result.mean))):
            return "a draw or mean that is not finite"
    return None


TABLES = {
    "design": DESIGN,
    "response": RESPONSE,
    "settings": SETTINGS,
    "sampling": SAMPLING,
    "steps": STEPS,
    "models": MODELS,
    "curvatures": CURVATURES,
}


def test_the_tables_are_long():
    assert sum(map(len, TABLES.values())) + len(POSTERIOR) >= 200


def misbehaved(cases):
    return [f"{name}: {said}" for name, case in cases if (said := verdict_on(case))]


@pytest.mark.parametrize("table", TABLES)
def test_every_fifth_case_ends_in_a_result_or_a_sentence(table):
    assert misbehaved(list(TABLES[table].items())[::5]) == []


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_every_case_ends_in_a_result_or_a_sentence(table):
    assert misbehaved(TABLES[table].items()) == []


def test_a_posterior_asked_for_nonsense():
    post = fit(noise_scale=1.0)
    wrong = {name: said for name, case in POSTERIOR.items() if (said := verdict_on(case, post))}
    assert not wrong, "\n".join(f"{name}: {said}" for name, said in wrong.items())


def test_the_harness_notices():
    """Negative controls: what must be called wrong."""
    assert "ZeroDivisionError" in verdict_on(lambda: 1 // 0)
    assert "TracerBoolConversionError" in verdict_on(lambda: jax.jit(lambda x: x if x else -x)(1.0))
    good = fit(noise_scale=1.0)
    spoilt = type(good)(good.draws * np.nan, good.names, good.layout, good.settings)
    assert "not finite" in verdict_on(lambda: spoilt)
    assert "no sentence" in verdict_on(lambda: (_ for _ in ()).throw(orn.InputError("bad")))


REFERENCES = {
    "columns first": lambda: fit(X=np.asfortranarray(X)),
    "numbers as objects": lambda: fit(X=X.astype(object), y=GAUSSIAN.astype(object)),
    "list of lists": lambda: fit(X=X.tolist(), y=GAUSSIAN.tolist()),
    "frame": lambda: fit(X=pd.DataFrame(X), y=pd.Series(GAUSSIAN, index=range(7, N + 7))),
    "other byte order": lambda: fit(X=X.astype(">f8"), y=GAUSSIAN.astype(">f8")),
    "sparse": lambda: fit(X=sp.csr_matrix(X)),
    "one column of y": lambda: fit(y=GAUSSIAN[:, None]),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_odd_but_sound_input_gives_the_result_of_plain_input(name):
    plain, odd = fit(), REFERENCES[name]()
    np.testing.assert_allclose(odd.curvature.mode, plain.curvature.mode, rtol=1e-10)
    np.testing.assert_allclose(
        odd.curvature.hessian, plain.curvature.hessian, rtol=1e-10, atol=1e-14
    )
    np.testing.assert_allclose(odd.draws, plain.draws, rtol=1e-4, atol=1e-5)


DTYPES = st.one_of(
    hnp.floating_dtypes(endianness="?"),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.boolean_dtypes(),
    hnp.complex_number_dtypes(),
    hnp.unicode_string_dtypes(max_len=3),
    hnp.datetime64_dtypes(),
)
ANY_ARRAY = DTYPES.flatmap(
    lambda dtype: hnp.arrays(
        dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
    )
)
FLOATS = hnp.arrays(np.float64, st.sampled_from([(6, 1), (6, 2)]), elements=st.floats(width=64))
FAMILIES = st.sampled_from(["gaussian", "bernoulli", "categorical", "poisson"])
FUZZ = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "derandomize": True,
    "database": None,
}
# A table of wrong cases is told at once; a smaller example of each would cost more than all others.
UNSHRUNK = {**FUZZ, "phases": [Phase.generate], "report_multiple_bugs": False}


@settings(max_examples=60, **FUZZ)
@given(ANY_ARRAY, ANY_ARRAY, FAMILIES)
def test_any_arrays(features, target, family):
    assert verdict_on(lambda: orn.glm(features, target, family=family)) is None


@settings(max_examples=15, **FUZZ)
@given(
    FLOATS,
    hnp.arrays(np.float64, (6,), elements=st.floats(width=64)),
    FAMILIES,
    st.floats(width=64),
)
def test_any_numbers(features, target, family, precision):
    assert (
        verdict_on(
            lambda: orn.measure(orn.glm(features, target, family=family, prior_precision=precision))
        )
        is None
    )


@pytest.mark.slow
@settings(max_examples=300, **FUZZ)
@given(
    hnp.arrays(
        np.float64, (6, 2), elements=st.floats(width=64, allow_nan=False, allow_infinity=False)
    ),
    hnp.arrays(
        np.float64, (6,), elements=st.floats(width=64, allow_nan=False, allow_infinity=False)
    ),
    st.floats(1e-30, 1e30),
)
def test_any_numbers_sampled(features, target, precision):
    options = {"batch_size": 2, "thin": 1}
    assert (
        verdict_on(
            lambda: fit(
                features, target, noise_scale=1.0, prior_precision=precision, options=options
            )
        )
        is None
    )


# Examples of each corruption at each entrance, and how many that makes.
EXAMPLES = 3
AT_LEAST = {
    "arrays": 90,
    "frames": 95,
    "csv": 80,
    "parquet": 70,
    "numpyro": 20,
    "glmm": 90,
    "regress": 100,
    "estimators": 40,
    "command line": 125,
}


def refusal(entrance, given):
    """The sentence with which malformed input is refused; anything else is a failure.

    scikit-learn's own checks speak first at the estimators, in words and classes that it demands of
    all estimators.
    """
    foreseen = (orn.OrnsteinError, CommandFailedError)
    if entrance == "estimators":
        foreseen = (*foreseen, ValueError, TypeError)
    try:
        with warnings.catch_warnings(), at_most(60):
            warnings.simplefilter("ignore")
            ENTRANCES[entrance](given)
    except foreseen as error:
        return str(error).splitlines()[0] if entrance == "estimators" else str(error)
    raise AssertionError("it was accepted")


def require_sentence(entrance, given):
    said = refusal(entrance, given)
    assert 10 <= len(said) <= 1000 and "\n" not in said and "Traceback" not in said, said
    unsaid = [words for words in given.words if not re.search(words, said, re.IGNORECASE)]
    assert not unsaid, f"{said!r} does not name {unsaid}"


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_malformed_input_gets_a_sentence_at_every_entrance(entrance):
    if entrance == "glmm":
        sound_mixed()  # compiled before any time is measured
    tried, wrong = [], []
    for name, (where, strategy) in CORRUPTIONS.items():
        if entrance not in where:
            continue

        @settings(max_examples=EXAMPLES, **UNSHRUNK)
        @given(strategy)
        def attempt(spoilt):
            tried.append(spoilt)
            require_sentence(entrance, spoilt)

        try:
            attempt()
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    assert not wrong, "\n".join(wrong)
    assert len(tried) >= AT_LEAST[entrance], len(tried)


def test_there_are_300_malformed_inputs_and_sound_input_is_none():
    assert sum(AT_LEAST.values()) >= 300
    for entrance in ("arrays", "frames", "csv", "parquet", "numpyro", "glmm", "regress"):
        assert ENTRANCES[entrance](sound()) is None
        with pytest.raises(AssertionError, match="accepted"):
            require_sentence(entrance, sound())
