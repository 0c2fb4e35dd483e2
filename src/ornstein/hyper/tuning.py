"""How the chain of one block is tuned at the current hyperparameters: exactly in full, by diagonals, or as the paper has it.

Each rule makes a Stage: the dynamics, the centre from which positions are measured, and where the chains start.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np

from ornstein import theory
from ornstein.curvature import Curvature, diagonal_curvature, measure
from ornstein.derivatives import Autodiff
from ornstein.dynamics import Dynamics, matrix_root
from ornstein.engine import Run, block_length
from ornstein.errors import CurvatureError, InputError, StabilityError
from ornstein.hyper.full_batch import FullBatch, largest_rate
from ornstein.hyper.warm_measure import WarmMeasure
from ornstein.minibatch import IndexSource, effective_batch
from ornstein.model import Model
from ornstein.online_noise import OnlineNoise, noise_along
from ornstein.prediction import Prediction
from ornstein.sample import automatic_batch
from ornstein.samplers.constant_sgd import ConstantSGD

Array = np.ndarray

# λ_max(HA) of a capped step: half the bound, so that a curvature a little off does no harm.
CAP = 1.0
# With this many rows per parameter, K[Σ] changes C by about 1/1000 and is not worth its passes over the data in every stage.
PLENTY = 1000
# N D² beyond which a pass for the Hessian takes seconds, and the mode is not sought by Newton's method alone.
DEAR = 10**10
LONGEST_STRIDE = 500
SMALLEST_WEIGHT = 1e-3


@dataclass(frozen=True, eq=False)
class Stage:
    """Chains ready to run at one φ; positions are displacements from `centre`."""

    dynamics: Dynamics
    centre: Array
    starts: Array
    stride: int
    curvature: Curvature | None = None


class Tuning(Protocol):
    """What the loop over blocks asks of a recipe; `finds` says in words what it finds."""

    finds: ClassVar[str]
    notes: dict[str, str]

    def stage(self, model: Model, positions: Array | None, seed: np.random.SeedSequence) -> Stage:
        """Chains for `model`, which go on from `positions` (chains, D) of the last block."""

    def follow(self, model: Model, run: Run, positions: Array) -> Dynamics | None:
        """Re-tune a running chain by what was seen along it; the new dynamics, or None where it stays."""

    def state(self) -> dict[str, Any]:
        """What one stage hands on to the next, as a tree of arrays."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""


@dataclass
class FullTuning:
    """Mode, Hessian and noise measured exactly; the sampler's law is then the local posterior N(θ̂, A⁻¹/N).

    Chains restart from that law at the re-measured mode, so that no block waits for them to walk there.
    """

    finds: ClassVar[str] = "exact full tuning: the maximum of the evidence"
    sampler: Any
    full_batch: FullBatch
    batch_size: int | str
    scheme: str
    chains: int
    notes: dict[str, str] = field(default_factory=dict)
    _mode: Array | None = None
    _warm: WarmMeasure = field(init=False)

    def __post_init__(self) -> None:
        self._warm = WarmMeasure(self.full_batch)

    def stage(self, model: Model, positions: Array | None, seed: np.random.SeedSequence) -> Stage:
        curvature = self.curvature(model)
        dynamics, prediction = self.stable(curvature)
        spread = (
            curvature.posterior_covariance
            if prediction.covariance is None
            else prediction.covariance
        )
        normals = np.random.default_rng(seed).standard_normal((self.chains, model.dim))
        stride = min(math.ceil(2.0 * prediction.relaxation_time), LONGEST_STRIDE)
        return Stage(
            dynamics,
            curvature.mode,
            normals @ matrix_root(spread).T,
            _stride(stride, dynamics, model),
            curvature,
        )

    def follow(self, model: Model, run: Run, positions: Array) -> None:
        """Nothing: the stage's curvature is exact."""

    def state(self) -> dict[str, Any]:
        warm = self._warm.state()
        return _given(mode=self._mode) | ({"warm": warm} if warm else {})

    def restore(self, state: Mapping[str, Any]) -> None:
        self._mode = state.get("mode")
        self._warm.restore(state.get("warm", {}))

    def curvature(self, model: Model) -> Curvature:
        """Measured anew, the search for the mode starting at the last one."""
        if model.n_data > PLENTY * model.dim and model.n_data * model.dim**2 > DEAR:
            return replace(self._warm.at(model), noise_response=None)
        near = copy.copy(model)
        near.init = model.init if self._mode is None else self._mode
        curvature = measure(near, "full")
        self._mode = curvature.mode
        return (
            replace(curvature, noise_response=None)
            if model.n_data > PLENTY * model.dim
            else curvature
        )

    def stable(self, curvature: Curvature) -> tuple[Dynamics, Prediction]:
        size = (
            automatic_batch(curvature.n_data)
            if isinstance(self.batch_size, str)
            else self.batch_size
        )
        while size >= 1:
            try:
                dynamics = self.sampler.tune(curvature, batch_size=size, scheme=self.scheme)
            except CurvatureError:
                break
            if dynamics.window > 1:
                raise InputError(
                    f"{dynamics.sampler} delivers window means; em needs a sampler that delivers iterates"
                )
            prediction = dynamics.predict(curvature)
            if prediction.stable:
                return dynamics, prediction
            if not isinstance(self.batch_size, str):
                self.notes["cap"] = (
                    f"batch_size {self.batch_size} is beyond what the chain can bear: it was cut to {size // 2}"
                )
            size //= 2
        return self._helped(curvature, max(1, size))

    def _helped(self, curvature: Curvature, size: int) -> tuple[Dynamics, Prediction]:
        """Half the exact step, H = (A + (N/S)C)⁻¹, and R = H/N injected: the same law with less of the data's own noise.

        For λ far from where it ends, where gradients are too quiet for the curvature (a noise scale much too large).
        """
        batch = effective_batch(self.scheme, curvature.n_data, size)
        step = (
            theory.exact_preconditioner(
                curvature.hessian, curvature.effective_noise, curvature.n_data, batch
            )
            / 2.0
        )
        dynamics = Dynamics(
            step, size, self.scheme, injected=step / curvature.n_data, sampler="ConstantSGD('full')"
        )
        prediction = dynamics.predict(curvature)
        if not prediction.stable:
            raise StabilityError(
                "no batch size leaves the chain stable: start the hyperparameters nearer to where they belong"
            )
        return dynamics, prediction


@dataclass
class DiagonalTuning:
    """Diagonals only: H_kk = 2/(A_kk + (N/S) C'_kk) with A taken as C' = C + Λ/N, and the missing noise injected.

    The law is the diagonal-Laplace one, N(θ̂, diag(A)⁻¹/N), so that a λ found with it is the *diagonal*-Laplace optimum: above the
    evidence's where features are correlated. Where λ_max(HA) passes the cap, H is scaled down and noise injected in its place.
    """

    finds: ClassVar[str] = (
        "diagonal tuning: the optimum of the diagonal-Laplace approximation, above the evidence's where features are correlated"
    )
    full_batch: FullBatch
    batch_size: int | str
    scheme: str
    chains: int
    notes: dict[str, str] = field(default_factory=dict)
    _steepest: Array | None = None

    def stage(self, model: Model, positions: Array | None, seed: np.random.SeedSequence) -> Stage:
        centre = (
            self.full_batch.mode(model, model.init, np.ones(model.dim))
            if positions is None
            else positions.mean(axis=0)
        )
        curvature = diagonal_curvature(
            model, centre, partial(self.full_batch.hessian_product, model)
        )
        dynamics = self.tune(curvature)
        if positions is None:
            normals = np.random.default_rng(seed).standard_normal((self.chains, model.dim))
            starts = normals * np.sqrt(curvature.posterior_covariance)
        else:
            starts = positions - centre
        return Stage(dynamics, centre, starts, _stride(LONGEST_STRIDE, dynamics, model), curvature)

    def follow(self, model: Model, run: Run, positions: Array) -> None:
        """Nothing: the stage's diagonal is measured on all rows."""

    def state(self) -> dict[str, Any]:
        return _given(steepest=self._steepest)

    def restore(self, state: Mapping[str, Any]) -> None:
        self._steepest = state.get("steepest")

    def tune(self, curvature: Curvature) -> Dynamics:
        n_data, noise = curvature.n_data, curvature.noise
        shape = 1.0 / curvature.hessian
        fastest = self._fastest(curvature, np.sqrt(shape))
        size = self.batch_size
        if isinstance(size, str):
            # H = 2/(1 + N/S)/A_kk must keep λ_max(HA) below the cap.
            size = _power_of_two(
                min(automatic_batch(n_data), CAP * n_data / max(2.0 * fastest - CAP, 1e-300))
            )
        batch = effective_batch(self.scheme, n_data, size)
        step = 2.0 / (1.0 + n_data / batch) * shape
        excess = 2.0 / (1.0 + n_data / batch) * fastest / CAP
        if excess > 1.0:
            self.notes["cap"] = (
                f"at batch_size {size} the step would reach {excess:.3g} times the cap λ_max(HA) = {CAP:g}: it is scaled down to the "
                "cap and noise injected in its place, so that the chain cannot blow up. What is found then lies between the "
                "diagonal-Laplace optimum and the evidence's"
            )
        step = step / max(1.0, excess)
        injected = np.maximum(
            theory.matched_injection(curvature.hessian, noise, step, n_data, batch), 0.0
        )
        return Dynamics(
            step, size, self.scheme, injected=injected, sampler="ConstantSGD('diagonal')"
        )

    def _fastest(self, curvature: Curvature, root: Array) -> float:
        begin = (
            np.random.default_rng(0).standard_normal(curvature.dim)
            if self._steepest is None
            else self._steepest
        )
        value, self._steepest = largest_rate(curvature.hessian_product, root, begin)
        return value


@dataclass
class PaperTuning:
    """The paper's recipe: one rate ε* = 2(S/N) P/tr C, with tr C estimated along the chain; nothing injected.

    It overshoots: coordinates without data gradient (dead columns) carry no noise, SGD pins them, and λ is driven up. The rate is
    capped at 1/λ_max, re-measured as λ moves, because it would otherwise blow up for large S.
    """

    finds: ClassVar[str] = (
        "the paper's scalar recipe: known to overshoot, most of all where columns carry little gradient noise"
    )
    full_batch: FullBatch
    batch_size: int | str
    scheme: str
    chains: int
    notes: dict[str, str] = field(default_factory=dict)
    _noise: OnlineNoise = field(default_factory=lambda: OnlineNoise("scalar"))
    _steepest: Array | None = None
    _largest: float = 0.0
    _source: IndexSource | None = None

    def stage(self, model: Model, positions: Array | None, seed: np.random.SeedSequence) -> Stage:
        centre = (
            self.full_batch.mode(model, model.init, np.ones(model.dim))
            if positions is None
            else positions.mean(axis=0)
        )
        starts = np.zeros((self.chains, model.dim)) if positions is None else positions - centre
        prior = model.scaled_prior_hessian(centre)
        prior = np.diagonal(prior) if prior.ndim == 2 else prior
        self._steepen(
            lambda vector: self.full_batch.hessian_product(model, centre, vector) + prior * vector,
            model.dim,
        )
        if self._source is None:
            self._begin(model, centre, seed)
        dynamics = self._dynamics(model.n_data)
        return Stage(dynamics, centre, starts, _stride(LONGEST_STRIDE, dynamics, model))

    def follow(self, model: Model, run: Run, positions: Array) -> Dynamics:
        """One fresh minibatch per chain for tr C, then the rate it asks for."""
        assert self._source is not None
        noise_along(model, run.problem, positions, self._source, self._noise, run.dtype)
        dynamics = self._dynamics(model.n_data)
        run.retune(dynamics)
        return dynamics

    def tune(self, curvature: Curvature) -> Dynamics:
        """The rate as it was left, under the cap of this curvature: λ goes on after the last stage, and λ_max with it."""
        self._steepen(curvature.hessian_product, curvature.dim)
        return self._dynamics(curvature.n_data)

    def state(self) -> dict[str, Any]:
        if self._source is None:
            return {}
        noise = _given(count=self._noise.count, noise=self._noise._noise, mean=self._noise._mean)
        numbers = _given(
            batch_size=self.batch_size,
            n_data=self._source.n_data,
            steepest=self._steepest,
            largest=self._largest,
        )
        return {**numbers, "noise": noise, "source": self._source.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        if not state:
            return
        noise = state["noise"]
        self.batch_size, self._steepest, self._largest = (
            int(state["batch_size"]),
            state["steepest"],
            float(state["largest"]),
        )
        self._noise = OnlineNoise(
            "scalar", SMALLEST_WEIGHT, int(noise["count"]), noise["noise"], noise.get("mean")
        )
        self._source = IndexSource(
            self.scheme, int(state["n_data"]), self.batch_size, np.random.default_rng(0)
        )
        self._source.restore(state["source"])

    def _steepen(self, product: Any, dim: int) -> None:
        begin = (
            np.random.default_rng(0).standard_normal(dim)
            if self._steepest is None
            else self._steepest
        )
        self._largest, self._steepest = largest_rate(product, np.asarray(1.0), begin)

    def _begin(self, model: Model, centre: Array, seed: np.random.SeedSequence) -> None:
        derivatives = model.closed_form() or Autodiff(model)
        first, second = derivatives.diagonal_moments(centre)
        trace = float(np.sum(second - first**2))
        if isinstance(self.batch_size, str):
            bound = model.n_data * trace / (2.0 * model.dim * self._largest)
            self.batch_size = _power_of_two(min(automatic_batch(model.n_data), bound))
        self._source = IndexSource(
            self.scheme,
            model.n_data,
            self.batch_size,
            np.random.Generator(np.random.SFC64(seed.spawn(1)[0])),
        )
        # The exact trace at the start counts for a hundred minibatches; the weights have a floor, because C drifts with λ.
        self._noise = OnlineNoise("scalar", SMALLEST_WEIGHT, 100, np.asarray(trace / model.dim))

    def _dynamics(self, n_data: int) -> Dynamics:
        assert isinstance(self.batch_size, int)
        batch = effective_batch(self.scheme, n_data, self.batch_size)
        rate, bound = 2.0 * batch / (n_data * float(self._noise.noise)), CAP / self._largest
        if rate > bound:
            smaller = int(self.batch_size * bound / rate)
            self.notes["cap"] = (
                f"at batch_size {self.batch_size} the paper's rate {rate:.3g} passes 1/λ_max = {bound:.3g} and is capped there, so "
                "that the chain cannot blow up; it is then narrower than the recipe wants. "
                + (
                    f"Choose batch_size ≤ {smaller}"
                    if smaller
                    else "No batch_size is small enough for this recipe here"
                )
            )
        return Dynamics(
            np.asarray(min(rate, bound)),
            self.batch_size,
            self.scheme,
            sampler="ConstantSGD('scalar')",
        )


def automatic_sampler(sampler: Any, model: Model, limit: int) -> Any:
    """ "full" up to `limit` parameters and "diagonal" beyond, where "auto"; a sampler object as it is."""
    if sampler == "auto":
        sampler = "full" if model.dim <= limit else "diagonal"
    if sampler == "full":
        return ConstantSGD("full")
    if sampler == "diagonal" or hasattr(sampler, "tune"):
        return sampler
    raise InputError(
        f"sampler must be 'auto', 'full', 'diagonal' or a sampler such as ConstantSGD('full'); got {sampler!r}"
    )


def _given(**values: Any) -> dict[str, Any]:
    """Those that are there, as arrays."""
    return {name: np.asarray(value) for name, value in values.items() if value is not None}


def _stride(wanted: int, dynamics: Dynamics, model: Model) -> int:
    return max(1, min(wanted, block_length(dynamics, model.dim)))


def _power_of_two(bound: float) -> int:
    """The largest one within the bound, at least 1."""
    return 2 ** int(math.log2(max(bound, 1.0)))
