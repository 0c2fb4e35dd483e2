"""How the chain of one block is tuned at the current hyperparameters: exactly in full, by
diagonals, or as the paper has it (`paper_tuning`).

Each rule makes a Stage: the dynamics, the centre from which positions are measured, and where the
chains start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np

from ornstein import theory
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.measure import diagonal_curvature, measure
from ornstein.dynamics.dynamics import Dynamics, Sampler
from ornstein.dynamics.prediction import Prediction
from ornstein.engine.run import Run
from ornstein.errors import CurvatureError, InputError, StabilityError
from ornstein.hyper.full_batch import FullBatch, largest_rate
from ornstein.hyper.paper_tuning import PaperTuning as PaperTuning
from ornstein.hyper.stage import CAP, LONGEST_STRIDE, Stage, bounded_stride, given, power_of_two
from ornstein.hyper.stage import Tuning as Tuning
from ornstein.hyper.warm_measure import WarmMeasure
from ornstein.model.model import Model
from ornstein.rows.scheme import automatic_batch, effective_batch
from ornstein.samplers.constant_sgd import ConstantSGD
from ornstein.theory.matrices import matrix_root
from ornstein.types import Array, PyTree

# With this many rows per parameter, K[Σ] changes C by about 1/1000 and is not worth its passes over
# the data in every stage.
PLENTY = 1000
# N D² beyond which a pass for the Hessian takes seconds, and the mode is not sought by Newton's
# method alone.
EXPENSIVE = 10**10


@dataclass
class FullTuning:
    """Mode, Hessian and noise measured exactly; the sampler's law is then the local posterior N(θ̂,
    A⁻¹/N).

    Chains restart from that law at the re-measured mode, so that no block waits for them to walk
    there.
    """

    finds: ClassVar[str] = "exact full tuning: the maximum of the evidence"
    sampler: Sampler
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
            bounded_stride(stride, dynamics, model),
            curvature,
        )

    def follow(self, model: Model, run: Run, positions: Array) -> None:
        """Nothing: the stage's curvature is exact."""

    def state(self) -> dict[str, PyTree]:
        warm = self._warm.state()
        return given(mode=self._mode) | ({"warm": warm} if warm else {})

    def restore(self, state: Mapping[str, PyTree]) -> None:
        self._mode = state.get("mode")
        self._warm.restore(state.get("warm", {}))

    def curvature(self, model: Model) -> Curvature:
        """Measured anew, the search for the mode starting at the last one."""
        if model.n_data > PLENTY * model.dim and model.n_data * model.dim**2 > EXPENSIVE:
            return replace(self._warm.at(model), noise_response=None)
        near = model if self._mode is None else model.replace(init=self._mode)
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
                    f"{dynamics.sampler} delivers window means; em needs a sampler that delivers"
                    " iterates"
                )
            prediction = dynamics.predict(curvature)
            if prediction.stable:
                return dynamics, prediction
            if not isinstance(self.batch_size, str):
                self.notes["cap"] = (
                    f"batch_size {self.batch_size} is beyond what the chain can bear: it was cut to"
                    f" {size // 2}"
                )
            size //= 2
        return self._helped(curvature, max(1, size))

    def _helped(self, curvature: Curvature, size: int) -> tuple[Dynamics, Prediction]:
        """Half the exact step, H = (A + (N/S)C)⁻¹, and R = H/N injected: the same law with less of
        the data's own noise.

        For λ far from where it ends, where gradients are too quiet for the curvature (a noise scale
        much too large).
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
                "no batch size leaves the chain stable: start the hyperparameters nearer"
                " to their optimum"
            )
        return dynamics, prediction


@dataclass
class DiagonalTuning:
    """Diagonals only: H_kk = 2/(A_kk + (N/S) C'_kk) with A taken as C' = C + Λ/N, and the missing
    noise injected.

    The law is the diagonal-Laplace one, N(θ̂, diag(A)⁻¹/N), so that a λ found with it is the
    *diagonal*-Laplace optimum: above the evidence's where features are correlated. Where λ_max(HA)
    passes the cap, H is scaled down and noise injected in its place.
    """

    finds: ClassVar[str] = (
        "diagonal tuning: the optimum of the diagonal-Laplace approximation, above the evidence's"
        " where features are correlated"
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
        return Stage(
            dynamics, centre, starts, bounded_stride(LONGEST_STRIDE, dynamics, model), curvature
        )

    def follow(self, model: Model, run: Run, positions: Array) -> None:
        """Nothing: the stage's diagonal is measured on all rows."""

    def state(self) -> dict[str, PyTree]:
        return given(steepest=self._steepest)

    def restore(self, state: Mapping[str, PyTree]) -> None:
        self._steepest = state.get("steepest")

    def tune(self, curvature: Curvature) -> Dynamics:
        n_data, noise = curvature.n_data, curvature.noise
        shape = 1.0 / curvature.hessian
        fastest = self._fastest(curvature, np.sqrt(shape))
        size = self.batch_size
        if isinstance(size, str):
            # H = 2/(1 + N/S)/A_kk must keep λ_max(HA) below the cap.
            size = power_of_two(
                min(automatic_batch(n_data), CAP * n_data / max(2.0 * fastest - CAP, 1e-300))
            )
        batch = effective_batch(self.scheme, n_data, size)
        step = 2.0 / (1.0 + n_data / batch) * shape
        excess = 2.0 / (1.0 + n_data / batch) * fastest / CAP
        if excess > 1.0:
            self.notes["cap"] = (
                f"at batch_size {size} the step would reach {excess:.3g} times the cap λ_max(HA) ="
                f" {CAP:g}: it is scaled down to the cap and noise injected in its place, so that"
                " the chain cannot blow up. What is found then lies between the diagonal-Laplace"
                " optimum and the evidence's"
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
        assert curvature.hessian_product is not None
        value, self._steepest = largest_rate(curvature.hessian_product, root, begin)
        return value


def automatic_sampler(sampler: Sampler | str, model: Model, limit: int) -> Sampler | str:
    """ "full" up to `limit` parameters and "diagonal" beyond, where "auto"; a sampler object as it
    is.
    """
    if sampler == "auto":
        sampler = "full" if model.dim <= limit else "diagonal"
    if sampler == "full":
        return ConstantSGD("full")
    if sampler == "diagonal" or isinstance(sampler, Sampler):
        return sampler
    raise InputError(
        "sampler must be 'auto', 'full', 'diagonal' or a sampler such as ConstantSGD('full'); got"
        f" {sampler!r}"
    )
