"""The paper's rule of tuning: one rate for all coordinates, from the trace of the gradient noise
along the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ornstein.curvature.curvature import Curvature
from ornstein.curvature.derivatives import derivatives_of
from ornstein.curvature.online_noise import OnlineNoise, noise_along
from ornstein.dynamics.dynamics import Dynamics
from ornstein.engine.run import Run
from ornstein.hyper.full_batch import FullBatch, largest_rate
from ornstein.hyper.stage import (
    CAP,
    LONGEST_STRIDE,
    Stage,
    bounded_stride,
    given,
    power_of_two,
)
from ornstein.model.model import Model
from ornstein.rows.scheme import automatic_batch, effective_batch
from ornstein.rows.sources import IndexSource
from ornstein.types import Array, PyTree

SMALLEST_WEIGHT = 1e-3


@dataclass
class PaperTuning:
    """The paper's recipe: one rate ε* = 2(S/N) P/tr C, with tr C estimated along the chain; nothing
    injected.

    It overshoots: coordinates without data gradient (dead columns) carry no noise, SGD pins them,
    and λ is driven up. The rate is capped at 1/λ_max, re-measured as λ moves, because it would
    otherwise blow up for large S.
    """

    finds: ClassVar[str] = (
        "the paper's scalar recipe: known to overshoot, most of all where columns carry little"
        " gradient noise"
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
        return Stage(dynamics, centre, starts, bounded_stride(LONGEST_STRIDE, dynamics, model))

    def follow(self, model: Model, run: Run, positions: Array) -> Dynamics:
        """One fresh minibatch per chain for tr C, then the rate it asks for."""
        assert self._source is not None
        noise_along(model, run.problem, positions, self._source, self._noise, run.dtype)
        dynamics = self._dynamics(model.n_data)
        run.retune(dynamics)
        return dynamics

    def tune(self, curvature: Curvature) -> Dynamics:
        """The rate as it was left, under the cap of this curvature: λ goes on after the last stage,
        and λ_max with it.
        """
        assert curvature.hessian_product is not None
        self._steepen(curvature.hessian_product, curvature.dim)
        return self._dynamics(curvature.n_data)

    def state(self) -> dict[str, PyTree]:
        if self._source is None:
            return {}
        noise = given(count=self._noise.count, noise=self._noise._noise, mean=self._noise._mean)
        numbers = given(
            batch_size=self.batch_size,
            n_data=self._source.n_data,
            steepest=self._steepest,
            largest=self._largest,
        )
        return {**numbers, "noise": noise, "source": self._source.state()}

    def restore(self, state: Mapping[str, PyTree]) -> None:
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

    def _steepen(self, product: Callable[[Array], Array], dim: int) -> None:
        begin = (
            np.random.default_rng(0).standard_normal(dim)
            if self._steepest is None
            else self._steepest
        )
        self._largest, self._steepest = largest_rate(product, np.asarray(1.0), begin)

    def _begin(self, model: Model, centre: Array, seed: np.random.SeedSequence) -> None:
        derivatives = derivatives_of(model)
        first, second = derivatives.diagonal_moments(centre)
        trace = float(np.sum(second - first**2))
        if isinstance(self.batch_size, str):
            bound = model.n_data * trace / (2.0 * model.dim * self._largest)
            self.batch_size = power_of_two(min(automatic_batch(model.n_data), bound))
        self._source = IndexSource(
            self.scheme,
            model.n_data,
            self.batch_size,
            np.random.Generator(np.random.SFC64(seed.spawn(1)[0])),
        )
        # The exact trace at the start counts for a hundred minibatches; the weights have a floor,
        # because C drifts with λ.
        self._noise = OnlineNoise("scalar", SMALLEST_WEIGHT, 100, np.asarray(trace / model.dim))

    def _dynamics(self, n_data: int) -> Dynamics:
        assert isinstance(self.batch_size, int)
        batch = effective_batch(self.scheme, n_data, self.batch_size)
        rate, bound = 2.0 * batch / (n_data * float(self._noise.noise)), CAP / self._largest
        if rate > bound:
            smaller = int(self.batch_size * bound / rate)
            self.notes["cap"] = (
                f"at batch_size {self.batch_size} the paper's rate {rate:.3g} passes 1/λ_max ="
                f" {bound:.3g} and is capped there, so that the chain cannot blow up; it is then"
                " narrower than the recipe wants. "
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
