"""One table of samplers and the checks that each of them must pass; test_battery.py runs every
check on every row.

To add a sampler, add a line to TABLE.

- protocol: tune gives frozen data of the documented shapes, predict a Prediction; neither raises
where the chain would diverge;
- one step: mean and covariance of one step of the engine's compiled code, by enumerating every
  minibatch of five rows, equal −H g(θ) and H Cov(ĝ) H f/S + R, with velocity and injected noise
  where there is any;
- stationary: the covariance of a long run is the predicted one within Monte-Carlo error;
- reproducible: same seed, same draws, and a restored chain goes on bit for bit;
- stored: a saved posterior comes back.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import all_minibatches, hessian_and_noise, logistic_data, matrix_of, spd

import ornstein as orn
from ornstein.compute.precision import width
from ornstein.engine.loop import Program, kept_memory, run_block
from ornstein.engine.run import Run
from ornstein.rows.scheme import SCHEMES, noise_factor
from ornstein.theory import covariance_standard_error


@dataclass(frozen=True, eq=False)
class Row:
    """A sampler and what is expected of it.

    exact: its law in discrete time is the posterior, whatever the curvature.
    axes: of the preconditioner: 0 scalar, 1 diagonal, 2 full; None where it depends.
    stationary: whether its covariance is to be checked by a run (some are too slow for that).
    """

    sampler: object
    exact: bool = False
    axes: int | None = None
    stationary: bool = True


def constant_sgd_rows():
    """Every form of constant SGD."""
    rows = {}
    for form, axes in (("scalar", 0), ("diagonal", 1), ("full", 2), ("sqrt", 1)):
        for tuning in ("discrete", "continuous"):
            for damping in (1.0, 0.3):
                sampler = orn.ConstantSGD(form, tuning=tuning, damping=damping)
                rows[f"ConstantSGD {form} {tuning} μ={damping}"] = Row(
                    sampler, form == "full" and tuning == "discrete", axes
                )
    return rows


def langevin_rows():
    """Samplers that inject noise."""
    return {
        "SGLD": Row(orn.SGLD(5e-4), axes=0),
        "SGLD exact": Row(orn.SGLD(exact=True), exact=True, axes=0),
        "SGLD decreasing": Row(
            orn.SGLD(schedule=orn.robbins_monro(5e-4, 10.0, 0.6)), axes=0, stationary=False
        ),
        "SGLD-CV": Row(orn.SGLD(1e-3, control_variates=True), axes=0),
        "SGLD diagonal": Row(orn.SGLD(0.5, preconditioner="diagonal"), axes=1),
        "SGLD-CV full": Row(
            orn.SGLD(exact=True, control_variates=True, preconditioner="full"), exact=True, axes=2
        ),
        "SGFS full": Row(orn.SGFS(), exact=True, axes=2),
        "SGFS diagonal": Row(orn.SGFS("diagonal", tuning="continuous"), axes=1),
        "SGFS own noise μ=0.3": Row(orn.SGFS(injected=0.05, damping=0.3), exact=True, axes=2),
        "SGHMC": Row(orn.SGHMC(), axes=0),
        "SGNHT": Row(orn.SGNHT(), axes=0),
    }


def averaging_rows():
    """Samplers that deliver means over windows."""
    return {
        "IASG": Row(orn.IASG(), exact=True),
        "IASG plain": Row(orn.IASG(4000, 0.1, "scalar", rescale=False), axes=0, stationary=False),
        "IASG sandwich": Row(orn.IASG(target="sandwich")),
    }


TABLE: dict[str, Row] = {
    **constant_sgd_rows(),
    **langevin_rows(),
    **averaging_rows(),
    "ConstantSGD scalar, own step": Row(orn.ConstantSGD("scalar", step_size=0.15), axes=0),
    "ConstantSGD sqrt, own step": Row(orn.ConstantSGD("sqrt", step_size=0.1), axes=1),
    "ConstantSGD diagonal, own step": Row(orn.ConstantSGD("diagonal", step_size=0.1), axes=1),
    "ConstantSGD full, own step": Row(orn.ConstantSGD("full", step_size=0.08, damping=0.5), axes=2),
    "ConstantSGD scalar kl_pq": Row(orn.ConstantSGD("scalar", objective="kl_pq"), axes=0),
    "ConstantSGD diagonal kl_pq": Row(orn.ConstantSGD("diagonal", objective="kl_pq"), axes=1),
    "ConstantSGD full sandwich": Row(orn.ConstantSGD("full", target="sandwich"), axes=2),
    "ConstantSGD scalar sandwich": Row(orn.ConstantSGD("scalar", target="sandwich"), axes=0),
}

TOLERANCE = {"float32": 1e-6, "float64": 1e-12}
SIGMAS, DETECTABLE = 5.0, 0.06


# --- models ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Tiny:
    """Five rows, with the gradient of every row's loss and of the prior (over N) written out by
    hand.
    """

    model: orn.Model
    slopes: object
    prior_slope: object


@lru_cache
def tiny(name):
    rng = np.random.default_rng(11)
    X = rng.normal(size=(5, 2)) @ np.array([[1.0, 0.4], [0.0, 0.8]])
    precision = np.array([0.5, 1.5])
    if name == "gaussian":
        y = X @ [1.0, -0.5] + rng.normal(size=5)
        model = orn.glm(X, y, noise_scale=0.9, prior_precision=precision, intercept=False)
        return Tiny(model, lambda t: (X @ t - y)[:, None] * X / 0.9**2, lambda t: precision * t / 5)
    if name == "bernoulli":
        y = np.array([0, 1, 1, 0, 1])
        model = orn.glm(X, y, "bernoulli", prior_precision=precision, intercept=False)
        return Tiny(
            model,
            lambda t: (1 / (1 + np.exp(-X @ t)) - y)[:, None] * X,
            lambda t: precision * t / 5,
        )
    if name == "gaussian, scale inferred":
        x = X[:, :1]
        y = np.array([0.3, -1.1, 0.9, 1.8, -0.4])

        def slopes(t):
            residual, weight = y - x[:, 0] * t[0] - t[1], np.exp(-2.0 * t[2])
            return np.column_stack(
                [-residual * weight * x[:, 0], -residual * weight, 1.0 - residual**2 * weight]
            )

        model = orn.glm(x, y, prior_precision=0.5, intercept_precision=1.5)
        return Tiny(model, slopes, lambda t: np.array([0.5, 1.5, 0.0]) * t / 5)
    # A column that is zero carries no gradient noise, so that prior noise is injected.
    y = X @ [1.0, -0.5] + rng.normal(size=5)
    X = np.column_stack([X, np.zeros(5)])
    model = orn.glm(X, y, noise_scale=0.9, prior_precision=1.0, intercept=False)
    return Tiny(model, lambda t: (X @ t - y)[:, None] * X / 0.9**2, lambda t: t / 5)


TINY = ("gaussian", "bernoulli", "gaussian, scale inferred", "gaussian, dead column")


@lru_cache
def tiny_curvature(name):
    return orn.measure(tiny(name).model)


def quadratic_likelihood(theta, push, hyper):
    return -0.5 * theta @ hyper["hessian"] @ theta + push @ theta


@lru_cache
def quadratic():
    """ℓ_n = ½θᵀAθ − b_nᵀθ: the noise does not depend on θ, A and C = Cov(b) do not commute, theory
    is exact.
    """
    n_data, dimension = 400, 3
    rng = np.random.default_rng(5)
    hessian, noise = spd(rng, dimension, 4.0), spd(rng, dimension, 4.0)
    pushes = rng.normal(size=(n_data, dimension))
    pushes = (pushes - pushes.mean(axis=0)) @ np.linalg.inv(
        np.linalg.cholesky(np.cov(pushes.T, bias=True))
    ).T
    pushes = pushes @ np.linalg.cholesky(noise).T + np.array([1.0, -1.0, 0.5])
    model = orn.Model(
        quadratic_likelihood, pushes, init=np.zeros(dimension), hyperparameters={"hessian": hessian}
    )
    curvature = orn.measure(model)
    commutator = curvature.hessian @ curvature.noise - curvature.noise @ curvature.hessian
    assert (
        np.linalg.norm(commutator)
        > 0.1 * np.linalg.norm(hessian) * np.linalg.norm(noise) / dimension
    )
    return model, curvature


@lru_cache
def logistic():
    """N is large enough for the leading order of theory to be right within what a run can see."""
    X, y = logistic_data(4000, 3, seed=2)
    model = orn.glm(X, y, "bernoulli", intercept=False, prior_precision=1.0)
    return model, orn.measure(model)


# --- protocol -------------------------------------------------------------------------------------


def check_protocol(row):
    """Shapes and types of tune and predict, on a curvature with and without a response of the
    noise.
    """
    hessian, noise = hessian_and_noise(3, seed=4)

    def respond(covariance):
        return 0.3 * np.trace(hessian @ covariance) * hessian

    for response in (None, respond):
        cur = orn.Curvature(
            mode=np.zeros(3), hessian=hessian, noise=noise, n_data=5000, noise_response=response
        )
        for scheme in SCHEMES:
            dynamics = row.sampler.tune(cur, batch_size=10, scheme=scheme)
            _check_dynamics(row, dynamics, scheme)
            for time in ("discrete", "continuous"):
                _check_prediction(dynamics.predict(cur, time=time), dynamics, time)
            if row.exact:
                assert dynamics.predict(cur).kl_qp == pytest.approx(0.0, abs=1e-9)
                assert dynamics.predict(cur).kl_pq == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(orn.InputError, match="time must be"):
        dynamics.predict(cur, time="imaginary")
    with pytest.raises(orn.InputError, match="batch_size"):
        row.sampler.tune(cur, batch_size=0)
    with pytest.raises(orn.InputError, match="reshuffled epoch"):
        row.sampler.tune(cur, batch_size=10, scheme="epochs")


def _check_dynamics(row, dynamics, scheme):
    assert isinstance(dynamics, orn.Dynamics)
    assert (dynamics.batch_size, dynamics.scheme) == (10, scheme)
    assert dynamics.preconditioner.shape in ((), (3,), (3, 3))
    if row.axes is not None:
        assert dynamics.preconditioner.ndim == row.axes
    assert 0.0 < dynamics.damping <= 1.0 and dynamics.window >= 1 and dynamics.gap >= 0
    assert dynamics.injected is None or dynamics.injected.shape in ((), (3,), (3, 3))
    assert isinstance(dynamics.notes, tuple) and isinstance(dynamics.sampler, str)
    with pytest.raises(FrozenInstanceError):
        dynamics.damping = 0.5
    assert (
        hash(dynamics.kernel()) == hash(dynamics.kernel())
        and dynamics.kernel() == dynamics.kernel()
    )


def _check_prediction(prediction, dynamics, time):
    assert isinstance(prediction, orn.Prediction) and prediction.time == time
    assert prediction.step_bound > 0.0
    if not prediction.stable:
        assert prediction.covariance is None and prediction.kl_qp == prediction.kl_pq == np.inf
        return
    if dynamics.schedule is not None:
        return
    assert prediction.covariance.shape == (3, 3)
    assert np.all(np.linalg.eigvalsh(prediction.covariance) > 0)
    assert prediction.kl_qp >= -1e-9 and prediction.kl_pq >= -1e-9
    assert 0.0 < prediction.relaxation_time < np.inf


def check_instability(row):
    """Half the data in a batch and noise far below the curvature: most tunings would diverge. None
    raises; sample refuses.
    """
    model, curvature = quadratic()
    cur = orn.Curvature(curvature.mode, curvature.hessian, 1e-3 * curvature.noise, curvature.n_data)
    dynamics = row.sampler.tune(cur, batch_size=200)
    for time in ("discrete", "continuous"):
        prediction = dynamics.predict(cur, time=time)
        assert (
            prediction.stable is (prediction.covariance is not None)
            or dynamics.schedule is not None
        )
    if not dynamics.predict(cur).stable:
        with pytest.raises(orn.StabilityError, match=r"beyond the stability bound"):
            orn.sample(model, dynamics, curvature=cur, draws=10, progress=False)


# --- the law of one step --------------------------------------------------------------------------


def check_one_step(row, name, dtype):
    """Mean, covariance and injected noise of one step of the compiled code, by enumeration."""
    for scheme in SCHEMES:
        _check_one_step(tuned_to_tiny(row, name, scheme), name, dtype)


@lru_cache(maxsize=32)
def tuned_to_tiny(row, name, scheme):
    return row.sampler.tune(tiny_curvature(name), batch_size=2, scheme=scheme)


def _check_one_step(dynamics, name, dtype):
    small, curvature = tiny(name), tiny_curvature(name)
    size, tolerance = curvature.dim, TOLERANCE[dtype]
    rng = np.random.default_rng(0)
    displacement, velocity = np.float32(0.3 * rng.normal(size=(2, size))).astype(float)
    batches, counts = np.unique(all_minibatches(dynamics.scheme, 5, 2), axis=0, return_counts=True)
    chance = counts / counts.sum()
    # the same shape for every scheme, so that they share compiled code
    padded = np.resize(batches, (5**2, 2))
    step = _Step(dynamics, small.model, curvature.mode, dtype, displacement, velocity, padded)
    outcomes = np.array([step(batch) for batch in range(len(batches))])
    mean = chance @ outcomes
    covariance = (outcomes - mean).T * chance @ (outcomes - mean)

    wanted_mean, wanted_covariance = _one_step_theory(
        dynamics, small, curvature.mode, displacement, step.velocity, step.factor
    )
    assert np.max(np.abs(mean - wanted_mean)) < tolerance * max(1.0, np.max(np.abs(wanted_mean)))
    assert np.max(np.abs(covariance - wanted_covariance)) < tolerance * max(
        1.0, np.max(np.abs(wanted_covariance))
    )
    # Where the step is small, an absolute error says little: the covariance must also be right in
    # its own size.
    assert np.max(np.abs(covariance - wanted_covariance)) < 30 * tolerance * np.max(
        np.abs(wanted_covariance)
    )
    if step.normals:
        still = step(0)
        columns = np.array([step(0, unit) - still for unit in np.eye(size)])
        injected = step.factor * matrix_of(dynamics.injected, size)
        assert np.max(np.abs(columns.T @ columns - injected)) < tolerance * max(
            1.0, np.max(np.abs(injected))
        )
        assert np.max(np.abs(columns.T @ columns - injected)) < 30 * tolerance * np.max(
            np.abs(injected)
        )
    else:
        assert dynamics.injected is None


class _Step:
    """The engine's compiled block, run for one step on a minibatch of choice; returns how far the
    position moved.
    """

    def __init__(self, dynamics, model, mode, dtype, displacement, velocity, batches):
        kernel = dynamics.kernel()
        self.dtype, self.batches, self.normals = dtype, batches, kernel.needs_normals
        self.factor = (
            1.0
            if dynamics.schedule is None
            else float(np.asarray(dynamics.schedule(np.zeros(1)))[0])
        )
        self.program = Program(model.loss, kernel, dynamics.window > 1, 1, one_kernel=True)
        with width(dtype):
            self.problem = model.problem(dtype, mode)
            self.arrays = {
                name: jnp.asarray(value, dtype=dtype) for name, value in dynamics.arrays().items()
            }
            self.state = kernel.start(jnp.asarray(displacement, dtype=dtype))
            if "velocity" in self.state:
                self.state["velocity"] = jnp.asarray(velocity, dtype=dtype)
            self.indices = jnp.asarray(batches, dtype=jnp.int32)
            self.factors = (
                None
                if dynamics.schedule is None
                else jnp.full(len(batches), self.factor, dtype=dtype)
            )
        self.start = displacement
        self.velocity = (
            (1.0 - dynamics.damping) * velocity if "velocity" in self.state else 0.0 * velocity
        )

    def __call__(self, batch, normal=None):
        with width(self.dtype):
            normals = None
            if self.normals:
                normals = jnp.zeros((len(self.batches), self.start.size), dtype=self.dtype)
                normals = (
                    normals
                    if normal is None
                    else normals.at[batch].set(jnp.asarray(normal, dtype=self.dtype))
                )
            randomness = (self.indices, normals, self.factors)
            memory = kept_memory(self.program, self.state["position"])
            state, kept, sums = run_block(
                self.program, self.problem, self.arrays, self.state, randomness, batch, 1, 1, memory
            )
        position = np.asarray(kept[0], dtype=float)
        assert np.array_equal(np.asarray(state["position"], dtype=float), position)
        assert sums is None or np.array_equal(np.asarray(sums[0], dtype=float), position)
        moved = position - self.start
        if "velocity" in state:
            assert (
                np.max(np.abs(np.asarray(state["velocity"], dtype=float) - moved))
                < TOLERANCE[self.dtype]
            )
        return moved


def _one_step_theory(dynamics, small, mode, displacement, velocity, factor):
    """(1−μ)v − H g(θ) and H Cov(ĝ) H f/S, from gradients written out by hand."""
    step = factor * matrix_of(dynamics.preconditioner, mode.size)
    slopes, prior = small.slopes(mode + displacement), small.prior_slope(mode + displacement)
    if dynamics.control_variates:
        slopes, prior = slopes - small.slopes(mode), prior - small.prior_slope(mode)
    noise = np.cov(slopes.T, bias=True) * noise_factor(dynamics.scheme, 5, 2) / 2
    return velocity - step @ (slopes.mean(axis=0) + prior), step @ noise @ step


# --- the stationary covariance --------------------------------------------------------------------


def covariance_scores(post, predicted=None):
    """Difference of every covariance entry from the prediction in Monte-Carlo standard errors, and
    the largest relative error.
    """
    error = covariance_standard_error(post.moment_process(), post.settings["states"])
    predicted = post.prediction.covariance if predicted is None else predicted
    scale = np.sqrt(np.multiply.outer(np.diagonal(predicted), np.diagonal(predicted)))
    return (post.covariance - predicted) / error, float(np.max(SIGMAS * error / scale))


def mean_error(post):
    """Monte-Carlo standard error of every mean, from the predicted autocovariance."""
    process = post.moment_process()
    lags = int(40 * process.modes.relaxation_time / process.spacing) + 3
    total = np.diagonal(process.covariance()) + 2.0 * sum(
        np.diagonal(process.autocovariance(lag)) for lag in range(1, lags)
    )
    return np.sqrt(total / post.settings["states"])


def check_stationary(row, build, batch_size):
    """The covariance of a run that can see a difference of DETECTABLE, against the prediction."""
    model, curvature = build()
    dynamics = row.sampler.tune(curvature, batch_size=batch_size)
    prediction = dynamics.predict(curvature)
    assert prediction.stable
    # states are kept at an eighth of it
    chains, thin = 4, 8 * max(1, int(np.ceil(prediction.relaxation_time / 4.0)))
    options = {
        "thin": "auto" if dynamics.window > 1 else thin,
        "draws": 4000,
        "chains": chains,
        "keep": "moments",
    }
    post = orn.sample(
        model, dynamics, curvature=curvature, seed=3, progress=False, max_steps=10**9, **options
    )
    scores, detectable = covariance_scores(post)
    assert detectable < DETECTABLE
    assert np.max(np.abs(scores)) < SIGMAS
    # in a quadratic model the mean is the mode, elsewhere near it only
    if model.linear is None:
        assert np.max(np.abs(post.mean - curvature.mode) / mean_error(post)) < SIGMAS


# --- reproducibility and storage ------------------------------------------------------------------


def positions_of(run, keeps, stride):
    """What every chain keeps: (chains, keeps, D)."""
    kept = [[] for _ in run.chains]
    assert run.advance(keeps, stride, lambda chain, values: kept[chain].append(values.positions))
    return np.array([np.concatenate(values) for values in kept])


def check_restored(row, monkeypatch, dtype="float32", scheme="replacement"):
    """run(2n) equals run(n), state, restore into a new run, run(n), to the bit; blocks of
    randomness are crossed on the way.
    """
    monkeypatch.setattr("ornstein.engine.blocks.BLOCK_NUMBERS", 256)
    model, curvature = quadratic()
    dynamics = row.sampler.tune(curvature, batch_size=4, scheme=scheme)

    def fresh(seed):
        with width(dtype):
            problem = model.problem(dtype, curvature.mode)
        return Run(
            model.loss, problem, dynamics, model.n_data, np.zeros((2, curvature.dim)), seed, dtype
        )

    whole = positions_of(fresh(7), 100, 3)
    first = fresh(7)
    early = positions_of(first, 50, 3)
    states = [
        jax.tree.map(lambda leaf: np.array(leaf, copy=True), chain.state())
        for chain in first.chains
    ]
    second = fresh(8)
    positions_of(second, 5, 3)
    for chain, state in zip(second.chains, states, strict=True):
        chain.restore(state)
        for ours, theirs in zip(
            jax.tree.leaves(chain.state()), jax.tree.leaves(state), strict=True
        ):
            assert np.array_equal(ours, theirs)
    late = positions_of(second, 50, 3)
    assert np.array_equal(whole, np.concatenate([early, late], axis=1))
    assert all(chain.step == 300 for chain in second.chains)
    assert not np.array_equal(whole[0], whole[1])
    assert not np.array_equal(whole, positions_of(fresh(9), 100, 3))


def check_same_seed(row):
    """Same seed, same draws; a chain does not depend on how many others run beside it; another
    seed, other draws.
    """
    model, curvature = quadratic()

    def draws(**options):
        dynamics = row.sampler.tune(curvature, batch_size=4)
        thin = {"thin": 2} if dynamics.window == 1 else {}
        return orn.sample(
            model,
            dynamics,
            **{
                **thin,
                "draws": 5,
                "warmup": 3,
                "curvature": curvature,
                "progress": False,
                **options,
            },
        ).draws

    one = draws(seed=1, chains=3)
    assert np.array_equal(one, draws(seed=1, chains=3))
    # maps act about the mean of all chains
    if row.sampler.tune(curvature, batch_size=4).output_map is None:
        assert np.array_equal(one[:1], draws(seed=1, chains=1))
    assert not np.array_equal(one, draws(seed=2, chains=3))


def check_stored(row, folder):
    """A saved posterior comes back with its draws, moments, prediction and settings."""
    model, curvature = logistic()
    dynamics = row.sampler.tune(curvature, batch_size=40)
    if not dynamics.predict(curvature).stable or dynamics.schedule is not None:
        return
    thin = {"thin": 2} if dynamics.window == 1 else {}
    post = orn.sample(
        model, dynamics, curvature=curvature, draws=30, chains=2, warmup=3, progress=False, **thin
    )
    back = orn.load(post.save(folder / "fit.orn"))
    assert np.array_equal(back.draws, post.draws) and back.names == post.names
    assert np.array_equal(back.mean, post.mean) and np.array_equal(back.covariance, post.covariance)
    assert back.prediction.covariance == pytest.approx(post.prediction.covariance, rel=1e-8)
    assert back.prediction.relaxation_time == pytest.approx(
        post.prediction.relaxation_time, rel=1e-10
    )
    for field in (
        "batch_size",
        "scheme",
        "damping",
        "window",
        "gap",
        "control_variates",
        "sampler",
        "notes",
    ):
        assert getattr(back.dynamics, field) == getattr(post.dynamics, field)
    assert np.array_equal(back.dynamics.preconditioner, post.dynamics.preconditioner)
    assert (
        back.settings["seed"] == post.settings["seed"]
        and back.settings["thin"] == post.settings["thin"]
    )
    rows = np.eye(3)
    assert np.array_equal(back.predict(rows).draws, post.predict(rows).draws)
    assert jax.tree.all(jax.tree.map(np.array_equal, back.params, post.params))
